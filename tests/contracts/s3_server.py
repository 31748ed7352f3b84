"""A server that speaks S3, SQS, DynamoDB, STS, EMR, ECS and Step Functions: ministack."""

from __future__ import annotations

import importlib.util
import os
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.request import ProxyHandler, Request, build_opener

import pytest

from sleeper.model.object_stores import Bucket, ObjectStoreSettings
from sleeper.storage.aws import clients
from sleeper.storage.objectstore import conditions
from sleeper.storage.objectstore.client import Client
from sleeper.storage.objectstore.objects import BucketObjects
from tests.contracts.servers.installed import left_out
from tests.contracts.servers.running import answers, free_port, running, shared
from tests.patience import PATIENCE_S

CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
REGION = "us-east-1"
STORE_PATIENCE_S = 3
"""How long Sleeper waits in tests for a store that is overloaded, or dead while a data file is written."""
_OFF = {
    "CLOUDTRAIL_RECORDING": "0",
    "IOT_MTLS_ENABLED": "0",
    "LOG_LEVEL": "ERROR",
    "SERVICES": "s3,sqs,dynamodb,sts,elasticmapreduce,states,ecs,lambda,monitoring",
    "SFTP_ENABLED": "0",
}
_clients: dict[str, dict] = {}
"""Clients of AWS by the server's URL: to make one takes longer than most tests."""


_check_conditions = conditions.check_conditions
_shared_endpoints: set[str | None] = set()
_checked_endpoints: set[str | None] = set()


def _check_each_server_once(objects, new_id, clock, **size):
    """Check a server that tests share for the first of its buckets that has an instance.

    Others, and a shared one behind a proxy, are checked for each bucket, as users' are. A check
    sends over a hundred requests, more than most tests: tests/contracts/test_conditions.py is of it.
    """
    endpoint = objects.client.settings.endpoint
    if endpoint in _checked_endpoints:
        conditions._kept.add(conditions._place(objects))
        return
    _check_conditions(objects, new_id, clock, **size)
    _checked_endpoints.update(_shared_endpoints & {endpoint})


def with_checked_conditions(server: S3Server) -> S3Server:
    """Have the conditions of a server that tests share checked once, and return it."""
    conditions.check_conditions = _check_each_server_once
    _shared_endpoints.add(server.endpoint)
    return server


@dataclass(frozen=True)
class S3Server:
    """A server that runs."""

    endpoint: str

    @property
    def settings(self) -> ObjectStoreSettings:
        return ObjectStoreSettings(self.endpoint, REGION, patience_s=STORE_PATIENCE_S)

    def new_bucket(self) -> str:
        """Make an empty bucket and return its name."""
        name = f"test-{uuid.uuid4()}"
        self.request("PUT", name)
        return name

    def objects(self, bucket: str, endpoint: str | None = None) -> BucketObjects:
        """Return the objects of a bucket, seen through another endpoint if one is given."""
        settings = ObjectStoreSettings(
            endpoint or self.endpoint, REGION, patience_s=STORE_PATIENCE_S
        )
        return BucketObjects(Client(Bucket("s3", bucket), settings))

    def request(self, method: str, path: str) -> bytes:
        """Send a plain request: the server asks for no signature."""
        asked = Request(f"{self.endpoint}/{path}", method=method)
        with build_opener(ProxyHandler({})).open(asked, timeout=PATIENCE_S) as reply:
            return reply.read()

    def unfinished_uploads(self, bucket: str) -> int:
        """Count uploads that were begun, and neither finished nor aborted."""
        return self.request("GET", f"{bucket}?uploads").count(b"<Upload>")


@contextmanager
def running_server(port: int, log: Path) -> Iterator[S3Server]:
    """Start a server of its own, and kill it in the end."""
    server = S3Server(f"http://127.0.0.1:{port}")
    command = [sys.executable, "-W", "ignore", "-m", "ministack"]
    environment = {**_OFF, "BIND_HOST": "127.0.0.1", "GATEWAY_PORT": str(port)}
    with running(
        command, lambda: answers(f"{server.endpoint}/_ministack/health"), log, environment
    ):
        yield server


def require_ministack() -> None:
    """Skip where there is no server to be had; in CI that is a failure."""
    if importlib.util.find_spec("ministack") is None:
        left_out("ministack", "it is not installed; run: pip install ministack")


def shared_ministack(config, tmp_path_factory) -> S3Server:
    """Return this process' server, the same for all tests of a run."""
    require_ministack()
    log = tmp_path_factory.mktemp("ministack") / "server.log"
    server = shared(config, "ministack", lambda: running_server(free_port(), log))
    return with_checked_conditions(server)


@pytest.fixture(scope="session")
def s3_server(request, tmp_path_factory):
    """One server for all tests of a run; each makes buckets of its own."""
    return shared_ministack(request.config, tmp_path_factory)


@pytest.fixture
def s3_credentials(monkeypatch):
    """What obstore and DataFusion find in the environment, and nothing else of the kind."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("SLEEPER_STORE_PATIENCE_SECONDS", str(STORE_PATIENCE_S))
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def aws_endpoint(s3_server, s3_credentials, monkeypatch):
    """The URL of the server, which is where this process finds SQS and DynamoDB too."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server.endpoint)
    monkeypatch.setenv("AWS_REGION", REGION)
    monkeypatch.setattr(clients, "_clients", {})
    return s3_server.endpoint


@pytest.fixture
def kept_clients(aws_endpoint, monkeypatch):
    """Clients of the server stay from test to test, for tests that leave the environment alone."""
    monkeypatch.setattr(clients, "_clients", _clients.setdefault(aws_endpoint, {}))


@pytest.fixture
def bucket(s3_server, s3_credentials):
    """The name of an empty bucket."""
    return s3_server.new_bucket()
