"""The laws of what is told: 11, listings are plausible; 12, answers are true; 13, ids are remembered for a day."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.schedules.identity import SCHEDULE_TYPE
from tests.simulation.laws import Law
from tests.simulation.view import ENDED, PURGED

if TYPE_CHECKING:
    from tests.simulation.http import HttpAnswer, HttpCall
    from tests.simulation.laws import Listing
    from tests.simulation.view import News, View
    from tests.simulation.world import World

MOMENT_US = 1_000_000
"""An index may lag behind by the weather's worth of time, and by this."""

DAY_US = 86_400 * 1_000_000
SLACK_US = 100 * 1_000_000
"""Clocks differ: a day may be so much shorter or longer."""


SETTLING_SHARE = 2.2
"""An answer is under way for up to so many times the weather's latency."""


class ListingIsPlausible(Law):
    """11: a listing shows nothing that never was, each workflow once and in order, and in the end all of them."""

    number = 11

    def listed(self, listing: Listing) -> None:
        """Hold a whole listing against what was stored while it was made."""
        wanted_type, wanted_state = listing.query.get("type"), listing.query.get("state")
        places = [(found["created_at"], found["id"]) for found in listing.found]
        if places != sorted(set(places), reverse=True):
            raise self.breach(f"a listing is out of order, or repeats itself: {places}")
        for found in listing.found:
            view = self.world.views.get(found["id"])
            if view is None or found["type"] != view.type or wanted_type not in (None, found["type"]):
                raise self.breach(f"{found['id']} is listed under {found['type']}, where {wanted_type} is asked for")
            self._check_state(view, found["state"], wanted_state, listing)
        shown = {found["id"] for found in listing.found}
        for view in self.world.views.values():
            # Schedules are listed where they are asked for.
            is_wanted = wanted_type == view.type or (wanted_type is None and view.type != SCHEDULE_TYPE)
            if view.workflow_id not in shown and is_wanted:
                self._check_missing(view, wanted_state, listing)

    def _check_state(self, view: View, state: str, wanted: str | None, listing: Listing) -> None:
        known = view.states_since(listing.began_us)
        if view.number:
            known |= self.world.lives[f"{view.workflow_id}.{view.number - 1}"].states_since(listing.began_us)
        if state not in known or wanted not in (None, state):
            raise self.breach(f"{view.life} is listed as {state}, where {wanted} is asked for; it was {sorted(known)}")

    def _check_missing(self, view: View, wanted: str | None, listing: Listing) -> None:
        """It must be missing where it should be; what changed just now may be missing."""
        lag_us = int(self.world.weather.index_lag_s * 1e6) + MOMENT_US
        states = (
            view.states_since(listing.began_us - lag_us) if view.states[0][0] < listing.began_us - lag_us else set()
        )
        groups = {state if state in (*ENDED, PURGED) else "active" for state in states}
        is_steady = len(groups) == 1 and (wanted is None or states == {wanted})
        if is_steady and PURGED not in groups:
            raise self.breach(f"{view.life} is {sorted(states)}, and is not listed for {listing.query}")


class AnswersAreTrue(Law):
    """12: what the API answers was so at some moment of the call, and what counts once is told to count once."""

    number = 12

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._created: set[str] = set()
        self._counted: dict[tuple[str, str], int] = {}

    def answered(self, call: HttpCall, answer: HttpAnswer) -> None:
        """Hold an answer against what is stored, and against earlier answers."""
        if answer.status not in (200, 201, 202):
            return
        match call.verb:
            case _ if call.path.startswith("/schedules") and call.method != "DELETE":
                return
            case "POST":
                self._check_start(call, answer)
            case "send":
                self._check_send(call, answer.value)
            case "DELETE":
                if answer.value["is_gone"] and not self.world.lives[call.life].is_gone:
                    raise self.breach(f"{call.life} is said to be gone, and is there")
            case "output":
                self._check_state(call, answer.value["state"])
                self._check_output(call, answer.value)
            case "wake" | "cancel" | "recover" | "replay":
                self._check_state(call, answer.value["state"])
            case "GET" if call.life:
                self._check_state(call, answer.value["state"])

    def _check_start(self, call: HttpCall, answer: HttpAnswer) -> None:
        name = call.headers.get("idempotency-key") or call.value["id"]
        view = self.world.views.get(answer.value["id"])
        if answer.value["id"] != name or view is None:
            raise self.breach(f"{name} was to be started, and {answer.value['id']} is said to be")
        if answer.value["created"] != (answer.status == 201):
            raise self.breach(f"a start of {name} is answered with {answer.status} and {answer.value}")
        if answer.value["created"]:
            if view.life in self._created or view.states[0][0] < call.began_us:
                raise self.breach(f"{view.life} is said to be new, and was there already")
            self._created.add(view.life)

    def _check_send(self, call: HttpCall, value: dict[str, Any]) -> None:
        asked = call.headers.get("idempotency-key") or call.query.get("id")
        if asked is None:
            return
        if value["message_id"] != asked:
            raise self.breach(f"{asked} was sent, and {value['message_id']} is said to be accepted")
        mark, now_us = (call.life, asked), self.world.timeline.now_us
        if not value["duplicate"]:
            if now_us - self._counted.get(mark, -2 * DAY_US) < DAY_US - SLACK_US:
                raise self.breach(f"{asked} is said to be new to {call.life} twice")
            self._counted[mark] = now_us
        if "reply" in value and value["reply"] != ["reply", call.value]:
            raise self.breach(f"{asked} is said to be answered with {value['reply']}")

    def _check_state(self, call: HttpCall, state: str) -> None:
        # A Query may show what was there before a transaction until that one is answered.
        settling_us = int(self.world.weather.latency_s * SETTLING_SHARE * 1e6)
        known = self.world.lives[call.life].states_since(call.began_us - settling_us)
        if state not in known:
            raise self.breach(f"{call.life} is said to be {state} by {call.path}; it was {sorted(known)}")

    def _check_output(self, call: HttpCall, value: dict[str, Any]) -> None:
        view = self.world.lives[call.life]
        expected = ["given", self.world.stories[view.workflow_id].expected.output]
        if value["state"] == "completed" and value["output"] != expected:
            raise self.breach(f"{call.life} is said to have come to {value['output']}, and not to {expected}")
        if value["state"] == "failed" and not value["error"]:
            raise self.breach(f"{call.life} is said to have failed, and nobody says why")


class Remembered(Law):
    """13: a message's id counts once a day, whether or not DynamoDB has deleted what had its time."""

    number = 13

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._since_us: dict[tuple[str, str], int] = {}

    def wrote(self, view: View, news: News) -> None:
        """Look at each id that is taken down, and until when."""
        for change in news.changes:
            if not change.sk.startswith("DEDUP#") or change.new is None:
                continue
            mark, at_us = (view.life, change.sk.removeprefix("DEDUP#")), news.write.at_us
            if view.is_purged:
                # What was remembered goes page by page; a try that was under way may come in between, and goes too.
                self._since_us[mark] = at_us
                continue
            ahead_s = int(change.new["ttl"]["N"]) - self.world.now_ms // 1000
            if abs(ahead_s - 86_400) > 86_400:
                raise self.breach(f"{mark[1]} is to be remembered by {view.life} for {ahead_s} s")
            if "reply" in change.new:
                self._since_us[mark] = max(at_us, self._since_us.get(mark, at_us))
                continue
            if at_us - self._since_us.get(mark, -2 * DAY_US) < DAY_US - SLACK_US:
                raise self.breach(f"{mark[1]} counts in {view.life} twice within a day")
            self._since_us[mark] = at_us

    def answered(self, call: HttpCall, answer: HttpAnswer) -> None:
        """What is over is not remembered, though it may be there still."""
        asked = call.headers.get("idempotency-key") or call.query.get("id")
        if call.verb != "send" or asked is None or answer.status not in (200, 202):
            return
        since_us = self._since_us.get((call.life, asked))
        if answer.value["duplicate"] and (since_us is None or call.began_us - since_us > DAY_US + SLACK_US):
            raise self.breach(f"{asked} is said to be known to {call.life}, which was long ago")
