"""Publishing: lets engines of others read the table's files in place, as Delta or Iceberg.

1. the newest version is chosen whose files have rows of the table alone (`state/plans/publish.py`);
   `make_clean` compacts what stands in the way
2. a note is stored, so that garbage collection keeps its files (`publications`)
3. the difference to the version that was published before is written in the format; the last write
   creates an object if it is absent, and makes the version visible

If the process is killed in between, readers have the version before. If another publisher is
faster, this one begins again from what is there then. Nothing is committed to the table.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from sleeper.columns.joined import one_array
from sleeper.engine.published import delta, iceberg
from sleeper.engine.published.versions import (
    FileTotals,
    LastPublished,
    NewVersion,
    PublishedLog,
    PublishedTable,
    PublishedVersion,
)
from sleeper.errors import BadRequest, CommitContended, NothingToPublish, VersionNotFound
from sleeper.html.values import NotebookHtml
from sleeper.lookup.parquet.file_end import range_reader, read_file_end
from sleeper.model import paths
from sleeper.state.file_references import FileReferences
from sleeper.state.plans.publish import (
    FORMATS,
    NotedPublication,
    Obstacles,
    PublishedFormat,
    is_unpublishable,
    obstacles_of,
)
from sleeper.state.table_state import TableState
from sleeper.tables.compact import compact
from sleeper.tables.history import StatesBefore
from sleeper.tables.open_table import OpenTable
from sleeper.tables.publications import LOGS, note_of
from sleeper.tables.query import checked_query

_ATTEMPTS: Final = 10
_ROUNDS: Final = 5
_VERSIONS_BACK: Final = 20
"""So many versions are looked at, if the newest cannot be published."""
_MICROSECOND: Final = timedelta(microseconds=1)
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishResult(NotebookHtml):
    """What readers of a format see of a table.

    Attributes:
        format: The format.
        transaction: The transaction whose state is published; None if none is.
        version: The number of that version in the format; None if none is published.
        lag: How many transactions of the table are not published yet; 0 if all files of the newest
            state are the published ones, and no rows of them were deleted since.
        is_new: Whether this call published the version.
        files: Its data files.
        size_bytes: The bytes of them.
        rows: The rows of them.
        location: What to give a reader: the folder of the table, or a file of metadata.
        obstacles: Why the newest state is not published; None if it is.
    """

    format: PublishedFormat
    transaction: int | None
    version: int | None
    lag: int
    is_new: bool
    files: int
    size_bytes: int
    rows: int
    location: str
    obstacles: str | None


def checked_format(as_: object) -> PublishedFormat:
    """Return a format that a caller asks for.

    Raises:
        BadRequest: there is no such format.
    """
    for known in FORMATS:
        if as_ == known and known in LOGS:
            return known
    raise BadRequest(f"a table is published as {' or '.join(LOGS)}, not {as_!r:.100}")


def publish(table: OpenTable, as_: object, *, make_clean: bool = False) -> PublishResult:
    """Publish the newest version that other engines may read (`Table.publish`)."""
    name = checked_format(as_)
    check_publishable(table, name)
    if make_clean:
        _make_clean(table)
    for _ in range(_ATTEMPTS):
        done = _published(table, name)
        if done is not None:
            if done.version == 0:  # later versions look whether the one before is still there
                table.undo_commit_if_deleted()
            return done
    raise CommitContended(
        f"other publishers were faster {_ATTEMPTS} times; table {table.name} is published by them"
    )


def publish_if_due(table: OpenTable) -> tuple[PublishResult, ...]:
    """Publish in each format that the table's properties name, if enough was committed since."""
    done = []
    for asked in table.properties.publish.formats or ():
        name = checked_format(asked)
        last = _last(table, name)
        number = 0 if last is None else last.version.transaction
        if table.store.refresh().number - number < table.properties.publish.after_commits:
            continue
        try:
            result = publish(table, name)
        except NothingToPublish as reason:
            _log.info("%s", reason)
            continue
        if result.is_new:
            done.append(result)
    return tuple(done)


def unpublish(table: OpenTable, as_: object) -> int:
    """Remove what a table's readers of a format need besides data files (`Table.unpublish`)."""
    name = checked_format(as_)
    table.published.pop(name, None)
    count = LOGS[name](table.files).remove()
    notes = [info.key for info in table.files.listing(f"{paths.PUBLISHED}{name}/")]
    table.files.delete(notes)
    return count


def publications(table: OpenTable) -> tuple[PublishResult, ...]:
    """Return what is published of a table, format by format (`Table.publications`)."""
    state, found = table.store.refresh(), []
    for name in LOGS:
        if (last := _last(table, name)) is not None:
            obstacles = _obstacles(table, state, last.files)
            found.append(_told(table, name, last, state, obstacles))
    return tuple(found)


def check_publishable(table: OpenTable, name: PublishedFormat) -> None:
    """Check that a table may be published in a format at all.

    Raises:
        BadRequest: a column has a type or name that the format lacks, rows are changed when they
            are read in a way that files do not show, or no other process can reach the table.
    """
    if table.context.url.startswith("memory:"):
        raise BadRequest(
            f"table {table.name!r} is in the memory of this process, so no other engine can read it"
        )
    reason = is_unpublishable(table.reader.processing)
    if reason is not None:
        raise BadRequest(f"table {table.name!r} cannot be published: {reason}")
    fields = {"delta": delta, "iceberg": iceberg}[name].unpublishable_fields(table.schema)
    if fields:
        raise BadRequest(f"table {table.name!r} cannot be published as {name}: {'; '.join(fields)}")


# ---------------------------------------------------------------- the version


@dataclass(frozen=True, slots=True)
class _Head:
    """The newest version that can be published, and why no newer one can."""

    state: TableState | None
    obstacles: Obstacles


def _published(table: OpenTable, name: PublishedFormat) -> PublishResult | None:
    """Publish once; None if another publisher was faster, or this one was stopped for too long."""
    begun_s = table.context.clock.ticks_s()
    newest, log, last = table.store.refresh(), LOGS[name](table.files), _last(table, name)
    head = _head(table, newest, last)
    if head.state is None:
        if last is None:
            raise NothingToPublish(_no_version(table, head.obstacles))
        return _told(table, name, last, newest, head.obstacles)
    about, change = _about(table, head.state), _change(table, head.state, last, log)
    is_same = not change.added.num_rows and not len(change.removed)
    if last is not None and is_same and last.version.described == log.described_by(about):
        if last.files is None:
            log.complete(last.version)
        table.published[name] = known = LastPublished(last.version, head.state.files)
        return _told(table, name, known, newest, head.obstacles)
    note = NotedPublication(
        version=PublishedVersion.number_after(None if last is None else last.version),
        transaction=head.state.number,
        at_us=_microseconds(head.state.at),
    )
    table.files.put(note_of(name, note), b"")
    is_late = table.context.clock.ticks_s() - begun_s > _protected(table).total_seconds()
    version = None
    if not is_late and (last is None or log.is_there(last.version)):
        version = log.publish(about, None if last is None else last.version, change)
    if version is None:
        table.published.pop(name, None)
        return None
    table.published[name] = known = LastPublished(version, head.state.files)
    _log.info("transaction %d of %s is published as %s", head.state.number, table.name, name)
    return replace(_told(table, name, known, newest, head.obstacles), is_new=True)


def _about(table: OpenTable, state: TableState) -> PublishedTable:
    """Return what is told of a table besides files, with the columns that it had in a state."""
    return PublishedTable(
        table_id=table.record.table_id,
        name=table.name,
        schema=state.schema_then(table.schema, table.store.known()),
        url=table.files.url("data").removesuffix("/data"),
    )


def _microseconds(at: datetime | None) -> int:
    return 0 if at is None else (at - datetime.fromtimestamp(0, at.tzinfo)) // _MICROSECOND


def _protected(table: OpenTable) -> timedelta:
    """Return for how long at most a file may be unreferenced that is to be published.

    Garbage collection keeps it for twice as long, so it finds the note before it may delete it.
    """
    gc = table.properties.gc
    return timedelta(minutes=max(gc.delay_minutes, gc.versions_kept_minutes)) / 2


def _last(table: OpenTable, name: PublishedFormat) -> LastPublished | None:
    """Return what was published last: as this process knows it, or else as it is stored.

    If another process has published since, the version after the known one is taken.
    """
    known = table.published.get(name)
    if known is not None:
        return known
    version = LOGS[name](table.files).newest()
    return None if version is None else LastPublished(version, None)


def _head(table: OpenTable, newest: TableState, last: LastPublished | None) -> _Head:
    """Return the newest version that can be published, unless it is older than the last."""
    obstacles = _obstacles(table, newest, None if last is None else last.files)
    if obstacles.none and not _is_united(table, newest):
        obstacles = replace(obstacles, not_united=True)
    if obstacles.none:
        return _Head(newest, obstacles)
    found = None
    for state in _versions_before(table, newest, last):
        if _obstacles(table, state, None).none and _is_united(table, state):
            found = state
    return _Head(found, obstacles)


def _obstacles(table: OpenTable, state: TableState, known: FileReferences | None) -> Obstacles:
    def rows_in(name: str) -> int:
        end = read_file_end(table.files.size(name), range_reader(table.files.read_ranges, name))
        return sum(end.footer.row_counts)

    names = None
    if known is not None:
        pairs, _ = state.files.touched_since(known)
        names = {filename for filename, _ in pairs}
    return obstacles_of(state, table.reader.processing, rows_in, names)


def _is_united(table: OpenTable, state: TableState) -> bool:
    """Return whether the files have as many rows as the table: none is left to be united.

    Some may be if they were there before the table got its aggregations.
    """
    if table.reader.processing.is_identity:
        return True
    query = checked_query(table.schema, columns=[table.schema.names[0]], ordered=False)
    with query.rows(table, state) as rows:
        return rows.count() == sum(each.rows for each in state.files.totals().values())


def _versions_before(
    table: OpenTable, newest: TableState, last: LastPublished | None
) -> Iterator[TableState]:
    """Yield versions between the published one and the newest, as far as all files are there.

    Versions without rows are left out: nobody wants to see a table empty that has rows.
    """
    log = table.store.log
    if log is None:
        return
    published = 0 if last is None else last.version.transaction
    moved = 0 if newest.moved is None else newest.moved.number
    first = max(published + 1, moved, newest.number - _VERSIONS_BACK, 1)
    since = table.store.time() - _protected(table)
    states = StatesBefore(table.store, log, table.schema)
    before: TableState | None = None
    try:
        for number in range(first, newest.number + 1):
            state = states.of(number + 1) if number < newest.number else newest
            is_late = state.at is None or state.at <= since
            if before is not None and not is_late and not before.needs_more_than(newest):
                yield before
            before = state if state.files.reference_count else None
    except VersionNotFound:
        return


def _change(
    table: OpenTable, state: TableState, last: LastPublished | None, log: PublishedLog
) -> NewVersion:
    """Return what is to be published: the difference to what was published last."""
    assert state.at is not None
    files = state.files
    sized, everything = partial(_with_sizes, table), None
    if last is not None and last.files is not None:
        pairs, _ = files.touched_since(last.files)
        touched = {filename for filename, _ in pairs}
        now = {name for name in touched if files.references_count(name)}
        before = {name for name in touched if last.files.references_count(name)}
        added = sized(files.data_files(now - before))
        gone = sized(last.files.data_files(before - now))
        removed = one_array(gone["filename"])
        totals = _plus(_plus(last.version.totals, _totals(added), 1), _totals(gone), -1)
    else:
        names = removed = pa.array([], pa.large_string())
        if last is not None:
            names = log.names(last.version)
        everything = added = sized(files.data_files())
        totals = _totals(added)
        if last is not None:
            removed = names.filter(pc.invert(pc.is_in(names, value_set=added["filename"])))
            added = added.filter(pc.invert(pc.is_in(added["filename"], value_set=names)))
    return NewVersion(
        transaction=state.number,
        at=state.at,
        files=lambda: sized(files.data_files()) if everything is None else everything,
        added=added,
        removed=removed,
        totals=totals,
    )


def _with_sizes(table: OpenTable, files: pa.Table) -> pa.Table:
    """Return files with the sizes that versions of Sleeper before did not note."""
    lacking = pc.is_null(files["size_bytes"])
    if not pc.any(lacking).as_py():
        return files
    names = files.filter(lacking)["filename"].to_pylist()
    found = pa.array([table.files.size(name) for name in names], pa.int64())
    sizes = pc.replace_with_mask(one_array(files["size_bytes"]), one_array(lacking), found)
    return files.set_column(files.schema.get_field_index("size_bytes"), "size_bytes", sizes)


def _totals(files: pa.Table) -> FileTotals:
    return FileTotals(
        files=files.num_rows,
        size_bytes=pc.sum(files["size_bytes"]).as_py() or 0,
        rows=pc.sum(files["row_count"]).as_py() or 0,
    )


def _plus(one: FileTotals, other: FileTotals, sign: int) -> FileTotals:
    return FileTotals(
        files=one.files + sign * other.files,
        size_bytes=one.size_bytes + sign * other.size_bytes,
        rows=one.rows + sign * other.rows,
    )


def _make_clean(table: OpenTable) -> None:
    """Compact the files that stand in the way of publishing, and no others.

    A file that several leaves share stands in the way once the first of them has let go of it, so
    another round may be needed.
    """
    for _ in range(_ROUNDS):
        obstacles = _obstacles(table, table.store.refresh(), None)
        if obstacles.none or not compact(table, all_files=True, only=obstacles.concern).jobs:
            return


def _no_version(table: OpenTable, obstacles: Obstacles) -> str:
    return (
        f"no version of table {table.name!r} can be read by other engines as it is: {obstacles}. "
        + (
            "They unite when a compaction reads them with newer rows of their leaf"
            if obstacles.not_united
            else "Publish it with make_clean=True (--make-clean), which compacts these files, or "
            "after the next compaction"
        )
    )


def _told(
    table: OpenTable,
    name: PublishedFormat,
    last: LastPublished,
    newest: TableState,
    obstacles: Obstacles,
) -> PublishResult:
    version = last.version
    return PublishResult(
        format=name,
        transaction=version.transaction,
        version=version.version,
        lag=_lag(table, last, newest),
        is_new=False,
        files=version.totals.files,
        size_bytes=version.totals.size_bytes,
        rows=version.totals.rows,
        location=LOGS[name](table.files).location(_about(table, newest)),
        obstacles=None if obstacles.none else str(obstacles),
    )


def _lag(table: OpenTable, last: LastPublished, newest: TableState) -> int:
    """Return how many transactions are not published; 0 if none changed the files or their rows."""
    files = last.files
    if files is None:
        state = table.store.state_after(last.version.transaction)
        files = None if state is None else state.files
    is_as_published = all(each.number <= last.version.transaction for each in newest.deletes)
    if files is not None and is_as_published:
        pairs, _ = newest.files.touched_since(files)
        names = {filename for filename, _ in pairs}
        if all(
            bool(files.references_count(each)) == bool(newest.files.references_count(each))
            for each in names
        ):
            return 0
    return newest.number - last.version.transaction
