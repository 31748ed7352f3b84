"""Compaction jobs: what they may say, and upstream's message."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sleeper.errors import JobInvalid
from sleeper.model.formats.compaction_job import (
    CompactionJob,
    read_compaction_job,
    write_compaction_job,
)

JOB = CompactionJob(
    job_id="a1",
    partition_id="leaf",
    inputs=("data/partition_leaf/x.parquet", "data/partition_root/y.parquet"),
)
NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="/"), min_size=1)


def test_the_output_is_named_by_the_job():
    """It lies in the folder of the job's partition (rule CMP-9)."""
    assert JOB.output == "data/partition_leaf/a1.parquet"


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"inputs": ()}, "has no input files"),
        ({"inputs": ("x", "x")}, "has an input file twice"),
        ({"job_id": ""}, "names its file"),
        ({"job_id": "a/b"}, "names its file"),
    ],
)
def test_a_job_that_cannot_be_is_refused(changed, reason):
    """No input, one twice, or an id that is no file's name (rule CMP-9)."""
    with pytest.raises(JobInvalid, match=reason):
        CompactionJob(**{"job_id": "a", "partition_id": "p", "inputs": ("x",)} | changed)


def test_the_message_is_upstreams():
    """Names of fields as upstream has them; what is not set is left out (rule CMP-9)."""
    text = write_compaction_job(JOB, "t1", aggregations="sum(n)")

    assert json.loads(text) == {
        "tableId": "t1",
        "jobId": "a1",
        "inputFiles": [*JOB.inputs],
        "outputFile": "data/partition_leaf/a1.parquet",
        "partitionId": "leaf",
        "aggregationConfig": "sum(n)",
    }


@given(NAMES, NAMES, NAMES, st.lists(NAMES, min_size=1, unique=True))
def test_what_is_written_is_read(table_id, job_id, partition_id, inputs):
    """Any job comes back as it was."""
    job = CompactionJob(job_id=job_id, partition_id=partition_id, inputs=tuple(inputs))

    assert read_compaction_job(write_compaction_job(job, table_id)) == (table_id, job)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"outputFile": "elsewhere.parquet"}, "must write data/partition_leaf/a1.parquet"),
        ({"tableId": None}, "tableId must be a string"),
        ({"inputFiles": "x"}, "inputFiles must be strings"),
        ({"inputFiles": [1]}, "inputFiles must be strings"),
    ],
)
def test_a_message_that_is_wrong_is_refused(change, reason):
    """The reason names the field."""
    message = json.loads(write_compaction_job(JOB, "t1")) | change

    with pytest.raises(JobInvalid, match=reason):
        read_compaction_job(json.dumps(message))


@pytest.mark.parametrize("text", ["", "{", "[]", "1"])
def test_what_is_no_message_is_refused(text):
    """Neither broken JSON nor another kind of value is a job."""
    with pytest.raises(JobInvalid, match="a compaction job is"):
        read_compaction_job(text)
