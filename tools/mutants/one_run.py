"""A run of pytest in a process forked from one that has imported what every run imports.

Half of the time of a short run was that of imports: of pytest, its plugins and Arrow. None of it is
of the package, which each run imports from a copy of its own. `--assert=plain`, for pytest wants to
rewrite modules of plugins before they are imported.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

IMPORTED = ("pytest", "hypothesis.stateful", "pyarrow.dataset", "pyarrow.parquet", "datafusion")
OPTIONS = (
    *("--quiet", "--tb=line", "--assert=plain", "--hypothesis-profile=mutants"),
    *("-p", "no:cacheprovider", "-p", "tools.mutants.one_source"),
)
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload([*IMPORTED])


def start(
    arguments: Sequence[str], root: Path, environment: Mapping[str, str], output: Path
) -> BaseProcess:
    """Start a run of pytest in a folder, which writes all that it prints into a file."""
    process = CONTEXT.Process(target=run, args=([*arguments], root, {**environment}, output))
    process.start()
    return process


def run(arguments: list[str], root: Path, environment: dict[str, str], output: Path) -> None:
    """Run pytest in this process, and end it."""
    os.setsid()
    os.chdir(root)
    os.environ.update(environment)
    tempfile.tempdir = None  # it is in the environment
    sys.path[:0] = [environment["PYTHONPATH"]]
    with Path(os.devnull).open("rb") as nothing, output.open("ab") as file:
        os.dup2(nothing.fileno(), 0)
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    code = pytest.main([*OPTIONS, *arguments])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # threads that tests have left behind are not waited for


def kill(process: BaseProcess) -> None:
    """Kill a run with all processes that its tests have started."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid or 0, signal.SIGKILL)
    process.kill()
