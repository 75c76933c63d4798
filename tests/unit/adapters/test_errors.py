from __future__ import annotations

import aiohttp
import botocore.exceptions
import botocore.session
import pytest
from botocore.exceptions import ClientError
from botocore.parsers import ResponseParserError

from adapters.dynamodb.errors import CODES, REASONS, Verdict, failed_conditions, judge, judge_reasons, unavailable


def answered(code: str, status: int = 400) -> ClientError:
    return ClientError(
        {"Error": {"Code": code, "Message": ""}, "ResponseMetadata": {"HTTPStatusCode": status}},
        "UpdateItem",
    )


def model_codes() -> list[str]:
    model = botocore.session.get_session().get_service_model("dynamodb")
    return sorted(str(shape.metadata.get("error", {}).get("code", shape.name)) for shape in model.error_shapes)


def test_the_table_is_total_over_the_service_model() -> None:
    assert [code for code in model_codes() if code not in CODES] == []
    assert len(model_codes()) > 30


def test_the_reasons_are_total_over_what_the_service_model_documents() -> None:
    model = botocore.session.get_session().get_service_model("dynamodb")
    prose = model.shape_for("TransactionCanceledException").documentation
    documented = ["None", "ConditionalCheckFailed", "ItemCollectionSizeLimitExceeded", "TransactionConflict"]
    documented += ["ProvisionedThroughputExceeded", "ThrottlingError", "ValidationError"]
    assert [code for code in documented if code not in prose] == []
    assert [code for code in documented if code not in REASONS] == []


@pytest.mark.parametrize("code", [code for code in model_codes() if "Transaction" in code or "Throughput" in code])
def test_what_passes_by_itself_is_not_final(code: str) -> None:
    assert judge(answered(code)) is not Verdict.FINAL


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (answered("Unheard"), Verdict.FINAL),
        (answered("Unheard", 503), Verdict.LOST),
        (answered("Unheard", 429), Verdict.RETRY),
        (answered("ValidationException"), Verdict.FINAL),
        (answered("AccessDeniedException"), Verdict.FINAL),
        (answered("TransactionInProgressException"), Verdict.LOST),
        (answered("ConditionalCheckFailedException"), Verdict.CONDITION),
        (botocore.exceptions.EndpointConnectionError(endpoint_url="x"), Verdict.RETRY),
        (botocore.exceptions.ConnectTimeoutError(endpoint_url="x"), Verdict.RETRY),
        (botocore.exceptions.ReadTimeoutError(endpoint_url="x"), Verdict.LOST),
        (botocore.exceptions.ConnectionClosedError(endpoint_url="x"), Verdict.LOST),
        (botocore.exceptions.HTTPClientError(error="x"), Verdict.LOST),
        (botocore.exceptions.NoCredentialsError(), Verdict.FINAL),
        (botocore.exceptions.ParamValidationError(report="x"), Verdict.FINAL),
        (ResponseParserError("half an answer"), Verdict.LOST),
        (aiohttp.ServerDisconnectedError(), Verdict.LOST),
        (aiohttp.ClientPayloadError(), Verdict.LOST),
        (TimeoutError(), Verdict.LOST),
        (ConnectionResetError(), Verdict.LOST),
        (KeyError("a bug"), Verdict.FINAL),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else value.name,
)
def test_a_verdict_on_everything(error: Exception, verdict: Verdict) -> None:
    assert judge(error) is verdict


@pytest.mark.parametrize(
    ("codes", "verdict"),
    [
        (["None", "TransactionConflict"], Verdict.RETRY),
        (["ThrottlingError", "None"], Verdict.RETRY),
        (["ProvisionedThroughputExceeded"], Verdict.RETRY),
        (["TransactionConflict", "ConditionalCheckFailed"], Verdict.CONDITION),
        (["ConditionalCheckFailed", "ValidationError"], Verdict.FINAL),
        (["Unheard"], Verdict.FINAL),
        ([], Verdict.RETRY),
    ],
)
def test_the_reasons_of_a_cancelled_transaction_decide(codes: list[str], verdict: Verdict) -> None:
    assert judge_reasons([{"Code": code} for code in codes]) is verdict


def test_which_conditions_failed() -> None:
    reasons = [{"Code": "None"}, {"Code": "ConditionalCheckFailed"}, {}]
    assert failed_conditions(reasons) == [1]


def test_what_is_given_up_says_by_which_id_aws_knows_the_request() -> None:
    refused = answered("AccessDeniedException")
    assert "(request" not in str(unavailable(refused, "put_item"))
    refused.response["ResponseMetadata"]["RequestId"] = "4KBNVRGD25RG1KEO9UT4V3FQDJVV"
    assert str(unavailable(refused, "put_item")).endswith("(request 4KBNVRGD25RG1KEO9UT4V3FQDJVV)")
    for silent in (TimeoutError(), botocore.exceptions.ReadTimeoutError(endpoint_url="x")):
        assert "(request" not in str(unavailable(silent, "put_item"))
