"""Other workflows as authors start them and wait for their outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from engine import values
from engine.author.operating import Operating
from engine.author.reaching import check_id, check_tags, new_id, type_name
from engine.author.registry import Workflow
from engine.errors import InvalidIdError
from engine.ops import dispatch, output
from engine.ops.dispatch import Start

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping

S = TypeVar("S")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


_ANY_TYPE = "workflow"
"""Stands for the type of a workflow of which only the id is known, in the names of operations."""


class ChildId(str, Generic[T_co]):
    """The id of a workflow that ``ctx.dispatch`` has started; a text like any other, which knows what it stands for.

    What is stored of it, in a loop's state or a branch's result, is the text alone. Where that is declared to be a
    ``ChildId[T]``, it is read as one whose output is read as ``T``.

    Attributes:
        workflow_type: the type of the workflow.
        returns: the type that its output is read as, where it was started by its ``Workflow``.
    """

    __slots__ = ("returns", "workflow_type")

    workflow_type: str
    returns: Any

    def __new__(cls, workflow_id: str, workflow_type: str, returns: Any = values.PLAIN) -> ChildId[T_co]:
        """The id ``workflow_id``."""
        made = super().__new__(cls, workflow_id)
        made.workflow_type, made.returns = workflow_type, returns
        return made

    @classmethod
    def __torpor_read_back__(cls, plain: object, arguments: tuple[Any, ...]) -> ChildId[Any]:
        if not isinstance(plain, str):
            raise TypeError(f"a {type(plain).__qualname__} is no id of a workflow")
        return cls(plain, _ANY_TYPE, *arguments)

    def __getnewargs__(self) -> tuple[str, str, Any]:  # type: ignore[override]  # a plain text has but itself to copy
        """What a copy is made of."""
        return str(self), self.workflow_type, self.returns


class Dispatching(Operating):
    """How a context has others work for it."""

    __slots__ = ()

    @overload
    def dispatch(
        self,
        workflow: Workflow[Callable[[Any], Awaitable[T]]],
        /,
        *,
        name: str | None = ...,
        id: str | None = ...,
        tags: Mapping[str, str] | None = ...,
        unique: bool = ...,
        replace_failed: bool = ...,
    ) -> Coroutine[Any, Any, ChildId[T]]: ...

    @overload
    def dispatch(
        self,
        workflow: Workflow[Callable[[Any, S], Awaitable[T]]],
        given: S,
        /,
        *,
        name: str | None = ...,
        id: str | None = ...,
        tags: Mapping[str, str] | None = ...,
        unique: bool = ...,
        replace_failed: bool = ...,
    ) -> Coroutine[Any, Any, ChildId[T]]: ...

    @overload
    def dispatch(
        self,
        workflow: str,
        given: Any = ...,
        /,
        *,
        name: str | None = ...,
        id: str | None = ...,
        tags: Mapping[str, str] | None = ...,
        unique: bool = ...,
        replace_failed: bool = ...,
    ) -> Coroutine[Any, Any, ChildId[Any]]: ...

    def dispatch(
        self,
        workflow: Workflow[Any] | str,
        given: Any = None,
        /,
        *,
        name: str | None = None,
        id: str | None = None,  # noqa: A002 - its name everywhere
        tags: Mapping[str, str] | None = None,
        unique: bool = False,
        replace_failed: bool = False,
    ) -> Coroutine[Any, Any, ChildId[Any]]:
        """Start another workflow, once; its id. It runs on its own from here on, whatever becomes of this one.

        It is recorded in the commit that starts it: with the next commit, where it gets an id of its own, else in one
        at once.

        Args:
            workflow: what ``@workflow`` made, or the name of a type.
            given: its input.
            name: this operation's name; ``dispatch:<type>``, ``dispatch:<type>:2`` and so on where None.
            id: the workflow's id. Where one of the same type and input has it, that is the one; by default a new one.
            tags: what it can be found by, beside its type; texts.
            unique: there may be only one of its type with exactly these tags at a time; the answer is the id of the one
                that is there.
            replace_failed: with ``unique``: one that has failed is replaced. Otherwise it keeps its place, since
                ``recover`` may let it go on.

        Raises:
            StartConflictError: the id is taken by a workflow of another type or input; recorded.
            InvalidIdError: an id, a type or tags that no workflow can have, or this workflow's own id.
            DriverError: this store cannot start others.
        """
        workflow_type = type_name("dispatch", workflow)
        what = f"dispatch of {workflow_type!r}"
        if id is not None and new_id(what, id) == self._scope.turn.workflow_id:
            raise InvalidIdError(f"{what}: {id!r} is the id of the workflow that dispatches; give another, or none")
        if replace_failed and not unique:
            raise ValueError(f"{what}: replace_failed= says what unique=True does; give both, or neither")
        used = name or f"dispatch:{workflow_type}"
        self._refuse_version(used)
        start = Start(
            workflow_type=workflow_type,
            given=given,
            workflow_id=id,
            tags=check_tags(what, tags),
            unique=unique,
            replace_failed=replace_failed,
        )
        returns = values.return_type(workflow.fn) if isinstance(workflow, Workflow) else values.PLAIN
        return self._scope.operation(used, self._dispatch(name, start, returns))

    async def _dispatch(self, name: str | None, start: Start, returns: Any) -> ChildId[Any]:
        return ChildId(await dispatch.run(self._scope, name, start), start.workflow_type, returns)

    @overload
    def output(self, child: ChildId[T], /, *, name: str | None = ...) -> Coroutine[Any, Any, T]: ...

    @overload
    def output(self, child: str, /, *, returns: type[T], name: str | None = ...) -> Coroutine[Any, Any, T]: ...

    @overload
    def output(
        self, child: str, /, *, returns: Workflow[Callable[..., Awaitable[T]]], name: str | None = ...
    ) -> Coroutine[Any, Any, T]: ...

    @overload
    def output(self, child: str, /, *, returns: Any = ..., name: str | None = ...) -> Coroutine[Any, Any, Any]: ...

    def output(self, child: str, /, *, returns: Any = None, name: str | None = None) -> Coroutine[Any, Any, Any]:
        """What another workflow returns, once it has ended; this one sleeps until then.

        Args:
            child: the workflow's id, from ``dispatch`` or from anywhere.
            returns: the type that its output is read as, or its ``Workflow``; not needed for what was dispatched so.
            name: this operation's name; by default ``output:<type>``, ``output:<type>:2`` and so on;
                ``output:workflow`` where the id was stored, or is none that ``dispatch`` gave.

        Raises:
            WorkflowFailedError: it has failed; ``name`` and ``message`` are those of its error.
            CriticalError, RollbackError: likewise, where its error is of such a class that is known here.
            WorkflowEndedError: it was cancelled.
            WorkflowNotFoundError: no workflow has the id.
            UnstorableValueError: its output does not fit ``returns``.
            InvalidIdError: the id is this workflow's own.
            DriverError: this store cannot look at others.
        """
        workflow_id = check_id("output", child)
        if workflow_id == self._scope.turn.workflow_id:
            raise InvalidIdError(
                f"output of {workflow_id!r}: that is this workflow, which would wait for itself for ever"
            )
        label = f"output:{child.workflow_type if isinstance(child, ChildId) else _ANY_TYPE}"
        self._refuse_version(name or label)
        as_type = values.return_type(returns.fn) if isinstance(returns, Workflow) else returns
        if as_type is None:
            as_type = child.returns if isinstance(child, ChildId) else values.PLAIN
        return self._scope.operation(name or label, output.run(self._scope, name, label, workflow_id, as_type))
