"""The table index in DynamoDB: each table's record by its name and by its id.

Both tables have the same item, with upstream's attributes (TableName, TableId, Online) and two of
ours: Properties, and Revision, which counts changes. A change writes both in one transaction. The
properties are also written to the config bucket, where upstream's clients read them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from sleeper.errors import BadRequest, CommitContended, DataDamaged, SchemaInvalid, SleeperError
from sleeper.model.formats.properties_file import read_properties, write_properties
from sleeper.model.jobs.kinds import JobKind
from sleeper.model.known_properties.catalogue import TABLE_PROPERTIES
from sleeper.model.schema import Schema
from sleeper.model.tables import SCHEMA, TableRecord
from sleeper.ports.objects import Objects
from sleeper.state.table_index import TableRecords
from sleeper.storage.aws.dynamo_tables import DynamoTable, DynamoTables, Item
from sleeper.storage.aws.jobs.dynamo_tracker import (
    BATCHER_JOBS,
    QUERY_STATES,
    SUBMITTED_FILES,
    job_lookup,
    job_updates,
    task_status,
)
from sleeper.storage.aws.state.dynamo_log import LOG
from sleeper.storage.aws.state.revision_items import REVISIONS
from sleeper.storage.aws.state.state_items import ITEM_TABLES

logger = logging.getLogger(__name__)

BY_NAME: Final = DynamoTable("table-index-by-name", (("TableName", "S"),), required=True)
BY_ID: Final = DynamoTable("table-index-by-id", (("TableId", "S"),), required=True)

_ATTEMPTS: Final = 20
_RECORD_BYTES_MAX: Final = 350_000
"""DynamoDB allows 400 KB."""
_NAME_BYTES_MAX: Final = 2_048
_ID_IS_FREE: Final = "attribute_not_exists(TableId)"
_NAME_IS_FREE: Final = "attribute_not_exists(TableName)"
_UNCHANGED: Final = "TableId = :id AND Revision = :revision"


class DynamoTableIndex:
    """A `TableIndex` in DynamoDB, safe for threads, processes and machines. It holds nothing.

    Requests: 1 to look up a table; 1 for every megabyte of all tables; a change takes one
    transaction, a read before it (but to add one), a read after it, and one write to the config
    bucket.

    Args:
        tables: The instance's tables in DynamoDB. The two of the index exist.
        config: The instance's objects, for `tables/table-<table id>.properties`.
        pause: Waits after a lost race; called with the number of races lost before.
    """

    def __init__(
        self, tables: DynamoTables, config: Objects, *, pause: Callable[[int], None]
    ) -> None:
        self._tables, self._config, self._pause = tables, config, pause

    def add(self, record: TableRecord) -> None:
        """Put both items if neither the name nor the id is taken."""
        _check_size(record)
        item = _item_of(record, revision=1)
        parts = [self._put(BY_ID, item, _ID_IS_FREE), self._put(BY_NAME, item, _NAME_IS_FREE)]
        self._commit(lambda: parts, lambda records: records.check_addable(record))
        self._write_properties(record.table_id, record)

    def replace(self, before: TableRecord, after: TableRecord) -> None:
        """Put both items if the table's record is `before`."""
        if before.table_id != after.table_id:
            raise BadRequest(
                f"table {before.name!r} has id {before.table_id}, which never changes; its new "
                f"record says {after.table_id}"
            )
        _check_size(after)

        def parts() -> list[Item] | None:
            item = self._tables.get(BY_ID, _id_key(before.table_id))
            if item is None or _record_of(item) != before:
                return None
            changed = _item_of(after, revision=_revision_of(item) + 1)
            by_id = self._put(BY_ID, changed, _UNCHANGED, item)
            if after.name == before.name:
                return [by_id, self._put(BY_NAME, changed, _UNCHANGED, item)]
            removed = self._delete(BY_NAME, _name_key(before.name), item)
            return [by_id, removed, self._put(BY_NAME, changed, _NAME_IS_FREE)]

        self._commit(parts, lambda records: records.check_replaceable(before, after))
        self._write_properties(after.table_id, after)

    def remove(self, table_id: str) -> None:
        """Delete both items if the table exists."""

        def parts() -> list[Item] | None:
            item = self._tables.get(BY_ID, _id_key(table_id))
            if item is None:
                return None
            name = _name_key(item["TableName"]["S"])
            return [
                self._delete(BY_ID, _id_key(table_id), item),
                self._delete(BY_NAME, name, item),
            ]

        self._commit(parts, lambda records: records.check_removable(table_id))
        self._write_properties(table_id, None)

    def by_name(self, name: str) -> TableRecord | None:
        """Get the item with this name."""
        if not name or len(name.encode()) > _NAME_BYTES_MAX:
            return None
        item = self._tables.get(BY_NAME, _name_key(name))
        return None if item is None else _record_of(item)

    def known_by_name(self, name: str) -> TableRecord | None:
        """Return None: nothing is held."""
        return None

    def by_id(self, table_id: str) -> TableRecord | None:
        """Get the item with this id."""
        item = self._tables.get(BY_ID, _id_key(table_id))
        return None if item is None else _record_of(item)

    def all(self) -> tuple[TableRecord, ...]:
        """Scan the tables by id, and sort them by name."""
        records = map(_record_of, self._tables.scan(BY_ID))
        return tuple(sorted(records, key=lambda record: record.name))

    def edited_schema(self, record: TableRecord) -> str | None:
        """Compare the schema of the file in the config bucket."""
        key = properties_key(record.table_id)
        body = self._config.read(key)
        if body is None:
            return None
        text = read_properties(body.decode(errors="replace")).get(SCHEMA)
        return None if text is None or _is_schema(text, record) else key

    def faults(self) -> tuple[str, ...]:
        """Compare the items by name with those by id.

        A change writes both, and may come between both scans: what differs is read again.
        """
        by_id, by_name = (
            {record.table_id: record for record in map(_record_of, self._tables.scan(each))}
            for each in (BY_ID, BY_NAME)
        )
        differing = [each for each in {**by_id, **by_name} if by_id.get(each) != by_name.get(each)]
        return tuple(filter(None, map(self._fault_of, sorted(differing))))

    def _fault_of(self, table_id: str) -> str | None:
        record = self.by_id(table_id)
        if record is None:
            named = [
                each for each in self._tables.scan(BY_NAME) if each["TableId"]["S"] == table_id
            ]
            lost = bool(named) and self.by_id(table_id) is None
            return f"table {table_id} is in the index by name, and not by id" if lost else None
        if self.by_name(record.name) == record or self.by_id(table_id) != record:
            return None
        return f"table {record.name!r} ({table_id}) is not the same in the index by name"

    def _commit(
        self,
        parts: Callable[[], Sequence[Item] | None],
        check: Callable[[TableRecords], object],
    ) -> None:
        """Write `parts` together; when that is refused, let `check` raise the reason.

        If it does not, others changed tables between the write and the check: write again.
        """
        for attempt in range(_ATTEMPTS):
            written = parts()
            if written is not None and self._tables.write_together([written]):
                return
            check(TableRecords.of(0, self.all()))
            logger.info("the table index was changed by others; attempt %d", attempt + 2)
            self._pause(attempt)
        raise CommitContended(
            f"others changed the table index in each of {_ATTEMPTS} attempts. Try the change of "
            "the table index again."
        )

    def _write_properties(self, table_id: str, record: TableRecord | None) -> None:
        """Write a table's properties to the config bucket; delete them without the table.

        Every writer looks for a newer record after it wrote, so the last one to write leaves the
        newest one, unless it is killed or fails.
        """
        key = properties_key(table_id)
        try:
            while True:
                if record is None:
                    self._config.delete([key])
                else:
                    text = write_properties(record.all_properties(), TABLE_PROPERTIES)
                    self._config.put(key, text.encode())
                newest = self.by_id(table_id)
                if newest == record:
                    return
                record = newest
        except SleeperError as error:
            logger.warning(
                "table %s was changed, but %s, which only other programs read, was not: %s. The "
                "next change of the table writes it.",
                table_id,
                key,
                error,
            )

    def _put(
        self, table: DynamoTable, item: Item, condition: str, unchanged: Item | None = None
    ) -> Item:
        return {
            "Put": {
                "TableName": self._tables.name(table),
                "Item": item,
                "ConditionExpression": condition,
                **_values_of(unchanged),
            }
        }

    def _delete(self, table: DynamoTable, key: Item, unchanged: Item) -> Item:
        return {
            "Delete": {
                "TableName": self._tables.name(table),
                "Key": key,
                "ConditionExpression": _UNCHANGED,
                **_values_of(unchanged),
            }
        }


def _is_schema(text: str, record: TableRecord) -> bool:
    try:
        return Schema.from_json(text) == Schema.from_json(record.properties[SCHEMA])
    except SchemaInvalid:
        return False


def properties_key(table_id: str) -> str:
    """Return the key of a table's properties in the config bucket."""
    return f"tables/table-{table_id}.properties"


def _values_of(item: Item | None) -> Item:
    if item is None:
        return {}
    values = {":id": item["TableId"], ":revision": {"N": str(_revision_of(item))}}
    return {"ExpressionAttributeValues": values}


def _name_key(name: str) -> Item:
    return {"TableName": {"S": name}}


def _id_key(table_id: str) -> Item:
    return {"TableId": {"S": table_id}}


def _item_of(record: TableRecord, revision: int) -> Item:
    return {
        **_id_key(record.table_id),
        **_name_key(record.name),
        "Online": {"S": "true" if record.online else "false"},
        "Properties": {"M": {name: {"S": text} for name, text in record.properties.items()}},
        "Revision": {"N": str(revision)},
    }


def _record_of(item: Mapping[str, Item]) -> TableRecord:
    try:
        return TableRecord(
            table_id=item["TableId"]["S"],
            name=item["TableName"]["S"],
            online=item["Online"]["S"] == "true",
            properties={name: text["S"] for name, text in item["Properties"]["M"].items()},
        )
    except (KeyError, TypeError, AttributeError) as error:
        shown = item.get("TableName", {}).get("S", "")
        raise DataDamaged(
            f"the item of table {shown!r:.100} in the table index ({BY_ID.name}) cannot be read: "
            f"{type(error).__name__} {error}. Another program wrote it: Sleeper's items have "
            "Properties and Revision. Delete the item, or restore it from a copy."
        ) from error


def _revision_of(item: Mapping[str, Item]) -> int:
    return int(item["Revision"]["N"])


def _check_size(record: TableRecord) -> None:
    """Check that DynamoDB can store a record.

    Raises:
        BadRequest: its name or its properties are too long.
    """
    name_bytes = len(record.name.encode())
    if name_bytes > _NAME_BYTES_MAX:
        raise BadRequest(
            f"the table's name {record.name!r:.40}... has {name_bytes} bytes, but DynamoDB allows "
            f"{_NAME_BYTES_MAX}: choose a shorter one"
        )
    texts = [*record.properties, *record.properties.values(), record.name]
    record_bytes = sum(len(text.encode()) for text in texts)
    if record_bytes > _RECORD_BYTES_MAX:
        longest = max(record.properties, key=lambda name: len(record.properties[name]))
        raise BadRequest(
            f"table {record.name!r:.100} has {record_bytes} bytes of properties, but the table "
            f"index in DynamoDB takes {_RECORD_BYTES_MAX}: shorten the longest, {longest}, which "
            f"has {len(record.properties[longest].encode())} bytes"
        )


# ---------------------------------------------------------------- tables that are made
#
# All tables in DynamoDB that an instance in AWS can have.

INDEX_TABLES: Final = (BY_ID, BY_NAME)
"""The records of tables."""

JOB_TABLES: Final = (
    QUERY_STATES,
    SUBMITTED_FILES,
    BATCHER_JOBS,
    *(table(kind) for kind in JobKind for table in (job_updates, job_lookup, task_status)),
)
"""Events of jobs and tasks, and files that wait for the batcher."""

STATE_TABLES: Final[tuple[DynamoTable, ...]] = (LOG, *ITEM_TABLES)
"""Logs and states of tables. Where an instance was made without them, the first use makes them."""

REVISION_TABLES: Final = (REVISIONS,)
"""The newest revisions of states, wherever those are; made like those."""

ALL_TABLES: Final = (*INDEX_TABLES, *JOB_TABLES, *STATE_TABLES, *REVISION_TABLES)
