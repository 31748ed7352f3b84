"""Commits in any order, by several processes, over storage of any kind that fails at any call.

No acknowledged commit is lost, none happens twice, and every process sees the same history.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, count
from typing import Any, ClassVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from sleeper.errors import (
    CommitRefused,
    CommitUnknown,
    JobAlreadyCommitted,
    StorageFailed,
    VersionNotFound,
)
from tests.any_order.faults import Fault, Faults, Killed
from tests.any_order.state_model import (
    Add,
    Begin,
    ClaimOne,
    Clear,
    Collect,
    Compact,
    Merge,
    Model,
    Push,
    Split,
    contents_of,
)
from tests.any_order.state_worlds import WORLDS, LogWorld
from tests.soak import some, tries

STEPS = (
    *(["add", "job", "claim", "compact", "push"] * 3),
    *(["collect"] * 4),
    "split",
    "merge",
    "clear",
)


class AnyOrderOfCommits(RuleBasedStateMachine):
    """Three processes commit to one table; every outcome is held against the model."""

    world_type: ClassVar[Any] = LogWorld

    def __init__(self):
        super().__init__()
        self.world = self.world_type()
        self.names = count(1)
        self.history = [Model()]
        self.processes = [self.world.start() for _ in range(3)]

    @property
    def model(self):
        return self.history[-1]

    def commit(self, process, steps):
        """Commit steps as one group, and learn from the outcome what the model has to become."""
        if not steps:
            return
        try:
            done = process.store.commit_group([step.transaction for step in steps])
        except CommitUnknown:
            self.find_out(steps)
        except StorageFailed:
            assert self.world.look().number == self.model.number
        else:
            refused = self.advance(steps)
            assert [isinstance(each, CommitRefused) for each in done.refusals] == refused
            assert contents_of(done.state) == self.model.contents()

    def advance(self, steps):
        """Take the model one entry further, or more if it is too small; return the refused."""
        refused, changed = [], True
        while changed and len(refused) < len(steps):
            before = following = replace(self.model, number=self.model.number + 1)
            changed = False
            for step in steps[len(refused) :]:
                after = following.after(step)
                is_too_large = after is not None and not self.fits(before, after)
                if is_too_large and changed:
                    break
                after = None if is_too_large else after
                refused.append(after is None)
                changed = changed or after not in (None, following)
                following = after or following
            if changed:
                self.history.append(following)
        return refused

    def fits(self, before, after):
        """Whether one commit may change so many references."""
        limit = self.world.changes_max
        return limit is None or len(before.shares.items() ^ after.shares.items()) <= limit

    def find_out(self, steps):
        """After an unknown outcome, the storage says how much of it was committed."""
        found = self.world.look().number
        assert self.model.number <= found
        self.advance(steps)
        assert found <= self.model.number
        self.history = [version for version in self.history if version.number <= found]

    @initialize()
    def begin(self):
        self.commit(self.processes[0], [Begin()])

    @rule(data=st.data(), place=st.integers(0, 2), size=st.integers(1, 3))
    def commit_something(self, data, place, size):
        self.commit(self.processes[place], [self.step(data) for _ in range(size)])

    @rule(data=st.data(), place=st.integers(0, 2))
    def lose_a_race(self, data, place):
        """Another process commits between this one's look at the log and its append."""
        rival, process = self.processes[place - 1], self.processes[place]
        theirs, ours = self.step(data), self.step(data)
        process.rivals.append(lambda: self.commit(rival, [theirs]))
        self.commit(process, [ours])
        process.rivals.clear()

    @rule(
        data=st.data(),
        place=st.integers(0, 2),
        start=st.sampled_from([1, 1, 1, 0, 2, 3, 4]),  # 1 is the append, mostly
        kinds=st.lists(st.sampled_from(["lost", "refused", "well"]), min_size=1, max_size=8)
        | st.sampled_from([["lost"] * 12, ["refused"] * 12]),
    )
    def storage_fails(self, data, place, start, kinds):
        faults = self.processes[place].faults
        first = faults.calls + start
        faults.plan = tuple(Fault(call, kind) for call, kind in enumerate(kinds, start=first))
        self.commit(self.processes[place], [self.step(data)])

    @rule(place=st.integers(0, 2))
    def storage_recovers(self, place):
        self.processes[place].faults.plan = ()

    @rule(data=st.data(), place=st.integers(0, 2), call=st.integers(0, 8), late=st.booleans())
    def kill(self, data, place, call, late):
        """A process dies somewhere in a commit, or after it, and another takes its place."""
        process = self.processes[place]
        faults, step = process.faults, self.step(data)
        faults.plan = (Fault(faults.calls + call, "after" if late else "before"),)
        try:
            self.commit(process, [step])
        except Killed:
            self.find_out([step])
        self.processes[place] = self.world.start()

    @rule(place=st.integers(0, 2))
    def look(self, place):
        process = self.processes[place]
        process.faults.plan = ()
        assert contents_of(process.store.refresh()) == self.model.contents()

    @rule(data=st.data(), place=st.integers(0, 2))
    def look_back(self, data, place):
        """A process that holds a version has it without a look, whoever deleted files since."""
        process = self.processes[place]
        process.faults.plan = ()
        number = data.draw(st.integers(self.world.first_version, self.model.number))
        needed = {filename for filename, _ in self.history[number].shares}
        if needed <= self.model.files or process.store.state().number == number:
            found = process.store.at(number)
            assert contents_of(found) == self.history[number].contents()
        else:
            with pytest.raises(VersionNotFound, match="were deleted"):
                process.store.at(number)

    @precondition(lambda self: self.model.number % 4 == 0)
    @invariant()
    def all_that_is_stored_agrees(self):
        """By whichever way it is read."""
        self.world.check(self.model.contents(), contents_of)

    def step(self, data):
        """Something to do: mostly possible as far as the model knows, sometimes not."""
        model, kind = self.model, data.draw(st.sampled_from(STEPS))
        usual = data.draw(st.integers(0, 7)) > 0
        shares = sorted(model.shares) if usual else [("f0", "r"), *sorted(model.shares)]
        wanted = [each for each in shares if self.suits(kind, each)] or shares or [("f0", "r")]
        name, place = data.draw(st.sampled_from(wanted))
        job = f"job-{data.draw(st.integers(0, 6))}"
        if kind == "add":
            known = sorted({*model.partitions, *model.merged})  # an older tree may be planned with
            here = data.draw(st.sampled_from(known or ["r"]))
            return Add(((self.name() if usual else name, here, data.draw(st.integers(1, 9))),))
        if kind == "job":
            return Add(((self.name(), place, 3), (self.name(), "r", 4)), job=job)
        if kind == "claim":
            return ClaimOne(job, place, (name,))
        if kind == "compact":
            claim = model.shares[name, place].claim if (name, place) in model.shares else None
            mine = [
                n
                for n, p in sorted(model.shares)
                if p == place and model.shares[n, p].claim == claim
            ]
            return Compact(claim or job, place, tuple(mine) or (name,), self.name())
        if kind == "split":
            return Split(data.draw(st.sampled_from(sorted(model.leaves) or ["r"])))
        if kind == "merge":
            parents = sorted({leaf[:-1] for leaf in model.leaves if leaf != "r"})
            return Merge(data.draw(st.sampled_from(parents or ["r"])))
        if kind == "push":
            return Push(name, place)
        if kind == "collect":
            waiting = sorted(model.waiting) if usual else [name]
            return Collect(tuple(waiting[: data.draw(st.integers(1, 3))]))
        return Clear()

    def suits(self, kind, where):
        """Whether a step of this kind could work on a file of this partition."""
        share = self.model.shares.get(where)
        if share is None or kind not in ("claim", "compact", "push"):
            return True
        if kind == "push":
            return not share.claim and where[1] not in self.model.leaves
        return bool(share.claim) == (kind == "compact")

    def name(self):
        return f"f{next(self.names)}"


@pytest.mark.soak
@pytest.mark.parametrize("kind", WORLDS)
def test_any_order_of_commits_and_failures_keeps_every_commit(kind):
    """STS-13, STS-14: whatever fails and whoever races, the history is what was acknowledged."""

    class OfOneKind(AnyOrderOfCommits):
        world_type: ClassVar[Any] = WORLDS[kind]

    run_state_machine_as_test(
        OfOneKind,
        settings=settings(max_examples=tries(40, soak=5_000), stateful_step_count=30),
    )


FIRST, SECOND = Add((("first", "r", 1),), job="job"), Add((("second", "r", 1),), job="job")
KINDS = ("before", "after", "lost", "refused")


def prepared(kind):
    """A table on the eve of a snapshot, where there are any: the next commit writes one."""
    world = WORLDS[kind]()
    store = world.start().store
    for step in (Begin(), Split("r")):
        store.commit(step.transaction)
    return world


def attempt(world, plan, step):
    """Commit in a process of its own, with faults. True when the commit was acknowledged."""
    try:
        world.start(Faults(plan)).store.commit(step.transaction)
    except (Killed, StorageFailed, CommitUnknown):
        return False
    return True


def calls_of_a_commit(kind):
    faults = Faults()
    prepared(kind).start(faults).store.commit(FIRST.transaction)
    return faults.names


CALLS = {kind: range(len(calls_of_a_commit(kind))) for kind in WORLDS}
POINTS = {
    kind: [Fault(call, fault) for call in calls for fault in KINDS] for kind, calls in CALLS.items()
}


def check_exactly_once(kind, plan):
    """Run a job with faults, then once more by another process: its rows are there once."""
    world = prepared(kind)

    acknowledged = attempt(world, plan, FIRST)
    again = world.start().store
    try:
        again.commit(SECOND.transaction)
    except JobAlreadyCommitted as done:
        expected, number = {"first"}, done.number
    else:
        expected, number = {"second"}, 3

    for state in (again.refresh(), world.start().store.refresh(), world.look()):
        assert {ref.filename for ref in state.references()} == expected
        assert (state.number, number) == (3, 3)
    assert not (acknowledged and expected == {"second"})


class TestEveryPointOfACommit:
    """A job that fails at one call of its commit, or at two, and is then run again."""

    @pytest.mark.parametrize("kind", WORLDS)
    def test_has_points_before_and_after_the_entry(self, kind):
        """The calls are: look, read the log, create the entry, and write the snapshot."""
        names = calls_of_a_commit(kind)

        assert sum(WORLDS[kind].commit_call in name for name in names) == 1
        snapshots = sum("create statestore/snapshots" in name for name in names)
        assert snapshots == (3 if kind == "log" else 0)

    @pytest.mark.parametrize(
        ("kind", "fault"),
        [(kind, fault) for kind, points in POINTS.items() for fault in points],
        ids=str,
    )
    def test_ends_with_its_rows_there_exactly_once(self, kind, fault):
        """Killed before or after a call, without an answer, or refused once."""
        check_exactly_once(kind, (fault,))

    @pytest.mark.soak
    @pytest.mark.parametrize("kind", WORLDS)
    def test_ends_so_after_two_faults_as_well(self, kind):
        """Any pair: the second may hit the very look that was to clear up the first."""
        for first, second in some(combinations(POINTS[kind], 2), one_in=5):
            check_exactly_once(kind, (first, second))

    @pytest.mark.parametrize("kind", WORLDS)
    @pytest.mark.parametrize("fault", ["lost", "refused"])
    def test_ends_so_while_storage_fails_for_long(self, kind, fault):
        """From each call on, everything fails until the process gives up."""
        for start in CALLS[kind]:
            plan = tuple(Fault(call, fault) for call in range(start, start + 40))
            check_exactly_once(kind, plan)
