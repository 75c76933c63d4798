from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from adapters.dynamodb.model.limits import OUTSTANDING_MAX_MS
from adapters.dynamodb.model.tickets import Account, Counts, Inbox, settle
from engine.entry import Message


def message(ticket: int, name: str = "go", size: int = 1, message_id: str | None = None) -> Message:
    return Message(id=message_id or f"m{ticket}", name=name, body=bytes(size), sent_at=0, ticket=ticket)


def inbox(*messages: Message, last_ticket: int | None = None) -> Inbox:
    made = Inbox(Account())
    last = max((found.ticket for found in messages), default=0) if last_ticket is None else last_ticket
    made.look(Counts(last_ticket=last, is_due=True), messages=messages, now=0)
    return made


def test_an_inbox_whose_tickets_all_have_messages_is_settled() -> None:
    assert settle(Account(), 3, [1, 2, 3], now=5) == Account(done=3)
    assert settle(Account(done=3), 3, [], now=5) == Account(done=3)
    assert not settle(Account(done=3), 3, [], now=5).is_outstanding


def test_a_missing_message_is_outstanding_from_when_it_was_first_missed() -> None:
    first = settle(Account(), 3, [1, 3], now=1000)
    assert first == Account(done=1, gap_n=3, gap_at=1000)
    assert first.is_outstanding
    assert settle(first, 5, [3, 4, 5], now=2000) == first
    assert settle(first, 3, [2, 3], now=2000) == Account(done=3)


def test_after_a_minute_its_sender_is_taken_for_dead() -> None:
    gap = Account(done=1, gap_n=3, gap_at=1000)
    assert settle(gap, 3, [], now=1000 + OUTSTANDING_MAX_MS - 1) == gap
    assert settle(gap, 3, [], now=1000 + OUTSTANDING_MAX_MS) == Account(done=3)


def test_a_younger_gap_has_a_minute_of_its_own() -> None:
    gap = Account(done=1, gap_n=3, gap_at=1000)
    later = 1000 + OUTSTANDING_MAX_MS
    assert settle(gap, 5, [], now=later) == Account(done=3, gap_n=5, gap_at=later)


@given(
    st.lists(st.tuples(st.integers(0, 5), st.sets(st.integers(1, 30)), st.integers(0, 30_000)), min_size=1, max_size=12)
)
def test_no_ticket_is_given_up_within_a_minute_of_its_first_miss(looks: list[tuple[int, set[int], int]]) -> None:
    account, last, now = Account(), 0, 0
    seen: set[int] = set()
    missed_since: dict[int, int] = {}
    for given_out, found, passed in looks:
        last, now = last + given_out, now + passed
        seen |= {ticket for ticket in found if ticket <= last}
        before = account
        account = settle(account, last, seen, now)
        assert before.done <= account.done <= last
        for ticket in range(1, last + 1):
            if ticket in seen:
                continue
            missed_since.setdefault(ticket, now)
            if ticket <= account.done:
                assert now - missed_since[ticket] >= OUTSTANDING_MAX_MS
        everything_is_there = all(ticket <= account.done or ticket in seen for ticket in range(1, last + 1))
        assert account.is_outstanding == (not everything_is_there)


def test_what_was_consumed_in_this_run_is_not_missed() -> None:
    made = inbox(message(1), message(2), message(3))
    made.apply(removed=[2], added=[])
    made.look(Counts(last_ticket=3, is_due=True), messages=[message(1), message(3)], now=1)
    assert not made.account.is_outstanding


def test_receiving_goes_by_ticket_name_and_count() -> None:
    made = inbox(message(3, "b"), message(1, "a"), message(2, "b"))
    assert [found.ticket for found in made.receive((), 9)] == [1, 2, 3]
    assert [found.ticket for found in made.receive(("b",), 1)] == [2]
    assert made.receive(("c",), 1) == []
    assert made.has_any(())
    assert made.has_any(("b", "c"))
    assert not made.has_any(("c",))


def test_all_of_a_full_inbox_can_be_looked_at() -> None:
    many = inbox(*(message(ticket) for ticket in range(1, 200)))
    assert len(many.receive((), 1000)) == 199


def test_an_id_that_was_forgotten_and_accepted_again_is_two_messages() -> None:
    made = inbox(message(1, message_id="x"), message(2, message_id="x"))
    assert made.tickets_of(["x"]) == [1]
    assert made.tickets_of(["x", "x"]) == [1, 2]
    assert made.tickets_of(["x", "x", "x", "y"]) == [1, 2]


def test_a_ticket_of_ones_own_moves_the_inbox_only_for_others() -> None:
    made = inbox(message(1))
    made.took_ticket(2)
    assert made.last_ticket == 2
    made.took_ticket(4)
    assert made.last_ticket == 2


def test_an_own_message_behind_unseen_ones_waits_for_the_next_look() -> None:
    made = inbox(message(1))
    made.took_ticket(3)
    made.apply(removed=[], added=[message(3)])
    assert [found.ticket for found in made.receive((), 9)] == [1]
    made.look(Counts(last_ticket=3, is_due=True), messages=[message(1), message(2), message(3)], now=1)
    assert [found.ticket for found in made.receive((), 9)] == [1, 2, 3]
    assert not made.account.is_outstanding


def test_a_look_that_a_commit_has_overtaken_changes_nothing_of_it() -> None:
    made = inbox(message(1), message(2))
    made.apply(removed=[1], added=[])
    made.look(Counts(last_ticket=2, is_due=True), messages=[message(1), message(2)], now=1)
    assert [found.ticket for found in made.receive((), 9)] == [2]
    made.apply(removed=[], added=[message(1)])
    made.look(Counts(last_ticket=2, is_due=True), messages=[message(2)], now=1)
    assert [found.ticket for found in made.receive((), 9)] == [1, 2]
    assert made.tickets_of(["m1"]) == [1]
    made.apply(removed=[1, 2], added=[])
    made.look(Counts(last_ticket=2, is_due=True), messages=[], now=1)
    assert made.receive((), 9) == []


def test_taking_messages_one_by_one_does_not_look_at_all_the_others_each_time() -> None:
    many = 20_000
    full = inbox(*(message(ticket) for ticket in range(1, many + 1)))
    began = time.process_time()
    for ticket in range(1, many + 1):
        [found] = full.receive(["go"], 1)
        assert full.tickets_of([found.id]) == [ticket]
        full.apply(removed=[ticket], added=[])
    # Looking at all of them took a hundred times as long.
    assert time.process_time() - began < 5
    assert full.receive([], 1) == []


def test_a_message_without_its_body_here_keeps_its_place_until_it_is_taken() -> None:
    full = inbox(message(1))
    full.look(Counts(last_ticket=3, is_due=True), messages=[message(1), message(2), message(3)], bare=[2, 3], now=1)
    assert [found.ticket for found in full.receive([], 9)] == [1, 2, 3]
    full.apply(removed=[2], added=[])
    assert full.bare == {3}
    full.apply(removed=[], added=[message(2), message(3)])
    assert full.bare == set()
    assert [found.ticket for found in full.receive([], 9)] == [1, 2, 3]
