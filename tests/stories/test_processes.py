"""One folder, several processes: writing at once, handing a table over, and forking."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import subprocess
import sys

import pyarrow as pa
import pytest

import sleeper
from tests.patience import PATIENCE_S

SCHEMA = pa.schema([("writer", pa.int64()), ("n", pa.int64())])
WRITER = """
import sys, sleeper
url, writer = sys.argv[1], int(sys.argv[2])
table = sleeper.connect(url).table("t")
print("ready", flush=True)
sys.stdin.readline()
for n in range(10):
    table.ingest([{"writer": writer, "n": n}], job_id=f"{writer}-{n}")
"""


@pytest.fixture
def url(tmp_path):
    return str(tmp_path / "instance")


@pytest.fixture
def table(url):
    instance = sleeper.connect(url, create=True)
    return instance.create_table("t", SCHEMA, row_keys=["writer", "n"])


def count_in(table: sleeper.Table) -> int:
    return table.query().to_arrow().num_rows


def test_two_processes_write_at_the_same_time(url, table):
    """Both succeed; no row is lost or doubled, and a reader never sees half a commit."""
    path = os.pathsep.join(filter(None, sys.path))
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, url, str(writer)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path},
            text=True,
        )
        for writer in (1, 2)
    ]
    for writer in writers:
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        writer.stdin.write("go\n")
        writer.stdin.flush()

    for n in range(10):
        table.ingest([{"writer": 0, "n": n}])
    for writer in writers:
        writer.communicate(timeout=PATIENCE_S)

    assert [writer.returncode for writer in writers] == [0, 0]
    expected = [{"writer": writer, "n": n} for writer in (0, 1, 2) for n in range(10)]
    assert table.query().to_pylist() == expected
    assert table.state().number == 31


def test_a_table_can_be_handed_to_another_process(table):
    """A handle is pickled as its URL and id, so a rename does not matter to it."""
    table.ingest([{"writer": 1, "n": n} for n in range(100)])
    table.rename("other")

    with multiprocessing.get_context("spawn").Pool(1) as pool:
        counted = pool.apply(count_in, (table,))

    assert counted == 100


def test_a_copy_of_a_deleted_table_says_so(url, table):
    """Unpickling looks for the table."""
    packed = pickle.dumps(table)
    sleeper.connect(url).delete_table("t")

    with pytest.raises(sleeper.NotFound, match="was deleted"):
        pickle.loads(packed)


def test_memory_stays_in_its_process():
    """What lives in one process cannot be handed over; a folder is named instead."""
    instance = sleeper.connect("memory://")
    table = instance.create_table("t", SCHEMA, row_keys=["writer"])

    for held in (instance, table):
        with pytest.raises(sleeper.SleeperError, match="use a folder"):
            pickle.dumps(held)


FORKING = """
import os, sys, sleeper
url, before = sys.argv[1], sys.argv[2]
instance = sleeper.connect(url)
table = instance.table("t")
table.query(key=(1, 7)).to_arrow()
if before == "used":
    table.ingest([{"writer": 2, "n": 0}])
    table.query().to_arrow()
child = os.fork()
if child == 0:
    def attempt(call):
        try:
            return call()
        except sleeper.SleeperError as error:
            return f"{type(error).__name__}: {error}"
    print(attempt(lambda: table.query(key=(1, 7)).to_pylist()))
    print(attempt(lambda: table.query(keys=[(1, 7), (1, 8)]).to_arrow().num_rows))
    print(attempt(lambda: table.ingest([{"writer": 3, "n": 0}]).rows_written))
    print(attempt(lambda: table.query(range={"writer": (1, 2)}).to_arrow().num_rows), flush=True)
    os._exit(0)
os.waitpid(child, 0)
print(table.query(key=(3, 0)).to_arrow().num_rows, table.query().to_arrow().num_rows)
"""


@pytest.mark.parametrize("before", ["unused", "used"])
def test_a_handle_after_a_fork(url, table, before):
    """
    A child looks keys up, and reads ranges of few rows. It also sorts if its parent had not; else
    it is told to be started another way, for these libraries would wait for ever.
    """
    table.ingest([{"writer": 1, "n": n} for n in range(10)])

    done = subprocess.run(
        [sys.executable, "-c", FORKING, url, before],
        check=False,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )

    key, keys, ingest, in_range, parent = done.stdout.splitlines()
    assert (key, keys) == ("[{'writer': 1, 'n': 7}]", "2"), done.stderr
    if before == "unused":
        assert (ingest, in_range, parent) == ("1", "10", "1 11")
    else:
        assert "ingest in the children only" in ingest
        assert (in_range, parent) == ("10", "0 11")
