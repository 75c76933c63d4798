"""What may be asked of a step, as authors write it, and the policy that it makes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict

from engine import limits
from engine.durations import to_seconds
from engine.ops.attempt import StepPolicy
from engine.retry import RetryPolicy

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from engine.durations import Duration


class StepOptions(TypedDict, total=False):
    """The options of a step; ``Context.step`` says what each means and its default."""

    max_retries: int
    retry_backoff_base: Duration
    retry_backoff_max: Duration
    retry_jitter: bool
    timeout: Duration | None
    retry_on_timeout: bool
    ephemeral: bool
    rollback: Callable[..., Any] | None
    returns: Any


_DEFAULT = StepPolicy()


def policy_of(name: str, options: Mapping[str, Any]) -> StepPolicy:
    """The policy of the step ``name``, which was given ``options``.

    Raises:
        TypeError: one of them is no option of a step, or is of the wrong type.
        ValueError: a duration is none, or there are fewer than no retries.
    """
    if not options:
        return _DEFAULT
    known = StepOptions.__annotations__
    if unknown := options.keys() - known.keys():
        raise TypeError(
            f"step {name!r}: unknown option {', '.join(sorted(unknown))}; known: {', '.join(sorted(known))}"
        )
    max_retries = options.get("max_retries", limits.MAX_RETRIES)
    if type(max_retries) is not int:
        raise TypeError(f"step {name!r}: max_retries must be an integer, not {max_retries!r}")
    if max_retries < 0:
        raise ValueError(f"step {name!r}: max_retries must be 0 or more, not {max_retries}")
    timeout = options.get("timeout", limits.STEP_TIMEOUT_S)
    return StepPolicy(
        retry=RetryPolicy(
            max_retries=max_retries,
            backoff_base_s=to_seconds(options.get("retry_backoff_base", limits.RETRY_BACKOFF_BASE_S)),
            backoff_max_s=to_seconds(options.get("retry_backoff_max", limits.RETRY_BACKOFF_MAX_S)),
            has_jitter=options.get("retry_jitter", False),
            retry_on_timeout=options.get("retry_on_timeout", False),
        ),
        timeout_s=0.0 if timeout is None else to_seconds(timeout),
        is_ephemeral=options.get("ephemeral", False),
        rollback=options.get("rollback"),
        returns=options.get("returns"),
    )
