"""Calls services of AWS: sends a request, and asks whether a running cluster has room."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from sleeper.errors import MissingExtra, SubmissionFailed
from sleeper.spark.submit.request import AwsRequest

_log = logging.getLogger(__name__)

_RUNNING = ("STARTING", "BOOTSTRAPPING", "RUNNING", "WAITING")
_UNDER_WAY = ("PENDING", "RUNNING", "CANCEL_PENDING")
_GOING_ON = ("RUNNING", "PENDING_REDRIVE")
_BUSY = (
    "Throttling",
    "ThrottlingException",
    "TooManyRequestsException",
    "InternalServerException",
    "ExecutionLimitExceeded",
)
_NAMES_MAX: Final = 100  # of the executions of one job
_QUOTAS: Final = "service-quotas"
_QUOTA_S: Final = 5
_FULL: Final = "Maximum number of active steps"


def call_service(request: AwsRequest) -> str:
    """Send a request and return the id of what it started.

    Raises:
        SubmissionFailed: it was refused, or not answered.
        MissingExtra: boto3 is not installed.
    """
    with _client(request.service, request.region, request.endpoint_url) as client:
        parameters = dict(request.parameters)
        if request.cluster_name:
            parameters["JobFlowId"] = _cluster_id(client, request.cluster_name)
        if request.is_once:
            return _started_once(client, parameters)
        answer = getattr(client, request.operation)(**parameters)
    started = answer[request.answer_id]
    return str(started[0] if isinstance(started, list) else started)


def count_steps(
    cluster_name: str, *, region: str | None = None, endpoint_url: str | None = None
) -> int:
    """Return how many steps a running cluster has that wait or run.

    Raises:
        SubmissionFailed: there is no such cluster, or it could not be asked.
        MissingExtra: boto3 is not installed.
    """
    with _client("emr", region, endpoint_url) as client:
        cluster = _cluster_id(client, cluster_name)
        pages = client.get_paginator("list_steps").paginate(
            ClusterId=cluster, StepStates=[*_UNDER_WAY]
        )
        # An emulator answers with steps of every state.
        return sum(
            step["Status"]["State"] in _UNDER_WAY for page in pages for step in page["Steps"]
        )


def account_quota(
    service: str, code: str, *, region: str | None = None, endpoint_url: str | None = None
) -> float | None:
    """Return what an account may have of something; None where that cannot be known.

    Args:
        service: The service, as Service Quotas calls it.
        code: The quota's code.
        region: Where; None for that of the environment.
        endpoint_url: Another server than AWS's own.
    """
    try:
        with _client(_QUOTAS, region, endpoint_url) as client:
            answer = client.get_service_quota(ServiceCode=service, QuotaCode=code)
            return float(answer["Quota"]["Value"])
    except (SubmissionFailed, MissingExtra) as error:
        _log.info("the quota %s of %s is not known: %s", code, service, error)
        return None


@contextmanager
def _client(service: str, region: str | None, endpoint_url: str | None) -> Iterator[Any]:
    """Yield a client, and translate what its calls raise."""
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
            f"calling {service} needs boto3, which is not installed: "
            "pip install 'sleeper-store[aws]'"
        ) from None
    # EMR has no token that makes a repeated call harmless: asked once, it makes one cluster.
    once = {"total_max_attempts": 1}
    config = Config(retries=once) if service == "emr" else None
    if service == _QUOTAS:  # nobody waits for long for what may be left out
        config = Config(retries=once, connect_timeout=_QUOTA_S, read_timeout=_QUOTA_S)
    try:
        yield boto3.session.Session().client(
            service, region_name=region, endpoint_url=endpoint_url, config=config
        )
    except ClientError as error:
        raise _refusal(service, error.response) from None
    except (BotoCoreError, ValueError) as error:  # ValueError: an endpoint that is no URL
        raise SubmissionFailed(
            f"{service} could not be asked: {error}",
            retryable=isinstance(error, HTTPClientError | NotConnected),
        ) from None


def _refusal(service: str, response: Mapping[str, Any]) -> SubmissionFailed:
    refusal, status = response["Error"], response["ResponseMetadata"]["HTTPStatusCode"]
    code, message = refusal.get("Code"), str(refusal.get("Message"))
    is_full = message.startswith(_FULL)
    return SubmissionFailed(
        f"{service} refused the job: {code}: {message}",
        retryable=is_full or code in _BUSY or status >= 500,
        is_full=is_full,
    )


def _started_once(client: Any, parameters: Mapping[str, Any]) -> str:
    """Start an execution, unless one of the same work goes on; return it.

    A name can be used again 90 days after its execution's end, so one that follows has a number.
    """
    first, machine = parameters["name"], parameters["stateMachineArn"]
    for number in range(1, _NAMES_MAX):
        name = first if number == 1 else f"{first}-{number}"
        try:
            return str(client.start_execution(**{**parameters, "name": name})["executionArn"])
        except client.exceptions.ExecutionAlreadyExists:
            execution = f"{machine.replace(':stateMachine:', ':execution:')}:{name}"
        state = client.describe_execution(executionArn=execution)["status"]
        if state in _GOING_ON:
            _log.info("%s goes on already: nothing was started", execution)
            return execution
        _log.info("%s has ended, %s: starting another one", execution, state)
    raise SubmissionFailed(
        f"{first} was started {_NAMES_MAX - 1} times in 90 days: submit its files under another "
        "job id"
    )


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
