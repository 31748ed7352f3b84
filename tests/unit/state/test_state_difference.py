"""The difference of two states, as a store of items writes it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sleeper.model.files import FileReference
from sleeper.state import table_state
from sleeper.state.file_references import FileReferences
from sleeper.state.state_difference import TrackedFile, state_difference
from sleeper.state.table_state import CommittedJobs, JobRecord
from sleeper.state.transactions.files import AddFiles, ClearFiles
from tests.soak import tries
from tests.unit.state.any_steps import Steps, entry
from tests.unit.state.small_tables import MUCH_LATER, NOON, after, one_partition, ref, two_leaves


def items_of(state):
    """The state as plain dictionaries, made the slow way."""
    references = {(each.filename, each.partition_id): each for each in state.references()}
    files = {name: TrackedFile(0, since) for name, since in state.files.unreferenced()}
    for name in {name for name, _ in references}:
        files[name] = TrackedFile(len(state.files.references_to(name)), None)
    tree = state.partitions
    return {
        "references": references,
        "files": files,
        "partitions": dict(tree.partitions) if tree else {},
        "merged": dict(tree.merged) if tree else {},
        "claims": dict(state.claims),
        "jobs": dict(state.jobs.records()),
    }


def applied(items, found, state):
    """The items after the changes of a difference, which must be of those that are there."""
    result = {}
    for kind in ("references", "files", "partitions", "merged", "claims"):
        changed = dict(items[kind])
        for key, (old, new) in getattr(found, kind).items():
            assert changed.pop(key, None) == old
            assert old != new
            if new is not None:
                changed[key] = new
        result[kind] = changed
    jobs = {} if found.jobs.cleared else items["jobs"]
    jobs = {name: each for name, each in jobs.items() if name not in found.jobs.dropped}
    jobs |= found.jobs.recorded
    result["jobs"] = {name: each for name, each in jobs.items() if state.jobs.find(name)}
    return result


@pytest.mark.parametrize("often", [False, True], ids=["overlays", "folded often"])
@settings(max_examples=tries(15, soak=2_000))
@given(random=st.randoms(use_true_random=False))
def test_changes_of_the_items_before_give_the_items_after(often, random):
    """Whatever an entry holds, and whether or not files and jobs were folded meanwhile."""
    with pytest.MonkeyPatch.context() as patched:
        if often:
            patched.setattr(FileReferences, "_fold_min", 3)
            patched.setattr(table_state, "_RECENT_MIN", 2)
            patched.setattr(table_state, "_ENTRIES_MIN", 4)
        steps, state, at = Steps(random.choice), two_leaves(), NOON
        for _ in range(12):
            at += timedelta(minutes=1)
            following = entry(state, steps, at, random.choice([1, 1, 2, 5]))
            found = state_difference(state, following)
            assert applied(items_of(state), found, following) == items_of(following)
            backwards = state_difference(following, state)
            assert backwards.references.keys() == found.references.keys()
            state = following


def test_states_that_share_no_memory_are_compared_value_by_value():
    """Given a state that was read again, then only what was changed differs."""
    state = after(
        two_leaves(),
        AddFiles(references=(ref("a", "L"), ref("b", "R"), ref("b2", "R")), unreferenced=("w",)),
    )
    read_again = replace(state, files=FileReferences.from_arrow(state.files.to_arrow()))
    changed = after(read_again, AddFiles(references=(ref("c", "R"),)))

    assert state_difference(state, read_again).changes == 0
    found = state_difference(state, changed)
    assert [*found.references] == [("c", "R")]
    assert found.files == {"c": (None, TrackedFile(1, None))}


def test_a_claim_and_a_time_are_changes_of_rows_that_are_folded():
    """A null beside a value is a change too."""
    state = after(two_leaves(), AddFiles(references=(ref("a", "L"), ref("b", "L"))))
    [a, b] = state.references()
    claimed: list[FileReference] = [replace(a, job_id="job"), b]
    files = FileReferences.empty().changed(added=claimed, at=NOON).folded()

    found = state_difference(state, replace(state, files=files))

    assert found.references == {("a", "L"): (a, replace(a, job_id="job"))}
    released = state_difference(replace(state, files=files), state)
    assert released.references == {("a", "L"): (replace(a, job_id="job"), a)}


def test_what_did_not_change_costs_nothing(monkeypatch):
    """Given a million files, when one is added, then no other is looked at."""
    state = after(one_partition(), AddFiles(references=tuple(ref(f"f{n:04d}") for n in range(999))))
    state = replace(state, files=state.files.folded())
    changed = after(state, AddFiles(references=(ref("new"),)))
    looked = []
    reference = FileReferences.reference
    monkeypatch.setattr(
        FileReferences,
        "reference",
        lambda self, *which: looked.append(which) or reference(self, *which),
    )

    found = state_difference(state, changed)

    assert found.changes == 2
    assert looked == [("new", "root")] * 2


def test_jobs_that_expired_are_dropped_and_those_of_a_cleared_table_are_cleared(monkeypatch):
    """A clear is no reason to delete each record."""
    monkeypatch.setattr(table_state, "_RECENT_MIN", 2)
    monkeypatch.setattr(table_state, "_ENTRIES_MIN", 2)

    def record(number, keep_until=NOON):
        return JobRecord(
            number=number,
            at=NOON + timedelta(minutes=number),
            keep_until=keep_until,
            rows_read=0,
            rows_written=0,
            files=0,
        )

    jobs = CommittedJobs().with_job("old", record(1))
    later = jobs.with_job("kept", record(2, MUCH_LATER)).with_job("new", record(9))
    later = later.with_job("newer", record(10))

    found = later.changes_since(jobs)
    assert (set(found.recorded), found.dropped, found.cleared) == (
        {"kept", "new", "newer"},
        {"old"},
        False,
    )

    state = replace(one_partition(), jobs=later)
    found = state_difference(state, after(state, ClearFiles())).jobs
    assert (dict(found.recorded), found.dropped, found.cleared) == (
        {},
        {"kept", "new", "newer"},
        True,
    )
