"""Published tables of any schema, as Spark reads them by delta-spark and iceberg-spark-runtime.

Both have releases for Spark 4.0, and none yet for the newest: so these tests run on Spark 4.0 alone.
"""

from __future__ import annotations

import json
import select
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from pyarrow import feather

import sleeper
from sleeper.engine.published import delta, iceberg
from sleeper.errors import NothingToPublish
from sleeper.model.schema import Primitive, plain_kinds
from tests.contracts.servers.installed import ROOT, SPARK_JARS
from tests.patience import PATIENCE_S
from tests.random_tables.random_table import RandomTable, bounds_as_they_were, random_table
from tests.random_tables.table_model import Row, comparable_rows
from tests.soak import FIRST_SEED, tries
from tests.spark.published_reader import READ

pytestmark = pytest.mark.every_spark

TABLES = tries(6, soak=300)
STEPS = 7
READ_MAX_S = PATIENCE_S + 60 * TABLES


@dataclass
class Published:
    """A table that Spark is to read, and the rows that it is to have."""

    seed: int
    format: str
    location: str
    shown: pa.Schema
    rows: list[Row]
    has_times: bool


def published_tables(folder: Path) -> list[Published]:
    """Make random tables, change and publish them, in each format that takes them."""
    with bounds_as_they_were():
        return [*_published_tables(folder)]


def _published_tables(folder: Path) -> Iterator[Published]:
    for seed in range(FIRST_SEED, FIRST_SEED + TABLES):
        home = folder / f"{seed}"
        home.mkdir()
        table = random_table(seed, home, in_folder=True)
        for _ in range(STEPS):
            table.step()
        if not table.processing.filters:
            for name in ("delta", "iceberg"):
                if (each := published(table, seed, name)) is not None:
                    yield each


def published(table: RandomTable, seed: int, name: str) -> Published | None:
    """Publish a table; return None where there is nothing to publish."""
    if {"delta": delta, "iceberg": iceberg}[name].unpublishable_fields(table.schema):
        return None
    make_clean = Random(seed).random() < 0.7
    try:
        done = table.table.publish(name, make_clean=make_clean)
    except NothingToPublish:
        assert not make_clean
        return None
    if done.lag:
        return None
    kinds = {kind for field in table.schema.fields for kind in plain_kinds(field.type)}
    return Published(
        seed=seed,
        format=name,
        location=done.location,
        shown=table.table.arrow_schema,
        rows=table.model.shown(),
        has_times=Primitive.TIME in kinds,
    )


class Reader:
    """A process with a Spark that has the jars."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process, self._log = process, log

    def read(self, tables: list[Published], folder: Path) -> list[Path]:
        """Have Spark read all tables; return where their rows are."""
        outs = [folder / f"{number}.arrow" for number in range(len(tables))]
        asked = [
            {"format": each.format, "location": each.location, "out": str(out)}
            for each, out in zip(tables, outs, strict=True)
        ]
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        there, _, _ = select.select([self._process.stdout], [], [], READ_MAX_S)
        assert there, "no answer from Spark"
        answer = self._process.stdout.readline()
        assert answer == f"{READ}\n", answer + self._log.read_text()[-3000:]
        return outs


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    """One Spark for all tables; it ends with its input."""
    log = tmp_path_factory.mktemp("reader") / "log"
    command = [sys.executable, "-m", "tests.spark.published_reader", str(SPARK_JARS.require())]
    with (
        log.open("w") as said,
        subprocess.Popen(
            command,
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
        ) as process,
    ):
        yield Reader(process, log)
    assert process.returncode == 0, log.read_text()[-3000:]


@pytest.mark.soak
def test_spark_reads_the_rows_that_the_table_has(reader, tmp_path):
    """
    Given tables of any types and processing that were changed and published, when Spark reads them
    as Delta and as Iceberg, then it has exactly the rows of the table, in its columns; a column of
    times of day, which Spark 4.0 has no type for, is refused by name.
    """
    tables = published_tables(tmp_path)
    differ = []
    for table, out in zip(tables, reader.read(tables, tmp_path), strict=True):
        if table.has_times:
            assert "time" in out.with_suffix(".txt").read_text().lower()
            continue
        if not out.exists():
            differ.append((table, out.with_suffix(".txt").read_text()[:500]))
            continue
        read = feather.read_table(out)
        assert read.schema.names == table.shown.names
        found = pa.table([read[each.name].cast(each.type) for each in table.shown], table.shown)
        rows = comparable_rows(found.to_pylist(maps_as_pydicts="strict"))
        if Counter(rows) != Counter(comparable_rows(table.rows)):
            differ.append((table, "other rows"))
    assert [(each.seed, each.format, why) for each, why in differ] == []
    print(f"{Counter(table.format for table in tables)} tables read")  # noqa: T201
    assert {table.format for table in tables} == {"delta", "iceberg"}


def test_spark_reads_what_is_left_after_a_split_and_a_deletion(reader, tmp_path):
    """
    Given a table whose leaves share a file, and a deleted key, when it is published clean, then
    Spark reads each row once, and none that was deleted.
    """
    instance = sleeper.connect(tmp_path / "instance", create=True)
    shown = pa.schema([pa.field("id", pa.int64(), False), pa.field("n", pa.string(), False)])
    tables = []
    for name in ("delta", "iceberg"):
        table = instance.create_table(name, shown, row_keys=["id"])
        table.ingest([{"id": n, "n": str(n)} for n in range(1000)])
        table.set_properties({"sleeper.table.partition.splitting.threshold": 100})
        assert table.split_partitions()
        table.delete(key=7)
        location = table.publish(name, make_clean=True).location
        rows = [{"id": n, "n": str(n)} for n in range(1000) if n != 7]
        tables.append(Published(0, name, location, shown, rows, has_times=False))

    read = [feather.read_table(out) for out in reader.read(tables, tmp_path)]

    for rows, table in zip(read, tables, strict=True):
        assert sorted(rows.to_pylist(), key=lambda row: row["id"]) == table.rows
