"""Keeps the state of a Sleeper table as items of DynamoDB: its `DynamoDBStateStore`.

A commit is one transaction, with as many items as it changes, or several behind one (see
`staged_commit`). Each is conditional on the revision item, which says how many commits there were;
readers compare it before and after they read.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from typing import Final

from sleeper.errors import CommitTooLarge, DataDamaged, ObjectNotFound, StorageFailed
from sleeper.model.schema import Schema
from sleeper.ports.ids import NewId
from sleeper.state.file_references import FileReferences
from sleeper.state.revision_store import Revision
from sleeper.state.state_difference import state_difference
from sleeper.state.state_store import SweepLimits, SweptStates
from sleeper.state.table_state import TableState
from sleeper.storage.aws.dynamo_tables import WRITES_MAX, DynamoTables, Item
from sleeper.storage.aws.state.commit_parts import (
    CommitParts,
    WaitingReaders,
    part_key,
    part_text,
    put_sizes,
)
from sleeper.storage.aws.state.newest_item import (
    StoredSchemas,
    commit_id,
    deletes_json,
    history_of,
    is_of,
    is_same_commit,
    parse_revision,
    revision_key,
    revision_update,
)
from sleeper.storage.aws.state.read_items import OtherItems, read_files, read_others
from sleeper.storage.aws.state.staged_commit import BYTES_MAX, StagedCommits, StagedPiece, groups
from sleeper.storage.aws.state.state_items import COMMITS, ITEM_TABLES, PARTITIONS, text

logger = logging.getLogger(__name__)

CHANGES_MAX: Final = WRITES_MAX - 1
"""How many items one transaction changes: Amazon's limit without the revision item."""

_ITEM_BYTES_MAX = 380_000
_SCHEMAS_BYTES_MAX = 190_000
_DELETES_BYTES_MAX = 180_000
"""Both are in the revision item, whose other attributes together are small. Only what makes either
larger is refused: a table with this many deletions can still be compacted, which ends them."""
_COMMIT_BYTES_MAX = 10_000_000
"""About 15,000 files: whoever writes or reads the changes has all of them in memory."""
_READS_MAX = 100
_READS_BEFORE_ASKING = 2
_PAUSES = 4
"""Longer pauses give a reader no better chance: others commit in them too."""
_DROPPED_TOGETHER = 25


class DynamoStateRevisions:
    """The revisions of one table; only the newest is kept. Safe for threads.

    Args:
        tables: The instance's DynamoDB tables.
        table_id: The Sleeper table.
        schema: Its schema.
        new_id: Makes an id for each request of a reader to writers.
        pause: Waits before the state is read again, given how often it was.
        is_new: Whether there may be no revision, because the table is being created. Else that is
            an error: they are looked for in the wrong place.
    """

    def __init__(
        self,
        tables: DynamoTables,
        table_id: str,
        schema: Schema,
        *,
        new_id: NewId,
        pause: Callable[[int], None],
        is_new: bool = False,
    ) -> None:
        self._is_new = is_new
        self._tables, self._table_id, self._schema = tables, table_id, schema
        self._pause = pause
        self._readers = WaitingReaders(tables, table_id, new_id=new_id, pause=pause)
        self._parts = CommitParts(tables.name, table_id, schema)
        self._staged = StagedCommits(tables, table_id)
        self._newest: Item | None = None  # the newest revision item, when it was read last
        self._pieces: list[StagedPiece] = []  # staged changes that there were then
        self._dropped: tuple[str, ...] = ()  # ids of jobs whose records may still be stored
        self._built: tuple[str, list[Item]] = ("", [])
        self._schemas: StoredSchemas | None = None

    @property
    def changes_max(self) -> int | None:
        """How many changes one transaction makes; a commit of more takes several."""
        return CHANGES_MAX

    @property
    def limit(self) -> str | None:
        """What a commit may hold."""
        return (
            "DynamoDBStateStore takes references, files, partitions, jobs and claims of 380 KB "
            f"each, and {_COMMIT_BYTES_MAX // 1_000_000} MB together, by a commit, and keeps "
            f"{_DELETES_BYTES_MAX // 1_000} KB of deleted keys and ranges that files still have"
        )

    def refresh(self, known: Revision) -> Revision:
        """Return the newest revision: one read if it is `known`.

        Others may commit all the time, and each commit makes a read in vain: the writers are asked
        to wait then.
        """
        item, request = self._read_revision(), None
        for attempt in range(_READS_MAX):
            if item is None:
                return self._without_revision(known)
            if is_of(item, known):
                self._readers.end(request)
                history = history_of(item)
                return known if history == known.history else replace(known, history=history)
            found, again = self._read_items(item), self._read_revision()
            if found is not None and again is not None and is_same_commit(item, again):
                self._readers.end(request)
                return self._revision(again, *found)
            logger.info("reading the state of table %s again: it changed", self._table_id)
            item = again
            if attempt + 1 >= _READS_BEFORE_ASKING:
                request = self._readers.ask(attempt + 1 - _READS_BEFORE_ASKING) or request
                item = self._read_revision()
            self._pause(min(attempt, _PAUSES))
        raise StorageFailed(
            f"the state of table {self._table_id} changed each of {_READS_MAX} times that it was "
            "read. Try again later, or commit with fewer processes."
        )

    def fits(self, before: TableState, after: TableState) -> bool:
        """Return whether one commit can replace `before` by `after`."""
        if self._schemas_of(after).size_bytes > _SCHEMAS_BYTES_MAX:
            return False
        if after.deletes != before.deletes and self._deletes_bytes(after) > _DELETES_BYTES_MAX:
            return False
        sizes = put_sizes(self._parts.of(state_difference(before, after), after))
        return max(sizes, default=0) <= _ITEM_BYTES_MAX and sum(sizes) <= _COMMIT_BYTES_MAX

    def _schemas_of(self, state: TableState) -> StoredSchemas:
        self._schemas = found = StoredSchemas.of(state.schemas, self._schemas)
        return found

    def replace(self, before: Revision, after: Revision) -> bool:
        """Make `after` the newest revision, in one transaction or behind one.

        What a writer has left undone before is done first.

        Raises:
            DataDamaged: an item is not as the last commit left it. Nothing was written.
        """
        if not before.state.number:
            self._refuse_old_layout()
        own_id = commit_id(after)
        if self._built[0] != own_id:  # what is sent again must be the same
            self._built = (own_id, self._transaction(before, after))
        parts = self._built[1]
        self._readers.let_read(self._read_revision)
        self._clear_up()
        if _is_large(parts):
            return self._replace_staged(before, after, parts[1:])
        refused = self._write(parts, own_id)
        if not refused:
            return True
        if 0 in refused or not self._is_newest(before):
            return False
        raise DataDamaged(
            f"the state of table {self._table_id} cannot be changed: items of DynamoDB are not as "
            f"its last commit left them: {'; '.join(part_text(parts[n]) for n in refused)}. "
            "Nothing was written. Somebody else has changed them: restore the four tables from a "
            "backup."
        )

    def _replace_staged(self, before: Revision, after: Revision, changes: list[Item]) -> bool:
        """Store changes, commit them, and write them into the items."""
        own_id = commit_id(after)
        pieces = self._staged.pieces(before.state.number, own_id, changes)
        for number, group in enumerate(groups(pieces, WRITES_MAX)):
            self._write(group, f"{own_id} staged {number}")
        update = revision_update(
            self._tables.name(COMMITS),
            self._table_id,
            before,
            after,
            schema=self._schema,
            schemas=self._schemas_of(after.state),
            jobs_cleared=state_difference(before.state, after.state).jobs.cleared,
            staged=len(pieces),
        )
        refused = self._write([update], own_id)
        item = self._read_revision()
        if refused:
            own = [StagedPiece.of(part_key(each)) for each in pieces]
            if item is not None:
                self._tables.delete(COMMITS, [e.key for e in own if e.is_left_over(item)])
            return False
        try:
            if item is not None:  # else the table is deleted
                self._staged.finish(item)
        except StorageFailed as error:
            logger.warning(
                "a commit to table %s is done, and the next writer has to write %d of its changes "
                "into the table's items: %s",
                self._table_id,
                len(changes),
                error,
            )
        return True

    def begin(self, first: Revision) -> None:
        """Write the items of a state in many transactions, and the revision item last.

        Raises:
            DataDamaged: there are items already.
            CommitTooLarge: the state has more schemas, or deleted keys and ranges, than are kept
                here. Nothing was written.
        """
        self._refuse_old_layout()
        if (size := self._schemas_of(first.state).size_bytes) > _SCHEMAS_BYTES_MAX:
            raise CommitTooLarge(
                f"DynamoDBStateStore keeps {_SCHEMAS_BYTES_MAX // 1_000} KB of a table's schemas, "
                f"of now and of before, and this table has {size / 1_000:,.0f} KB of them. Nothing "
                "was written. Leave its state where it is, or move it to S3StateStore."
            )
        if (size := self._deletes_bytes(first.state)) > _DELETES_BYTES_MAX:
            raise CommitTooLarge(
                f"{self.limit}, and this table has {size / 1_000:,.0f} KB of them. Nothing was "
                "written. Compact the table first, so that files obey the deletions (`sleeper "
                "compact NAME --all-files`)."
            )
        self._tables.make(*ITEM_TABLES)
        found = state_difference(TableState.empty(), first.state)
        parts = self._parts.of(found, first.state)
        table = self._tables.name(COMMITS)
        last = revision_update(
            table,
            self._table_id,
            Revision(),
            first,
            schema=self._schema,
            schemas=self._schemas_of(first.state),
            jobs_cleared=False,
        )
        own_id = commit_id(first)
        for number, group in enumerate([*groups(parts, WRITES_MAX), [last]]):
            if refused := self._write(group, f"{own_id} {number}"):
                raise DataDamaged(
                    f"the state of table {self._table_id} was not moved to DynamoDB: "
                    f"{'; '.join(part_text(group[n]) for n in refused)} is there already"
                )

    def remember(self, known: Revision) -> None:
        """Replace the history of a revision, if it is the newest."""
        values = {
            ":history": text(known.history.to_json()),
            ":commit": text(commit_id(known)),
        }
        self._tables.update(
            COMMITS,
            revision_key(self._table_id),
            "SET History = :history",
            values,
            condition="CommitId = :commit",
        )

    def at(self, number: int) -> TableState | None:
        """Return None: older states are not kept."""
        del number
        return None

    def sweep(self, limits: SweepLimits, *, delete: bool) -> SweptStates:
        """Do nothing: there are no old states."""
        del limits, delete
        return SweptStates()

    def delete(self) -> None:
        """Delete all items of the table, the revision item first. It may be repeated."""
        if self._read_revision() is None:
            self._refuse_old_layout()
        else:
            self._tables.delete(COMMITS, [revision_key(self._table_id)])
        for table in ITEM_TABLES:
            names = {f"#{n}": name for n, (name, _) in enumerate(table.key)}
            keys = self._tables.query(
                table,
                "TableId = :table",
                {":table": text(self._table_id)},
                ProjectionExpression=", ".join(names),
                ExpressionAttributeNames=names,
            )
            count = self._tables.delete(table, keys)
            name = self._tables.name(table)
            logger.info("deleted %d items of table %s from %s", count, self._table_id, name)

    def _deletes_bytes(self, state: TableState) -> int:
        return len(deletes_json(state.deletes, self._schema)) if state.deletes else 0

    def _transaction(self, before: Revision, after: Revision) -> list[Item]:
        """Return the parts of a transaction, the revision item first.

        Where there is room, it also deletes records of jobs that the table knows no longer.
        """
        found = state_difference(before.state, after.state)
        table = self._tables.name(COMMITS)
        cleared = found.jobs.cleared
        first = revision_update(
            table,
            self._table_id,
            before,
            after,
            schema=self._schema,
            schemas=self._schemas_of(after.state),
            jobs_cleared=cleared,
        )
        parts = [first, *self._parts.of(found, after.state)]
        known = dict.fromkeys((*self._dropped, *sorted(found.jobs.dropped)))
        dropped = [name for name in known if after.state.jobs.find(name) is None]
        room = min(WRITES_MAX - len(parts), _DROPPED_TOGETHER)
        self._dropped = tuple(dropped[max(room, 0) :])
        return parts + self._parts.dropped_jobs(dropped[: max(room, 0)])

    def _clear_up(self) -> None:
        """End the last commit, if its writer has not, and delete what never became one."""
        if self._newest is None:
            return
        self._staged.finish(self._newest)
        left = [each for each in self._pieces if each.is_left_over(self._newest)]
        self._tables.delete(COMMITS, [each.key for each in left])
        self._pieces = [each for each in self._pieces if each not in left]

    def _write(self, parts: list[Item], own_id: str) -> list[int]:
        name = f"{self._tables.name(COMMITS)} {self._table_id} {own_id}"
        token = sha256(name.encode()).hexdigest()[:36]
        try:
            return self._tables.write_all(parts, token)
        except ObjectNotFound as missing:
            if not self._is_new:
                raise self._not_found() from missing
            self._tables.make(*ITEM_TABLES)
            return self._tables.write_all(parts, token)

    def _is_newest(self, revision: Revision) -> bool:
        item = self._read_revision()
        return revision.state.number == 0 if item is None else is_of(item, revision)

    def _read_revision(self) -> Item | None:
        item = self._tables.get(COMMITS, revision_key(self._table_id))
        self._readers.note(item)
        self._newest = item
        return item

    def _read_items(self, revision: Item) -> tuple[FileReferences, OtherItems] | None:
        """Read all items as they are after a commit; None if it is not the newest any more."""
        try:
            staged = self._staged.read(revision)
            if staged is None:
                return None
            return (
                read_files(self._tables, self._table_id, staged),
                read_others(self._tables, self._table_id, self._schema, staged),
            )
        except DataDamaged as error:
            raise self._damage(error) from error

    def _without_revision(self, known: Revision) -> Revision:
        if self._is_new and not known.state.number:
            return known
        self._refuse_old_layout()
        raise self._not_found()

    def _refuse_old_layout(self) -> None:
        """Raise if the instance's partitions table has the keys that versions before had."""
        keys = self._tables.other_keys(PARTITIONS)
        if keys is None:
            return
        name = self._tables.name(PARTITIONS)
        raise DataDamaged(
            f"the state of table {self._table_id} cannot be read or written: {name} has the keys "
            f"{keys}. Sleeper before the layout of upstream's DynamoDBStateStore made it. With "
            "that version, move the state of each table of this instance that has this state "
            "store with `sleeper table migrate-state TABLE --to S3StateStore`; then delete "
            f"{name}, and move them back with this version. If no table had it, delete {name}."
        )

    def _not_found(self) -> ObjectNotFound:
        return ObjectNotFound(
            f"the state of table {self._table_id} is not in {self._tables.name(COMMITS)}. Check "
            "that AWS_REGION and AWS_ENDPOINT_URL are those that the table was made with; if its "
            "items were deleted, restore them from a backup of the DynamoDB tables."
        )

    def _revision(self, item: Item, files: FileReferences, others: OtherItems) -> Revision:
        try:
            found = parse_revision(item, self._schema)
            tree = others.tree()
            for what, wanted, has in (
                ("references", found.references, files.reference_count),
                ("partitions", found.partitions, len(tree) if tree else 0),
            ):
                if wanted != has:
                    raise DataDamaged(f"it should have {wanted} {what}, and has {has}")
        except DataDamaged as error:
            raise self._damage(error) from error
        jobs, self._dropped = others.committed(found.jobs_after)
        self._pieces = others.staged
        state = TableState(
            number=found.number,
            partitions=tree,
            files=files,
            jobs=jobs,
            claims=others.claims,
            at=found.at,
            swept_before=found.swept_before,
            schemas=found.schemas,
            moved=found.moved,
            deletes=found.deletes,
            format=found.format,
        )
        return Revision(state, found.history)

    def _damage(self, error: DataDamaged) -> DataDamaged:
        return DataDamaged(
            f"the state of table {self._table_id} in the tables "
            f"{', '.join(map(self._tables.name, ITEM_TABLES))} is damaged: {error}. Restore the "
            "four tables from a backup."
        )


def _is_large(parts: list[Item]) -> bool:
    """Return whether one transaction cannot hold these parts."""
    return len(parts) > WRITES_MAX or sum(put_sizes(parts)) > BYTES_MAX
