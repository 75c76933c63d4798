"""The commands that talk to the HTTP interface: each makes its requests and prints what came back."""

from __future__ import annotations

import http.client
import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.clock import SystemClock
from engine.lifecycle import ENDED
from infra import history_view, many, now_view, redrive
from infra.api_client import segment
from infra.asking import PAGE_MAX, ask, encoded, find, listed, tell, told_error, value_of
from infra.fault import CalledWronglyError, DeployError
from infra.ministack import wait
from infra.printing import as_json, lines_of, print_json, print_line, print_table, short

if TYPE_CHECKING:
    from argparse import Namespace

    from infra.api_client import ApiClient, Reply

WAIT_MAX_S = 25
"""Seconds that the API waits at most within one request; longer waits are several requests. Source: the API."""

POLL_S = 1.0
"""Seconds between two looks of ``watch``. Design choice."""

UNDONE_NAMED = 5
"""Undone steps that a line names; the history shows all. Design choice."""

LISTEN_S = 20
"""Seconds that one request of ``watch --messages`` waits for a message. Source: the API."""


def start(arguments: Namespace) -> None:
    """``torpor start``: start a workflow, and with ``--wait`` see it end."""
    if arguments.replace_failed and not arguments.unique:
        raise CalledWronglyError("--replace-failed says what --unique does: give both, or neither")
    body: dict[str, Any] = {"input": arguments.input}
    if arguments.id is not None:
        body["id"] = arguments.id
    if arguments.tag:
        body["tags"] = dict(arguments.tag)
    if arguments.start_at is not None:
        body["start_at"] = arguments.start_at
    body |= {name: True for name in ("unique", "replace_failed") if getattr(arguments, name)}
    api = find(arguments)
    path = f"/workflows/{segment(arguments.type)}"
    reply = api.request("POST", path, body=encoded(body), headers=_ray(arguments))
    started = value_of(reply)
    if arguments.wait is not None:
        _print_ending(arguments, _ending(api, started["id"], arguments.wait))
    else:
        how = f"started{_waiting(arguments.start_at)}" if started.get("created", True) else "was started before"
        tell(arguments, started, f"{started['id']}  {how}{_ids(reply)}")


def _waiting(start_at: str | None) -> str:
    """Until when a workflow waits that begins at that instant; nothing where it does not wait."""
    if start_at is None:
        return ""
    # The API has taken the text: it is an instant with an offset.
    is_ahead = datetime.fromisoformat(start_at).timestamp() * 1000 > SystemClock().now()
    return f"; it waits until {start_at}" if is_ahead else ""


def send(arguments: Namespace) -> None:
    """``torpor send``: post a message, and with ``--wait`` print the reply to it."""
    many.check_tags(arguments)
    _check_one(arguments.id, arguments.type, "--type TYPE", "ID and NAME, or NAME and --type TYPE")
    if arguments.type is not None:
        _signal(arguments)
        return
    query = {} if arguments.wait is None else {"wait": f"{min(arguments.wait, WAIT_MAX_S):g}"}
    if arguments.key is not None:
        # Not the header Idempotency-Key: a key may be any text, and a header may not.
        query["id"] = arguments.key
    reply = _post(arguments, f"{_at(arguments)}/messages/{segment(arguments.name)}", arguments.body, query)
    accepted = value_of(reply)
    if "reply" in accepted and not arguments.json:
        print_json(accepted["reply"])
    else:
        late = "" if arguments.wait is None else f"; no reply came within {query['wait']} s"
        tell(arguments, accepted, f"{_acceptance(accepted)}{late}{_ids(reply)}")


def _signal(arguments: Namespace) -> None:
    """Post a message to the first workflow of a type that has the tags."""
    if arguments.wait is not None:
        raise CalledWronglyError("only who sends to the id of a workflow can wait for the reply")
    body = {"type": arguments.type, "tags": dict(arguments.tag or []), "body": arguments.body}
    if arguments.key is not None:
        body["id"] = arguments.key
    reply = _post(arguments, f"/signals/{segment(arguments.name)}", body, {})
    accepted = value_of(reply)
    tell(arguments, accepted, f"{_acceptance(accepted)} by {accepted.get('workflow_id', '')}{_ids(reply)}")


def _post(arguments: Namespace, path: str, body: Any, query: dict[str, str]) -> Reply:
    """What the API says to a message."""
    return find(arguments).request("POST", path, query=query, body=encoded(body), headers=_ray(arguments))


def _ray(arguments: Namespace) -> dict[str, str]:
    return {} if arguments.ray_id is None else {"X-Ray-Id": arguments.ray_id}


def _ids(reply: Reply) -> str:
    """By what an answer's call, and what comes of it, is found in the logs, as the end of a line; empty if by nothing.

    Of a start that was made before the ids are those of that one: the workflow's lines have them.
    """
    told = value_of(reply)
    known = {"ray": told.get("ray_id"), "request": told.get("request_id") or reply.headers.get("x-request-id")}
    listed_ids = ", ".join(f"{name} {value}" for name, value in known.items() if value)
    return f"  ({listed_ids})" if listed_ids else ""


def _acceptance(accepted: dict[str, Any]) -> str:
    how = "was accepted before" if accepted.get("duplicate") else "accepted"
    return f"{accepted.get('message_id', '')}  {how}"


def get(arguments: Namespace) -> None:
    """``torpor get``: what is known of a workflow, or its output alone."""
    api = find(arguments)
    if arguments.output or arguments.wait is not None:
        _print_ending(arguments, _ending(api, arguments.id, arguments.wait or 0))
        return
    known = ask(api, "GET", _at(arguments), query={"document": "true"} if arguments.document else None)
    if arguments.json:
        print_json(known)
        return
    width = max(map(len, known), default=0)
    for name, value in known.items():
        # What steps wait for is told below, in words.
        if name != "retrying":
            print(f"{name:<{width}}  {short(value)}")
    for line in now_view.lines(known, SystemClock().now()):
        print(f"{'now':<{width}}  {short(line)}")
    if known.get("state") == "failed":
        # Whole: it is what whoever asks this wants to know.
        first, *more = lines_of(told_error(_ending(api, arguments.id, 0))).split("\n")
        print(f"{'error':<{width}}  {first}")
        for line in more:
            print(f"{'':<{width}}  {line}".rstrip())


def list_workflows(arguments: Namespace) -> None:
    """``torpor list``: workflows, newest first, of one type or state where asked; by tags, in the order of ids."""
    many.check_tags(arguments)
    wanted: dict[str, str | list[str]] = {
        name: value for name in ("type", "state") if (value := getattr(arguments, name)) is not None
    }
    if arguments.tag:
        wanted["tag"] = [f"{name}={value}" for name, value in arguments.tag]
    told = listed(
        find(arguments),
        "/workflows",
        wanted,
        limit=arguments.limit,
        page_max=PAGE_MAX,
        cursor=arguments.cursor,
    )
    if arguments.json:
        print_json(told)
    else:
        print_table(told["workflows"], ("id", "type", "state", "created_at"))


def history(arguments: Namespace) -> None:
    """``torpor history``: every recorded operation of a workflow, in the order of creation."""
    told = ask(find(arguments), "GET", f"{_at(arguments)}/history")
    if arguments.json:
        print_json(told)
    elif told.get("pruned_at"):
        print(f"{arguments.id}  its history was forgotten at {told['pruned_at']}")
    else:
        print_table(
            history_view.rows(told["entries"], told.get("state")),
            (*history_view.COLUMNS, *(["id"] if arguments.ids else [])),
        )
        for line in now_view.lines(told.get("workflow") or {}, SystemClock().now()):
            print(f"now: {short(line)}")


def inbox(arguments: Namespace) -> None:
    """``torpor inbox``: the messages that a workflow has been sent and has not taken, the oldest first."""
    path = f"{_at(arguments)}/messages"
    told = listed(find(arguments), path, {}, limit=arguments.limit, page_max=PAGE_MAX, cursor=arguments.cursor)
    if arguments.json:
        print_json(told)
    else:
        print_table(told["messages"], ("sent_at", "name", "id", "body"))


def order(arguments: Namespace) -> None:
    """``torpor wake``, ``cancel``, ``recover`` and ``replay``: tell a workflow, or many at once, to do something."""
    body = None
    query: dict[str, str] = {}
    if arguments.command == "recover" and _is_from_dlq(arguments):
        redrive.run(stack=arguments.stack, region=arguments.region, folder=Path.cwd(), say=print_line)
        return
    if arguments.command != "replay":
        is_about_many = many.is_meant(arguments)
        _check_one(arguments.id, arguments.type, "--type TYPE", "ID, or --type TYPE")
        if is_about_many:
            many.order(arguments)
            return
    if arguments.command == "replay":
        body = {} if arguments.entry is None else {"entry_id": arguments.entry}
    if arguments.command == "cancel" and arguments.rollback:
        query = {"rollback": "true"}
    path = f"{_at(arguments)}/{arguments.command}"
    reply = find(arguments).request("POST", path, query=query, body=encoded(body))
    done = value_of(reply)
    is_idle = arguments.command == "recover" and reply.status == http.client.OK
    tell(
        arguments, done, f"{arguments.id}  {'nothing to recover: it is ' if is_idle else ''}{done.get('state', 'done')}"
    )
    if arguments.command == "recover" and not is_idle:
        _warn_of_undone(arguments)


def _warn_of_undone(arguments: Namespace) -> None:
    """Say which steps of a workflow that goes on have been undone, as a rollback leaves them."""
    try:
        told = ask(find(arguments), "GET", f"{_at(arguments)}/history")
    except DeployError:
        # It is recovered, whatever can be told of it: a history may be too long for an answer.
        return
    undone = [entry["location"] for entry in told.get("entries", ()) if entry.get("rolled_back_at")]
    if undone:
        named = ", ".join(undone[:UNDONE_NAMED]) + (", ..." if len(undone) > UNDONE_NAMED else "")
        print(
            f"torpor: what was rolled back stays undone, and {arguments.id} goes on behind it: {short(named)}. "
            "Where it needs that, run it again from there with `torpor replay` and --entry (`torpor history` --ids).",
            file=sys.stderr,
        )


def _is_from_dlq(arguments: Namespace) -> bool:
    """Whether the dead-letter queue is meant; raises CalledWronglyError where something else is too."""
    if not arguments.from_dlq:
        return False
    if arguments.id is not None or many.is_meant(arguments):
        raise CalledWronglyError("give the ID of a workflow, --type TYPE or --from-dlq, one of them")
    if arguments.endpoint is not None:
        raise CalledWronglyError("an address does not tell its dead-letter queue: give --stack")
    return True


def purge(arguments: Namespace) -> None:
    """``torpor purge``: delete an ended workflow for good."""
    told = ask(find(arguments), "DELETE", _at(arguments))
    later = "being deleted; its id is free when that is done, at least a minute after its end"
    tell(arguments, told, f"{arguments.id}  {'gone' if told['is_gone'] else later}")


def watch(arguments: Namespace) -> None:
    """``torpor watch``: print each state a workflow comes to, until it has ended; or what workflows publish."""
    _check_one(arguments.id, arguments.messages, "--messages NAME", "ID, or --messages NAME")
    if arguments.messages is not None:
        _watch_messages(arguments)
        return
    api, last = find(arguments), ""
    while last not in ENDED:
        known = ask(api, "GET", _at(arguments))
        if known["state"] != last:
            last = known["state"]
            print(f"{known['id']}  {last}", flush=True)
        if last not in ENDED:
            wait(POLL_S)
    _print_ending(arguments, _ending(api, arguments.id, 0))


def _watch_messages(arguments: Namespace) -> None:
    """Print what was lately published and then whatever comes, a message a line, until Ctrl-C."""
    api = find(arguments)
    query = {} if arguments.topic is None else {"topic": arguments.topic}
    while True:
        told = ask(api, "GET", f"/messages/{segment(arguments.messages)}", query=query)
        if told["has_gap"]:
            print("torpor: some messages may have been missed", file=sys.stderr)
        for message in told["messages"]:
            line = f"{message['sent_at']}  {message['workflow_id']}  {message['topic']}  {as_json(message['body'])}"
            print(as_json(message) if arguments.json else line, flush=True)
        query |= {"after": told["next"], "wait": f"{LISTEN_S:g}"}


def dump(arguments: Namespace) -> None:
    """``torpor dump``: all that the API knows of a workflow as one JSON document, such as for a report of a fault."""
    api = find(arguments)
    parts = {"workflow": "", "output": "/output", "history": "/history", "inbox": "/messages"}
    print_json({name: ask(api, "GET", f"{_at(arguments)}{path}") for name, path in parts.items()})


def _check_one(workflow_id: str | None, other: Any, option: str, wanted: str) -> None:
    """Raise CalledWronglyError unless either a workflow's id or ``option``, whose value is ``other``, is given."""
    if workflow_id is not None and other is not None:
        raise CalledWronglyError(f"give the id of a workflow or {option}, not both")
    if workflow_id is None and other is None:
        raise CalledWronglyError(f"something is missing: give {wanted}")


def _at(arguments: Namespace) -> str:
    return f"/workflows/{segment(arguments.id)}"


def _ending(api: ApiClient, workflow_id: str, wait_s: float) -> dict[str, Any]:
    """How a workflow ended, looked at for up to ``wait_s`` seconds; its state may be one that has not."""
    clock = SystemClock()
    deadline = clock.now() + int(wait_s * 1000)
    while True:
        left_s = max(0.0, (deadline - clock.now()) / 1000)
        query = {"wait": f"{min(left_s, WAIT_MAX_S):g}"} if left_s else {}
        told: dict[str, Any] = ask(api, "GET", f"/workflows/{segment(workflow_id)}/output", query=query)
        if told.get("state") in ENDED or clock.now() >= deadline:
            return told
        wait(0.1)


def _print_ending(arguments: Namespace, ending: dict[str, Any]) -> None:
    """Print an output; raises DeployError where there is none, so that scripts see it in the exit code."""
    state = ending.get("state")
    if arguments.json:
        print_json(ending)
    elif state == "completed":
        print_json(ending.get("output"))
    if state == "failed":
        raise DeployError(f"{ending['id']} failed: {told_error(ending)}")
    if state != "completed":
        raise DeployError(f"{ending['id']} is {state} and has no output{'' if state in ENDED else ' yet'}.")
