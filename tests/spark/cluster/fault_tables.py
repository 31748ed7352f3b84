"""Tables whose storage fails on request, and what must hold for them whatever happened."""

from __future__ import annotations

import os
from collections import Counter
from itertools import count
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import sleeper
from sleeper.instance.instance import Instance
from sleeper.storage.places import Place
from tests.spark.cluster.faulty_files import Fault, Faults, FaultyFiles, FaultyInputs, noted
from tests.spark.test_bulk_import import numbers, table_of

ROWS = numbers(0, 4000)
_NAMES = count()


class Scene:
    """An instance in a folder, an empty table of four leaves, input files, and marks of faults."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.instance = sleeper.connect(folder / "instance", create=True)
        self.table = table_of(self.instance, points=[1000, 2000, 3000])
        self.inputs = folder / "in"
        self.inputs.mkdir()
        for number in range(2):
            part = ROWS.slice(2000 * number, 2000)
            pq.write_table(part, self.inputs / f"{number}.parquet", row_group_size=500)

    def with_faults(self, *plan: Fault, driver: int | None = None, marks: str = ""):
        """Return the table as a driver sees it whose storage has faults, and the faults."""
        folder = self.folder / (marks or f"marks-{next(_NAMES)}")
        folder.mkdir(exist_ok=True)
        faults = Faults(folder, plan, os.getpid() if driver is None else driver)
        return faulty_table(self.instance, self.table.name, faults), faults

    def everything(self) -> pa.Table:
        """What a reader sees who opens the instance now."""
        return sleeper.connect(self.folder / "instance").table(self.table.name).query().to_arrow()

    def frame(self, spark, marks: Path):
        """The rows as a DataFrame of four partitions; a mark is left for each time one is read."""
        rows = spark.range(0, ROWS.num_rows, 1, 4).selectExpr("id", "2 * id AS n")
        return rows.mapInArrow(noted(marks), rows.schema)

    def add_rows_without_a_key(self, values: list[int]) -> None:
        """Add a file that is read first, of rows whose key is null."""
        nulls = pa.table({"id": pa.nulls(len(values), pa.int64()), "n": values})
        pq.write_table(nulls, self.inputs / "0-nulls.parquet")

    def frame_of_inputs(self, spark, marks: Path):
        """The input files as a DataFrame; a mark is left for each time a part of it is read."""
        rows = spark.read.parquet(str(self.inputs))
        return rows.mapInArrow(noted(marks), rows.schema)

    def files(self) -> set[str]:
        """The table's data files, and all hidden files but for locks."""
        root = self.folder / "instance"
        table = root / self.table.table_id
        inside = {str(path.relative_to(table)) for path in (table / "data").rglob("*.*")}
        hidden = {str(path.relative_to(root)) for path in root.rglob(".*/*") if path.is_file()}
        return {name for name in inside | hidden if "/turn-" not in name}

    def orphans(self) -> Counter:
        """Files that nothing references, by their kind; `.hidden` for those half written."""
        known = [reference.filename for reference in self.table.references()]
        left = self.files() - set(known)
        return Counter(Path(name).suffix or ".hidden" for name in left)

    def check_all_there(self) -> None:
        """See every row once, and every file that is referenced."""
        assert self.everything().equals(ROWS)  # both in the order of keys, which are unique
        references = self.table.references()
        assert sum(reference.row_count for reference in references) == ROWS.num_rows
        known = {reference.filename for reference in references}
        assert known <= self.files()

    def check_nothing_there(self) -> None:
        """See no row and no reference."""
        assert self.everything().num_rows == 0
        assert self.table.references() == []


def faulty_table(instance: Instance, name: str, faults: Faults):
    """Open a table on storage, and for input, with faults."""
    objects = FaultyFiles(instance._context.objects, faults)
    stores = instance._context.place.stores
    place = Place(instance.url, objects, stores)
    faulty = Instance(place, {"sleeper.id": instance.instance_id})
    faulty._context.inputs = FaultyInputs(faults, stores)
    return faulty.table(name)
