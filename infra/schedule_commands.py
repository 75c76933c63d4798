"""The commands ``torpor schedule …``: their options, the requests they make, what they print."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from engine.values import encode
from infra import options
from infra.api_client import segment
from infra.asking import IN_CBOR, OF_CBOR, ask, encoded, find, listed, tell, value_of
from infra.fault import CalledWronglyError
from infra.printing import print_json, print_table, short

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable

TIMINGS = ("cron", "every", "at")
TOLD = ("type", "input", "overlap", "catch_up", "tags", "timezone", "start_at")
"""What an update keeps of a schedule, beside when it occurs."""

PAGE_MAX = 25
"""Schedules a page of the list. Source: the API."""

EXAMPLES = """\
examples:
  torpor schedule create report --cron "0 9 * * MON-FRI" --timezone Europe/Berlin --type report --input '{"to": "Ada"}'
  torpor schedule create tidy --every 15m --type tidy          every quarter of an hour from now on
  torpor schedule create launch --at 2030-01-31T08:00 --timezone America/New_York --type launch
  torpor schedule show report                                  its next occurrences, and what became of the latest
  torpor schedule backfill report --from 2030-01-01 --to 2030-01-31T23:59
  torpor schedule update report --overlap queue                the rest of it stays as it is

A run's id is the schedule's name and its occurrence: torpor get report/2030-01-31T08:00:00Z
"""


def add_to(groups: Any) -> None:
    """Add ``schedule`` and its commands to the command line."""
    summary = "start workflows at set times: create, list, show, pause, resume, trigger, backfill, update, delete"
    schedule = groups.add_parser(
        "schedule",
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    inner = schedule.add_subparsers(dest="schedule_command", metavar="COMMAND", required=True)
    command = _named(inner, "create", create, "create a schedule; the same one again changes nothing")
    _add_spec(command, is_new=True)
    options.add_page(options.command(inner, "list", list_schedules, "list schedules, the youngest first"), PAGE_MAX)
    _named(inner, "show", show, "show a schedule: what is to come, and what became of the latest occurrences")
    command = _named(inner, "pause", say, "have a schedule occur no more until it is resumed; what runs goes on")
    command.add_argument("--note", metavar="TEXT", help="why; it is shown with the schedule")
    _named(inner, "resume", say, "have a paused schedule occur again, from now on")
    _named(inner, "trigger", say, "start one run now, whatever else runs, paused or not")
    command = _named(inner, "backfill", backfill, "start the runs of a time that has passed, but for those that were")
    for name, which in (("from", "first"), ("to", "last")):
        told = f"the {which} instant, ISO 8601; without an offset in the schedule's time zone (UTC where it has none)"
        command.add_argument(f"--{name}", required=True, metavar="TIME", help=told)
    command.add_argument(
        "--overlap", choices=("queue", "allow"), help="allow: all at once; else one after the other, as by default"
    )
    command = _named(inner, "update", update, "change a schedule from now on; what is not given stays as it is")
    _add_spec(command, is_new=False)
    _named(inner, "delete", delete, "end a schedule and delete it; its runs go on")


def _named(inner: Any, name: str, act: Callable[[Namespace], None], summary: str) -> argparse.ArgumentParser:
    command = options.command(inner, name, act, summary)
    command.add_argument("name", metavar="NAME", help="the schedule's name")
    return command


def _add_spec(command: argparse.ArgumentParser, *, is_new: bool) -> None:
    def by_default(told: str) -> str:
        # What an update leaves out stays as it is.
        return f" ({told})" if is_new else ""

    timing = command.add_mutually_exclusive_group(required=is_new)
    timing.add_argument("--cron", metavar="EXPRESSION", help="minute hour day month weekday, such as '0 9 * * MON-FRI'")
    timing.add_argument("--every", metavar="INTERVAL", help="such as 90s, 15m, 1h30m, 1d")
    timing.add_argument("--at", metavar="TIME", help="once: ISO 8601, without an offset in --timezone")
    command.add_argument("--timezone", metavar="ZONE", help=f"an IANA name, such as Europe/Berlin{by_default('UTC')}")
    command.add_argument("--start-at", metavar="TIME", help=f"what --every is aligned to{by_default('the creation')}")
    command.add_argument("--type", required=is_new, help="the workflow type of the runs")
    options.add_value(command, "--input", f"the input of the runs{by_default('null')}")
    command.add_argument(
        "--overlap",
        choices=("skip", "queue", "allow"),
        help="while the run before is under way: leave the next one out, let it wait, or let both run"
        + by_default("skip"),
    )
    command.add_argument(
        "--catch-up",
        metavar="INTERVAL",
        help=f"by how much an occurrence may be late, as after an outage{by_default('1d')}",
    )
    options.add_tags(command, "a tag of the runs" if is_new else "a tag of the runs, in place of all that they had")


def _given(arguments: Namespace) -> dict[str, Any]:
    """The members of a spec that the options give."""
    tags = None if arguments.tag is None else dict(arguments.tag)
    told = {name: getattr(arguments, name) for name in (*TIMINGS, *TOLD) if name != "tags"} | {"tags": tags}
    return {name: value for name, value in told.items() if value is not None}


def create(arguments: Namespace) -> None:
    """``torpor schedule create``."""
    told = ask(find(arguments), "POST", "/schedules", body={"name": arguments.name, **_given(arguments)})
    tell(arguments, told, f"{told['name']}  {_ahead(told)}")


def list_schedules(arguments: Namespace) -> None:
    """``torpor schedule list``."""
    told = listed(find(arguments), "/schedules", {}, limit=arguments.limit, page_max=PAGE_MAX, cursor=arguments.cursor)
    if arguments.json:
        print_json(told)
    else:
        rows = [{**each, "when": _when(each), "next": next(iter(each["next"]), None)} for each in told["schedules"]]
        print_table(rows, ("name", "state", "type", "when", "next"))


def show(arguments: Namespace) -> None:
    """``torpor schedule show``."""
    told = ask(find(arguments), "GET", _at(arguments))
    if arguments.json:
        print_json(told)
        return
    lists = {name: told.pop(name) for name in ("next", "recent")}
    width = max(map(len, told))
    for name, value in told.items():
        print(f"{name:<{width}}  {short(value)}")
    for moment in lists["next"]:
        print(f"{'next':<{width}}  {moment}")
    if lists["recent"]:
        print()
        print_table(lists["recent"], ("scheduled_at", "outcome", "run_id", "reason"))


def say(arguments: Namespace) -> None:
    """``torpor schedule pause``, ``resume`` and ``trigger``."""
    note = getattr(arguments, "note", None)
    _post(arguments, arguments.schedule_command, None if note is None else {"note": note})


def backfill(arguments: Namespace) -> None:
    """``torpor schedule backfill``."""
    body = {"from": getattr(arguments, "from"), "to": arguments.to}
    _post(arguments, "backfill", body if arguments.overlap is None else {**body, "overlap": arguments.overlap})


def update(arguments: Namespace) -> None:
    """``torpor schedule update``: what is there, with what is given in its place."""
    given = _given(arguments)
    if not given:
        raise CalledWronglyError("say what is to change: give at least one option")
    api = find(arguments)
    # In CBOR, since what is kept of an input may be what JSON has no form for; a new one is JSON as at the creation.
    is_new = "input" in given
    there = ask(api, "GET", _at(arguments)) if is_new else value_of(api.request("GET", _at(arguments), headers=IN_CBOR))
    # Another way to say when takes the place of the old one, with all that belongs to that.
    dropped = {*TIMINGS, "start_at"} if given.keys() & set(TIMINGS) else set()
    kept = {name: there[name] for name in (*TIMINGS, *TOLD) if there.get(name) is not None and name not in dropped}
    wanted = {**kept, **given}
    body, headers = (encoded(wanted), None) if is_new else (encode(wanted), OF_CBOR)
    accepted = value_of(api.request("POST", f"{_at(arguments)}/update", body=body, headers=headers))
    _tell_accepted(arguments, "update", accepted)


def delete(arguments: Namespace) -> None:
    """``torpor schedule delete``."""
    told = ask(find(arguments), "DELETE", _at(arguments))
    # What is left of it, for a minute, is in nobody's way.
    tell(arguments, told, f"{arguments.name}  gone")


def _post(arguments: Namespace, what: str, body: Any) -> None:
    _tell_accepted(arguments, what, ask(find(arguments), "POST", f"{_at(arguments)}/{what}", body=body))


def _tell_accepted(arguments: Namespace, what: str, accepted: Any) -> None:
    tell(arguments, accepted, f"{arguments.name}  {what} accepted")


def _at(arguments: Namespace) -> str:
    return f"/schedules/{segment(arguments.name)}"


def _when(told: dict[str, Any]) -> str:
    """When a schedule occurs, in a few words."""
    name = next((each for each in TIMINGS if told.get(each) is not None), "")
    zone = f" {told['timezone']}" if name == "cron" else ""
    return f"{name} {told.get(name, '')}{zone}".strip()


def _ahead(told: dict[str, Any]) -> str:
    moment = next(iter(told["next"]), None)
    return f"{told['state']}, no occurrence ahead" if moment is None else f"{told['state']}, next at {moment}"
