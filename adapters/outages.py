"""What fails in the fast path (SQS, EventBridge Scheduler), told as the engine's own error.

Losing such a call costs a delay and never a workflow: the index ``due`` has the fact, and the sweeper finds it.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import aiohttp
from botocore.exceptions import BotoCoreError, ClientError

from engine.errors import StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def outages_of(service: str) -> Iterator[None]:
    """Turn what a client of ``service`` raises into ``StoreUnavailableError``."""
    try:
        yield
    except (BotoCoreError, ClientError, aiohttp.ClientError, TimeoutError, OSError) as error:
        raise StoreUnavailableError(f"{service} failed: {type(error).__name__}: {error}") from error
