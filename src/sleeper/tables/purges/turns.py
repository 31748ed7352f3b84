"""Lets the purges of a table take turns where they replace entries of its log (rule DEL-4).

Where storage cannot compare an object and replace it at once, one that read an entry before another
took its keys out would put them back. So whoever replaces entries has the newest turn.

    <table id>/purging/<number>.json

1. the next number is created, which one process can. It waits for each turn that has not ended,
   unless that is of the same purge, which another process may go on with, or was not renewed for a
   minute. So it also waits for a process that was overtaken by its own purge, and may not know it
2. whoever has it renews it while it works, and stops if it could not for half a minute, or if
   another turn follows
3. it ends with the last entry. The object stays, so that no number is taken twice; older ones that
   nobody has to wait for are deleted
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Final

from sleeper.errors import CommitContended
from sleeper.ports.objects import ObjectInfo
from sleeper.tables.open_table import OpenTable

TURNS: Final = "purging/"
LEFT_AFTER: Final = timedelta(minutes=1)
"""A turn that was not renewed for so long is left by a process that was killed."""

_RENEWED_AFTER_S: Final = LEFT_AFTER.total_seconds() / 6
_SAFE_FOR_S: Final = LEFT_AFTER.total_seconds() / 2
_LOOK_EVERY_S: Final = 1.0
_log = logging.getLogger(__name__)


class Turn:
    """A turn of a purge, which it has while it renews it.

    Args:
        table: The table.
        purge_id: The purge.
        number: The number of the turn.
    """

    def __init__(self, table: OpenTable, purge_id: str, number: int, begun_s: float) -> None:
        self._table = table
        self._purge_id = purge_id
        self._number = number
        self._renewed_s = begun_s

    def keep(self) -> None:
        """Renew it if it is time to; call it before each change.

        Raises:
            CommitContended: it is not sure any more that no other purge has begun its turn.
        """
        begun_s = self._table.context.clock.ticks_s()
        if begun_s - self._renewed_s > _RENEWED_AFTER_S:
            newest = _newest(self._table)
            if newest is None or _number(newest) != self._number:
                raise self._lost("another process has taken it over")
            self._table.files.put(_key(self._number), _body(self._purge_id))
            if begun_s - self._renewed_s <= _SAFE_FOR_S:
                self._renewed_s = begun_s
        if self._table.context.clock.ticks_s() - self._renewed_s > _SAFE_FOR_S:
            raise self._lost("this process has stood still for too long")

    def end(self) -> None:
        """End it, and delete those before that are over."""
        files = self._table.files
        files.put(_key(self._number), _body(self._purge_id, ended=True))
        older = [each for each in files.listing(TURNS) if _number(each) < self._number]
        files.delete([each.key for each in older if _is_over(self._table, each)])

    def _lost(self, why: str) -> CommitContended:
        return CommitContended(
            f"purge {self._purge_id} of table {self._table.name!r} has lost its turn to change the "
            f"log: {why}. Purge the same keys again: it goes on"
        )


@contextmanager
def turn_of(table: OpenTable, purge_id: str) -> Iterator[Turn]:
    """Wait until no other purge of a table changes its log, and have the turn inside of the block.

    If the block raises, the turn is left: the same purge may follow it at once, others after a
    minute.

    Raises:
        StorageFailed: the turns cannot be read or written.
    """
    clock, is_told = table.context.clock, False
    while True:
        turns, begun_s = [*table.files.listing(TURNS)], clock.ticks_s()
        if all(_is_over(table, each, purge_id) for each in turns):
            number = 1 + max(map(_number, turns), default=0)
            if table.files.create(_key(number), _body(purge_id)):
                break
            continue
        if not is_told:
            _log.info("purge %s of table %s waits for another one", purge_id, table.name)
            is_told = True
        clock.sleep(_LOOK_EVERY_S)
    turn = Turn(table, purge_id, number, begun_s)
    yield turn
    turn.end()


def _newest(table: OpenTable) -> ObjectInfo | None:
    return max(table.files.listing(TURNS), key=_number, default=None)


def _is_over(table: OpenTable, turn: ObjectInfo, purge_id: str | None = None) -> bool:
    """Return whether a turn has ended, or was left, or is of a purge itself."""
    body = table.files.read(turn.key)
    if body is None:
        return True  # it was deleted meanwhile, as there is a newer one
    try:
        known = json.loads(body)
        if known["ended"] or known["purgeId"] == purge_id:
            return True
    except (ValueError, TypeError, LookupError):
        _log.warning("%s is not what a purge has stored", table.files.url(turn.key))
    return table.store.time() - turn.modified > LEFT_AFTER


def _body(purge_id: str, *, ended: bool = False) -> bytes:
    return json.dumps({"purgeId": purge_id, "ended": ended}).encode()


def _key(number: int) -> str:
    return f"{TURNS}{number:020d}.json"


def _number(turn: ObjectInfo) -> int:
    return int(turn.key.removeprefix(TURNS).removesuffix(".json"))
