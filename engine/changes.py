"""What has changed in a history and is not committed yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.commit import Outgoing, Reply
    from engine.entry import Message


class Changes:
    """Everything that a commit will carry and that is not committed yet; marks only, values are read when gathered."""

    __slots__ = (
        "consumed",
        "deletes",
        "entries",
        "fields",
        "metadata",
        "outgoing",
        "ranges",
        "replies",
        "returned",
    )

    def __init__(self) -> None:
        self.entries: dict[bytes, None] = {}
        self.metadata: dict[str, None] = {}
        self.fields: dict[bytes, bytes | None] = {}
        self.deletes: dict[bytes, None] = {}
        self.ranges: list[tuple[bytes, bytes]] = []
        self.consumed: dict[str, None] = {}
        self.returned: dict[str, Message] = {}
        self.replies: list[Reply] = []
        self.outgoing: list[Outgoing] = []

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
        self.consumed = {key: None for key in (*earlier.consumed, *self.consumed) if key not in undone}
        self.returned = {
            key: value for key, value in {**earlier.returned, **self.returned}.items() if key not in undone
        }
        self.replies[:0] = earlier.replies
        self.outgoing[:0] = earlier.outgoing
