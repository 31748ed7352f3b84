"""Runs a measured process: what it printed last, its CPU and wall seconds, and its peak memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.kept_figures import NotCommitted, measured_commit

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Checkout:
    """A clone of the project at some commit, with a virtual environment of its own.

    Attributes:
        name: `now` or `before`.
        root: Its folder.
    """

    name: str
    root: Path

    @property
    def python(self) -> str:
        """Its interpreter; where it has none, the one that runs this."""
        own = self.root / ".venv" / "bin" / "python"
        return str(own) if own.exists() else sys.executable

    @property
    def command_line(self) -> str:
        """The `sleeper` that is installed in it."""
        return str(Path(self.python).parent / "sleeper")

    @property
    def commit(self) -> str:
        """The newest commit that changed what is measured."""
        try:
            return measured_commit(self.root)
        except (NotCommitted, subprocess.CalledProcessError):
            return "unknown"


@dataclass(frozen=True, slots=True)
class Used:
    """What a process used, and what it printed in its last line.

    Attributes:
        cpu_s: User and system time of all its threads and of the children that it waited for.
        wall_s: From its start to its end.
        peak_mb: Largest resident size of it, or of one of those children.
        said: Its last line, where that is an object of JSON; or empty.
        text: All that it printed.
    """

    cpu_s: float
    wall_s: float
    peak_mb: float
    said: dict[str, Any]
    text: str


class ProcessFailed(Exception):
    """A measured process failed; the message has the end of what it printed."""


# Linux counts what a process was before it became the measured one as that one's memory: so a small
# process begins it, however large this one has become.
_BEGIN = """
import json, os, resource, subprocess, sys, time
begun = time.perf_counter()
code = subprocess.run(sys.argv[2:], check=False).returncode
wall, used = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
found = [used.ru_utime + used.ru_stime, wall, used.ru_maxrss / 1024]
os.write(int(sys.argv[1]), json.dumps(found).encode())
sys.exit(code)
"""


def run(
    command: Sequence[str], *, root: Path = ROOT, environment: Mapping[str, str] | None = None
) -> Used:
    """Run a command in a folder, and wait for its end."""
    read_end, write_end = os.pipe()
    with tempfile.TemporaryFile("w+") as errors, os.fdopen(read_end) as told:
        process = subprocess.Popen(
            [sys.executable, "-S", "-E", "-c", _BEGIN, str(write_end), *command],
            cwd=root,
            env={**os.environ, **(environment or {})},
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            pass_fds=[write_end],
        )
        os.close(write_end)
        text, _ = process.communicate()
        if process.returncode:
            errors.seek(0)
            raise ProcessFailed(f"{' '.join(command)[:300]}\n{(text + errors.read())[-2000:]}")
        cpu_s, wall_s, peak_mb = json.loads(told.read())
    last = (text.strip().splitlines() or [""])[-1]
    return Used(cpu_s, wall_s, peak_mb, json.loads(last) if last.startswith("{") else {}, text)


def inside(python: str, task: str, *arguments: object) -> Used:
    """Run a module of bench.anchors.inside, or another of ours, by an interpreter."""
    module = task if task.startswith("bench.") else f"bench.anchors.inside.{task}"
    return run([python, "-m", module, *map(str, arguments)])
