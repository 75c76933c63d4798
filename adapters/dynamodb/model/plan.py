"""A commit as one transaction: which items it writes, and under which conditions. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from adapters.alarms import schedule_ms
from adapters.dynamodb.model import log
from adapters.dynamodb.model.beginning import Beginning, kept_start_at
from adapters.dynamodb.model.expressions import (
    Action,
    Change,
    Condition,
    action_bytes,
    binary,
    check_action,
    delete_action,
    item_bytes,
    number,
    put_action,
    update_action,
)
from adapters.dynamodb.model.items import (
    DUE_ATTRIBUTES,
    HEAD,
    INBOX,
    PRUNE_ALL,
    PRUNE_HISTORY,
    WAITS,
    Head,
    dedup_key,
    due,
    encode_head,
    encode_message,
    head_change,
    key,
    log_items,
    log_key,
    message_key,
    token,
)
from adapters.dynamodb.model.limits import (
    DEDUP_TTL_S,
    MESSAGE_BYTES_MAX,
    OUTSTANDING_LOOK_MS,
    PLAN_BYTES_MAX,
    TRANSACTION_ACTIONS_MAX,
    WAITING_BYTES_MAX,
)
from adapters.dynamodb.model.publications import tail_item
from adapters.dynamodb.model.retrying import told
from adapters.dynamodb.model.schema import TTL
from adapters.dynamodb.model.tags import found_actions
from adapters.dynamodb.model.tickets import Inbox
from engine.commit import Commit
from engine.entry import Message
from engine.errors import CommitTooLarge
from engine.lifecycle import ENDED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.commit import Pruning, Reply


class Lease(Struct, frozen=True, kw_only=True):
    """What this holder's lease is made of: ``length_ms`` at a time, never past ``deadline_ms``."""

    owner: str
    length_ms: int
    deadline_ms: int | None

    def until(self, now: int) -> int:
        """The end of a lease taken or renewed at ``now``."""
        end = now + self.length_ms
        return end if self.deadline_ms is None else min(end, self.deadline_ms)


class Turn(Struct, frozen=True, kw_only=True):
    """Where a holder stands when it commits.

    ``ordinal`` counts this holder's tries to commit, since a commit that was refused may be followed by another one
    under the same epoch and number. ``now`` is milliseconds since the epoch. ``has_fired``: HEAD's alarm is over.
    ``waits``: the workflows of its item WAITS.
    """

    head: Head
    inbox: Inbox
    lease: Lease
    ordinal: int
    now: int
    has_fired: bool = False
    waits: frozenset[str] = frozenset()


class Posted(Struct, frozen=True):
    """A message with its ticket, and the workflow into whose inbox it goes."""

    workflow_id: str
    message: Message


class Plan(Struct, frozen=True, kw_only=True):
    """One commit, ready to be written.

    Attributes:
        actions: of the transaction.
        head: HEAD after it; ``head.flush`` is the commit's id.
        record: what goes into the log, ``record_bytes`` long, under ``log_keys``.
        removed: tickets that leave the inbox.
        added: messages that come (back) into this workflow's own inbox.
        inbox_index: which action holds the inbox to what was last seen of it, or None.
        waits: the workflows whose ends it waits for after this commit, as WAITS then says.
        place_at: which actions take or leave the place of a unique workflow.
        child_at: which actions may be refused because of which child, by its number.
    """

    actions: list[Action]
    head: Head
    record: log.Record
    record_bytes: int
    log_keys: list[str]
    removed: list[int]
    added: list[Message]
    inbox_index: int | None
    waits: frozenset[str]
    place_at: range
    child_at: dict[int, int]


def flush_id(turn: Turn) -> str:
    """The id of the commit that follows ``turn``. The owner makes it unique over all lives of a workflow id."""
    return token(turn.lease.owner, str(turn.head.epoch), str(turn.head.seq), str(turn.ordinal))


def changes_nothing(commit: Commit, alarm_at: int | None) -> bool:
    """Whether a commit has no news, so that writing it would only cost."""
    return replace(commit, alarm=None) == Commit() and (commit.alarm is None or commit.alarm.at == alarm_at)


def is_mine(head: Head) -> Condition:
    """The fence: nobody took over, and no commit came in between."""
    return Condition("#epoch = :epoch AND #seq = :seq", {":epoch": number(head.epoch), ":seq": number(head.seq)})


def next_head(turn: Turn, commit: Commit) -> Head:
    """HEAD after ``commit``."""
    head, now, account = turn.head, turn.now, turn.inbox.account
    state = commit.state or head.state
    standing = None if turn.has_fired else head.wake_at
    wake_at = standing if commit.alarm is None else commit.alarm.at
    after = replace(
        head,
        state=state,
        seq=head.seq + 1,
        flush=flush_id(turn),
        wake_at=wake_at,
        start_at=kept_start_at(head, now),
        deaths=0,
        faults=0,
        unread=0,
        updated_at=now,
        inbox_done=account.done,
        gap_n=account.gap_n,
        gap_at=account.gap_at,
    )
    if state in ENDED:
        waited = head.waited if head.state in ENDED else turn.inbox.waited
        return replace(
            after,
            owner=None,
            lease_until=None,
            waited=waited,
            # Until everybody who waits for its end has been told.
            due_at=now if waited else None,
            wake_at=None,
            schedule_at=None,
            waiting=None,
            retrying=(),
            **({} if head.state in ENDED else _end(commit.pruning, now)),
        )
    after = replace(after, ended_at=None, prune="", prune_at=None, pruned_at=None, waited=0)
    if commit.yields:
        return replace(
            after,
            owner=None,
            lease_until=None,
            due_at=wake_at,
            schedule_at=schedule_ms(wake_at, now),
            waiting=commit.names,
            unread=turn.inbox.unread,
            retrying=told(commit.alarm.retrying if commit.alarm else ()),
        )
    return with_lease(after, turn.lease, now)


def _end(pruning: Pruning | None, now: int) -> dict[str, Any]:
    """What HEAD says of an end that comes ``now``."""
    if pruning is None:
        return {"ended_at": now}
    what = PRUNE_ALL if pruning.is_whole else PRUNE_HISTORY
    return {"ended_at": now, "prune": what, "prune_at": now + pruning.after_ms}


def with_lease(head: Head, lease: Lease, now: int) -> Head:
    """HEAD with a lease that is good for at least half its length, where the deadline allows.

    It is renewed only then: renewing moves the workflow in the index ``due``, which every step would pay for.
    """
    until = lease.until(now)
    is_fresh = head.owner == lease.owner and (head.lease_until or 0) - now > lease.length_ms // 2
    if is_fresh or (head.owner == lease.owner and (head.lease_until or 0) >= until):
        return head
    return replace(head, owner=lease.owner, lease_until=until, due_at=until)


def inbox_action(turn: Turn, after: Head, *, yields: bool, posts: bool) -> Action | None:
    """What a commit does to INBOX: hold it to what was last seen, clear its ``due_at``, close or reopen it.

    An end is held to who was waiting for it: whoever comes before it has to be told.

    ``posts`` says that the commit puts a message into the workflow's own inbox.
    """
    inbox_key = key(after.workflow_id, INBOX)
    ends = after.state in ENDED and turn.head.state not in ENDED
    seen = _awaited(turn.inbox) if ends else _seen(turn.inbox) if yields else None
    change = _inbox_change(turn, after, yields=yields, posts=posts)
    if change is not None:
        return update_action(inbox_key, change, seen)
    return None if seen is None else check_action(inbox_key, seen)


def _seen(inbox: Inbox) -> Condition:
    given = {":last": number(inbox.last_ticket)}
    as_seen = "#n = :last" if inbox.last_ticket else "(attribute_not_exists(#n) OR #n = :last)"
    if inbox.told_n:
        return Condition(f"{as_seen} AND #told_n = :told_n", {**given, ":told_n": number(inbox.told_n)})
    return Condition(f"{as_seen} AND attribute_not_exists(#told_n)", given)


def _awaited(inbox: Inbox) -> Condition:
    if inbox.waited:
        return Condition("#waited = :waited", {":waited": number(inbox.waited)})
    return Condition("attribute_not_exists(#waited)")


def _inbox_change(turn: Turn, after: Head, *, yields: bool, posts: bool) -> Change | None:
    has_ended = turn.head.state in ENDED
    if after.state in ENDED:
        # From here on no sender gets a ticket: it learns that the workflow has ended, and nothing is half-written.
        return None if has_ended else Change(sets={"closed": {"BOOL": True}}, removes=DUE_ATTRIBUTES)
    if has_ended:
        # Who has not been told of the last end is told of the next.
        return Change(removes=("closed",) if turn.head.waited else ("closed", "waited"))
    return _inbox_after_yield(turn, after, posts=posts) if yields else None


def _inbox_after_yield(turn: Turn, after: Head, *, posts: bool) -> Change | None:
    known = ("told",) if turn.inbox.told else ()
    if posts:
        return Change(sets=due(after.workflow_id, turn.now), removes=known)
    if turn.inbox.account.is_outstanding:
        return Change(sets=due(after.workflow_id, turn.now + OUTSTANDING_LOOK_MS), removes=known)
    # A yield that found no inbox makes one, for the price of the check: the first sender then need not look at HEAD.
    made = {} if turn.inbox.last_ticket else {"n": number(0)}
    if turn.inbox.is_due or known:
        return Change(sets=made, removes=(*DUE_ATTRIBUTES, *known))
    return Change(sets=made) if made else None


def plan_commit(
    turn: Turn,
    commit: Commit,
    posted: Sequence[Posted],
    beginnings: Sequence[Beginning] = (),
) -> Plan:
    """The transaction for ``commit``, whose outgoing messages have become ``posted`` and its children ``beginnings``.

    Raises:
        CommitTooLarge: it is beyond what one transaction can hold; nothing was written.
    """
    head = turn.head
    after = next_head(turn, commit)
    record = log.record_of(commit)
    parts = [] if record.is_empty else log.cut(log.encode(record))
    log_keys = [log_key(after.seq, part) for part in range(len(parts))]
    waits, waits_seq = _waits_after(turn, after, commit)
    after = replace(after, log_items=after.log_items + len(log_keys), waits_seq=waits_seq)
    removed, added = _moves(head.workflow_id, commit, turn.inbox, posted)
    actions = [update_action(key(head.workflow_id, HEAD), head_change(head, after), is_mine(head))]
    posts = any(post.workflow_id == head.workflow_id for post in posted)
    on_inbox = inbox_action(turn, after, yields=commit.yields, posts=posts)
    if on_inbox is not None:
        actions.append(on_inbox)
    returned = [message.ticket for message in commit.returned]
    actions += map(put_action, log_items(head.workflow_id, after.seq, parts, taken=removed, returned=returned))
    actions += [delete_action(key(head.workflow_id, message_key(ticket))) for ticket in removed]
    actions += [put_action(encode_message(head.workflow_id, message)) for message in commit.returned]
    actions += [put_action(encode_message(post.workflow_id, post.message)) for post in posted]
    actions += [_reply_action(head.workflow_id, reply, turn.now) for reply in commit.replies]
    actions += [put_action(tail_item(head, publication)) for publication in commit.published]
    actions += _waits_actions(head, after, waits)
    places, tags = found_actions(head, after)
    place_at = range(len(actions), len(actions) + len(places))
    actions += [*places, *tags]
    child_at: dict[int, int] = {}
    for child, beginning in enumerate(beginnings):
        guarded = beginning.guarded()
        child_at |= dict.fromkeys(range(len(actions), len(actions) + len(guarded)), child)
        actions += [*guarded, *beginning.rest()]
    plan = Plan(
        actions=actions,
        head=after,
        record=record,
        record_bytes=sum(map(len, parts)),
        log_keys=log_keys,
        removed=removed,
        added=added,
        inbox_index=None if on_inbox is None else 1,
        waits=waits,
        place_at=place_at,
        child_at=child_at,
    )
    check_size(plan, commit, beginnings)
    return plan


def _waits_after(turn: Turn, after: Head, commit: Commit) -> tuple[frozenset[str], int]:
    """What WAITS says after a commit, and which commit wrote that: 0 where there is no such item."""
    if after.state in ENDED:
        # Who has ended is not told of any end. Going on, it begins anew.
        return frozenset(), 0
    if not commit.yields:
        return turn.waits, turn.head.waits_seq
    awaited = frozenset(commit.awaited)
    if not awaited:
        return awaited, 0
    return awaited, turn.head.waits_seq if awaited == turn.waits else after.seq


def _waits_actions(head: Head, after: Head, waits: frozenset[str]) -> list[Action]:
    if after.waits_seq == head.waits_seq:
        return []
    waits_key = key(head.workflow_id, WAITS)
    if not after.waits_seq:
        return [delete_action(waits_key)]
    return [put_action({**waits_key, "ids": {"SS": sorted(waits)}, "seq": number(after.waits_seq)})]


def _reply_action(workflow_id: str, reply: Reply, now: int) -> Action:
    sets = {"reply": binary(reply.body), TTL: number(now // 1000 + DEDUP_TTL_S)}
    return update_action(key(workflow_id, dedup_key(reply.message_id)), Change(sets=sets))


def _moves(workflow_id: str, commit: Commit, inbox: Inbox, posted: Sequence[Posted]) -> tuple[list[int], list[Message]]:
    """Tickets that leave the inbox and messages that come into it. What goes back was never gone."""
    returned = {message.ticket for message in commit.returned}
    leaving = [*commit.consumed, *(reply.message_id for reply in commit.replies)]
    removed = [ticket for ticket in inbox.tickets_of(dict.fromkeys(leaving)) if ticket not in returned]
    own = [post.message for post in posted if post.workflow_id == workflow_id]
    return removed, [*commit.returned, *own]


def names_size(names: Sequence[str] | None) -> int:
    """The bytes of the names of messages that are waited for, as HEAD holds them."""
    return sum(len(name.encode()) + 1 for name in names or ())


def check_size(plan: Plan, commit: Commit, beginnings: Sequence[Beginning]) -> None:
    """Raise ``CommitTooLarge`` where a plan is beyond what one transaction can hold."""
    messages = [*commit.returned, *(outgoing.message for outgoing in commit.outgoing)]
    bodies = {f"the message {message.id!r}": len(message.body) for message in messages}
    bodies |= {f"the reply to {reply.message_id!r}": len(reply.body) for reply in commit.replies}
    bodies |= {f"the publication {one.name!r} {one.id!r}": len(one.body) for one in commit.published}
    if commit.awaited:
        bodies["the list of awaited workflows"] = sum(len(one.encode()) for one in commit.awaited)
    names_bytes = names_size(commit.names)
    if names_bytes > WAITING_BYTES_MAX:
        raise CommitTooLarge(
            f"the names of messages that are waited for have {names_bytes} bytes; {WAITING_BYTES_MAX} are room for all"
        )
    # The first action says only what changes of HEAD.
    total = item_bytes(encode_head(plan.head)) + sum(map(action_bytes, plan.actions[1:]))
    fits = total <= PLAN_BYTES_MAX and len(plan.actions) <= TRANSACTION_ACTIONS_MAX
    if fits and max(bodies.values(), default=0) <= MESSAGE_BYTES_MAX:
        return
    children = {f"the child {beginning.head.workflow_id!r}": beginning.size for beginning in beginnings}
    sizes = {f"the key {name.hex()}": len(name) + len(value) for name, value in plan.record.puts} | bodies | children
    sizes["the list of names that are waited for"] = names_size(plan.head.waiting)
    largest = max(sizes, key=sizes.__getitem__)
    raise CommitTooLarge(
        f"a commit of {total} bytes in {len(plan.actions)} actions was refused whole: one transaction holds "
        f"{PLAN_BYTES_MAX} bytes in {TRANSACTION_ACTIONS_MAX} actions, one message or reply {MESSAGE_BYTES_MAX} bytes; "
        f"the largest entry is {largest} with {sizes[largest]} bytes"
    )
