"""Backup: copies an instance while it is written to, each table at one transaction.

    1. each table is copied: its data files, then its log and state up to one transaction
    2. the table index is written
    3. the properties are written last: before that, the copy is no instance

After an interruption the same call goes on where it stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from logging import getLogger
from typing import TypeVar

from sleeper.errors import (
    AlreadyExists,
    CommitContended,
    DataDamaged,
    InstanceAlreadyExists,
    ObjectNotFound,
    TableNotFound,
    UrlInvalid,
)
from sleeper.html.values import NotebookHtml
from sleeper.instance.properties import StoredProperties
from sleeper.model import paths
from sleeper.model.formats.properties_file import VERSION_PROPERTY
from sleeper.model.known_properties.deployment import DEPLOYMENT_PROPERTIES
from sleeper.model.known_properties.typed import TableProperties
from sleeper.model.paths import sketch_file
from sleeper.model.tables import STATE_MOVE, STATE_STORE, StateMove, TableRecord
from sleeper.ports.ids import NewId
from sleeper.ports.objects import Objects
from sleeper.ports.transaction_log import TransactionLog
from sleeper.state.state_store import StateStore
from sleeper.state.table_state import TableState
from sleeper.state.transactions.moves import MoveState
from sleeper.storage.places import Place
from sleeper.storage.snapshots import ObjectSnapshotStore
from sleeper.storage.table_index import object_table_index
from sleeper.storage.transaction_log import ObjectTransactionLog
from sleeper.tables.instance_context import InstanceContext
from sleeper.tables.state_stores import open_state_store
from sleeper.tables.table import Table

_LOG = getLogger(__name__)

Piece = TypeVar("Piece")
Result = TypeVar("Result")

_AT_ONCE = 8
_PIECE_BYTES = 8 << 20
_STATES_MAX = 20
_NOT_COPIED = {
    "sleeper.jobs.url",
    "sleeper.default.table.statestore.classname",
    VERSION_PROPERTY,
    *(known.name for known in DEPLOYMENT_PROPERTIES),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedTable:
    """A table that was copied.

    Attributes:
        name: The table.
        transaction: The copy has the rows of this transaction.
        files: Its data files.
        bytes: Their size, and that of their sketches.
        move: The move of its state to a log in the copy; None if the whole log was copied.
    """

    name: str
    transaction: int
    files: int
    bytes: int
    move: StateMove | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Backup(NotebookHtml):
    """A copy of an instance.

    Attributes:
        url: Where it is; it opens like any instance.
        tables: Its tables, each at one transaction.
    """

    url: str
    tables: tuple[CopiedTable, ...]


def backup_instance(context: InstanceContext, target: Place) -> Backup:
    """Copy an instance: tables with the rows of one transaction each, and all properties.

    The properties are the newest ones at the end, not those of an open handle.
    The target is no instance before all of it is there: what makes it one is written last. Run it
    again after an interruption, and it goes on where it stopped. Queues, trackers and results of
    queries are not copied, and the copy does not name the queues of the original. The logs of its
    tables are in their folders, wherever those of the original are.

    Raises:
        InstanceAlreadyExists: an instance is at the target.
        UrlInvalid: the target lies in an instance, or would be an instance in AWS.
        AlreadyExists: other objects are at the target.
        CommitContended: files were collected faster than they could be copied.
        StorageFailed: source or target cannot be reached.
    """
    if target.has_resources:
        raise UrlInvalid(
            f"cannot copy to {target.url}: a copy is in a folder or in s3://bucket/folder"
        )
    if target.objects.read(paths.INSTANCE_PROPERTIES) is not None:
        raise InstanceAlreadyExists(
            f"an instance is at {target.url} already: name a new place for each copy"
        )
    if (outer := target.enclosing_instance()) is not None:
        raise UrlInvalid(f"{target.url} lies inside the instance at {outer}: copy beside it")
    copied: dict[str, CopiedTable] = {}
    records: dict[str, TableRecord] = {}
    for record in context.index.all():
        try:
            copied[record.table_id], named = _copy(record, context, target)
        except TableNotFound:
            _LOG.info("table %s was deleted while it was copied", record.name)
            target.objects.delete(
                [info.key for info in target.objects.listing(f"{record.table_id}/")]
            )
        else:
            records[record.table_id] = named
    _write_index(records, context, target.objects)
    newest = StoredProperties(context.objects, context.url).newest() or context.properties.values
    values = {name: text for name, text in newest.items() if name not in _NOT_COPIED}
    if not StoredProperties(target.objects, target.url).create(values):
        raise InstanceAlreadyExists(f"somebody else made an instance at {target.url} meanwhile")
    return Backup(url=target.url, tables=tuple(copied.values()))


def _copy(
    record: TableRecord, context: InstanceContext, target: Place
) -> tuple[CopiedTable, TableRecord]:
    """Copy a table; return its record in the copy, where its state may be in another store."""
    table = Table(record, context)
    opened = table._current()  # noqa: SLF001 - as the table's own methods do
    files = target.objects.under(record.table_id)
    in_its_folder = _as_copied(opened.record)

    def open_store(move: StateMove | None) -> StateStore:
        values = {**in_its_folder.properties, **(move.properties if move else {})}
        properties = TableProperties(values, context.properties)
        opening = partial(open_state_store, is_dated=target.is_dated)
        return opening(record.table_id, files, table.schema, properties, context)

    copied = copy_table(
        record.name,
        store=opened.store,
        source=opened.files,
        target=files,
        open_store=open_store,
        new_id=context.new_id,
    )
    table.refresh()  # raises TableNotFound where it was deleted meanwhile
    moved = copied.move.properties if copied.move else {}
    return copied, replace(in_its_folder, properties={**in_its_folder.properties, **moved})


def _as_copied(record: TableRecord) -> TableRecord:
    """Return the record of the copy: its log is in its folder."""
    of_state = (STATE_STORE, STATE_MOVE)
    kept = {name: text for name, text in record.properties.items() if name not in of_state}
    return replace(record, properties=kept)


def _write_index(
    records: dict[str, TableRecord], context: InstanceContext, target: Objects
) -> None:
    """Write the index of the copy; one that an interrupted copy left is corrected."""
    index = object_table_index(target, new_id=context.new_id, pause=context.clock.back_off)
    there = {record.table_id: record for record in index.all()}
    for table_id in there.keys() - records.keys():
        index.remove(table_id)
    for table_id, record in records.items():
        if table_id not in there:
            index.add(record)
        elif there[table_id] != record:
            index.replace(there[table_id], record)


def copy_table(
    name: str,
    *,
    store: StateStore,
    source: Objects,
    target: Objects,
    open_store: Callable[[StateMove | None], StateStore],
    new_id: NewId,
) -> CopiedTable:
    """Copy the data files, the log and the newest snapshot of a table, and check the copy.

    The log of the copy is in its objects, wherever that of the table is. If the table's state
    store keeps no log, or its log does not begin with the table, only the newest state is copied.

    Files of the state that were compacted and collected meanwhile are missed: then the copy goes
    on with the newest state, which does not have them. What was copied is not copied again, so
    each try has less to do.

    Args:
        name: The table's name, for messages.
        store: Its state.
        source: Its objects.
        target: Where they go. What lies there from an interrupted copy is gone on with.
        open_store: Opens the state of the copy: its first log, or the one that it is moved to.
        new_id: Makes random ids.

    Raises:
        AlreadyExists: another table's log is there.
        CommitContended: files were collected faster than they could be copied.
        DataDamaged: the copy is not what was read; nothing uses it yet.
        StorageFailed: source or target cannot be reached.
    """
    for _ in range(_STATES_MAX):
        there = {info.key: info.size_bytes for info in target.listing("data/")}
        state = store.refresh()
        names = sorted({reference.filename for reference in state.references()})
        try:
            sizes = dict(_each(partial(_copy_data_file, source, target, there), names))
            break
        except ObjectNotFound as gone:
            _LOG.info("%s: going on with a newer transaction: %s", name, gone)
    else:
        raise CommitContended(
            f"files of table {name!r} were collected faster than they were copied, "
            f"{_STATES_MAX} times. Set sleeper.table.gc.delay.minutes to longer than the copy "
            "takes, and run it again: it goes on where it stopped."
        )
    move = None
    if store.log is not None and state.moved is None:
        _copy_log(state.number, store.log, source, target)
    else:
        move = _move_state(state, new_id()[:8], open_store, target)
    _check(name, state, open_store(move), target)
    return CopiedTable(
        name=name,
        transaction=state.number,
        files=len(names),
        bytes=sum(sizes[filename] for filename in names),
        move=move,
    )


def _copy_data_file(
    source: Objects, target: Objects, there: dict[str, int], name: str
) -> tuple[str, int]:
    """Copy a data file after its sketch, unless it is there; return it with its size.

    Raises:
        ObjectNotFound: it is gone.
    """
    if name in there:
        return name, there[name]
    sketch = sketch_file(name)
    if (body := source.read(sketch)) is not None:
        target.put(sketch, body)
    size = source.size(name)
    with target.open_output(name) as output:
        for offset in range(0, size, _PIECE_BYTES):
            piece = (offset, min(_PIECE_BYTES, size - offset))
            output.write(source.read_ranges(name, [piece])[0])
    return name, size


def _copy_log(number: int, log: TransactionLog, source: Objects, target: Objects) -> None:
    """Copy the entries up to a number, and the newest snapshot of them."""
    copy = ObjectTransactionLog(target)
    for _ in _each(lambda each: _copy_entry(each, log, copy), range(1, number + 1)):
        pass
    snapshots = ObjectSnapshotStore(source)
    known = [each for each in snapshots.numbers() if each <= number]
    if not known:
        return
    prefix = snapshots.key(known[-1], "")
    last = snapshots.key(known[-1], snapshots.last_part)
    parts = [info.key for info in source.listing(prefix) if info.key != last]
    for key in [*parts, last]:
        body = source.read(key)
        if body is None:
            raise DataDamaged(f"{source.url(key)} is missing: the snapshot is not complete")
        _create(key, body, target)


def _copy_entry(number: int, log: TransactionLog, copy: ObjectTransactionLog) -> None:
    body = log.read(number)
    if body is None:
        raise DataDamaged(f"entry {number} of the table's log is missing")
    _create(copy.key(number), body, copy.objects)


def _create(key: str, body: bytes, target: Objects) -> None:
    if not target.create(key, body) and target.read(key) != body:
        raise AlreadyExists(
            f"{target.url(key)} is part of something else: copy to a place that is empty"
        )


def _move_state(
    state: TableState,
    token: str,
    open_store: Callable[[StateMove | None], StateStore],
    target: Objects,
) -> StateMove:
    """Begin a log in the copy with a state. What an interrupted copy left of others is deleted."""
    target.delete([info.key for info in target.listing(paths.MOVED_STATES)])
    move = StateMove(TableProperties().state_store, state.number + 1, token)
    copied = open_store(move)
    copied.begin_with(state)
    copied.commit(MoveState(move=move))
    return move


def _check(name: str, state: TableState, copied: StateStore, target: Objects) -> None:
    """Compare the state of the copy, and look whether it has all files.

    Raises:
        DataDamaged: it is another, or a file is missing.
    """
    there = {info.key for info in target.listing("data/")}
    found = copied.refresh()
    wanted, has = (sorted(map(repr, each.references())) for each in (state, found))
    missing = [each.filename for each in state.references() if each.filename not in there]
    wanted_number = state.number if found.moved == state.moved else state.number + 1
    if found.number != wanted_number or wanted != has or missing:
        raise DataDamaged(
            f"the copy of table {name!r} is at transaction {found.number} with {len(has)} file "
            f"references, and should be at {state.number} with {len(wanted)}; {len(missing)} files "
            "are missing. It is not usable: copy to another place."
        )


def _each(do: Callable[[Piece], Result], pieces: Iterable[Piece]) -> Iterable[Result]:
    """Do something to each piece, a few at once, in order."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        running = [pool.submit(do, piece) for piece in pieces]
        try:
            for each in running:
                yield each.result()
        finally:
            for each in running:
                each.cancel()
