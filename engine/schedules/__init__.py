"""Schedules: when their occurrences are, and the workflow that starts a run for each."""
