"""How many arguments an author's function takes, so that one with the context alone may leave the second out."""

from __future__ import annotations

import contextlib
import inspect
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from collections.abc import Callable

_BOTH = 2
_known: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()


def takes_state(fn: Callable[..., Any]) -> bool:
    """Whether ``fn`` takes a second positional argument besides the context."""
    try:
        return _known[fn]
    except (KeyError, TypeError):
        pass
    takes = _looks(fn)
    with contextlib.suppress(TypeError):
        # What is not hashable or weakly referable is looked at anew each time.
        _known[fn] = takes
    return takes


def _looks(fn: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):
        return True
    positional = [one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    return len(positional) >= _BOTH or any(one.kind is one.VAR_POSITIONAL for one in parameters)


def adapt(fn: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    """``fn`` as a function of two arguments; the second is dropped where it takes only the context."""
    return fn if takes_state(fn) else lambda context, _second: fn(context)
