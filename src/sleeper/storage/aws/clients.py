"""Clients of AWS services: one for each service in a process, for all of its threads.

boto3 is an extra of this package, so it is imported at first use.
"""

from __future__ import annotations

import os
import re
from functools import partial
from hashlib import sha256
from threading import Lock
from typing import Any, Final

from sleeper.errors import (
    MissingExtra,
    ObjectNotFound,
    PropertiesInvalid,
    StorageFailed,
    StorageReadOnly,
)
from sleeper.model.object_stores import without_credentials

_CONNECT_S: Final = 5
_SILENCE_S: Final = 30  # longer than the 20 seconds for which a receive waits
_ATTEMPTS_MAX: Final = 5
_QUICK_S: Final = 2
_CONNECTIONS_MAX: Final = 32
_REGION: Final = "us-east-1"

_lock = Lock()
_clients: dict[tuple[int, str, str | None, str | None, bool], Any] = {}
"""By process id and all that is asked for: a forked process must not use its parent's."""


def aws_client(
    service: str, region: str | None = None, endpoint: str | None = None, *, is_quick: bool = False
) -> Any:
    """Return the client of a service, the same in all threads of this process.

    Credentials, and what is not given here, are read by boto3 where Amazon's own tools read them:
    variables of the environment, its files, the machine's role. A call is tried up to five times.

    Args:
        service: `sqs`, `dynamodb`, `s3` or `sts`.
        region: The region; None for the one that boto3 finds, and `us-east-1` where it finds none.
        endpoint: URL of a server; None for AWS_ENDPOINT_URL_SQS and the like, or
            AWS_ENDPOINT_URL, and Amazon's own without them.
        is_quick: Whether a call that gets no answer fails after a few seconds, at its first try.

    Raises:
        MissingExtra: boto3 is not installed.
        StorageFailed: the settings in the environment cannot be used.
    """
    key = (os.getpid(), service, region, endpoint, is_quick)
    with _lock:
        if key not in _clients:
            _clients[key] = _opened(service, region, endpoint, is_quick=is_quick)
        return _clients[key]


def _opened(service: str, region: str | None, endpoint: str | None, *, is_quick: bool) -> Any:
    try:
        import boto3  # noqa: PLC0415 - an extra, and slow to import
        from botocore.config import Config  # noqa: PLC0415 - the same
        from botocore.exceptions import BotoCoreError  # noqa: PLC0415 - the same
    except ImportError as error:
        raise MissingExtra(
            "an instance in AWS, or a queue there, needs the package boto3, an extra of Sleeper: "
            "pip install 'sleeper-store[aws]'"
        ) from error
    config = Config(
        connect_timeout=_QUICK_S if is_quick else _CONNECT_S,
        read_timeout=_QUICK_S if is_quick else _SILENCE_S,
        retries={"mode": "standard", "total_max_attempts": 1 if is_quick else _ATTEMPTS_MAX},
        max_pool_connections=_CONNECTIONS_MAX,
        tcp_keepalive=True,
        # Other servers have no host name for each bucket.
        s3={"addressing_style": "auto" if endpoint is None else "path"},
    )
    try:
        session = boto3.session.Session()
        opened = partial(session.client, service, endpoint_url=endpoint, config=config)
        return opened(region_name=region or session.region_name or _REGION)
    except (BotoCoreError, ValueError) as error:  # ValueError: an endpoint that is no URL
        raise StorageFailed(
            f"cannot use {service}: {error}. Correct AWS_ENDPOINT_URL, AWS_REGION and AWS_PROFILE "
            "in the environment."
        ) from None


# ---------------------------------------------------------------- failures
#
# Translates exceptions of boto3 into our errors.

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
        from boto3.exceptions import S3UploadFailedError  # noqa: PLC0415 - an extra
        from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - an extra
        from botocore.parsers import ResponseParserError  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise MissingExtra(
            "AWS needs the package boto3, an extra of Sleeper: pip install 'sleeper-store[aws]'"
        ) from error
    return BotoCoreError, ClientError, ResponseParserError, S3UploadFailedError


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


# ---------------------------------------------------------------- names
#
# Names of an instance's resources in AWS.

OWNER_TAG: Final = "sleeper.instance.url"
"""The tag of a resource that names the instance that it belongs to."""

_TAG_VALUE: Final = re.compile("[A-Za-z0-9 _.:/=+@-]{1,256}")


def owner_tag_value(url: str) -> str:
    """Return the value of that tag: the instance's URL, or a hash if tags cannot have it."""
    return url if _TAG_VALUE.fullmatch(url) else sha256(url.encode()).hexdigest()


def resource_prefix(instance_id: str) -> str:
    """Return what the names of an instance's resources in AWS begin with.

    >>> resource_prefix("Demo.2")
    'sleeper-demo-2-'

    Raises:
        PropertiesInvalid: the id has other characters than AWS allows in names.
    """
    cleaned = instance_id.lower().replace(".", "-")
    if not re.fullmatch("[a-z0-9_-]+", cleaned):
        raise PropertiesInvalid(
            {
                "sleeper.id": f"sleeper.id is {instance_id!r}, but names in AWS have only letters "
                "from a to z, digits, - and _: this instance cannot have queues or tables there."
            }
        )
    return f"sleeper-{cleaned}-"
