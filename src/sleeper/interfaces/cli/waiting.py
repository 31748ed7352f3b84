"""Waits for rows: progress on stderr, and an end at once by Ctrl-C or SIGTERM.

Native code cannot be stopped, and Python cannot end while it runs. So a process that reads rows has
a temp folder of its own, and if it must end before its native code does, it removes the folder and
leaves the rest to the system.
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import Progress, ProgressColumn, SpinnerColumn, Task, TextColumn
from rich.progress import TimeElapsedColumn as ElapsedColumn
from rich.text import Text

from sleeper.engine.interruptible import steps_left
from sleeper.interfaces.cli.present import counted
from sleeper.interfaces.cli.stderr import Terminated, end_by_signal, warn

_log = logging.getLogger(__name__)

_FOLDER: Final = "TMPDIR"
_REMOVALS: Final = 20


@contextmanager
def ending_at_once() -> Iterator[None]:
    """End the process at Ctrl-C or SIGTERM if native code is still at work for the block.

    What it and its child processes spill is in a folder that is removed, however the block ends.
    """
    with own_temp_folder() as folder:
        try:
            yield
        except (KeyboardInterrupt, Terminated) as error:
            if not steps_left():
                raise
            code, text = end_by_signal(error)
            if folder is not None:
                remove_folder(folder)
            warn(text)
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)


@contextmanager
def own_temp_folder() -> Iterator[Path | None]:
    """Let this process and those that it starts write temp files to a folder that is removed.

    Yields:
        The folder; None where no folder can be written to: most reads need none.
    """
    environment = os.environ  # noqa: TID251 - engines and child processes read nothing else
    before, python_before = environment.get(_FOLDER), tempfile.tempdir
    try:
        folder = tempfile.mkdtemp(prefix="sleeper-rows-")
    except OSError as error:
        _log.info("there is no temp folder for this command: %s", error)
        yield None
        return
    environment[_FOLDER] = tempfile.tempdir = folder
    try:
        yield Path(folder)
    finally:
        tempfile.tempdir = python_before
        environment.pop(_FOLDER)
        if before is not None:
            environment[_FOLDER] = before
        remove_folder(Path(folder))


def remove_folder(folder: Path) -> None:
    """Remove a folder to which a thread may still write: until nothing is left of it."""
    for _ in range(_REMOVALS):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
    warn(f"sleeper: warning: temp files are left in {folder}")


@contextmanager
def elapsed_time(about: str) -> Iterator[Callable[[Callable[[], int] | None], None]]:
    """Show on stderr for how long the block runs, and how many rows were read; on a terminal.

    Yields:
        A function that is given what counts these rows.
    """
    rows = _RowsRead()
    columns = (SpinnerColumn(), TextColumn("{task.description}"), rows, ElapsedColumn())
    err = Console(stderr=True)
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as shown:
        shown.add_task(about, total=None)
        yield rows.count_by


class _RowsRead(ProgressColumn):
    """How many rows were read, once something counts them."""

    def __init__(self) -> None:
        super().__init__()
        self._count: Callable[[], int] | None = None

    def count_by(self, count: Callable[[], int] | None) -> None:
        """Count rows by a function."""
        self._count = count

    def render(self, task: Task) -> Text:
        """Return the number as text."""
        return Text("" if self._count is None else f"{counted(self._count(), 'row')} read")
