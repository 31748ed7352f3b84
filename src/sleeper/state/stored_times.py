"""Finds out when entries of a log were stored, which may be later than their dates.

A writer reads the time, then creates its entry. If it is stopped in between, the entry is dated
too early: the version before it was the newest one for longer than the date says.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from sleeper.ports.transaction_log import TransactionLog
from sleeper.state.log_entry import entry_time
from sleeper.state.table_state import TableState

_MOMENT = timedelta(microseconds=1)


def dates_stored_before(time: datetime, newest: TableState, log: TransactionLog) -> datetime:
    """Return a date: every entry that is dated before it was stored before `time`.

    Dates of entries ascend, and so do the times at which they were stored. So the date of the last
    entry that was stored before `time` is the result. This costs one request if that is the newest
    entry; else about 2 log2(n) requests for n entries since then, and one entry is read.

    Args:
        time: By the clock of the storage.
        newest: The newest state of the table.
        log: The table's log.

    Raises:
        StorageFailed: the log cannot be read.
    """
    number = last_stored_before(time, newest.number, log)
    if number == newest.number:
        date = newest.at
    else:
        body = log.read(number) if number else None
        where = f"entry {number} of the transaction log"
        date = entry_time(body, where) if body is not None else None
    if date is None:  # no entry is known to be old enough
        return datetime.min.replace(tzinfo=time.tzinfo)
    return min(time, date + _MOMENT)


def last_stored_before(time: datetime, newest: int, log: TransactionLog) -> int:
    """Return the number of the last entry that was stored before `time`; 0 if none is known.

    An entry whose time is unknown counts as stored later.
    """

    def is_before(number: int) -> bool:
        stored = log.stored_at(number)
        return stored is not None and stored < time

    return last_number(newest, is_before)


def last_number(newest: int, is_early: Callable[[int], bool]) -> int:
    """Return the last number up to `newest` that is early; 0, which is not looked at, if none is.

    What is near the newest is found by few looks: about 2 log2(n) for n numbers after it.

    Args:
        newest: The last number that may be.
        is_early: True up to some number, and false for each after it.
    """
    step, low, high = 1, newest, newest + 1
    while low > 0 and not is_early(low):
        low, high, step = max(low - step, 0), low, step * 2
    while high - low > 1:
        middle = (low + high) // 2
        if is_early(middle):
            low = middle
        else:
            high = middle
    return low
