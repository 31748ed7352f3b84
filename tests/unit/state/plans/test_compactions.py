"""Which files of a leaf are merged (rules CMP-3 to CMP-8)."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sleeper.model.files import FileReference
from sleeper.model.known_properties.maintenance import CompactionProperties
from sleeper.model.partitions import tree_from_split_points
from sleeper.model.schema import Field, Primitive, Schema
from sleeper.state.commit_changes import inputs_max
from sleeper.state.plans.compactions import CompactionSettings, plan_compactions
from sleeper.state.table_state import TableState
from sleeper.state.transactions.files import AddFiles, Claim, ClaimFiles
from sleeper.state.transactions.partitions import InitialisePartitions

SCHEMA = Schema(row_keys=(Field("k", Primitive.LONG),))
AT = datetime(2024, 6, 1, tzinfo=UTC)
DEFAULTS = {
    "strategy": "SizeRatioCompactionStrategy",
    "batch_files": 12,
    "size_ratio": 3,
    "partition_jobs_max": 2**31 - 1,
    "creation_limit": 100_000,
}


def state_of(*leaves, row_bytes=None):
    """A table whose leaves have files of so many rows each: f0, f1, ... on each leaf."""
    ids = map("p{}".format, count())
    tree = tree_from_split_points(SCHEMA, range(1, len(leaves)), new_id=lambda: next(ids))
    state = InitialisePartitions(partitions=tuple(tree.partitions.values())).apply(
        TableState.empty(), AT
    )
    references = tuple(
        FileReference(
            filename=f"{leaf.partition_id}-f{number:02}",
            partition_id=leaf.partition_id,
            row_count=rows,
            size_bytes=None if row_bytes is None else rows * row_bytes,
        )
        for leaf, sizes in zip(tree.leaves(), leaves, strict=True)
        for number, rows in enumerate(sizes)
    )
    return AddFiles(references=references).apply(state, AT)


def claimed(state, job_id, leaf, *numbers):
    """The state after a job claimed some files of a leaf."""
    partition_id = state.leaf_partitions()[leaf].partition_id
    names = tuple(f"{partition_id}-f{number:02}" for number in numbers)
    given = Claim(job_id=job_id, partition_id=partition_id, filenames=names)
    return ClaimFiles(assignments=(given,)).apply(state, AT)


def plan(state, *, all_files=False, **settings):
    ids = map("job-{}".format, count())
    return plan_compactions(
        state,
        CompactionSettings(**{**DEFAULTS, **settings}),
        all_files=all_files,
        new_id=lambda: next(ids),
    )


def merged(planned):
    """The numbers of the files of each job."""
    return [sorted(int(name.rpartition("f")[2]) for name in job.inputs) for job in planned.jobs]


class TestSizeRatio:
    """Algorithm 3.1."""

    @pytest.mark.parametrize(
        ("sizes", "jobs"),
        [
            ((10,), []),
            ((10, 10), []),  # 3 x 10 is more than 10
            ((10, 10, 10), []),
            ((10, 10, 10, 10), [[0, 1, 2, 3]]),  # 3 x 10 is as much as the others have
            ((1000, 10, 10, 10, 10), [[1, 2, 3, 4]]),
            ((10, 10, 10, 30), []),  # neither all, nor the three
            ((0, 0), []),  # a job that would write no rows
            ((0, 0, 100), []),
            ((0, 10, 10, 10, 10), [[0, 1, 2, 3, 4]]),  # its files go with the others
        ],
    )
    def test_files_are_merged_when_the_largest_is_small_among_them(self, sizes, jobs):
        """Steps 2 to 4: the largest are dropped until the rest meets the ratio."""
        assert merged(plan(state_of(sizes))) == jobs

    def test_more_files_than_a_batch_make_several_jobs(self):
        """Step 5: batches in ascending order, each of which meets the ratio."""
        assert merged(plan(state_of([10] * 10), batch_files=5)) == [
            [0, 1, 2, 3, 4],
            [5, 6, 7, 8, 9],
        ]

    def test_a_batch_that_does_not_meet_the_ratio_begins_one_file_later(self):
        """Step 5: sizes 1 1 30 30 30 30 30 in batches of 5: not from the first, nor the second."""
        sizes = [1, 1, 30, 30, 30, 30, 30]

        assert merged(plan(state_of(sizes), batch_files=4)) == [[2, 3, 4, 5]]

    def test_each_leaf_is_planned_for_itself(self):
        """CMP-3: files of different leaves are never merged."""
        planned = plan(state_of([10] * 4, [10], [10] * 4))

        assert merged(planned) == [[0, 1, 2, 3], [0, 1, 2, 3]]
        assert len({job.partition_id for job in planned.jobs}) == 2

    def test_claimed_files_are_left_alone(self):
        """CMP-3: what a job has claimed is no candidate."""
        state = claimed(state_of([10] * 6), "running", 0, 0, 1)

        assert merged(plan(state)) == [[2, 3, 4, 5]]

    def test_a_leaf_takes_no_more_jobs_than_it_may(self):
        """CMP-6: running jobs count, and jobs are dropped from the end."""
        state = state_of([10] * 12)
        running = claimed(state_of([10] * 14), "running", 0, 0, 1)

        planned = plan(running, batch_files=4, partition_jobs_max=2)
        full = plan(running, batch_files=4, partition_jobs_max=1)

        assert len(plan(state, batch_files=4).jobs) == 3
        assert merged(planned) == [[2, 3, 4, 5]]
        assert planned.leaves[0].reason == "2 more wait for jobs that run there"
        assert full.leaves[0].reason == "1 jobs run there, which is the maximum"
        assert full.jobs == ()


class TestBasic:
    """CMP-4."""

    def test_files_are_merged_in_full_batches_alone(self):
        """Consecutive groups in ascending order; a remainder is left."""
        state = state_of([50, 40, 30, 20, 10])

        planned = plan(state, strategy="BasicCompactionStrategy", batch_files=2)

        assert merged(planned) == [[3, 4], [1, 2]]

    def test_files_without_rows_are_no_job_of_their_own(self):
        """They wait for files with rows to go with."""
        planned = plan(state_of([0, 0, 0, 5]), strategy="BasicCompactionStrategy", batch_files=2)

        assert merged(planned) == [[2, 3]]
        assert plan(state_of([0, 0])).leaves[0].reason == "none of its files has rows"

    def test_fewer_files_than_a_batch_are_left(self):
        """CMP-4: and the plan says so."""
        planned = plan(state_of([1, 1]), strategy="BasicCompactionStrategy", batch_files=3)

        assert planned.jobs == ()
        assert planned.leaves[0].reason == "fewer than 3 files"


class TestLimit:
    """CMP-7."""

    def test_jobs_outstanding_are_limited_over_the_whole_table(self):
        """So many of the new jobs are kept as may be: those with the least ids, which are random."""
        state = claimed(state_of([10] * 6, [10] * 4), "running", 0, 0, 1)

        planned = plan(state, creation_limit=2)

        assert [len(leaf.jobs) for leaf in planned.leaves] == [1, 0]
        assert planned.held_back == 1
        assert "maximum number of outstanding jobs" in planned.leaves[1].reason

    def test_none_are_created_while_too_many_are_outstanding(self):
        """A limit that was lowered meanwhile is no error."""
        state = claimed(state_of([10] * 6), "running", 0, 0, 1)

        assert plan(state, creation_limit=0).jobs == ()
        assert plan(state, creation_limit=1).held_back == 1


class TestAllFiles:
    """CMP-8."""

    def test_what_the_strategy_leaves_is_merged_too(self):
        """Groups of the rest, the last as small as it comes."""
        planned = plan(state_of([10] * 4 + [1000, 2000, 3000]), all_files=True, batch_files=4)

        assert merged(planned) == [[0, 1, 2, 3], [4, 5, 6]]

    def test_a_whole_file_is_not_written_again_by_itself(self):
        """A leaf of one file has nothing to merge; a rest of one waits for the next round."""
        planned = plan(state_of([10] * 5, [7]), all_files=True, batch_files=2)

        assert merged(planned) == [[0, 1], [2, 3]]
        assert planned.leaves[1].reason == "it has one file already"

    def test_a_part_of_a_file_is_written_by_itself(self):
        """Its leaf then needs the shared file no longer."""
        state = state_of([10])
        (reference,) = state.references()
        part = replace(reference, whole_file=False)
        shared = state.files.changed(
            removed=[(reference.filename, reference.partition_id)], added=[part], at=AT
        )

        assert merged(plan(replace(state, files=shared), all_files=True)) == [[0]]

    def test_claimed_files_are_not(self):
        """A job has them."""
        state = claimed(state_of([1, 2, 3]), "running", 0, 1)

        assert merged(plan(state, all_files=True)) == [[0, 2]]


class TestJobsOfSmallFiles:
    """They are joined, unless the user has set the size of a batch."""

    def test_are_one_job(self):
        """Thirty files would be three jobs, which one read into memory does."""
        state = state_of([10] * 30, row_bytes=100)

        assert merged(plan(state, small_files=1_000)) == [[*range(30)]]
        assert len(plan(state).jobs) == 3

    def test_have_so_many_files_and_bytes_at_most(self):
        """A job is full when the next file would be too much."""
        state = state_of([10] * 24, row_bytes=100_000)  # 1 MB each: 33 fit into a job

        assert [len(job) for job in merged(plan(state, small_files=20))] == [20, 4]
        assert [
            len(job)
            for job in merged(plan(state_of([10] * 48, row_bytes=100_000), small_files=1_000))
        ] == [33, 15]

    def test_take_what_the_strategy_chose_and_nothing_else(self):
        """The largest is too large beside the others, with or without joined jobs."""
        state = state_of([1_000, *[10] * 24], row_bytes=100)

        assert merged(plan(state, small_files=1_000)) == [[*range(1, 25)]]

    def test_leave_jobs_with_a_large_file_as_they_are(self):
        """A file of more than 1 MiB, or of unknown size, is merged in batches."""
        large = state_of([10] * 24, row_bytes=200_000)

        assert len(plan(large, small_files=1_000).jobs) == 2
        assert len(plan(state_of([10] * 24), small_files=1_000).jobs) == 2

    def test_have_the_same_files_in_all_leaves_that_share_them(self):
        """Names decide, not rows: a run reads a shared file once."""
        tree = tree_from_split_points(SCHEMA, [1], new_id=map("p{}".format, count()).__next__)
        state = InitialisePartitions(partitions=tuple(tree.partitions.values())).apply(
            TableState.empty(), AT
        )
        shared = tuple(
            FileReference(
                filename=f"f{number:02}",
                partition_id=leaf.partition_id,
                row_count=(number * step) % 7 + 10,
                whole_file=False,
                size_bytes=1_000_000,
            )
            for leaf, step in zip(tree.leaves(), (1, 3), strict=True)
            for number in range(48)
        )

        jobs = plan(AddFiles(references=shared).apply(state, AT), small_files=1_000).jobs

        assert sorted(len(job.inputs) for job in jobs) == [15, 15, 33, 33]
        assert len({job.inputs for job in jobs}) == 2

    def test_are_not_more_than_the_state_store_replaces_at_once(self):
        """100 changes in a commit are 49 files, of small ones as of others."""
        settings = CompactionSettings.of(CompactionProperties(), 100, joins_small=True)

        assert settings.small_files == inputs_max(100)
        assert CompactionSettings.of(CompactionProperties(), 100).small_files == 0


def test_every_leaf_with_files_says_why_it_has_no_job():
    """`--explain` has a clause for each."""
    state = claimed(state_of([5], [5, 5], [5, 5], []), "running", 2, 0, 1)

    reasons = [leaf.reason for leaf in plan(state).leaves]

    assert reasons == [
        "it has one file, and no other to merge it with",
        "each file is too large beside those with fewer rows (3 times its rows are more than theirs)",
        "jobs have claimed all of its files",
    ]


@pytest.mark.parametrize("strategy", ["SizeRatioCompactionStrategy", "BasicCompactionStrategy"])
@pytest.mark.parametrize("ratio", [1, 2, 3, 7])
@pytest.mark.parametrize("batch", [1, 2, 3, 4, 7, 8, 12])
def test_settings_by_which_nothing_is_ever_merged_are_known(strategy, ratio, batch):
    """They have an obstacle exactly if forty files of one size give no job, and a leaf says why."""
    known = CompactionProperties(strategy=strategy, batch_files=batch, size_ratio=ratio)

    planned = plan(state_of([10] * 40), strategy=strategy, batch_files=batch, size_ratio=ratio)

    assert (known.obstacle is None) == bool(planned.jobs)
    if known.obstacle is not None and strategy == "SizeRatioCompactionStrategy":
        assert planned.leaves[0].reason == (
            f"a job may have {batch} files, and none so small meets the size ratio of {ratio}"
        )


@given(
    sizes=st.lists(st.integers(0, 100), max_size=30),
    batch=st.integers(2, 12),
    ratio=st.integers(1, 5),
    strategy=st.sampled_from(["SizeRatioCompactionStrategy", "BasicCompactionStrategy"]),
    all_files=st.booleans(),
)
def test_no_file_is_in_two_jobs(sizes, batch, ratio, strategy, all_files):
    """Jobs are disjoint and no larger than a batch. If asked, all files are in but for a last one."""
    planned = plan(
        state_of(sizes),
        strategy=strategy,
        batch_files=batch,
        size_ratio=ratio,
        all_files=all_files,
    )

    files = [number for job in merged(planned) for number in job]
    assert len(files) == len(set(files))
    assert all(len(job) <= batch for job in merged(planned))
    assert not all_files or len(files) >= len(sizes) - 1
    if strategy == "SizeRatioCompactionStrategy" and not all_files:
        for job in merged(planned):
            *smaller, largest = sorted(sizes[number] for number in job)
            assert ratio * largest <= sum(smaller)
