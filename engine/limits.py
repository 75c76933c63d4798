"""Every limit of the engine, each with its source beside it."""

from __future__ import annotations

FORMAT_VERSION = 1
"""Version prefix of entries and metadata (u16, little-endian). Source: the stored format, v1."""

BATCH_ENTRIES_MAX = 128
"""Pairs in one batch of a driver that is not atomic. Source: the reference engine's store."""

BATCH_BYTES_MAX = 976 * 1024
"""Bytes (keys and values) in one such batch. Source: the reference engine's store."""

DELETES_CONCURRENT_MAX = 64
"""Delete operations in flight at once on a driver that is not atomic. Source: the reference engine."""

MAX_RETRIES = 3
"""Further attempts of a step after the first. Source: the reference engine."""

ACTIVITY_MAX_RETRIES = 5
"""Further attempts of an activity after the first. Design choice: what activities call may be away for a while."""

RETRY_BACKOFF_BASE_S = 0.1
RETRY_BACKOFF_MAX_S = 30.0
"""Delay before attempt n+1 is min(max, base * 2**n) seconds. Source: the reference engine."""

STEP_TIMEOUT_S = 30.0
"""Seconds a step may run. Source: the reference engine."""

HISTORY_PRUNE_INTERVAL = 20
"""Loop iterations between pruning flushes. Source: the reference engine."""

SIGNAL_SEARCHES_MAX = 5
"""How often a signal by type looks again because whom it found has ended meanwhile. Design choice."""

MAP_CONCURRENCY = 10
"""Items of a map that are worked on at once. Design choice."""

RESULT_FLUSH_DELAY_S = 0.005
"""Seconds after which a step's result is committed when the workflow neither goes on nor returns. Design choice."""

RESULT_FLUSH_DELAY_MAX_S = 0.25
"""Seconds after which it is committed although the engine asks the driver for what the next commit is to carry. Design
choice: a call that takes longer is being repeated, and may go on for long."""

RETENTION_S = 7 * 86400
"""Seconds for which a workflow that is to be pruned is kept after its end. Source: the reference engine."""

DEATHS_MAX = 5
"""Deaths without a commit and without a step in flight after which a workflow has stalled. Design choice."""

UNWIND_OPERATIONS_MAX = 16
"""Operations one scope may start after a yield began before it counts as swallowed: ``finally`` blocks nest, but not
without end. The same holds for operations after any other signal; past it the code is left. Design choice."""

ABANDONED_MAX = 64
"""Pieces of workflow code kept that swallowed every signal and were left. Design choice: each is a bug, and memory."""

ERROR_TEXT_CHARACTERS_MAX = 16 * 1024
"""Characters that history keeps of an error's text. Design choice: an error is told, its payload is not kept."""

ERROR_STACK_CHARACTERS_MAX = 32 * 1024
"""Characters that history keeps of an error's stack. Design choice."""

SLEEP_MAX_S = 100 * 366 * 86400
"""Longest sleep, in seconds (a hundred years): a longer one is a mistake of units. Design choice."""

U32_MAX = 2**32 - 1
U64_MAX = 2**64 - 1
"""Ranges of the stored integers. Source: the stored format."""

VERSION_MAX = 1_000_000
"""Highest version that a call may name. Design choice: those of nested scopes add up, and are stored in 32 bits."""

WORKFLOW_ID_BYTES_MAX = 255
"""UTF-8 bytes of a workflow's id, and of its type. Design choice: a store's keys hold both."""

NAME_BYTES_MAX = 1024
"""UTF-8 bytes of an operation's or message's name. Design choice: a name is a key part, not a payload."""

PUBLICATION_NAME_CHARACTERS_MAX = 128
"""Characters of the name of what is published. Source: EventBridge, where it is an event's ``DetailType``."""

VALUE_DEPTH_MAX = 200
"""Nesting of a user value. Design choice, well under Python's recursion limit."""

TIMER_MAX_S = 86400.0
"""Longest single timer, in seconds; a longer wait looks again on the way. Source: event loops refuse far timers."""

LOOKOUT_WORKFLOWS_MAX = 100
"""Awaited workflows that one look asks after while other branches work, in turn. Design choice: each may be a read, a
look comes every second, and who works shares the processor."""
