"""Answers within what Lambda takes from a function."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from handlers import problems
from handlers.envelope import ANSWER_BYTES_MAX, fitting

LAMBDA_TAKES = 6_291_556
"""Bytes of a function's answer, written as JSON. Source: what Lambda says in its error."""


def answered(body: str, *, is_base64: bool = False) -> dict[str, Any]:
    headers = {"content-type": "application/json", "content-length": str(len(body)), "x-request-id": "r"}
    return {"statusCode": 200, "headers": headers, "body": body, "isBase64Encoded": is_base64}


@pytest.mark.parametrize("body", ["", "{}", '"' * (ANSWER_BYTES_MAX // 6), "x" * (ANSWER_BYTES_MAX - 2)])
def test_what_fits_goes_out_as_it_is(body: str) -> None:
    answer = answered(body)
    assert fitting(answer) is answer


@pytest.mark.parametrize(
    "body", ['"' * 4_000_000, "\\" * 4_600_000, "ä" * 2_300_000 + "\n" * 30_000, '"\\u00e4"' * 580_000]
)
def test_what_is_too_large_as_text_within_json_goes_out_as_base64(body: str) -> None:
    answer = fitting(answered(body))
    # As the runtime of the template writes it.
    assert len(json.dumps(answer, ensure_ascii=False).encode()) <= LAMBDA_TAKES
    told = base64.b64decode(answer["body"]).decode() if answer["isBase64Encoded"] else answer["body"]
    assert (answer["statusCode"], told) == (200, body)


@pytest.mark.parametrize("is_base64", [True, False])
def test_what_does_not_fit_at_all_is_told_as_a_problem(is_base64: bool) -> None:  # noqa: FBT001 - a parameter
    answer = fitting(answered("x" * 7_000_000, is_base64=is_base64))
    told = json.loads(answer["body"])
    assert answer["statusCode"] == told["status"] == 500
    assert told["type"].endswith(problems.ANSWER_TOO_LARGE.name)
    assert answer["headers"]["content-type"] == problems.MEDIA_TYPE
    assert answer["headers"]["x-request-id"] == "r"
    assert "content-length" not in answer["headers"]
