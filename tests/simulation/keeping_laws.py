"""The law of what is kept for a while: 17, it is forgotten when that is over, no sooner, and nothing more of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine import keys
from tests.simulation.children import BARE, FLEETING, RETENTION_MS
from tests.simulation.laws import Law
from tests.simulation.view import ENDED, integer

if TYPE_CHECKING:
    from tests.simulation.view import News, View

PATIENCE_MS = 1_200_000
"""For so long after the calm it may be there: a sweep looks at one shard of sixteen a minute."""

HISTORY = (keys.HISTORY_PREFIX, keys.METADATA_PREFIX, keys.NAMES_PREFIX)


class KeptForAWhile(Law):
    """17: what is to be kept for a while after its end is forgotten then: all of it, or its history alone."""

    number = 17

    def wrote(self, view: View, news: News) -> None:
        """Look at how long it is to be kept, and at what goes."""
        if view.type not in (FLEETING, BARE) or view.ended_us is None:
            return
        until = integer(news.head, "prune_at")
        if until is not None and until != (integer(news.head, "ended_at") or 0) + RETENTION_MS:
            raise self.breach(f"{view.life} is kept until {until}, and has ended at {integer(news.head, 'ended_at')}")
        kept_ms = (news.write.at_us - view.ended_us) // 1000
        goes = view.is_purged or any(key.startswith(HISTORY) for key in news.removed)
        if goes and kept_ms < RETENTION_MS - 2 * self.world.weather.skew_ms:
            raise self.breach(f"{view.life} was kept for {kept_ms} ms")
        if view.type == BARE and (view.is_purged or keys.OUTPUT_KEY in news.removed):
            raise self.breach(f"{view.life} was to lose its history, and loses more")

    def ended(self) -> None:
        """Nothing is kept for much longer."""
        for view in self.world.lives.values():
            if view.type not in (FLEETING, BARE) or view.state not in (ENDED[0], ENDED[2]):
                continue
            since_ms = max((view.ended_us or 0) // 1000 + RETENTION_MS, round(self.world.weather.calm_s * 1000))
            is_late = self.world.timeline.now_us // 1000 > since_ms + PATIENCE_MS
            history = [key for key in view.pairs if key.startswith(HISTORY)]
            if is_late and not view.is_gone and (view.type == FLEETING or history):
                raise self.breach(f"{view.life} is kept, with {len(history)} pairs of its history")
