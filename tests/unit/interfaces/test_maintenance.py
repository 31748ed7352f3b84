"""`sleeper compact`, `split`, `merge`, `gc` and `sweep`."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest

import sleeper as sleeper_package
from sleeper.model.files import ClaimOwner
from sleeper.state.transactions.files import Claim, ClaimFiles
from tests.patience import PATIENCE_S
from tests.unit.interfaces.command_line import (
    ROWS,
    json_of,
    make_trips,
    rows_of,
    sleeper,
    write_rows,
)
from tests.unit.state.small_tables import filenames_by_partition


@pytest.fixture
def url(tmp_path):
    """The table `trips` with five files in each of its two leaves."""
    url = make_trips(tmp_path)
    for number in range(4):
        more = write_rows(tmp_path / f"{number}.parquet", ROWS)
        assert sleeper("ingest", "trips", more, "--instance", url).exit_code == 0
    return url


def count(url):
    return len(rows_of(sleeper("query", "trips", "--json", "--instance", url)))


def test_files_are_merged(url):
    """CMP-5: the line says how many became how many; the rows are the same."""
    done = sleeper("compact", "trips", "--instance", url)

    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("compacted trips: 10 files became 2, transaction ")
    assert count(url) == 5 * len(ROWS)


def test_that_no_files_are_to_be_merged_is_said(url):
    """With the options that say why, and that merge them all the same."""
    sleeper("compact", "trips", "--instance", url)

    done = sleeper("compact", "trips", "--instance", url)

    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("no files of trips are to be merged by its strategy: --explain ")


def test_a_job_that_fails_names_its_leaf_and_the_function(url):
    """Each line on stderr says which leaf; the exit code says that not all was done."""
    table = sleeper_package.connect(url).table("trips")
    table.set_properties({"sleeper.table.function": "no_such_module:clean"})
    leaves = {reference.partition_id[:8] for reference in table.references()}

    done = sleeper("compact", "trips", "--instance", url)

    assert done.exit_code == 1
    for leaf in leaves:
        assert f"of leaf {leaf} failed: sleeper.table.function is 'no_such_module:" in done.stderr


def test_a_plan_says_why(url):
    """Nothing is changed by `--explain`."""
    assert sleeper("compact", "trips", "--instance", url).exit_code == 0

    shown = sleeper("compact", "trips", "--explain", "--instance", url)
    plan = json_of(
        sleeper("compact", "trips", "--explain", "--all-files", "--json", "--instance", url)
    )

    assert "it has one file, and no other to merge it with" in shown.stdout
    assert [leaf["reason"] for leaf in plan["leaves"]] == 2 * ["it has one file already"]


def claim_all(url):
    """Claim all files of `trips` for two jobs that nobody runs."""
    store = sleeper_package.connect(url).table("trips")._current().store
    claims = tuple(
        Claim(job_id=f"job-{partition_id[:4]}", partition_id=partition_id, filenames=names)
        for partition_id, names in filenames_by_partition(store.refresh()).items()
    )
    owner = ClaimOwner(host="elsewhere", pid=4711, worker_id="w-1")
    store.commit(ClaimFiles(assignments=claims, owner=owner))
    return sorted(claim.job_id for claim in claims)


def test_claims_are_reported_with_owner_and_age(url):
    """By `report claims` and by `compact --explain`, as JSON too."""
    none = sleeper("report", "claims", "trips", "--instance", url)
    jobs = claim_all(url)

    shown = sleeper("report", "claims", "trips", "--instance", url)
    explained = sleeper("compact", "trips", "--explain", "--instance", url)
    listed = json_of(sleeper("report", "claims", "trips", "--json", "--instance", url))
    plan = json_of(sleeper("compact", "trips", "--explain", "--json", "--instance", url))

    assert none.stdout == "no compaction job has claimed files of trips\n"
    for text in (shown.stdout, explained.stdout):
        assert "ago by process 4711 on elsewhere, until " in text
        assert all(f"job {job} has 5 files of " in text for job in jobs)
    assert [claim["job_id"] for claim in listed] == jobs
    assert listed[0]["owner"]["host"] == "elsewhere"
    assert [claim["job_id"] for claim in plan["claims"]] == jobs


def test_claims_can_be_released(url):
    """Those of one job, or all; then the files are compacted."""
    first, second = claim_all(url)

    one = sleeper("compact", "trips", "--release", first, "--instance", url)
    rest = json_of(sleeper("compact", "trips", "--json", "--release", "--instance", url))
    none = sleeper("compact", "trips", "--instance", url, "--release")

    assert one.stdout.startswith(f"released 5 files of job {first}: claimed 0 min ")
    assert [claim["job_id"] for claim in rest["claims"]] == [second]
    assert none.stdout == "there were no claims to release\n"
    assert "10 files became 2" in sleeper("compact", "trips", "--instance", url).stdout


def test_sigterm_releases_what_is_claimed(tmp_path):
    """The command ends with 143; the next one need not wait for a lease to end."""
    url = str(tmp_path / "instance")
    schema = pa.schema([("id", pa.int64())])
    table = sleeper_package.connect(url, create=True).create_table(
        "many", schema, row_keys=["id"], split_points=[*range(1, 150)]
    )
    for _ in range(4):
        table.ingest(pa.table({"id": range(150)}))
    before = table.refresh()
    process = subprocess.Popen(
        [sys.executable, "-m", "sleeper", "compact", "many", "--instance", url],
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        text=True,
    )
    while table.refresh() <= before + 2:
        assert process.poll() is None
        time.sleep(0.01)

    process.terminate()
    _, errors = process.communicate(timeout=PATIENCE_S)

    assert process.returncode == 143
    assert errors.strip() == "sleeper: ended by SIGTERM; nothing more was changed"
    assert table.claims() == ()
    assert table.query().count() == 600


def test_a_damaged_file_fails_its_job(url):
    """Exit code 1, and the message names the file; the other leaf is compacted."""
    table = sleeper_package.connect(url).table("trips")
    path = table._current().files.url(table.references()[0].filename)
    with Path(path).open("r+b") as file:
        file.seek(20)
        file.write(b"???")

    done = sleeper("compact", "trips", "--instance", url)

    assert done.exit_code == 1
    assert "failed: " in done.stderr
    assert table.references()[0].filename in done.stderr
    assert "5 files became 1" in done.stdout


def test_large_leaves_are_split(url, tmp_path):
    """SPL-1: from the threshold on; `--explain` shows how large they are."""
    late = write_rows(tmp_path / "late.parquet", [{**ROWS[0], "day": 9999}])
    assert sleeper("ingest", "trips", late, "--instance", url).exit_code == 0
    none = sleeper("split", "trips", "--instance", url)
    least = "sleeper.table.partition.splitting.threshold=11"
    assert sleeper("table", "set", "trips", least, "--instance", url).exit_code == 0
    shown = json_of(sleeper("split", "trips", "--explain", "--json", "--instance", url))
    listed = sleeper("split", "trips", "--explain", "--instance", url)
    done = sleeper("split", "trips", "--instance", url)

    assert none.stdout == "no leaf partition of trips is large enough to be split\n"
    assert [size["row_count"] for size in shown] == [11, 10]
    assert "will be split" in listed.stdout
    assert " at day 1234 into " in done.stdout
    assert count(url) == 5 * len(ROWS) + 1


def test_garbage_is_deleted_after_its_delay(url):
    """GC-1: `--dry-run` names the files that would go."""
    assert sleeper("compact", "trips", "--instance", url).exit_code == 0
    early = sleeper("gc", "trips", "--dry-run", "--instance", url)
    due = sleeper("gc", "trips", "--dry-run", "--force", "--instance", url)
    names = json_of(sleeper("gc", "trips", "--dry-run", "--force", "--json", "--instance", url))
    done = sleeper("gc", "trips", "--force", "--instance", url)

    assert early.stdout == "0 files of trips would be deleted\n"
    assert due.stdout.splitlines() == [*names, "10 files of trips would be deleted"]
    assert done.stdout.startswith("deleted 10 files of trips, transaction ")
    assert count(url) == 5 * len(ROWS)


def test_small_leaves_are_merged(url):
    """What would be done can be asked; the rows are the same."""
    explained = sleeper("merge", "trips", "--below", "100", "--explain", "--instance", url)
    told = json_of(
        sleeper("merge", "trips", "--below", "100", "--explain", "--json", "--instance", url)
    )
    done = sleeper("merge", "trips", "--below", "100", "--instance", url)
    again = sleeper("merge", "trips", "--below", "100", "--instance", url)

    assert "nothing" in explained.stdout
    assert [pair["row_count"] for pair in told] == [5 * len(ROWS)]
    assert done.stdout.startswith("merged ")
    assert again.stdout == "no leaf partitions of trips are small enough to be merged\n"
    assert count(url) == 5 * len(ROWS)


def test_merged_leaves_can_be_had_as_json(url):
    """A part of a file that stands in the way is told, and is no failure."""
    table = sleeper_package.connect(url).table("trips")
    results = json_of(sleeper("merge", "trips", "--below", "100", "--json", "--instance", url))

    assert [result["reason"] for result in results] == [None]
    assert table.split_points() == []


def test_files_of_killed_jobs_are_swept(url):
    """Once they are old enough; a dry run only names them."""
    table = sleeper_package.connect(url).table("trips")
    name = "data/partition_x/killed.parquet"
    table._current().files.put(name, b"half a file")

    early = sleeper("sweep", "trips", "--instance", url)
    planned = sleeper("sweep", "trips", "--dry-run", "--force", "--instance", url)
    told = json_of(sleeper("sweep", "trips", "--dry-run", "--force", "--json", "--instance", url))
    done = sleeper("sweep", "trips", "--force", "--instance", url)

    assert early.stdout == "deleted 0 files of trips that no commit names\n"
    assert planned.stdout == f"{name}\nwould delete 1 file of trips that no commit names\n"
    assert [orphan["key"] for orphan in told["orphans"]] == [name]
    assert done.stdout == "deleted 1 file of trips that no commit names\n"
    assert table._current().files.read(name) is None
