"""Checks the stored state of a table: its log, its snapshots, the copy of a new state, its tree."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from sleeper.errors import (
    DataDamaged,
    FormatTooNew,
    ObjectNotFound,
    SleeperError,
    SplitInvalid,
    VersionNotFound,
)
from sleeper.model import paths
from sleeper.model.files import FileReference
from sleeper.model.ranges import whole_region
from sleeper.model.schema import Schema
from sleeper.ports.objects import Objects
from sleeper.ports.transaction_log import SnapshotStore, TransactionLog
from sleeper.state.commit import replay
from sleeper.state.findings import RESTORE_STATE, Finding, FindingKind
from sleeper.state.newest_copy import NewestCopies
from sleeper.state.snapshot import state_from_parts
from sleeper.state.state_difference import differing_attributes, state_difference
from sleeper.state.state_store import StateStore
from sleeper.state.table_state import TableState
from sleeper.storage.transaction_log import TABLE_LOG, ObjectTransactionLog
from sleeper.tables.verify_chain import ChainCheck

_BEYOND: Final = 16
"""So many numbers after the last entry are looked for, in a log that cannot be listed."""

_LATER_ATTRIBUTES: Final = ("size_bytes", "schema_id", "first_key", "last_key", "sequence")
"""Of references; snapshots of earlier versions do not have them."""

_NOT_LATER: Final = (
    "entry {} of the transaction log is not later than the one before it, as each entry is: one of "
    "the two was overwritten by another entry, or the one before was missing when it was written "
    "(an older copy was in the place of the instance, and a writer went on)"
)
_REMAKE_SNAPSHOT = (
    "Delete the objects of this snapshot; the next commits write another one. The log is complete."
)
_REMAKE_COPY = "Delete the object statestore/snapshots/newest; the next commits write another one."


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedState:
    """The result of the checks of a state.

    Attributes:
        state: The newest state; None if it cannot be read.
        entries: How many entries of the log were replayed.
        snapshots: How many snapshots and copies of states were compared with the log.
        findings: What is wrong.
    """

    state: TableState | None
    entries: int
    snapshots: int
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _StoredState:
    """A state that is stored beside the log.

    Attributes:
        name: What it is, for messages.
        number: The number of its last transaction.
        load: Reads it.
        next_step: What to do if it is wrong.
    """

    name: str
    number: int
    load: Callable[[], TableState]
    next_step: str


def verify_state(
    store: StateStore,
    *,
    files: Objects,
    schema: Schema,
    chain: ChainCheck,
    purged_up_to: int = 0,
    progress: Callable[[int, int | None], None] = lambda done, total: None,
) -> VerifiedState:
    """Read a table's state in every form in which it is stored, and compare the forms.

    The log is replayed from its first entry, and compared with each snapshot and with the state
    that readers use. Others may commit meanwhile: what they add is not looked at.

    Args:
        store: The table's state store, which has read nothing yet.
        files: The table's folder.
        schema: The table's schema.
        chain: Looks at the entries that are replayed.
        purged_up_to: Up to this transaction entries may lack keys of purged rows; its snapshot
            stands for them.
        progress: Called with the number of replayed entries, and of all.

    Raises:
        StorageFailed: the storage did not answer.
    """
    try:
        state = store.refresh()
    except (DataDamaged, FormatTooNew, VersionNotFound, ObjectNotFound) as error:
        found = [_finding(FindingKind.STATE, f"the table's state cannot be read: {error}")]
        if store.log is not None and store.snapshots is not None:
            found += _Replay(store.log, store.snapshots, schema, chain, progress).check(
                None, purged_up_to
            )
        return VerifiedState(state=None, entries=0, snapshots=0, findings=(*found,))
    findings = [*_tree_faults(state, schema)]
    if store.log is None or store.snapshots is None:
        return VerifiedState(state=state, entries=0, snapshots=0, findings=(*findings,))
    replay_log = _Replay(store.log, store.snapshots, schema, chain, progress)
    findings += replay_log.check(state, purged_up_to)
    findings += _entries_beyond(state, store, files)
    return VerifiedState(
        state=state,
        entries=replay_log.entries,
        snapshots=replay_log.compared,
        findings=(*findings,),
    )


class _Replay:
    """Replays a log from its beginning, and compares what is stored beside it on the way."""

    def __init__(
        self,
        log: TransactionLog,
        snapshots: SnapshotStore,
        schema: Schema,
        chain: ChainCheck,
        progress: Callable[[int, int | None], None],
    ) -> None:
        self._log = log
        self._snapshots = snapshots
        self._schema = schema
        self._chain = chain
        self._progress = progress
        self.entries = 0
        self.compared = 0

    def check(self, newest: TableState | None, purged_up_to: int) -> Iterator[Finding]:
        """Yield what is wrong; `newest` is the state that readers use, None if there is none."""
        copy, damage = self._copy()
        yield from damage
        waiting = [*self._stored(), *copy]
        end = max(
            [each.number for each in waiting] + ([newest.number] if newest else []), default=0
        )
        at, fault = TableState.empty(), None
        try:
            if purged_up_to:
                at = self._load(purged_up_to)
            elif newest is not None and newest.moved is not None:
                at = self._load(newest.moved.number - 1)
            yield from self._compare_all(at, waiting, newest)
            unread = newest is None or at.number < end
            for number, body in self._log.read_after(at.number) if unread else ():
                self._chain.look_at(number, body)
                last, at = at.at, replay(at, [(number, body)], self._schema)
                if last is not None and at.at is not None and at.at <= last:
                    yield _finding(FindingKind.LOG, _NOT_LATER.format(number), entry=number)
                self.entries += 1
                self._progress(self.entries, end)
                yield from self._compare_all(at, waiting, newest)
                if newest is not None and at.number == end:
                    return
        except (DataDamaged, FormatTooNew, ObjectNotFound, VersionNotFound) as error:
            fault = str(error)
        if fault is not None or at.number < end:
            number = at.number + 1
            missing = f"entry {number} of the transaction log is missing, of {end} or more"
            yield _finding(FindingKind.LOG, fault or missing, entry=number)
            for each in waiting:
                if each.number > at.number:
                    yield from self._readable(each)

    def _compare_all(
        self, at: TableState, waiting: Sequence[_StoredState], newest: TableState | None
    ) -> Iterator[Finding]:
        for each in waiting:
            if each.number == at.number:
                yield from self._compare(each, at)
        if newest is not None and at.number == newest.number:
            yield from self._compare_newest(newest, at)

    def _stored(self) -> list[_StoredState]:
        return [
            _StoredState(
                name=f"snapshot {number}",
                number=number,
                load=partial(self._load, number),
                next_step=_REMAKE_SNAPSHOT,
            )
            for number in self._snapshots.numbers()
        ]

    def _load(self, number: int) -> TableState:
        return state_from_parts(
            number, lambda part: self._snapshots.load(number, part), self._schema
        )

    def _copy(self) -> tuple[list[_StoredState], list[Finding]]:
        try:
            copy = NewestCopies(self._snapshots, self._schema).read()
        except (DataDamaged, FormatTooNew, ObjectNotFound) as error:
            what = f"the copy of the newest state cannot be read: {error}"
            return [], [_finding(FindingKind.SNAPSHOT, what, next_step=_REMAKE_COPY)]
        if copy is None:
            return [], []
        state = copy.state
        return [
            _StoredState(
                name=f"the copy of the state at transaction {state.number}",
                number=state.number,
                load=lambda: state,
                next_step=_REMAKE_COPY,
            )
        ], []

    def _compare(self, stored: _StoredState, replayed: TableState) -> Iterator[Finding]:
        self.compared += 1
        try:
            differing = _differing(stored.load(), replayed)
        except (DataDamaged, FormatTooNew, ObjectNotFound) as error:
            yield _unreadable(stored, error)
            return
        if differing:
            yield _finding(
                FindingKind.SNAPSHOT,
                f"{stored.name} differs from the log up to there in {_listed(differing)}",
                next_step=stored.next_step,
                entry=stored.number,
            )

    def _readable(self, stored: _StoredState) -> Iterator[Finding]:
        try:
            stored.load()
        except (DataDamaged, FormatTooNew, ObjectNotFound) as error:
            yield _unreadable(stored, error)

    def _compare_newest(self, newest: TableState, replayed: TableState) -> Iterator[Finding]:
        if differing := _differing(newest, replayed):
            yield _finding(
                FindingKind.STATE,
                f"the state that readers use at transaction {newest.number} differs from that of "
                f"the log from its beginning in {_listed(differing)}: a snapshot, or the copy of a "
                "new state, is wrong",
                entry=newest.number,
            )


def _differing(stored: TableState, replayed: TableState) -> set[str]:
    """Return what differs, but for what earlier versions did not keep in snapshots."""
    found = differing_attributes(stored, replayed)
    if "schemas" in found and not stored.schemas:
        found.remove("schemas")
    if "references" in found:
        pairs = state_difference(stored, replayed).references.values()
        if all(one and other and _completed(one, other) == other for one, other in pairs):
            found.remove("references")
    return found


def _completed(reference: FileReference, other: FileReference) -> FileReference:
    """Return a reference with those attributes of its file that it lacks from another."""
    missing = {name for name in _LATER_ATTRIBUTES if getattr(reference, name) is None}
    return replace(reference, **{name: getattr(other, name) for name in missing})


def _tree_faults(state: TableState, schema: Schema) -> Iterator[Finding]:
    """Check that leaves cover all keys without gap or overlap."""
    if state.partitions is None:
        yield _finding(
            FindingKind.INDEX, "the table index has the table, but nothing is stored of its state"
        )
        return
    try:
        state.partitions.of(state.partitions.partitions.values())
    except SplitInvalid as error:
        yield _finding(FindingKind.TREE, f"the partition tree is wrong: {error}")
    if state.partitions.root.region != whole_region(schema):
        yield _finding(FindingKind.TREE, "the root partition does not contain all keys")
    for partition_id in sorted(state.files.partition_ids()):
        if partition_id not in state.partitions:
            yield _finding(
                FindingKind.REFERENCE,
                f"files are referenced by partition {partition_id}, which is not in the tree, so "
                "no query reads them",
                partition_id=partition_id,
            )


def _entries_beyond(state: TableState, store: StateStore, files: Objects) -> Iterator[Finding]:
    """Look for entries after a missing one, which readers take for the end of the log."""
    log = store.log
    assert log is not None
    folder = files if state.moved is None else files.under(paths.moved_state(state.moved.move_id))
    last = ObjectTransactionLog(folder).key(state.number)
    found = next((info.key for info in folder.listing(TABLE_LOG, after=last)), None)
    if found is None:
        numbers = range(state.number + 2, state.number + 2 + _BEYOND)
        found = next((f"entry {each}" for each in numbers if log.read(each) is not None), None)
    if found is not None and store.refresh().number == state.number:
        number = state.number + 1
        yield _finding(
            FindingKind.LOG,
            f"entry {number} of the transaction log is missing, but there is {found}: what was "
            "committed from there on is not seen by readers",
            entry=number,
        )


def _unreadable(stored: _StoredState, error: SleeperError) -> Finding:
    return _finding(
        FindingKind.SNAPSHOT,
        f"{stored.name} cannot be read: {error}",
        next_step=stored.next_step,
        entry=stored.number,
    )


def _listed(names: set[str]) -> str:
    return ", ".join(sorted(names))


def _finding(
    kind: FindingKind,
    what: str,
    *,
    next_step: str = RESTORE_STATE,
    entry: int | None = None,
    partition_id: str | None = None,
) -> Finding:
    return Finding(
        kind=kind, what=what, next_step=next_step, entry=entry, partition_id=partition_id
    )
