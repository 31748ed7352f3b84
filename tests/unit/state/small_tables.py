"""Small tables to begin a test with: one row key `n`, and partitions drawn as `root > L R`."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from sleeper.model.files import FileReference
from sleeper.model.partitions import Partition, split_partition
from sleeper.model.ranges import whole_region
from sleeper.model.schema import Field, Primitive, Schema
from sleeper.state.table_state import TableState
from sleeper.state.transactions.partitions import InitialisePartitions, SplitPartition

SCHEMA = Schema(row_keys=(Field("n", Primitive.LONG),))
NOON = datetime(2026, 5, 4, 12, tzinfo=UTC)
LATER = NOON + timedelta(hours=1)
MUCH_LATER = NOON + timedelta(days=30)
ROOT = Partition(partition_id="root", region=whole_region(SCHEMA))


def ref(filename, partition_id="root", row_count=100, **more):
    """A whole file of 100 rows, unless said otherwise."""
    return FileReference(filename=filename, partition_id=partition_id, row_count=row_count, **more)


def part(filename, partition_id, row_count=50, **more):
    """A share in a file, as a push-down leaves it."""
    return ref(
        filename, partition_id, row_count, row_count_estimated=True, whole_file=False, **more
    )


def split(leaf, at, *child_ids):
    """The transaction that splits a leaf into children of these names."""
    names = iter(child_ids)
    parent, lower, upper = split_partition(leaf, at, new_id=lambda: next(names))
    return SplitPartition(parent=parent, children=(lower, upper))


def after(state, *transactions, at=NOON):
    """The state after one entry for each transaction."""
    for transaction in transactions:
        state = transaction.apply(replace(state, number=state.number + 1), at)
    return state


def one_partition():
    """A table at transaction 1 with the partition `root` and no files."""
    return after(TableState.empty(), InitialisePartitions(partitions=(ROOT,)))


def two_leaves():
    """A table at transaction 2 with `root > L[..50) R[50..]` and no files."""
    return after(one_partition(), split(ROOT, 50, "L", "R"))


def plain(references):
    """References without the number of the transaction that the state gives to each file."""
    return [replace(reference, sequence=None) for reference in references]


def contents(state):
    """All of a state as plain values, whatever it looks like inside."""
    return {
        "number": state.number,
        "partitions": dict(state.partitions.partitions) if state.partitions else None,
        "merged": dict(state.partitions.merged) if state.partitions else {},
        "references": state.references(),
        "unreferenced": list(state.files.unreferenced()),
        "jobs": dict(state.jobs.records()),
        "at": state.at,
        "schemas": dict(state.schemas),
        "swept before": state.swept_before,
        "claims": dict(state.claims),
        "moved": state.moved,
        "format": state.format,
        "deletes": state.deletes,
    }


def filenames_by_partition(state):
    """Return the names of the files of each partition that has some, in order."""
    found = {}
    for each in state.references():
        found.setdefault(each.partition_id, []).append(each.filename)
    return {partition_id: tuple(names) for partition_id, names in found.items()}
