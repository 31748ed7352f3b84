"""A table's state moves to another store: its log from then on, and notes of moves.

`transactions/moves.py` has the transaction, `tables/migrate_state.py` the steps.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from sleeper.errors import DataDamaged, VersionNotFound
from sleeper.model import paths
from sleeper.model.tables import StateMove
from sleeper.ports.objects import Objects
from sleeper.ports.transaction_log import LogAround, TransactionLog


class MovedLog(LogAround):
    """A `TransactionLog` whose first entry is the move of a table's state.

    Whoever reads on from an earlier entry, as a stream of Spark may, must not take the missing
    entries for the end of the log.

    Args:
        log: The log.
        here: The move, whose number the first entry has.
    """

    def __init__(self, log: TransactionLog, here: StateMove) -> None:
        super().__init__(log)
        self._here = here

    def read(self, number: int) -> bytes | None:
        """Read an entry; None if it is from before the move."""
        return self._log.read(number) if number >= self._here.number else None

    def read_after(self, number: int, *, up_to: int | None = None) -> Iterator[tuple[int, bytes]]:
        """Read the entries after one.

        Raises:
            VersionNotFound: some of them are from before the move.
        """
        if number < self._here.number - 1:
            raise version_left_behind(number + 1, self._here)
        return self._log.read_after(number, up_to=up_to)

    def stored_at(self, number: int) -> datetime | None:
        """Ask when an entry was stored; unknown if it is from before the move."""
        return self._log.stored_at(number) if number >= self._here.number else None


def version_left_behind(number: int, here: StateMove) -> VersionNotFound:
    """Return the error for a transaction that is not in the store that a state was moved to."""
    return VersionNotFound(
        f"transaction {number} is no longer there: transaction {here.number} moved the table's "
        f"state to {here.class_name}, and left earlier versions behind. Ask for transaction "
        f"{here.number} or a later one; a stream of Spark needs a new checkpoint and option 'from' "
        "= 'earliest' or 'latest'."
    )


# ---------------------------------------------------------------- move notes
#
# Notes of the moves of a table's state, in its folder: where it is, has been, or was copied to.


@dataclass(frozen=True, slots=True)
class StatePlace:
    """A place where the state of a table may be.

    Attributes:
        class_name: The state store.
        move: The move to it; None for the place where the table was made.
    """

    class_name: str
    move: StateMove | None = None


@dataclass(frozen=True, slots=True)
class MoveNotes:
    """The notes of one table.

    Attributes:
        files: The table's folder.
    """

    files: Objects

    def add(self, move: StateMove, source: StatePlace) -> None:
        """Note an attempt to move the state, before anything is written to its place."""
        noted = {
            "className": move.class_name,
            "fromClassName": source.class_name,
            "from": source.move.move_id if source.move else None,
        }
        self.files.put(paths.state_move(move.move_id), json.dumps(noted).encode())

    def all(self) -> dict[StateMove, StatePlace]:
        """Return every attempt, with the place that it moves the state from.

        Raises:
            DataDamaged: something else is among the notes.
        """
        found = {}
        for info in self.files.listing(paths.STATE_MOVES):
            body = self.files.read(info.key)
            if body is None:
                continue
            move_id = info.key.removeprefix(paths.STATE_MOVES).removesuffix(".json")
            try:
                noted = json.loads(body)
                source_class, source_id = str(noted["fromClassName"]), noted["from"]
                source = None if source_id is None else StateMove.of(source_class, source_id)
                move = StateMove.of(str(noted["className"]), move_id)
            except (ValueError, TypeError, LookupError, AttributeError) as error:
                raise DataDamaged(
                    f"{self.files.url(info.key)} is not the note of a move: {error!r}. Restore it "
                    "from a copy, or delete it if it was put there by hand."
                ) from error
            found[move] = StatePlace(source_class, source)
        return found

    def places(self) -> list[StatePlace]:
        """Return every place where something of the state may be, each once."""
        noted = self.all()
        return [*dict.fromkeys([*noted.values(), *(StatePlace(m.class_name, m) for m in noted)])]

    def remove(self, move: StateMove) -> None:
        """Delete the note of an attempt, after what is in its place."""
        self.files.delete([paths.state_move(move.move_id)])
