"""A table in Spark: `to_spark`, catalog and data source, beside Spark's own Parquet reader.

All of them read the same files, one in each of 16 leaves; a sum is also taken over files that Spark
itself wrote. Spark's own reader gets the names of the files, and nothing of the table. CPU is that
of the JVM and of all Python workers. Each question is asked once to warm up, then five times;
figures are medians.

    python -m bench.spark_read --rows 2000000
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import pyarrow as pa

import sleeper
from bench.random_rows import SCHEMA, rows, split_points

LEAVES = 16
RANGE = ("B0", "B4")  # 4 of 4,096 beginnings of a key
SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.log.level": "ERROR",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def main(row_count: int = 2_000_000) -> list[str]:
    """Measure, and return the lines of the report."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 - an extra

    os.environ["PYSPARK_PYTHON"] = sys.executable
    folder = Path(tempfile.mkdtemp(prefix="sleeper-bench-"))
    builder = SparkSession.builder.master("local[2]")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    try:
        instance, table, key = make_table(folder, row_count)
        return measure(spark, instance, table, key)
    finally:
        spark.stop()
        shutil.rmtree(folder)


def make_table(folder: Path, row_count: int) -> tuple[sleeper.Instance, sleeper.Table, str]:
    """Return a table of one file in each leaf, its instance, and a key that is in it."""
    instance = sleeper.connect(folder / "instance", create=True)
    table = instance.create_table(
        "bench", SCHEMA, row_keys=["key"], sort_keys=["ts"], split_points=split_points(LEAVES)
    )
    table.ingest(pa.RecordBatchReader.from_batches(SCHEMA, rows(row_count, seed=1)))
    return instance, table, table.query(range={"key": RANGE}).to_arrow()["key"][0].as_py()


def measure(spark: Any, instance: sleeper.Instance, table: sleeper.Table, key: str) -> list[str]:
    """Ask four questions of each way."""
    files = [table.open_for_spark().table_files.files.url(r.filename) for r in table.references()]
    limits = f"key >= '{RANGE[0]}' and key < '{RANGE[1]}'"
    asked = {"instance": str(table._context.url), "table": table.name}

    def source(**options: str) -> Any:
        return spark.read.format("sleeper").options(**asked, **options).load()

    def regions(low: str, high: str, *, both: bool) -> str:
        inclusive = str(both).lower()
        return f'[{{"key": {{"min": "{low}", "max": "{high}", "maxInclusive": {inclusive}}}}}]'

    def catalog(question: str) -> Any:
        return spark.sql(question.format(table="sleeper.bench"))

    sleeper.spark.register(spark, instance)
    sleeper.spark.add_catalog(spark, instance)
    by_source = spark.read.option("regions", "[{}]").table  # Spark's reader knows no regions
    plain = spark.read.schema(table.to_spark(spark).schema).parquet
    own = _written_by_spark(plain(*files), Path(files[0]).parents[4] / "by-spark")
    questions: dict[str, dict[str, Callable[[], Any]]] = {
        "full scan": {
            "Spark's Parquet": lambda: _consume(plain(*files)),
            "to_spark": lambda: _consume(table.to_spark(spark)),
            "catalog": lambda: _consume(spark.table("sleeper.bench")),
            "data source": lambda: _consume(source()),
        },
        "key range": {
            "Spark's Parquet": lambda: plain(*files).filter(limits).toArrow().num_rows,
            "to_spark": lambda: table.to_spark(spark, range={"key": RANGE}).toArrow().num_rows,
            "catalog": lambda: (
                catalog(f"SELECT * FROM {{table}} WHERE {limits}").toArrow().num_rows
            ),
            "data source": lambda: source(regions=regions(*RANGE, both=False)).toArrow().num_rows,
        },
        "one key": {
            "Spark's Parquet": lambda: plain(*files).filter(f"key = '{key}'").toArrow().num_rows,
            "to_spark": lambda: table.to_spark(spark, key=key).toArrow().num_rows,
            "catalog": lambda: (
                catalog(f"SELECT * FROM {{table}} WHERE key = '{key}'").toArrow().num_rows
            ),
            "data source": lambda: source(regions=regions(key, key, both=True)).toArrow().num_rows,
        },
        "sum of a column": {
            "Spark's Parquet": lambda: _sum(plain(*files)),
            "files of Spark": lambda: _sum(plain(own)),
            "to_spark": lambda: _sum(table.to_spark(spark)),
            "view": lambda: spark.sql("SELECT sum(n) FROM bench").collect()[0][0],
            "catalog": lambda: catalog("SELECT sum(n) FROM {table}").collect()[0][0],
            "catalog, data source": lambda: _sum(by_source("sleeper.bench")),
            "data source": lambda: _sum(source()),
            "data source, columns": lambda: _sum(source(columns="n")),
        },
    }
    lines = [f"{'':38} {'CPU s':>7} {'wall s':>7} {'/ Parquet':>10}"]
    for question, ways in questions.items():
        answers, floor = set(), 0.0
        for way, ask in ways.items():
            answer, cpu, wall = _timed(ask)
            answers.add(answer)
            floor = floor or cpu
            lines.append(f"{question + ', ' + way:38} {cpu:7.2f} {wall:7.2f} {cpu / floor:10.2f}")
        assert len(answers) == 1, (question, answers)
    return lines


def _written_by_spark(frame: Any, folder: Path) -> str:
    """Write the same rows as Spark does by itself, sorted, to as many files; return where."""
    frame.repartitionByRange(LEAVES, "key").sortWithinPartitions("key", "ts").write.parquet(
        str(folder), compression="zstd"
    )
    return str(folder)


def _consume(frame: Any) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _sum(frame: Any) -> int:
    total: int = frame.selectExpr("sum(n)").collect()[0][0]
    return total


def _timed(ask: Callable[[], Any]) -> tuple[Any, float, float]:
    answer = ask()
    runs = []
    for _ in range(5):
        started, cpu = perf_counter(), _cpu_seconds()
        ask()
        runs.append((_cpu_seconds() - cpu, perf_counter() - started))
    return answer, median(run[0] for run in runs), median(run[1] for run in runs)


def _cpu_seconds() -> float:
    """The CPU seconds of this process and of all below it, those that ended included."""
    parents: dict[str, str] = {}
    seconds: dict[str, float] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended
            fields = stat.read_text().rpartition(")")[2].split()
            parents[stat.parent.name] = fields[1]
            seconds[stat.parent.name] = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return sum(spent for process, spent in seconds.items() if _is_below(process, parents))


def _is_below(process: str, parents: dict[str, str]) -> bool:
    while process != str(os.getpid()) and process in parents:
        process = parents[process]
    return process == str(os.getpid())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    print("\n".join(main(parser.parse_args().rows)))
