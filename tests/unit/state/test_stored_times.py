"""Until when a version was the newest one, as the log's storage tells it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from sleeper.state.log_entry import LogEntry, encode_entry
from sleeper.state.stored_times import dates_stored_before, last_stored_before
from sleeper.state.table_state import TableState
from tests.unit.state.small_tables import SCHEMA

NOON = datetime(2026, 5, 4, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
NEVER = datetime.min.replace(tzinfo=UTC)


class Log:
    """A log that knows its entries' dates, and when they were stored; it counts looks."""

    def __init__(self, dates, stored):
        self.dates, self.stored, self.looks = dates, stored, 0

    def stored_at(self, number):
        self.looks += 1
        return self.stored[number - 1]

    def read(self, number):
        entry = LogEntry(entry_id=str(number), at=self.dates[number - 1], transactions=())
        return encode_entry(entry, SCHEMA)

    def newest(self):
        state = TableState.empty()
        at = self.dates[-1] if self.dates else None
        return TableState(len(self.dates), None, state.files, state.jobs, at=at)


def minutes(*numbers):
    return [None if number is None else NOON + number * MINUTE for number in numbers]


@pytest.mark.parametrize("count", [0, 1, 2, 3, 7, 8, 9, 100])
def test_the_last_entry_stored_before_a_time_is_found_wherever_it_is(count):
    """A few looks are enough: as many as twice the digits of the distance."""
    for wanted in range(count + 1):
        log = Log([], minutes(*range(count)))

        found = last_stored_before(NOON + (wanted - 0.5) * MINUTE, count, log)

        assert found == wanted
        assert log.looks <= 1 + 2 * (count - wanted + 1).bit_length()


def test_where_the_newest_entry_is_old_enough_one_look_is_enough():
    """The usual case of a table that is not written to."""
    log = Log(minutes(0, 1, 2), minutes(0, 1, 2))

    date = dates_stored_before(NOON + 60 * MINUTE, log.newest(), log)

    assert NOON + 2 * MINUTE < date < NOON + 3 * MINUTE
    assert log.looks == 1


@pytest.mark.parametrize(
    ("stored", "certain"),
    [
        ([0, 1, 90], 2),  # the writer of entry 3 was stopped after its look at the time
        ([0, 90, 90], 1),
        ([90, 90, 90], 0),
        ([0, 1, 60], 2),  # at that very time: a reader may have begun then
        ([0, 1, 59], 3),
        ([0, 1, None], 2),  # the log does not know
        ([None, None, None], 0),
    ],
)
def test_only_dates_of_entries_that_were_stored_by_then_are_certain(stored, certain):
    """Whatever the entries say of themselves: all three are dated before the time."""
    log = Log(minutes(0, 1, 2), minutes(*stored))

    date = dates_stored_before(NOON + 60 * MINUTE, log.newest(), log)

    assert sum(each < date for each in log.dates) == certain


def test_an_entry_dated_too_late_is_not_before_the_time():
    """The clock of the storage was ahead when it was written: its files wait for longer."""
    log = Log(minutes(0, 500), minutes(0, 1))

    date = dates_stored_before(NOON + 60 * MINUTE, log.newest(), log)

    assert date == NOON + 60 * MINUTE


def test_a_table_without_entries_has_no_certain_date():
    """Nothing is garbage there."""
    log = Log([], [])

    assert dates_stored_before(NOON, log.newest(), log) == NEVER
