"""Bulk export jobs: which table is written out, as upstream's clients write them (rule EXP-1).

{"exportId": "june", "tableName": "trips"}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sleeper.model.formats.message_json import (
    MessageFields,
    folder_name_failures,
    write_message,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportJob:
    """What an export job says; read it with `read_export_job`.

    Attributes:
        export_id: Names the work and its output. None: one is made (rule EXP-1).
        table_name: The table, unless `table_id` names it.
        table_id: The table; wins over the name.
        others: Unknown keys of the message.
    """

    export_id: str | None = None
    table_name: str | None = None
    table_id: str | None = None
    others: Mapping[str, Any] = field(default_factory=dict)


def read_export_job(text: str) -> ExportJob:
    """Return the job in a message. Whether it makes sense is for `export_job_failures`.

    Raises:
        JobInvalid: the text is no JSON object, or values are of the wrong type; with every reason.
    """
    message = MessageFields(text)
    export_id = message.text("exportId")
    return ExportJob(
        export_id=export_id if (export_id or "").strip() else None,
        table_name=message.text("tableName"),
        table_id=message.text("tableId"),
        others=message.others(),
    )


def write_export_job(job: ExportJob) -> str:
    """Return a job as JSON, in upstream's form.

    >>> write_export_job(ExportJob(export_id="june", table_name="trips"))
    '{"exportId":"june","tableName":"trips"}'
    """
    said = {"exportId": job.export_id, "tableName": job.table_name, "tableId": job.table_id}
    return write_message(said, job.others)


def export_job_failures(job: ExportJob, *, table_found: bool) -> list[str]:
    """Return every reason why a job cannot be run; none when it can (rule EXP-1)."""
    failures = []
    table = job.table_id or job.table_name
    if not table:
        failures.append("tableId or tableName field must be provided")
    elif not table_found:
        failures.append(f"Table not found: {table}")
    return failures + folder_name_failures("exportId", job.export_id or "an id that is made")
