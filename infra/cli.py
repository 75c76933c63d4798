"""The command line ``torpor``: its options and exit codes: 0 done, 1 refused or failed, 2 called wrongly, 130 ended."""

from __future__ import annotations

import argparse
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from engine.errors import TorporError
from engine.lifecycle import WorkflowState
from infra import commands, deploy, dev, many, options, schedule_commands
from infra.fault import CalledWronglyError
from infra.printing import flush, lines_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

DESCRIPTION = """\
Durable workflows on AWS Lambda, from the command line.

Commands about workflows go to the stack of a running `torpor dev`, unless --stack or --endpoint says otherwise.
"""

EXAMPLES = """\
examples:
  torpor dev                                          a local AWS with the workflows of app.py, until Ctrl-C
  torpor start order --id order-1 --input @order.json start a workflow; the same id and input again start nothing
  torpor send order-1 shipped --body '{"parcel": 7}'  post it a message
  torpor get order-1 --output --wait 30               its output, once it has one
  torpor list --type order --state failed             what has failed
  torpor recover order-1 --stack shop                 let it try again, on the deployed stack "shop"
  torpor recover --type order --error Timeout --dry-run
                                                      which have failed with that; without --dry-run all try again
  torpor schedule create report --cron "0 9 * * MON-FRI" --timezone Europe/Berlin --type report
                                                      start one every working day at nine
  torpor deploy --stack shop --app shop.workflows     deploy your own workflows to AWS

Values (--input, --body) are JSON, @FILE to read a file, or - to read standard input.
"""

LIST_LIMIT = 100

UNDONE = (TorporError, BotoCoreError, ClientError, OSError)
"""Why a command could not do what it was asked: what we, AWS and this machine say in words of their own."""


def parser() -> argparse.ArgumentParser:
    """The grammar of the command line."""
    top = argparse.ArgumentParser(
        prog="torpor", description=DESCRIPTION, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    top.add_argument("--version", action="version", version=f"%(prog)s {_version()}")
    groups = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    _add_stack_commands(groups)
    _add_start(groups)
    _add_send(groups)
    _add_looks(groups)
    _add_orders(groups)
    schedule_commands.add_to(groups)
    return top


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and exit as it says."""
    try:
        _act(arguments)
    except BrokenPipeError:
        # The reader of our output (`| head`) has had enough.
        sys.exit(0)
    except KeyboardInterrupt:
        sys.exit(130)
    except UNDONE as error:
        print(f"torpor: {lines_of(str(error))}", file=sys.stderr)
        sys.exit(1)


def _act(arguments: Sequence[str] | None) -> None:
    try:
        chosen = _parsed(arguments)
        act: Callable[[argparse.Namespace], None] = chosen.act
        try:
            act(chosen)
        except CalledWronglyError as error:
            chosen.made_by.error(str(error))
    finally:
        # Python's own end would tell of a reader that has gone in words and with an exit code of its own.
        flush()


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    top = parser()
    chosen, left = top.parse_known_args(arguments)
    # Of `send ID --key k NAME` argparse takes the first for NAME, since ID may be left out, and is left with the other.
    if chosen.command == "send" and chosen.id is None and len(left) == 1 and not left[0].startswith("-"):
        chosen.id, chosen.name = chosen.name, left[0]
    elif left:
        top.error(f"unrecognized arguments: {' '.join(left)}")
    return chosen


def _version() -> str:
    try:
        return version("torpor")
    except PackageNotFoundError:
        return "(a checkout that is not installed)"


def _add_stack_commands(groups: Any) -> None:
    command = options.command(
        groups, "dev", dev.run, "run everything on this machine and deploy again on changes", is_about_workflows=False
    )
    _add_application(command)
    command.add_argument("--no-watch", action="store_true", help="do not deploy again when sources change")
    command.add_argument("--no-logs", action="store_true", help="do not print what the functions log")
    command = options.command(
        groups,
        "deploy",
        deploy.run,
        "build the package and deploy it to AWS (sam build, sam deploy)",
        is_about_workflows=False,
    )
    _add_application(command)
    command.add_argument("--stack", metavar="NAME", default="torpor", help="the stack to make or update (%(default)s)")
    options.add_region(command)
    command.add_argument("--build-only", action="store_true", help="stop before anything is sent to AWS")
    command.add_argument("sam", nargs="*", metavar="-- SAM OPTION", help="further options of sam deploy, after --")


def _add_application(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--app",
        metavar="MODULES",
        help="the modules that register workflows, comma-separated, found from the current folder (app, where there is "
        "an app.py; else, in a clone of torpor, examples.orders)",
    )
    command.add_argument(
        "--parameter",
        action="append",
        default=[],
        type=options.pair,
        metavar="NAME=VALUE",
        help="a parameter of template.yaml, such as LeaseSeconds=20; may be repeated",
    )


def _add_start(groups: Any) -> None:
    command = options.command(groups, "start", commands.start, "start a workflow")
    command.add_argument("type", metavar="TYPE", help="the type it is registered under")
    command.add_argument("--id", help="its id; without one it gets a new one each time")
    options.add_value(command, "--input", "its input (null)")
    options.add_tags(command, "a tag, to find and to address it by")
    command.add_argument(
        "--unique",
        action="store_true",
        help="only if no other unique one of its type with exactly these tags is under way; else print that one",
    )
    command.add_argument(
        "--replace-failed", action="store_true", help="with --unique: one that has failed does not count"
    )
    command.add_argument(
        "--start-at", metavar="TIME", help="when to begin: RFC 3339, such as 2030-01-31T08:00:00Z (now)"
    )
    options.add_ray_id(command)
    options.add_wait(command, "wait so long for its end and print its output; exit 1 if it has none by then")


def _add_send(groups: Any) -> None:
    command = options.command(groups, "send", commands.send, "post a message to a workflow")
    options.add_id(command, is_needed=False, told="the workflow's id, unless --type says which")
    command.add_argument("name", metavar="NAME", help="the message's name")
    command.add_argument("--type", help="instead of an id: to the first of this type that has not ended")
    options.add_tags(command, "with --type: and has this tag")
    options.add_value(command, "--body", "the message's body (null)")
    command.add_argument(
        "--key", "--id", dest="key", help="a name of your own for this message: sent again, it counts once"
    )
    options.add_ray_id(command)
    options.add_wait(command, f"wait so long for the reply to it, {commands.WAIT_MAX_S} at most, and print it")


def _add_looks(groups: Any) -> None:
    command = options.command(groups, "get", commands.get, "show what is known of a workflow")
    options.add_id(command)
    command.add_argument("--output", action="store_true", help="print its output alone; exit 1 if it has none")
    options.add_wait(command, "wait so long for its output and print it alone; exit 1 if it has none by then")
    command.add_argument("--document", action="store_true", help="tell the document of its state, too")
    command = options.command(groups, "list", commands.list_workflows, "list workflows, the youngest first")
    command.add_argument("--type", help="only those of this type")
    command.add_argument("--state", help=f"only those in this state: {', '.join(WorkflowState)}")
    options.add_tags(command, "with --type: only those that have not ended and have this tag")
    options.add_page(command, LIST_LIMIT)
    for name, act, summary in (
        ("history", commands.history, "show every recorded operation of a workflow"),
        ("inbox", commands.inbox, "show the messages that a workflow has been sent and has not taken yet"),
        ("watch", commands.watch, "print each state of a workflow until it ends, or what workflows publish"),
        ("dump", commands.dump, "print all that is known of a workflow as JSON, such as for a report"),
    ):
        command = options.command(groups, name, act, summary)
        options.add_id(command, is_needed=name != "watch")
        if name == "watch":
            command.add_argument("--messages", metavar="NAME", help="print what is published as NAME, until Ctrl-C")
            command.add_argument("--topic", help="with --messages: only what is on exactly this topic")
        if name == "inbox":
            options.add_page(command, LIST_LIMIT)
        if name == "history":
            command.add_argument("--ids", action="store_true", help="show the entries' ids too, as replay wants them")


def _add_orders(groups: Any) -> None:
    for name, summary in (
        ("wake", "have a workflow looked at now, before its time"),
        ("cancel", "cancel a workflow for good; --rollback undoes what it has done"),
        ("recover", "let a failed workflow try again from where it failed"),
        ("replay", "run a workflow again, from a step or from the beginning"),
    ):
        command = options.command(groups, name, commands.order, summary)
        options.add_id(command, is_needed=name == "replay")
        if name != "replay":
            many.add_filter(command, name)
        if name == "replay":
            command.add_argument("--entry", metavar="ENTRY", help="the entry of the step to begin at (see history)")
        if name == "cancel":
            command.add_argument("--rollback", action="store_true", help="undo what it has done first")
        if name == "recover":
            command.add_argument(
                "--from-dlq", action="store_true", help="wake every workflow that the dead-letter queue names instead"
            )
    command = options.command(groups, "purge", commands.purge, "delete an ended workflow for good")
    options.add_id(command)


if __name__ == "__main__":
    main()
