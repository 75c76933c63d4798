"""How code changes under running workflows: operations that are gone, and versions that a run remembers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine import limits
from engine.coordinates import render
from engine.entry import ENTRY_KINDS, MessageEntry, RemovedEntry, SleepEntry, VersionCheckEntry
from engine.errors import InvalidIdError

if TYPE_CHECKING:
    from engine.coordinates import Recorded
    from engine.history.positions import Placed
    from engine.scope import Scope

_TYPES = tuple(kind.kind for kind in ENTRY_KINDS if kind is not RemovedEntry)


async def removed_here(scope: Scope, original_type: str) -> None:
    """As ``removed``, for an operation without a name that stood here."""
    _check_type(original_type)
    await removed(scope, scope.place(lambda positions: positions.place_removed(original_type)).name, original_type)


async def removed(scope: Scope, name: str, original_type: str) -> None:
    """The operation ``name`` of ``original_type`` is no longer in the code: what history has of it is accepted."""
    _check_type(original_type)
    scope.claim(name)
    if original_type == MessageEntry.kind and _visit_parts(scope, name):
        return
    storage = scope.turn.storage
    entry = storage.find_below(scope.key, name)
    if entry is None:
        scope.refuse_other(name, RemovedEntry)
        if _is_passed_by(scope, name):
            return
        scope.act()
        scope.record(name, RemovedEntry(original_type=original_type, original_name=name))
        await scope.turn.recorded()
        return
    key = scope.key_of(name)
    storage.visited.add(key)
    if entry.kind.kind not in (original_type, RemovedEntry.kind):
        raise scope.diverged(
            f"ctx.removed({name!r}, {original_type!r}), but history has a {entry.kind.kind} there; name the right type"
        )
    scope.visit_below(key)
    scope.see(storage.documents.below(key))


def _visit_parts(scope: Scope, name: str) -> bool:
    """Visit the parts that a queue operation left; whether there were any."""
    storage = scope.turn.storage
    found = False
    parts = [f"{name}:count", f"{name}:deadline"]
    while parts:
        part = parts.pop()
        entry = storage.find_below(scope.key, part)
        if entry is None:
            continue
        if not isinstance(entry.kind, (MessageEntry, SleepEntry)):
            raise scope.diverged(f"ctx.removed({name!r}, 'message'), but history has a {entry.kind.kind} at {part!r}")
        found = True
        storage.visited.add(scope.key_of(part))
        number = part.removeprefix(f"{name}:")
        following = int(number) + 1 if number.isdecimal() else 0
        if number != "deadline":
            parts.append(f"{name}:{following}")
    return found


async def get_version(scope: Scope, name: str, latest: int) -> int:
    """The version that this place of this workflow is pinned to: recorded, else 1 for old runs, else ``latest``."""
    check_number(f"get_version({name!r}, {latest!r}): latest", latest)
    if _is_passed_by(scope, name):
        scope.claim(name)
        return 1
    _, entry = scope.open(name, VersionCheckEntry)
    if entry is not None:
        assert isinstance(entry.kind, VersionCheckEntry)
        return entry.kind.resolved
    resolved = 1 if scope.has_leftovers() else latest
    if resolved == latest:
        scope.act()
    scope.record(name, VersionCheckEntry(resolved=resolved, latest=latest))
    await scope.turn.recorded()
    return resolved


async def check_version(scope: Scope, latest: int, version: int) -> int:
    """The version of this place of this workflow, relative to its scope's; kept as an absolute one.

    Recorded, else that of the operation which history has here, the scope's own where that stands at no place, else
    ``latest``. ``version`` is the check's own, relative likewise: it stands before checks that are older.
    """
    check_number(f"check_version({latest!r}): latest", latest)
    placed = scope.place(lambda positions: positions.place_check(scope.version + version - 1))
    if _is_passed_by(scope, placed.name):
        scope.claim(placed.name)
        resolved = _version_of(scope, placed.following, latest)
    else:
        resolved = await _checked(scope, placed, latest)
    return max(1, resolved - scope.version + 1)


async def _checked(scope: Scope, placed: Placed, latest: int) -> int:
    _, entry = scope.open(placed.name, VersionCheckEntry)
    if entry is not None:
        assert isinstance(entry.kind, VersionCheckEntry)
        return entry.kind.resolved
    newest = resolved = scope.version + latest - 1
    if placed.following is not None or scope.has_leftovers():
        resolved = _version_of(scope, placed.following, latest)
    else:
        scope.act()
    scope.record(placed.name, VersionCheckEntry(resolved=resolved, latest=newest))
    await scope.turn.recorded()
    return resolved


def _is_passed_by(scope: Scope, name: str) -> bool:
    """Whether the read-only replay that collects undos goes past a mark at ``name`` which history does not have.

    Where history goes on behind it, the workflow was past it when this code was deployed, and has steps to undo there.
    """
    if not scope.turn.is_collecting:
        return False
    return scope.turn.storage.find_below(scope.key, name) is None and scope.has_leftovers()


def _version_of(scope: Scope, event: Recorded | None, latest: int) -> int:
    """The version of the code that went past a check, asked for ``latest``, which was then put before ``event``."""
    if event is None:
        # What stands at no place, a signal or a start, was done here by code that knew of no check.
        return scope.version
    if event.kind != VersionCheckEntry.kind:
        return event.version
    entry = scope.turn.storage.find_below(scope.key, render(event.coordinate, event.version))
    assert entry is not None
    assert isinstance(entry.kind, VersionCheckEntry)
    # Code that had the later check went past here without this one, whatever that check has answered.
    return max(scope.version, min(entry.kind.resolved, scope.version + latest - 2))


def check_number(what: str, version: int) -> None:
    """Raise where ``version`` is no number of a version; ``what`` says which call was given it, and as what."""
    if type(version) is not int or not 1 <= version <= limits.VERSION_MAX:
        raise InvalidIdError(f"{what} must be an integer from 1 to {limits.VERSION_MAX}")


def _check_type(original_type: str) -> None:
    if original_type not in _TYPES:
        raise InvalidIdError(f"{original_type!r} is no type of operation; one of: {', '.join(_TYPES)}")
