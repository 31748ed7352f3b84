"""Whoever writes leaves anew waits before another attempt, so that one of two ends (rule DEL-2)."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import accumulate
from types import SimpleNamespace

import pytest

from sleeper.errors import CommitContended, FileReferenceNotAssignedToJob, RowsChanged
from sleeper.ports.clock import Clock
from sleeper.tables.write_out import until_undisturbed

ATTEMPT_S = 10.0


class Writer:
    """A process that writes leaves, for 10 s in each attempt; time passes only here."""

    def __init__(self, name):
        self.time_s, self.begun, self.pauses = 0.0, [], []
        ids = iter(range(100))
        clock = Clock(
            now=lambda: datetime.fromtimestamp(self.time_s, UTC),
            ticks_s=lambda: self.time_s,
            sleep=self._sleep,
            back_off=lambda _: None,
        )
        self._table = SimpleNamespace(
            name="t",
            context=SimpleNamespace(clock=clock, new_id=lambda: f"{name} {next(ids)}"),
            undo_commit_if_deleted=lambda: None,
        )

    def _sleep(self, seconds):
        self.pauses.append(seconds)
        self.time_s += seconds

    def write(self, end):
        def attempt():
            self.begun.append(self.time_s)
            self.time_s += ATTEMPT_S
            return end()

        return until_undisturbed(self._table, attempt)

    def write_in_vain(self):
        def refuse():
            raise FileReferenceNotAssignedToJob("another has taken the files")

        with pytest.raises(CommitContended):
            self.write(refuse)
        return self


def test_who_is_not_disturbed_does_not_wait():
    """Given one writer, it ends with its first attempt."""
    writer = Writer("only")

    assert writer.write(lambda: "done") == "done"
    assert writer.pauses == []


def test_what_another_attempt_would_end_with_too_is_said_at_once():
    """Given a condition that is not met, nobody waits for nothing."""
    writer = Writer("conditional")

    def refuse():
        raise RowsChanged("rows were added", since=1, leaves=("root",))

    with pytest.raises(RowsChanged):
        writer.write(refuse)
    assert writer.pauses == []


def test_pauses_grow_with_the_attempts_up_to_a_minute():
    """Given refusals only, pauses have up to 2, 4 and 8 times an attempt, none over 60 s."""
    many = [Writer(f"writer {number}").write_in_vain().pauses for number in range(100)]

    for place, longest_s in enumerate((20, 40, 60, 60)):
        pauses = [each[place] for each in many]
        assert longest_s * 0.9 < max(pauses) <= longest_s
        assert min(pauses) < longest_s * 0.1
    assert {len(each) for each in many} == {4}


def test_two_writers_who_disturb_each_other_are_parted():
    """Given two that begin 5 s apart, and are disturbed by whoever begins, one ends nearly always.

    Without pauses none would: each begins again 10 s later, in the middle of the other's attempt.
    """
    pairs, ended = 100, 0
    for number in range(pairs):
        first = Writer(f"first {number}").write_in_vain().begun
        second = [5 + each for each in Writer(f"second {number}").write_in_vain().begun]
        ended += _is_undisturbed(first, second) or _is_undisturbed(second, first)

    without = [*accumulate([ATTEMPT_S] * 4, initial=0.0)]
    assert not _is_undisturbed(without, [5 + each for each in without][:4])
    assert ended >= pairs * 0.95


def _is_undisturbed(begun, by):
    """Return whether the other begins nothing during one of the attempts, until that has ended."""
    return any(not any(mine < other < mine + ATTEMPT_S for other in by) for mine in begun[:-1])
