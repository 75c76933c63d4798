"""Signals, as authors send them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, overload

from engine.author.operating import Operating
from engine.author.reaching import check_id, check_tags, type_name
from engine.errors import InvalidIdError
from engine.ops import signal

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping

    from engine.author.registry import Workflow


class Signalling(Operating):
    """How a context reaches other workflows."""

    __slots__ = ()

    @overload
    def signal(
        self, name: str, body: Any = ..., *, to: str, missing: Literal["error", "ignore"] = ...
    ) -> Coroutine[Any, Any, bool]: ...

    @overload
    def signal(
        self,
        name: str,
        body: Any = ...,
        *,
        type: str | Workflow[Any],
        tags: Mapping[str, str] | None = ...,
        missing: Literal["error", "ignore"] = ...,
    ) -> Coroutine[Any, Any, bool]: ...

    def signal(
        self,
        name: str,
        body: Any = None,
        *,
        to: str | None = None,
        type: str | Workflow[Any] | None = None,  # noqa: A002 - its name everywhere
        tags: Mapping[str, str] | None = None,
        missing: Literal["error", "ignore"] = "error",
    ) -> Coroutine[Any, Any, bool]:
        """Put the message ``name`` into the inbox of another workflow, exactly once; whether it was delivered.

        It is recorded under its own name, as ``queue.send`` is, in the commit that delivers it.

        Args:
            name: the message's name.
            body: any storable value.
            to: the id of a workflow that has started and not ended; this one's is allowed.
            type: instead of ``to``: the first, in the order of ids, of this type that has not ended.
            tags: with ``type``: one that has at least these.
            missing: ``"ignore"``: answer False where there is no such workflow, or none any more.

        Raises:
            WorkflowNotFoundError: no workflow has the id, or none of the type and tags is there.
            WorkflowEndedError: the workflow is completed, failed or cancelled.
            DriverError: this store cannot send to other workflows.
        """
        if not name or to == "":
            raise InvalidIdError("a signal needs the name of a message and the id of a workflow")
        what = f"signal {name!r}"
        if missing not in ("error", "ignore"):
            raise ValueError(f'{what}: missing is "error" or "ignore", not {missing!r}')
        if (to is None) == (type is None):
            raise TypeError(f"{what} goes either to=<the id of a workflow> or to one of a type=, with tags= if need be")
        if to is None:
            target = signal.Target(workflow_type=type_name(what, type), tags=check_tags(what, tags))
        elif tags is not None:
            raise TypeError(f"{what}: an id needs no tags; tags= goes with type=")
        else:
            target = signal.Target(to=check_id(what, to))
        self._refuse_version(f"signal:{name}")
        work = signal.run(self._scope, name, body, target, ignores_missing=missing == "ignore")
        return self._scope.operation(f"signal:{name}", work)
