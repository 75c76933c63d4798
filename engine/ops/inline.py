"""Another workflow's function inside this one: in a scope of its own, with the history of this workflow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.ops.branch import nested

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from engine.scope import Scope


async def run(scope: Scope, name: str, body: Callable[[Scope], Awaitable[Any]], returns: Any) -> Any:
    """What ``body`` returns in the scope ``name``, as it would be read back; what it raises passes through.

    The workflow itself leaves no entry, only its operations do.
    """
    inner = nested(scope, name, "an inline workflow")
    try:
        value = await body(inner)
        inner.close()
    finally:
        scope.finished(0, composite=inner.key)
    _, value = scope.store(value, returns, f"workflow {name!r}")
    return value
