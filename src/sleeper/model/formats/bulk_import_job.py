"""Bulk import jobs: what is to be imported and how, as upstream's clients write them (rule BLK-1).

    {"id": "june", "tableName": "trips", "files": ["s3://bucket/june/"], "sparkConf": {...}}

Only `files` and one of `tableName` and `tableId` are required. Unknown keys are kept, so that a
job can be passed on unchanged.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from sleeper.errors import JobInvalid

ID_LENGTH_MAX = 63
_ID = re.compile(r"[a-z0-9-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkImportJob:
    """The content of a bulk import job; read it with `read_bulk_import_job`.

    Attributes:
        id: Identifies the job: a job that runs twice changes nothing the second time. If None or
            blank, an id is made (ING-9).
        table_name: The table's name, unless `table_id` is given.
        table_id: The table's id; takes precedence over the name (rule ING-9).
        files: Paths or URLs of Parquet files or folders; None when the message has none.
        class_name: Upstream's choice of algorithm. Kept but not used: there is only one here.
        platform_spec: `sleeper.table.bulk.import.emr.*` for this job only (rule BLK-4).
        spark_conf: Spark settings that override those of the instance (rule BLK-4).
        others: Unknown keys of the message.
    """

    id: str | None = None
    table_name: str | None = None
    table_id: str | None = None
    files: tuple[str | None, ...] | None = None
    class_name: str | None = None
    platform_spec: Mapping[str, str] = field(default_factory=dict)
    spark_conf: Mapping[str, str] = field(default_factory=dict)
    others: Mapping[str, Any] = field(default_factory=dict)

    @property
    def paths(self) -> list[str]:
        """The files, without null entries."""
        return [path for path in self.files or () if path is not None]


def read_bulk_import_job(text: str) -> BulkImportJob:
    """Parse a job from a message. `check_bulk_import_job` checks whether it can run.

    Raises:
        JobInvalid: the text is not JSON, or a value has the wrong type (rule ING-10).
    """
    from pydantic import (  # noqa: PLC0415 - slow to import, and few commands read jobs
        BaseModel,
        ConfigDict,
        ValidationError,
    )
    from pydantic.alias_generators import to_camel  # noqa: PLC0415 - the same

    class Message(BaseModel):
        model_config = ConfigDict(
            alias_generator=to_camel, coerce_numbers_to_str=True, extra="allow"
        )

        id: str | None = None
        table_name: str | None = None
        table_id: str | None = None
        files: tuple[str | None, ...] | None = None
        class_name: str | None = None
        platform_spec: dict[str, str | bool] | None = None
        spark_conf: dict[str, str | bool] | None = None

    try:
        message = Message.model_validate_json(text)
    except ValidationError as error:
        raise JobInvalid(tuple(_reason(each) for each in error.errors())) from None
    return BulkImportJob(
        id=message.id,
        table_name=message.table_name,
        table_id=message.table_id,
        files=message.files,
        class_name=message.class_name,
        platform_spec=_texts(message.platform_spec),
        spark_conf=_texts(message.spark_conf),
        others=message.model_extra or {},
    )


def write_bulk_import_job(job: BulkImportJob) -> str:
    """Return a job as JSON, in upstream's form: one line, without fields that are not set.

    >>> write_bulk_import_job(BulkImportJob(id="june", table_name="trips", files=("june/",)))
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
        if value is not None and value != {}
    }
    return json.dumps({**said, **job.others}, ensure_ascii=False, separators=(",", ":"))


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
    failures = []
    if job.files is None:
        failures.append('Missing property "files"')
    if None in (job.files or ()):
        failures.append("One of the files was null")
    if not table_found:
        failures.append(f"Table not found: {job.table_id or job.table_name or 'none was named'}")
    if missing_paths:
        failures.append(f"Could not find one or more paths: {', '.join(missing_paths)}")
    if not _ID.fullmatch(job.id or ""):
        failures.append("Job Ids must only contain lowercase alphanumerics and dashes.")
    if len(job.id or "") > ID_LENGTH_MAX:
        failures.append(f"Job Ids must have at most {ID_LENGTH_MAX} characters.")
    if job.files is not None and not job.files:
        failures.append("The list of files must not be empty.")
    return failures


def _texts(values: Mapping[str, str | bool] | None) -> dict[str, str]:
    """Values as upstream reads them: `true` in JSON is the text true."""
    return {
        name: value if isinstance(value, str) else str(value).lower()
        for name, value in (values or {}).items()
    }


def _reason(failure: Mapping[str, Any]) -> str:
    place = ".".join(map(str, failure["loc"]))
    return f"Error parsing JSON. Reason: {f'{place}: ' if place else ''}{failure['msg']}"
