"""The operations of a workflow, a room each; none imports another but for branch, rollback and attempt."""
