"""A context that forgets the names it is given, so that programs which have them run without."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from engine import Context


class UnnamedQueue:
    """The inbox, without names of operations."""

    def __init__(self, ctx: Context) -> None:
        self._queue = ctx.queue
        self.send = ctx.queue.send

    def next(self, _name: str, names: str, **options: Any) -> Any:
        return self._queue.next(names=names, **options)

    def next_batch(self, _name: str, names: str, **options: Any) -> Any:
        return self._queue.next_batch(names=names, **options)


class Unnamed:
    """Those operations of a context that go without names."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self.queue = UnnamedQueue(ctx)
        self.now, self.random, self.uuid = ctx.now, ctx.random, ctx.uuid

    def step(self, _name: str, fn: Callable[..., Any], **options: Any) -> Any:
        return self._ctx.step(fn, **options)

    def activity(self, activity: Any, **options: Any) -> Any:
        return self._ctx.step(activity, **options)

    def try_step(self, _name: str, fn: Callable[..., Any], **options: Any) -> Any:
        return self._ctx.try_step(fn, **options)

    def sleep(self, _name: str, duration: float) -> Any:
        return self._ctx.sleep(duration)

    def get_version(self, _name: str, latest: int) -> Any:
        return self._ctx.check_version(latest)

    def removed(self, _name: str, original_type: str) -> Any:
        return self._ctx.removed(original_type=original_type)

    def rollback_checkpoint(self, _name: str) -> Any:
        return self._ctx.rollback_checkpoint()

    def loop(self, _name: str, body: Callable[..., Any], state: Any, **options: Any) -> Any:
        return self._ctx.loop(lambda ctx, state: body(unnamed(ctx), state), state, **options)

    def join(self, _name: str, branches: Mapping[str, Callable[..., Any]], **options: Any) -> Any:
        return self._ctx.join(_inside(branches), **options)

    def race(self, _name: str, branches: Mapping[str, Callable[..., Any]]) -> Any:
        return self._ctx.race(_inside(branches))


def unnamed(ctx: Context) -> Context:
    """``ctx``, forgetting names."""
    return cast("Context", Unnamed(ctx))


def _inside(branches: Mapping[str, Callable[..., Any]]) -> dict[str, Any]:
    return {name: lambda ctx, body=body: body(unnamed(ctx)) for name, body in branches.items()}
