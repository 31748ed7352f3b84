"""What SQL costs: rows by keys and counts beside `query` and `count`, others beside DataFusion.

Each question is asked in turns with the one beside it, in one process; CPU time of all threads, the
least of several runs. DataFusion alone does not check pages, nor merge or process rows, so it is
how fast the files could be read.

    python -m bench.sql --rows 2000000
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from time import process_time

import datafusion
import numpy as np
import pyarrow as pa

import sleeper

RUNS = 7
KEYS = 200
SCHEMA = pa.schema(
    [
        pa.field("key", pa.string(), nullable=False),
        pa.field("n", pa.int64()),
        pa.field("kind", pa.string()),
        pa.field("x", pa.float64()),
    ]
)


def main() -> None:
    """Print a line for each question: milliseconds of CPU, ours and beside it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    row_count = parser.parse_args().rows
    with tempfile.TemporaryDirectory(prefix="bench-sql-") as folder:
        instance = sleeper.connect(folder, create=True)
        table = instance.create_table("t", SCHEMA, row_keys=["key"], split_points=["user-0001"])
        for number in range(2):
            table.ingest(rows(row_count // 2, number))
        name = "datafusion.execution.listing_table_ignore_subdirectory"
        context = datafusion.SessionContext(datafusion.SessionConfig().set(name, "false"))
        context.register_parquet("t", f"{folder}/{table.table_id}/data/")
        print(f"{row_count:,} rows, CPU ms{'SQL':>14}{'beside':>10}")
        for name, (ours, other) in questions(table, context, row_count).items():
            print(f"{name:<32}" + "".join(f"{each:>10.2f}" for each in least(ours, other)))


def questions(
    table: sleeper.Table, context: datafusion.SessionContext, row_count: int
) -> dict[str, tuple[Callable[[], None], Callable[[], None]]]:
    """Return each question, and what is asked beside it."""
    keys = [f"user-{place:010}" for place in range(0, row_count, row_count // KEYS)][:KEYS]

    def by_key(ask: Callable[[str], sleeper.Rows]) -> Callable[[], None]:
        def run() -> None:
            assert all(ask(key).to_arrow().num_rows == 1 for key in keys)

        return run

    look_up = by_key(lambda key: table.query(key=key))
    asked = {
        "a key, x200": (by_key(lambda key: table.sql(by(key))), look_up),
        "a key by where=, x200": (by_key(lambda key: table.query(where=where(key))), look_up),
    }
    rows_by_key = "', '".join(keys[:5])
    low, high = keys[KEYS // 2], f"{keys[KEYS // 2][:-3]}999"
    plain: dict[str, tuple[str, Callable[[], object]]] = {
        "5 keys by IN, x20": (
            f"SELECT * FROM t WHERE key IN ('{rows_by_key}')",
            lambda: table.query(keys=keys[:5]).to_arrow(),
        ),
        "a range by BETWEEN, x20": (
            f"SELECT * FROM t WHERE key BETWEEN '{low}' AND '{high}'",
            lambda: table.query(range={"key": (low, f"{high}0")}, ordered=False).to_arrow(),
        ),
        "count(*), x20": ("SELECT count(*) FROM t", table.count),
        "the first 10 rows, x20": (
            "SELECT * FROM t LIMIT 10",
            lambda: table.query(limit=10).to_arrow(),
        ),
    }
    for name, (statement, call) in plain.items():
        asked[name] = (
            lambda statement=statement: [table.sql(statement).to_arrow() for _ in range(20)],
            lambda call=call: [call() for _ in range(20)],
        )
    statements = {
        "rows by a condition on a value": "SELECT * FROM t WHERE n < 524",
        "sum of a column": "SELECT sum(n) FROM t",
        "sums of 50 groups": "SELECT kind, sum(n), avg(x) FROM t GROUP BY kind",
        "sum by a condition on a value": "SELECT sum(x) FROM t WHERE n < 100",
        "count of a prefix": "SELECT count(*) FROM t WHERE key LIKE 'user-00000%'",
    }
    for name, statement in statements.items():
        asked[name] = (
            lambda statement=statement: table.sql(statement).to_arrow(),
            lambda statement=statement: context.sql(statement).to_arrow_table(),
        )
    return asked


def by(key: str) -> str:
    """Return the statement that selects the row of a key."""
    return f"SELECT * FROM t WHERE {where(key)}"


def where(key: str) -> str:
    """Return the condition of a key."""
    return f"key = '{key}'"


def least(*calls: Callable[[], None]) -> list[float]:
    """Return the least milliseconds of CPU of each call, made in turns."""
    took: list[list[float]] = [[] for _ in calls]
    for _ in range(RUNS):
        for call, found in zip(calls, took, strict=True):
            started = process_time()
            call()
            found.append((process_time() - started) * 1000)
    return [min(found) for found in took]


def rows(count: int, number: int) -> pa.Table:
    """Return every second row, from `number` on."""
    places = np.arange(count) * 2 + number
    return pa.table(
        {
            "key": pa.array([f"user-{place:010}" for place in places.tolist()]),
            "n": pa.array(places * 7919 % 65537),
            "kind": pa.array([f"kind-{place % 50}" for place in places.tolist()]),
            "x": pa.array(places / 8),
        },
        schema=SCHEMA,
    )


if __name__ == "__main__":
    main()
