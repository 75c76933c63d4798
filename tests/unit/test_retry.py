"""When a failed step is tried again: arithmetic."""

from __future__ import annotations

import pytest

from engine import retry
from engine.ops.attempt import StepPolicy, jitter
from engine.retry import RetryPolicy


def test_the_total_of_attempts_is_one_more_than_the_retries() -> None:
    policy = RetryPolicy(max_retries=3)
    assert [retry.is_exhausted(policy, attempts) for attempts in range(6)] == [False] * 4 + [True] * 2
    assert retry.is_exhausted(RetryPolicy(max_retries=0), 1)


@pytest.mark.parametrize(
    ("attempts", "expected"), [(1, 200), (2, 400), (3, 800), (8, 25_600), (9, 30_000), (5000, 30_000)]
)
def test_delays_double_up_to_a_maximum(attempts: int, expected: int) -> None:
    assert retry.backoff_ms(RetryPolicy(), attempts) == expected


def test_a_base_of_zero_waits_not_at_all() -> None:
    assert retry.backoff_ms(RetryPolicy(backoff_base_s=0), 7) == 0


def test_jitter_is_off_unless_asked_for_and_the_same_in_every_process() -> None:
    entry_id = "018f0000-0000-7000-8000-0000000000ab"
    assert jitter(StepPolicy(), entry_id, 1) == 1.0
    policy = StepPolicy(retry=RetryPolicy(has_jitter=True))
    factors = [jitter(policy, entry_id, attempts) for attempts in range(20)]
    assert factors == [jitter(policy, entry_id, attempts) for attempts in range(20)]
    assert all(0.5 <= factor <= 1 for factor in factors)
    assert len(set(factors)) > 10
    assert retry.backoff_ms(RetryPolicy(has_jitter=True), 1, 0.5) == 100
