"""What a compaction job needs to know of the state, once its inputs are claimed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from sleeper.errors import (
    FileAlreadyExists,
    FileReferenceNotAssignedToJob,
    FileReferenceNotFound,
    PartitionNotFound,
)
from sleeper.model.files import FileReference
from sleeper.model.formats.compaction_job import CompactionJob
from sleeper.model.partitions import Partition, split_partition
from sleeper.model.ranges import whole_region
from sleeper.model.schema import Field, Primitive, Schema
from sleeper.state.plans.claims import claimed_job
from sleeper.state.table_state import TableState
from sleeper.state.transactions.files import AddFiles, Claim, ClaimFiles, ReplaceFiles
from sleeper.state.transactions.partitions import InitialisePartitions, SplitPartition

NOON = datetime(2024, 6, 1, 12, tzinfo=UTC)
SCHEMA = Schema(row_keys=(Field("id", Primitive.LONG),))
ROOT = Partition(partition_id="root", region=whole_region(SCHEMA))
JOB = CompactionJob(job_id="j", partition_id="root", inputs=("whole", "part"))


def state_with_files():
    files = (
        FileReference(filename="whole", partition_id="root", row_count=5),
        FileReference(filename="part", partition_id="root", row_count=5, whole_file=False),
    )
    state = InitialisePartitions(partitions=(ROOT,)).apply(TableState.empty(), NOON)
    return AddFiles(references=files).apply(state, NOON)


def claim(state, *filenames, job_id="j", at=NOON):
    wanted = Claim(job_id=job_id, partition_id="root", filenames=filenames)
    return ClaimFiles(assignments=(wanted,)).apply(state, at)


def test_a_claimed_job_knows_its_partition_and_its_whole_files():
    """So that rows are selected by region only where a file has rows of others."""
    found = claimed_job(claim(state_with_files(), "whole", "part"), JOB)

    assert (found.job, found.partition) == (JOB, ROOT)
    assert found.whole_files == {"whole"}


def test_its_time_is_that_of_the_last_claim():
    """Every attempt of a job filters by the same age, so all write the same rows."""
    later = NOON + timedelta(milliseconds=1500)
    state = claim(claim(state_with_files(), "whole"), "part", at=later)

    assert claimed_job(state, JOB).claimed_ms == int(NOON.timestamp() * 1000) + 1500


def test_inputs_must_be_claimed_by_the_job():
    """Unclaimed, claimed by another, or gone: such a job could not be committed (rule STS-8)."""
    unclaimed = claim(state_with_files(), "whole")
    of_another = claim(unclaimed, "part", job_id="k")
    gone = CompactionJob(job_id="j", partition_id="root", inputs=("whole", "gone"))

    with pytest.raises(FileReferenceNotAssignedToJob, match=r"'part' .* claimed by no job"):
        claimed_job(unclaimed, JOB)
    with pytest.raises(FileReferenceNotAssignedToJob, match=r"'part' .* claimed by job 'k'"):
        claimed_job(of_another, JOB)
    with pytest.raises(FileReferenceNotFound, match="gone"):
        claimed_job(unclaimed, gone)
    with pytest.raises(PartitionNotFound, match="nowhere"):
        claimed_job(unclaimed, CompactionJob(job_id="j", partition_id="nowhere", inputs=("x",)))


def test_a_committed_job_is_not_run_again():
    """The table has its output."""
    output = FileReference(filename=JOB.output, partition_id="root", row_count=10)
    commit = ReplaceFiles(job_id="j", inputs=JOB.inputs, output=output)
    state = commit.apply(claim(state_with_files(), *JOB.inputs), NOON)

    with pytest.raises(FileAlreadyExists, match="'j' was committed before"):
        claimed_job(state, JOB)


def test_the_partition_may_have_been_split_since():
    """It still is the job's, with the region it had (rule CMP-16)."""
    state = claim(state_with_files(), *JOB.inputs)
    parent, *children = split_partition(ROOT, 7, new_id=iter("ab").__next__)
    split = SplitPartition(parent=parent, children=tuple(children)).apply(state, NOON)

    found = claimed_job(split, JOB).partition

    assert (found.partition_id, found.region) == ("root", ROOT.region)
    assert not found.is_leaf
