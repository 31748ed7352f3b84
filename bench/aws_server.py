"""A local server that speaks S3, DynamoDB and SQS, for benchmarks: ministack, an emulator.

Its times say nothing about Amazon's. What they show is the ratio between two ways to do a thing
that run on the same server, and the number of requests of each.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.request import ProxyHandler, Request, build_opener

from tests.contracts.s3_server import CREDENTIALS, REGION, running_server
from tests.contracts.servers.running import free_port


@contextmanager
def aws_server() -> Iterator[str]:
    """Run a server, and let this process and its children use it; yield its URL."""
    with (
        TemporaryDirectory(prefix="sleeper-bench-") as folder,
        running_server(free_port(), Path(folder) / "server.log") as server,
    ):
        regions = {"AWS_REGION": REGION, "AWS_DEFAULT_REGION": REGION}
        os.environ.update({**CREDENTIALS, **regions, "NO_PROXY": "127.0.0.1"})
        use(server.endpoint)
        yield server.endpoint


def use(endpoint: str) -> None:
    """Let this process and its children use a server, or a proxy before it."""
    os.environ["AWS_ENDPOINT_URL"] = endpoint


def new_bucket(endpoint: str) -> str:
    """Make an empty bucket and return its name."""
    name = f"bench-{uuid.uuid4()}"
    asked = Request(f"{endpoint}/{name}", method="PUT")
    build_opener(ProxyHandler({})).open(asked, timeout=10).close()
    return name
