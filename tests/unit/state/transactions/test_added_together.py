"""Several additions of one entry are replayed in one step, with the result of one after the other."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sleeper.state.table_state import CommittedJob, TableState
from sleeper.state.transactions.files import AddFiles, fold_added
from sleeper.state.transactions.partitions import MergePartitions
from tests.unit.state.small_tables import (
    LATER,
    MUCH_LATER,
    after,
    contents,
    part,
    ref,
    two_leaves,
)


def job(job_id):
    return CommittedJob(job_id=job_id, keep_until=MUCH_LATER, rows_read=7, rows_written=5)


def one_after_the_other(added, state):
    for each in added:
        state = each.fold(state, LATER)
    return state


TWO_FILES = AddFiles(references=(ref("a", "L"), ref("b", "R")), job=job("job-1"))
CASES = {
    "files of two jobs": (TWO_FILES, AddFiles(references=(ref("c", "L"),), job=job("job-2"))),
    "one file on two leaves": (AddFiles(references=(part("a", "L"), part("a", "R"))), TWO_FILES),
    "jobs without files": (AddFiles(job=job("job-1")), AddFiles(job=job("job-2"))),
    "one job twice": (TWO_FILES, AddFiles(references=(ref("c", "L"),), job=job("job-1"))),
    "one file twice": (TWO_FILES, AddFiles(references=(ref("a", "L", 3),), job=job("job-2"))),
    "a file that was garbage": (
        AddFiles(unreferenced=("g",)),
        AddFiles(references=(ref("g", "L"),)),
    ),
    "a sequence of their own": (AddFiles(references=(ref("a", "L", sequence=1),)), AddFiles()),
}


@pytest.mark.parametrize("added", CASES.values(), ids=CASES)
def test_many_additions_leave_the_state_of_one_after_the_other(added):
    """Also where an entry has what `check` would have refused: another version wrote it."""
    state = replace(two_leaves(), number=3)

    together = fold_added(added, state, LATER)

    assert contents(together) == contents(one_after_the_other(added, state))


def test_files_for_merged_leaves_go_to_their_parent():
    """Whether they come alone or together."""
    merged = after(two_leaves(), MergePartitions(parent_id="root", child_ids=("L", "R")))
    state = replace(merged, number=4)
    added = (TWO_FILES, AddFiles(references=(ref("c", "R"),)))

    together = fold_added(added, state, LATER)

    assert contents(together) == contents(one_after_the_other(added, state))
    assert together.files.partition_ids() == {"root"}


def test_a_partition_that_is_not_there_is_damage_together_too():
    """Replay names the file."""
    with pytest.raises(LookupError, match=r"'nowhere' for 'x'"):
        fold_added((TWO_FILES, AddFiles(references=(ref("x", "nowhere"),))), two_leaves(), LATER)


def test_nothing_added_is_the_state_itself():
    """So it is not written to the log."""
    state = TableState.empty()
    assert fold_added((AddFiles(), AddFiles()), state, LATER) is state
