"""The loop that maintains tables: what it does, in which order, when it ends, and how it rests."""

from __future__ import annotations

from dataclasses import dataclass, field

from sleeper.errors import StorageFailed
from sleeper.workers.maintenance import VERBS, MaintenanceStep, Pace, run_maintenance
from sleeper.workers.stop_signal import Interrupted
from tests.unit.workers.clocks import clock_of


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
    sweep_rounds: int = 2
    begun: int = 0

    def rest(self):
        self.left -= 1

    def sweep_is_due(self):
        self.begun += 1
        return (self.begun - 1) % self.sweep_rounds == 0

    def is_set(self):
        self.questions -= 1
        return self.left <= 0 or self.questions < 0


def maintain(tables, rounds):
    return list(run_maintenance(lambda: tables, stop=rounds, rounds=rounds))


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

    told = list(run_maintenance(tables, stop=rounds, rounds=rounds))

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

    told = maintain([Told("a", diary, fails={"split": Interrupted()}), Told("b", diary)], Rounds(9))

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


@dataclass
class Stop:
    """An event that is never set; waiting for it moves the clock."""

    now: float = 0.0
    is_stopped: bool = False

    def wait(self, seconds):
        self.now += seconds
        return self.is_stopped


def pauses(pace, stop, rounds, changed=()):
    """Return how long each rest took; a change is noted before some of them."""
    took = []
    for number in range(rounds):
        if number in changed:
            pace.note_change()
        before = stop.now
        pace.rest()
        took.append(round(stop.now - before))
    return took


def test_the_pause_doubles_while_nothing_changes_up_to_15_minutes():
    """From a minute on; a change brings the minute back."""
    stop = Stop()
    pace = Pace(60, stop=stop, clock=clock_of(lambda: stop.now))

    assert pauses(pace, stop, 6) == [60, 120, 240, 480, 900, 900]
    assert pauses(pace, stop, 4, changed=[1, 2]) == [900, 60, 60, 60]
    assert pauses(pace, stop, 2) == [120, 240]


def test_a_long_pause_that_was_asked_for_stays():
    """`--every 3600` is an hour, always."""
    stop = Stop()

    assert pauses(Pace(3600, stop=stop, clock=clock_of(lambda: stop.now)), stop, 2) == [3600, 3600]


def test_a_job_at_work_ends_a_long_pause():
    """Given a rest of 15 minutes, when a job runs after 100 s, then the round begins."""
    stop = Stop()
    pace = Pace(60, stop=stop, clock=clock_of(lambda: stop.now))
    pauses(pace, stop, 5)
    begun, wait = stop.now, stop.wait

    def wait_and_work(seconds):
        if stop.now - begun >= 100:
            pace.note_change()
        return wait(seconds)

    stop.wait = wait_and_work
    pace.rest()

    assert 100 <= stop.now - begun <= 102


def test_it_rests_no_longer_once_it_is_stopped():
    """The wait ends, and so does the rest."""
    stop = Stop(is_stopped=True)

    assert pauses(Pace(60, stop=stop, clock=clock_of(lambda: stop.now)), stop, 1) == [1]


def test_orphans_are_looked_for_once_a_day():
    """However long the rounds are."""
    now = [5.0]
    pace = Pace(60, stop=Stop(), clock=clock_of(lambda: now[0]))

    assert [pace.sweep_is_due(), pace.sweep_is_due()] == [True, False]
    now[0] += 86_399
    assert not pace.sweep_is_due()
    now[0] += 1
    assert pace.sweep_is_due()
