"""The table index as objects: a log of small entries, each created only if absent.

The entries are the truth and are never deleted. A checkpoint now and then spares whoever opens
the index from reading all of them.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from contextlib import suppress
from threading import RLock

from sleeper.errors import (
    BadRequest,
    CommitContended,
    CommitUnknown,
    StorageFailed,
    StorageFull,
    StorageReadOnly,
    TableAlreadyExists,
    TableChanged,
    TableNotFound,
)
from sleeper.model.tables import TableRecord
from sleeper.ports.ids import NewId
from sleeper.ports.objects import Objects
from sleeper.storage.object_log import ObjectTransactionLog
from sleeper.storage.table_index_entries import (
    Change,
    decode_checkpoint,
    decode_entry,
    encode_checkpoint,
    encode_entry,
)

ENTRIES_PER_CHECKPOINT = 64
_CHECKPOINTS_KEPT = 2
_ATTEMPTS = 100


class ObjectTableIndex:
    """A `TableIndex` over any `Objects`, safe for many threads, processes and machines.

    Holds every record in memory. A read first looks for entries that others have added, which
    is one failed read when there are none.

    Args:
        objects: The instance's objects.
        prefix: What the entries' keys start with; twenty digits and `.json` follow.
        new_id: Makes an id that no other entry has.
        checkpoints: What the checkpoints' keys start with.
    """

    def __init__(
        self,
        objects: Objects,
        prefix: str = "tables/index/",
        *,
        new_id: NewId,
        checkpoints: str = "tables/checkpoints/",
    ) -> None:
        self._objects = objects
        self._log = ObjectTransactionLog(objects, prefix)
        self._new_id = new_id
        self._checkpoints = checkpoints
        self._lock = RLock()
        self._opened = False
        self._number = 0
        self._by_id: dict[str, TableRecord] = {}
        self._by_name: dict[str, TableRecord] = {}

    def add(self, record: TableRecord) -> None:
        """Append an entry, once no table has the name or the id."""
        self._commit(Change("add", record.table_id, record), lambda: self._check_free(record))

    def replace(self, before: TableRecord, after: TableRecord) -> None:
        """Append an entry, once the table's record is `before`."""
        if before.table_id != after.table_id:
            raise BadRequest(
                f"table {before.name!r} has id {before.table_id}, which never changes; its new "
                f"record says {after.table_id}"
            )
        self._commit(
            Change("replace", after.table_id, after), lambda: self._check_replaces(before, after)
        )

    def remove(self, table_id: str) -> None:
        """Append an entry, once there is such a table."""
        self._commit(Change("remove", table_id, None), lambda: self._check_known(table_id))

    def by_name(self, name: str) -> TableRecord | None:
        """Catch up, then look in memory."""
        with self._lock:
            self._catch_up()
            return self._by_name.get(name)

    def by_id(self, table_id: str) -> TableRecord | None:
        """Catch up, then look in memory."""
        with self._lock:
            self._catch_up()
            return self._by_id.get(table_id)

    def all(self) -> tuple[TableRecord, ...]:
        """Catch up, then sort what is in memory by name."""
        with self._lock:
            self._catch_up()
            return tuple(self._by_name[name] for name in sorted(self._by_name))

    def _commit(self, change: Change, check: Callable[[], object]) -> None:
        """Append `change` after all that is known, if `check` then lets it pass."""
        body = encode_entry(self._new_id(), change)
        with self._lock:
            for _ in range(_ATTEMPTS):
                self._catch_up()
                check()
                if self._append(self._number + 1, body):
                    self._follow(self._number + 1, body)
                    self._save_checkpoint()
                    return
        raise CommitContended(
            f"other changes of the table index were first, {_ATTEMPTS} times in a row; nothing was "
            "changed. Try again."
        )

    def _append(self, number: int, body: bytes) -> bool:
        """Append an entry. Where there is no answer, look whether it arrived; if not, once more."""
        for _ in range(2):
            try:
                return self._log.append(number, body)
            except (StorageFull, StorageReadOnly):
                raise  # these say that nothing was stored
            except StorageFailed as error:
                lost = error
            try:
                found = self._log.read(number)
            except StorageFailed as error:
                raise self._unknown(number, error) from error
            if found is not None:
                return found == body
        raise self._unknown(number, lost) from lost

    def _unknown(self, number: int, error: StorageFailed) -> CommitUnknown:
        return CommitUnknown(
            f"the storage did not say whether {self._log.key(number)}, a change of the table "
            f"index, was written: {error} Once it answers, look at the table before you repeat "
            "the change."
        )

    def _catch_up(self) -> None:
        """Read what others have added since the last look."""
        if not self._opened:
            self._load_checkpoint()
            self._opened = True
        for number, body in self._log.read_after(self._number):
            self._follow(number, body)

    def _follow(self, number: int, body: bytes) -> None:
        change = decode_entry(self._log.key(number), body)
        before = self._by_id.pop(change.table_id, None)
        if before is not None:
            del self._by_name[before.name]
        if change.record is not None:
            self._keep(change.record)
        self._number = number

    def _keep(self, record: TableRecord) -> None:
        self._by_id[record.table_id] = record
        self._by_name[record.name] = record

    def _load_checkpoint(self) -> None:
        """Begin at the newest checkpoint, or at the first entry where there is none."""
        name = re.compile(re.escape(self._checkpoints) + r"\d{20}\.json")
        keys = [info.key for info in self._objects.listing(self._checkpoints)]
        for key in reversed([key for key in keys if name.fullmatch(key)]):
            body = self._objects.read(key)
            if body is not None:  # else a newer one came, and this one went, since the listing
                self._number, records = decode_checkpoint(key, body)
                for record in records:
                    self._keep(record)
                return

    def _save_checkpoint(self) -> None:
        """After every 64th entry, save what is known. The change is made already: no error."""
        if self._number % ENTRIES_PER_CHECKPOINT != 0:
            return
        outdated = self._number - _CHECKPOINTS_KEPT * ENTRIES_PER_CHECKPOINT
        with suppress(StorageFailed):
            body = encode_checkpoint(self._number, self._by_id.values())
            self._objects.create(self._checkpoint_key(self._number), body)
            self._objects.delete([self._checkpoint_key(outdated)] if outdated > 0 else [])

    def _checkpoint_key(self, number: int) -> str:
        return f"{self._checkpoints}{number:020d}.json"

    def _check_free(self, record: TableRecord) -> None:
        self._check_name_free(record)
        taken = self._by_id.get(record.table_id)
        if taken is not None:
            raise TableAlreadyExists(
                f"table {taken.name!r} has the id {record.table_id} already. Make a new id."
            )

    def _check_name_free(self, record: TableRecord) -> None:
        taken = self._by_name.get(record.name)
        if taken is not None and taken.table_id != record.table_id:
            raise TableAlreadyExists(
                f"there is a table {record.name!r} already (id {taken.table_id}). Choose another "
                "name, or use that table."
            )

    def _check_replaces(self, before: TableRecord, after: TableRecord) -> None:
        current = self._by_id.get(before.table_id)
        if current is None:
            raise TableNotFound(
                f"table {before.name!r} (id {before.table_id}) is no longer there: it was deleted "
                f"since it was read. {self._near(before.name)}"
            )
        if current != before:
            raise TableChanged(
                f"somebody else changed table {before.name!r} since it was read: "
                f"{_differences(before, current)}. Read it again, then repeat the change."
            )
        self._check_name_free(after)

    def _check_known(self, table_id: str) -> None:
        if table_id not in self._by_id:
            raise TableNotFound(
                f"no table has the id {table_id!r}; it may be deleted already. "
                f"{self._near(table_id)}"
            )

    def _near(self, name: str) -> str:
        """Name tables that may have been meant."""
        named = difflib.get_close_matches(name, self._by_name) or sorted(self._by_name)[:5]
        return f"Tables there are: {', '.join(map(repr, named))}." if named else "There are none."


def _differences(before: TableRecord, current: TableRecord) -> str:
    """Say which parts of a record differ, without their values, which may be long."""
    parts = ("name", "online", "properties")
    return ", ".join(part for part in parts if getattr(before, part) != getattr(current, part))
