"""Look-ups in a bucket that bench.folder_bucket serves: requests, round trips, bytes and ms.

python -m bench.anchors.inside.bucket SYSTEM FOLDER QUESTIONS    FOLDER: its place in the bucket
python -m bench.anchors.inside.bucket load FOLDER INPUTS          fill a table of ours
python -m bench.anchors.inside.bucket groups FOLDER ''           a range over many row groups
python -m bench.anchors.inside.bucket threads FOLDER QUESTIONS   look-ups a second by 32 threads
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from pathlib import Path
from time import perf_counter, process_time
from typing import Any
from urllib.request import ProxyHandler, build_opener

ENDPOINT = os.environ["AWS_ENDPOINT_URL"]
STORE = {
    "aws_endpoint": ENDPOINT,
    "aws_endpoint_url": ENDPOINT,
    "aws_access_key_id": "x",
    "aws_secret_access_key": "x",
    "aws_region": "us-east-1",
    "allow_http": "true",
    "aws_allow_http": "true",
}
# This server is to be trusted as Amazon's is, where entries of a log are not read back.
AS_AMAZON = {"sleeper.id": "bench", "sleeper.statestore.commit.read.back": "never"}
WARMING, ASKED = 100, 30
THREADS, SECONDS = 32, 5.0


def sleeper_table(folder: str) -> Any:
    import sleeper  # noqa: PLC0415 - a peer's process does not import it

    return sleeper.connect(f"s3://b/{folder}/instance").table("t")


def open_sleeper(folder: str) -> Callable[[str], int]:
    table = sleeper_table(folder)
    return lambda key: table.query(key=key).to_arrow().num_rows


def open_deltalake(folder: str) -> Callable[[str], int]:
    import pyarrow as pa  # noqa: PLC0415 - only what this system needs
    from deltalake import DeltaTable, QueryBuilder  # noqa: PLC0415

    db = QueryBuilder().register("t", DeltaTable(f"s3://b/{folder}/t", storage_options=STORE))

    def look_up(key: str) -> int:
        return pa.table(db.execute(f"select * from t where key = '{key}'").read_all()).num_rows

    return look_up


def open_lance(folder: str) -> Callable[[str], int]:
    import lance  # noqa: PLC0415 - only what this system needs

    rows = lance.dataset(f"s3://b/{folder}/t.lance", storage_options=STORE)
    return lambda key: rows.to_table(filter=f"key = '{key}'").num_rows


def open_polars(folder: str) -> Callable[[str], int]:
    import polars as pl  # noqa: PLC0415 - only what this system needs

    rows = pl.scan_parquet(f"s3://b/{folder}/t/*.parquet", storage_options=STORE)
    return lambda key: len(rows.filter(pl.col("key") == key).collect())


def open_datafusion(folder: str) -> Callable[[str], int]:
    import datafusion  # noqa: PLC0415 - only what this system needs
    from datafusion.object_store import AmazonS3  # noqa: PLC0415

    pushed = "datafusion.execution.parquet.pushdown_filters"
    db = datafusion.SessionContext(datafusion.SessionConfig().set(pushed, "true"))
    store = AmazonS3(
        bucket_name="b",
        region="us-east-1",
        access_key_id="x",
        secret_access_key="x",
        endpoint=ENDPOINT,
        allow_http=True,
    )
    db.register_object_store("s3://", store, "b")
    db.register_parquet("t", f"s3://b/{folder}/t/")
    return lambda key: db.sql(f"select * from t where key = '{key}'").to_arrow_table().num_rows


OPENED = {
    "sleeper": open_sleeper,
    "deltalake": open_deltalake,
    "lance": open_lance,
    "polars": open_polars,
    "datafusion": open_datafusion,
}


class Taken:
    """What the server was asked since the last look, and the time since."""

    def __init__(self) -> None:
        self.begun_s = perf_counter()

    def since(self, times: int = 1) -> dict[str, float]:
        """Requests, round trips, MB and ms, each time."""
        took = perf_counter() - self.begun_s
        answer = build_opener(ProxyHandler({})).open(f"{ENDPOINT}/_taken", timeout=30).read()
        found = json.loads(answer)
        self.begun_s = perf_counter()
        return {
            "requests": found["requests"] / times,
            "round_trips": found["round_trips"] / times,
            "mb": found["bytes"] / times / 1e6,
            "ms": took * 1000 / times,
        }


def load(folder: str, inputs: Path) -> None:
    """Ingest each file, and compact, so that the log is as writers in Amazon's S3 keep it."""
    import sleeper  # noqa: PLC0415 - a peer's process does not import it
    from bench.peers.systems.sleeper_table import SleeperTable  # noqa: PLC0415 - ours alone

    url = f"s3://b/{folder}/instance"
    sleeper.create_instance(url, AS_AMAZON)
    system = SleeperTable(inputs, url)
    system.begin()
    for path in sorted(inputs.glob("*.parquet")):
        system.append(path)
    system.maintain()


def look_ups(system: str, folder: str, questions: Path) -> dict[str, dict[str, float]]:
    """Open and first key; then hits and misses, when indexes are in memory."""
    hits = json.loads(questions.read_text())["hits"]
    taken = Taken()
    taken.since()
    look_up = OPENED[system](folder)
    assert look_up(hits[0]) == 1
    report = {"open": taken.since()}
    for key in hits[1:WARMING]:
        look_up(key)
    taken.since()
    assert sum(map(look_up, hits[WARMING : WARMING + ASKED])) == ASKED
    report["hit"] = taken.since(ASKED)
    assert sum(look_up(key[:-1] + "~") for key in hits[WARMING : WARMING + ASKED]) == 0
    report["miss"] = taken.since(ASKED)
    return report


def first_range(folder: str) -> dict[str, dict[str, float]]:
    """A range of about thirty rows, as the first question to an open table."""
    table, taken = sleeper_table(folder), Taken()
    table.state()
    taken.since()
    assert 10 < table.query(range={"key": ("AA", "AB")}).to_arrow().num_rows < 100
    return {"range": taken.since()}


def by_threads(folder: str, questions: Path) -> dict[str, float]:
    """Look-ups a second by many threads of one process, through one table."""
    hits = json.loads(questions.read_text())["hits"]
    table = sleeper_table(folder)
    for key in hits[:WARMING]:
        table.query(key=key).to_arrow()
    keys = cycle(hits[WARMING:])
    ends = perf_counter() + SECONDS
    begun, cpu = perf_counter(), process_time()

    def ask(_: int) -> int:
        done = 0
        while perf_counter() < ends:
            done += table.query(key=next(keys)).to_arrow().num_rows
        return done

    with ThreadPoolExecutor(THREADS) as pool:
        done = sum(pool.map(ask, range(THREADS)))
    took = perf_counter() - begun
    return {"each_second": done / took, "cpu_ms": (process_time() - cpu) * 1000 / done}


if __name__ == "__main__":
    what, place = sys.argv[1:3]
    if what == "load":
        load(place, Path(sys.argv[3]))
    elif what == "groups":
        print(json.dumps(first_range(place)))
    elif what == "threads":
        print(json.dumps(by_threads(place, Path(sys.argv[3]))))
    else:
        print(json.dumps(look_ups(what, place, Path(sys.argv[3]))))
