"""How much memory an ingest and a compaction use, and what happens where they may not.

Each case is a process of its own, because libraries keep what they have used.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sleeper
from tests.patience import PATIENCE_S

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])
BATCH_ROWS = 50_000
PROCESS = """
import json, re, resource, sys
from pathlib import Path
import sleeper
folder, source, verb, room_mb = sys.argv[1:]

def status_mb(name):
    return int(re.search(rf"{name}:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) >> 10

instance = sleeper.connect(folder)
for n in range(2):
    instance.table("small").ingest([{"id": n, "v": "loads all libraries"}])
instance.table("small").compact(all_files=True)
table = instance.table("t")
if int(room_mb):
    resource.setrlimit(resource.RLIMIT_DATA, ((status_mb("VmData") + int(room_mb)) << 20,) * 2)
answer = {"before_mb": status_mb("VmHWM")}
try:
    if verb == "ingest":
        answer["rows"] = table.ingest(source, job_id=source).rows_written
    else:
        answer["failed"] = [str(each.failure) for each in table.compact(all_files=True).failed]
except sleeper.SleeperError as error:
    answer["error"] = f"{type(error).__name__}: {error}"
print(json.dumps(answer | {"peak_mb": status_mb("VmHWM")}))
"""
"""Loads libraries, allows itself so much more memory, does one thing and tells what it used."""


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """Parquet files of half a million and of two million rows, in no order; made once."""
    folder = tmp_path_factory.mktemp("sources")
    made = {}
    for rows in (500_000, 2_000_000):
        made[rows] = folder / f"{rows}.parquet"
        with pq.ParquetWriter(made[rows], SCHEMA) as file:
            for start in range(0, rows, BATCH_ROWS):
                numbers = [n * 7919 % rows for n in range(start, start + BATCH_ROWS)]
                texts = [f"value {n}" for n in numbers]
                file.write_table(pa.table([pa.array(numbers), pa.array(texts)], schema=SCHEMA))
    return made


@pytest.fixture
def instance(tmp_path):
    return sleeper.connect(tmp_path / "instance", create=True)


def make_table(instance, memory):
    properties = {"sleeper.table.ingest.memory": memory}
    instance.create_table("small", SCHEMA, row_keys=["id"])
    return instance.create_table("t", SCHEMA, row_keys=["id"], properties=properties)


def in_process(instance, source, verb="ingest", room_mb=0):
    """What a process of its own answers, which may use so much more memory; 0 for any."""
    done = subprocess.run(
        [sys.executable, "-c", PROCESS, instance.url, str(source), verb, str(room_mb)],
        env={**os.environ, "MIMALLOC_ARENA_EAGER_COMMIT": "0"},  # else 1 GB counts from the start
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_an_ingest_uses_memory_by_its_setting_and_not_by_its_rows(instance, sources):
    """Given four times the rows, then the peak stays, and is at most what the guide says.

    The rows need 50 and 200 MB in memory, and twice that to be sorted there.
    """
    make_table(instance, "32M")

    few, many = (in_process(instance, sources[rows]) for rows in (500_000, 2_000_000))

    assert (few["rows"], many["rows"]) == (500_000, 2_000_000)
    for each in (few, many):
        assert each["peak_mb"] - each["before_mb"] <= 32 + 184
    assert many["peak_mb"] - few["peak_mb"] <= 130  # of 150 and more that the further rows need


def test_more_memory_is_used_where_the_setting_allows_it(tmp_path, sources):
    """Given the same rows, then a larger setting has a larger peak, by what a sort in memory needs:
    otherwise the bound of the other test would be no effect of the setting.
    """
    used = {}
    for memory in ("32M", "1G"):
        instance = sleeper.connect(tmp_path / memory, create=True)
        make_table(instance, memory)
        answer = in_process(instance, sources[2_000_000])
        used[memory] = answer["peak_mb"] - answer["before_mb"]

    assert used["1G"] - used["32M"] > 50, used


def test_an_ingest_sorts_in_what_a_process_may_use(instance, sources):
    """Given a limit that is less than the setting, then it is kept; before, the process died."""
    table = make_table(instance, "1G")

    answer = in_process(instance, sources[2_000_000], room_mb=330)

    assert answer.get("rows") == 2_000_000, answer
    assert table.count() == 2_000_000


@pytest.mark.parametrize("memory", ["16M", "1G"])
def test_an_ingest_that_cannot_work_is_refused_before_anything_is_written(
    instance, sources, memory, tmp_path
):
    """It says what it needs, what there is, and how to allow it."""
    table = make_table(instance, memory)

    answer = in_process(instance, sources[500_000], room_mb=110)

    assert "StorageFailed: sorting these rows needs 200 MB of memory" in answer["error"]
    assert "RLIMIT_DATA. Nothing was written. Raise that limit from" in answer["error"]
    assert table.count() == 0
    assert not [*(tmp_path / "instance" / table.table_id).rglob("*.parquet")]


def test_a_compaction_that_cannot_work_is_refused_before_it_begins(instance, sources):
    """Its job fails with the reason, the claims are released, and the rows are as before."""
    table = make_table(instance, "1G")
    table.ingest(sources[500_000])
    table.ingest([{"id": 1, "v": "one more"}])

    answer = in_process(instance, "", "compact", room_mb=70)

    assert len(answer["failed"]) == 1
    assert "a compaction of these files needs 120 MB of memory" in answer["failed"][0]
    assert table.claims() == ()
    assert table.count() == 500_001
