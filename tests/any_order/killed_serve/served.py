"""A `sleeper serve` in a session of its own, so that all of its processes can be found and killed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from tests.patience import PATIENCE_S, becomes_true


class Served:
    """One running serve.

    Args:
        url: The instance.
        log: Gets what it and its children log.
        options: More options of the command.
    """

    def __init__(self, url: str, log: Path, *options: str) -> None:
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "sleeper", "-v", "serve", "--every", "1", *options],
                env={
                    **os.environ,
                    "SLEEPER_INSTANCE": url,
                    "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
                    "PYTHONDONTWRITEBYTECODE": "",  # else each process compiles all that it imports
                },
                stderr=output,
                start_new_session=True,
            )
        self.session = self._process.pid

    def children(self) -> list[int]:
        """The processes that it, or a child, has started."""
        return [pid for pid in processes_of(self.session) if pid != self.session]

    def kill_children(self, draw: random.Random) -> int:
        """Wait for a child, and kill one or two at random; return how many were killed."""
        assert becomes_true(self.children)
        alive = self.children()
        chosen = draw.sample(alive, min(len(alive), draw.choice([1, 1, 2])))
        for pid in chosen:
            with suppress(ProcessLookupError):  # it has ended by itself at this moment
                os.kill(pid, signal.SIGKILL)
        return len(chosen)

    def kill(self) -> None:
        """Kill it, and none of its children."""
        self._process.kill()
        self._process.wait(PATIENCE_S)

    def kill_session(self) -> None:
        """Kill it and all of its children at once."""
        os.killpg(self.session, signal.SIGKILL)
        self._process.wait(PATIENCE_S)

    def ask_to_end(self) -> int:
        """Ask it to end, and return its exit code."""
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(PATIENCE_S)

    def clean_up(self) -> None:
        """Kill whatever is left, at the end of a test."""
        for pid in processes_of(self.session):
            os.kill(pid, signal.SIGKILL)
        self._process.wait(PATIENCE_S)


def processes_of(session: int) -> list[int]:
    """Return the processes of a session that are no zombies."""
    lines = subprocess.run(
        ["ps", "-A", "-o", "sid=,stat=,pid="], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    found = (line.split() for line in lines)
    return [int(pid) for sid, stat, pid in found if sid == str(session) and stat[0] != "Z"]
