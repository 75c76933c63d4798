"""The ports of the engine: where history lives, where messages come from, what time it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from msgspec import Struct

from engine.lifecycle import WorkflowState

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from engine.commit import Child, Commit
    from engine.entry import Message


class Timer(Protocol):
    """A pending call of a clock."""

    def cancel(self) -> None:
        """Forget the call; no error when it was made already."""


class Clock(Protocol):
    """The one source of time."""

    def now(self) -> int:
        """Integer milliseconds since the epoch, UTC."""

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        """Call ``callback`` on the running event loop after ``delay_s`` seconds."""


class AbortSignal(Protocol):
    """Says that what one waits for is no longer wanted."""

    def is_set(self) -> bool:
        """Whether to stop now."""

    async def wait(self) -> None:
        """Return once it is set."""


class MessageDriver(Protocol):
    """One workflow's inbox, in the order in which messages were accepted."""

    async def add(self, message: Message) -> bool:
        """Accept a message; False, and nothing happens, where its id was accepted before, even if consumed since.

        One that has a ticket comes back to its old place, on drivers that are not atomic.
        """

    async def refresh(self) -> None:
        """Read the inbox anew: what ``receive`` shows, and what a yield commit is checked against."""

    async def receive(self, names: Sequence[str], count: int) -> list[Message]:
        """The oldest ``count`` messages of ``names`` (all where empty) as of the last refresh. Removes nothing."""

    async def complete(self, message_id: str, response: bytes | None) -> None:
        """Remove a message and, where ``response`` (CBOR) is given, keep it for the sender."""


class Peer(Struct, frozen=True, kw_only=True):
    """Another workflow as it stands: its state, and its output or error as stored (CBOR; None where there is none)."""

    workflow_id: str
    workflow_type: str
    state: WorkflowState
    output: bytes | None = None
    error: bytes | None = None


class Peers(Protocol):
    """The other workflows of a store."""

    async def peek(self, workflow_id: str) -> Peer | None:
        """How a workflow stands, strongly consistent; None where there is none."""

    async def find(self, workflow_type: str, tags: Mapping[str, str], limit: int) -> list[str]:
        """Ids of workflows of a type that have not ended and have at least ``tags``, in the order of ids.

        Without tags a store may give the oldest ones, and know of a start a moment later.
        """

    def check_start(self, child: Child) -> None:
        """Raise where no commit could ever start ``child``, whatever else is there.

        Raises:
            InvalidIdError, ValueTooLargeError: its id, type, tags or input are none that a workflow can have.
        """

    async def reserve(self, workflow_id: str) -> int:
        """A place in the inbox of another workflow, for a message that a later commit sends there; above 0.

        Whoever reserves and never sends leaves a place empty, which is given up after a while.

        Raises:
            WorkflowNotFoundError, WorkflowEndedError: it is not there, or takes no more.
        """


@runtime_checkable
class EngineDriver(Protocol):
    """One workflow's key-value namespace, alarm and inbox.

    Attributes:
        atomic_batch: whether ``commit`` is one indivisible write. Where False the engine uses ``batch``, the deletes,
            ``message_driver`` and the alarm one after the other, as the reference engine does.
        worker_poll_interval: seconds; a sleep shorter than this is waited for in memory.
        value_bytes_max: the largest user value, in bytes of CBOR.
        message_bytes_max: optional; the largest body of a message, a reply or a publication, where that is less.
        wakes_early: optional; alarms may come up to ``worker_poll_interval`` early, so whatever is due within that,
            a retry or a message's deadline too, is waited for in memory.
        commit_bytes_max: optional; bytes that one commit may carry. What is more goes in several, each sound by itself.
        commit_messages_max: optional; messages that one commit may move, where a reply counts twice.
        deaths: how many runs died since the last commit; 0 where unknown.
        started_at: when the workflow was started, integer milliseconds; None where the driver does not know.
        put_off_until: optional; before when its first run does not begin, integer milliseconds, or None. Where its
            alarm came early, which is by ``worker_poll_interval`` at the most, the rest is waited for in memory.
        origin: optional; who began the workflow, an ``Origin``, which all that it starts and sends inherits.
        peers: optional; the other workflows of its store. Where it is missing, no other workflow can be started.
        is_inbox_fresh: optional; whether the inbox has just been read, so that a run begins without a refresh.
        message_driver: the inbox.
        clock: what its times are measured with; runs on this driver use it unless told otherwise.
    """

    @property
    def atomic_batch(self) -> bool: ...  # noqa: D102 - the class docstring says it

    @property
    def worker_poll_interval(self) -> float: ...  # noqa: D102

    @property
    def value_bytes_max(self) -> int: ...  # noqa: D102

    @property
    def deaths(self) -> int: ...  # noqa: D102

    @property
    def started_at(self) -> int | None: ...  # noqa: D102

    @property
    def clock(self) -> Clock: ...  # noqa: D102

    @property
    def message_driver(self) -> MessageDriver: ...  # noqa: D102

    async def get(self, key: bytes) -> bytes | None:
        """The value of ``key``, or None."""

    async def set(self, key: bytes, value: bytes) -> None:
        """Store one pair."""

    async def delete(self, key: bytes) -> None:
        """Remove one key; no error where it is not there."""

    async def delete_prefix(self, prefix: bytes) -> None:
        """Remove every key that starts with ``prefix``."""

    async def delete_range(self, start: bytes, end: bytes) -> None:
        """Remove every key with ``start <= key < end``."""

    async def list(self, prefix: bytes) -> list[tuple[bytes, bytes]]:
        """Every pair whose key starts with ``prefix``, sorted by key bytes."""

    async def batch(self, writes: Sequence[tuple[bytes, bytes]]) -> None:
        """Store several pairs."""

    async def batch_delete(self, keys: Sequence[bytes]) -> None:
        """Remove several keys."""

    async def commit(self, commit: Commit) -> None:
        """Apply ``commit`` whole, or raise and apply nothing.

        Raises:
            CommitTooLarge: it is beyond the driver's limits.
            FencedError: somebody else holds the lease.
            InboxMovedError: it yields, and a message came since the last refresh, or an awaited workflow has ended.
            ChildRefusedError: a child cannot be started.
            CommitInFlightError: another commit of this driver is in flight.
            StoreUnavailableError: the store could not be reached for long enough.
        """

    async def set_alarm(self, workflow_id: str, wake_at_ms: int) -> None:
        """Wake the workflow at ``wake_at_ms``; a time that has passed means now."""

    async def clear_alarm(self, workflow_id: str) -> None:
        """Forget the alarm; no error where there is none."""

    async def wait_for_messages(self, names: Sequence[str], abort_signal: AbortSignal) -> None:
        """Return when a message of ``names`` (any where empty) is in the inbox, or ``abort_signal`` is set."""
