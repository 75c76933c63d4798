"""What a function hands to API Gateway: an answer within what Lambda takes, or the problem that it is not."""

from __future__ import annotations

import base64
import json
import logging
from typing import Any

from handlers import bodies, problems
from handlers.problems import ANSWER_TOO_LARGE, Problem

logger = logging.getLogger(__name__)

ANSWER_BYTES_MAX = 6_291_556 - 64 * 1024
"""Bytes of an answer's body as Lambda counts it, within JSON. Source: Lambda quota, less room for the headers."""

_ESCAPED_MOST = 6
"""Bytes that one character of a text has in JSON at most."""


def fitting(answer: dict[str, Any]) -> dict[str, Any]:
    """The same answer where it fits; as base64 where it then fits; else the problem ``answer-too-large``.

    Lambda takes an answer as JSON, in which every quote of a body that is JSON itself has a backslash before it: a
    body of half of the limit may be too large as text.

    Args:
        answer: of an HTTP API (payload version 2.0), as Mangum makes it.
    """
    body: str = answer["body"]
    if len(body) <= ANSWER_BYTES_MAX // _ESCAPED_MOST:
        return answer
    if answer["isBase64Encoded"]:
        size = len(body)
    else:
        size = len(json.dumps(body, ensure_ascii=False).encode())
        if size > ANSWER_BYTES_MAX:
            body = base64.b64encode(body.encode()).decode()
            size = len(body)
            answer = {**answer, "body": body, "isBase64Encoded": True}
    return answer if size <= ANSWER_BYTES_MAX else _refused(answer, size)


def _refused(answer: dict[str, Any], size: int) -> dict[str, Any]:
    logger.error("answer too large", extra={"bytes": size})
    detail = (
        f"The answer would have {size} bytes; a function gives {ANSWER_BYTES_MAX} at most. What was asked for is done. "
        f"As {bodies.CBOR}, which the header Accept asks for, it may fit."
    )
    problem = Problem(ANSWER_TOO_LARGE, detail)
    kept = {name: value for name, value in answer["headers"].items() if name.lower() != "content-length"}
    return {
        "statusCode": problem.kind.status,
        "headers": kept | bodies.headers(problems.MEDIA_TYPE),
        "body": problem.document().decode(),
        "isBase64Encoded": False,
    }
