"""The table index over a log of small entries, and checkpoints that avoid reading all of them.

No lock is held while storage is read: entries are folded into a new value, which replaces the
cached one if it is newer.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from threading import Lock

from sleeper.errors import BadRequest, DataDamaged, FormatTooNew
from sleeper.model.tables import TableRecord
from sleeper.ports.ids import NewId
from sleeper.ports.table_index import IndexCheckpoints
from sleeper.ports.transaction_log import TransactionLog
from sleeper.state.append_entry import CommitWording, NextEntry, append_entry
from sleeper.state.table_index.entry_json import (
    Change,
    decode_checkpoint,
    encode_checkpoint,
    encode_entry,
)
from sleeper.state.table_index.records import TableRecords, fold

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
    ) -> None:
        self._log = log
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

    def faults(self) -> tuple[str, ...]:
        """Replay the log from its first entry, and compare a checkpoint with it on the way."""
        try:
            found = self._checkpoints.newest()
            checkpoint = (
                TableRecords() if found is None else TableRecords.of(*decode_checkpoint(*found))
            )
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
            body = encode_checkpoint(changed.number, changed.by_id.values())
            if is_due:
                self._checkpoints.save(changed.number, body)
            if is_copied:
                self._checkpoints.save_newest(body)

    def _caught_up(self) -> TableRecords:
        """Read new entries."""
        known = self._known()
        return self._hold(fold(known, self._log.read_after(known.number), self._entry_name))

    def _known(self) -> TableRecords:
        """Return the cached tables; at first the newest checkpoint, if there is one."""
        if self._held is not None:
            return self._held
        found = self._checkpoints.newest()
        start = TableRecords() if found is None else TableRecords.of(*decode_checkpoint(*found))
        return self._hold(start)

    def _hold(self, records: TableRecords) -> TableRecords:
        """Cache `records` if they are newer, and return the cached ones."""
        with self._swapping:
            if self._held is None or self._held.number < records.number:
                self._held = records
            return self._held
