"""A server in a process of its own, for benchmarks."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager


@contextmanager
def server_process(
    arguments: Sequence[str], environment: Mapping[str, str]
) -> Iterator[tuple[int, str]]:
    """Run Python with arguments, as a server that says its URL; its process id and the URL."""
    command = [sys.executable, *arguments]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as server:
        try:
            found = None
            while found is None:
                line = server.stderr.readline()
                assert line, "the server ended"
                found = re.search(r"http://127\.0\.0\.1:\d+", line)
            yield server.pid, found[0]
        finally:
            server.send_signal(signal.SIGTERM)
