"""``torpor wake``, ``cancel`` and ``recover`` for every workflow that a filter finds, and what that would be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.lifecycle import ENDED, WorkflowState
from infra import options
from infra.api_client import segment
from infra.asking import PAGE_MAX, RefusedError, ask, find, listed, told_error
from infra.fault import CalledWronglyError, DeployError
from infra.printing import print_json, print_line, print_table, short

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterator

    from infra.api_client import ApiClient

FOUND_MAX = 1_000_000
"""Most workflows that one call is about. Design choice: their ids are kept in memory until all are known."""

_FILTERS = ("state", "tag", "error")


def add_filter(command: ArgumentParser, name: str) -> None:
    """Add to the command ``name`` the options that say which workflows are meant, instead of ``ID``."""
    which = command.add_argument_group("many at once, instead of ID")
    which.add_argument("--type", help="all of this type that have " + ("failed" if name == "recover" else "not ended"))
    if name == "recover":
        which.add_argument("--error", metavar="TEXT", help="with --type: whose error, as Name: message, has this in it")
    else:
        which.add_argument("--state", help="with --type: only those in this state: pending, running, sleeping, ...")
    options.add_tags(which, "with --type: only those that have this tag")
    which.add_argument("--dry-run", action="store_true", help="with --type: show which they are, and do nothing")


def is_meant(arguments: Namespace) -> bool:
    """Whether a filter is given; raises CalledWronglyError where it does not go with the rest."""
    given = [name for name in _FILTERS if getattr(arguments, name, None) is not None]
    if arguments.type is None:
        if given or arguments.dry_run:
            raise CalledWronglyError(_vague(f"--{given[0]}" if given else "--dry-run"))
        return False
    state = getattr(arguments, "state", None)
    if state is not None and state not in set(WorkflowState) - ENDED:
        states = ", ".join(sorted(set(WorkflowState) - ENDED))
        raise CalledWronglyError(f"--state is one of {states}: whoever has ended is not meant")
    return True


def check_tags(arguments: Namespace) -> None:
    """Raise CalledWronglyError where there are tags and no type: workflows are found by both, or by no tag."""
    if arguments.tag is not None and arguments.type is None:
        raise CalledWronglyError(_vague("--tag"))


def _vague(option: str) -> str:
    return f"{option} says more of which workflows are meant: give --type too"


def order(arguments: Namespace) -> None:
    """Tell every workflow that the filter finds to do what the command says, or show them alone.

    All are found first: what is told to do something leaves the list that it was found in.
    """
    api = find(arguments)
    found = list(_found(api, arguments))
    if arguments.dry_run:
        _show(arguments, found)
        return
    query = {"rollback": "true"} if getattr(arguments, "rollback", False) else None
    answers: list[dict[str, Any]] = []
    for workflow in found:
        answer = _told(api, workflow["id"], arguments.command, query)
        answers.append(answer)
        if not arguments.json:
            # Whoever reads it may go: the rest is done all the same.
            print_line(short(f"{workflow['id']}  {answer.get('refused') or answer.get('state', 'done')}"))
    if arguments.json:
        print_json({"workflows": answers})
    elif not found:
        print("no workflow is like that")
    refused = sum(1 for answer in answers if "refused" in answer)
    if refused:
        raise DeployError(f"{refused} of {len(found)} were refused; to call it again does no harm")


def _show(arguments: Namespace, found: list[dict[str, Any]]) -> None:
    if arguments.json:
        print_json({"workflows": found})
        return
    columns = ("id", "type", "state", "created_at", *(["error"] if arguments.command == "recover" else []))
    print_table(found, columns)
    print(f"{len(found)} found, and nothing done")


def _told(api: ApiClient, workflow_id: str, command: str, query: dict[str, str] | None) -> dict[str, Any]:
    try:
        answer: dict[str, Any] = ask(api, "POST", f"/workflows/{segment(workflow_id)}/{command}", query=query)
    except RefusedError as refused:
        # It may have ended meanwhile, or be gone: that is no reason to leave the others.
        return {"id": workflow_id, "refused": str(refused)}
    return answer


def _found(api: ApiClient, arguments: Namespace) -> Iterator[dict[str, Any]]:
    tags, states = dict(arguments.tag or ()), _states(arguments)
    query = _query(arguments, tags)
    for workflow in listed(api, "/workflows", query, limit=FOUND_MAX, page_max=PAGE_MAX, cursor=None)["workflows"]:
        # One that is empty, as a variable that is not set, may have been dropped on the way: that would be all types.
        if workflow["type"] != arguments.type or workflow["state"] not in states:
            continue
        if not tags.items() <= workflow["tags"].items():
            continue
        if arguments.command == "recover" and (arguments.error is not None or arguments.dry_run):
            error = _error_of(api, workflow["id"])
            if (arguments.error or "") in error:
                yield {**workflow, "error": error}
        else:
            yield workflow


def _states(arguments: Namespace) -> set[WorkflowState]:
    """In which states those are that are meant."""
    if arguments.command == "recover":
        return {WorkflowState.FAILED}
    if arguments.state is not None:
        return {WorkflowState(arguments.state)}
    # To cancel what rolls back is to leave the rest of it undone: that is only meant where somebody says so.
    left_alone = {WorkflowState.ROLLING_BACK} if arguments.command == "cancel" else set()
    return set(WorkflowState) - ENDED - left_alone


def _query(arguments: Namespace, tags: dict[str, str]) -> dict[str, str | list[str]]:
    """What the API is asked for: as little as it can tell apart."""
    query: dict[str, str | list[str]] = {"type": arguments.type}
    if arguments.command == "recover":
        # By its tags one is found until it has ended; of those that have failed the list tells their tags.
        query["state"] = str(WorkflowState.FAILED)
    elif tags:
        query["tag"] = [f"{name}={value}" for name, value in tags.items()]
    elif arguments.state is not None:
        query["state"] = arguments.state
    return query


def _error_of(api: ApiClient, workflow_id: str) -> str:
    """The error of a failed workflow as ``Name: message``; empty where it has none any more."""
    try:
        return told_error(ask(api, "GET", f"/workflows/{segment(workflow_id)}/output"))
    except RefusedError:
        return ""
