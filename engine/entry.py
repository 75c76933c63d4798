"""The records of a history: what an entry, its metadata and a message are. Frozen; they do nothing.

Times are integer milliseconds since the epoch, UTC. User values inside entries are CBOR bytes, kept opaque so that what
is read is written back byte for byte.

None of them can be part of a cycle, so the garbage collector need not know them (``gc=False``): a long history would
otherwise be walked again and again while it is loaded.
"""

from __future__ import annotations

from enum import IntEnum
from typing import ClassVar

from msgspec import Struct

from engine.location import Location
from engine.origin import UNKNOWN, Origin


class EntryStatus(IntEnum):
    """How far an entry has come; the numbers are the stored ones."""

    PENDING = 0
    RUNNING = 1
    COMPLETED = 2
    FAILED = 3
    EXHAUSTED = 4


class SleepState(IntEnum):
    """How a sleep or a queue deadline ended; the numbers are the stored ones."""

    PENDING = 0
    COMPLETED = 1
    INTERRUPTED = 2


class BranchState(IntEnum):
    """How far a branch of a join or race has come; the numbers are the stored ones."""

    PENDING = 0
    RUNNING = 1
    COMPLETED = 2
    FAILED = 3
    CANCELLED = 4


class BranchStatus(Struct, frozen=True, kw_only=True, gc=False):
    """One branch of a join or race: ``output`` is CBOR, ``error`` the text ``Name: message``."""

    status: BranchState = BranchState.PENDING
    output: bytes | None = None
    error: str | None = None


class StepEntry(Struct, frozen=True, kw_only=True, gc=False):
    """A step's CBOR ``output`` once it completed, or the text ``Name: message`` of its latest error."""

    kind: ClassVar[str] = "step"
    output: bytes | None = None
    error: str | None = None


class LoopEntry(Struct, frozen=True, kw_only=True, gc=False):
    """A loop's CBOR ``state`` and the ``iteration`` it is for; ``output`` once it broke."""

    kind: ClassVar[str] = "loop"
    state: bytes
    iteration: int = 0
    output: bytes | None = None


class SleepEntry(Struct, frozen=True, kw_only=True, gc=False):
    """A sleep, or a queue's ``name:deadline``: until when, and how it ended."""

    kind: ClassVar[str] = "sleep"
    deadline: int
    state: SleepState = SleepState.PENDING


class MessageEntry(Struct, frozen=True, kw_only=True, gc=False):
    """A part of a queue operation: the count, or one message; ``data`` is CBOR."""

    kind: ClassVar[str] = "message"
    name: str
    data: bytes


class RollbackCheckpointEntry(Struct, frozen=True, kw_only=True, gc=False):
    """From here on steps may register undos."""

    kind: ClassVar[str] = "rollback_checkpoint"
    name: str


class JoinEntry(Struct, frozen=True, kw_only=True, gc=False):
    """Every branch of a join, in the order in which the author named them."""

    kind: ClassVar[str] = "join"
    branches: dict[str, BranchStatus]


class RaceEntry(Struct, frozen=True, kw_only=True, gc=False):
    """Every branch of a race, and its winner once there is one."""

    kind: ClassVar[str] = "race"
    winner: str | None = None
    branches: dict[str, BranchStatus]


class RemovedEntry(Struct, frozen=True, kw_only=True, gc=False):
    """A placeholder for an operation that the code no longer has."""

    kind: ClassVar[str] = "removed"
    original_type: str
    original_name: str | None = None


class VersionCheckEntry(Struct, frozen=True, kw_only=True, gc=False):
    """What ``get_version`` answered here (``resolved``), and the ``latest`` it was asked with."""

    kind: ClassVar[str] = "version_check"
    resolved: int
    latest: int


EntryKind = (
    StepEntry
    | LoopEntry
    | SleepEntry
    | MessageEntry
    | RollbackCheckpointEntry
    | JoinEntry
    | RaceEntry
    | RemovedEntry
    | VersionCheckEntry
)

ENTRY_KINDS: tuple[type[EntryKind], ...] = (
    StepEntry,
    LoopEntry,
    SleepEntry,
    MessageEntry,
    RollbackCheckpointEntry,
    JoinEntry,
    RaceEntry,
    RemovedEntry,
    VersionCheckEntry,
)
"""The kinds in the order of the stored union: a kind's index here is its tag."""


class Entry(Struct, frozen=True, gc=False):
    """One recorded operation: its id, its place in the run, and what kind of thing it is."""

    id: str
    location: Location
    kind: EntryKind


class EntryMetadata(Struct, frozen=True, kw_only=True, gc=False):
    """What is known of an entry's execution; kept for steps and loops."""

    status: EntryStatus = EntryStatus.PENDING
    error: str | None = None
    attempts: int = 0
    last_attempt_at: int = 0
    created_at: int
    completed_at: int | None = None
    rollback_completed_at: int | None = None
    rollback_error: str | None = None


class Message(Struct, frozen=True, kw_only=True, gc=False):
    """A message in an inbox.

    ``body`` is CBOR. ``ticket`` is its place in the order of acceptance, as the driver gave it (0 where not yet given).
    ``origin`` is that of whoever sent it.
    """

    id: str
    name: str
    body: bytes
    sent_at: int
    ticket: int = 0
    origin: Origin = UNKNOWN
