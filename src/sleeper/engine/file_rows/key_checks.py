"""Checks the keys of one data file, batch by batch, against what is said about them.

All comparisons are of whole columns. Memory is one batch of keys, and the sketched ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sleeper.language.value_classes import dataclass
from sleeper.lookup.key_order import first_out_of_order
from sleeper.lookup.parquet.page_index import BOUND_WIDTH_MAX, Bounds, PageBounds
from sleeper.lookup.parquet_index import ParquetIndex
from sleeper.lookup.values import Ints, comparable_array
from sleeper.model.keys import key_type, smallest_value
from sleeper.model.ranges import Region
from sleeper.model.schema import Schema
from sleeper.state.files.findings import FindingKind

Faults = dict[FindingKind, str]
"""The first fault of each kind, as a sentence about the file."""


@dataclass(frozen=True, slots=True)
class KeyBatch:
    """Keys of adjacent rows of one row group.

    Attributes:
        group: The row group.
        first_row: The number of the first row in it.
        keys: Row keys, then sort keys.
    """

    group: int
    first_row: int
    keys: pa.RecordBatch


class KeyChecks:
    """Checks batches of keys that follow one another.

    Args:
        schema: The table's schema.
        regions: Regions whose rows are counted.
        sampled_rows: Numbers of the rows whose row keys are kept, ascending.

    Attributes:
        sampled_rows: As given.
        row_count: How many rows were added.
        counts: How many of them are inside each region.
        faults: What was found.
        first, last: The first and the last batch of one row; None before the first.
    """

    def __init__(self, schema: Schema, regions: Sequence[Region], sampled_rows: Ints) -> None:
        self._schema = schema
        self._regions = regions
        self.sampled_rows = sampled_rows
        self._samples: list[pa.RecordBatch] = []
        self.row_count = 0
        self.counts = [0] * len(regions)
        self.faults: Faults = {}
        self.first: pa.RecordBatch | None = None
        self.last: pa.RecordBatch | None = None

    def add(self, batch: KeyBatch, index: ParquetIndex, key_leaf: int | None) -> None:
        """Check more rows.

        Args:
            batch: Their keys.
            index: The file's, which has loaded bounds and places of the first row key's pages.
            key_leaf: The leaf of the first row key; None if its bounds cannot be read.
        """
        keys = batch.keys
        if not keys.num_rows:
            return
        if any(column.null_count for column in keys.columns):
            self.faults.setdefault(FindingKind.ROW_ORDER, "some of its keys are null")
            self.row_count += keys.num_rows
            return
        self._check_order(keys)
        self._count(keys)
        if key_leaf is not None:
            self._check_bounds(batch, index, key_leaf)
        self._keep_samples(keys)
        if self.first is None:
            self.first = _row(keys, 0)
        self.last = _row(keys, keys.num_rows - 1)
        self.row_count += keys.num_rows

    def samples(self) -> pa.Table | None:
        """Return the row keys of the sampled rows; None if there are none."""
        return pa.Table.from_batches(self._samples) if self._samples else None

    def _check_order(self, keys: pa.RecordBatch) -> None:
        together = keys if self.last is None else pa.concat_batches([self.last, keys])
        place = first_out_of_order(together)
        if place is not None:
            row = self.row_count + place - (self.last is not None)
            self.faults.setdefault(
                FindingKind.ROW_ORDER,
                f"its rows are not in key order: row {row:,} is less than the one before",
            )

    def _count(self, keys: pa.RecordBatch) -> None:
        ends = pc.min_max(keys.column(0)).as_py()
        for number, region in enumerate(self._regions):
            side = region.ranges[0]
            if side.min <= ends["max"] and (side.max is None or ends["min"] < side.max):
                self.counts[number] += _count_inside(keys, region, self._schema)

    def _check_bounds(self, batch: KeyBatch, index: ParquetIndex, key_leaf: int) -> None:
        """Compare the first row key with the bounds of its row group and of its pages."""
        first_rows = index.locations(batch.group, key_leaf).first_rows
        end = batch.first_row + batch.keys.num_rows
        low = int(np.searchsorted(first_rows, batch.first_row, "right")) - 1
        high = int(np.searchsorted(first_rows, end, "left"))
        starts = np.maximum(first_rows[low:high], batch.first_row) - batch.first_row
        ends = np.minimum(first_rows[low + 1 : high + 1], end) - batch.first_row - 1
        pages = index.bounds(batch.group, key_leaf)
        of_group = index.group_bounds(key_leaf)
        whole = PageBounds(
            of_group.minimums[batch.group : batch.group + 1],
            of_group.maximums[batch.group : batch.group + 1],
        )
        here = PageBounds(pages.minimums[low:high], pages.maximums[low:high])
        column = comparable_array(batch.keys.column(0))
        outer = np.array([0], np.int64), np.array([len(column) - 1], np.int64)
        for bounds, (first, last), name in (
            (here, (starts, ends), "the page index"),
            (whole, outer, "the footer"),
        ):
            if (bounds.minimums > _taken(column, first, bounds.minimums)).any() or (
                bounds.maximums < _taken(column, last, bounds.maximums)
            ).any():
                self.faults.setdefault(
                    FindingKind.PAGE_INDEX,
                    f"{name} says other limits of the keys of row group {batch.group} than they "
                    "have, so look-ups may miss rows",
                )

    def _keep_samples(self, keys: pa.RecordBatch) -> None:
        first = self.row_count
        low, high = np.searchsorted(self.sampled_rows, [first, first + keys.num_rows])
        if low < high:
            places = pa.array(self.sampled_rows[low:high] - first)
            self._samples.append(keys.select(self._schema.row_key_names).take(places))


def _row(keys: pa.RecordBatch, number: int) -> pa.RecordBatch:
    """Return one row as a copy, so that the batch can be released."""
    return keys.take(pa.array([number], pa.int64()))


def _taken(column: pa.Array, places: Ints, bounds: Bounds) -> Any:
    """Return values at some places in the form of bounds, truncated as these are."""
    values = column.take(pa.array(places))
    if bounds.dtype.kind != "S":
        return values.cast(pa.int64()).to_numpy()
    width = min(BOUND_WIDTH_MAX, bounds.dtype.itemsize)
    # A longer value has a bound that is shorter, and that is compared with as many bytes.
    return np.array(pc.binary_slice(values, 0, width).to_pylist(), dtype=f"S{width}")


def _count_inside(keys: pa.RecordBatch, region: Region, schema: Schema) -> int:
    conditions = []
    for number, (field, side) in enumerate(zip(schema.row_keys, region.ranges, strict=True)):
        column = keys.column(number)
        if side.min != smallest_value(key_type(field)):
            conditions.append(pc.greater_equal(column, pa.scalar(side.min, column.type)))
        if side.max is not None:
            conditions.append(pc.less(column, pa.scalar(side.max, column.type)))
    if not conditions:
        return int(keys.num_rows)
    return int(pc.sum(reduce(pc.and_, conditions)).as_py())
