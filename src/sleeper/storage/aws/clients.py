"""Clients of AWS services: one for each service in a process, for all of its threads.

boto3 is an extra of this package, so it is imported at first use.
"""

from __future__ import annotations

import os
from functools import partial
from threading import Lock
from typing import Any, Final

from sleeper.errors import MissingExtra, StorageFailed

_CONNECT_S: Final = 5
_SILENCE_S: Final = 30  # longer than the 20 seconds for which a receive waits
_ATTEMPTS_MAX: Final = 5
_CONNECTIONS_MAX: Final = 32
_REGION: Final = "us-east-1"

_lock = Lock()
_clients: dict[tuple[int, str, str | None, str | None], Any] = {}
"""By process id, service, region and endpoint: a forked process must not use its parent's."""


def aws_client(service: str, region: str | None = None, endpoint: str | None = None) -> Any:
    """Return the client of a service, the same in all threads of this process.

    Credentials, and what is not given here, are read by boto3 where Amazon's own tools read them:
    variables of the environment, its files, the machine's role. A call is tried up to five times.

    Args:
        service: `sqs`, `dynamodb`, `s3` or `sts`.
        region: The region; None for the one that boto3 finds, and `us-east-1` where it finds none.
        endpoint: URL of a server; None for AWS_ENDPOINT_URL_SQS and the like, or
            AWS_ENDPOINT_URL, and Amazon's own without them.

    Raises:
        MissingExtra: boto3 is not installed.
        StorageFailed: the settings in the environment cannot be used.
    """
    key = (os.getpid(), service, region, endpoint)
    with _lock:
        if key not in _clients:
            _clients[key] = _opened(service, region, endpoint)
        return _clients[key]


def _opened(service: str, region: str | None, endpoint: str | None) -> Any:
    try:
        import boto3  # noqa: PLC0415 - an extra, and slow to import
        from botocore.config import Config  # noqa: PLC0415 - the same
        from botocore.exceptions import BotoCoreError  # noqa: PLC0415 - the same
    except ImportError as error:
        raise MissingExtra(
            f"{service} needs the package boto3, an extra of Sleeper: "
            "pip install 'sleeper-store[aws]'"
        ) from error
    config = Config(
        connect_timeout=_CONNECT_S,
        read_timeout=_SILENCE_S,
        retries={"mode": "standard", "total_max_attempts": _ATTEMPTS_MAX},
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
