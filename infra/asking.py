"""Asking the HTTP interface: the API that a command is about, its answers, and its refusals as errors."""

from __future__ import annotations

import http.client
import json
from typing import TYPE_CHECKING, Any

from engine.values import decode
from infra.fault import DeployError
from infra.ministack import wait
from infra.printing import print_json
from infra.target import find_api

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Mapping, Sequence

    from infra.api_client import ApiClient, Reply


PAGE_MAX = 100
"""Workflows a page of their list, or messages a page of an inbox. Source: the API."""


CBOR = "application/cbor"
IN_CBOR, OF_CBOR = {"Accept": CBOR}, {"Content-Type": CBOR}
"""Headers that ask for an answer in which every value is as it is, and that say that a body is such."""

PASSING = frozenset({429, 502, 503, 504})
"""Statuses of a refusal that may be over in a moment: a throttle, a store or a function out of reach, a deployment."""

PAUSES_S = (0.25, 0.5, 1.0)
"""Seconds before what only looks is asked again after such a refusal. Design choice: a deployment or a throttle is over
by then, and whoever types a command still waits for it."""


class RefusedError(DeployError):
    """The API answered with a problem; the message is its title and detail."""


def find(arguments: Namespace) -> ApiClient:
    """The API that a command's options name, else that of a running ``torpor dev``."""
    return find_api(stack=arguments.stack, endpoint=arguments.endpoint, region=arguments.region)


def ask(
    api: ApiClient, method: str, path: str, body: Any = None, query: Mapping[str, str | Sequence[str]] | None = None
) -> Any:
    """What the API answers to a request; raises RefusedError for a problem.

    A ``GET`` changes nothing, so it is made again where the refusal may be over in a moment.
    """
    reply = api.request(method, path, query=query, body=encoded(body))
    for pause_s in PAUSES_S if method == "GET" else ():
        if reply.status not in PASSING:
            break
        wait(pause_s)
        reply = api.request(method, path, query=query)
    return value_of(reply)


def listed(
    api: ApiClient,
    path: str,
    query: Mapping[str, str | Sequence[str]],
    *,
    limit: int,
    page_max: int,
    cursor: str | None,
) -> dict[str, Any]:
    """The answer to ``GET`` with up to ``limit`` rows, from ``cursor`` on, of however many pages it takes.

    Rows are called as the end of ``path`` is. The API has ``page_max`` of them in a page at the most; the answer's
    cursor is that of the last one.
    """
    what = path.rpartition("/")[2]
    found: list[dict[str, Any]] = []
    while len(found) < limit:
        wanted = {**query, "limit": str(min(page_max, limit - len(found)))}
        page = ask(api, "GET", path, query=wanted if cursor is None else {**wanted, "cursor": cursor})
        found += page[what]
        cursor = page.get("cursor")
        if cursor is None:
            break
    return {what: found, "cursor": cursor}


def tell(arguments: Namespace, answer: Any, line: str) -> None:
    """Print what the API answered: whole where ``--json`` asks for it, else ``line``."""
    if arguments.json:
        print_json(answer)
    else:
        print(line)


def encoded(body: Any) -> bytes | None:
    """A value as the body of a request; None is none."""
    return None if body is None else json.dumps(body).encode()


def value_of(reply: Reply) -> Any:
    """The answer's value; raises RefusedError for a problem."""
    if not reply.is_success:
        raise RefusedError(_complaint(reply))
    if reply.headers.get("content-type") == CBOR:
        return decode(reply.body)
    try:
        return reply.json()
    except ValueError as error:
        raise RefusedError(f"The API answered {reply.status} with something that is not JSON.") from error


def told_error(ending: Mapping[str, Any]) -> str:
    """The error of a workflow that has failed, as ``Name: message``; ``ending`` is what its output is answered with."""
    error = ending.get("error") or {}
    told = error if isinstance(error, dict) else {"message": error}
    return f"{told.get('name', 'Error')}: {told.get('message', '')}"


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
