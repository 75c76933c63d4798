"""Every limit of DynamoDB and of the protocols on it, each with its source beside it."""

from __future__ import annotations

ITEM_BYTES_MAX = 400 * 1024
"""Bytes of one item, attribute names (UTF-8) included. Source: DynamoDB quota."""

TRANSACTION_ACTIONS_MAX = 100
"""Actions in one TransactWriteItems. Source: DynamoDB quota."""

TRANSACTION_BYTES_MAX = 4 * 1024 * 1024
"""Bytes of all items of one transaction. Source: DynamoDB quota."""

BATCH_GET_KEYS_MAX = 100
"""Keys in one BatchGetItem. Source: DynamoDB quota."""

BATCH_WRITE_ITEMS_MAX = 25
"""Puts and deletes in one BatchWriteItem. Source: DynamoDB quota."""

SORT_KEY_BYTES_MAX = 1024
"""UTF-8 bytes of a sort key, also of an index. Source: DynamoDB quota."""

KEY_INSTANT_MS_MAX = 10**15 - 1
"""Latest instant that is part of a key, in milliseconds since the epoch. Design choice: fifteen digits, far beyond any
clock's."""

LOG_PART_BYTES = 300_000
"""Payload of one LOG or SNAP item. Design choice: under an item's 400 KB even where base64 is what is counted."""

TRANSACTION_RESERVE_BYTES = 64 * 1024
"""Room kept in a transaction for HEAD, INBOX and keys. Design choice."""

PLAN_BYTES_MAX = TRANSACTION_BYTES_MAX - 16 * 1024
"""Bytes of all that a commit writes, HEAD in full. Design choice: a transaction, less what INBOX has beside."""

VALUE_BYTES_MAX = 3_000_000
"""Largest user value, in bytes of CBOR. Design choice: three quarters of a transaction, so that the entry around it,
and what else is dirty, still fit."""

MESSAGE_BYTES_MAX = ITEM_BYTES_MAX - 4096
"""Largest message body or reply, in bytes of CBOR: one item less its keys, its id and its name."""

WAITING_BYTES_MAX = ITEM_BYTES_MAX - 32 * 1024
"""Bytes of all names of messages that a workflow waits for at once: they are in HEAD, with at most its tags, the steps
that are tried again and some dozen short attributes."""

INBOX_BYTES_MAX = 32 * 1024 * 1024
"""Bytes of message bodies that a look at an inbox keeps in memory; of what is behind, the body is read when the message
is wanted. Design choice: ten workflows at once then stay under a third of the template's memory."""

UNREAD_PAGE_BYTES = 512 * 1024
"""Bytes of message bodies beyond which a page of an inbox ends. Design choice: as JSON a byte takes six at the worst,
and Lambda answers with 6 MB at most."""

COMMIT_BYTES_MAX = TRANSACTION_BYTES_MAX - 2 * TRANSACTION_RESERVE_BYTES
"""Bytes of keys and values that the engine puts into one commit: a transaction, less what the driver adds to it."""

COMMIT_MESSAGES_MAX = TRANSACTION_ACTIONS_MAX - 3 - -(-TRANSACTION_BYTES_MAX // LOG_PART_BYTES)
"""Messages that one commit may move: the actions of a transaction less HEAD, INBOX, WAITS and the most parts of a log.
"""

ID_BYTES_MAX = 255
"""UTF-8 bytes of a workflow id or a message id. Design choice, well under DynamoDB's 1,024 for a sort key."""

RAY_ID_CHARACTERS_MAX = 128
"""Characters of a ray id. Design choice: longer than any tracing system's, and little beside the rest of HEAD."""

REQUEST_ID_CHARACTERS_MAX = 128
"""Characters of a request id. Design choice: AWS's own, of API Gateway, Lambda and EventBridge, have 36 at most."""

TYPE_BYTES_MAX = 255
"""UTF-8 bytes of a workflow type. Design choice: a type is part of index keys."""

TAGS_BYTES_MAX = 8 * 1024
"""Bytes of all tags, keys and values: they are in HEAD, which every commit pays for by the kilobyte. Design choice."""

TAGS_MAX = 16
"""Tags of one workflow. Design choice: each is an item of the transactions that start and end it, which hold a hundred
actions."""

TAG_VALUE_BYTES_MAX = 1024
"""Bytes of a tag's value up to which it is part of a key as it is, and beyond which its hash is. Design choice: with
type and name it then stays below DynamoDB's 2,048 bytes for a partition key."""

FIND_PAGE_ITEMS = 500
"""Items of a tag that are read at a time where several tags are asked for. Design choice: some ten read units, so that
a match that stands near the front costs little."""

DUE_SHARDS = 16
"""Partitions of the index ``due``: each takes about 250 wakes a second, and a sweep reads each once. Design choice."""

LIST_SHARDS = 4
"""Partitions of each type in the index ``list``. Design choice: about a thousand starts a second of one type."""

START_TRIES_MAX = 5
"""How often a start is tried whose obstacles go away as soon as they are looked at. Design choice."""

REPLANS_MAX = 5
"""How often a commit is planned anew whose surroundings changed since it was planned. Design choice."""

RETRYING_TOLD_MAX = 3
"""Steps that are tried again of which HEAD tells, those that are the first to be. Design choice: HEAD is rewritten with
every commit, and history has them all."""

RETRYING_ERROR_CHARACTERS = 120
"""Characters of such a step's error, and of its location, that HEAD keeps. Design choice: history has them whole."""

NOTES_AT_ONCE = 16
"""Workflows with which a waiter is noted at a time. Design choice."""

TELL_AT_ONCE = 16
"""Waiters that are told of an end, or looked at, at a time. Design choice."""

LEASE_MS = 60_000
"""Default lease. Source: the design."""

PASSED_UNREAD_MIN = 100
"""Messages left unread from which on a wake before a workflow's time looks at the new ones first, before it loads the
workflow. Design choice: the look is one more round trip, and saves some tens of read units from here on."""

WORKER_POLL_INTERVAL_S = 1.0
"""Sleeps shorter than this, in seconds, are waited for in memory. Design choice: a wake costs more than waiting."""

OUTSTANDING_LOOK_MS = 30_000
"""How long after a yield an inbox with an outstanding ticket is looked at again. Source: the design."""

SENDER_LATE_MS = 5_000
"""Milliseconds for which a sender with a ticket and no message is looked for again at once, not by the sweep alone.
Design choice: a write that takes longer is being repeated, and each look costs a claim."""

OUTSTANDING_MAX_MS = 60_000
"""How long a ticket without its message is believed in, since it was first missed. Source: the design."""

ALARM_EARLY_MS = 1_000
"""How early an alarm may come. Source: SQS delays messages by whole seconds, and ours are rounded down."""

SUCCESSION_MS = 5_000
"""Milliseconds for which a start deletes what is left of a workflow under its id, before it is refused. Design choice:
some thousand items, and a caller waits."""

PURGE_LOOK_MS = 60_000
"""How long a purge is left to whoever began it, before the sweeper has somebody go on. Design choice."""

SEEN_LOOK_MS = 3_600_000
"""How long one that outlived its retention is left to whoever was told of its end and has not looked. Design choice."""

SEND_SLOW_MS = 30_000
"""A sender that took longer than this between ticket and message asks to be looked at anew. Design choice: half of
``OUTSTANDING_MAX_MS``."""

DEDUP_TTL_S = 86_400
"""How long a caller's message id is remembered, in seconds. Source: the design."""

TAIL_TTL_S = 90
"""How long what was published can be read, in seconds. Source: the design; its items' ``ttl`` only tidies up."""

TAIL_OVERLAP_MS = 15_000
"""How far a reader of what was published goes back at each look, for commits that landed late. Design choice: longer
than a commit takes that is throttled again and again, and clocks differ by less."""

TAIL_SEEN_MAX = 400
"""Messages that a reader's cursor knows it was given. Design choice: 6 KB of an address, of which HTTP APIs take 10."""

TAIL_SHARDS = 4
"""Partitions of what is published under one name, by topic: a partition takes some 500 a second. Design choice."""

TAIL_PAGE_ITEMS = 100
"""Items that one Query of what was published reads. Design choice."""

TAIL_ANSWER_BYTES_MAX = 512 * 1024
"""Bytes of bodies in one answer, but for one that is larger. Design choice: as JSON they may be six times as long, and
a function answers with 6 MB at most."""

TOKEN_BYTES = 18
"""Bytes of hash in a ClientRequestToken: 36 hexadecimal digits. Source: DynamoDB quota (36 characters)."""

COMPACT_DEAD_BYTES_MIN = 32 * 1024
"""Dead bytes below which a log is never folded: reading them costs eight read units a load. Design choice."""

ATTEMPTS_MAX = 10
"""Tries of one request to DynamoDB. Design choice: some six seconds with the delays below."""

RETRY_BASE_S = 0.025
RETRY_MAX_S = 1.5
"""Delay before try n+1 is a random part of min(max, base * 2**n) seconds. Design choice."""

SCHEDULE_SKEW_MS = 10_000
"""How far the clocks of a schedule and of a worker may differ. Design choice; a wrong guess costs one sweep."""
