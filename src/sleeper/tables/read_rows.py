"""Reads rows of one state of a table: by key, by keys, or inside regions.

A complete key goes to the look-up reader, and so do many keys, in groups of leaves. Ranges are read
leaf by leaf (`engine.read_leaves`). All of them read only pages that can hold requested rows. Where
storage is remote, the reads of several leaves are made at once. Rows are in key order over the
whole result, unless the caller asks for any order (rules QRY-1 to QRY-6, QRY-21).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain, islice
from typing import Final, NamedTuple

import pyarrow as pa

from sleeper.engine.arrow_schema import row_key_columns
from sleeper.engine.reading.read_leaves import (
    TableReader,
    columns_to_read,
    count_rows_of_files,
    read_leaves,
    read_leaves_unordered,
)
from sleeper.engine.rows import Rows
from sleeper.lookup.keys import key_batch, key_rows, one_key_batch
from sleeper.lookup.sorted_rows import merge_small
from sleeper.model.keys import Key
from sleeper.model.queries import LeafLookup, LeafQuery, checked_columns, exact_key, key_region
from sleeper.model.ranges import Region
from sleeper.state.plans.queries import (
    file_sizes,
    leaf_queries,
    plan_leaf_queries,
    plan_lookup,
    plan_lookups,
    plan_row_count,
)
from sleeper.state.table_state import TableState

_FILES_AHEAD: Final = 32
_KEYS_AHEAD: Final = 1_000
"""Leaves of many keys are begun while those before them are read, up to so many files and keys. A
look-up needs up to 8 MiB for pages of a file; more keys than these keep a processor busy."""
_FIRST_GROUPS: Final = 64
"""So many groups of leaves are planned first for who takes a few rows."""


def query_key(
    reading: TableReader, state: TableState, key: object, columns: Sequence[str] | None, now_ms: int
) -> Rows:
    """Return the rows of one row key, or of a prefix of it.

    Raises:
        QueryInvalid: the key or the columns do not fit the schema.
        DataDamaged: a file of the table is missing or wrong.
        TableFunctionFailed: the table's function is missing, raised, or broke its contract.
    """
    exact = exact_key(reading.schema, key)
    if exact is None:
        return query_regions(reading, state, [key_region(reading.schema, key)], columns, now_ms)
    keys = one_key_batch(exact, reading.arrow_schema)
    view = _View.of(reading, columns, now_ms)
    leaf = plan_lookup(state, exact)
    _note_sizes(reading, state, leaf)
    rows = view.process(view.look_up(leaf, keys))
    return Rows.from_table(view.select(rows), transaction=state.number)


def query_keys(
    reading: TableReader,
    state: TableState,
    keys: Sequence[object],
    columns: Sequence[str] | None,
    now_ms: int,
) -> Rows:
    """Return the rows of many row keys, in key order, whatever the order of `keys`.

    `keys` may be an Arrow or NumPy array if the table has one row key field.

    Raises:
        QueryInvalid: a key or the columns do not fit the schema.
        DataDamaged: a file of the table is missing or wrong.
        TableFunctionFailed: the table's function is missing, raised, or broke its contract.
    """
    batch = key_batch(keys, reading.schema, reading.arrow_schema)
    view = _View.of(reading, columns, now_ms)
    places: list[Key] = key_rows(batch)

    def begin(group: Sequence[LeafLookup]) -> _GroupLookup:
        for leaf in group:
            _note_sizes(reading, state, leaf)
        parts = [_keys_at(batch, leaf) for leaf in group]
        return _GroupLookup(
            sum(len(leaf.filenames) for leaf in group),
            sum(part.num_rows for part in parts),
            [
                reading.files.beside(partial(view.look_up, leaf, part))
                for leaf, part in zip(group, parts, strict=True)
            ],
        )

    def batches() -> Iterator[pa.RecordBatch]:
        for group in _in_turn(map(begin, plan_lookups(state, places))):
            parts = [view.process(wait()) for wait in group.leaves]
            yield from view.select(view.merge(parts)).to_batches()

    return Rows(batches(), view.arrow_schema, transaction=state.number)


def query_regions(
    reading: TableReader,
    state: TableState,
    regions: Sequence[Region],
    columns: Sequence[str] | None,
    now_ms: int,
    *,
    ordered: bool = True,
    rows_max: int | None = None,
) -> Rows:
    """Return the rows inside any of `regions`, each once, as a stream.

    Rows are in key order, unless `ordered` is False. The pages of the first `rows_max` rows are
    read before others, for a caller that stops there.

    Raises:
        QueryInvalid: the columns do not fit the schema.
        DataDamaged: a file of the table is missing or wrong; raised while rows are read.
        TableFunctionFailed: the table's function is missing, raised, or broke its contract.
    """
    view = _View.of(reading, columns, now_ms)

    def groups() -> list[list[LeafQuery]]:
        return _noted(reading, state, plan_leaf_queries(state, regions))

    def batches() -> Iterator[pa.RecordBatch]:
        if not ordered:
            yield from read_leaves_unordered(reading, groups(), view.columns, now_ms=now_ms)
        elif rows_max is None:
            yield from read_leaves(reading, groups(), view.columns, now_ms=now_ms)
        else:
            for part in _more_each_time(leaf_queries(state, regions)):
                few = _noted(reading, state, part)
                yield from read_leaves(reading, few, view.columns, now_ms=now_ms, rows_max=rows_max)

    def count() -> int:
        if reading.processing.is_identity:
            plan = plan_row_count(state, regions)
            return plan.known_rows + count_rows_of_files(
                reading, plan.regions_by_file, plan.key_files
            )
        key = [reading.schema.names[0]]
        rows = read_leaves_unordered(reading, groups(), key, now_ms=now_ms)
        return sum(batch.num_rows for batch in rows)

    def known_count() -> int | None:
        if not reading.processing.is_identity:
            return None
        plan = plan_row_count(state, regions)
        return None if plan.regions_by_file else plan.known_rows

    return Rows(
        batches(),
        view.arrow_schema,
        transaction=state.number,
        counter=count,
        known_count=known_count,
    )


def _more_each_time(groups: Iterator[list[LeafQuery]]) -> Iterator[list[list[LeafQuery]]]:
    """Yield groups in parts, each of more than all before it had: few rows are in the first."""
    count = _FIRST_GROUPS
    while part := [*islice(groups, count)]:
        yield part
        count *= 2


def _noted(
    reading: TableReader, state: TableState, groups: list[list[LeafQuery]]
) -> list[list[LeafQuery]]:
    for leaf in chain(*groups):
        _note_sizes(reading, state, leaf)
    return groups


def _note_sizes(reading: TableReader, state: TableState, leaf: LeafLookup | LeafQuery) -> None:
    """Give the reader the sizes of unopened files, which the state records."""
    unopened = reading.lookup.unopened(leaf.filenames)
    if unopened:
        reading.lookup.note_sizes(file_sizes(state, leaf.leaf_id, unopened))


class _GroupLookup(NamedTuple):
    """The look-up in a group of leaves, which has begun where storage is remote."""

    files: int
    keys: int
    leaves: Sequence[Callable[[], Sequence[pa.Table]]]


def _in_turn(groups: Iterator[_GroupLookup]) -> Iterator[_GroupLookup]:
    """Yield groups in their order; those that follow are begun meanwhile, up to the bounds."""
    waiting = deque[_GroupLookup]()
    for group in groups:
        waiting.append(group)
        while len(waiting) > 1 and _is_enough(waiting):
            yield waiting.popleft()
    yield from waiting


def _is_enough(waiting: Sequence[_GroupLookup]) -> bool:
    files = sum(group.files for group in waiting)
    return files >= _FILES_AHEAD or sum(group.keys for group in waiting) >= _KEYS_AHEAD


def _keys_at(batch: pa.RecordBatch, leaf: LeafLookup) -> pa.RecordBatch:
    places = leaf.key_indices
    if isinstance(places, slice):
        return batch.slice(places.start, places.stop - places.start)
    return batch.take(pa.array(places, pa.int64()))


class _View(NamedTuple):
    """The columns of one result: those returned, and those that must be read for them."""

    reading: TableReader
    columns: list[str]
    read_columns: list[str]
    arrow_schema: pa.Schema
    now_ms: int

    @classmethod
    def of(cls, reading: TableReader, columns: Sequence[str] | None, now_ms: int) -> _View:
        if columns is None:
            schema = reading.schema
            return cls(reading, [*schema.columns], [*schema.names], reading.shown_schema, now_ms)
        shown = [*checked_columns(reading.schema, columns)]
        read = columns_to_read(reading, shown)
        arrow_schema = pa.schema([reading.arrow_schema.field(name) for name in shown])
        return cls(reading, shown, read, arrow_schema, now_ms)

    def look_up(self, leaf: LeafLookup, keys: pa.RecordBatch) -> Sequence[pa.Table]:
        """Return the rows of one leaf's keys, as a table for each of its files."""
        reading = self.reading
        if leaf.key_files:
            return self._look_up_newest(leaf, keys)
        return reading.lookup.look_up(leaf.filenames, keys, reading.arrow_schema, self.read_columns)

    def _look_up_newest(self, leaf: LeafLookup, keys: pa.RecordBatch) -> Sequence[pa.Table]:
        """Look up in files, of which some have old rows of keys that newer files have too.

        In a folder newer files come first, so that no old row of a single key is read; where
        requests take long, all files are read at once.
        """
        from sleeper.engine.processing.known_keys import without_keys

        lookup, schema = self.reading.lookup, self.reading.arrow_schema
        key_names = self.reading.schema.row_key_names
        keys_alone = row_key_columns(self.reading.schema, schema)
        names = [*dict.fromkeys([*key_names, *self.read_columns])]
        newer = {name for of_file in leaf.key_files.values() for name in of_file}
        replaced = sorted(newer.difference(leaf.filenames))
        in_turn = keys.num_rows == 1 and not lookup.is_remote
        first = [name for name in leaf.filenames if name in newer or not in_turn]
        tables, others = lookup.at_once(
            [
                partial(lookup.look_up, first, keys, schema, names),
                partial(lookup.look_up, replaced, keys, keys_alone, key_names),
            ]
        )
        looked_up = dict(zip(first, tables, strict=True))
        found = {
            name: rows.select(key_names)
            for name, rows in (*looked_up.items(), *zip(replaced, others, strict=True))
            if rows.num_rows
        }
        rest = [
            name
            for name in leaf.filenames
            if name not in looked_up and found.keys().isdisjoint(leaf.key_files.get(name, ()))
        ]
        looked_up |= zip(rest, lookup.look_up(rest, keys, schema, names), strict=True)
        visible = []
        for name, rows in looked_up.items():
            gone = [found[each] for each in leaf.key_files.get(name, ()) if each in found]
            stay = without_keys(rows, pa.concat_tables(gone)) if rows.num_rows and gone else rows
            visible.append(stay.select(self.read_columns))
        read = pa.schema([schema.field(name) for name in self.read_columns])
        return visible or [pa.Table.from_batches([], read)]

    def process(self, tables: Sequence[pa.Table]) -> pa.Table:
        """Return the rows of one leaf from all its files, in key order, processed."""
        reading = self.reading
        rows = self.merge(tables)
        if reading.processing.is_identity or not rows.num_rows:
            return rows
        from sleeper.engine.processing.aggregations import overflow_of_queries
        from sleeper.engine.processing.process import process

        batches = process(
            iter(rows.to_batches()),
            reading.processing,
            reading.schema,
            now_ms=self.now_ms,
            overflow=overflow_of_queries(reading.processing),
        )
        return pa.Table.from_batches(batches, rows.schema)

    def merge(self, tables: Sequence[pa.Table]) -> pa.Table:
        """Merge several tables in key order. Usually at most one of them has rows."""
        with_rows = [table for table in tables if table.num_rows]
        if tables and len(with_rows) < 2:
            return with_rows[0] if with_rows else tables[0]
        names = [name for name in self.reading.schema.key_names if name in self.read_columns]
        schema = self.reading.arrow_schema
        read = pa.schema([schema.field(name) for name in self.read_columns])
        return merge_small(with_rows, names, read)

    def select(self, table: pa.Table) -> pa.Table:
        """Return the requested columns, in the requested order."""
        return table if self.columns == self.read_columns else table.select(self.columns)
