"""TPC-H by SQL: its 22 questions, beside DuckDB and DataFusion over Parquet files of the same rows.

    python -m bench.tpch --scale 1 --runs 3 --queries 1 3 9

Each question is asked in turns, in one process; CPU seconds of all threads, the least of the runs.
Our answers are compared with DuckDB's first: numbers up to 1e-6 of them, for some are rounded.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import process_time
from typing import Any, Final

import datafusion
import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

import sleeper
from bench.tpch_data import tpch_data
from bench.tpch_questions import QUESTIONS

KEYS: Final = {
    "region": ["r_regionkey"],
    "nation": ["n_nationkey"],
    "supplier": ["s_suppkey"],
    "customer": ["c_custkey"],
    "part": ["p_partkey"],
    "partsupp": ["ps_partkey", "ps_suppkey"],
    "orders": ["o_orderkey"],
    "lineitem": ["l_orderkey", "l_linenumber"],
}


def main() -> None:
    """Print a line for each question."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1, help="1 is 6 million rows of lineitem")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--queries", type=int, nargs="*", default=[*QUESTIONS])
    parser.add_argument("--instance", type=Path, help="where tables are made, or were made before")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-tpch-") as folder:
        ways = ways_to_ask(tpch_data(asked.scale), asked.instance or Path(folder))
        print(f"{'CPU s':>6}" + "".join(f"{name:>12}" for name in ways) + f"{'ours/DuckDB':>14}")
        ratios = []
        for number in asked.queries:
            check(number, ways)
            took = least(QUESTIONS[number], [*ways.values()], asked.runs)
            ratios.append(took[0] / took[1])
            print(
                f"{number:>6}"
                + "".join(f"{each:>12.3f}" for each in took)
                + f"{ratios[-1]:>14.2f}",
                flush=True,
            )
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        print(f"geometric mean {mean:.2f}, most {max(ratios):.2f}")


Ask = Callable[[str], pa.Table]


def ways_to_ask(data: Path, folder: Path) -> dict[str, Ask]:
    """Return what answers a statement, by its name: ours, DuckDB and DataFusion."""
    instance = sleeper.connect(folder, create=True)
    there = {each.name for each in instance.tables()}
    duck, fusion = duckdb.connect(), datafusion.SessionContext()
    for name, keys in KEYS.items():
        path = data / f"{name}.parquet"
        if name not in there:
            rows = pq.read_table(path)
            fields = [
                field.with_type(pa.string()) if field.type == pa.string_view() else field
                for field in rows.schema
            ]
            schema = pa.schema(fields)
            instance.create_table(name, schema, row_keys=keys).ingest(rows.cast(schema))
        duck.execute(f"CREATE VIEW {name} AS SELECT * FROM read_parquet('{path}')")
        fusion.register_parquet(name, path)
    return {
        "ours": lambda statement: instance.sql(statement).to_arrow(),
        "DuckDB": lambda statement: duck.sql(statement).to_arrow_table(),
        "DataFusion": lambda statement: fusion.sql(statement).to_arrow_table(),
    }


def check(number: int, ways: dict[str, Ask]) -> None:
    """Check that our answer is DuckDB's, in its order where the question says one.

    Raises:
        AssertionError: it is not.
    """
    ours, theirs = (ways[name](QUESTIONS[number]).to_pylist() for name in ("ours", "DuckDB"))
    assert len(ours) == len(theirs), f"question {number}: {len(ours)} rows for {len(theirs)}"
    for place, (own, other) in enumerate(zip(ours, theirs, strict=True)):
        pairs = zip(own.values(), other.values(), strict=True)
        assert all(same(*pair) for pair in pairs), f"question {number}, {place}: {own}, {other}"


def same(own: Any, other: Any) -> bool:
    """Return whether two values are the same, up to rounding."""
    if own is None or other is None or isinstance(own, str):
        return bool(own == other)
    try:
        return math.isclose(own, other, rel_tol=1e-6, abs_tol=1e-6)
    except TypeError:  # dates
        return bool(own == other)


def least(statement: str, ways: list[Ask], runs: int) -> list[float]:
    """Return the least CPU seconds of each way."""
    took: list[list[float]] = [[] for _ in ways]
    for _ in range(runs):
        for ask, found in zip(ways, took, strict=True):
            started = process_time()
            ask(statement)
            found.append(process_time() - started)
    return [min(found) for found in took]


if __name__ == "__main__":
    main()
