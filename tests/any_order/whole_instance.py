"""A whole instance in a test's hands: how to open one, and what must always hold of it.

The checks read logs, listings and Parquet files for themselves, so that a mistake in the
product cannot hide behind its own mirror.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import lru_cache
from itertools import count, product
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sleeper.columns.default_values import default_value
from sleeper.columns.type_traits import arrow_type
from sleeper.instance.instance import Instance
from sleeper.model.object_stores import ObjectStoreSettings
from sleeper.model.partitions import PartitionTree
from sleeper.model.schema_changes import with_ids
from sleeper.ports.objects import Objects
from sleeper.storage.memory import MemoryObjects
from sleeper.tables.table import Table
from tests.contracts.state.places import place_at
from tests.simulated_process import simulated_process

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)


def counted_ids(start: int = 0) -> Callable[[], str]:
    """Ids in a row. Their first eight characters, which name a table, differ as well."""
    numbers = count(start)
    return lambda: f"{next(numbers):08x}-id"


def open_instance(
    objects: Objects,
    new_id: Callable[[], str],
    now: Callable[[], datetime] = lambda: NOON,
    stores: ObjectStoreSettings | None = None,
) -> Instance:
    """A process of its own on an instance's objects."""
    return Instance(
        replace(place_at(objects), stores=stores or ObjectStoreSettings()),
        {"sleeper.id": "any-order"},
        process=simulated_process(now=now, new_id=new_id),
    )


def copy_of(objects: MemoryObjects) -> MemoryObjects:
    """The same objects once more: what happens to the copy does not happen to the original."""
    copied = MemoryObjects(lambda: NOON)
    copied._bodies.by_key.update(objects._bodies.by_key)
    return copied


def image_of(objects: MemoryObjects) -> frozenset[tuple[str, bytes]]:
    """All that is stored, as one value."""
    return frozenset((key, body) for key, (body, _) in objects._bodies.by_key.items())


def multiset(rows: Iterable[tuple[Any, ...]]) -> list[str]:
    """Rows in an order of their own, so that two multisets of any types can be compared."""
    return sorted(map(repr, rows))


def as_tuples(rows: pa.Table) -> list[tuple[Any, ...]]:
    """Rows as tuples of Python values."""
    columns = [[_plain(value) for value in column.to_pylist()] for column in rows.columns]
    return [*zip(*columns, strict=True)]


def _plain(value: Any) -> Any:
    """One instant has one form, whichever object stands for UTC."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC)
    return value


def check_instance(objects: Objects, instance: Instance) -> dict[str, list[tuple[Any, ...]]]:
    """I3, I6, I7, I11: check the table index, and every table; return the rows in their files."""
    check_numbers(objects, "tables/index/")
    return {
        record.name: check_table(objects.under(record.table_id), instance.table(record.name))
        for record in instance.tables()
    }


def check_table(files: Objects, table: Table) -> list[tuple[Any, ...]]:
    """I3, I6, I7, I11, FRF-3: check one table's log, tree, files and rows; return the rows."""
    state = table.state()
    if any(files.listing("statestore/transactions/")):
        assert state.number == check_numbers(files, "statestore/transactions/")
    check_leaves_cover_the_key_space(state.tree)
    rows = rows_in_files(files, table)
    report = table.report_files()
    assert report.rows == sum(ref.row_count for ref in state.references())
    assert report.rows == sum(partition.rows for partition in table.report_partitions())
    return rows


def check_numbers(objects: Objects, prefix: str) -> int:
    """I3, STS-13: entries are numbered from 1 without a gap. Return the last number."""
    keys = [info.key for info in objects.listing(prefix)]
    assert keys == [f"{prefix}{number + 1:020d}.json" for number in range(len(keys))]
    return len(keys)


def check_leaves_cover_the_key_space(tree: PartitionTree) -> None:
    """I6: any key is in exactly one leaf. Leaves are boxes, so it is enough to ask corners."""
    leaves = [*tree.leaves()]
    corners = [
        sorted({leaf.region.ranges[dimension].min for leaf in leaves})
        for dimension in range(len(tree.root.region.ranges))
    ]
    for key in product(*corners):
        assert sum(key in leaf.region for leaf in leaves) == 1, key
    least = tuple(values[0] for values in corners)
    assert least == tuple(key_range.min for key_range in tree.root.region.ranges)


@lru_cache(maxsize=10_000)
def rows_of_parquet(body: bytes) -> list[tuple[Any, ...]]:
    """Read a data file without any code of the product. Most of them are looked at many times."""
    return as_tuples(pq.read_table(pa.BufferReader(body)))


def rows_in_files(
    files: Objects,
    table: Table,
    rows_of: Callable[[bytes], list[tuple[Any, ...]]] = rows_of_parquet,
) -> list[tuple[Any, ...]]:
    """I7, I11, FRF-3: read each row that is referenced, and check it is so once, in order.

    Rows of a file that lie in no partition that references it were compacted into another file, and
    some may be deleted.
    """
    tree = table.state().tree
    by_file: dict[str, list[Any]] = {}
    for reference in table.state().references():
        by_file.setdefault(reference.filename, []).append(reference)
    rows: list[tuple[Any, ...]] = []
    keys_wide, order_wide = len(table.schema.row_keys), len(table.schema.key_names)
    for filename, references in by_file.items():
        body = files.read(filename)
        assert body is not None, f"{filename} is referenced and missing"
        here = rows_of(body)
        assert [row[:order_wide] for row in here] == sorted(row[:order_wide] for row in here)
        regions = [tree.partition(reference.partition_id).region for reference in references]
        places = [sum(row[:keys_wide] in region for region in regions) for row in here]
        assert max(places, default=0) <= 1, (filename, here, regions)
        if any(reference.whole_file for reference in references):
            assert len(references) == 1
            assert set(places) <= {1}, (filename, here, regions)
        if not any(reference.row_count_estimated for reference in references):
            assert sum(places) == sum(reference.row_count for reference in references)
        sequence = references[0].sequence
        gone = [
            region
            for delete in table.state().deletes
            if delete.applies_to(sequence)
            for region in delete.regions
        ]
        replaced = {
            row[:keys_wide]
            for delete in table.state().deletes
            if delete.applies_to(sequence)
            for each in key_files_near(delete, references, tree)
            for row in rows_of(files.read(each.filename) or b"")
        }
        shown = _shown(table, references[0].schema_id)
        rows += [
            shown(row)
            for row, held in zip(here, places, strict=True)
            if held
            and row[:keys_wide] not in replaced
            and not any(row[:keys_wide] in region for region in gone)
        ]
    return rows


def key_files_near(delete: Any, references: Sequence[Any], tree: PartitionTree) -> list[Any]:
    """The files whose keys a deletion takes from a file, of partitions that share keys with it."""
    regions = [tree.partition(reference.partition_id).region for reference in references]
    return [
        each
        for partition_id, found in delete.key_files.items()
        if any(tree.partition(partition_id).region.overlaps(region) for region in regions)
        for each in found
    ]


def _shown(table: Table, schema_id: int | None) -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
    """What makes a row of a file, which has the columns of some schema, a row of the table."""
    own = with_ids(table.state().schemas.get(schema_id or 1, table.schema))
    places = {each.id: place for place, each in enumerate(own.fields)}
    newest = with_ids(table.schema).fields
    if [each.id for each in newest] == [*places]:
        return lambda row: row
    found = [
        (places.get(each.id), default_value(each.default, arrow_type(each.type)).as_py())
        for each in newest
    ]
    return lambda row: tuple(default if place is None else row[place] for place, default in found)


def orphans(files: Objects, table: Table) -> set[str]:
    """Objects among a table's data that no version of its state ever told of."""
    state = table.state()
    known = {reference.filename for reference in state.references()}
    known |= {filename for filename, _ in state.files.unreferenced()}
    return {info.key for info in files.listing("data/")} - known
