"""Starts worker processes whose log lines go where this process's go, each line whole."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Sequence
from typing import IO


def start_logged(command: Sequence[str], tell: Callable[[str], None]) -> subprocess.Popen[str]:
    """Start a process and pass on each line that it writes.

    Processes that wrote to one stream themselves could break up each other's long lines.

    Args:
        command: The program and its arguments.
        tell: Called with each line, from a thread; it lets one line out at a time.

    Raises:
        OSError: it cannot be started.
    """
    process = subprocess.Popen(  # noqa: S603 - a command line of our own
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="backslashreplace",
    )
    assert process.stdout is not None
    threading.Thread(
        target=_pass_on, args=(process.stdout, tell), name=f"log of {process.pid}", daemon=True
    ).start()
    return process


def _pass_on(lines: IO[str], tell: Callable[[str], None]) -> None:
    with lines:
        for line in lines:
            tell(line.removesuffix("\n"))
