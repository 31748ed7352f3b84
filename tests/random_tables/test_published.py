"""Tables of any schema, published while they change, are read by other engines as the model has them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import deltalake
import polars as pl
import pyarrow as pa
import pytest
from pyiceberg.table import StaticTable

from sleeper.engine.published import delta, iceberg
from sleeper.errors import BadRequest, NothingToPublish
from tests.random_tables.random_table import RandomTable, random_table
from tests.random_tables.table_model import comparable_rows
from tests.soak import FIRST_SEED, tries

TABLES = tries(24, soak=3_000)
CHUNKS = 6
STEPS = 9


def by_delta_rs(location: str, schema: pa.Schema) -> pa.Table:
    """Return the rows of a Delta table by delta-rs."""
    table = deltalake.DeltaTable(location)
    engine = deltalake.QueryBuilder().register("t", table)
    return pa.table(engine.execute("SELECT * FROM t").read_all())


def by_polars(location: str, schema: pa.Schema) -> pa.Table:
    """Return the rows of a Delta table by polars."""
    return pl.scan_delta(location).collect().to_arrow()


def by_pyiceberg(location: str, schema: pa.Schema) -> pa.Table:
    """Return the rows of an Iceberg table by pyiceberg, from its newest metadata."""
    folder = Path(location.removeprefix("file://"), "metadata")
    newest = folder / f"v{(folder / 'version-hint.text').read_text()}.metadata.json"
    return StaticTable.from_metadata(str(newest)).scan().to_arrow()


READERS: dict[str, tuple[Callable[[str, pa.Schema], pa.Table], ...]] = {
    "delta": (by_delta_rs, by_polars),
    "iceberg": (by_pyiceberg,),
}


class PublishedTable:
    """A random table, and what was published of it."""

    def __init__(self, table: RandomTable) -> None:
        self.table = table
        self.published: dict[str, int] = {}
        self.told: list[str] = []

    def step(self) -> None:
        """Do one thing at random, and note which rows the table has then."""
        pick, table = self.table.pick, self.table
        if pick.random() < 0.2:
            table.log.append("gc")
            table.table.collect_garbage(force=True)
        else:
            table.step()
        table.versions[table.table.refresh()] = table.model.shown()

    def publish(self, name: str) -> None:
        """Publish, and compare what all readers of the format see, or expect a refusal."""
        table, pick = self.table, self.table.pick
        make_clean = pick.random() < 0.3
        if self._is_refused(name):
            with pytest.raises(BadRequest, match="cannot be published"):
                table.table.publish(name, make_clean=make_clean)
            self.told.append("refused")
            return
        try:
            done = table.table.publish(name, make_clean=make_clean)
        except NothingToPublish:
            if make_clean:
                raise
            self.told.append("nothing")
            return
        if make_clean:
            assert done.lag == 0
        self.told.append("published")
        table.versions[table.table.refresh()] = table.model.shown()
        number = done.transaction if done.lag else max(table.versions)
        self.check(name, done.location, number)

    def check(self, name: str, location: str, number: int) -> None:
        """Compare what readers see with the rows of a transaction."""
        shown = self.table.table.arrow_schema
        wanted = Counter(comparable_rows(self._rows_at(number)))
        for reader in READERS[name]:
            read = reader(location, shown)
            assert read.schema.names == shown.names
            found = as_shown(read, shown)
            rows = comparable_rows(found.to_pylist(maps_as_pydicts="strict"))
            assert Counter(rows) == wanted, reader.__name__

    def _rows_at(self, number: int) -> list[dict[str, Any]]:
        known = max(each for each in self.table.versions if each <= number)
        return self.table.versions[known]

    def _is_refused(self, name: str) -> bool:
        return bool(
            self.table.processing.filters or FORMATS[name].unpublishable_fields(self.table.schema)
        )


FORMATS = {"delta": delta, "iceberg": iceberg}


def as_shown(read: pa.Table, shown: pa.Schema) -> pa.Table:
    """Return rows with the table's own types: readers have others of the same values."""
    return pa.table([read[each.name].cast(each.type) for each in shown], schema=shown)


def run(seed: int) -> list[str]:
    """Make the table of a seed, change and publish it; return what came of publishing."""
    with TemporaryDirectory(prefix="published-table-") as folder:
        table = random_table(seed, Path(folder), in_folder=True)
        published = PublishedTable(table)
        pick = Random(seed)
        try:
            for _ in range(STEPS):
                published.step()
                if pick.random() < 0.5:
                    published.publish(pick.choice([*READERS]))
            table.verify()
        except BaseException as error:
            error.add_note(f"seed {seed}: {table.schema}, {table.properties}; {table.log}")
            raise
        return published.told


@pytest.mark.soak
@pytest.mark.parametrize("number", range(CHUNKS))
def test_readers_of_others_see_the_rows_of_the_version_that_is_published(number):
    """
    Whatever the types and processing, and whatever was ingested, compacted, split, merged and
    deleted as garbage: each reader has exactly the rows of the published transaction, or publishing
    is refused for a reason that is told.
    """
    size = TABLES // CHUNKS
    failures, told = {}, Counter()
    for seed in range(FIRST_SEED + number * size, FIRST_SEED + (number + 1) * size):
        try:
            told.update(run(seed))
        except Exception as error:  # noqa: BLE001 - the others are to run as well
            failures[seed] = repr(error)

    print(f"{size} tables from seed {FIRST_SEED + number * size} on: {dict(told)}")  # noqa: T201
    assert failures == {}
