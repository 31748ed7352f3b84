"""How many changes commits make: what is planned is what a store then counts."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from sleeper.model.files import ClaimOwner
from sleeper.state.commit_changes import (
    claim_changes,
    claim_groups,
    in_groups,
    inputs_max,
    merge_changes,
    parts_max,
    push_changes,
)
from sleeper.state.state_difference import state_difference
from sleeper.state.transactions.files import (
    AddFiles,
    Claim,
    ClaimFiles,
    ReferencePush,
    ReleaseClaims,
    ReplaceFiles,
    SplitFileReferences,
)
from sleeper.state.transactions.partitions import MergePartitions
from tests.soak import tries
from tests.unit.state.any_steps import Steps, entry
from tests.unit.state.small_tables import NOON, after, part, ref, two_leaves

OWNER = ClaimOwner(host="there", pid=1, worker_id="w")


def changes(state, *transactions):
    """Return how many changes transactions make, and the state after them."""
    changed = after(state, *transactions)
    return state_difference(state, changed).changes, changed


def table_of(count):
    """A table with so many files on one leaf, and their names."""
    names = tuple(f"f{n:03d}" for n in range(count))
    return after(two_leaves(), AddFiles(references=tuple(ref(name, "L") for name in names))), names


def test_a_compaction_of_as_many_inputs_as_fit_fits():
    """Its claim, its commit and its release; of one more, the commit does not fit."""
    most = inputs_max(99)
    for count in (most, most + 1):
        state, names = table_of(count)
        claim = Claim(job_id="job", partition_id="L", filenames=names)
        made, claimed = changes(state, ClaimFiles(assignments=(claim,), owner=OWNER))
        replaced, _ = changes(
            claimed, ReplaceFiles(job_id="job", inputs=names, output=ref("out", "L"))
        )
        released, _ = changes(claimed, ReleaseClaims(claims=(claim,)))
        assert made == released == claim_changes(claim) <= 99
        assert (replaced <= 99) == (count == most)
    assert most == 48


def test_a_push_is_counted():
    """To one leaf or to both."""
    state = after(two_leaves(), AddFiles(references=(ref("a"), ref("b"))))
    for leaves in (["L", "R"], ["L"]):
        into = tuple(part("a", leaf) for leaf in leaves)
        push = ReferencePush(filename="a", partition_id="root", into=into)
        made, _ = changes(state, SplitFileReferences(pushes=(push,)))
        assert made <= push_changes(len(leaves)) == len(leaves) + 2
    assert push_changes(parts_max(99)) == 99


def test_a_merge_is_counted():
    """A file that both leaves reference is one file afterwards."""
    state = after(two_leaves(), AddFiles(references=(ref("a"), ref("b", "L"), ref("c", "R"))))
    into = (part("a", "L"), part("a", "R"))
    push = ReferencePush(filename="a", partition_id="root", into=into)
    state = after(state, SplitFileReferences(pushes=(push,)))
    sides = [state.files.references_on(leaf) for leaf in ("L", "R")]

    made, _ = changes(state, MergePartitions(parent_id="root", child_ids=("L", "R")))

    assert made == merge_changes(*sides)


@settings(max_examples=tries(10, soak=1_000))
@given(random=st.randoms(use_true_random=False))
def test_any_merge_makes_at_most_the_changes_that_are_planned(random):
    """Whatever files the leaves share."""
    steps, state, at = Steps(random.choice), two_leaves(), NOON
    for _ in range(25):
        before, state = state, entry(state, steps, at, 1)
        gone = before.tree.partitions.keys() - state.tree.partitions.keys()
        if len(gone) == 2:
            sides = [before.files.references_on(leaf) for leaf in sorted(gone)]
            assert state_difference(before, state).changes <= merge_changes(*sides)


def test_groups_are_as_large_as_fits():
    """What never fits comes alone, and the store refuses it."""
    items = [3, 3, 3, 9, 1, 1, 1, 8]

    assert [*in_groups(items, int, 8)] == [(3, 3), (3,), (9,), (1, 1, 1), (8,)]
    assert [*in_groups(items, int, None)] == [tuple(items)]
    assert [*in_groups([], int, 8)] == []


def test_a_claim_of_too_many_files_is_released_in_parts():
    """It was made when the state was kept elsewhere."""
    large = Claim(job_id="large", partition_id="L", filenames=tuple("abcdefg"))
    small = Claim(job_id="small", partition_id="L", filenames=("h",))

    groups = [*claim_groups([small, large], 4)]

    assert [[(each.job_id, "".join(each.filenames)) for each in group] for group in groups] == [
        [("small", "h")],
        [("large", "abc")],
        [("large", "def")],
        [("large", "g")],
    ]
    assert [*claim_groups([small, large], None)] == [(small, large)]
