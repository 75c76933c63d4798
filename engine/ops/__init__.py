"""The operations of a workflow, a room each; what several need is in attempt, branch, failures, rollback, sending."""
