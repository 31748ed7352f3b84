"""Copies an instance to another place while it is written to, each table at one transaction."""

from __future__ import annotations

from dataclasses import replace
from logging import getLogger

from sleeper.errors import InstanceAlreadyExists, TableNotFound, UrlInvalid
from sleeper.instance.properties import StoredProperties
from sleeper.language.value_classes import dataclass
from sleeper.model import paths
from sleeper.model.formats.properties_file import VERSION_PROPERTY
from sleeper.model.known_properties.deployment import DEPLOYMENT_PROPERTIES
from sleeper.model.known_properties.typed import TableProperties
from sleeper.model.tables import STATE_MOVE, STATE_STORE, StateMove, TableRecord
from sleeper.ports.objects import Objects
from sleeper.state.state_store import StateStore
from sleeper.storage.object_index import object_table_index
from sleeper.storage.places import Place
from sleeper.tables.copy_table import CopiedTable, copy_table
from sleeper.tables.instance_context import InstanceContext
from sleeper.tables.state_stores import open_state_store
from sleeper.tables.table import Table

_LOG = getLogger(__name__)
_NOT_COPIED = {
    "sleeper.jobs.url",
    "sleeper.default.table.statestore.classname",
    VERSION_PROPERTY,
    *(known.name for known in DEPLOYMENT_PROPERTIES),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Backup:
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
    if target.deployment is not None:
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
            copied[record.table_id], named = _copy(record, context, target.objects)
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
    record: TableRecord, context: InstanceContext, target: Objects
) -> tuple[CopiedTable, TableRecord]:
    """Copy a table; return its record in the copy, where its state may be in another store."""
    table = Table(record, context)
    opened = table._current()  # noqa: SLF001 - as the table's own methods do
    files = target.under(record.table_id)
    in_its_folder = _as_copied(opened.record)

    def open_store(move: StateMove | None) -> StateStore:
        values = {**in_its_folder.properties, **(move.properties if move else {})}
        properties = TableProperties(values, context.properties)
        return open_state_store(record.table_id, files, table.schema, properties, context)

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
    index = object_table_index(target, new_id=context.new_id, pause=context.pause)
    there = {record.table_id: record for record in index.all()}
    for table_id in there.keys() - records.keys():
        index.remove(table_id)
    for table_id, record in records.items():
        if table_id not in there:
            index.add(record)
        elif there[table_id] != record:
            index.replace(there[table_id], record)
