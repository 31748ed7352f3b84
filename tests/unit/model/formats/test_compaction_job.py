"""Compaction jobs: what they may say, and upstream's message."""

from __future__ import annotations

import json

import pytest
from hypothesis import strategies as st

from sleeper.errors import JobInvalid
from sleeper.model.formats.compaction_job import (
    CompactionJob,
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
