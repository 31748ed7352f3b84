"""A table's transaction log as items of DynamoDB; large bodies are objects in the table's folder.

The items of all tables of an instance are in one DynamoDB table, under the ids of their tables.
"""

from __future__ import annotations

import logging
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from sleeper.errors import DataDamaged, ObjectNotFound, StorageFailed, StorageReadOnly
from sleeper.ports.ids import NewId
from sleeper.ports.objects import ObjectInfo, Objects
from sleeper.storage.aws.dynamo_tables import DynamoTable, DynamoTables, Item
from sleeper.storage.deletion import delete_groups
from sleeper.storage.transaction_log import TABLE_LOG

logger = logging.getLogger(__name__)

LOG: Final = DynamoTable("transaction-log", (("TABLE_ID", "S"), ("TRANSACTION_NUMBER", "N")))
"""The DynamoDB table with the logs of all tables of an instance."""

BODY_BYTES_MAX: Final = 300_000
"""Longer bodies, when compressed, are objects; Amazon allows 400 KB for an item."""

_BODY_KEY = re.compile(rf"{re.escape(TABLE_LOG)}(\d{{20}})-[^/]+\.json\.zlib")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class DynamoTransactionLog:
    """A `TransactionLog` with one item for each entry, put only if there is none.

    Attributes:
        tables: The instance's DynamoDB tables.
        table_id: The id of the table whose log it is.
        objects: The table's objects.
        now: The clock of the storage (aware, UTC).
        new_id: Makes ids for names of objects.
        first: The number of its first entry.
        is_new: Whether the log may be without entries, because the table is being created, or its
            state is being moved there. Else a log without its first entry is an error: it is looked
            for in the wrong place.
    """

    tables: DynamoTables
    table_id: str
    objects: Objects
    now: Callable[[], datetime]
    new_id: NewId
    first: int = 1
    is_new: bool = False

    def append(self, number: int, body: bytes) -> bool:
        """Put the item of entry `number`, if there is none; a large body first.

        If a reply is lost, boto3 repeats the request, and then gets the answer that our own entry
        has the number. So an entry that equals ours counts as appended.
        """
        packed = zlib.compress(body)
        item = self._key(number) | {"UPDATE_TIME": _milliseconds(self.now())}
        key = None
        if len(packed) <= BODY_BYTES_MAX:
            item["BODY"] = {"B": packed}
        else:
            key = f"{TABLE_LOG}{number:020d}-{self.new_id()}.json.zlib"
            self.objects.put(key, packed)
            item["BODY_S3_KEY"] = {"S": key}
        try:
            found = self.tables.put_new(LOG, item, make=self.is_new and number == self.first)
        except ObjectNotFound as missing:
            self._discard(key)
            raise self._not_found(number) from missing
        except StorageFailed as error:
            logger.warning(
                "it is unknown whether %s was appended: %s", self._name_of(number), error
            )
            raise
        if found is None or (key is not None and _body_key(found) == key):
            return True
        self._discard(key)
        if found and self._body(number, found) == body:
            return True
        logger.info("%s was taken by another writer; the commit is retried", self._name_of(number))
        return False

    def read(self, number: int) -> bytes | None:
        """Read one item."""
        item = self.tables.get(LOG, self._key(number))
        return None if item is None else self._body(number, item)

    def read_after(self, number: int, *, up_to: int | None = None) -> Iterator[tuple[int, bytes]]:
        """Read items by one query, a page in memory, until a number is missing.

        Raises:
            ObjectNotFound: there is no DynamoDB table, or no entry at all, and the log is not new.
        """
        begins = self.is_new and number < self.first
        condition, wanted = "> :after", {":after": {"N": str(number)}}
        if up_to is not None:
            condition = "BETWEEN :first AND :last"
            wanted = {":first": {"N": str(number + 1)}, ":last": {"N": str(up_to)}}
        items = self.tables.query(
            LOG,
            f"TABLE_ID = :table AND TRANSACTION_NUMBER {condition}",
            {":table": {"S": self.table_id}, **wanted},
            must_exist=not begins,
        )
        try:
            for item in items:
                following = int(item["TRANSACTION_NUMBER"]["N"])
                body = self._body(following, item) if following == number + 1 else None
                if body is None:
                    logger.warning("%s is missing, before %d", self._name_of(number + 1), following)
                    break
                number = following
                yield number, body
        except ObjectNotFound as missing:
            raise self._not_found(number + 1) from missing
        if number < self.first and not begins:
            raise self._not_found(self.first)

    def stored_at(self, number: int) -> datetime | None:
        """Return the time of the next entry, which was put after its writer had read this one.

        For the last entry it is the time at which somebody asked first, which is kept in its item.
        """
        between = "TABLE_ID = :table AND TRANSACTION_NUMBER BETWEEN :this AND :next"
        values = {":table": {"S": self.table_id}, ":this": {"N": str(number)}}
        values[":next"] = {"N": str(number + 1)}
        found = {
            int(item["TRANSACTION_NUMBER"]["N"]): item
            for item in self.tables.query(
                LOG,
                between,
                values,
                ProjectionExpression="TRANSACTION_NUMBER, UPDATE_TIME, SEEN_TIME",
            )
        }
        if number not in found:
            return None
        if number + 1 in found:
            return _time(found[number + 1]["UPDATE_TIME"])
        seen = found[number].get("SEEN_TIME")
        return _time(seen) if seen is not None else self._seen_now(number)

    def replace(self, number: int, before: bytes, after: bytes) -> bool:
        """Change the item, if it is still the one that was compared; a large body is an object."""
        item = self.tables.get(LOG, self._key(number))
        if item is None or self._body(number, item) != before:
            return False
        packed, key = zlib.compress(after), _body_key(item)
        if key is not None:
            self.objects.put(key, packed)
            return True
        values = {":after": {"B": packed}, ":before": item["BODY"]}
        changed = self.tables.update(
            LOG, self._key(number), "SET BODY = :after", values, condition="BODY = :before"
        )
        return changed is not None

    def writer_lock(self, meanwhile: Callable[[], object]) -> AbstractContextManager[None]:
        """Hold the advisory lock that the table's folder has, if it has one (see the port)."""
        return self.objects.writer_lock(f"{TABLE_LOG}turn", meanwhile)

    def delete(self) -> None:
        """Delete the items of all entries."""
        items = self.tables.query(
            LOG,
            "TABLE_ID = :table",
            {":table": {"S": self.table_id}},
            ProjectionExpression="TABLE_ID, TRANSACTION_NUMBER",
        )
        deleted = self.tables.delete(LOG, items)
        logger.info("deleted %d entries of the log of table %s", deleted, self.table_id)

    def sweep(
        self, before: datetime, *, delete: bool
    ) -> tuple[Sequence[ObjectInfo], Mapping[str, str]]:
        """Find bodies that no entry names, and none ever will: their numbers are taken.

        They are left by writers that were killed between body and item.
        """
        listed = self.objects.listing(TABLE_LOG)
        found = [info for info in listed if info.modified < before and self._is_left(info.key)]
        if not delete:
            return found, {}
        failures = delete_groups({info.key: [info.key] for info in found}, self.objects)
        for info in found:
            logger.info("deleted %s, which no entry names", info.key)
        return found, failures

    def _is_left(self, key: str) -> bool:
        named = _BODY_KEY.fullmatch(key)
        item = None if named is None else self.tables.get(LOG, self._key(int(named[1])))
        return item is not None and _body_key(item) != key

    def _seen_now(self, number: int) -> datetime | None:
        try:
            item = self.tables.update(
                LOG,
                self._key(number),
                "SET SEEN_TIME = if_not_exists(SEEN_TIME, :now)",
                {":now": _milliseconds(self.now())},
            )
        except StorageReadOnly as denied:
            logger.warning("when %s was stored is not known: %s", self._name_of(number), denied)
            return None
        return None if item is None else _time(item["SEEN_TIME"])

    def _body(self, number: int, item: Item) -> bytes | None:
        """Return the body of an entry; None if it has been deleted meanwhile.

        Raises:
            DataDamaged: there is no body that can be read.
        """
        key = _body_key(item)
        packed = item.get("BODY", {}).get("B") if key is None else self.objects.read(key)
        if packed is None:
            again = None if key is None else self.tables.get(LOG, self._key(number))
            if key is not None and (again is None or _body_key(again) != key):
                return None
            raise self._damaged(number, key, "is missing")
        try:
            return zlib.decompress(packed)
        except zlib.error as error:
            raise self._damaged(number, key, f"cannot be read ({error})") from error

    def _discard(self, key: str | None) -> None:
        """Delete a body that no entry names."""
        if key is None:
            return
        try:
            self.objects.delete([key])
        except StorageFailed as error:
            logger.warning("%s is left for the sweep of orphans: %s", key, error)

    def _key(self, number: int) -> Item:
        return {"TABLE_ID": {"S": self.table_id}, "TRANSACTION_NUMBER": {"N": str(number)}}

    def _name_of(self, number: int) -> str:
        return f"entry {number} of table {self.table_id} in {self.tables.name(LOG)}"

    def _damaged(self, number: int, key: str | None, reason: str) -> DataDamaged:
        where = "its item" if key is None else f"object {key} of the table's folder"
        return DataDamaged(
            f"{self._name_of(number)} is damaged: the body in {where} {reason}. Restore it from a "
            "copy."
        )

    def _not_found(self, number: int) -> ObjectNotFound:
        return ObjectNotFound(
            f"{self._name_of(number)} cannot be read or written, because the log is not there. "
            "Check that AWS_REGION and AWS_ENDPOINT_URL are those that the table was made with; if "
            "its log was deleted, restore it from a copy."
        )


def _body_key(item: Item) -> str | None:
    key: str | None = item.get("BODY_S3_KEY", {}).get("S")
    return key


def _milliseconds(time: datetime) -> Item:
    """Return the first whole millisecond that is not before a time, as an attribute."""
    return {"N": str(-((_EPOCH - time) // _MILLISECOND))}


def _time(attribute: Item) -> datetime:
    return _EPOCH + int(attribute["N"]) * _MILLISECOND
