"""Clients of AWS, the real one and the local one, for tools that work at deploy time."""

from __future__ import annotations

from typing import Any

import botocore.session
from botocore.config import Config

LOCAL_REGION = "us-east-1"
LOCAL_ACCESS_KEY = "test"
LOCAL_SECRET_KEY = "test"  # noqa: S105 - the local AWS takes any
"""Where everything of the local AWS is, and who its caller is."""


def client(service: str, *, region: str | None = None) -> Any:
    """A botocore client of a service, with the caller's own credentials; their region where none is given."""
    return botocore.session.Session().create_client(service, region_name=region)


def local_client(service: str, endpoint: str) -> Any:
    """A botocore client of a service of the local AWS at ``endpoint``."""
    return botocore.session.Session().create_client(
        service,
        region_name=LOCAL_REGION,
        endpoint_url=endpoint,
        aws_access_key_id=LOCAL_ACCESS_KEY,
        aws_secret_access_key=LOCAL_SECRET_KEY,
        # A tool that waits for an answer wants the first error, not the last.
        config=Config(retries={"total_max_attempts": 1}, s3={"addressing_style": "path"}, read_timeout=120),
    )
