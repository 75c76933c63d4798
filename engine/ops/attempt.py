"""One attempt of a step: calling its function, bounding its time, recording how it went."""

from __future__ import annotations

import asyncio
import contextvars
import hashlib
import logging
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from engine import limits, retry, values
from engine.calling import begin, gave_up
from engine.driver import AbortSignal
from engine.entry import EntryMetadata, EntryStatus, StepEntry
from engine.error_info import error_info, error_text, tamed
from engine.errors import (
    ControlFlow,
    CriticalError,
    RollbackError,
    StepError,
    StepExhaustedError,
    StepFailedError,
    StepTimeoutError,
)
from engine.history.hooks import StepErrorEvent
from engine.location import render, spell
from engine.retry import RetryPolicy

if TYPE_CHECKING:
    from collections.abc import Generator

    from engine.entry import Entry
    from engine.history.documents import Draft
    from engine.scope import Scope
    from engine.turn import Turn


class StepPolicy(Struct, frozen=True, kw_only=True):
    """How a step runs; times in seconds, 0 or less means no timeout."""

    retry: RetryPolicy = RetryPolicy()
    timeout_s: float = limits.STEP_TIMEOUT_S
    is_ephemeral: bool = False
    rollback: Callable[..., Any] | None = None
    returns: Any = None


class StepContext(Struct, frozen=True, kw_only=True):
    """What a step's function may know of itself, through ``step_context()``.

    ``attempt`` counts from 1. ``idempotency_key`` is the same for every attempt, in every process: hand it to the
    services that the step calls.
    """

    workflow_id: str
    step_name: str
    attempt: int
    idempotency_key: str
    abort_signal: AbortSignal


_log = logging.getLogger("torpor")

_LATE_MS = 500
"""Milliseconds by which a timeout may be late before the loop is said to have stood still. Design choice: longer than
any pause of a machine that is well."""

_KEY_BYTES = 16

_CURRENT: contextvars.ContextVar[Attempt] = contextvars.ContextVar("torpor_step")


def step_context() -> StepContext:
    """The step that the calling function runs in.

    Raises:
        LookupError: called outside a step.
    """
    try:
        return _CURRENT.get().context()
    except LookupError:
        raise LookupError("step_context() answers only inside a step's function") from None


def current_attempt() -> Attempt:
    """The attempt that the calling function runs in.

    Raises:
        LookupError: called outside a step.
    """
    return _CURRENT.get()


def jitter(policy: StepPolicy, entry_id: str, attempts: int) -> float:
    """1 without jitter; else a factor between 0.5 and 1 from the entry's id: every process computes the same."""
    if not policy.retry.has_jitter:
        return 1.0
    tail = int(entry_id.replace("-", "")[-8:], 16)
    return 0.5 + ((tail * 2654435761 + attempts * 40503) % 2**32) / 2**33


def returns(fn: Callable[..., Any], policy: StepPolicy) -> Any:
    """The type that a step's value is read back as."""
    return policy.returns if policy.returns is not None else values.return_type(fn)


class Attempt:
    """One attempt of one step; ``draft`` is set where it may change the document."""

    __slots__ = (
        "_stop",
        "created_at",
        "draft",
        "entry",
        "is_timed_out",
        "name",
        "number",
        "policy",
        "scope",
        "started_at",
        "turn",
    )

    def __init__(
        self,
        scope: Scope,
        name: str,
        entry: Entry | None,
        metadata: EntryMetadata | None,
        number: int,
        policy: StepPolicy,
    ) -> None:
        self.scope = scope
        self.turn = scope.turn
        self.name = name
        self.entry = entry
        self.number = number
        self.policy = policy
        self.started_at = scope.turn.clock.now()
        self.created_at = metadata.created_at if metadata is not None else self.started_at
        self.is_timed_out = False
        self.draft: Draft | None = None

    def context(self) -> StepContext:
        """What the step's function may know."""
        # By names: before the first attempt nothing is stored yet that would keep the numbers of names as they are.
        place = spell(self.scope.location, self.turn.storage.names) + self.name.encode("utf-8", "surrogatepass")
        digest = hashlib.blake2b(place, digest_size=_KEY_BYTES).hexdigest()
        return StepContext(
            workflow_id=self.turn.workflow_id,
            step_name=self.name,
            attempt=self.number,
            idempotency_key=f"{self.turn.workflow_id}/{digest}",
            abort_signal=self.scope.abort,
        )

    async def charge(self) -> None:
        """Let attempts that died ride on whatever is committed while this one runs: that resets the count of deaths.

        Deaths that near the number at which a workflow counts as stalled are committed at once: a step is to blame.
        """
        if deaths := self.turn.charge:
            is_urgent = deaths >= limits.DEATHS_MAX
            self._record(StepEntry(), EntryStatus.PENDING, None, attempts=self.number - 1, is_urgent=is_urgent)
            if is_urgent:
                await self.turn.before_acting()

    async def run(self, fn: Callable[..., Any], args: tuple[Any, ...]) -> tuple[bool, Any]:
        """Whether the step is over, and its value; False where it is to be tried again in this run."""
        token = _CURRENT.set(self)
        try:
            value = await _bounded(begin(self.turn, fn, args), self._arm)
            output, value = self.scope.store(value, returns(fn, self.policy), f"step {self.name!r}")
            document = None if self.draft is None else self.draft.version(self.scope.check_bytes)
        except asyncio.CancelledError as error:
            failure = gave_up(error)
            if failure is None:
                self._interrupted()
                raise
            return await self._failed(failure), None
        except ControlFlow:
            raise
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:
            if error is self.turn.fatal:
                # What ends the run is no failure of the step.
                raise
            return await self._failed(tamed(error)), None
        finally:
            _CURRENT.reset(token)
        self._record(StepEntry(output=output), EntryStatus.COMPLETED, None, is_urgent=not self.policy.is_ephemeral)
        if document is not None:
            self.turn.storage.put_document(self.scope.key_of(self.name), document)
            self.scope.see(document)
        await self._after_record()
        return True, value

    # --- calling ------------------------------------------------------------------------------------------------

    def _arm(self) -> Callable[[], bool]:
        """Start the timeout; the answer stops it and says whether it had fired."""
        if self.policy.timeout_s <= 0:
            return lambda: False
        task = asyncio.current_task()
        assert task is not None

        def expire() -> None:
            self.is_timed_out = True
            task.cancel()

        timer = self.turn.clock.call_later(self.policy.timeout_s, expire)

        def stop() -> bool:
            timer.cancel()
            # A cancellation of ours is taken back; one that came from elsewhere as well goes on.
            return self.is_timed_out and task.uncancel() == 0

        self._stop = stop
        return self._expired

    def _tell_blocked(self, took_ms: int) -> None:
        _log.warning(
            "step %r of workflow %s ran for %.1f s, beyond its timeout, since it blocks the event loop: nothing can "
            "end it, nor renew the lease; make its function a plain def, which runs in a thread",
            *(self.name, self.turn.workflow_id, took_ms / 1000),
        )

    def _expired(self) -> bool:
        if not self._stop():
            return False
        error = StepTimeoutError(f'Step "{self.name}" timed out after {self.policy.timeout_s:g} s')
        error.timeout_s = self.policy.timeout_s
        raise error

    # --- recording ----------------------------------------------------------------------------------------------

    def _record(
        self,
        kind: StepEntry,
        status: EntryStatus,
        error: str | None,
        *,
        attempts: int | None = None,
        is_urgent: bool = True,
    ) -> None:
        now = self.turn.clock.now()
        if self.entry is None:
            self.entry = self.scope.record(self.name, kind, is_urgent=is_urgent)
        else:
            self.entry = self.scope.rewrite(self.scope.key_of(self.name), self.entry, kind, is_urgent=is_urgent)
        is_completed = status is EntryStatus.COMPLETED
        self.turn.storage.put_metadata(
            self.entry.id,
            EntryMetadata(
                status=status,
                error=error,
                attempts=self.number if attempts is None else attempts,
                last_attempt_at=self.started_at,
                created_at=self.created_at,
                completed_at=now if is_completed else None,
            ),
        )
        if is_completed:
            self.scope.finished(now)
            if now - self.started_at > self.policy.timeout_s * 1000 + _LATE_MS > _LATE_MS:
                self._tell_blocked(now - self.started_at)

    async def _after_record(self) -> None:
        """The result must be durable before anything else acts; on most stores that can wait for the next operation."""
        if self.policy.is_ephemeral:
            self.turn.storage.close_group()
        else:
            await self.turn.recorded()

    def _interrupted(self) -> None:
        """The attempt was cut short: by the hard end of an eviction it counts, by anything else it never happened."""
        if self.turn.is_stopping:
            text = "Evicted: the run had to stop before the step ended"
            self._record(StepEntry(error=text), EntryStatus.PENDING, text)

    async def _failed(self, error: Exception) -> bool:
        """Record a failed attempt. Raises where the step has ended for good; else it waits for its next attempt."""
        text = error_text(error)
        is_timeout = isinstance(error, StepTimeoutError)
        is_final = isinstance(error, (CriticalError, RollbackError)) and not (
            is_timeout and self.policy.retry.retry_on_timeout
        )
        if is_final or retry.is_exhausted(self.policy.retry, self.number):
            self._record(StepEntry(error=text), EntryStatus.EXHAUSTED, text)
            raise await self._final(error, text, is_final=is_final)
        self._record(StepEntry(error=text), EntryStatus.FAILED, text)
        assert self.entry is not None
        factor = jitter(self.policy, self.entry.id, self.number)
        delay_ms = retry.backoff_ms(self.policy.retry, self.number, factor)
        retry_at = self.started_at + delay_ms
        await report(self.turn, self.name, error, self.number, self.policy, retry_at=retry_at, delay_ms=delay_ms)
        await self.turn.park(failed(self.scope, self.name, self.entry, self.number, self.policy, retry_at))
        return False

    async def _final(self, error: Exception, text: str, *, is_final: bool) -> Exception:
        ended: Exception = error
        if not is_final:
            ended = StepExhaustedError(self.name, text)
            ended.__cause__ = error
        if isinstance(ended, (StepError, RollbackError)):
            ended = claimed(ended, self.name, self.number)
        await report(self.turn, self.name, error, self.number, self.policy)
        self.turn.hooks.mark_reported(ended)
        await self._after_record()
        return ended


def claimed(error: StepError | RollbackError, name: str, attempts: int) -> StepError | RollbackError:
    """``error`` as that of the step ``name``; a plain one in its place where its class cannot say so."""
    try:
        error.step_name, error.attempts = name, attempts
        str(error)
    except Exception:  # noqa: BLE001 - an author's class may do anything
        kind = RollbackError if isinstance(error, RollbackError) else CriticalError
        plain = kind(error_text(error))
        plain.step_name, plain.attempts, plain.__cause__ = name, attempts, error
        return plain
    return error


def failed(scope: Scope, name: str, entry: Entry, attempts: int, policy: StepPolicy, retry_at: int) -> StepFailedError:
    """The wait of a step for its next attempt at ``retry_at`` (milliseconds), with all that it is known by."""
    storage = scope.turn.storage
    metadata = storage.find_metadata(entry.id)
    location = render(entry.location, storage.names)
    return StepFailedError(
        name,
        attempts,
        retry_at,
        attempts_max=policy.retry.max_retries + 1,
        entry_id=entry.id,
        location=location,
        error="" if metadata is None else metadata.error or "",
    )


async def report(
    turn: Turn,
    name: str,
    error: Exception,
    attempt: int,
    policy: StepPolicy,
    *,
    retry_at: int | None = None,
    delay_ms: int | None = None,
) -> None:
    """Tell the observers of a failed attempt; where it is tried again ``retry_at``, after ``delay_ms``."""
    if not turn.hooks.wants_errors:
        return
    await turn.hooks.failed(
        StepErrorEvent(
            workflow_id=turn.workflow_id,
            step_name=name,
            attempt=attempt,
            max_retries=policy.retry.max_retries,
            remaining_retries=max(0, policy.retry.max_retries - (attempt - 1)),
            will_retry=retry_at is not None,
            retry_delay=None if delay_ms is None else delay_ms / 1000,
            retry_at=retry_at,
            error=error_info(error),
        )
    )


@types.coroutine
def _bounded(work: Any, arm: Callable[[], Callable[[], bool]]) -> Generator[Any, Any, Any]:
    """Await ``work`` in the current task, calling ``arm`` only when it really waits: most steps in tests never do."""
    try:
        awaited = work.send(None)
    except StopIteration as stop:
        return stop.value
    expired = arm()
    try:
        while True:
            try:
                sent = yield awaited
            except BaseException as error:  # noqa: BLE001 - handed on to the function, where it belongs
                awaited = work.throw(error)
            else:
                awaited = work.send(sent)
    except StopIteration as stop:
        expired()
        return stop.value
    except BaseException:
        expired()
        raise
