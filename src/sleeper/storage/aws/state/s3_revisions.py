"""Revisions of a table's state: Parquet objects in the table's folder, named by a DynamoDB item.

A commit writes the parts that it changes as new objects, then replaces the item if it is still the
one that was read. A kept revision has an item of its own, written in the same transaction.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import TypeVar

from sleeper.errors import DataDamaged, ObjectNotFound, StorageFailed
from sleeper.model.schema import Schema
from sleeper.ports.objects import Objects
from sleeper.state.revision_store import Revision
from sleeper.state.snapshot import PARTS, PartSource, encode_part, unchanged_parts, with_part
from sleeper.state.state_store import SweepLimits, SweptStates
from sleeper.state.table_state import TableState
from sleeper.storage.aws.dynamo_tables import DynamoTables, Item
from sleeper.storage.aws.state.revision_items import (
    CURRENT,
    FOLDERS,
    REVISIONS,
    StoredRevision,
    is_kept,
    kept_key,
    number_in,
    part_key,
    revision_key,
    stored_revision,
)
from sleeper.storage.deletion import delete_groups

logger = logging.getLogger(__name__)

Piece = TypeVar("Piece")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class _NewestRevision:
    """The newest revision that was seen: what is stored of it, None before the first; its state."""

    stored: StoredRevision | None = None
    state: TableState = field(default_factory=TableState.empty)

    @property
    def commit_id(self) -> str | None:
        return None if self.stored is None else self.stored.commit_id


class S3StateRevisions:
    """The `StateRevisions` of one table in S3 and DynamoDB. Safe for threads.

    Args:
        tables: The instance's DynamoDB tables.
        table_id: The table's id.
        objects: The table's folder, in a bucket or anywhere else.
        schema: The table's schema.
        is_new: Whether there may be no revision, because the table is being created. Else that is
            an error: they are looked for in the wrong place.
    """

    changes_max = None
    """A commit may make any number of changes."""

    limit = None
    """A commit may hold any number of files."""

    def __init__(
        self,
        tables: DynamoTables,
        table_id: str,
        objects: Objects,
        schema: Schema,
        *,
        is_new: bool = False,
    ) -> None:
        self._tables, self._table_id = tables, table_id
        self._objects, self._schema = objects, schema
        self._is_new = is_new
        self._seen = _NewestRevision()
        self._lock = Lock()

    def refresh(self, known: Revision) -> Revision:
        """Read the item, and the parts that are others than those of the last look."""
        while True:
            stored = self._stored(CURRENT)
            if stored is None:
                if self._is_new and not known.state.number:
                    return known
                raise self._not_found()
            if stored.commit_id == _commit_id(known):
                self._see(_NewestRevision(stored, known.state))
                return known if stored.history == known.history else _revision(stored, known.state)
            state = self._load(stored, CURRENT)
            if state is not None:
                self._see(_NewestRevision(stored, state))
                return _revision(stored, state)

    def fits(self, before: TableState, after: TableState) -> bool:
        """Return True: there is no limit."""
        return True

    def replace(self, before: Revision, after: Revision) -> bool:
        """Write the parts that changed, then replace the item by a transaction.

        The transaction has the commit's id as its token, so it is done once. If it is refused, the
        item with the revision's number tells who has it. Parts are deleted only if another commit
        has: without an answer, they may be those of the newest revision.
        """
        based_on = self._seen
        if based_on.commit_id != _commit_id(before):
            return False  # another thread has seen a newer one
        number, commit_id = after.state.number, after.history.commit_ids[-1]
        unchanged = unchanged_parts(before.state, after.state) if based_on.stored else frozenset()
        changed = {
            name: part_key(name, number, commit_id) for name in PARTS if name not in unchanged
        }
        parts = {**(based_on.stored.parts if based_on.stored else {}), **changed}

        def write(name: str) -> None:
            self._objects.put(changed[name], encode_part(name, after.state, self._schema))

        _at_once(write, [*changed])
        stored = StoredRevision.of(after, parts)
        if not self._put_items(based_on.commit_id, stored):
            holder = self._stored(kept_key(number))
            if holder is None or holder.commit_id != commit_id:
                logger.info("revision %d was taken by another writer", number)
                if holder is not None:
                    self._discard(changed.values())
                return False
        self._see(_NewestRevision(stored, after.state))
        return True

    def begin(self, first: Revision) -> None:
        """Make the DynamoDB table, if it is the instance's first state there; write all parts."""
        self._tables.make(REVISIONS)
        self.replace(Revision(), first)

    def remember(self, known: Revision) -> None:
        """Update the history in the item, if it is still that of the same commit."""
        self._tables.update(
            REVISIONS,
            revision_key(self._table_id, CURRENT),
            "SET HISTORY = :history",
            {
                ":history": {"S": known.history.to_json()},
                ":commit": {"S": _commit_id(known) or ""},
            },
            condition="CURRENT_UUID = :commit",
        )

    def at(self, number: int) -> TableState | None:
        """Read the item of a kept revision, and its parts."""
        stored = self._stored(kept_key(number))
        return None if stored is None else self._load(stored, kept_key(number))

    def sweep(self, limits: SweepLimits, *, delete: bool) -> SweptStates:
        """Delete items of old revisions, then the objects that no item names any longer.

        An object with the newest revision's number or a lower one, which no item names, will never
        be named: a commit names new objects, with a higher number, and those of the revision that
        it replaces, whose item it checks.
        """
        newest, kept, old = self._by_age(limits)
        if newest is None:
            return SweptStates()
        named = {key for each in (newest, *kept) for key in each.parts.values()}
        were_named = {key for each in old for key in each.parts.values()}
        listed = [info for folder in FOLDERS for info in self._objects.listing(folder)]
        orphans = tuple(
            info
            for info in listed
            if (number := number_in(info.key)) is not None
            and number <= newest.number
            and info.key not in named
            and (info.key in were_named or info.modified < limits.orphans_before)
        )
        if not delete:
            return SweptStates(objects=orphans)
        self._tables.delete(
            REVISIONS, [revision_key(self._table_id, kept_key(each.number)) for each in old]
        )
        for each in old:
            logger.info("revision %d of table %s is no longer kept", each.number, self._table_id)
        failures = delete_groups({info.key: [info.key] for info in orphans}, self._objects)
        return SweptStates(objects=orphans, failures=failures)

    def delete(self) -> None:
        """Delete all items of the table, also those of commits that are made meanwhile."""
        while self._tables.delete(REVISIONS, [_key_of(item) for item in self._items()]):
            logger.info("deleted the revisions of table %s", self._table_id)

    def _put_items(self, replaced: str | None, stored: StoredRevision) -> bool:
        """Write both items of a revision if it replaces the newest one; return if they were."""
        name = self._tables.name(REVISIONS)
        current: Item = {"TableName": name, "Item": stored.current_item(self._table_id)}
        if replaced is None:
            current["ConditionExpression"] = "attribute_not_exists(TABLE_ID)"
        else:
            current["ConditionExpression"] = "CURRENT_UUID = :replaced"
            current["ExpressionAttributeValues"] = {":replaced": {"S": replaced}}
        kept = {"TableName": name, "Item": stored.kept_item(self._table_id)}
        parts = [{"Put": current}, {"Put": kept}]
        try:
            return not self._tables.write_all(parts, stored.commit_id)
        except ObjectNotFound as missing:
            if not self._is_new or replaced is not None:
                raise self._not_found() from missing
            self._tables.make(REVISIONS)
            return not self._tables.write_all(parts, stored.commit_id)

    def _by_age(
        self, limits: SweepLimits
    ) -> tuple[StoredRevision | None, Sequence[StoredRevision], Sequence[StoredRevision]]:
        """Return the newest revision, those of the others that are kept, and those that are old."""
        items = [*self._items()]
        newest = next((stored_revision(each) for each in items if not is_kept(each)), None)
        revisions = [stored_revision(each) for each in items if is_kept(each)]  # in their order
        kept: list[StoredRevision] = []
        old: list[StoredRevision] = []
        newest_old = 0 if newest is None else newest.number - max(1, limits.versions_min)
        for revision, following in zip(revisions, [*revisions[1:], newest], strict=True):
            is_old = (
                revision.number <= newest_old
                and following is not None
                and following.at is not None
                and following.at < limits.kept_since
            )
            (old if is_old else kept).append(revision)
        return newest, kept, old

    def _items(self) -> Iterable[Item]:
        condition = "TABLE_ID = :table"
        return self._tables.query(REVISIONS, condition, {":table": {"S": self._table_id}})

    def _stored(self, key: str) -> StoredRevision | None:
        item = self._tables.get(REVISIONS, revision_key(self._table_id, key))
        return None if item is None else stored_revision(item)

    def _load(self, stored: StoredRevision, key: str) -> TableState | None:
        """Read the parts of a revision, but for those that the last one seen has too.

        Returns:
            The state; None if the revision was swept meanwhile.

        Raises:
            DataDamaged: a part is missing, or cannot be decoded.
        """
        seen = self._seen
        shared = {} if seen.stored is None else dict(seen.stored.parts)
        changed = [name for name, part in stored.parts.items() if shared.get(name) != part]
        bodies = _at_once(lambda name: self._objects.read(stored.parts[name]), changed)
        state = seen.state
        for name, body in zip(changed, bodies, strict=True):
            part = stored.parts[name]
            description = f"object {part}, which is a part of the table's state {stored.number},"
            advice = (
                "An older state may be whole: read the table as of an earlier transaction "
                "(as_of). To mend the newest, restore the object from a copy."
            )
            if body is None:
                again = self._stored(key)
                if again is None or again.commit_id != stored.commit_id:
                    logger.info("revision %d was swept while it was read", stored.number)
                    return None
                raise DataDamaged(f"{description} is missing. {advice}")
            source = PartSource(number_in(part) or 0, description, advice)
            state = with_part(state, name, body, self._schema, source)
        return replace(
            state,
            number=stored.number,
            at=stored.at,
            swept_before=stored.swept_before,
            moved=stored.moved,
            digest=None,
        )

    def _see(self, loaded: _NewestRevision) -> None:
        with self._lock:
            if loaded.state.number >= self._seen.state.number:
                self._seen = loaded

    def _discard(self, keys: Iterable[str]) -> None:
        """Delete parts of a revision that another commit has."""
        listed = [*keys]
        try:
            self._objects.delete(listed)
        except StorageFailed as error:
            logger.warning("%s are left for the sweep of orphans: %s", listed, error)

    def _not_found(self) -> ObjectNotFound:
        return ObjectNotFound(
            f"the state of table {self._table_id} is not in {self._tables.name(REVISIONS)}. Check "
            "that AWS_REGION and AWS_ENDPOINT_URL are those that the table was made with; if its "
            "item was deleted, restore it from a backup of the DynamoDB table."
        )


def _commit_id(revision: Revision) -> str | None:
    ids = revision.history.commit_ids
    return ids[-1] if ids else None


def _revision(stored: StoredRevision, state: TableState) -> Revision:
    return Revision(state, stored.history)


def _key_of(item: Item) -> Item:
    return {name: item[name] for name, _ in REVISIONS.key}


def _at_once(do: Callable[[Piece], Result], pieces: Sequence[Piece]) -> list[Result]:
    """Do something to each of a few pieces, all at once; return the results in order."""
    if len(pieces) < 2:
        return [do(piece) for piece in pieces]
    with ThreadPoolExecutor(len(pieces)) as pool:
        return [*pool.map(do, pieces)]
