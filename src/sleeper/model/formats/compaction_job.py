"""Compaction jobs: which files of a partition are merged into one, in upstream's form (CMP-9).

Upstream's message also contains the table's filters and aggregations at the time when the job was
created. They are written for upstream's readers and not read here: compaction processes rows by
the table's current properties, as queries do.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from sleeper.errors import JobInvalid
from sleeper.model import paths


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionJob:
    """The content of a compaction job.

    Attributes:
        job_id: Identifies the job. Its inputs are claimed under this id.
        partition_id: The partition that references the inputs, and will reference the output.
        inputs: Files to read. Rows with equal keys are written in the order of their files.

    Raises:
        JobInvalid: there is no input, an input occurs twice (rule CMP-9), or the job has no id.

    Source: rule CMP-9.
    """

    job_id: str
    partition_id: str
    inputs: tuple[str, ...]

    def __post_init__(self) -> None:
        failures = []
        if not self.job_id or "/" in self.job_id:
            failures.append(
                f"a compaction job's id names its file, so it cannot be {self.job_id!r}"
            )
        if not self.inputs:
            failures.append(f"compaction job {self.job_id!r} has no input files")
        if len(set(self.inputs)) < len(self.inputs):
            failures.append(f"compaction job {self.job_id!r} has an input file twice")
        if failures:
            raise JobInvalid(tuple(failures))

    @property
    def output(self) -> str:
        """The file that the job writes, named by its id: a retry overwrites only its own file."""
        return paths.data_file(self.partition_id, self.job_id)

    def output_of(self, attempt_id: str) -> str:
        """The file that one attempt writes, where several attempts may run at once.

        Both files are the job's: `job_output` finds it.
        """
        return paths.data_file(self.partition_id, f"{self.job_id}.{attempt_id}")


def job_output(filename: str) -> str:
    """Return the `output` of the job whose attempt a file would be, by its name.

    >>> job_output("data/partition_root/j.a1.parquet")
    'data/partition_root/j.parquet'
    """
    folder, _, name = filename.rpartition("/")
    job_id = name.removesuffix(".parquet").rpartition(".")[0]
    return f"{folder}/{job_id}.parquet"


def write_compaction_job(
    job: CompactionJob,
    table_id: str,
    *,
    filters: str | None = None,
    aggregations: str | None = None,
) -> str:
    """Return a job as JSON, in upstream's form: one line, without fields that are not set.

    Args:
        job: The job.
        table_id: Its table.
        filters: The table's property `sleeper.table.filters`.
        aggregations: The table's property `sleeper.table.aggregations`.

    >>> job = CompactionJob(job_id="j", partition_id="root", inputs=("a.parquet",))
    >>> write_compaction_job(job, "0a1b2c3d")  # doctest: +ELLIPSIS
    '{"tableId":"0a1b2c3d","jobId":"j",...,"outputFile":"data/partition_root/j.parquet",...}'
    """
    said = {
        "tableId": table_id,
        "jobId": job.job_id,
        "inputFiles": job.inputs,
        "outputFile": job.output,
        "partitionId": job.partition_id,
        "filterConfig": filters,
        "aggregationConfig": aggregations,
    }
    known = {name: value for name, value in said.items() if value is not None}
    return json.dumps(known, ensure_ascii=False, separators=(",", ":"))
