"""Failures of AWS are told apart: each message names what failed and what to do."""

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from botocore.exceptions import (
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    NoCredentialsError,
)

from sleeper.errors import MissingExtra, ObjectNotFound, StorageFailed, StorageReadOnly
from sleeper.storage.aws import clients
from sleeper.storage.aws.clients import aws_client, aws_failure, is_missing, vendor_errors

QUEUE = "queue 'sleeper-demo-IngestJobQ'"


def refusal(code, message="it says so"):
    """Return the error that boto3 raises when a service refuses a call."""
    answer = {"Error": {"Code": code, "Message": message}, "ResponseMetadata": {}}
    return ClientError(answer, "SendMessage")


def told(error, *, writes=True):
    """Translate the error of a send."""
    return aws_failure(error, "send to", QUEUE, writes=writes, permission="sqs:SendMessage")


@pytest.fixture
def no_aws(monkeypatch, tmp_path):
    """An environment without any settings of AWS."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(clients, "_clients", {})
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.mark.parametrize(
    ("error", "kind", "advice"),
    [
        (refusal("InvalidClientTokenId"), StorageFailed, "AWS_SECRET_ACCESS_KEY"),
        (refusal("ExpiredTokenException"), StorageFailed, "AWS_SESSION_TOKEN"),
        (NoCredentialsError(), StorageFailed, "AWS_ACCESS_KEY_ID"),
        (refusal("AccessDenied"), StorageReadOnly, "credentials with sqs:SendMessage"),
        (refusal("Throttling"), StorageFailed, "fewer processes"),
        (refusal("RequestThrottled"), StorageFailed, "too many calls"),
        (refusal("AWS.SimpleQueueService.NonExistentQueue"), ObjectNotFound, "AWS_REGION"),
        (refusal("ResourceNotFoundException"), ObjectNotFound, "does not exist"),
        (refusal("SignatureDoesNotMatch", "Signature expired: 1"), StorageFailed, "clock"),
        (refusal("InternalError"), StorageFailed, "Try again later"),
        (EndpointConnectionError(endpoint_url="http://x:1"), StorageFailed, "AWS_ENDPOINT_URL"),
        (ConnectTimeoutError(endpoint_url="http://x:1"), StorageFailed, "may or may not"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_each_failure_says_what_to_do(error, kind, advice):
    """It names the queue, and its class says whether to try again."""
    failure = told(error)

    assert type(failure) is kind
    assert str(failure).startswith(f"cannot send to {QUEUE}: ")
    assert advice in str(failure)
    assert isinstance(error, vendor_errors())


def test_a_denied_look_is_no_refused_write():
    """The storage may well allow writes to others."""
    assert type(told(refusal("AccessDeniedException"), writes=False)) is StorageFailed


def test_kinds_of_refusals_are_known():
    """For callers that do something else about them."""
    assert is_missing(refusal("QueueDoesNotExist"))
    assert not is_missing(NoCredentialsError())


def test_a_message_has_no_password_and_is_short():
    """Whatever the service quotes."""
    failure = told(EndpointConnectionError(endpoint_url="http://me:secret@x:1/" + "y" * 9_999))

    assert "secret" not in str(failure)
    assert len(str(failure)) < 900


def test_threads_share_one_client(no_aws):
    """It is made once in a process; boto3's clients are safe in threads."""
    with ThreadPoolExecutor(8) as threads:
        clients = set(threads.map(lambda _: aws_client("sqs", "eu-west-2"), range(16)))

    [client] = clients
    assert client.meta.region_name == "eu-west-2"
    assert aws_client("sqs", "eu-west-1") is not client
    assert aws_client("dynamodb", "eu-west-2") is not client
    assert client.meta.config.retries["total_max_attempts"] == 5


def test_settings_come_from_the_environment(no_aws, monkeypatch):
    """The variables that Amazon's own tools read."""
    without = aws_client("sqs")
    monkeypatch.setenv("AWS_ENDPOINT_URL_SQS", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-north-1")

    found = aws_client("sqs", endpoint="http://127.0.0.1:8"), aws_client("sqs", "eu-west-3")

    assert without.meta.region_name == "us-east-1"
    assert found[0].meta.endpoint_url == "http://127.0.0.1:8"
    assert found[0].meta.region_name == "eu-north-1"
    assert found[1].meta.endpoint_url == "http://127.0.0.1:9"


def test_an_endpoint_that_is_no_url_is_refused(no_aws):
    """The message names the variable."""
    with pytest.raises(StorageFailed, match="AWS_ENDPOINT_URL"):
        aws_client("sqs", endpoint="no url")


def test_a_profile_that_does_not_exist_is_refused(no_aws, monkeypatch):
    """The message names the variable."""
    monkeypatch.setenv("AWS_PROFILE", "nobody")

    with pytest.raises(StorageFailed, match="AWS_PROFILE"):
        aws_client("sqs", "ap-south-1")


def test_without_boto3_the_message_says_what_to_install(no_aws, monkeypatch):
    """It is an extra of the package."""
    monkeypatch.setitem(sys.modules, "boto3", None)
    monkeypatch.setitem(sys.modules, "botocore.exceptions", None)

    with pytest.raises(MissingExtra, match=r"pip install 'sleeper-store\[aws\]'"):
        aws_client("sqs", "sa-east-1")
    with pytest.raises(MissingExtra, match=r"sleeper-store\[aws\]"):
        vendor_errors()


def test_a_forked_process_has_clients_of_its_own(no_aws, monkeypatch):
    """Its parent's connections are not its own."""
    here = aws_client("sqs", "eu-west-2")
    monkeypatch.setattr(os, "getpid", lambda: -1)

    there = aws_client("sqs", "eu-west-2")

    assert there is not here
    assert aws_client("sqs", "eu-west-2") is there
