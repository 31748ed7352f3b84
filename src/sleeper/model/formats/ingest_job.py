"""Ingest jobs: which files go into which table, as upstream's clients write them (rule ING-9).

    {"id": "june", "tableName": "trips", "files": ["s3://bucket/june/"]}

`"csv": {"separator": ";"}` says how files of CSV are written (`CsvOptions`), `"upsert": true` that
rows of the same row keys are replaced; upstream has no such keys. Only `files` and one of
`tableName` and `tableId` are needed. Keys that nobody knows are kept, so that a job can be passed
on as it came.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from sleeper.errors import BadRequest
from sleeper.model.csv_options import CsvOptions
from sleeper.model.formats.message_json import MessageFields, write_message


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestJob:
    """What an ingest job says; read it with `read_ingest_job`.

    Attributes:
        id: Names the work: a repeated job changes nothing. None: one is made (rule ING-9).
        table_name: The table, unless `table_id` names it.
        table_id: The table; wins over the name (rule ING-9).
        files: Paths or URLs of files, folders or patterns; None when the message has none.
        csv: How files of CSV are written, as the message has it.
        upsert: Whether rows of the same row keys are replaced (rule ING-18).
        others: Unknown keys of the message.
    """

    id: str | None = None
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

    @property
    def csv_options(self) -> CsvOptions | None:
        """How files of CSV are written; None where the message says nothing of it.

        Raises:
            BadRequest: an option is unknown, or its value is not allowed.
        """
        return CsvOptions.from_json(self.csv) if self.csv else None


def read_ingest_job(text: str) -> IngestJob:
    """Return the job in a message. Whether it makes sense is for `ingest_job_failures`.

    Raises:
        JobInvalid: the text is no JSON object, or values are of the wrong type; with every reason
            (rule ING-10). The job has no id then: choose one to track it by, with its text.
    """
    message = MessageFields(text)
    return IngestJob(**fields_of_job(message), others=message.others())


def fields_of_job(message: MessageFields) -> dict[str, Any]:
    """Return the fields that ingest and bulk import jobs share; a blank id is none."""
    job_id = message.text("id")
    return {
        "id": job_id if (job_id or "").strip() else None,
        "table_name": message.text("tableName"),
        "table_id": message.text("tableId"),
        "files": message.texts("files"),
        "csv": message.object("csv") or {},
        "upsert": message.flag("upsert"),
    }


def write_ingest_job(job: IngestJob) -> str:
    """Return a job as JSON, in upstream's form: one line, nothing for what is not set.

    >>> write_ingest_job(IngestJob(id="june", table_name="trips", files=("june/",)))
    '{"id":"june","tableName":"trips","files":["june/"]}'
    """
    known = {
        re.sub("_(.)", lambda found: found[1].upper(), item.name): getattr(job, item.name)
        for item in fields(job)
        if item.name != "others"
    }
    said = {
        name: dict(value) if isinstance(value, Mapping) else value
        for name, value in known.items()
        if value != {} and value is not False
    }
    return write_message(said, job.others)


def ingest_job_failures(
    job: IngestJob, *, table_found: bool, missing_paths: Sequence[str] = ()
) -> list[str]:
    """Return every reason why a job cannot be run; none when it can (rule ING-10).

    Args:
        job: The job.
        table_found: Whether its table exists.
        missing_paths: Those of its files that were looked for and not found.
    """
    failures = []
    if job.files is None:
        failures.append('Missing property "files"')
    if None in (job.files or ()):
        failures.append("One of the files was null")
    if "" in (job.files or ()):
        failures.append("One of the files was empty: give the path or URL of a file or a folder")
    try:
        job.csv_options  # noqa: B018 - raises for what is wrong
    except BadRequest as error:
        failures.append(f"csv: {error}")
    if not table_found:
        failures.append(f"Table not found: {job.table_id or job.table_name or 'none was named'}")
    if missing_paths:
        failures.append(f"Could not find one or more paths: {', '.join(missing_paths)}")
    return failures
