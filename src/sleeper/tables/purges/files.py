"""Writes purged keys out of a table's files, whether their rows can be seen or not.

1. files that have a purged key are found by looking it up in each, which hides nothing: rows that
   were deleted, are too old, or lie outside of what the table references, count too
2. their leaves are written anew without the keys (`write_out`), these files alone
3. limits of partitions that are purged keys are replaced by others (`state.plans.purged_limits`)
4. from the beginning, until there is no such file and limit: others may add rows meanwhile
5. files that had the keys are deleted, and files that no transaction names and have one

A deletion that waits for files to obey it names its keys, or has them in the files of an upsert, so
these files are written anew as well.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final

import pyarrow.compute as pc

from sleeper.engine.arrow_schema import row_key_columns
from sleeper.engine.processing.aggregations import Overflow
from sleeper.engine.processing.known_keys import RowsWithoutKeys
from sleeper.engine.processing.process import process
from sleeper.engine.reading.read_leaves import TableReader
from sleeper.engine.reading.regions import row_groups
from sleeper.errors import CommitContended, CommitTooLarge, DataDamaged
from sleeper.model import paths
from sleeper.model.processing import Processing
from sleeper.model.ranges import Range, Region, exact_range, whole_region
from sleeper.state.commit_changes import in_groups
from sleeper.state.plans.garbage import orphans_of
from sleeper.state.plans.purged_limits import (
    leaves_below,
    partitions_split_at,
    splits_at,
    without_limits,
)
from sleeper.state.plans.queries import key_files_of
from sleeper.state.table_state import TableState
from sleeper.state.transactions.files import SweepOrphans
from sleeper.storage.deletion import delete_data_files, delete_groups
from sleeper.tables.claims import release_claims
from sleeper.tables.garbage import forget_files
from sleeper.tables.open_table import OpenTable
from sleeper.tables.purges.keys import PurgedKeys
from sleeper.tables.push_down import push_down_references
from sleeper.tables.read_rows import query_regions
from sleeper.tables.table_version import TableVersion
from sleeper.tables.write_out import (
    CHUNK_ROWS,
    Divide,
    Staying,
    WrittenOut,
    until_undisturbed,
    write_out,
)

_ROUNDS_MAX: Final = 20
_LEAVES_AT_ONCE: Final = 16
"""So many leaves are written before their commit: a process that is killed loses no more."""

_LOOKED_UP_TOGETHER: Final = 32
_DELETED_TOGETHER: Final = 100
_SLACK: Final = timedelta(seconds=10)
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Rewritten:
    """What was written anew.

    Attributes:
        rows: Rows with a purged key that files had.
        files: Files that were replaced.
        limits: Partitions that were split at other values.
    """

    rows: int = 0
    files: int = 0
    limits: int = 0


def rows_with_keys(table: OpenTable, keys: PurgedKeys, names: Iterable[str]) -> dict[str, int]:
    """Return how many rows with a purged key each file has, of those that have some."""
    found: dict[str, int] = {}
    columns = table.schema.row_key_names
    keys_alone = row_key_columns(table.schema, table.arrow_schema)
    for some in _in_parts(names, _LOOKED_UP_TOGETHER):
        tables = table.reader.lookup.look_up(some, keys.batch, keys_alone, columns)
        found |= {
            name: rows.num_rows for name, rows in zip(some, tables, strict=True) if rows.num_rows
        }
    return found


def write_keys_out(
    table: OpenTable, keys: PurgedKeys, note: Callable[[Rewritten], None]
) -> TableState:
    """Write files and the tree anew until nothing of the newest state has a purged key.

    Args:
        table: The table.
        keys: The keys.
        note: Called after each commit with what was done by it.

    Raises:
        CommitContended: others added rows with these keys, or changed the same leaves, each time.
        CommitTooLarge: the state store cannot replace as much at once.
        DataDamaged: a file cannot be read.
    """
    for _ in range(_ROUNDS_MAX):
        state = table.store.refresh()
        try:
            tops = partitions_split_at(state.tree, _gone_limits(table, keys, state))
            rows = rows_with_keys(table, keys, referenced_files(state))
            to_obey = [*_files_to_obey(table, state, keys)]
        except DataDamaged:  # or files were replaced, and deleted
            if table.store.refresh().number == state.number:
                raise
            continue
        wanted = {*rows, *to_obey, *_parts_below(state, tops)}
        if wanted:
            _write(table, keys, state, wanted, rows, note)
        elif tops:
            _replace_limits(table, keys, state, note)
        else:
            return state
    raise CommitContended(
        f"others added rows with purged keys to table {table.name!r}, or changed the same leaves, "
        f"in each of {_ROUNDS_MAX} attempts. Stop who adds them, and purge the same keys again: it "
        "goes on"
    )


def referenced_files(state: TableState) -> list[str]:
    """Return the files that partitions reference, each once."""
    references = state.files.to_arrow()
    is_referenced = references.column("partition_id").is_valid()
    names: list[str] = pc.unique(references.column("filename").filter(is_referenced)).to_pylist()
    return sorted(names)


def _files_to_obey(table: OpenTable, state: TableState, keys: PurgedKeys) -> Iterator[str]:
    """Yield the files that have yet to obey a deletion which has a key."""
    with_keys = rows_with_keys(table, keys, state.key_files())
    for leaf in state.leaf_partitions() if with_keys else ():
        for reference in state.references_of(leaf.partition_id):
            found = key_files_of(state, reference.sequence, leaf.partition_id)
            if any(each.filename in with_keys for each in found):
                yield reference.filename
    for delete in state.deletes:
        if not keys.is_named_by(delete):
            continue
        for leaf, _ in state.tree.leaves_overlapping(delete.regions):
            for reference in state.references_of(leaf.partition_id):
                if delete.applies_to(reference.sequence):
                    yield reference.filename


def _parts_below(state: TableState, tops: Iterable[Any]) -> Iterator[str]:
    """Yield the files of which leaves below partitions have parts: such leaves cannot be merged."""
    for top in tops:
        for leaf in leaves_below(state.tree, top.partition_id):
            for reference in state.files.references_on(leaf.partition_id):
                if not reference.whole_file:
                    yield reference.filename


def _write(
    table: OpenTable,
    keys: PurgedKeys,
    state: TableState,
    wanted: Collection[str],
    rows: dict[str, int],
    note: Callable[[Rewritten], None],
) -> None:
    """Write some files anew, some leaves at a time."""
    divide = _divided(table, keys)
    at_once = _LEAVES_AT_ONCE if table.store.changes_max is None else 1
    leaf_ids = _leaves_of(state, wanted)
    for some in _in_parts(leaf_ids, at_once):

        def attempt(some: Sequence[str] = some) -> WrittenOut:
            now = table.store.refresh()
            there = [each for each in some if each in now.tree]
            below = [leaf for each in there for leaf in leaves_below(now.tree, each)]
            with_some = {leaf.partition_id for leaf in below} & {*_leaves_of(now, wanted)}
            if not with_some:
                return WrittenOut(now, 0)
            return write_out(table, sorted(with_some), divide, only=wanted)

        until_undisturbed(table, attempt)
    left = table.store.refresh()
    gone = [name for name in wanted if not left.files.references_count(name)]
    note(Rewritten(rows=sum(rows.get(name, 0) for name in gone), files=len(gone)))


def _leaves_of(state: TableState, names: Collection[str]) -> list[str]:
    """Return the leaves that some files may have rows of."""
    holders = {
        reference.partition_id for name in names for reference in state.files.references_to(name)
    }
    return [
        leaf.partition_id
        for leaf in state.leaf_partitions()
        if not holders.isdisjoint(state.tree.ids_upwards(leaf.partition_id))
    ]


def _divided(table: OpenTable, keys: PurgedKeys) -> Divide:
    """Return what leaves the keys out, and processes the other rows as a compaction does."""
    processing, columns = table.reader.processing, table.arrow_schema.names
    overflow = Overflow.LIMIT if processing.function else Overflow.KEEP_APART

    @contextmanager
    def divide(version: TableVersion, leaf: Region) -> Iterator[Staying]:
        reading = _unprocessed(version.reading)
        every = query_regions(reading, version.state, [leaf], columns, version.now_ms)
        with every:
            kept = RowsWithoutKeys(row_groups(every, CHUNK_ROWS), keys.inside(leaf))
            rows = process(kept, processing, table.schema, now_ms=version.now_ms, overflow=overflow)
            yield Staying(row_groups(rows, CHUNK_ROWS), lambda _: kept.left_out, always=True)

    return divide


def _unprocessed(reading: TableReader) -> TableReader:
    return replace(reading, processing=Processing())


# ---------------------------------------------------------------- limits of partitions


def _gone_limits(
    table: OpenTable, keys: PurgedKeys, state: TableState
) -> Callable[[int, Any], bool]:
    """Return what tells whether a limit has to go: where no row that stays has its value.

    A row key of several fields shares values with others; a limit says one value of one field.
    """
    known: dict[tuple[int, Any], bool] = {}

    def is_gone(dimension: int, value: Any) -> bool:
        if not keys.has_limit(dimension, value):
            return False
        if keys.is_single:
            return True
        if (dimension, value) not in known:
            known[dimension, value] = not _has_row(table, state, keys, dimension, value)
        return known[dimension, value]

    return is_gone


def _has_row(
    table: OpenTable, state: TableState, keys: PurgedKeys, dimension: int, value: Any
) -> bool:
    """Return whether a row that stays has a value in a row key field."""
    there = exact_range(table.schema.row_keys[dimension], value)
    part = whole_region(table.schema).with_range(dimension, there)
    names = table.schema.row_key_names
    with query_regions(_unprocessed(table.reader), state, [part], names, 0) as rows:
        return any(True for _ in RowsWithoutKeys(row_groups(rows, CHUNK_ROWS), keys.table))


def _replace_limits(
    table: OpenTable,
    keys: PurgedKeys,
    state: TableState,
    note: Callable[[Rewritten], None],
) -> None:
    """Replace the limits below one partition, and move references down to its leaves again."""
    is_gone = _gone_limits(table, keys, state)

    def instead(region: Region, dimension: int, value: Any) -> Any | None:
        return _least_from(table, state, region, dimension, value)

    top = partitions_split_at(state.tree, is_gone)[0]
    for leaf in leaves_below(state.tree, top.partition_id):
        for reference in state.files.references_on(leaf.partition_id):
            if reference.job_id is not None:
                release_claims(table, reference.job_id)
    changes = without_limits(state.tree, top, is_gone, instead, table.context.new_id)
    try:
        done = table.store.commit_group(changes, together=True)
    finally:
        table.undo_commit_if_deleted()
    refusals = [each for each in done.refusals if each is not None]
    if not refusals:
        note(Rewritten(limits=splits_at(state.tree, top, is_gone)))
    elif isinstance(refusals[0], CommitTooLarge):
        raise refusals[0]
    else:  # others changed the tree or its files; the next round looks again
        _log.info("limits of table %s are replaced again: %s", table.name, refusals[0])
    push_down_references(table)


def _least_from(
    table: OpenTable, state: TableState, region: Region, dimension: int, value: Any
) -> Any | None:
    """Return the least value of a row key field in a region from a value on; None without rows."""
    asked = region.ranges[dimension].intersection(Range(value, None))
    if asked is None:
        return None
    name = table.schema.row_key_names[dimension]
    part, is_first = region.with_range(dimension, asked), dimension == 0
    rows = query_regions(
        _unprocessed(table.reader),
        state,
        [part],
        [name],
        0,
        ordered=is_first,
        rows_max=1 if is_first else None,
    )
    least = None
    with rows:
        for batch in rows:
            if not batch.num_rows:
                continue
            here = pc.min(batch.column(0)).as_py()
            least = here if least is None else min(least, here)
            if is_first:
                break
    return least


# ---------------------------------------------------------------- files that nothing references


def delete_unreferenced(
    table: OpenTable, keys: PurgedKeys, note: Callable[[int], None]
) -> dict[str, str]:
    """Delete files that no partition references and have a key; return what failed, and why."""
    failures: dict[str, str] = {}
    state = table.store.refresh()
    in_use = state.key_files()
    waiting = [name for name, _ in state.files.unreferenced() if name not in in_use]
    at_once = min(_DELETED_TOGETHER, table.store.changes_max or _DELETED_TOGETHER)
    for some in _in_parts(_with_keys_or_gone(table, keys, waiting), at_once):
        failed = delete_data_files(some, table.files)
        gone = [name for name in some if name not in failed]
        if gone:
            forget_files(gone, table.store)
            note(len(gone))
        failures |= failed
    return failures


def _with_keys_or_gone(table: OpenTable, keys: PurgedKeys, names: Sequence[str]) -> Iterator[str]:
    """Yield the files that have a key, cannot be read, or were deleted before."""
    for name in names:
        try:
            if table.files.stored_at(name) is None or rows_with_keys(table, keys, [name]):
                yield name
        except DataDamaged as damage:
            _log.warning("%s is deleted, for what it has cannot be read: %s", name, damage)
            yield name


def delete_orphans(table: OpenTable, keys: PurgedKeys, note: Callable[[int], None]) -> None:
    """Delete data files that no transaction names and have a key, and sketches beside them.

    A writer that has yet to commit such a file is refused from then on.
    """
    found = _orphans_with_keys(table, keys)
    if not found:
        return
    table.store.commit(SweepOrphans(before=table.store.time() + _SLACK))
    state = table.store.refresh()
    left = {name: keys_ for name, keys_ in found.items() if not state.files.is_tracked(name)}
    failures = delete_groups(left, table.files)
    note(len(left) - len(failures))


def _orphans_with_keys(table: OpenTable, keys: PurgedKeys) -> dict[str, list[str]]:
    stored = [(info.key, info.modified) for info in table.files.listing("data/")]
    before = table.store.time() + _SLACK
    names = sorted(orphans_of(table.store.refresh(), stored, before))
    files = [name for name in names if paths.is_data_file(name)]
    found = {
        name: [name, paths.sketch_file(name)] for name in _with_keys_or_gone(table, keys, files)
    }
    beside = {each for both in found.values() for each in both}
    known = {paths.sketch_file(name) for name in files}
    found |= {  # a sketch without its file says keys too
        name: [name]
        for name in names
        if name.endswith(".sketches") and name not in beside and name not in known
    }
    return found


def _in_parts(items: Iterable[str], count_max: int) -> Iterator[tuple[str, ...]]:
    return in_groups(items, lambda _: 1, count_max)
