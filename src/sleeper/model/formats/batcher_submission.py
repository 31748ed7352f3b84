"""Submissions to the ingest batcher, as upstream's clients write them (rule BAT-1).

    {"tableName": "trips", "files": ["s3://bucket/june/"]}

`"csv": {"separator": ";"}` says how files of CSV are written, as in an ingest job, and
`"upsert": true` that their rows replace those of the same row keys.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sleeper.model.formats.ingest_job import IngestJob, ingest_job_failures
from sleeper.model.formats.message_json import MessageFields, write_message


@dataclass(frozen=True, slots=True, kw_only=True)
class BatcherSubmission:
    """Files that are to go into a table, in jobs that the batcher makes.

    Attributes:
        table_name: The table, unless `table_id` names it.
        table_id: The table; wins over the name. Upstream's clients never send it.
        files: Paths or URLs of files, folders or patterns; None when the message has none.
        csv: How files of CSV are written, as the message has it; upstream's clients never send it.
        upsert: Whether rows of the same row keys are replaced; upstream's clients never send it.
        others: Unknown keys of the message.
    """

    table_name: str | None = None
    table_id: str | None = None
    files: tuple[str | None, ...] | None = None
    csv: Mapping[str, Any] = field(default_factory=dict)
    upsert: bool = False
    others: Mapping[str, Any] = field(default_factory=dict)

    @property
    def paths(self) -> list[str]:
        """The files, without what a message may hold in their place by mistake."""
        return [path for path in self.files or () if path]


def read_batcher_submission(text: str) -> BatcherSubmission:
    """Return what a message submits. Whether it makes sense is for `batcher_submission_failures`.

    Raises:
        JobInvalid: the text is no JSON object, or values are of the wrong type; with every reason.
    """
    message = MessageFields(text)
    return BatcherSubmission(
        table_name=message.text("tableName"),
        table_id=message.text("tableId"),
        files=message.texts("files"),
        csv=message.object("csv") or {},
        upsert=message.flag("upsert"),
        others=message.others(),
    )


def write_batcher_submission(submission: BatcherSubmission) -> str:
    """Return a submission as JSON, in upstream's form.

    >>> write_batcher_submission(BatcherSubmission(table_name="trips", files=("june/",)))
    '{"tableName":"trips","files":["june/"]}'
    """
    said = {
        "tableName": submission.table_name,
        "tableId": submission.table_id,
        "files": submission.files,
        "csv": dict(submission.csv) or None,
        "upsert": submission.upsert or None,
    }
    return write_message(said, submission.others)


def batcher_submission_failures(
    submission: BatcherSubmission, *, table_found: bool, missing_paths: Sequence[str] = ()
) -> list[str]:
    """Return every reason why nothing of a submission is taken; none when it is (rule BAT-1).

    Args:
        submission: What was submitted.
        table_found: Whether its table exists.
        missing_paths: Those of its files that were looked for and not found.
    """
    job = IngestJob(
        table_name=submission.table_name,
        table_id=submission.table_id,
        files=submission.files,
        csv=submission.csv,
        upsert=submission.upsert,
    )
    failures = ingest_job_failures(job, table_found=table_found, missing_paths=missing_paths)
    if submission.others.get("ifUnchangedSince") is not None:
        failures.append(
            "ifUnchangedSince: what else a batch is about is not known. Send a job with it to the "
            "queue ingest"
        )
    if submission.others.get("delete") is not None:
        failures.append(
            "delete: the batcher takes files of rows. Send a job with it to the queue ingest"
        )
    return failures
