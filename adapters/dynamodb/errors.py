"""What every failure of a call to DynamoDB means, as one total table: try again, look first, give up, or judge.

Nothing of botocore or aiohttp leaves this room: what is not a condition ends as ``StoreUnavailableError``.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any

import aiohttp
from botocore import exceptions as botocore_errors
from botocore.parsers import ResponseParserError

from engine.errors import StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from adapters.dynamodb.model.expressions import Item


class Verdict(Enum):
    """What a failed call means for its caller."""

    RETRY = "nothing was written; trying again may help"
    LOST = "no answer came: it may have been applied or not"
    CONDITION = "a condition did not hold; nothing was written"
    CANCELLED = "a transaction was cancelled; its reasons decide"
    FINAL = "trying again cannot help"


class AnswerLostError(StoreUnavailableError):
    """The store kept failing, and at least one of the tries may have been applied."""


class LogIncompleteError(StoreUnavailableError):
    """Items of a log are missing, and did not appear while it was read again and again."""


class ConditionFailedError(Exception):
    """A condition of a single write did not hold.

    Attributes:
        item: the item as it was, or None where there is none (or the call did not ask for it).
        is_ambiguous: whether an earlier try of the same call may have been applied.
    """

    def __init__(self, item: Item | None, *, is_ambiguous: bool) -> None:
        super().__init__("condition failed")
        self.item = item
        self.is_ambiguous = is_ambiguous


class TransactionRefusedError(Exception):
    """Conditions of a transaction did not hold; nothing was written by the last try.

    Attributes:
        failed: the indexes of the actions whose conditions failed.
        is_ambiguous: whether an earlier try of the same transaction may have been applied.
    """

    def __init__(self, failed: Sequence[int], *, is_ambiguous: bool) -> None:
        super().__init__(f"conditions failed at {list(failed)}")
        self.failed = tuple(failed)
        self.is_ambiguous = is_ambiguous


_RETRY, _LOST, _CONDITION, _CANCELLED, _FINAL = Verdict

CODES: dict[str, Verdict] = {
    # The data plane.
    "ConditionalCheckFailedException": _CONDITION,
    "TransactionCanceledException": _CANCELLED,
    "ProvisionedThroughputExceededException": _RETRY,
    "RequestLimitExceeded": _RETRY,
    "ThrottlingException": _RETRY,
    "LimitExceededException": _RETRY,
    "TransactionConflictException": _RETRY,
    "ReplicatedWriteConflictException": _RETRY,
    # The same token is still at work: the outcome is not known yet, and the next try with it will tell.
    "TransactionInProgressException": _LOST,
    "InternalServerError": _LOST,
    # Our token with other content: a bug of ours, never to be papered over.
    "IdempotentParameterMismatchException": _FINAL,
    "ItemCollectionSizeLimitExceededException": _FINAL,
    "DuplicateItemException": _FINAL,
    "ResourceNotFoundException": _FINAL,
    "ResourceInUseException": _FINAL,
    # What any AWS service may answer.
    "InternalFailure": _LOST,
    "InternalError": _LOST,
    "InternalServerException": _LOST,
    "ServiceUnavailable": _LOST,
    "ServiceUnavailableException": _LOST,
    "RequestTimeout": _LOST,
    "RequestTimeoutException": _LOST,
    "Throttling": _RETRY,
    "ThrottledException": _RETRY,
    "RequestThrottled": _RETRY,
    "RequestThrottledException": _RETRY,
    "TooManyRequestsException": _RETRY,
    "BandwidthLimitExceeded": _RETRY,
    "SlowDown": _RETRY,
    "PriorRequestNotComplete": _RETRY,
    "AccessDeniedException": _FINAL,
    "ExpiredTokenException": _FINAL,
    "IncompleteSignatureException": _FINAL,
    "InvalidSignatureException": _FINAL,
    "MissingAuthenticationTokenException": _FINAL,
    "NotAuthorized": _FINAL,
    "OptInRequired": _FINAL,
    "SerializationException": _FINAL,
    "UnknownOperationException": _FINAL,
    "UnrecognizedClientException": _FINAL,
    "ValidationError": _FINAL,
    "ValidationException": _FINAL,
    # The control plane, which we do not call; here so that the table is total over the service's model.
    "BackupInUseException": _FINAL,
    "BackupNotFoundException": _FINAL,
    "ContinuousBackupsUnavailableException": _FINAL,
    "ExportConflictException": _FINAL,
    "ExportNotFoundException": _FINAL,
    "GlobalTableAlreadyExistsException": _FINAL,
    "GlobalTableNotFoundException": _FINAL,
    "ImportConflictException": _FINAL,
    "ImportNotFoundException": _FINAL,
    "IndexNotFoundException": _FINAL,
    "InvalidExportTimeException": _FINAL,
    "InvalidRestoreTimeException": _FINAL,
    "PointInTimeRecoveryUnavailableException": _FINAL,
    "PolicyNotFoundException": _FINAL,
    "ReplicaAlreadyExistsException": _FINAL,
    "ReplicaNotFoundException": _FINAL,
    "TableAlreadyExistsException": _FINAL,
    "TableInUseException": _FINAL,
    "TableNotFoundException": _FINAL,
}
"""Every error code that DynamoDB documents, and those that any AWS service may answer."""

REASONS: dict[str, Verdict] = {
    "None": _RETRY,
    "TransactionConflict": _RETRY,
    "ThrottlingError": _RETRY,
    "ProvisionedThroughputExceeded": _RETRY,
    "RequestLimitExceeded": _RETRY,
    "DuplicateItem": _FINAL,
    "ConditionalCheckFailed": _CONDITION,
    "ItemCollectionSizeLimitExceeded": _FINAL,
    "ValidationError": _FINAL,
    "AccessDenied": _FINAL,
    "ResourceNotFound": _FINAL,
}
"""Every reason with which one action can cancel a transaction."""

_SERVER_ERROR, _TOO_MANY = 500, 429

# Raised before a byte of the request was sent.
_NOT_SENT = (
    botocore_errors.EndpointConnectionError,
    botocore_errors.ConnectTimeoutError,
    botocore_errors.ProxyConnectionError,
    aiohttp.ClientConnectorError,
    aiohttp.ConnectionTimeoutError,
)
# The wire failed somewhere: nobody knows whether the request arrived.
_WIRE = (
    botocore_errors.HTTPClientError,
    botocore_errors.ConnectionError,
    botocore_errors.IncompleteReadError,
    ResponseParserError,
    aiohttp.ClientError,
    TimeoutError,
    OSError,
)


def judge(error: Exception) -> Verdict:
    """What ``error`` means. Total: whatever is unknown is final."""
    if isinstance(error, botocore_errors.ClientError):
        return _judge_answer(error)
    if isinstance(error, _NOT_SENT):
        return Verdict.RETRY
    if isinstance(error, _WIRE):
        return Verdict.LOST
    return Verdict.FINAL


def _judge_answer(error: botocore_errors.ClientError) -> Verdict:
    code = str(error.response.get("Error", {}).get("Code", ""))
    status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    if code in CODES:
        return CODES[code]
    if status >= _SERVER_ERROR:
        return Verdict.LOST
    return Verdict.RETRY if status == _TOO_MANY else Verdict.FINAL


def judge_reasons(reasons: Sequence[Mapping[str, Any]]) -> Verdict:
    """What cancelled a transaction: final before a failed condition, that before what passes by itself."""
    verdicts = {REASONS.get(str(reason.get("Code", "None")), Verdict.FINAL) for reason in reasons}
    for verdict in (Verdict.FINAL, Verdict.CONDITION):
        if verdict in verdicts:
            return verdict
    return Verdict.RETRY


def failed_conditions(reasons: Sequence[Mapping[str, Any]]) -> list[int]:
    """The indexes of the actions whose conditions failed."""
    return [index for index, reason in enumerate(reasons) if reason.get("Code") == "ConditionalCheckFailed"]


def unavailable(error: Exception, operation: str) -> StoreUnavailableError:
    """The engine's error for a failure that trying again cannot help; with the id by which AWS knows the request."""
    # The errors of a connection have a response too, which is None.
    answer = error.response if isinstance(error, botocore_errors.ClientError) else {}
    known_as = answer.get("ResponseMetadata", {}).get("RequestId")
    request = f" (request {known_as})" if known_as else ""
    return StoreUnavailableError(f"DynamoDB refused {operation}: {type(error).__name__}: {error}{request}")
