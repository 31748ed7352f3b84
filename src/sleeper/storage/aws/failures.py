"""Translates exceptions of boto3 into our errors."""

from __future__ import annotations

from typing import Any, Final

from sleeper.errors import MissingExtra, ObjectNotFound, StorageFailed, StorageReadOnly
from sleeper.model.object_stores import without_credentials

_NO_CREDENTIALS: Final = (
    "ExpiredToken",
    "ExpiredTokenException",
    "IncompleteSignature",
    "InvalidAccessKeyId",
    "InvalidClientTokenId",
    "InvalidSignatureException",
    "MissingAuthenticationToken",
    "MissingAuthenticationTokenException",
    "SignatureDoesNotMatch",
    "UnrecognizedClientException",
)
_DENIED: Final = (
    "AccessDenied",
    "AccessDeniedException",
    "AuthorizationError",
    "KmsAccessDenied",
    "NotAuthorized",
    "UnauthorizedOperation",
)
_THROTTLED: Final = (
    "KmsThrottled",
    "LimitExceededException",
    "OverLimit",
    "ProvisionedThroughputExceededException",
    "RequestLimitExceeded",
    "RequestThrottled",
    "RequestThrottledException",
    "SlowDown",
    "ThrottledException",
    "Throttling",
    "ThrottlingException",
    "TooManyRequestsException",
)
_MISSING: Final = (
    "NonExistentQueue",
    "QueueDoesNotExist",
    "ResourceNotFoundException",
    "TableNotFoundException",
)
_SHOWN_MAX: Final = 400


def vendor_errors() -> tuple[type[Exception], ...]:
    """Return the exceptions that calls of boto3 raise.

    Raises:
        MissingExtra: boto3 is not installed.
    """
    try:
        from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - an extra
        from botocore.parsers import ResponseParserError  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise MissingExtra(
            "AWS needs the package boto3, an extra of Sleeper: pip install 'sleeper-store[aws]'"
        ) from error
    return BotoCoreError, ClientError, ResponseParserError


def error_code(error: Exception) -> str | None:
    """Return the code of a refusal, without a namespace before it; None without an answer."""
    answer: Any = getattr(error, "response", None)
    if not isinstance(answer, dict):
        return None
    code = str(answer.get("Error", {}).get("Code") or "")
    return code.rpartition(".")[2].rpartition("#")[2] or None


def is_missing(error: Exception) -> bool:
    """Return whether the error says that a queue or a table does not exist."""
    return error_code(error) in _MISSING


def is_throttled(error: Exception) -> bool:
    """Return whether the service refused the call because there are too many."""
    return error_code(error) in _THROTTLED


def aws_failure(
    error: Exception, verb: str, what: str, *, writes: bool, permission: str
) -> StorageFailed:
    """Translate the failure of a call.

    Args:
        error: One of `vendor_errors`.
        verb: What was to be done, such as `send to`.
        what: On what, such as `queue 'sleeper-demo-IngestJobQ'`.
        writes: Whether the call changes something.
        permission: The permissions that the call needs, such as `sqs:SendMessage`.
    """
    what_failed = f"cannot {verb} {what}"
    code, reason = error_code(error), _reason(error)
    if code in _DENIED:
        kind = StorageReadOnly if writes else StorageFailed
        return kind(f"{what_failed}: it is denied ({reason}). Use credentials with {permission}.")
    if code in _MISSING:
        return ObjectNotFound(
            f"{what_failed}: it does not exist ({reason}). Check AWS_REGION, and that nobody has "
            "deleted it; what is missing is made anew at the next start."
        )
    if code in _THROTTLED:
        return StorageFailed(
            f"{what_failed}: there are too many calls ({reason}). The call was retried. Try again "
            "later, or with fewer processes."
        )
    if code == "RequestTimeTooSkewed" or "Signature expired" in reason:
        return StorageFailed(
            f"{what_failed}: the clock of this machine is wrong ({reason}). Set it right."
        )
    if code in _NO_CREDENTIALS or _lacks_credentials(error):
        return StorageFailed(
            f"{what_failed}: no valid credentials ({reason}). Set AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY (AWS_SESSION_TOKEN too if they are temporary), or give this "
            f"machine a role with {permission}."
        )
    if code is None:
        return StorageFailed(
            f"{what_failed}: there is no answer ({reason}). The call may or may not have been "
            "done. Check that the service can be reached and that AWS_ENDPOINT_URL and AWS_REGION "
            "are right, then try again."
        )
    return StorageFailed(f"{what_failed}: {reason}. Try again later.")


def _lacks_credentials(error: Exception) -> bool:
    from botocore import exceptions  # noqa: PLC0415 - an extra

    return isinstance(
        error,
        exceptions.NoCredentialsError
        | exceptions.PartialCredentialsError
        | exceptions.CredentialRetrievalError
        | exceptions.NoAuthTokenError
        | exceptions.TokenRetrievalError
        | exceptions.SSOError
        | exceptions.ProfileNotFound,
    )


def _reason(error: Exception) -> str:
    """Return what the service or boto3 says, on one line, without credentials."""
    code = error_code(error)
    if code is None:
        text = str(error)
    else:
        answer: Any = error
        text = f"{code}: {answer.response['Error'].get('Message', '')}"
    shown = " ".join(without_credentials(text).split())
    return shown[:_SHOWN_MAX].rstrip(" .:")
