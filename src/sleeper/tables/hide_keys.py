"""Plans how the rows of many keys go: by ranges that readers leave out, or by writing leaves anew.

1. the row keys that a leaf has between the least and the greatest of the keys are read, and runs of
   rows with these keys are found (`engine.processing.touched_runs`)
2. up to 1,000 keys that rows have are left out one by one
3. else few ranges cover the runs, and the rows inside of them that stay are written to a new file:
   readers leave out what older files have there. A compaction that had read these files before
   writes them with their number of then, and stays subject to it
4. a leaf of which most rows would be written so is written anew (`write_out`), as one with ranges
   costs readers something until a compaction

A leaf without such rows is left as it is. All of it is committed in one entry, which is refused if
other rows came to one of these leaves, or went from it, since they were read.

Memory is that of the keys inside a leaf, and of a query.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

import pyarrow as pa

from sleeper.engine.processing.known_keys import RowsWithoutKeys
from sleeper.engine.processing.touched_runs import (
    RunLimits,
    TouchedRuns,
    joined_over_leaves,
    touched_runs,
)
from sleeper.engine.reading.regions import row_groups
from sleeper.engine.writing.data_file import write_data_file
from sleeper.engine.writing.discard import discard_files
from sleeper.engine.writing.write_settings import write_settings
from sleeper.errors import DataDamaged
from sleeper.lookup.keys import key_rows
from sleeper.model import paths
from sleeper.model.files import FileReference
from sleeper.model.keys import Key, key_type, next_value
from sleeper.model.partitions import Partition
from sleeper.model.processing import Processing
from sleeper.model.queries import key_region
from sleeper.model.ranges import Range, Region
from sleeper.model.row_deletes import REGIONS_MAX
from sleeper.state.table_state import TableState, Transaction
from sleeper.state.transactions.deletes import DeleteRows
from sleeper.state.transactions.files import AddFiles
from sleeper.state.transactions.preconditions import LeavesUnchanged
from sleeper.tables.open_table import OpenTable
from sleeper.tables.read_rows import query_regions
from sleeper.tables.write_out import CHUNK_ROWS, check_columns

RANGES_MAX: Final = 64
"""So many ranges cover the keys of one change: a reader does in each file what is beside them."""
GAP_ROWS_MIN: Final = 1_000
"""Rows of about one page. To write fewer anew costs less than another range."""
WRITTEN_MAX: Final = 0.25
"""The largest part of the rows of a leaf that stay, which is written for the sake of ranges."""


KeysOf = Callable[[Region], pa.Table]
"""Returns the keys inside a leaf, in key order."""


@dataclass(slots=True)
class HiddenKeys:
    """How the rows of keys go from leaves.

    Attributes:
        table: The table.
        state: The state that was read.
        keys_of: Returns the keys inside a leaf.
        leaves: The leaves of which files stay.
        to_write: The ids of leaves that have to be written anew.
        regions: What is left out of the other leaves' files.
        parts: Leaves, and the regions of them of which rows that stay are written.
        references: What was written.
        written_since: No file was written before this time.
    """

    table: OpenTable
    state: TableState
    keys_of: KeysOf
    leaves: list[Partition] = field(default_factory=list)
    to_write: list[str] = field(default_factory=list)
    regions: list[Region] = field(default_factory=list)
    parts: list[tuple[Partition, list[Region]]] = field(default_factory=list)
    references: list[FileReference] = field(default_factory=list)
    written_since: datetime | None = None

    def write(self) -> None:
        """Write the rows of ranges that stay, and do not have one of the keys.

        Raises:
            TableChanged: a leaf has changed meanwhile. Nothing of it is left.
        """
        table, now_ms = self.table, self.table.now_ms()
        guard, settings = table.sweep_guard(), write_settings(table.properties.parquet)
        try:
            for leaf, regions in self.parts:
                name = paths.data_file(leaf.partition_id, table.context.new_id())
                columns = table.arrow_schema.names
                every = query_regions(table.reader, self.state, regions, columns, now_ms)
                with every, table.files.open_output(name) as output:
                    kept = RowsWithoutKeys(row_groups(every, CHUNK_ROWS), self.keys_of(leaf.region))
                    written = write_data_file(
                        output, kept, table.schema, table.arrow_schema, settings
                    )
                if not written.row_count:  # a filter has left the others out
                    discard_files([name], table.files)
                    continue
                self.references.append(written.reference(name, leaf.partition_id, table.schema))
            names = [each.filename for each in self.references]
            self.written_since = guard.check(names, table.store.time())
        except BaseException as failure:
            self.discard()
            if isinstance(failure, DataDamaged):  # or files were replaced, and deleted
                self.check(table.store.refresh())
            raise

    def check(self, state: TableState) -> None:
        """Check that its leaves have not changed.

        Raises:
            TableChanged: one has.
        """
        self._unchanged().check(state)

    def transactions(self) -> list[Transaction]:
        """Return what is committed, together with what has its place in the same entry."""
        found: list[Transaction] = [self._unchanged()]
        if self.regions:
            found.append(DeleteRows(regions=tuple(self.regions)))
        if self.references:
            added = tuple(self.references)
            since = self.written_since
            found.append(AddFiles(references=added, written_since=since, are_new=False))
        return found

    def discard(self) -> None:
        """Delete what was written, as it is certainly not in the table."""
        discard_files([each.filename for each in self.references], self.table.files)
        self.references.clear()

    def _unchanged(self) -> LeavesUnchanged:
        known = {
            leaf.partition_id: frozenset(
                each.filename for each in self.state.references_of(leaf.partition_id)
            )
            for leaf in self.leaves
        }
        return LeavesUnchanged(known=known, since=self.state.number)


def plan_hidden(
    table: OpenTable, state: TableState, leaves: Sequence[Partition], keys_of: KeysOf
) -> HiddenKeys:
    """Plan how the rows of keys go from leaves of a table of format 2.

    Args:
        table: The table.
        state: Its newest state.
        leaves: The leaves that may have some.
        keys_of: Returns the keys inside a leaf, in key order.

    Raises:
        TableChanged: a leaf has files with columns that the table was not opened with, or its
            files were replaced and deleted while they were read.
    """
    plan = HiddenKeys(table, state, keys_of, leaves=[*leaves])
    room = REGIONS_MAX - sum(len(each.regions) for each in state.deletes)
    singles, ranges_max, found = _SingleKeys(room), min(RANGES_MAX, room), list[TouchedRuns]()
    near = list[Partition]()
    try:
        for leaf in leaves:
            runs = _runs(plan, leaf, ranges_max, singles.left)
            singles.note(runs)
            if runs is None:
                plan.to_write.append(leaf.partition_id)
                continue
            near.append(leaf)
            found.append(replace(runs.joined(ranges_max, GAP_ROWS_MIN), some_keys=None))
    except DataDamaged:
        plan.check(table.store.refresh())
        raise
    plan.leaves, found = near, joined_over_leaves(found, ranges_max, GAP_ROWS_MIN)
    if not sum(runs.with_keys for runs in found):
        return plan
    if singles.are_few and any(runs.covered() > runs.with_keys for runs in found):
        plan.regions = [key_region(table.schema, key) for key in singles.keys]
        return plan
    plan.leaves = []
    for leaf, runs in zip(near, found, strict=True):
        _plan_leaf(plan, leaf, runs, ranges_max)
    return plan


def _plan_leaf(plan: HiddenKeys, leaf: Partition, runs: TouchedRuns, ranges_max: int) -> None:
    """Plan for one leaf: its ranges, or that it is written anew, or that it stays as it is."""
    others = runs.covered() - runs.with_keys
    has_room = len(plan.regions) + len(runs.firsts) <= ranges_max
    if runs.with_keys and not (has_room and others <= _others_max(plan.state, leaf)):
        plan.to_write.append(leaf.partition_id)
        return
    plan.leaves.append(leaf)
    if runs.with_keys:
        lows, highs = runs.lows.to_pylist(), runs.highs.to_pylist()
        regions = [_between(plan.table, leaf, *both) for both in zip(lows, highs, strict=True)]
        plan.regions += regions
        if others:
            plan.parts.append((leaf, regions))


def _others_max(state: TableState, leaf: Partition) -> float:
    """Return how many rows of a leaf may be written for the sake of ranges."""
    return WRITTEN_MAX * sum(each.row_count for each in state.references_of(leaf.partition_id))


@dataclass(slots=True)
class _SingleKeys:
    """Keys that rows have, while they are few; `left` is how many more may come, -1 for none."""

    left: int
    keys: dict[Key, None] = field(default_factory=dict)

    @property
    def are_few(self) -> bool:
        return self.left >= 0

    def note(self, runs: TouchedRuns | None) -> None:
        if self.left < 0 or runs is None or runs.some_keys is None:
            self.left = -1
            self.keys.clear()
            return
        for batch in runs.some_keys.to_batches():
            self.keys |= dict.fromkeys(key_rows(batch))
        self.left -= runs.some_keys.num_rows


def _runs(plan: HiddenKeys, leaf: Partition, ranges_max: int, keys_max: int) -> TouchedRuns | None:
    """Find the runs of a leaf that keys touch; None where ranges would have too many other rows.

    Rows between the least and the greatest key are read. Those that a filter hides count too: it
    may be taken away.
    """
    table, state, keys = plan.table, plan.state, plan.keys_of(leaf.region)
    check_columns(table, leaf.partition_id, state.references_of(leaf.partition_id))
    if not keys.num_rows:
        return TouchedRuns(some_keys=keys)
    column = keys.column(0)
    asked = _between(table, leaf, column[0].as_py(), column[-1].as_py())
    reading = replace(table.reader, processing=Processing())
    limits = RunLimits(
        runs_max=ranges_max,
        gap_min=GAP_ROWS_MIN,
        others_max=_others_max(state, leaf),
        keys_max=keys_max,
    )
    names = table.schema.row_key_names
    with query_regions(reading, state, [asked], names, table.now_ms()) as rows:
        return touched_runs(row_groups(rows, CHUNK_ROWS), keys, limits)


def _between(table: OpenTable, leaf: Partition, low: object, high: object) -> Region:
    """Return the part of a leaf from one value of the first row key field to another."""
    after = next_value(key_type(table.schema.row_keys[0]), high)
    both = leaf.region.ranges[0].intersection(Range(low, after))
    assert both is not None  # the values are inside the leaf
    return leaf.region.with_range(0, both)
