"""Processes that work on an instance: started in milliseconds, killed without warning."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.any_order import run_until_killed
from tests.patience import PATIENCE_S


class Workers:
    """The program that forks them, and the pipes in which they tell what is done.

    Args:
        slots: How many may work at once.
        environment: Variables of theirs, beside those of this process.
    """

    def __init__(self, slots: int = 2, environment: Mapping[str, str] | None = None) -> None:
        self.pipes = [os.pipe() for _ in range(slots)]
        for reading, _ in self.pipes:
            os.set_blocking(reading, False)
        ends = [writing for _, writing in self.pipes]
        self.program = subprocess.Popen(
            [sys.executable, run_until_killed.__file__, *map(str, ends)],
            env={
                **os.environ,
                **(environment or {}),
                "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=ends,
            text=True,
        )
        self.alive: set[int] = set()

    def ask(self, command: str) -> int:
        self.program.stdin.write(f"{command}\n")
        self.program.stdin.flush()
        return int(self.program.stdout.readline())

    def start(self, kind: str, slot: int, place: Path | str, *more: object) -> int:
        process_id = self.ask(" ".join(map(str, [kind, slot, place, "jobs", *more])))
        self.alive.add(process_id)
        return process_id

    def wait_for_more(self, slot: int) -> list[str]:
        """Wait until the process has told of one more thing at least."""
        reading, _ = self.pipes[slot]
        ready, _, _ = select.select([reading], [], [], PATIENCE_S)
        assert ready, "a process has told of nothing for two minutes"
        return self.told(slot)

    def told(self, slot: int) -> list[str]:
        """Read what was told since the last look; of a dead writer, this is all there will be."""
        jobs = b""
        try:
            while part := os.read(self.pipes[slot][0], 1 << 16):
                jobs += part
        except BlockingIOError:
            pass
        assert not jobs or jobs.endswith(b"\n")
        return jobs.decode().split()

    def wait(self, process_id: int) -> None:
        """Wait until a process has ended by itself."""
        assert self.ask(f"wait {process_id}") == 0
        self.alive.remove(process_id)

    def kill(self, process_id: int) -> None:
        """Kill a process without warning, wherever it is, and wait until it is gone."""
        os.kill(process_id, signal.SIGKILL)
        assert self.ask(f"wait {process_id}") == signal.SIGKILL, "it had ended by itself"
        self.alive.remove(process_id)

    def close(self) -> None:
        for process_id in [*self.alive]:
            self.kill(process_id)
        self.program.stdin.close()
        self.program.wait(PATIENCE_S)
        self.program.stdout.close()
        for reading, writing in self.pipes:
            os.close(reading)
            os.close(writing)
