"""Random tables whose rows are deleted and replaced, as Spark reads, compacts and exports them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

from tests.random_tables.questions import inside, random_request
from tests.random_tables.random_table import RandomTable, bounds_as_they_were, random_table
from tests.random_tables.table_model import Row, comparable_rows
from tests.soak import FIRST_SEED, tries

TABLES = tries(2, soak=60)
STEPS = 8


def rows_of(frame: DataFrame, shown: pa.Schema) -> Counter[tuple[object, ...]]:
    """Return the rows of a frame by their columns' names, as the table's own types have them."""
    read = frame.toArrow()
    columns = [read[each.name].cast(each.type) for each in shown]
    listed = pa.table(columns, schema=shown).to_pylist(maps_as_pydicts="strict")
    return Counter(comparable_rows(listed))


def check(spark, table: RandomTable) -> None:
    """Compare what Spark reads with the model: all rows, those of ranges, and some columns."""
    rows, shown = table.model.shown(), table.table.arrow_schema
    wanted = Counter(comparable_rows(rows))
    source = spark.read.format("sleeper").options(instance=table.instance.url, table="t")

    assert rows_of(table.table.to_spark(spark), shown) == wanted
    assert rows_of(source.load(), shown) == wanted
    request = random_request(table.pick, table.schema, table.source, rows)
    found: list[Row] = [row for row in rows if inside(row, request)]
    asked = table.table.to_spark(spark, range=request)
    assert rows_of(asked, shown) == Counter(comparable_rows(found)), request
    assert table.table.to_spark(spark, columns=[table.schema.columns[0]]).count() == len(rows)


@pytest.mark.soak
@pytest.mark.parametrize("number", range(TABLES))
def test_spark_reads_what_is_left_of_rows_that_changed(spark, number):
    """
    Given a table of any schema and processing whose rows were ingested, replaced and deleted by
    chance, then frames and the data source have the rows of the model, before and after all leaves
    are compacted by tasks of Spark, and so has what Spark's tasks export.
    """
    seed = FIRST_SEED + number
    with TemporaryDirectory(prefix="changed-rows-") as folder, bounds_as_they_were():
        table = random_table(seed, Path(folder), in_folder=True)
        try:
            for _ in range(STEPS):
                table.step()
            check(spark, table)
            exported = Path(folder, "exported")
            done = table.table.export(exported, spark=spark)
            assert done.rows == len(table.model.shown())
            summary = table.table.compact(all_files=True, spark=spark)
            assert [each.failure for each in summary.jobs if each.failure is not None] == []
            check(spark, table)
            table.verify()
        except BaseException as error:
            error.add_note(f"seed {seed}: {table.schema}, {table.properties}; {table.log}")
            raise
    print(f"seed {seed}: {table.log}")  # noqa: T201 - pytest -rP shows how much was tried
