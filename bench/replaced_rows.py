"""What it costs to replace and to delete rows, beside delta-rs and pyiceberg on the same rows.

Each system has the same rows in a table of its own, in four files that lie in each other. Then some
keys are replaced, half as many are deleted by a list of keys, and a hundredth of all rows by a
condition; each step in a process of its own, after it has imported what it needs. Figures are CPU
seconds, wall seconds, the growth of peak memory, and what is on disk afterwards. A plain append of
the rows that are replaced is the floor.

    python -m bench.replaced_rows --rows 1000000 --keys 100000

pyiceberg is measured where it is asked for (`--systems iceberg`): its catalog needs sqlalchemy.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import sleeper
from bench.changes import FILES, SCHEMA, rows

STEPS = ("make", "append", "replace", "delete keys", "delete where", "count")


def new_rows(row_count: int, key_count: int, first: int = 0) -> pa.Table:
    """Rows of keys all over the table, each of which it has."""
    every = row_count // key_count
    ids = np.arange(key_count, dtype="i8") * every + first
    numbers = np.full(key_count, -1, "i4")
    columns = [ids, numbers, numbers / 7, np.full(key_count, "new note")]
    return pa.table(dict(zip(SCHEMA.names, columns, strict=True)), schema=SCHEMA)


class Sleeper:
    """Ours, with four leaves."""

    def __init__(self, folder: str) -> None:
        self.instance = sleeper.connect(folder, create=True)

    def make(self, row_count: int) -> None:
        points = [row_count * n // 4 for n in (1, 2, 3)]
        table = self.instance.create_table("t", SCHEMA, row_keys=["id"], split_points=points)
        for number in range(FILES):
            table.ingest(rows(number, row_count, FILES))

    def append(self, new: pa.Table) -> None:
        self.instance.table("t").ingest(new)

    def replace(self, new: pa.Table) -> None:
        self.instance.table("t").upsert(new)

    def delete_keys(self, keys: pa.Array) -> None:
        self.instance.table("t").delete(keys=keys)

    def delete_where(self, low: int) -> None:
        self.instance.table("t").delete(where=f"n < {low} AND n >= 0")

    def count(self) -> int:
        return self.instance.table("t").query(columns=["id"], ordered=False).to_arrow().num_rows


class Delta:
    """delta-rs."""

    def __init__(self, folder: str) -> None:
        self.path = str(Path(folder) / "t")

    def _table(self) -> Any:
        from deltalake import DeltaTable  # noqa: PLC0415 - a peer

        return DeltaTable(self.path)

    def make(self, row_count: int) -> None:
        for number in range(FILES):
            self.append(rows(number, row_count, FILES))

    def append(self, new: pa.Table) -> None:
        from deltalake import write_deltalake  # noqa: PLC0415 - a peer

        write_deltalake(self.path, new, mode="append")

    def replace(self, new: pa.Table) -> None:
        merge = self._table().merge(new, "t.id = s.id", source_alias="s", target_alias="t")
        merge.when_matched_update_all().when_not_matched_insert_all().execute()

    def delete_keys(self, keys: pa.Array) -> None:
        source = pa.table({"id": keys})
        merge = self._table().merge(source, "t.id = s.id", source_alias="s", target_alias="t")
        merge.when_matched_delete().execute()

    def delete_where(self, low: int) -> None:
        self._table().delete(f"n < {low} AND n >= 0")

    def count(self) -> int:
        return int(self._table().to_pyarrow_table(columns=["id"]).num_rows)


class Iceberg:
    """pyiceberg, with its catalog in SQLite."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def _catalog(self) -> Any:
        from pyiceberg.catalog.sql import SqlCatalog  # noqa: PLC0415 - a peer

        return SqlCatalog(
            "c", uri=f"sqlite:///{self.folder}/c.db", warehouse=f"file://{self.folder}"
        )

    def _table(self) -> Any:
        return self._catalog().load_table("n.t")

    def make(self, row_count: int) -> None:
        catalog = self._catalog()
        catalog.create_namespace("n")
        table = catalog.create_table("n.t", SCHEMA)
        for number in range(FILES):
            table.append(rows(number, row_count, FILES))

    def append(self, new: pa.Table) -> None:
        self._table().append(new)

    def replace(self, new: pa.Table) -> None:
        self._table().upsert(new, join_cols=["id"])

    def delete_keys(self, keys: pa.Array) -> None:
        from pyiceberg.expressions import In  # noqa: PLC0415 - a peer

        self._table().delete(In("id", keys.to_pylist()))

    def delete_where(self, low: int) -> None:
        self._table().delete(f"n < {low} AND n >= 0")

    def count(self) -> int:
        return int(self._table().scan(selected_fields=("id",)).to_arrow().num_rows)


SYSTEMS: dict[str, Callable[[str], Any]] = {"sleeper": Sleeper, "delta": Delta, "iceberg": Iceberg}


def step(name: str, system: str, folder: str, row_count: int, key_count: int) -> dict[str, float]:
    """Do one step, and return what it cost."""
    opened = SYSTEMS[system](folder)
    new = new_rows(row_count, key_count)
    imported_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start, cpu = time.perf_counter(), time.process_time()
    found = 0
    match name:
        case "make":
            opened.make(row_count)
        case "append":  # keys that no step touches again
            others = pa.array(np.arange(key_count) - key_count)
            opened.append(new.set_column(0, SCHEMA.field(0), others))
        case "replace":
            opened.replace(new)
        case "delete keys":
            opened.delete_keys(new["id"].slice(0, key_count // 2).combine_chunks())
        case "delete where":
            opened.delete_where(100)
        case _:
            found = opened.count()
    return {
        "CPU s": time.process_time() - cpu,
        "s": time.perf_counter() - start,
        "MiB": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - imported_kib) / 1024,
        "disk MiB": sum(each.stat().st_size for each in Path(folder).rglob("*") if each.is_file())
        / 2**20,
        "rows": found,
    }


def main(row_count: int, key_count: int, systems: list[str]) -> list[str]:
    """Measure, and return the lines of the report."""
    lines = [f"{row_count:,} rows, {key_count:,} keys replaced"]
    lines.append(f"{'':10}{'':14}{'CPU s':>9}{'s':>9}{'MiB':>9}{'disk MiB':>10}")
    for system in systems:
        with tempfile.TemporaryDirectory(prefix="sleeper-bench-") as folder:
            for name in STEPS:
                with multiprocessing.get_context("spawn").Pool(1) as pool:
                    cost = pool.apply(step, (name, system, folder, row_count, key_count))
                figures = f"{cost['CPU s']:9.2f}{cost['s']:9.2f}{cost['MiB']:9.0f}"
                rows_left = f"  {cost['rows']:,} rows" if cost["rows"] else ""
                lines.append(f"{system:10}{name:14}{figures}{cost['disk MiB']:10.1f}{rows_left}")
    return lines


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--keys", type=int, default=10_000)
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=["sleeper", "delta"])
    options = parser.parse_args()
    print("\n".join(main(options.rows, options.keys, options.systems)))
