"""Notes of the moves of a table's state, in its folder: where it is, has been, or was copied to."""

from __future__ import annotations

import json

from sleeper.errors import DataDamaged
from sleeper.language.value_classes import dataclass
from sleeper.model import paths
from sleeper.model.tables import StateMove
from sleeper.ports.objects import Objects


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
