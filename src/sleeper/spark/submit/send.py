"""Sends requests: runs a command, or calls a service of AWS."""

from __future__ import annotations

import subprocess
from typing import Any

from sleeper.errors import MissingExtra, SubmissionFailed
from sleeper.spark.submit.request import AwsRequest, CommandRequest, Request

_STDERR = 2  # the descriptor
_TRY_AGAIN = 75  # what the entry script ends with when the same job may succeed later
_RUNNING = ("STARTING", "BOOTSTRAPPING", "RUNNING", "WAITING")
_BUSY = ("Throttling", "ThrottlingException", "TooManyRequestsException", "InternalServerException")


def send(request: Request) -> str | None:
    """Send a request and wait for the answer; for a driver that runs here, for its end.

    Returns:
        The id of what a service started; None for a command.

    Raises:
        SubmissionFailed: it was refused, not answered, or the command failed.
        MissingExtra: boto3 is needed and not installed.
    """
    if isinstance(request, CommandRequest):
        _run(request)
        return None
    return _call(request)


def _run(request: CommandRequest) -> None:
    """Run a command. All that it prints goes to stderr.

    spark-submit mixes a driver's stdout and stderr, so its output is nothing for a pipe.
    """
    program = request.argv[0]
    try:
        done = subprocess.run(request.argv, check=False, stdout=_STDERR)  # noqa: S603 - asked for
    except OSError as error:
        raise SubmissionFailed(
            f"cannot run {program}: {error.strerror}; pip install 'sleeper-store[spark]' brings a "
            "spark-submit, and --spark-submit names another"
        ) from None
    if done.returncode:
        raise SubmissionFailed(
            f"{program} ended with code {done.returncode}; what it printed says why",
            retryable=done.returncode == _TRY_AGAIN,
        )


def _call(request: AwsRequest) -> str:
    try:
        import boto3  # noqa: PLC0415 - an extra, and slow to import
        from botocore.config import Config  # noqa: PLC0415 - the same
        from botocore.exceptions import (  # noqa: PLC0415 - the same
            BotoCoreError,
            ClientError,
            HTTPClientError,
        )
        from botocore.exceptions import (  # noqa: PLC0415 - the same
            ConnectionError as NotConnected,
        )
    except ImportError:
        raise MissingExtra(
            f"calling {request.service} needs boto3, which is not installed: "
            "pip install 'sleeper-store[aws]'"
        ) from None
    # EMR has no token that makes a repeated call harmless: asked once, it makes one cluster.
    config = Config(retries={"total_max_attempts": 1}) if request.service == "emr" else None
    try:
        client: Any = boto3.session.Session().client(
            request.service,
            region_name=request.region,
            endpoint_url=request.endpoint_url,
            config=config,
        )
        parameters = dict(request.parameters)
        if request.cluster_name:
            parameters["JobFlowId"] = _cluster_id(client, request.cluster_name)
        answer = getattr(client, request.operation)(**parameters)
    except ClientError as error:
        refusal = error.response["Error"]
        status = error.response["ResponseMetadata"]["HTTPStatusCode"]
        raise SubmissionFailed(
            f"{request.service} refused the job: {refusal.get('Code')}: {refusal.get('Message')}",
            retryable=refusal.get("Code") in _BUSY or status >= 500,
        ) from None
    except (BotoCoreError, ValueError) as error:  # ValueError: an endpoint that is no URL
        raise SubmissionFailed(
            f"{request.service} could not be asked: {error}",
            retryable=isinstance(error, HTTPClientError | NotConnected),
        ) from None
    started = answer[request.answer_id]
    return str(started[0] if isinstance(started, list) else started)


def _cluster_id(client: Any, name: str) -> str:
    """Return the id of the running cluster of this name."""
    pages = client.get_paginator("list_clusters").paginate(ClusterStates=[*_RUNNING])
    found = [each["Id"] for page in pages for each in page["Clusters"] if each["Name"] == name]
    if not found:
        raise SubmissionFailed(
            f"no running cluster of EMR is named {name!r} in this region; start it, or name "
            "another by --cluster-name or --cluster-id"
        )
    if len(found) > 1:
        raise SubmissionFailed(
            f"{len(found)} running clusters of EMR are named {name!r}: {', '.join(found)}. Name "
            "one by --cluster-id"
        )
    return str(found[0])
