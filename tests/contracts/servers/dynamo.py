"""DynamoDB for tests, on each server that speaks it: tables of a prefix of their own.

A module that imports these fixtures runs its tests once on each server, with its name in the id
of the test:

    from tests.contracts.servers.dynamo import dynamo, dynamo_endpoint, tables

`dynamo_endpoint` is the server's URL, `dynamo` a client of boto3, `tables` a `DynamoTables` of a
new prefix. Code that looks into the environment finds the server by `dynamo_environment`, which
needs `s3_credentials` of `tests.contracts.s3_server`. `dynamo_client` makes more clients, to hang hooks on or for other processes. A test
that takes more than a second or two is marked `@on_one_server`.
"""

from __future__ import annotations

import time
import uuid
from dataclasses import replace
from threading import Lock

import boto3
import pytest
from botocore.config import Config
from botocore.retries.standard import ExponentialBackoff

from sleeper.storage.aws import clients
from sleeper.storage.aws.dynamo_tables import DynamoTables
from tests.contracts.s3_server import CREDENTIALS, REGION, shared_ministack
from tests.contracts.servers.differences import expect_differences
from tests.contracts.servers.dynamodb_local import shared_dynamodb_local
from tests.soak import some

__all__ = [
    "DYNAMO_SERVERS",
    "LastingTables",
    "dynamo",
    "dynamo_client",
    "dynamo_endpoint",
    "dynamo_environment",
    "new_id",
    "on_one_server",
    "pause",
    "tables",
    "without_backoff",
]


def _ministack_endpoint(config, tmp_path_factory):
    return shared_ministack(config, tmp_path_factory).endpoint


DYNAMO_SERVERS = {"ministack": _ministack_endpoint, "dynamodb-local": shared_dynamodb_local}

_session, _session_lock = boto3.session.Session(), Lock()
"""A session of its own costs each client 0.1 s of the processor."""
_clients = {}
_found_clients = {}
"""By endpoint: to make a client takes longer than most tests."""


def on_one_server(test):
    """Mark a test that takes seconds: under `make soak` it is run on each server, else on one."""
    servers = some(DYNAMO_SERVERS, one_in=len(DYNAMO_SERVERS))
    return pytest.mark.soak(
        pytest.mark.parametrize("dynamo_endpoint", servers, indirect=True)(test)
    )


def dynamo_client(endpoint, attempts=3):
    """Return a client of its own, to hang hooks on."""
    with _session_lock:
        return _session.client(
            "dynamodb",
            endpoint_url=endpoint,
            region_name=REGION,
            aws_access_key_id=CREDENTIALS["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
            config=Config(retries={"mode": "standard", "total_max_attempts": attempts}),
        )


def new_id():
    return str(uuid.uuid4())


def pause(attempt):
    time.sleep(0.001 * (1 + attempt % 5))


class LastingTables(DynamoTables):
    """Tables whose items are never deleted: times of the tests are past, for the server.

    So its clock is not asked for.
    """

    last_answer = None

    def make(self, *tables):
        super().make(*(replace(table, expiry=None) for table in tables))


@pytest.fixture(params=DYNAMO_SERVERS)
def dynamo_endpoint(request, tmp_path_factory, monkeypatch):
    """The URL of a server. Clients that were made for another one are forgotten."""
    monkeypatch.setattr(clients, "_clients", {})
    expect_differences(request, request.param)
    return DYNAMO_SERVERS[request.param](request.config, tmp_path_factory)


@pytest.fixture
def dynamo(dynamo_endpoint):
    """A client of the server, the same for all tests."""
    if dynamo_endpoint not in _clients:
        _clients[dynamo_endpoint] = dynamo_client(dynamo_endpoint)
    return _clients[dynamo_endpoint]


@pytest.fixture
def without_backoff(monkeypatch):
    """boto3 tries again at once: tests that lose replies need not wait in between."""
    monkeypatch.setattr(ExponentialBackoff, "delay_amount", lambda backoff, context: 0)


@pytest.fixture
def dynamo_environment(dynamo_endpoint, s3_credentials, monkeypatch):
    """Clients of this process that look into the environment find the server, and no other.

    They stay from test to test, so a test that changes more of the environment forgets them first.
    """
    monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", dynamo_endpoint)
    monkeypatch.setenv("AWS_REGION", REGION)
    monkeypatch.setattr(clients, "_clients", _found_clients.setdefault(dynamo_endpoint, {}))
    return dynamo_endpoint


@pytest.fixture
def tables(dynamo):
    """Tables that nobody else has."""
    return LastingTables(lambda: dynamo, f"sleeper-{new_id()}-", pause=pause, new_id=new_id)
