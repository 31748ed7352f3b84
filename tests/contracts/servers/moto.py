"""moto: a server in Python that speaks most of Amazon's protocols."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.contracts.servers.running import answers, free_port, running, shared


def shared_moto(config, tmp_path_factory) -> str:
    """Return the URL of this process' server, the same for all tests of a run."""
    folder = tmp_path_factory.mktemp("moto")
    return shared(config, "moto", lambda: running_moto(folder))


@contextmanager
def running_moto(folder: Path) -> Iterator[str]:
    """Start a server, give its URL, and kill it in the end."""
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    url = f"http://127.0.0.1:{port}"
    with running(command, lambda: answers(url), folder / "server.log"):
        yield url
