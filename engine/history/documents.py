"""The versions of a workflow's document, each kept beside the entry of the activity that wrote it.

What workflow code saw of the document must be what a replay sees, so a version belongs to its entry: it is put with
that, goes with it, and a scope knows it once it has seen that finish. The newest version of all is the document as it
stands. A loop that forgets iterations keeps the newest version written in them beside its own entry, so that rewinding
the loop rewinds the document too.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from engine import keys, values
from engine.errors import CorruptHistoryError, StateConflictError, UnknownVersionError
from engine.history.kept import insert_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

FORMAT = 1
"""First byte of a stored version. Another one is an error, never a guess."""

OF_ALL = keys.HISTORY_PREFIX
"""Beside no entry: where the newest version is when the whole history was forgotten."""

_NUMBER_BYTES = 8
_HEADER_BYTES = 1 + _NUMBER_BYTES


class Document(Struct, frozen=True):
    """One version of the document: ``version`` counts the writes, from 1; ``data`` is the CBOR of a map."""

    version: int
    data: bytes


EMPTY = Document(0, values.encode({}))
"""The document before anything was written."""


def encode(document: Document) -> bytes:
    """The stored form of a version."""
    return bytes((FORMAT,)) + document.version.to_bytes(_NUMBER_BYTES, "big") + document.data


def decode(value: bytes) -> Document:
    """The version whose stored form is ``value``.

    Raises:
        UnknownVersionError: another format.
        CorruptHistoryError: too few bytes.
    """
    if len(value) <= _HEADER_BYTES:
        raise CorruptHistoryError(f"a stored document has {len(value)} bytes")
    if value[0] != FORMAT:
        raise UnknownVersionError(f"a stored document has format {value[0]}; this build reads format {FORMAT}")
    return Document(int.from_bytes(value[1:_HEADER_BYTES], "big"), value[_HEADER_BYTES:])


class Documents:
    """Every version that history has, by the key of the entry that it is kept beside.

    Attributes:
        current: the document as it stands, committed or not.
    """

    __slots__ = ("_by_key", "_gathered", "_saved", "_sorted", "current")

    def __init__(self) -> None:
        self._by_key: dict[bytes, Document] = {}
        self._sorted: list[bytes] = []
        self._saved: dict[bytes, Document] = {}
        self._gathered: dict[bytes, Document] = {}
        self.current = EMPTY

    def __bool__(self) -> bool:
        return bool(self._by_key)

    def load(self, key: bytes, value: bytes) -> None:
        """Take in a stored pair."""
        entry_key = keys.documented_key(key)
        self._saved[entry_key] = decode(value)
        self._keep(entry_key, self._saved[entry_key])

    def _keep(self, entry_key: bytes, document: Document) -> None:
        if entry_key not in self._by_key:
            insert_key(self._sorted, entry_key)
        self._by_key[entry_key] = document

    def loaded(self, is_whole: Callable[[bytes], bool]) -> list[bytes]:
        """Everything is loaded; what stands beside an entry that is not ``is_whole`` is forgotten: their keys.

        A write was torn, or another engine has removed the entry alone.
        """
        torn = [key for key in self._by_key if key != OF_ALL and not is_whole(key)]
        for key in torn:
            self.drop(key)
        self._look()
        return torn

    def of(self, entry_key: bytes) -> Document:
        """The version beside an entry, else the empty one."""
        return self._by_key.get(entry_key, EMPTY)

    def within(self, start: bytes, end: bytes) -> Document:
        """The newest version beside the entries with ``start <= key < end``, else the empty one."""
        return max(map(self._by_key.__getitem__, self._between(start, end)), key=_version, default=EMPTY)

    def _between(self, start: bytes, end: bytes) -> list[bytes]:
        return self._sorted[bisect_left(self._sorted, start) : bisect_left(self._sorted, end)]

    def below(self, key: bytes) -> Document:
        """The newest version at ``key`` and below it, else the empty one."""
        return self.within(*keys.range_of(key)) if self._by_key else EMPTY

    def put(self, entry_key: bytes, document: Document) -> None:
        """Keep a version beside the entry at ``entry_key``; it rides on the commit that has that entry."""
        self._keep(entry_key, document)
        if document.version > self.current.version:
            self.current = document

    def drop(self, entry_key: bytes) -> bool:
        """Forget the version beside an entry; whether there was one."""
        dropped = self._by_key.pop(entry_key, None)
        if dropped is None:
            return False
        del self._sorted[bisect_left(self._sorted, entry_key)]
        self._saved.pop(entry_key, None)
        self._gathered.pop(entry_key, None)
        if dropped == self.current:
            self._look()
        return True

    def drop_between(self, start: bytes, end: bytes) -> list[tuple[bytes, bytes]]:
        """Forget the versions beside the entries with ``start <= key < end``; the ranges of keys to remove for that."""
        found = self._between(start, end)
        for key in found:
            self.drop(key)
        return [(keys.document_key(start), keys.document_key(end))] if found else []

    def is_unsaved(self, entry_key: bytes) -> bool:
        """Whether the version beside this entry is not committed yet."""
        return entry_key in self._by_key and self._by_key[entry_key] != self._saved.get(entry_key)

    def gather(self, entry_keys: Iterable[bytes]) -> list[tuple[bytes, bytes]]:
        """The pairs to store with these entries; ``settled`` says that they were stored."""
        if not self._by_key:
            return []
        self._gathered = {key: self._by_key[key] for key in entry_keys if self.is_unsaved(key)}
        return [(keys.document_key(key), encode(document)) for key, document in self._gathered.items()]

    def settled(self) -> None:
        """What was gathered last is stored."""
        self._saved.update(self._gathered)
        self._gathered = {}

    def _look(self) -> None:
        self.current = max(self._by_key.values(), key=_version, default=EMPTY)


class Draft:
    """A copy of the document as it stands, which one attempt of an activity may change.

    Attributes:
        content: the copy, to be changed in place.
    """

    __slots__ = ("_base", "_documents", "content")

    def __init__(self, documents: Documents) -> None:
        self._documents = documents
        self._base = documents.current
        self.content: dict[str, Any] = values.decode(self._base.data)

    def version(self, check_bytes: Callable[[int, str], None]) -> Document | None:
        """What the change makes the document, or None where there is no change; ``check_bytes`` bounds its size.

        Raises:
            StateConflictError: somebody else has changed the document since.
            UnstorableValueError: it has no stored form, or is too large.
        """
        data = values.encode(self.content)
        # What was read back may be written in another way than it was: only another value is a change.
        if data == self._base.data or data == values.encode(values.decode(self._base.data)):
            return None
        check_bytes(len(data), "the state")
        if self._documents.current != self._base:
            raise StateConflictError(
                "another activity changed the workflow's state while this one ran: change in one of them what both "
                "would change, or in a further one after both"
            )
        return Document(self._base.version + 1, data)


def _version(document: Document) -> int:
    return document.version
