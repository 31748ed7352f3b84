"""Moves the state of a table to another state store, verified before the switch (decision 0066).

    1. note the place of the new store        objects statestore/moves/<move id>.json
    2. copy the newest state N there, commit MoveState as N + 1, read all of it back
    3. commit the same MoveState to the old store: it takes no other commit from then on
    4. replace class and place in the table's record
    5. delete what other attempts, which were interrupted, have left

Killed before step 3, the table is where it was. Killed after it, the next run begins with step 4.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from logging import getLogger
from typing import Final

from sleeper.errors import (
    CommitContended,
    CommitUnknown,
    DataDamaged,
    SleeperError,
    StateMoved,
    TableChanged,
    TableNotFound,
)
from sleeper.html.values import NotebookHtml
from sleeper.model import paths
from sleeper.model.known_properties.state_store import state_store_named
from sleeper.model.known_properties.typed import TableProperties
from sleeper.model.tables import StateMove, TableRecord
from sleeper.state.moves import MoveNotes, StatePlace
from sleeper.state.state_difference import differing_attributes
from sleeper.state.state_store import StateStore
from sleeper.state.table_state import TableState
from sleeper.state.transactions.moves import MoveState
from sleeper.tables.change import switch_state_store
from sleeper.tables.open_table import OpenTable
from sleeper.tables.state_stores import store_at

_LOG = getLogger(__name__)
_ATTEMPTS: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationResult(NotebookHtml):
    """The result of moving a table's state.

    Attributes:
        moved_from: The state store that it was in.
        state_store: The state store that it is in.
        transaction: The table's transaction number.
        was_interrupted: True if an interrupted move was completed.
    """

    moved_from: str
    state_store: str
    transaction: int
    was_interrupted: bool = False

    @property
    def is_moved(self) -> bool:
        """False if the state was there already."""
        return self.moved_from != self.state_store


def migrate_state(table: OpenTable, to: str) -> MigrationResult:
    """Move the state of a table to another state store, or complete an interrupted move."""
    try:
        return _migrate(_StatePlaces(table), to)
    finally:
        table.undo_commit_if_deleted()


def _migrate(places: _StatePlaces, to: str) -> MigrationResult:
    wanted = state_store_named(to)
    first: StatePlace | None = None
    was_interrupted, attempts = False, 0
    while True:
        at = _place_of(places.record())
        first = first or at
        noted = places.notes.all()  # before the state is read: see the decision
        store = places.open_store(at)
        state = store.refresh()
        move = state.moved
        if move != at.move and move is not None:
            if _place_of(places.record()) != at:
                continue  # somebody has completed it since the record was read
            _check_interrupted(move, wanted, state, places)
            was_interrupted = True
        elif at.class_name == wanted:
            return MigrationResult(
                moved_from=first.class_name,
                state_store=wanted,
                transaction=state.number,
                was_interrupted=was_interrupted,
            )
        elif attempts == _ATTEMPTS:
            raise CommitContended(
                f"others wrote to this table while its state was copied, {_ATTEMPTS} times, up to "
                f"transaction {state.number}. Nothing was changed. Stop what writes to it, or "
                "pause services (`sleeper pause`), and run it again."
            )
        else:
            attempts += 1
            move = _attempt(state, at, store, wanted, places)
        if move is not None:
            _switch(at, move, noted, places)


def _place_of(record: TableRecord | None) -> StatePlace:
    if record is None:
        raise TableNotFound("the table was deleted, so there is no state to move")
    known = TableProperties(record.properties)
    return StatePlace(known.state_store, known.state_move)


def _attempt(
    state: TableState, source: StatePlace, old: StateStore, wanted: str, places: _StatePlaces
) -> StateMove | None:
    """Copy a state and seal the old store; None if others committed to that meanwhile."""
    move = StateMove(wanted, state.number + 1, places.new_id()[:8])
    places.notes.add(move, source)
    try:
        _copy(state, move, places)
    except SleeperError as failure:
        _give_up(move, places)
        if places.open_store(source).refresh().number == state.number:
            raise
        _LOG.info("the table's state changed while it was copied: %s", failure)
        return None  # another attempt may have succeeded, and have deleted this one's copy
    try:
        old.commit(MoveState(move=move))
    except (TableChanged, StateMoved, CommitContended) as refusal:
        _LOG.info("the table's state is copied again: %s", refusal)
        _give_up(move, places)
        return None
    except CommitUnknown as error:
        raise CommitUnknown(
            f"it is unknown whether the table's state was moved to {wanted}: "
            f"{error.__cause__ or error} Run the same again, which completes the move or begins "
            "anew. Queries work meanwhile."
        ) from error
    return move


def _copy(state: TableState, move: StateMove, places: _StatePlaces) -> None:
    """Write a state to a new place, read it back, and compare.

    Raises:
        DataDamaged: it is another.
    """
    place = StatePlace(move.class_name, move)
    new = places.begin_store(place)
    new.begin_with(state)
    new.commit(MoveState(move=move))
    found = places.open_store(place).refresh()
    differing = differing_attributes(state, found)
    if not state.schemas:
        differing.discard("schemas")  # the first commit of this version has added them
    if found.at is None or (state.at is not None and found.at <= state.at):
        differing.add("at")
    if differing or (found.number, found.moved) != (move.number, move):
        raise DataDamaged(
            f"the copy of the table's state in {move.class_name} is not what was written: "
            f"{', '.join(sorted(differing)) or 'its number'} differ. Nothing was changed: the "
            "table's state is where it was. Check that storage, and run it again."
        )


def _check_interrupted(
    move: StateMove, wanted: str, sealed: TableState, places: _StatePlaces
) -> None:
    """Check that an interrupted move goes where it should, and that the copy is there."""
    if move.class_name != wanted:
        raise TableChanged(
            f"the table's state is being moved to {move.class_name} (move {move.move_id}), or that "
            f"was interrupted. Complete it by `--to {move.class_name}`, then move it to {wanted}."
        )
    found = places.open_store(StatePlace(wanted, move)).refresh()
    if found.number > sealed.number:
        return  # somebody else has completed it, and others have committed
    differing = differing_attributes(sealed, found)
    if differing or (found.number, found.moved) != (sealed.number, move):
        raise DataDamaged(
            f"the copy of the table's state in {wanted} (move {move.move_id}) has changed since it "
            f"was compared: {', '.join(sorted(differing)) or 'its number'} differ. Restore it from "
            "a copy of that storage. Queries work meanwhile."
        )


def _switch(
    source: StatePlace, move: StateMove, noted: Collection[StateMove], places: _StatePlaces
) -> None:
    """Make the table use the new store, and delete what other attempts have left."""
    now = _place_of(places.switch(source, move))
    if now.move != move:
        return  # somebody else has completed it, and moved the state further
    _LOG.info("moved a table's state from %s to %s", source.class_name, move.class_name)
    try:
        _clear_others(move, noted, places)
    except SleeperError as failure:
        _LOG.warning("something is left of interrupted moves of a table's state: %s", failure)


def _clear_others(move: StateMove, noted: Collection[StateMove], places: _StatePlaces) -> None:
    """Delete the places of attempts that were noted before this one, and have not succeeded."""
    sources = places.notes.all()
    been_in: set[StateMove] = set()
    at: StateMove | None = move
    while at is not None:
        been_in.add(at)
        if at not in sources:
            raise DataDamaged(f"the note of move {at.move_id} is missing, so nothing is deleted")
        at = sources[at].move
    for each in noted:
        if each not in been_in:
            places.clear(each)


def _give_up(move: StateMove, places: _StatePlaces) -> None:
    """Delete the copy that an attempt has made, which nothing names."""
    try:
        places.clear(move)
    except SleeperError as failure:
        _LOG.warning("what was written for move %s is left behind: %s", move.move_id, failure)


class _StatePlaces:
    """The places where the state of one table may be.

    Attributes:
        notes: The notes of moves of the table's state.
        new_id: Makes random ids.
    """

    def __init__(self, table: OpenTable) -> None:
        self._table = table
        self._index = table.context.index
        self.notes = MoveNotes(table.files)
        self.new_id = table.context.new_id

    def record(self) -> TableRecord | None:
        """Return the newest record of the table; None if it was deleted."""
        return self._index.by_id(self._table.record.table_id)

    def open_store(self, place: StatePlace) -> StateStore:
        """Open the state store in a place anew."""
        return store_at(self._table.record, self._table.context, place)

    def begin_store(self, place: StatePlace) -> StateStore:
        """Open the state store in the place of a move that is being made."""
        return store_at(self._table.record, self._table.context, place, is_new=True)

    def switch(self, before: StatePlace, move: StateMove) -> TableRecord:
        """Say in the table's record that the state is in the place of a move.

        Only if it says that it is in the first place; returns the record.
        """
        return switch_state_store(self._table.record.table_id, before, move, index=self._index)

    def clear(self, move: StateMove) -> None:
        """Delete what is in the place of an attempt, then its note. It may be repeated.

        Raises:
            StorageFailed: a part is left, and the note.
        """
        self.begin_store(StatePlace(move.class_name, move)).delete()
        files = self.notes.files
        files.delete([each.key for each in files.listing(f"{paths.moved_state(move.move_id)}/")])
        self.notes.remove(move)
        _LOG.info("deleted what attempt %s to move a table's state has left", move.move_id)
