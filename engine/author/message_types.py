"""Messages as classes of an author's own: which name each has, and a body as an instance of its class."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

from engine.author.catalogue import Catalogue
from engine.errors import UnstorableValueError
from engine.location import check_name
from engine.shapes import fit, fit_texts

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

_WORD_START = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")

MESSAGES: Catalogue[type] = Catalogue("message")
"""Where ``@message`` registers."""

_names: WeakKeyDictionary[type, str] = WeakKeyDictionary()


def message(name: str) -> Callable[[type[T]], type[T]]:
    """Register a class as what the body of every message ``name`` is.

    Raises:
        InvalidIdError: the name is none, or taken by another class.
    """
    check_name(name)

    def register(kind: type[T]) -> type[T]:
        MESSAGES.add(name, kind, kind)
        _names[kind] = name
        return kind

    return register


def message_name(kind: type) -> str:
    """The name of the messages whose bodies are of the class ``kind``: as registered, else its own in snake case."""
    return _names.get(kind) or _WORD_START.sub("_", kind.__name__).lower()


def body_as(kind: type[T], body: Any, message_id: str) -> T:
    """A message's ``body`` as an instance of ``kind``; a message without a body has no fields.

    Where it does not fit as it is, texts are read as those who send JSON mean them.

    Raises:
        UnstorableValueError: it is none.
    """
    given = {} if body is None else body
    try:
        return _read(given, kind)
    except UnstorableValueError as error:
        raise UnstorableValueError(
            f"the body of message {message_id!r} is no {kind.__qualname__}, as {message_name(kind)!r} demands: {error}"
        ) from error


def _read(body: Any, kind: type[T]) -> T:
    try:
        instance: T = fit(body, kind)
    except UnstorableValueError:
        # Who posts a message does not know who will listen, so that what was JSON is stored as JSON says it.
        instance = fit_texts(body, kind)
    return instance
