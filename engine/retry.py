"""When a failed step is tried again: arithmetic only."""

from __future__ import annotations

from msgspec import Struct

from engine import limits


class RetryPolicy(Struct, frozen=True, kw_only=True):
    """How often and how fast a step is tried again; times in seconds."""

    max_retries: int = limits.MAX_RETRIES
    backoff_base_s: float = limits.RETRY_BACKOFF_BASE_S
    backoff_max_s: float = limits.RETRY_BACKOFF_MAX_S
    has_jitter: bool = False
    retry_on_timeout: bool = False


def is_exhausted(policy: RetryPolicy, attempts: int) -> bool:
    """Whether ``attempts`` started attempts are all that the policy allows."""
    return attempts > policy.max_retries


def backoff_ms(policy: RetryPolicy, attempts: int, jitter: float = 1.0) -> int:
    """Milliseconds between attempt number ``attempts`` and the next: min(max, base * 2**attempts), times ``jitter``."""
    # 2**64 times any base is beyond any maximum, and a float of a larger power would overflow.
    delay_s = min(policy.backoff_max_s, policy.backoff_base_s * 2.0 ** min(attempts, 64))
    return round(delay_s * 1000 * (jitter if policy.has_jitter else 1.0))
