"""Starts the servers of tests, waits until they answer, and ends them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from random import SystemRandom
from typing import Any
from urllib.error import HTTPError
from urllib.request import ProxyHandler, build_opener

import pytest

from tests.patience import PATIENCE_S

KEEPER = Path(__file__).with_name("keeper.py")
PORTS = 20_000, 32_000
SHARED = pytest.StashKey[dict[str, Any]]()


def shared(config: pytest.Config, name: str, start: Callable[[], AbstractContextManager]) -> Any:
    """Return what runs under a name in this process; start it if nothing does.

    It ends with the run of pytest, whatever fixtures and parameters came between.
    """
    if SHARED not in config.stash:
        config.stash[SHARED] = {}
    if name not in config.stash[SHARED]:
        stack = ExitStack()
        config.add_cleanup(stack.close)
        config.stash[SHARED][name] = stack.enter_context(start())
    return config.stash[SHARED][name]


@contextmanager
def running(
    command: Sequence[str | Path],
    is_up: Callable[[], bool],
    log: Path,
    environment: Mapping[str, str] | None = None,
    max_s: float = PATIENCE_S,
) -> Iterator[None]:
    """Run a server that answers soon; it is killed in the end, and when this process is."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-S", "-E", KEEPER, *command],
            env={**os.environ, **(environment or {})},
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=log.parent,
        )
    try:
        _wait_until(is_up, process, log, max_s)
        yield
    finally:
        process.stdin.close()
        process.terminate()
        process.wait()


def answers(url: str) -> bool:
    """Tell whether there is a reply, of whatever kind."""
    try:
        build_opener(ProxyHandler({})).open(url, timeout=PATIENCE_S).close()
    except HTTPError as error:
        error.close()
    except OSError:
        return False
    return True


def free_port() -> int:
    """Return a port that nobody listens on.

    It is none that a connection may be given before the server takes it: those are higher.
    """
    while True:
        port = SystemRandom().randrange(*PORTS)
        with socket.socket() as tried, suppress(OSError):
            tried.bind(("127.0.0.1", port))
            return port


def _wait_until(
    is_up: Callable[[], bool], process: subprocess.Popen[bytes], log: Path, max_s: float
) -> None:
    end = time.monotonic() + max_s
    while time.monotonic() < end:
        if process.poll() is not None:
            pytest.fail(f"a server did not start: {process.args}\n{log.read_text()}")
        if is_up():
            return
        time.sleep(0.05)
    pytest.fail(f"no answer within {max_s} s: {process.args}\n{log.read_text()}")
