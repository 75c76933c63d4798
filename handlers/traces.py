"""What a function has done as subsegments of its trace, told to the X-Ray daemon that Lambda runs beside it.

The daemon takes a datagram: a line that says what comes, and a segment document. The SDK that writes them is not worth
its import, which every cold start would pay for.
"""

from __future__ import annotations

import json
import re
import socket
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from engine.driver import Clock
    from engine.ids import Ids

NAME_CHARACTERS_MAX = 200
ANNOTATION_CHARACTERS_MAX = 1_000
"""Characters of a subsegment's name, and of what one annotation says. Source: the AWS documentation of segment
documents."""

_PROLOGUE = b'{"format": "json", "version": 1}\n'

# Compiled where something is traced, and not by every cold start.
_NO_PART_OF_A_NAME = r"[^\w\s.:/%&#=+\\@-]"
_ROOT = "1-[0-9a-f]{8}-[0-9a-f]{24}"
_SEGMENT = "[0-9a-f]{16}"
_DAEMON = r"(?:udp:)?(\d{1,3}(?:\.\d{1,3}){3}):(\d{1,5})"


class Parent(Struct, frozen=True, kw_only=True):
    """The segment that an invocation is in its trace, as Lambda writes it."""

    trace_id: str
    segment_id: str


def parent_of(header: str | None) -> Parent | None:
    """What a trace header says, where the invocation is sampled; None where nobody would keep its trace."""
    parts = dict(part.strip().partition("=")[::2] for part in (header or "").split(";"))
    trace_id, segment_id = parts.get("Root", ""), parts.get("Parent", "")
    if parts.get("Sampled") != "1" or not (re.fullmatch(_ROOT, trace_id) and re.fullmatch(_SEGMENT, segment_id)):
        return None
    return Parent(trace_id=trace_id, segment_id=segment_id)


class _Subsegment:
    __slots__ = ("annotations", "failure")

    def __init__(self) -> None:
        self.annotations: dict[str, str] = {}
        self.failure: str | None = None


_CURRENT: ContextVar[_Subsegment | None] = ContextVar("torpor_subsegment", default=None)


def annotate(**annotations: str) -> None:
    """Have the subsegment that this is done in be found by ``annotations``; empty ones are not told.

    Nothing happens where there is none. What was said of the same names before is forgotten.
    """
    current = _CURRENT.get()
    if current is not None:
        told = {name: value[:ANNOTATION_CHARACTERS_MAX] for name, value in annotations.items() if value}
        current.annotations.update(told)


def mark(failure: Literal["error", "fault"]) -> None:
    """Have the subsegment that this is done in be shown as the caller's error, or as our own fault."""
    current = _CURRENT.get()
    if current is not None:
        current.failure = failure


class Traces:
    """Tells the daemon of what sampled invocations do; no call of it fails, or waits.

    Args:
        clock: says when it was.
        ids: makes the ids of subsegments.
        header: the trace header of the invocation that is under way; None where there is none.
        daemon: where the daemon listens, ``address:port``; empty where nobody is to be told anything.
    """

    def __init__(self, clock: Clock, ids: Ids, *, header: Callable[[], str | None], daemon: str) -> None:
        self._clock = clock
        self._ids = ids
        self._header = header
        # Of two addresses, ``tcp:`` is what the SDK asks for sampling rules; Lambda has done that.
        found = [match for part in daemon.split() if (match := re.fullmatch(_DAEMON, part))]
        self._address = (found[-1][1], int(found[-1][2])) if found else None

    @contextmanager
    def subsegment(self, name: str, **annotations: str) -> Iterator[None]:
        """What is done within the block, as one subsegment that is told when it is over; ``annotate`` may say more."""
        parent = parent_of(self._header())
        if parent is None or self._address is None:
            yield
            return
        began_ms = self._clock.now()
        token = _CURRENT.set(current := _Subsegment())
        annotate(**annotations)
        try:
            yield
        except BaseException:
            current.failure = "fault"
            raise
        finally:
            _CURRENT.reset(token)
            _send(self._document(parent, name, began_ms, current), self._address)

    def _document(self, parent: Parent, name: str, began_ms: int, done: _Subsegment) -> dict[str, Any]:
        return {
            "name": re.sub(_NO_PART_OF_A_NAME, "_", name)[:NAME_CHARACTERS_MAX],
            "id": self._ids.new().replace("-", "")[-16:],
            "type": "subsegment",
            "trace_id": parent.trace_id,
            "parent_id": parent.segment_id,
            "start_time": began_ms / 1000,
            "end_time": self._clock.now() / 1000,
            "annotations": done.annotations,
            **({done.failure: True} if done.failure else {}),
        }


def _send(document: dict[str, Any], address: tuple[str, int]) -> None:
    # Whoever does not listen is not waited for: nothing depends on a trace.
    with suppress(OSError, OverflowError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as daemon:
        daemon.settimeout(0)
        daemon.sendto(_PROLOGUE + json.dumps(document).encode(), address)
