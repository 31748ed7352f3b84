"""The table index over a log of small entries, and checkpoints that avoid reading all of them.

No lock is held while storage is read: entries are folded into a new value, which replaces the
cached one if it is newer.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import count, islice
from threading import Lock
from typing import Any, Final, Literal, TypeVar

from sleeper.errors import (
    BadRequest,
    DataDamaged,
    FormatTooNew,
    TableAlreadyExists,
    TableChanged,
    TableNotFound,
)
from sleeper.model.tables import TableRecord
from sleeper.ports.ids import NewId
from sleeper.ports.table_index import IndexCheckpoints, TableIndex
from sleeper.ports.transaction_log import TransactionLog
from sleeper.state.append import CommitWording, NextEntry, append_entry

# ---------------------------------------------------------------- entries as JSON
#
# JSON of the table index: an entry has one change, a checkpoint has all tables.

FORMAT = 1
"""The newest format of entries and checkpoints that this Sleeper reads; it writes this one."""

ChangeType = Literal["add", "replace", "remove"]
_Decoded = TypeVar("_Decoded")


@dataclass(frozen=True, slots=True)
class Change:
    """The change of one entry, which was checked before.

    Attributes:
        type: The kind of change, for people who read the entry.
        table_id: The changed table.
        record: The table's new record; None if the table was deleted.
        entry_id: The id of the entry that was read; None before there is one.
    """

    type: ChangeType
    table_id: str
    record: TableRecord | None
    entry_id: str | None = None


class _UnknownChange(ValueError):
    """A type of change that only a newer Sleeper knows."""


def encode_entry(entry_id: str, change: Change) -> bytes:
    """Return the body of one entry. Each entry has a unique id."""
    body: dict[str, Any] = {"type": change.type, "tableId": change.table_id}
    if change.record is not None:
        body["table"] = _record_to_json(change.record)
    return _to_bytes({"entryId": entry_id, "format": FORMAT, "change": body})


def decode_entry(key: str, body: bytes) -> Change:
    """Decode one entry.

    Raises:
        FormatTooNew: a newer Sleeper wrote it.
        DataDamaged: it is not an entry. Both messages name `key`.
    """
    return _decode(key, body, _change_from_json)


def encode_checkpoint(records: TableRecords) -> bytes:
    """Return the body of a checkpoint: all tables after an entry, and the entry's id."""
    body: dict[str, Any] = {"format": FORMAT, "number": records.number}
    if records.entry_id is not None:
        body["entryId"] = records.entry_id
    body["tables"] = [_record_to_json(record) for record in records.by_id.values()]
    return _to_bytes(body)


def decode_checkpoint(key: str, body: bytes) -> TableRecords:
    """Decode a checkpoint: all tables after its entry.

    Raises:
        FormatTooNew: a newer Sleeper wrote it.
        DataDamaged: it is not a checkpoint. Both messages name `key`.
    """
    return _decode(key, body, _checkpoint_from_json)


def _decode(key: str, body: bytes, read: Callable[[Any], _Decoded]) -> _Decoded:
    try:
        value = json.loads(body)
        written_format = int(value["format"])
        if written_format <= FORMAT:
            return read(value)
    except _UnknownChange as unknown:
        raise FormatTooNew(
            f"{key} of the table index has a change of type {unknown}, which this Sleeper does not "
            "know. Upgrade Sleeper."
        ) from unknown
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DataDamaged(
            f"{key} of the table index cannot be read ({type(error).__name__}: {error}). Restore "
            "it from a copy; a checkpoint may also be deleted, as entries have its content."
        ) from error
    raise FormatTooNew(
        f"{key} of the table index has format {written_format}; this Sleeper reads up to {FORMAT}. "
        "Upgrade Sleeper."
    )


def _change_from_json(value: Any) -> Change:
    change, entry_id = value["change"], value.get("entryId")
    if change["type"] == "remove":
        return Change("remove", str(change["tableId"]), None, entry_id)
    if change["type"] not in ("add", "replace"):
        raise _UnknownChange(f"{change['type']!r:.100}")
    record = _record_from_json(change["table"])
    return Change(change["type"], str(change["tableId"]), record, entry_id)


def _checkpoint_from_json(value: Any) -> TableRecords:
    records = [_record_from_json(record) for record in value["tables"]]
    return TableRecords.of(int(value["number"]), records, value.get("entryId"))


def _record_to_json(record: TableRecord) -> dict[str, Any]:
    return {
        "tableId": record.table_id,
        "name": record.name,
        "online": record.online,
        "properties": dict(record.properties),
    }


def _record_from_json(value: Any) -> TableRecord:
    return TableRecord(
        table_id=_checked_id(str(value["tableId"])),
        name=str(value["name"]),
        online=bool(value["online"]),
        properties={str(name): str(text) for name, text in value["properties"].items()},
    )


def _checked_id(table_id: str) -> str:
    """Check that a table's id is a valid folder name, because the table's data is stored there."""
    if not table_id or table_id in (".", "..") or "/" in table_id or "\0" in table_id:
        raise ValueError(f"{table_id!r:.100} cannot be the id of a table")
    return table_id


def _to_bytes(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


# ---------------------------------------------------------------- records
#
# All tables after an entry of the table index, and checks of changes to them.


@dataclass(frozen=True, slots=True)
class TableRecords:
    """All tables after one entry of the index. Immutable: folding entries makes a new value.

    Attributes:
        number: The last folded entry; 0 is before the first.
        by_id: The tables by id.
        by_name: The same tables by name.
        entry_id: The id of the last folded entry; None before the first, and if it is not known,
            from a checkpoint of an earlier version.
    """

    number: int = 0
    by_id: Mapping[str, TableRecord] = field(default_factory=dict)
    by_name: Mapping[str, TableRecord] = field(default_factory=dict)
    entry_id: str | None = None

    @classmethod
    def of(
        cls, number: int, records: Iterable[TableRecord], entry_id: str | None = None
    ) -> TableRecords:
        """Return `records` as the tables after entry `number`, which has an id."""
        by_id = {record.table_id: record for record in records}
        return cls(number, by_id, {record.name: record for record in by_id.values()}, entry_id)

    def is_after(self, change: Change) -> bool:
        """Return whether a change is that of the last folded entry, as far as that is known.

        Without the entry's id, its change must be in the records.
        """
        if self.entry_id is not None:
            return change.entry_id == self.entry_id
        return self.by_id.get(change.table_id) == change.record

    def check_addable(self, record: TableRecord) -> None:
        """Check that no table has the name or the id of `record`.

        Raises:
            TableAlreadyExists: a table has it.
        """
        self._check_name_free(record)
        taken = self.by_id.get(record.table_id)
        if taken is not None:
            raise TableAlreadyExists(
                f"table {taken.name!r} has the id {record.table_id} already. Make a new id."
            )

    def check_replaceable(self, before: TableRecord, after: TableRecord) -> None:
        """Check that a table's record is `before`, and that the name of `after` is free.

        Raises:
            TableNotFound: the table was deleted.
            TableChanged: its record is different.
            TableAlreadyExists: another table has the new name.
        """
        current = self.by_id.get(before.table_id)
        if current is None:
            raise TableNotFound(
                f"table {before.name!r} (id {before.table_id}) does not exist: it was deleted "
                f"since it was read. {self._near(before.name)}"
            )
        if current != before:
            raise TableChanged(
                f"another writer changed table {before.name!r} since it was read: "
                f"{_differences(before, current)}. Read it again, then repeat the change."
            )
        self._check_name_free(after)

    def check_removable(self, table_id: str) -> None:
        """Check that there is a table with this id.

        Raises:
            TableNotFound: there is none.
        """
        if table_id not in self.by_id:
            raise TableNotFound(
                f"no table has the id {table_id!r}; it may be deleted already. "
                f"{self._near(table_id)}"
            )

    def _check_name_free(self, record: TableRecord) -> None:
        taken = self.by_name.get(record.name)
        if taken is not None and taken.table_id != record.table_id:
            raise TableAlreadyExists(
                f"there is a table {record.name!r} already (id {taken.table_id}). Choose another "
                "name, or use that table."
            )

    def _near(self, name: str) -> str:
        """Return a sentence with similar names of tables."""
        named = difflib.get_close_matches(name, self.by_name) or sorted(self.by_name)[:5]
        return f"Tables there are: {', '.join(map(repr, named))}." if named else "There are none."


def fold(
    records: TableRecords,
    entries: Iterable[tuple[int, bytes]],
    name_of: Callable[[int], str],
) -> TableRecords:
    """Return the tables after `entries`, as a log's `read_after` yields them.

    Args:
        records: The tables before them.
        entries: Numbers and bodies.
        name_of: Returns the name of an entry for errors.

    Raises:
        DataDamaged: an entry is missing or cannot be read.
        FormatTooNew: a newer Sleeper wrote one of them.
    """
    number, entry_id = records.number, records.entry_id
    by_id: dict[str, TableRecord] = {}
    for found, body in entries:
        if found != number + 1:
            raise DataDamaged(
                f"the table index has no {name_of(number + 1)}: after entry {number} comes "
                f"{found}. Restore the missing entries from a copy of the instance."
            )
        if number == records.number:
            by_id = dict(records.by_id)
        change = decode_entry(name_of(found), body)
        _apply(by_id, change)
        number, entry_id = found, change.entry_id
    if number == records.number:
        return records
    return TableRecords.of(number, by_id.values(), entry_id)


def _apply(by_id: dict[str, TableRecord], change: Change) -> None:
    if change.record is None:
        by_id.pop(change.table_id, None)
    else:
        by_id[change.table_id] = change.record


def _differences(before: TableRecord, current: TableRecord) -> str:
    """Return the names of differing parts of a record, without their values, which may be long."""
    parts = ("name", "online", "properties")
    return ", ".join(part for part in parts if getattr(before, part) != getattr(current, part))


ENTRIES_PER_CHECKPOINT = 64
ATTEMPTS = 20
_TABLES_PER_COPY = 64
"""An index of more tables is copied at every second change, at every third, and so on."""
_BEYOND = 16
"""So many numbers after the last entry are looked for by `faults`."""

_WORDING = CommitWording(
    entry="entry",
    when_contended="Try the change of the table index again.",
    when_unknown=(
        "It is a change of the table index: when the storage answers, check the table before "
        "you repeat it."
    ),
    attempts_source="the table index's number of attempts",
)


class LogTableIndex:
    """A `TableIndex` over any log, safe for many threads, processes and machines.

    Every record is in memory. A read first checks for new entries, which is one failed read if
    there are none. Readers never wait for each other or for a change; changes by one handle run
    one after the other.

    Args:
        log: The entries. They are never deleted.
        checkpoints: All tables after some entries.
        read_beside: Begins a read beside others, as `Objects.beside`. Given where the store is not
            trusted: a copy of the newest tables is then compared with its entry at the first look,
            as that may have been replaced after the copy was written.
        entry_name: Returns the name of an entry for errors.
        new_id: Makes a unique id for each entry.
        pause: Waits after a lost race; called with the number of races lost before.
    """

    def __init__(
        self,
        log: TransactionLog,
        checkpoints: IndexCheckpoints,
        *,
        entry_name: Callable[[int], str],
        new_id: NewId,
        pause: Callable[[int], None],
        read_beside: Callable[[Callable[[], bytes | None]], Callable[[], bytes | None]]
        | None = None,
    ) -> None:
        self._log = log
        self._read_beside = read_beside
        self._uncompared: TableRecords | None = None  # of a copy, as long as it is held
        self._checkpoints = checkpoints
        self._entry_name = entry_name
        self._new_id = new_id
        self._pause = pause
        self._swapping, self._changing = Lock(), Lock()
        self._held: TableRecords | None = None

    def add(self, record: TableRecord) -> None:
        """Append an entry if no table has the name or the id."""
        change = Change("add", record.table_id, record)
        self._commit(change, lambda records: records.check_addable(record))

    def replace(self, before: TableRecord, after: TableRecord) -> None:
        """Append an entry if the table's record is `before`."""
        if before.table_id != after.table_id:
            raise BadRequest(
                f"table {before.name!r} has id {before.table_id}, which never changes; its new "
                f"record says {after.table_id}"
            )
        change = Change("replace", after.table_id, after)
        self._commit(change, lambda records: records.check_replaceable(before, after))

    def remove(self, table_id: str) -> None:
        """Append an entry if the table exists."""
        change = Change("remove", table_id, None)
        self._commit(change, lambda records: records.check_removable(table_id))

    def by_name(self, name: str) -> TableRecord | None:
        """Read new entries, then look up the name in memory."""
        return self._caught_up().by_name.get(name)

    def known_by_name(self, name: str) -> TableRecord | None:
        """Look up the name in the newest checkpoint and the entries that were read since."""
        return self._known().by_name.get(name)

    def by_id(self, table_id: str) -> TableRecord | None:
        """Read new entries, then look up the id in memory."""
        return self._caught_up().by_id.get(table_id)

    def all(self) -> tuple[TableRecord, ...]:
        """Read new entries, then return all tables sorted by name."""
        records = self._caught_up()
        return tuple(records.by_name[name] for name in sorted(records.by_name))

    def edited_schema(self, record: TableRecord) -> str | None:
        """Return None: there is no file for other programs."""
        return None

    def is_last(self, number: int, body: bytes) -> bool:
        """Return whether an entry is the one before the cached tables, as far as that is known.

        Asked of an entry that was not read, because a checkpoint has what it adds up to.
        """
        held = self._held
        if held is None or held.number != number or held is self._uncompared:
            return True
        return held.is_after(decode_entry(self._entry_name(number), body))

    def faults(self) -> tuple[str, ...]:
        """Replay the log from its first entry, and compare a checkpoint with it on the way."""
        try:
            found = self._checkpoints.newest()
            checkpoint = TableRecords() if found is None else decode_checkpoint(*found)
        except (DataDamaged, FormatTooNew) as error:
            return (str(error),)
        entries = self._log.read_after(0)
        try:
            upto = islice(entries, checkpoint.number)
            replayed = fold(TableRecords(), upto, self._entry_name)
            if replayed.number < checkpoint.number:
                missing = self._entry_name(replayed.number + 1)
                return (f"{missing} is missing, and a checkpoint is after {checkpoint.number}",)
            newest = fold(replayed, entries, self._entry_name)
        except (DataDamaged, FormatTooNew) as error:
            return (str(error),)
        if replayed.by_id != checkpoint.by_id:
            return (f"the checkpoint after entry {checkpoint.number} differs from the log",)
        return self._entries_beyond(newest.number)

    def _entries_beyond(self, last: int) -> tuple[str, ...]:
        """Look for entries after a missing one, which readers take for the end of the log."""
        numbers = range(last + 2, last + 2 + _BEYOND)
        found = next((each for each in numbers if self._log.read(each) is not None), None)
        if found is None or self._log.read(last + 1) is not None:  # it was written meanwhile
            return ()
        missing = self._entry_name(last + 1)
        fault = (
            f"{missing} is missing, but there is {self._entry_name(found)}: changes from there on "
            "are not seen by readers"
        )
        return (fault,)

    def _commit(self, change: Change, check: Callable[[TableRecords], object]) -> None:
        """Append `change` after all other entries, if `check` allows it then."""

        def build() -> NextEntry[TableRecords]:
            records = self._caught_up()
            check(records)
            number, body = records.number + 1, encode_entry(self._new_id(), change)
            return NextEntry(number, body, fold(records, [(number, body)], self._entry_name))

        with self._changing:
            changed = append_entry(
                self._log, build, pause=self._pause, attempts=ATTEMPTS, wording=_WORDING
            )
        self._hold(changed)
        is_due = changed.number % ENTRIES_PER_CHECKPOINT == 0
        tables_per_entry = len(changed.by_id) // _TABLES_PER_COPY + 1
        is_copied = self._checkpoints.keeps_newest and changed.number % tables_per_entry == 0
        if is_due or is_copied:
            body = encode_checkpoint(changed)
            if is_due:
                self._checkpoints.save(changed.number, body)
            if is_copied:
                self._checkpoints.save_newest(body)

    def _caught_up(self) -> TableRecords:
        """Read new entries."""
        known = self._known()
        if self._read_beside is None or known is not self._uncompared:
            return self._hold(fold(known, self._log.read_after(known.number), self._entry_name))
        entry = self._read_beside(partial(self._log.read, known.number))
        records = fold(known, self._log.read_after(known.number), self._entry_name)
        is_in_log = self._is_after(known, entry())
        with self._swapping:
            if self._uncompared is known:
                self._uncompared = None
                if not is_in_log and self._held is known:
                    self._held = None
        if is_in_log:
            return self._hold(records)
        found = self._checkpoints.newest(with_copy=False)
        before = TableRecords() if found is None else decode_checkpoint(*found)
        return self._hold(fold(before, self._log.read_after(before.number), self._entry_name))

    def _is_after(self, records: TableRecords, body: bytes | None) -> bool:
        if body is None:
            return False
        try:
            return records.is_after(decode_entry(self._entry_name(records.number), body))
        except (DataDamaged, FormatTooNew):
            return False  # the replay from an earlier entry says so

    def _known(self) -> TableRecords:
        """Return the cached tables; at first the newest checkpoint, if there is one."""
        if self._held is not None:
            return self._held
        found = self._checkpoints.newest()
        records = TableRecords() if found is None else decode_checkpoint(*found)
        if self._read_beside is not None and records.number:
            with self._swapping:
                if self._held is None:
                    self._held = self._uncompared = records
        return self._hold(records)

    def _hold(self, records: TableRecords) -> TableRecords:
        """Cache `records` if they are newer, and return the cached ones."""
        with self._swapping:
            if self._held is None or self._held.number < records.number:
                self._held = records
            return self._held


# ---------------------------------------------------------------- own changes
#
# Which tables this process has changed, so that it always reads what it wrote: a reader that may be
# some seconds old looks for newer states in storage only after that time. A change by any handle of
# its process makes it look at its next read.

_numbers: Final = count(1)
_last: Final[dict[tuple[str, str], int]] = {}


class OwnChanges:
    """Counts the changes of a table, or of a table index, by all handles of this process.

    Args:
        url: The instance.
        table_id: The table; empty for the table index.
    """

    def __init__(self, url: str, table_id: str = "") -> None:
        self._place = (url, table_id)

    def note(self) -> None:
        """Count a change that was made, or may have been made."""
        _last[self._place] = next(_numbers)

    def last(self) -> int:
        """Return the number of the last change, which no other has; 0 before the first."""
        return _last.get(self._place, 0)


class NotedTableIndex:
    """A `TableIndex` that counts the changes of another one, also those that may have been made.

    Args:
        index: The other one.
        changes: Counts them.
    """

    def __init__(self, index: TableIndex, changes: OwnChanges) -> None:
        self._index = index
        self._changes = changes
        self.by_name = index.by_name
        self.known_by_name = index.known_by_name
        self.by_id = index.by_id
        self.all = index.all
        self.edited_schema, self.faults = index.edited_schema, index.faults

    def add(self, record: TableRecord) -> None:
        """Add a table."""
        try:
            self._index.add(record)
        finally:
            self._changes.note()

    def replace(self, before: TableRecord, after: TableRecord) -> None:
        """Change a table's record."""
        try:
            self._index.replace(before, after)
        finally:
            self._changes.note()

    def remove(self, table_id: str) -> None:
        """Remove a table."""
        try:
            self._index.remove(table_id)
        finally:
            self._changes.note()
