"""``torpor recover --from-dlq``: what the dead-letter queue holds is done again, and then taken out of it.

Two kinds of message end there: wakes that failed again and again, and events that the resume function could not take.
"""

from __future__ import annotations

import http.client
import json
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from adapters.events import MESSAGE
from adapters.sqs import Wake, read_wake
from infra.api_client import segment
from infra.aws import client, local_client
from infra.fault import CalledWronglyError, DeployError
from infra.printing import short
from infra.target import DevNote, find_api, stack_outputs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from infra.api_client import ApiClient, Reply

SOURCE = "torpor.redrive"
"""The ``source`` of events that are put on the bus once more."""

BATCH_MAX = 10
"""Messages of one ReceiveMessage. Source: SQS quota."""

HIDDEN_S = 120
"""Seconds for which a message is ours while we act on it; one that we leave is seen again at once. Design choice."""

MESSAGES_MAX = 10_000
"""Messages of one redrive; more are left for the next. Design choice: it must come to an end beside whoever fails."""

_ENDED = frozenset({http.client.NOT_FOUND, http.client.CONFLICT})


class Letter(Struct, frozen=True, kw_only=True):
    """What a dead letter asks for: a look at a workflow, or a message for it (``event`` is then its detail).

    ``key`` is what the message is known by, so that it counts once. ``workflow_id`` is empty where the message is for
    whoever has the tags that it names.
    """

    workflow_id: str
    event: dict[str, Any] | None = None
    key: str = ""


class Bus(Struct, frozen=True):
    """The stack's event bus: a botocore client, and its name."""

    client: Any
    name: str


class Done(Struct, frozen=True, kw_only=True):
    """What became of one letter; ``is_settled`` says that it was taken out of the queue."""

    workflow_id: str
    what: str
    is_settled: bool


def read_letter(body: str) -> Letter | None:
    """What the body of a dead letter asks for; None where it is nothing of ours."""
    wake = read_wake(body)
    if isinstance(wake, Wake):
        return Letter(workflow_id=wake.workflow_id)
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return None
    # Lambda wraps an event that failed in a record of its own.
    event: Any = found.get("requestPayload", found) if isinstance(found, dict) else None
    match event:
        case {"detail-type": str(kind), "id": event_id, "detail": {"workflow_id": str(workflow_id), "name": str()}} if (
            kind == MESSAGE
        ):
            detail = event["detail"]
            return Letter(workflow_id=workflow_id, event=detail, key=str(detail.get("id") or event_id))
        case {"detail-type": str(kind), "id": event_id, "detail": {"type": str(), "tags": {}, "name": str()}} if (
            kind == MESSAGE
        ):
            detail = event["detail"]
            return Letter(workflow_id="", event=detail, key=str(detail.get("id") or event_id))
        case {"detail": {"workflow_id": str(workflow_id)}} | {"workflow_id": str(workflow_id)}:
            return Letter(workflow_id=workflow_id)
    return None


def redrive(api: ApiClient, queue: Any, queue_url: str, bus: Bus | None = None) -> Iterator[Done]:
    """Act on every message of the dead-letter queue, and delete those that are settled.

    Args:
        api: where workflows are woken.
        queue: a botocore SQS client.
        queue_url: the dead-letter queue.
        bus: where messages for tags are put once more; without it they are left in the queue.
    """
    left: list[str] = []
    try:
        for message in _messages(queue, queue_url):
            done = _act(api, bus, read_letter(message["Body"]))
            if done.is_settled:
                queue.delete_message(QueueUrl=queue_url, ReceiptHandle=message["ReceiptHandle"])
            else:
                left.append(message["ReceiptHandle"])
            yield done
    finally:
        for handle in left:
            queue.change_message_visibility(QueueUrl=queue_url, ReceiptHandle=handle, VisibilityTimeout=0)


def _messages(queue: Any, queue_url: str) -> Iterator[dict[str, Any]]:
    for _ in range(MESSAGES_MAX // BATCH_MAX):
        answer = queue.receive_message(
            QueueUrl=queue_url, MaxNumberOfMessages=BATCH_MAX, VisibilityTimeout=HIDDEN_S, WaitTimeSeconds=1
        )
        if not answer.get("Messages"):
            return
        yield from answer["Messages"]


def _act(api: ApiClient, bus: Bus | None, letter: Letter | None) -> Done:
    if letter is None:
        return Done(workflow_id="?", what="left in the queue: it names no workflow", is_settled=False)
    if letter.event is not None and not letter.workflow_id:
        is_put = bus is not None and _put_again(bus, letter.event, letter.key)
        what = "put on the bus again" if is_put else "left in the queue: the bus did not take it"
        return Done(workflow_id="?", what=f'{what}: the message "{letter.event["name"]}"', is_settled=is_put)
    try:
        reply, what = _ask_again(api, letter)
    except CalledWronglyError as error:
        return Done(workflow_id=letter.workflow_id, what=f"left in the queue: {error}", is_settled=False)
    if reply.is_success:
        return Done(workflow_id=letter.workflow_id, what=what, is_settled=True)
    if reply.status in _ENDED:
        return Done(workflow_id=letter.workflow_id, what=f"nothing to do: {_title(reply)}", is_settled=True)
    return Done(workflow_id=letter.workflow_id, what=f"left in the queue: {_title(reply)}", is_settled=False)


def _put_again(bus: Bus, detail: dict[str, Any], key: str) -> bool:
    entry = {
        "EventBusName": bus.name,
        "Source": SOURCE,
        "DetailType": MESSAGE,
        "Detail": json.dumps({**detail, "id": key}),
    }
    return not bus.client.put_events(Entries=[entry])["FailedEntryCount"]


def _ask_again(api: ApiClient, letter: Letter) -> tuple[Reply, str]:
    at = f"/workflows/{segment(letter.workflow_id)}"
    if letter.event is None:
        return api.request("POST", f"{at}/wake"), "woken"
    path = f"{at}/messages/{segment(letter.event['name'])}"
    body = json.dumps(letter.event.get("body")).encode()
    # Not as a header: a key may be any text.
    reply = api.request("POST", path, query={"id": letter.key}, body=body)
    return reply, f'sent its message "{letter.event["name"]}"'


def _title(reply: Reply) -> str:
    try:
        told = reply.json()
    except ValueError:
        told = None
    title = told.get("title") if isinstance(told, dict) else None
    return f"{title or 'the API answered'} ({reply.status})"


def run(*, stack: str | None, region: str | None, folder: Path, say: Callable[[str], None]) -> None:
    """Redrive the dead-letter queue of a deployed stack, or of the ``torpor dev`` that runs in ``folder``.

    Raises:
        DeployError: there is no such stack, or something was left in the queue.
    """
    api = find_api(stack=stack, endpoint=None, region=region)
    if stack is not None:
        queue, outputs = client("sqs", region=region), stack_outputs(stack, region)
        bus = Bus(client("events", region=region), outputs["BusName"])
    else:
        note = DevNote.find(folder)
        assert note is not None
        queue, outputs = local_client("sqs", note.endpoint), note.outputs
        bus = Bus(local_client("events", note.endpoint), outputs["BusName"])
    counts = {True: 0, False: 0}
    for done in redrive(api, queue, outputs["DeadLetterQueueUrl"], bus):
        counts[done.is_settled] += 1
        say(short(f"{done.workflow_id}  {done.what}"))
    say(f"{counts[True]} settled, {counts[False]} left in the dead-letter queue")
    if counts[False]:
        raise DeployError("Something is left in the dead-letter queue; see docs/RELIABILITY.md.")
