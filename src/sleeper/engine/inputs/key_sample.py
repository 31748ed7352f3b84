"""A sample of the row keys of input files, for extending the partition tree before an import.

Reading the first rows of every row group is cheap, and is enough if rows are unordered. A row group
whose first rows are ordered is read completely, and so are all row groups that follow each other in
key order by their statistics: their first rows would give a sample of small keys only.

Memory: at most about four copies of 64 MiB of sampled keys, and the current batch.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, groupby, pairwise
from operator import attrgetter
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sleeper.engine.arrow_schema import conform, split_null_keys
from sleeper.engine.inputs.input_files import (
    InputFiles,
    RowGroup,
    is_remote,
    read_row_groups,
    shown,
)
from sleeper.engine.inputs.sources import Source
from sleeper.engine.sketches.sketch import SystematicSample
from sleeper.engine.sorting.key_order import Groups, OrderedRows
from sleeper.engine.writing.leaf_files import rows_by_leaf
from sleeper.model.keys import checked_value
from sleeper.model.partitions import PartitionTree, leaf_groups
from sleeper.model.schema import Schema
from sleeper.ports.objects import InputStore

_TESTED_ROWS = 2048
_CORRELATION_MAX = 0.1  # for 2,048 unordered rows it is above that once in 70,000 cases
_WIDE_OVERLAP = 0.5
_MIXED_AT_ONCE = 64  # reads of files by URL, each of some thousand rows
_ORDERED_AT_ONCE = 8  # whose rows are in memory until their turn

_Read = TypeVar("_Read")
_Rows = TypeVar("_Rows")


@dataclass(frozen=True)
class KeySample:
    """A systematic sample of the row keys of an input.

    Attributes:
        rows: The row key columns, in the table's types, without nulls, in any order. Each row
            stands for `row_count / rows.num_rows` rows of the input.
        row_count: Rows of the input that have a row key; estimated if not all were read.
    """

    rows: pa.Table
    row_count: int

    @cached_property
    def in_order(self) -> pa.Table:
        """The rows in order of the first row key, in one piece. Of millions that takes seconds."""
        first_key = self.rows.column_names[:1]
        return OrderedRows(self.rows, first_key).take(0, self.rows.num_rows).combine_chunks()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadBudget:
    """How much of the input may be read, and kept in memory.

    Attributes:
        mixed_rows: Maximum number of rows to read of unordered row groups. An input with at
            most so many rows is read completely.
        ordered_rows: Maximum number of rows to read of ordered row groups.
        reads: Maximum number of unordered row groups to read from.
        ordered_reads: Maximum number of ordered row groups to read from; of more, statistics take
            the place of rows.
        sample_bytes: Maximum size of the sample in memory; it has fewer row keys if they are
            long.
    """

    mixed_rows: int = 4_000_000
    ordered_rows: int = 64_000_000
    reads: int = 1024
    ordered_reads: int = 4096
    sample_bytes: int = 64 << 20


def sample_files(
    source: InputFiles,
    schema: Schema,
    arrow_schema: pa.Schema,
    *,
    rows_wanted: int,
    remote: InputStore | None = None,
    budget: ReadBudget | None = None,
) -> KeySample:
    """Return about `rows_wanted` row keys of input files, or up to twice as many, or all.

    The same files give the same sample. With 800 rows for each wanted leaf, from unordered rows,
    leaves have about 0.9 to 1.1 times the mean number of rows.

    Args:
        source: The files.
        schema: The table's schema.
        arrow_schema: The table's Arrow schema, with all columns.
        rows_wanted: The wanted number of rows; all rows if there are fewer.
        remote: Opens files that are URLs.
        budget: Limits of what is read.

    Raises:
        InputSchemaMismatch: row key columns of a file do not fit the table; it is named.
        InputNotFound, InputUnreadable: a file no longer exists, or cannot be read.
    """
    source.check(ignore_extra_columns=True)
    wanted = pa.schema([arrow_schema.field(name) for name in schema.row_key_names])
    groups = source.row_groups()
    files = _KeyColumns(
        wanted,
        rows_wanted,
        remote,
        budget or ReadBudget(),
        is_remote=any(is_remote(group.path) for group in groups),
    )
    row_count = sum(group.row_count for group in groups)
    if row_count > files.budget.mixed_rows and _overlap_widely(groups):
        sample = files.sample_mixed(_in_key_order(groups))
    else:
        in_order = _in_key_order(groups)
        if len(groups) > files.budget.ordered_reads and len(wanted) == 1:
            keys = _least_keys(in_order, wanted)
            if keys is not None:
                return KeySample(keys, row_count)
        sample = files.sample_ordered(in_order)
    rows = sample.rows()
    if rows is None:
        return KeySample(wanted.empty_table(), 0)
    kept, _ = split_null_keys(rows, schema.row_key_names)
    return KeySample(kept, round(row_count * kept.num_rows / rows.num_rows))


def sample_rows(
    source: Source,
    schema: Schema,
    arrow_schema: pa.Schema,
    *,
    rows_wanted: int,
    budget: ReadBudget | None = None,
) -> KeySample:
    """Return about `rows_wanted` row keys of rows in memory, or up to twice as many, or all.

    All rows are used, in any order. For other arguments see `sample_files`.

    Args:
        source: The rows; they can be read more than once.
    """
    wanted = pa.schema([arrow_schema.field(name) for name in schema.row_key_names])
    sample = SystematicSample(2 * max(1, rows_wanted), (budget or ReadBudget()).sample_bytes)
    for batch in source.batches(wanted.names):
        keys = conform(
            batch,
            wanted,
            key_names=wanted.names,
            ignore_extra_columns=True,
            origin=source.origin,
        )
        sample.add(keys)
    rows = sample.rows()
    if rows is None:
        return KeySample(wanted.empty_table(), 0)
    kept, _ = split_null_keys(rows, schema.row_key_names)
    return KeySample(kept, round(sample.rows_seen * kept.num_rows / rows.num_rows))


def _in_key_order(groups: Sequence[RowGroup]) -> list[RowGroup]:
    """Return row groups ordered by least key; unordered if types of files differ."""
    known = [group for group in groups if group.key_min is not None]
    others = [group for group in groups if group.key_min is None]
    try:
        return [*sorted(known, key=attrgetter("key_min", "path", "index")), *others]
    except TypeError:
        return list(groups)


def _least_keys(groups: Sequence[RowGroup], wanted: pa.Schema) -> pa.Table | None:
    """Return the least key of row groups, each as often as it has rows; None if one is not known.

    The sample is exact to a row group. It is for very many of them, which follow each other.
    """
    if any(group.key_min is None for group in groups):
        return None
    try:
        keys = pa.array([group.key_min for group in groups], wanted.field(0).type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):  # files of other types
        return None
    ends = np.cumsum([group.row_count for group in groups])
    places = np.arange(len(groups)) * int(ends[-1]) // len(groups)
    return pa.table([keys.take(pa.array(np.searchsorted(ends, places, "right")))], schema=wanted)


def _overlap_widely(groups: Sequence[RowGroup]) -> bool:
    """Return whether the key ranges of most row groups overlap, or may overlap."""
    try:
        lows = sorted(group.key_min for group in groups)
        highs = sorted(group.key_max for group in groups)
        overlaps = sum(
            bisect_right(lows, group.key_max) - bisect_left(highs, group.key_min)
            for group in groups
        )
    except TypeError:  # without statistics, or files of different types
        return True
    return len(groups) == 1 or overlaps >= _WIDE_OVERLAP * len(groups) ** 2


class _KeyColumns:
    """Samples the row key columns of input files."""

    def __init__(
        self,
        wanted: pa.Schema,
        rows_wanted: int,
        remote: InputStore | None,
        budget: ReadBudget,
        *,
        is_remote: bool,
    ) -> None:
        self.budget = budget
        self._is_remote = is_remote
        self._remote = remote
        self._wanted = wanted
        self._rows_wanted = max(1, rows_wanted)

    def sample_ordered(self, groups: Sequence[RowGroup]) -> SystematicSample:
        """Sample row groups that follow each other: all their rows, or a part of each.

        Beyond the budget only the first rows of each are read, so the size of a leaf may be wrong
        by the rows of a row group.
        """
        sample = self._new_sample(self._rows_wanted)
        groups = groups[:: -(-len(groups) // self.budget.ordered_reads) or 1]
        total = sum(group.row_count for group in groups)
        if total <= self.budget.ordered_rows:
            reads: list[tuple[str, list[int], int | None]] = [
                (path, indexes, None) for path, indexes in _by_file(groups)
            ]
        else:
            shares = (group.row_count * self.budget.ordered_rows // total for group in groups)
            reads = [
                (group.path, [group.index], max(1, share))
                for group, share in zip(groups, shares, strict=True)
            ]
        at_once = self._at_once(lambda read: [*self._batches(*read)], reads, _ORDERED_AT_ONCE)
        for rows in chain.from_iterable(at_once):
            sample.add(rows)
        return sample

    def sample_mixed(self, groups: Sequence[RowGroup]) -> SystematicSample:
        """Sample row groups that overlap: the first rows of each, if they are in no order.

        Beyond the budget not all ordered row groups are read: each one that is read represents
        the unread ones before it.
        """
        groups = groups[:: -(-len(groups) // self.budget.reads)]
        total = sum(group.row_count for group in groups)
        wanted = min(self._rows_wanted, total)
        sample = self._new_sample(self._rows_wanted)
        turns = _Turns(min(1.0, self.budget.ordered_rows / total))
        ends = np.cumsum([0, *(group.row_count for group in groups)])
        shares = [
            wanted * stop // total - wanted * start // total
            for start, stop in pairwise(ends.tolist())
        ]
        reads = [
            (
                group,
                max(share, _TESTED_ROWS, group.row_count * self.budget.mixed_rows // total),
                share,
            )
            for group, share in zip(groups, shares, strict=True)
        ]
        firsts = self._at_once(lambda read: self._first_rows(*read), reads, _MIXED_AT_ONCE)
        carried = 0
        for group, share, first in zip(groups, shares, firsts, strict=True):
            if _in_no_order(first, group):
                sample.add(_at_equal_distances(first, share))
                continue
            carried += share
            if turns.come_to(group.row_count):
                rows = self._first_rows(group, None, carried)
                sample.add(_at_equal_distances(rows, carried))
                carried = 0
        return sample

    def _at_once(
        self, read: Callable[[_Read], _Rows], reads: Sequence[_Read], count: int
    ) -> Iterator[_Rows]:
        """Yield what reads return, in order; from files by URL, several are done at once."""
        if not self._is_remote:
            yield from map(read, reads)
            return
        with ThreadPoolExecutor(count, thread_name_prefix="sleeper-sample") as threads:
            for start in range(0, len(reads), count):
                yield from threads.map(read, reads[start : start + count])

    def _first_rows(self, group: RowGroup, rows_max: int | None, share: int) -> pa.Table:
        """Return a systematic sample of a row group's first rows: at least `share` of them."""
        sample = self._new_sample(max(share, _TESTED_ROWS))
        for batch in self._batches(group.path, [group.index], rows_max):
            sample.add(batch)
        rows = sample.rows()
        return self._wanted.empty_table() if rows is None else rows

    def _new_sample(self, rows_min: int) -> SystematicSample:
        """Return a sample of at least the wanted number of rows, and up to twice as many."""
        return SystematicSample(2 * rows_min, self.budget.sample_bytes)

    def _batches(
        self, path: str, indexes: Sequence[int], rows_max: int | None
    ) -> Iterator[pa.Table]:
        names = self._wanted.names
        for batch in read_row_groups(path, indexes, names, rows_max, remote=self._remote):
            yield conform(
                batch,
                self._wanted,
                key_names=names,
                ignore_extra_columns=True,
                origin=shown(path),
            )


class _Turns:
    """Selects elements of a series so that about a given share of all rows is selected."""

    def __init__(self, share: float) -> None:
        self._share = share
        self._seen = 0
        self._picked = 0

    def come_to(self, row_count: int) -> bool:
        """Return whether the next element, with so many rows, is selected; the first always is."""
        picks = self._picked <= self._seen * self._share
        self._seen += row_count
        self._picked += row_count if picks else 0
        return picks


def _by_file(groups: Sequence[RowGroup]) -> Iterator[tuple[str, list[int]]]:
    """Yield files with their row groups, so that each file is opened once."""
    by_place = sorted(groups, key=attrgetter("path", "index"))
    for path, same in groupby(by_place, key=attrgetter("path")):
        yield path, [group.index for group in same]


def _in_no_order(rows: pa.Table, group: RowGroup) -> bool:
    """Return whether the first rows of a row group seem to represent all its rows.

    They do if a row's first row key is not correlated with its position or the row before.
    """
    tested = _at_equal_distances(rows.select([0]), _TESTED_ROWS).column(0).combine_chunks()
    ranks = pc.rank(tested, tiebreaker="min").to_numpy().astype(float)
    if len(ranks) < _TESTED_ROWS or ranks.min() == ranks.max():
        return rows.num_rows == group.row_count or _has_one_key(group)
    trend = _correlation(ranks, np.arange(len(ranks)))
    return max(trend, _correlation(ranks[1:], ranks[:-1])) < _CORRELATION_MAX


def _has_one_key(group: RowGroup) -> bool:
    return group.key_min is not None and bool(group.key_min == group.key_max)


def _correlation(values: Any, others: Any) -> float:
    """Return the absolute correlation of two series: 0 to 1."""
    with np.errstate(invalid="ignore"):
        return float(np.nan_to_num(abs(np.corrcoef(values, others)[0, 1]), nan=1.0))


def _at_equal_distances(rows: pa.Table, count: int) -> pa.Table:
    """Return `count` of the rows, or all if they are fewer."""
    if rows.num_rows <= count:
        return rows
    return rows.take(pa.array(np.arange(count) * rows.num_rows // count))


# ---------------------------------------------------------------- leaf samples
#
# Samples of row keys for each leaf, in the form that `planning.partitions` needs.


class RowsOfLeaf:
    """The sampled row keys of one leaf; each dimension can be sorted separately.

    Args:
        rows: The sampled row keys, in order of the first one; at least one row.
        row_count: Rows of the input that they represent.
        schema: The table's.

    Attributes:
        row_count: Rows of the input that they represent.
    """

    __slots__ = ("_columns", "_rows", "_schema", "row_count")

    def __init__(self, rows: pa.Table, row_count: int, schema: Schema) -> None:
        self.row_count = row_count
        self._rows = rows
        self._schema = schema
        self._columns: dict[int, pa.ChunkedArray] = {0: rows.column(schema.row_keys[0].name)}

    def quantile(self, dimension: int, fraction: float) -> Any:
        """Return the value below which `fraction` of the rows are (rule SPL-4)."""
        if dimension not in self._columns:  # seldom needed: usually the first row key is enough
            self._columns[dimension] = self._in_order(self._schema.row_keys[dimension].name)
        column = self._columns[dimension]
        place = min(len(column) - 1, int(fraction * len(column)))
        return checked_value(self._schema.row_keys[dimension], column[place].as_py())

    def _in_order(self, name: str) -> pa.ChunkedArray:
        rows = self._rows.select([name])
        return OrderedRows(rows, [name]).take(0, rows.num_rows).column(name)


def samples_by_leaf(
    sample: KeySample, tree: PartitionTree, schema: Schema
) -> dict[str, RowsOfLeaf]:
    """Return the sample of each leaf that gets rows, by partition id."""
    if not sample.rows.num_rows:
        return {}
    names = schema.row_key_names
    groups = leaf_groups(tree.leaves())
    kind = sample.rows.schema.field(names[0]).type
    bounds = [group.values.min for group in groups[1:]]
    samples = {}
    for place, part in Groups(bounds, names[0], kind).parts(sample.in_order):
        for leaf, rows in rows_by_leaf(part, schema, groups[place].leaves):
            row_count = round(rows.num_rows * sample.row_count / sample.rows.num_rows)
            samples[leaf.partition_id] = RowsOfLeaf(rows, row_count, schema)
    return samples
