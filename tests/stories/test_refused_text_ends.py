"""A refused file of text ends the command with its exit code, and never by a signal.

Readers of pyarrow go on in threads for a moment after an error. One that lets go of a Python file
while Python ends aborts the process, now and then, and more often on a busy machine.
"""

from __future__ import annotations

import gzip
import os
import random
import signal
import subprocess
import sys
import time

import pytest

import sleeper
from tests.patience import PATIENCE_S
from tests.soak import FIRST_SEED, tries

SCHEMA = {
    "rowKeyFields": [{"name": "id", "type": "LongType"}],
    "valueFields": [
        {"name": "name", "type": "StringType", "nullable": True},
        {"name": "qty", "type": "LongType", "nullable": True},
    ],
}
LONG = "a name " * 8
GOOD = "".join(f"{n},{LONG}{n},{n % 7}\n" for n in range(140_000))
"""About 10 MB: more than one block of 8 MiB. Bytes make blocks; more rows would take longer alone."""
GOOD_LINES = b'{"id": 1, "qty": 2, "name": "%b"}\n' % LONG.encode() * 110_000

HEADER = "id,name,qty\n"
FAULTS = {
    "first.csv": (HEADER + "1,a,3\n2,b,three\n").encode(),
    "late.csv": (HEADER + GOOD + "7,x,7.5\n").encode(),
    "first of many.csv": (HEADER + "1,a,x\n" + GOOD).encode(),
    "columns.csv": (HEADER + GOOD + "7,x\n").encode(),
    "header.csv": ("id,nam,qty\n" + GOOD).encode(),
    "null.csv": (HEADER + ",a,1\n" + GOOD).encode(),
    "quotes.csv": (HEADER + GOOD + '7,"x,1\n').encode(),
    "encoding.csv": HEADER.encode() + GOOD.encode() + b"7,\xff,1\n",
    "empty.csv": b"",
    "cut.csv.gz": gzip.compress((HEADER + GOOD).encode(), 1)[:-5000],
    "late.jsonl": GOOD_LINES + b'{"id": "x"}\n',
    "first.jsonl": b'{"id": 1, "qty": 2.5}\n' + GOOD_LINES,
}
PAIRS = list(zip([*FAULTS][::2], [*FAULTS][1::2], strict=True))
INTERRUPTED = "interrupted.csv"
TRIES = tries(1, soak=80)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with an instance, and the files."""
    folder = tmp_path_factory.mktemp("refused")
    with sleeper.connect(folder / "instance", create=True) as instance:
        instance.create_table("t", SCHEMA)
    for name, body in FAULTS.items():
        (folder / name).write_bytes(body)
    (folder / INTERRUPTED).write_bytes((HEADER + GOOD * 10).encode())
    return folder


def started(folder, name):
    """Start an ingest of a file in a process of its own."""
    code = "from sleeper.interfaces.cli.main import main; print('begins', flush=True); main()"
    arguments = ("ingest", "t", str(folder / name), "--instance", str(folder / "instance"))
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONFAULTHANDLER": "1"},
    )


@pytest.mark.soak
@pytest.mark.parametrize("names", PAIRS, ids=" and ".join)
def test_a_refused_file_ends_with_1(place, names):
    """Two at once, so that threads have to wait; what stderr says is one message."""
    for _ in range(TRIES):
        for process in [started(place, name) for name in names]:
            _, told = process.communicate(timeout=PATIENCE_S)

            assert process.returncode == 1, told.decode()
            assert told.count(b"sleeper: ") == 1


@pytest.mark.soak
def test_an_interrupted_ingest_ends_with_130(place):
    """Wherever it is: while it reads, sorts or writes."""
    draw = random.Random(FIRST_SEED)
    for _ in range(tries(2, soak=80)):
        process = started(place, INTERRUPTED)
        assert process.stdout.readline() == b"begins\n"  # what is imported before takes a while
        time.sleep(draw.uniform(0.3, 4))
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=PATIENCE_S)

        assert process.returncode in (0, 130), told.decode()  # 0: it had ended before
