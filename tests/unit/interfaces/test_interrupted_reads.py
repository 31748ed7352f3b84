"""Ctrl-C and SIGTERM end a statement whatever native code does: command, prompt, library (QRY-23)."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow as pa
import pytest

import sleeper as library
from tests.patience import PATIENCE_S, becomes_true
from tests.unit.interfaces.command_line import make_trips

ENDLESS = (
    "SELECT count(*) AS multiplied FROM trips AS a JOIN trips AS b ON a.taxi = b.taxi "
    "WHERE a.day + b.day > 7"
)
"""A statement whose join multiplies rows, to 160 thousand millions: minutes of work in one step."""
AT_WORK_S = 0.5
"""So long the native code of a statement has run before it is interrupted."""
ENDS_S = 30.0
"""How long a busy machine may take for what needs 2 s at most."""


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    """An instance with the table `trips`, of 400,000 rows of one taxi."""
    url = make_trips(tmp_path_factory.mktemp("trips"))
    days = range(400_000)
    with library.connect(url) as instance:
        columns = {"taxi": ["k"] * len(days), "day": days, "at": days, "fare": [1.0] * len(days)}
        instance.table("trips").ingest(pa.table(columns))
    return url


@pytest.fixture
def temp(tmp_path):
    """The temp folder of the commands."""
    folder = tmp_path / "temp"
    folder.mkdir()
    return folder


@contextmanager
def started(command, temp, **more):
    """A process that has ended when the block has."""
    environment = {**os.environ, "TMPDIR": str(temp), "TERM": "dumb"}
    with subprocess.Popen([sys.executable, *command], env=environment, **more) as child:
        try:
            yield child
        finally:
            child.kill()


def sleeper(*arguments):
    return ["-m", "sleeper", *arguments]


def wait_until_it_computes(process_id):
    """Wait until threads of native code have worked: Python starts and imports in the first one."""
    assert becomes_true(lambda: native_seconds(process_id) >= AT_WORK_S)


def native_seconds(process_id):
    """What all threads of a process but the first have used of processors."""
    ticks = 0
    for thread in Path(f"/proc/{process_id}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            fields = (thread / "stat").read_text().rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:13])) if thread.name != str(process_id) else 0
    return ticks / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize(
    ("options", "number", "code", "message"),
    [
        ([], signal.SIGINT, 130, "interrupted"),
        (["--format", "csv"], signal.SIGINT, 130, "interrupted"),
        (["--output", "found.parquet"], signal.SIGTERM, 143, "ended by SIGTERM"),
    ],
)
def test_a_command_ends_at_once(url, temp, options, number, code, message):
    """Given a join that multiplies rows, when its command gets a signal, then it ends at once
    with the signal's exit code, without an output, and nothing is left in the temp folder.
    """
    command = sleeper("sql", ENDLESS, *options, "--instance", url)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with started(command, temp, cwd=temp.parent, **pipes) as child:
        wait_until_it_computes(child.pid)

        child.send_signal(number)
        shown, told = child.communicate(timeout=ENDS_S)

    assert (child.returncode, shown) == (code, b"")
    assert message in told.decode()
    assert "Traceback" not in told.decode()
    assert [*temp.iterdir()] == []
    assert [path.name for path in temp.parent.iterdir()] == ["temp"]


def test_a_library_raises_keyboard_interrupt(url, temp):
    """Given a script that reads such a statement, when it gets SIGINT, then the read raises
    KeyboardInterrupt, the script goes on, and the end of the program aborts nothing.
    """
    script = (
        "import sleeper, sys\n"
        "rows = sleeper.connect(sys.argv[1]).sql(sys.argv[2])\n"
        "try:\n"
        "    rows.to_arrow()\n"
        "except KeyboardInterrupt:\n"
        "    print('caught', rows.rows_read() > 0)\n"
    )
    with started(["-c", script, url, ENDLESS], temp, stdout=subprocess.PIPE) as child:
        wait_until_it_computes(child.pid)

        child.send_signal(signal.SIGINT)
        shown, _ = child.communicate(timeout=ENDS_S)

    assert (child.returncode, shown) == (0, b"caught True\n")


def test_the_prompt_goes_on_with_the_next_statement(url, temp):
    """Given such a statement at the prompt, when Ctrl-C comes, then its process is gone with
    its temp files, and the next statement is answered.
    """
    ours, theirs = pty.openpty()
    terminal = {"stdin": theirs, "stdout": theirs, "stderr": theirs, "start_new_session": True}
    with started(sleeper("sql", "--instance", url), temp, **terminal) as child:
        os.close(theirs)
        until(ours, "sql> ")
        os.write(ours, b"SELECT 40 + 2 AS found;\n")
        until(ours, "42")
        (first,) = children_of(child.pid)
        os.write(ours, f"{ENDLESS};\n".encode())
        wait_until_it_computes(first)
        (folder,) = temp.iterdir()

        child.send_signal(signal.SIGINT)
        until(ours, "interrupted")
        os.write(ours, b"SELECT 40 + 3 AS found;\n")
        until(ours, "43")

        assert first not in children_of(child.pid)
        assert not folder.exists()
        os.write(ours, b"\\q\n")
        assert child.wait(timeout=ENDS_S) == 0
        assert [*temp.iterdir()] == []
    os.close(ours)


def until(terminal, text):
    """Read what a terminal shows until it shows a text."""
    shown, end = "", time.monotonic() + PATIENCE_S
    while text not in shown:
        assert time.monotonic() < end, shown
        if select.select([terminal], [], [], 1)[0]:
            shown += os.read(terminal, 65_536).decode(errors="replace")
    return shown


def children_of(process_id):
    children = Path(f"/proc/{process_id}/task/{process_id}/children")
    return [*map(int, children.read_text().split())]
