"""Ingest jobs: which files go into which table, as upstream's clients write them (rule ING-9).

    {"id": "june", "tableName": "trips", "files": ["s3://bucket/june/"]}

`"csv": {"separator": ";"}` says how files of CSV are written (`CsvOptions`), `"upsert": true` that
rows of the same row keys are replaced. Only `files` and one of `tableName` and `tableId` are
needed. Keys that nobody knows are kept, so that a job can be passed on as it came.

    {"id": "erase-17", "tableName": "trips", "delete": {"keys": ["ann", "bob"]}}

A job with `delete` has no files: it deletes rows instead (rule DEL-6). Earlier workers reject it,
for it has no files. `"ifUnchangedSince": 5` beside any of these names the transaction that the job
relies on (rule DEL-5). Upstream has neither `csv` nor `upsert` nor `delete` nor this.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final

from sleeper.errors import BadRequest
from sleeper.model.authors import Author
from sleeper.model.csv_options import CsvOptions
from sleeper.model.formats.message_json import MessageFields, write_message

DELETED_BY: Final = ("key", "keys", "range", "regions", "prefix", "where")
"""What may name the rows that a job deletes."""
REASON: Final = "reason"
"""Beside these: why, for the history."""


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
        delete: Which rows are deleted instead, by the names of `Table.delete`'s arguments; None for
            a job that adds rows.
        if_unchanged_since: A transaction number: the job fails if leaves that it is about have
            changed since (rule DEL-5).
        others: Unknown keys of the message.
    """

    id: str | None = None
    table_name: str | None = None
    table_id: str | None = None
    files: tuple[str | None, ...] | None = None
    csv: Mapping[str, Any] = field(default_factory=dict)
    upsert: bool = False
    delete: Mapping[str, Any] | None = None
    if_unchanged_since: int | None = None
    others: Mapping[str, Any] = field(default_factory=dict)

    @property
    def paths(self) -> list[str]:
        """The files, without what a message may hold in their place by mistake."""
        return [path for path in self.files or () if path]

    @property
    def is_committed_by_its_worker(self) -> bool:
        """Whether whoever runs the job commits it, also where a committer does for others.

        What such a commit says depends on the table at that time.
        """
        return self.upsert or self.delete is not None or self.if_unchanged_since is not None

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
        "delete": message.object("delete"),
        "if_unchanged_since": message.whole_number("ifUnchangedSince"),
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
        if (value != {} or name == "delete") and value is not False
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
    failures = _deletion_failures(job)
    if job.files is None and job.delete is None:
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


def _deletion_failures(job: IngestJob) -> list[str]:
    """Return what is wrong with a deletion, as far as can be told without its table."""
    if job.delete is None:
        return []
    failures = []
    if job.files is not None or job.csv or job.upsert:
        failures.append("delete: such a job adds no rows, so leave out files, csv and upsert")
    known = (*DELETED_BY, REASON)
    unknown = sorted(job.delete.keys() - {*known})
    if unknown:
        failures.append(f"delete: {unknown[0]!r:.100} is none of {', '.join(known)}")
    if all(job.delete.get(name) is None for name in DELETED_BY):
        failures.append(f"delete: say which rows, by one of {', '.join(DELETED_BY)}")
    where = job.delete.get("where")
    if where is not None and not isinstance(where, str):
        failures.append(f"delete: where is a condition in SQL, not {where!r:.100}")
    try:
        Author(reason=job.delete.get(REASON))
    except BadRequest as error:
        failures.append(f"delete: {error}")
    return failures
