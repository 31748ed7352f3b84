"""Reads the items of a table's state into Arrow columns and a partition tree."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from sleeper.errors import DataDamaged, QueryInvalid
from sleeper.model.files import ClaimRecord
from sleeper.model.partitions import Partition, PartitionTree
from sleeper.model.paths import IN_TABLE
from sleeper.model.schema import Schema
from sleeper.state.file_references import FileReferences
from sleeper.state.reference_rows import SCHEMA, file_rows_batch
from sleeper.state.table_state import CommittedJobs, JobRecord
from sleeper.storage.aws.dynamo_tables import DynamoTables, Item
from sleeper.storage.aws.state.staged_commit import NOTHING_STAGED, StagedChanges, StagedPiece
from sleeper.storage.aws.state.state_items import (
    CLAIM,
    COMMITS,
    FILES,
    JOB,
    MERGED,
    PARTITIONS,
    REFERENCES,
    STAGED,
    claims_of,
    is_hashed,
    job_of,
    merged_of,
    partition_of,
    text,
    waiting_file_of,
)

_AT_ONCE: Final = 5_000
_OF_TABLE: Final = "TableId = :table"
_READ: Final = "PartitionIdAndFileName, FileDetails"
_DETAILS: Final = 9


@dataclass(slots=True)
class OtherItems:
    """The items of a table's partitions, and of what its commits left beside files."""

    partitions: dict[str, Partition] = field(default_factory=dict)
    merged: list[tuple[int, str, str]] = field(default_factory=list)
    jobs: dict[str, JobRecord] = field(default_factory=dict)
    claims: dict[str, ClaimRecord] = field(default_factory=dict)
    staged: list[StagedPiece] = field(default_factory=list)

    def tree(self) -> PartitionTree | None:
        """Return the partition tree.

        Raises:
            DataDamaged: the partitions are not one tree.
        """
        if not self.partitions:
            return None
        roots = [each.partition_id for each in self.partitions.values() if each.parent_id is None]
        if len(roots) != 1:
            raise DataDamaged(f"its partitions have {len(roots)} roots")
        return PartitionTree(
            self.partitions, roots[0], {leaf: into for _, leaf, into in sorted(self.merged)}
        )

    def committed(self, jobs_after: int) -> tuple[CommittedJobs, tuple[str, ...]]:
        """Return the committed jobs, and the ids of those that are recorded no longer.

        Args:
            jobs_after: Jobs up to this transaction were cleared.
        """
        alive = ((name, each) for name, each in self.jobs.items() if each.number > jobs_after)
        jobs = CommittedJobs.of(alive)
        kept = CommittedJobs.of(jobs.records())
        return kept, tuple(name for name in self.jobs if kept.find(name) is None)


def read_files(
    tables: DynamoTables, table_id: str, staged: StagedChanges = NOTHING_STAGED
) -> FileReferences:
    """Read all references and unreferenced files of a table.

    Five thousand items are in memory at once, beside the columns.

    Args:
        tables: The instance's DynamoDB tables.
        table_id: The Sleeper table.
        staged: Changes of the last commit that are put over the items.

    Raises:
        DataDamaged: an item cannot be read.
    """
    of_table = {":table": text(table_id)}
    items = tables.query(REFERENCES, _OF_TABLE, of_table, ProjectionExpression=_READ)
    newest = staged.over(REFERENCES, items)
    held = pa.Table.from_batches(_batches(newest, tables.name(REFERENCES)), _PLAIN)
    order = pc.sort_indices(held, [("partition_id", "ascending"), ("filename", "ascending")])
    held = held.take(order).cast(SCHEMA)
    waiting = tables.query(
        FILES,
        _OF_TABLE,
        {**of_table, ":none": {"N": "0"}},
        FilterExpression="#references = :none",
        ExpressionAttributeNames={"#references": "References"},
    )
    waiting = (each for each in staged.over(FILES, waiting) if each["References"] == {"N": "0"})
    unreferenced = dict(_each(waiting, waiting_file_of, tables.name(FILES), "FileName"))
    whole = pa.concat_tables([pa.Table.from_batches([file_rows_batch((), unreferenced)]), held])
    names = whole.column("filename")
    if not pc.all(pc.match_substring_regex(names, rf"\A{IN_TABLE}\z"), min_count=0).as_py():
        raise DataDamaged("its items name data files outside the table's folder")
    try:
        return FileReferences.from_arrow(whole)
    except ValueError as error:
        raise DataDamaged(str(error)) from error


def read_others(
    tables: DynamoTables, table_id: str, schema: Schema, staged: StagedChanges = NOTHING_STAGED
) -> OtherItems:
    """Read partitions, committed jobs, claims and merged leaves of a table.

    Args:
        tables: The instance's DynamoDB tables.
        table_id: The Sleeper table.
        schema: Its schema.
        staged: Changes of the last commit that are put over the items.

    Raises:
        DataDamaged: an item cannot be read.
    """
    found = OtherItems()
    of_table = {":table": text(table_id)}
    items = tables.query(PARTITIONS, _OF_TABLE, of_table)
    read = partial(partition_of, schema=schema)
    newest = staged.over(PARTITIONS, items)
    for partition in _each(newest, read, tables.name(PARTITIONS), "PartitionId"):
        found.partitions[partition.partition_id] = partition

    def sort_in(item: Item) -> None:
        key: str = item["Id"]["S"]
        if key.startswith(JOB):
            job_id, record = job_of(item)
            found.jobs[job_id] = record
        elif key.startswith(CLAIM):
            found.claims.update(claims_of(item))
        elif key.startswith(MERGED):
            found.merged.append(merged_of(item))
        elif key.startswith(STAGED):
            found.staged.append(StagedPiece.of(item))

    items = tables.query(COMMITS, _OF_TABLE, of_table)
    for _ in _each(staged.over(COMMITS, items), sort_in, tables.name(COMMITS), "Id"):
        pass
    return found


_PLAIN = SCHEMA.set(1, pa.field("partition_id", pa.large_string()))


def _batches(items: Iterator[Item], table: str) -> Iterator[pa.RecordBatch]:
    while some := list(islice(items, _AT_ONCE)):
        with _damage(table, "PartitionIdAndFileName", some[0], some[-1]):
            yield _batch(some)


def _batch(items: list[Item]) -> pa.RecordBatch:
    """Return references as a batch, with one call of Python's JSON for all."""
    details = json.loads(f"[{','.join(item['FileDetails']['S'] for item in items)}]")
    keys = [item["PartitionIdAndFileName"]["S"] for item in items]
    pairs = [
        more[_DETAILS:] if is_hashed(key) else key.split("|", 1)
        for key, more in zip(keys, details, strict=True)
    ]
    partition_ids, names = zip(*pairs, strict=True)
    updated, rows, estimated, whole, jobs, *others = zip(
        *(each[:_DETAILS] for each in details), strict=True
    )
    values: list[Iterable[Any]] = [
        names,
        partition_ids,
        rows,
        estimated,
        whole,
        jobs,
        updated,
        *others,
    ]
    columns = []
    for field_, each in zip(_PLAIN, values, strict=True):
        kind = pa.int64() if field_.name == "updated" else field_.type
        columns.append(pa.array(each, kind).cast(field_.type))
    return pa.RecordBatch.from_arrays(columns, schema=_PLAIN)


def _each(items: Iterator[Item], read: Any, table: str, key: str) -> Iterator[Any]:
    for item in items:
        with _damage(table, key, item, item):
            found = read(item)
        yield found


@contextmanager
def _damage(table: str, key: str, first: Item, last: Item) -> Iterator[None]:
    try:
        yield
    except (ValueError, TypeError, LookupError, QueryInvalid, pa.ArrowException) as error:
        which = repr(first.get(key, {}).get("S"))
        if last is not first:
            which = f"between {which} and {last.get(key, {}).get('S')!r}"
        raise DataDamaged(
            f"an item of table {table} ({which}) cannot be read: {type(error).__name__}: {error}"
        ) from error
