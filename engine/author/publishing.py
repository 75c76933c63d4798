"""Publications, as authors make them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.author.operating import Operating
from engine.location import EVERYTHING, check_publication
from engine.ops import publication

if TYPE_CHECKING:
    from collections.abc import Coroutine


class Publishing(Operating):
    """How a context tells whoever listens."""

    __slots__ = ()

    def publish(self, name: str, body: Any = None, *, topic: str = EVERYTHING) -> Coroutine[Any, Any, None]:
        """Tell whoever listens now that ``name`` has happened; nobody need listen, and nobody answers.

        It is recorded under its own name, as ``queue.send`` is, with the next commit, and leaves after that: once in
        what ``GET /messages/{name}`` shows for a while, at most once on the event bus, and never again on replay.

        Args:
            name: the message's name: up to 128 characters; not one that begins with ``torpor.``.
            body: any storable value.
            topic: what it is about, such as ``"order:17"``; subscribers may ask for exactly that.

        Raises:
            InvalidIdError: the name or the topic is not valid.
            DriverError: this store cannot publish.
        """
        check_publication(name, topic)
        self._refuse_version(f"publish:{name}")
        return self._scope.operation(f"publish:{name}", publication.run(self._scope, name, body, topic))
