"""Bugs in moves of a table's state to another state store."""

from __future__ import annotations

from ..bug import Bug

FAILING = ("tests/any_order/test_migrations.py", "-k", "Alone")
OVERTAKEN = ("tests/any_order/test_migrations.py", "-k", "Overtaken")
STORES = ("tests/unit/state/test_moves.py",)
_MOVES = "state/transactions/moves.py"

BUGS = (
    Bug(
        name="old-store-not-sealed",
        breaks="A writer with an old handle commits to the store that the state has left.",
        module="state/state_store.py",
        right="    if state.moved == here:\n        return\n",
        wrong="    if state.moved == here or here is None:\n        return\n",
        tests=STORES,
    ),
    Bug(
        name="moved-whoever-committed",
        breaks="The old store is sealed though others have committed since it was copied.",
        module=_MOVES,
        right="        if state.number != self.move.number:\n",
        wrong="        if state.number < self.move.number:\n",
        tests=OVERTAKEN,
    ),
    Bug(
        name="switch-unconditional",
        breaks="A late move puts the table back to a store that it has left.",
        module="tables/change.py",
        right="        if StatePlace(known.state_store, known.state_move) != before:\n"
        "            return record\n",
        wrong="        if known.state_store == move.class_name:\n            return record\n",
        tests=OVERTAKEN,
    ),
    Bug(
        name="copy-deleted-after-seal",
        breaks="An interrupted move's copy is deleted, though the old store is sealed.",
        module="tables/migrate_state.py",
        right="            _check_interrupted(move, wanted, state, places)\n",
        wrong="            places.clear(move)\n",
        tests=FAILING,
    ),
    Bug(
        name="moved-log-looks-empty",
        breaks="A log that was moved to, without its first snapshot, looks like an empty table.",
        module="state/log_store.py",
        right="        if self._here is not None:\n"
        "            raise self._first_snapshot_missing(self._here) from damage\n",
        wrong="",
        tests=STORES,
    ),
    Bug(
        name="old-handle-stays",
        breaks="A handle that was open before the move goes on with the old store.",
        module="tables/open_table.py",
        right="            and _state_place(before.properties) == _state_place(properties)\n",
        wrong="",
        tests=("tests/stories/test_migrate_state.py", "-k", "there_and_goes"),
    ),
)
