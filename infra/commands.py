"""The commands that talk to the HTTP interface: each makes its requests and prints what came back."""

from __future__ import annotations

import http.client
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.clock import SystemClock
from infra import history_view, redrive
from infra.api_client import segment
from infra.fault import DeployError
from infra.ministack import wait
from infra.target import find_api

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Mapping

    from infra.api_client import ApiClient, Reply

WAIT_MAX_S = 25
"""Seconds that the API waits at most within one request; longer waits are several requests. Source: the API."""

PAGE_MAX = 100
"""Workflows a page of the list. Source: the API."""

CELL_MAX = 60
"""Characters of a value in a table; ``--json`` shows it whole. Design choice."""

ERROR_MAX = 200
"""Characters of the error of a failed workflow that ``get`` shows; ``--output`` tells it whole. Design choice."""

POLL_S = 1.0
"""Seconds between two looks of ``watch``. Design choice."""

LISTEN_S = 20
"""Seconds that one request of ``watch --messages`` waits for a message. Source: the API."""

ENDED = frozenset({"completed", "failed", "cancelled"})


class RefusedError(DeployError):
    """The API answered with a problem; the message is its title and detail."""


def start(arguments: Namespace) -> None:
    """``torpor start``: start a workflow, and with ``--wait`` see it end."""
    body: dict[str, Any] = {"input": arguments.input}
    if arguments.id is not None:
        body["id"] = arguments.id
    if arguments.tag:
        body["tags"] = dict(arguments.tag)
    if arguments.start_at is not None:
        body["start_at"] = arguments.start_at
    api = _api(arguments)
    started = _ask(api, "POST", f"/workflows/{segment(arguments.type)}", body=body)
    if arguments.wait is not None:
        _print_ending(arguments, _ending(api, started["id"], arguments.wait))
    elif arguments.json:
        _print_json(started)
    else:
        print(f"{started['id']}  {'started' if started.get('created', True) else 'was started before'}")


def send(arguments: Namespace) -> None:
    """``torpor send``: post a message, and with ``--wait`` print the reply to it."""
    query = {} if arguments.wait is None else {"wait": f"{min(arguments.wait, WAIT_MAX_S):g}"}
    headers = {} if arguments.key is None else {"Idempotency-Key": arguments.key}
    path = f"{_at(arguments)}/messages/{segment(arguments.name)}"
    reply = _api(arguments).request("POST", path, query=query, body=_encoded(arguments.body), headers=headers)
    accepted = _value(reply)
    if arguments.json:
        _print_json(accepted)
    elif "reply" in accepted:
        _print_json(accepted["reply"])
    else:
        print(f"{accepted.get('message_id', '')}  {'was accepted before' if accepted.get('duplicate') else 'accepted'}")


def get(arguments: Namespace) -> None:
    """``torpor get``: what is known of a workflow, or its output alone."""
    api = _api(arguments)
    if arguments.output or arguments.wait is not None:
        _print_ending(arguments, _ending(api, arguments.id, arguments.wait or 0))
        return
    known = _ask(api, "GET", _at(arguments), query={"document": "true"} if arguments.document else None)
    if arguments.json:
        _print_json(known)
        return
    if known.get("state") == "failed":
        known = {**known, "error": _why(_ending(api, arguments.id, 0))}
    width = max(map(len, known), default=0)
    for name, value in known.items():
        print(f"{name:<{width}}  {_short(value)}")


def list_workflows(arguments: Namespace) -> None:
    """``torpor list``: workflows, newest first, of one type or state where asked."""
    api = _api(arguments)
    wanted = {name: value for name in ("type", "state") if (value := getattr(arguments, name)) is not None}
    found: list[dict[str, Any]] = []
    cursor: str | None = None
    while len(found) < arguments.limit:
        query = {**wanted, "limit": str(min(PAGE_MAX, arguments.limit - len(found)))}
        page = _ask(api, "GET", "/workflows", query=query if cursor is None else {**query, "cursor": cursor})
        found += page["workflows"]
        cursor = page.get("cursor")
        if cursor is None:
            break
    if arguments.json:
        _print_json(found)
    else:
        _print_table(found, ("id", "type", "state", "created_at"))


def history(arguments: Namespace) -> None:
    """``torpor history``: every recorded operation of a workflow, in the order of creation."""
    told = _ask(_api(arguments), "GET", f"{_at(arguments)}/history")
    entries = told.get("entries") if isinstance(told, dict) else told
    if arguments.json or not isinstance(entries, list):
        _print_json(told)
    else:
        _print_table(history_view.rows(entries), (*history_view.COLUMNS, *(["id"] if arguments.ids else [])))


def order(arguments: Namespace) -> None:
    """``torpor wake``, ``cancel``, ``recover`` and ``replay``: tell a workflow to do something."""
    body = None
    query: dict[str, str] = {}
    if arguments.command == "recover" and _is_from_dlq(arguments):
        redrive.run(stack=arguments.stack, region=arguments.region, folder=Path.cwd(), say=print)
        return
    if arguments.command == "replay":
        body = {} if arguments.entry is None else {"entry_id": arguments.entry}
    if arguments.command == "cancel" and arguments.rollback:
        query = {"rollback": "true"}
    done = _ask(_api(arguments), "POST", f"{_at(arguments)}/{arguments.command}", body=body, query=query)
    if arguments.json:
        _print_json(done)
    else:
        print(f"{arguments.id}  {done.get('state', 'done') if isinstance(done, dict) else 'done'}")


def _is_from_dlq(arguments: Namespace) -> bool:
    """Whether the dead-letter queue is meant; raises DeployError where it and an id are, or neither."""
    if arguments.from_dlq == (arguments.id is not None):
        raise DeployError("Give the id of a workflow, or --from-dlq, not both.")
    if arguments.from_dlq and arguments.endpoint is not None:
        raise DeployError("An address does not tell its dead-letter queue: give --stack.")
    return bool(arguments.from_dlq)


def purge(arguments: Namespace) -> None:
    """``torpor purge``: delete an ended workflow for good."""
    told = _ask(_api(arguments), "DELETE", _at(arguments))
    if arguments.json:
        _print_json(told)
    else:
        gone = (
            "gone"
            if told["is_gone"]
            else "being deleted; its id is free when that is done, at least a minute after its end"
        )
        print(f"{arguments.id}  {gone}")


def watch(arguments: Namespace) -> None:
    """``torpor watch``: print each state a workflow comes to, until it has ended; or what workflows publish."""
    if (arguments.messages is None) == (arguments.id is None):
        raise DeployError("Give the id of a workflow, or --messages NAME, not both.")
    if arguments.messages is not None:
        _watch_messages(arguments)
        return
    api, last = _api(arguments), ""
    while last not in ENDED:
        known = _ask(api, "GET", _at(arguments))
        if known["state"] != last:
            last = known["state"]
            print(f"{known['id']}  {last}", flush=True)
        if last not in ENDED:
            wait(POLL_S)
    _print_ending(arguments, _ending(api, arguments.id, 0))


def _watch_messages(arguments: Namespace) -> None:
    """Print what was lately published and then whatever comes, a message a line, until Ctrl-C."""
    api = _api(arguments)
    query = {} if arguments.topic is None else {"topic": arguments.topic}
    while True:
        told = _ask(api, "GET", f"/messages/{segment(arguments.messages)}", query=query)
        if told["has_gap"]:
            print("torpor: some messages may have been missed", file=sys.stderr)
        for message in told["messages"]:
            body = json.dumps(message["body"], ensure_ascii=False)
            line = f"{message['sent_at']}  {message['workflow_id']}  {message['topic']}  {body}"
            print(json.dumps(message, ensure_ascii=False) if arguments.json else line, flush=True)
        query |= {"after": told["next"], "wait": f"{LISTEN_S:g}"}


def dump(arguments: Namespace) -> None:
    """``torpor dump``: all that the API knows of a workflow as one JSON document, such as for a report of a fault."""
    api = _api(arguments)
    parts = {"workflow": "", "output": "/output", "history": "/history"}
    _print_json({name: _ask(api, "GET", f"{_at(arguments)}{path}") for name, path in parts.items()})


def _api(arguments: Namespace) -> ApiClient:
    return find_api(stack=arguments.stack, endpoint=arguments.endpoint, region=arguments.region)


def _at(arguments: Namespace) -> str:
    return f"/workflows/{segment(arguments.id)}"


def _ask(api: ApiClient, method: str, path: str, body: Any = None, query: Mapping[str, str] | None = None) -> Any:
    return _value(api.request(method, path, query=query, body=_encoded(body)))


def _encoded(body: Any) -> bytes | None:
    return None if body is None else json.dumps(body).encode()


def _value(reply: Reply) -> Any:
    """The answer's value; raises RefusedError for a problem."""
    if not reply.is_success:
        raise RefusedError(_complaint(reply))
    try:
        return reply.json()
    except ValueError as error:
        raise RefusedError(f"The API answered {reply.status} with something that is not JSON.") from error


def _complaint(reply: Reply) -> str:
    try:
        told = reply.json()
    except ValueError:
        told = None
    told = told if isinstance(told, dict) else {}
    status = f"{reply.status} {http.client.responses.get(reply.status, '')}".strip()
    # What API Gateway and Lambda themselves refuse is no problem document: it has a message at most.
    title = told.get("title") or status
    detail = next((told[name] for name in ("detail", "message", "Message", "errorMessage") if told.get(name)), None)
    return f"{title}: {detail}" if detail else str(title)


def _ending(api: ApiClient, workflow_id: str, wait_s: float) -> dict[str, Any]:
    """How a workflow ended, looked at for up to ``wait_s`` seconds; its state may be one that has not."""
    clock = SystemClock()
    deadline = clock.now() + int(wait_s * 1000)
    while True:
        left_s = max(0.0, (deadline - clock.now()) / 1000)
        query = {"wait": f"{min(left_s, WAIT_MAX_S):g}"} if left_s else {}
        told: dict[str, Any] = _ask(api, "GET", f"/workflows/{segment(workflow_id)}/output", query=query)
        if told.get("state") in ENDED or clock.now() >= deadline:
            return told
        wait(0.1)


def _print_ending(arguments: Namespace, ending: dict[str, Any]) -> None:
    """Print an output; raises DeployError where there is none, so that scripts see it in the exit code."""
    state = ending.get("state")
    if arguments.json:
        _print_json(ending)
    elif state == "completed":
        _print_json(ending.get("output"))
    if state == "failed":
        raise DeployError(f"{ending['id']} failed: {_told_error(ending)}")
    if state != "completed":
        raise DeployError(f"{ending['id']} is {state} and has no output{'' if state in ENDED else ' yet'}.")


def _told_error(ending: dict[str, Any]) -> str:
    error = ending.get("error") or {}
    told = error if isinstance(error, dict) else {"message": error}
    return f"{told.get('name', 'Error')}: {told.get('message', '')}"


def _why(ending: dict[str, Any]) -> str:
    """Why a workflow failed, on one line."""
    line = " ".join(_told_error(ending).split())
    return line if len(line) <= ERROR_MAX else f"{line[: ERROR_MAX - 1]}…"


def _print_json(value: Any) -> None:
    json.dump(value, sys.stdout, indent=2, ensure_ascii=False)
    print()


def _print_table(rows: list[dict[str, Any]], columns: tuple[str, ...]) -> None:
    cells = [[name.upper().replace("_", " ") for name in columns]]
    cells += [[_cell(row.get(name)) for name in columns] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        print("  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip())


def _cell(value: Any) -> str:
    text = _short(value).replace("\n", " ")
    return text if len(text) <= CELL_MAX else f"{text[: CELL_MAX - 1]}…"


def _short(value: Any) -> str:
    if value is None:
        return "-"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
