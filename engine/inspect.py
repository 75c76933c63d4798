"""A stored workflow as plain data, for people to look at; it reads, never runs, and survives any bytes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from engine import bare, keys, values
from engine.entry import (
    BranchStatus,
    JoinEntry,
    LoopEntry,
    MessageEntry,
    RaceEntry,
    RemovedEntry,
    RollbackCheckpointEntry,
    SleepEntry,
    StepEntry,
    VersionCheckEntry,
)
from engine.errors import TorporError
from engine.history.documents import Documents
from engine.history.kept import is_whole
from engine.lifecycle import WorkflowState
from engine.location import LoopIteration
from engine.message_record import MARKER
from engine.values import StoredError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from engine.entry import Entry, EntryKind, EntryMetadata
    from engine.location import Location


class Unreadable(Struct, frozen=True, kw_only=True):
    """A stored pair that could not be read: its key in hex, the size of its value in bytes, and why not."""

    key: str
    value_bytes: int
    reason: str


class Branch(Struct, frozen=True, kw_only=True):
    """One branch of a join or race."""

    name: str
    status: str
    value: Any = None
    has_value: bool = False
    error: str | None = None


class Operation(Struct, frozen=True, kw_only=True):
    """One recorded operation.

    Attributes:
        key: its key, whose order is that of the run.
        location: the path, such as ``outer/~3/inner``.
        id: the entry's id.
        kind: ``step``, ``loop``, ``sleep``, ``message``, ``rollback_checkpoint``, ``join``, ``race``, ``removed`` or
            ``version_check``.
        status: from its metadata where it has any, else what the entry itself tells.
        attempts: how many times it was started; 0 where that is not counted.
        value: the decoded output, loop state, message body, deadline or version; None where there is none.
        has_value: tells a stored None from no value.
        error: the text ``Name: message`` of its latest failure.
        details: what else its kind records, in words.
        branches: of a join or race.
        created_at: when it was first reached; None where it has no metadata. Aware, like the other times.
        last_attempt_at: when it was started last.
        completed_at: when it completed.
        rolled_back_at: when it was undone.
        rollback_error: why undoing it failed.
    """

    key: bytes
    location: str
    id: str
    kind: str
    status: str
    attempts: int = 0
    value: Any = None
    has_value: bool = False
    error: str | None = None
    details: str = ""
    branches: tuple[Branch, ...] = ()
    created_at: datetime | None = None
    last_attempt_at: datetime | None = None
    completed_at: datetime | None = None
    rolled_back_at: datetime | None = None
    rollback_error: str | None = None


class History(Struct, frozen=True, kw_only=True):
    """Everything that is stored of one workflow.

    ``has_input`` and ``has_output`` tell a stored None from none; ``document`` is the state that activities have
    written; ``names`` is the registry, by index; ``operations`` are in the order of their keys.
    """

    state: str
    input: Any = None
    has_input: bool = False
    output: Any = None
    has_output: bool = False
    error: StoredError | None = None
    document: dict[str, Any] = {}
    names: dict[int, str] = {}
    operations: tuple[Operation, ...] = ()
    unreadable: tuple[Unreadable, ...] = ()


def describe(pairs: Iterable[tuple[bytes, bytes]]) -> History:
    """What the stored pairs of one workflow say. Never raises: what cannot be read is listed as such."""
    reader = _Reader()
    for key, value in pairs:
        reader.read(key, value)
    return reader.history()


class _Reader:
    """Collects what can be read, and what cannot."""

    def __init__(self) -> None:
        self.fields: dict[str, Any] = {"state": str(WorkflowState.PENDING)}
        self.names: dict[int, str] = {}
        self.entries: list[tuple[bytes, Entry, dict[str, Any]]] = []
        self.metadata: dict[str, EntryMetadata] = {}
        self.unreadable: list[Unreadable] = []
        self.documents = Documents()

    def read(self, key: bytes, value: bytes) -> None:
        try:
            self._section(key)(key, value)
        except (TorporError, ValueError) as error:
            self._refuse(key, value, error)

    def _refuse(self, key: bytes, value: bytes, error: Exception) -> None:
        self.unreadable.append(Unreadable(key=key.hex(), value_bytes=len(value), reason=str(error)))

    def _section(self, key: bytes) -> Callable[[bytes, bytes], None]:
        match key[: len(keys.NAMES_PREFIX)]:
            case keys.NAMES_PREFIX:
                return self._read_name
            case keys.HISTORY_PREFIX:
                return self._read_entry
            case keys.METADATA_PREFIX:
                return self._read_metadata
            case keys.DOCUMENT_PREFIX:
                return self.documents.load
        return self._read_field

    def _read_name(self, key: bytes, value: bytes) -> None:
        self.names[keys.parse_name_key(key)] = value.decode()

    def _read_entry(self, key: bytes, value: bytes) -> None:
        entry = bare.decode_entry(value)
        if keys.parse_entry_key(key) != entry.location:
            raise ValueError(f"The entry says that it belongs under {keys.entry_key(entry.location).hex()}")
        try:
            facts = _facts_of_kind(entry.kind)
        except TorporError as error:
            # The entry is shown all the same: where it stands and how it went can be read.
            self._refuse(key, value, error)
            facts = {"status": "unreadable", "details": str(error)}
        self.entries.append((key, entry, facts))

    def _read_metadata(self, key: bytes, value: bytes) -> None:
        self.metadata[keys.parse_metadata_key(key)] = bare.decode_metadata(value)

    def _read_field(self, key: bytes, value: bytes) -> None:
        match key:
            case keys.STATE_KEY:
                self.fields["state"] = str(WorkflowState(value.decode()))
            case keys.INPUT_KEY:
                self.fields |= {"input": values.decode(value), "has_input": True}
            case keys.OUTPUT_KEY:
                self.fields |= {"output": values.decode(value), "has_output": True}
            case keys.ERROR_KEY:
                self.fields["error"] = values.decode_error(value)
            case _:
                raise ValueError("This is no key of a workflow")

    def history(self) -> History:
        whole = {key for key, entry, _ in self.entries if is_whole(entry)}
        self.documents.loaded(lambda key: key in whole)
        try:
            self.fields["document"] = values.decode(self.documents.current.data)
        except TorporError as error:
            self._refuse(keys.DOCUMENT_PREFIX, self.documents.current.data, error)
        operations = [self._operation(*entry) for entry in sorted(self.entries, key=lambda entry: entry[0])]
        return History(names=self.names, operations=tuple(operations), unreadable=tuple(self.unreadable), **self.fields)

    def _operation(self, key: bytes, entry: Entry, facts: dict[str, Any]) -> Operation:
        metadata = self.metadata.get(entry.id)
        return Operation(
            key=key,
            location=self._path(entry.location),
            id=entry.id,
            kind=entry.kind.kind,
            **(facts | _facts_of_metadata(metadata) if metadata else facts),
        )

    def _path(self, location: Location) -> str:
        # By index and not by position: a registry that lacks a name, or has an absurd index, must not matter here.
        return "/".join(
            f"~{segment.iteration}" if isinstance(segment, LoopIteration) else self.names.get(segment, f"#{segment}")
            for segment in location
        )


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _instant(milliseconds: int | None) -> datetime | None:
    if not milliseconds:
        return None
    try:
        return _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC)


def _facts_of_metadata(metadata: EntryMetadata) -> dict[str, Any]:
    facts = {
        "status": metadata.status.name.lower(),
        "attempts": metadata.attempts,
        "created_at": _instant(metadata.created_at),
        "last_attempt_at": _instant(metadata.last_attempt_at),
        "completed_at": _instant(metadata.completed_at),
        "rolled_back_at": _instant(metadata.rollback_completed_at),
        "rollback_error": metadata.rollback_error,
    }
    return facts if metadata.error is None else facts | {"error": metadata.error}


def _facts_of_kind(kind: EntryKind) -> dict[str, Any]:  # noqa: PLR0911 - one for each kind
    match kind:
        case StepEntry(output=output, error=error):
            status = "completed" if output is not None else "pending" if error is None else "failed"
            return {"status": status, "error": error} | _value(output)
        case LoopEntry(state=state, iteration=iteration, output=output):
            status = "running" if output is None else "completed"
            return {"status": status, "details": f"iteration {iteration}"} | _value(state if output is None else output)
        case SleepEntry(deadline=deadline, state=sleep_state):
            until = _instant(deadline)
            return {
                "status": sleep_state.name.lower(),
                "details": f"until {_time(until)}",
                "value": until,
                "has_value": True,
            }
        case MessageEntry(name=name, data=data):
            return _facts_of_message(name, values.decode(data))
        case RollbackCheckpointEntry():
            return {"status": "completed"}
        case JoinEntry(branches=branches):
            return _facts_of_branches(branches)
        case RaceEntry(winner=winner, branches=branches):
            details = "no winner yet" if winner is None else f"won by {winner}"
            return _facts_of_branches(branches, details, is_won=winner is not None)
        case RemovedEntry(original_type=original_type, original_name=original_name):
            return {"status": "removed", "details": f"was a {original_type} named {original_name}"}
        case VersionCheckEntry(resolved=resolved, latest=latest):
            details = f"version {resolved}; {latest} was the latest"
            return {"status": "completed", "details": details, "value": resolved, "has_value": True}


def _value(data: bytes | None) -> dict[str, Any]:
    return {} if data is None else {"value": values.decode(data), "has_value": True}


def _facts_of_message(name: str, content: Any) -> dict[str, Any]:
    if not isinstance(content, dict) or MARKER not in content:
        return {"status": "completed", "details": f"message {name}", "value": content, "has_value": True}
    details = f"message {content.get('name')} with the id {content.get('id')}"
    # History does not say whether somebody has to complete it: until somebody does, all that is known is this.
    status = "received" if content.get("completed") is False else "completed"
    return {"status": status, "details": details, "value": content.get("body"), "has_value": "body" in content}


def _facts_of_branches(branches: dict[str, BranchStatus], details: str = "", *, is_won: bool = False) -> dict[str, Any]:
    described = tuple(
        Branch(name=name, status=branch.status.name.lower(), error=branch.error, **_value(branch.output))
        for name, branch in branches.items()
    )
    states = {branch.status for branch in described}
    is_over = states <= {"completed", "failed", "cancelled"}
    status = "running" if not is_over else "failed" if "failed" in states and not is_won else "completed"
    return {"status": status, "details": details, "branches": described}


def _time(instant: datetime | None) -> str:
    return "" if instant is None else instant.isoformat(sep=" ", timespec="milliseconds").removesuffix("+00:00")
