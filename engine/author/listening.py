"""Listening: the queue by the classes of its messages, so that a type checker knows what comes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, overload

from engine import values
from engine.author.message_types import body_as, message_name
from engine.author.operating import Operating
from engine.durations import timeout_milliseconds
from engine.entry import MessageEntry
from engine.errors import UnstorableValueError
from engine.ops import queue

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from engine.durations import Duration
    from engine.entry import Message

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")


class Listening(Operating):
    """What a context can hear."""

    __slots__ = ()

    @overload
    def listen(self, first: type[A], /, *, name: str | None = ...) -> Coroutine[Any, Any, A]: ...
    @overload
    def listen(self, first: type[A], second: type[B], /, *, name: str | None = ...) -> Coroutine[Any, Any, A | B]: ...
    @overload
    def listen(
        self, first: type[A], second: type[B], third: type[C], /, *, name: str | None = ...
    ) -> Coroutine[Any, Any, A | B | C]: ...
    @overload
    def listen(
        self, first: type[A], second: type[B], third: type[C], fourth: type[D], /, *, name: str | None = ...
    ) -> Coroutine[Any, Any, A | B | C | D]: ...
    @overload
    def listen(
        self, first: type[A], /, *, timeout: Duration, name: str | None = ...
    ) -> Coroutine[Any, Any, A | None]: ...
    @overload
    def listen(
        self, first: type[A], second: type[B], /, *, timeout: Duration, name: str | None = ...
    ) -> Coroutine[Any, Any, A | B | None]: ...
    @overload
    def listen(
        self, first: type[A], second: type[B], third: type[C], /, *, timeout: Duration, name: str | None = ...
    ) -> Coroutine[Any, Any, A | B | C | None]: ...
    @overload
    def listen(
        self,
        first: type[A],
        second: type[B],
        third: type[C],
        fourth: type[D],
        /,
        *,
        timeout: Duration,
        name: str | None = ...,
    ) -> Coroutine[Any, Any, A | B | C | D | None]: ...
    @overload
    def listen(
        self, first: type[A], /, *, limit: int, timeout: Duration | None = ..., name: str | None = ...
    ) -> Coroutine[Any, Any, list[A]]: ...
    @overload
    def listen(
        self, first: type[A], second: type[B], /, *, limit: int, timeout: Duration | None = ..., name: str | None = ...
    ) -> Coroutine[Any, Any, list[A | B]]: ...
    @overload
    def listen(
        self,
        first: type[A],
        second: type[B],
        third: type[C],
        /,
        *,
        limit: int,
        timeout: Duration | None = ...,
        name: str | None = ...,
    ) -> Coroutine[Any, Any, list[A | B | C]]: ...
    @overload
    def listen(
        self, *types: type, limit: int | None = ..., timeout: Duration | None = ..., name: str | None = ...
    ) -> Coroutine[Any, Any, Any]: ...

    def listen(
        self, *types: type, limit: int | None = None, timeout: Duration | None = None, name: str | None = None
    ) -> Coroutine[Any, Any, Any]:
        """The body of the oldest message of these ``types``, as an instance of its class, waiting for one if need be.

        Args:
            *types: classes, each of which stands for one message name: ``@message`` gives it, else the class's own in
                snake case.
            limit: take up to so many at once, and answer with a list of at least one.
            timeout: how long to wait, a timedelta or seconds; where nothing came the answer is None, or ``[]``.
            name: this operation's name; needed where the same types are listened for twice in this scope.

        Raises:
            UnstorableValueError: the body does not fit its class. The message is taken, and no other; listen again to
                go on.
            MessageNotCompletedError: an earlier completable message of this context is open.
        """
        kinds = {message_name(kind): kind for kind in types}
        if not types or len(kinds) < len(types):
            raise ValueError("listen needs one class or more, each with a message name of its own")
        if limit is not None and (type(limit) is not int or limit < 1):
            raise ValueError(f"listen: limit must be 1 or more, and an integer, not {limit!r}")
        used = "listen:" + "|".join(sorted(kinds)) if name is None else name
        return self._perform(
            used,
            MessageEntry.kind,
            lambda used: self._listen(used, kinds, limit, timeout, has_name=name is not None),
        )

    async def _listen(
        self, name: str, kinds: dict[str, type], limit: int | None, timeout: Duration | None, *, has_name: bool
    ) -> Any:
        if not has_name and self._scope.has_used(name):
            raise self._scope.diverged(
                f"{name!r}: the same messages are listened for twice; give the second a name of its own: "
                "ctx.listen(..., name=...)"
            )
        timeout_ms = timeout_milliseconds(timeout)

        def fits(message: Message) -> bool:
            try:
                body_as(kinds[message.name], values.decode(message.body), message.id)
            except UnstorableValueError:
                return False
            return True

        found = await queue.receive(
            self._scope, name, tuple(kinds), limit or 1, timeout_ms, fits=None if limit is None else fits
        )
        bodies: list[Any] = [body_as(kinds[one.record.name], one.record.body, one.record.id) for one in found]
        if limit is not None:
            return bodies
        return bodies[0] if bodies else None
