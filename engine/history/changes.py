"""What has changed in a history and is not committed yet, in groups that must be committed whole and in order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from engine import keys
from engine.commit import Commit

if TYPE_CHECKING:
    from engine.commit import Child, Outgoing, Publication, Reply
    from engine.entry import Message

_MESSAGE_ACTIONS, _REPLY_ACTIONS = 1, 2
_CHILD_ACTIONS = 3
"""What a child without tags counts for: its head, its input and, where it is unique, that; each tag is one more, and so
is a failed one that it may replace."""

_KEY_BYTES = 64
"""What metadata counts for twice, as key and as value. Design choice: about what it has, short of an error's text."""

_MARKS = ("entries", "metadata", "deletes", "consumed")
_KEYED = ("returned", "outgoing", "published", "children")
_LISTED = ("ranges", "replies")
"""The fields of ``Changes`` that have groups: by key the group, by key the group and the thing, a list of these two."""


class Room(Struct, frozen=True, kw_only=True):
    """How much one commit of a driver may carry: bytes of pairs and bodies, and messages.

    A reply counts twice, a child three times, once more for each tag and for a failed one that it may replace.
    """

    bytes_max: int
    messages_max: int

    def holds(self, commit: Commit) -> bool:
        """Whether ``commit`` fits."""
        size = sum(len(key) + len(value) for key, value in commit.puts)
        size += sum(len(outgoing.message.body) for outgoing in commit.outgoing)
        size += sum(len(message.body) for message in commit.returned) + sum(len(reply.body) for reply in commit.replies)
        size += sum(len(publication.body) for publication in commit.published)
        size += sum(_size_of(child) for child in commit.children)
        moves = len(commit.consumed) + len(commit.returned) + len(commit.outgoing) + len(commit.published)
        count = moves * _MESSAGE_ACTIONS + len(commit.replies) * _REPLY_ACTIONS
        count += sum(_actions_of(child) for child in commit.children)
        return size <= self.bytes_max and count <= self.messages_max


class Changes:
    """Everything that a commit will carry and that is not committed yet; marks only, values are read when gathered.

    Each mark has the number of its group: what one operation records at once. A message leaves the inbox in the commit
    that has its record, so a group is never divided; and a later group never goes without the earlier ones.
    """

    __slots__ = (
        "children",
        "consumed",
        "deletes",
        "entries",
        "fields",
        "metadata",
        "outgoing",
        "published",
        "ranges",
        "replies",
        "returned",
    )

    def __init__(self) -> None:
        self.entries: dict[bytes, int] = {}
        self.metadata: dict[str, int] = {}
        self.fields: dict[bytes, bytes | None] = {}
        self.deletes: dict[bytes, int] = {}
        self.ranges: list[tuple[int, tuple[bytes, bytes]]] = []
        self.consumed: dict[str, int] = {}
        self.returned: dict[str, tuple[int, Message]] = {}
        self.replies: list[tuple[int, Reply]] = []
        # By the entry that records it: where that goes before it is committed, nothing is sent, published or started.
        self.outgoing: dict[str, tuple[int, Outgoing]] = {}
        self.published: dict[str, tuple[int, Publication]] = {}
        self.children: dict[str, tuple[int, Child]] = {}

    def is_empty(self) -> bool:
        """Whether a commit of these would carry nothing."""
        return not (
            self.entries
            or self.metadata
            or self.fields
            or self.deletes
            or self.ranges
            or self.consumed
            or self.returned
            or self.replies
            or self.outgoing
            or self.published
            or self.children
        )

    def prepend(self, earlier: Changes) -> None:
        """Put back what an unsuccessful flush had taken; what changed since stays behind it and wins."""
        self.entries = {**earlier.entries, **self.entries}
        self.metadata = {**earlier.metadata, **self.metadata}
        self.fields = {**earlier.fields, **self.fields}
        self.deletes = {**earlier.deletes, **self.deletes}
        self.ranges[:0] = earlier.ranges
        # A message taken by what failed and given back since has never left the inbox, and the other way round.
        undone = {message_id for message_id in earlier.consumed if message_id in self.returned}
        undone |= {message_id for message_id in earlier.returned if message_id in self.consumed}
        consumed = {**earlier.consumed, **self.consumed}
        returned = {**earlier.returned, **self.returned}
        self.consumed = {message_id: group for message_id, group in consumed.items() if message_id not in undone}
        self.returned = {message_id: one for message_id, one in returned.items() if message_id not in undone}
        self.replies[:0] = earlier.replies
        self.outgoing = {**earlier.outgoing, **self.outgoing}
        self.published = {**earlier.published, **self.published}
        self.children = {**earlier.children, **self.children}

    def commit(self, puts: list[tuple[bytes, bytes]], **ending: Any) -> Commit:
        """The commit that carries these changes; ``puts`` are the values behind the marks."""
        return Commit(
            puts=puts,
            deletes=[*self.deletes, *(key for key, value in self.fields.items() if value is None)],
            ranges=[removed for _, removed in self.ranges],
            consumed=list(self.consumed),
            replies=[reply for _, reply in self.replies],
            returned=[message for _, message in self.returned.values()],
            outgoing=[outgoing for _, outgoing in self.outgoing.values()],
            published=[publication for _, publication in self.published.values()],
            children=[child for _, child in self.children.values()],
            **ending,
        )

    def merge(self, since: int, into: int) -> None:
        """Groups from ``since`` on become the one group ``into``: what they hold only makes sense together."""
        for name in _MARKS:
            marks = getattr(self, name).items()
            setattr(self, name, {key: into if group >= since else group for key, group in marks})
        for name in _KEYED:
            keyed = getattr(self, name).items()
            setattr(self, name, {key: (into if group >= since else group, one) for key, (group, one) in keyed})
        for name in _LISTED:
            listed = getattr(self, name)
            setattr(self, name, [(into if group >= since else group, one) for group, one in listed])

    def forget(self, entry_id: str) -> None:
        """The entry is gone before it was committed: what it records is not done."""
        self.metadata.pop(entry_id, None)
        self.outgoing.pop(entry_id, None)
        self.published.pop(entry_id, None)
        self.children.pop(entry_id, None)

    def fills(self, room: Room) -> bool:
        """Whether more of what moves would not go into one commit."""
        children = [child for _, child in self.children.values()]
        moves = len(self.consumed) + len(self.returned) + len(self.outgoing) + len(self.published)
        if moves + sum(map(_actions_of, children)) >= room.messages_max:
            return True
        size = sum(len(outgoing.message.body) for _, outgoing in self.outgoing.values())
        size += sum(len(publication.body) for _, publication in self.published.values())
        return size + sum(map(_size_of, children)) >= room.bytes_max

    def take_child(self, workflow_id: str) -> list[str]:
        """The ids of the entries that record the start of ``workflow_id``, which is not to be started any more."""
        taken = [entry_id for entry_id, (_, child) in self.children.items() if child.workflow_id == workflow_id]
        for entry_id in taken:
            del self.children[entry_id]
        return taken

    def first_groups(self, sizes: dict[bytes, int], room: Room) -> int:
        """The last group that fits into ``room`` with all earlier ones, at least the first; ``sizes`` by entry key."""
        size_of = self._sizes(sizes)
        ordered = sorted(size_of)
        last, size, count = ordered[0], 0, 0
        for group in ordered:
            size, count = size + size_of[group][0], count + size_of[group][1]
            if group is not ordered[0] and (size > room.bytes_max or count > room.messages_max):
                break
            last = group
        return last

    def _sizes(self, sizes: dict[bytes, int]) -> dict[int, list[int]]:
        """Of every group how many bytes it has, and how many actions it counts for."""
        size_of: dict[int, list[int]] = {}
        for key, group in self.entries.items():
            _add(size_of, group, size=len(key) + sizes[key])
        for group in self.metadata.values():
            _add(size_of, group, size=_KEY_BYTES * 2)
        for group in self.consumed.values():
            _add(size_of, group, count=_MESSAGE_ACTIONS)
        for group, message in self.returned.values():
            _add(size_of, group, size=len(message.body), count=_MESSAGE_ACTIONS)
        for group, outgoing in self.outgoing.values():
            _add(size_of, group, size=len(outgoing.message.body), count=_MESSAGE_ACTIONS)
        for group, publication in self.published.values():
            _add(size_of, group, size=len(publication.body), count=_MESSAGE_ACTIONS)
        for group, child in self.children.values():
            _add(size_of, group, size=_size_of(child), count=_actions_of(child))
        for group, reply in self.replies:
            _add(size_of, group, size=len(reply.body), count=_REPLY_ACTIONS)
        return size_of

    def split(self, last: int) -> tuple[Changes, Changes]:
        """The changes of the groups up to ``last`` with the input, and those of later ones with the other fields."""
        first, rest = Changes(), Changes()
        for key, value in self.fields.items():
            (first if key == keys.INPUT_KEY else rest).fields[key] = value
        for name in _MARKS:
            for key, group in getattr(self, name).items():
                getattr(first if group <= last else rest, name)[key] = group
        for name in _KEYED:
            for key, grouped in getattr(self, name).items():
                getattr(first if grouped[0] <= last else rest, name)[key] = grouped
        for name in _LISTED:
            for grouped in getattr(self, name):
                getattr(first if grouped[0] <= last else rest, name).append(grouped)
        return first, rest


def _actions_of(child: Child) -> int:
    return _CHILD_ACTIONS + len(child.tags) + int(child.replace_failed)


def _size_of(child: Child) -> int:
    # A store may keep all tags with each of them.
    tags = sum(len(name) + len(value.encode()) for name, value in child.tags.items())
    return len(child.workflow_input) + tags * (1 + len(child.tags))


def _add(size_of: dict[int, list[int]], group: int, *, size: int = 0, count: int = 0) -> None:
    known = size_of.setdefault(group, [0, 0])
    known[0] += size
    known[1] += count
