"""Bulk import jobs: what is to be imported and how, as upstream's clients write them (rule BLK-1).

    {"id": "june", "tableName": "trips", "files": ["s3://bucket/june/"], "sparkConf": {...}}

An ingest job, with settings for the cluster that runs it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sleeper.errors import JobInvalid
from sleeper.model.formats.ingest_job import (
    IngestJob,
    fields_of_job,
    ingest_job_failures,
    write_ingest_job,
)
from sleeper.model.formats.message_json import MessageFields

ID_LENGTH_MAX = 63
_ID = re.compile(r"[a-z0-9-]+")
_UPSTREAMS_CLASSES = (
    "BulkImportDataframeLocalSortDriver",
    "BulkImportJobDataframeDriver",
    "BulkImportJobRDDDriver",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkImportJob(IngestJob):
    """The content of a bulk import job; read it with `read_bulk_import_job`.

    Attributes:
        class_name: Upstream's choice of algorithm. Its own three are kept and not used, as there is
            one algorithm here; other classes are refused.
        platform_spec: `sleeper.table.bulk.import.emr.*` for this job only (rule BLK-4).
        spark_conf: Spark settings that override those of the instance (rule BLK-4).
    """

    class_name: str | None = None
    platform_spec: Mapping[str, str] = field(default_factory=dict)
    spark_conf: Mapping[str, str] = field(default_factory=dict)


def read_bulk_import_job(text: str) -> BulkImportJob:
    """Parse a job from a message. `check_bulk_import_job` checks whether it can run.

    Raises:
        JobInvalid: the text is not a JSON object, or values have the wrong type; lists every
            reason (rule ING-10).
    """
    message = MessageFields(text)
    return BulkImportJob(
        **fields_of_job(message),
        class_name=message.text("className"),
        platform_spec=message.settings("platformSpec"),
        spark_conf=message.settings("sparkConf"),
        others=message.others(),
    )


def write_bulk_import_job(job: BulkImportJob) -> str:
    """Return a job as JSON, in upstream's form: one line, without fields that are not set.

    >>> write_bulk_import_job(BulkImportJob(id="june", table_name="trips", files=("june/",)))
    '{"id":"june","tableName":"trips","files":["june/"]}'
    """
    return write_ingest_job(job)


def check_bulk_import_job(
    job: BulkImportJob, *, table_found: bool, missing_paths: Sequence[str] = ()
) -> None:
    """Check that a job can be run.

    Args:
        job: The job, with an id: choose one first if it has none.
        table_found: Whether its table exists.
        missing_paths: Its files that do not exist.

    Raises:
        JobInvalid: the job cannot be run; lists every reason (rules ING-10, BLK-2).
    """
    failures = bulk_import_job_failures(job, table_found=table_found, missing_paths=missing_paths)
    if failures:
        raise JobInvalid(tuple(failures))


def bulk_import_job_failures(
    job: BulkImportJob, *, table_found: bool, missing_paths: Sequence[str] = ()
) -> list[str]:
    """Return every reason why a job cannot be run; the arguments are `check_bulk_import_job`'s."""
    failures = ingest_job_failures(job, table_found=table_found, missing_paths=missing_paths)
    if not _ID.fullmatch(job.id or ""):
        failures.append("Job Ids must only contain lowercase alphanumerics and dashes.")
    if len(job.id or "") > ID_LENGTH_MAX:
        failures.append(f"Job IDs are only allowed to be up to {ID_LENGTH_MAX} characters long.")
    if job.files is not None and not job.files:
        failures.append("The input files must be set to a non-null and non-empty value.")
    if job.delete is not None:
        failures.append("delete: a bulk import adds rows. Send the job to the queue ingest")
    if job.class_name and job.class_name.rpartition(".")[2] not in _UPSTREAMS_CLASSES:
        failures.append(
            f"className is {job.class_name!r}, which cannot run here: there is one algorithm, in "
            "Python. Leave className out."
        )
    return failures
