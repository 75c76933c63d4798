"""The types that an author's function declares for its result and its arguments."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Awaitable, Coroutine
from enum import Enum
from types import FunctionType, SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, Never, NoReturn, get_args, get_origin, get_type_hints
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from collections.abc import Callable


class Plain(Enum):
    """The type of ``PLAIN``."""

    PLAIN = "no declared type"


PLAIN: Final = Plain.PLAIN
"""Stands for "no declared type": dataclasses are read as dicts, enums as their values, tuples as lists."""

_UNDECLARED = (Any, object, Never, NoReturn)
_returns: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
_inputs: WeakKeyDictionary[Any, dict[int, Any]] = WeakKeyDictionary()


def return_type(fn: Callable[..., Any]) -> Any:
    """What ``fn`` declares to return, or to give when awaited; PLAIN where it says nothing that can be resolved."""
    target = _function(fn)
    # Steps are often functions made anew at each call, which no cache can know; most of those declare nothing.
    if type(target) is FunctionType and "return" not in target.__annotations__:
        return PLAIN
    try:
        return _returns[target]
    except (KeyError, TypeError):
        pass
    declared = _resolve(target, "return")
    if get_origin(declared) in (Awaitable, Coroutine) and not inspect.iscoroutinefunction(target):
        declared = _or_plain(get_args(declared)[-1])
    with contextlib.suppress(TypeError):
        # What is not hashable or weakly referable is found anew each time.
        _returns[target] = declared
    return declared


def input_type(fn: Callable[..., Any], position: int) -> Any:
    """What ``fn`` declares for the argument at ``position`` of a call; PLAIN where it says nothing, or takes none."""
    try:
        return _inputs[fn][position]
    except (KeyError, TypeError):
        pass
    name = _parameter_name(fn, position)
    declared = PLAIN if name is None else _resolve(_function(fn), name)
    if declared is not PLAIN:
        # What cannot be resolved yet may be, once an enclosing function has gone on.
        with contextlib.suppress(TypeError):
            _inputs.setdefault(fn, {})[position] = declared
    return declared


def _function(fn: Any) -> Any:
    if type(fn) is FunctionType:
        return fn
    while isinstance(fn, functools.partial):
        fn = fn.func
    if inspect.ismethod(fn):
        return fn.__func__
    if isinstance(fn, type) or inspect.isroutine(fn) or not callable(fn):
        return fn
    return inspect.unwrap(fn) if hasattr(fn, "__wrapped__") else type(fn).__call__


def _parameter_name(fn: Callable[..., Any], position: int) -> str | None:
    try:
        parameters = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):
        return None
    positional = [one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    if position < len(positional):
        return positional[position].name
    return next((one.name for one in parameters if one.kind is one.VAR_POSITIONAL), None)


def _resolve(target: Any, name: str) -> Any:
    if isinstance(target, type):
        return target if name == "return" else PLAIN
    try:
        annotation = target.__annotations__[name]
        # One annotation at a time: another that cannot be resolved is no reason to forget this one.
        alone = SimpleNamespace(__annotations__={name: annotation})
        # A decorator from elsewhere hands the annotations on; what they name is where the function is written.
        written = inspect.unwrap(target)
        hints = get_type_hints(alone, getattr(written, "__globals__", None), _enclosing(written), include_extras=True)
    except Exception:  # noqa: BLE001 - evaluating an annotation may raise anything
        return PLAIN
    return _or_plain(hints[name])


def _or_plain(declared: Any) -> Any:
    return PLAIN if declared in _UNDECLARED else declared


def _enclosing(target: Any) -> dict[str, Any]:
    """The variables of enclosing functions that ``target`` uses, and its own type parameters."""
    names: dict[str, Any] = {parameter.__name__: parameter for parameter in getattr(target, "__type_params__", ())}
    for name, cell in zip(target.__code__.co_freevars, target.__closure__ or (), strict=True):
        try:
            names[name] = cell.cell_contents
        except ValueError:
            # Not assigned yet.
            continue
    return names
