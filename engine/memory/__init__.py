"""Everything a workflow needs, in memory: stores, inboxes, a clock that jumps, and a world of several workflows."""
