"""The loop that maintains tables: what it does, in which order, and when it ends."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count

from sleeper.errors import StorageFailed
from sleeper.workers.maintenance import VERBS, MaintenanceStep, Stopped, run_maintenance


@dataclass
class Told:
    """A table that writes down what it is told to do; some of it fails."""

    name: str
    diary: list[tuple[str, str]]
    fails: dict[str, Exception] = field(default_factory=dict)
    idle: tuple[str, ...] = ()

    def maintain(self, verb):
        self.diary.append((self.name, verb))
        if verb in self.fails:
            raise self.fails[verb]
        if verb in self.idle:
            return None
        return MaintenanceStep(table=self.name, verb=verb, done=f"did {verb}")


@dataclass
class Rounds:
    """Stops after so many rounds, or after so many questions whether to stop."""

    left: int
    questions: int = 10**6

    def rest(self):
        self.left -= 1

    def stopped(self):
        self.questions -= 1
        return self.left <= 0 or self.questions < 0


def maintain(tables, rounds, sweep_rounds=2):
    begun = count()
    return list(
        run_maintenance(
            lambda: tables,
            rest=rounds.rest,
            stopped=rounds.stopped,
            sweep_is_due=lambda: next(begun) % sweep_rounds == 0,
        )
    )


def test_each_table_gets_every_verb_in_order():
    """One table after the other; what was done is told as it happens."""
    diary = []

    told = maintain([Told("a", diary), Told("b", diary)], Rounds(1))

    assert diary == [(name, verb) for name in "ab" for verb in VERBS]
    assert told == [MaintenanceStep(table=n, verb=v, done=f"did {v}") for n, v in diary]


def test_orphans_are_looked_for_now_and_then():
    """Every other round here: the first, the third."""
    diary = []

    maintain([Told("a", diary)], Rounds(4))

    assert [verb for _, verb in diary].count("sweep") == 2
    assert [verb for _, verb in diary].count("compact") == 4


def test_what_there_was_not_to_do_is_not_told():
    """A quiet table makes no lines."""
    assert maintain([Told("a", [], idle=VERBS)], Rounds(2)) == []


def test_a_failure_is_told_and_the_rest_goes_on():
    """Other verbs, other tables, and the next round."""
    diary, failure = [], StorageFailed("no answer")
    bad = Told("a", diary, fails={"compact": failure})

    told = maintain([bad, Told("b", diary)], Rounds(2))

    assert [each for each in told if each.failures] == 2 * [
        MaintenanceStep(table="a", verb="compact", failures=("no answer",))
    ]
    assert diary.count(("a", "split")) == diary.count(("b", "compact")) == 2


def test_an_instance_that_cannot_be_listed_is_tried_again():
    """A round without tables is no end."""
    failure = StorageFailed("no answer")
    rounds, tried = Rounds(3), []

    def tables():
        tried.append(1)
        raise failure

    told = list(
        run_maintenance(tables, rest=rounds.rest, stopped=rounds.stopped, sweep_is_due=lambda: True)
    )

    assert told == 3 * [MaintenanceStep(table="", verb="list tables", failures=("no answer",))]
    assert len(tried) == 3


def test_it_stops_between_two_verbs():
    """What was begun is finished, and nothing else is begun."""
    diary = []

    maintain([Told("a", diary), Told("b", diary)], Rounds(9, questions=3))

    assert diary == [("a", "compact"), ("a", "split")]


def test_a_verb_that_is_stopped_ends_the_loop():
    """What was asked to end between two compaction jobs is no failure."""
    diary = []

    told = maintain([Told("a", diary, fails={"split": Stopped()}), Told("b", diary)], Rounds(9))

    assert [step.verb for step in told] == ["compact"]
    assert diary == [("a", "compact"), ("a", "split")]


def test_what_is_done_and_what_fails_is_logged(caplog):
    """By table and verb; what was done at level info, what failed as an error."""
    caplog.set_level("INFO", logger="sleeper.workers.maintenance")

    maintain([Told("a", [], fails={"gc": StorageFailed("no answer")})], Rounds(1))

    assert ("INFO", "a: did compact") in [(r.levelname, r.message) for r in caplog.records]
    assert ("ERROR", "a: gc failed: no answer") in [
        (r.levelname, r.message) for r in caplog.records
    ]
