"""Events and submitted files as items of DynamoDB, and back.

Items have upstream's attributes, and attributes of ours with what upstream's lack: exact times
(`Newest`, `Oldest`, `Received` and `Expires`, microseconds since 1970) and the whole event as JSON
(`Event`). Only ours are read.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from datetime import datetime
from hashlib import sha256
from typing import Any, Final

from sleeper.errors import StorageFailed
from sleeper.model.csv_options import CsvOptions, text_of_csv
from sleeper.model.formats.job_events import decode_job_event, decode_task_event, encode_event
from sleeper.model.jobs.events import JobEvent, JobEventType, TaskEvent
from sleeper.model.jobs.statuses import rate
from sleeper.model.jobs.submitted_files import SubmittedFile
from sleeper.storage.aws.dynamo_tables import Item, as_microseconds, as_time, number

NOT_ASSIGNED: Final = "not_assigned_to_job"
"""The job id of pending files, as upstream has it."""

PARTITION_KEY_BYTES_MAX: Final = 2_048
"""Amazon's limit."""

ORDER_KEY_BYTES_MAX: Final = 1_024
"""Amazon's limit."""

_SHORT_MAX = 100_000
"""Longer events are compressed, and have none of upstream's attributes for reports."""
_BYTES_MAX = 390_000
"""What an event may take in an item, of which Amazon allows 400 KB."""
_TYPES = {
    JobEventType.ACCEPTED: "validated",
    JobEventType.REJECTED: "validated",
    JobEventType.ADDED_FILES: "addedFiles",
}
_TIMES = {
    JobEventType.ACCEPTED: "ValidationTime",
    JobEventType.REJECTED: "ValidationTime",
    JobEventType.STARTED: "StartTime",
    JobEventType.ADDED_FILES: "FilesWrittenTime",
    JobEventType.COMMITTED: "CommitTime",
    JobEventType.FINISHED: "FinishTime",
    JobEventType.FAILED: "FinishTime",
}
_REASONS = {JobEventType.REJECTED: "ValidationReasons", JobEventType.FAILED: "FailureReasons"}


def text(value: str) -> Item:
    """Return text as a value of an attribute; half of a surrogate pair is escaped."""
    return {"S": _storable(value)}


def number_of(item: Item, name: str, default: int = 0) -> int:
    """Return an attribute that is a whole number."""
    return int(item[name]["N"]) if name in item else default


def key_text(value: str, bytes_max: int = 600) -> str:
    """Return text that may be a key: another for each value, and mostly the value itself.

    A key is neither empty nor longer than some bytes. What cannot be one is cut, and ends with a
    hash of the whole.
    """
    stored = _storable(value).encode()
    if 0 < len(stored) <= bytes_max:
        return stored.decode()
    digest = "#" + sha256(value.encode("utf-8", "surrogatepass")).hexdigest()
    return stored[: bytes_max - len(digest)].decode("utf-8", "ignore") + digest


def expiry(name: str, expires: datetime) -> Item:
    """Return the attributes that tell when an item may be deleted: for Amazon, and exactly."""
    microseconds = as_microseconds(expires)
    return {name: number(-(-microseconds // 1_000_000)), "Expires": number(microseconds)}


def has_expired(item: Item, now: datetime) -> bool:
    """Return whether an item has expired, though Amazon may not have deleted it yet."""
    return "Expires" in item and number_of(item, "Expires") < as_microseconds(now)


def event_key(event: JobEvent) -> Item:
    """Return the key of a job's event: the same for the same event."""
    digest = sha256(encode_event(event).encode()).hexdigest()[:32]
    update = f"{key_text(event.job_id)}|{_milliseconds(event.at)}|{digest}"
    return {"TableId": text(key_text(event.table_id)), "JobIdAndUpdate": text(update)}


def job_event_item(event: JobEvent, position: int, now: datetime, expires: datetime) -> Item:
    """Return a job's event as an item.

    Args:
        event: The event.
        position: Its place among the job's events.
        now: When it is recorded.
        expires: When it may be deleted.

    Raises:
        StorageFailed: it does not fit into an item.
    """
    body = _event(event, f"job {event.job_id[:100]!r}")
    more = _attributes(event) if "S" in body["Event"] else {}
    return {
        **event_key(event),
        "JobId": text(key_text(event.job_id)),
        "UpdateTime": number(_milliseconds(now)),
        "UpdateType": text(_TYPES.get(event.type, event.type.value)),
        "Position": number(position),
        **expiry("ExpiryDate", expires),
        **body,
        **more,
    }


def task_event_item(event: TaskEvent, expires: datetime) -> Item:
    """Return a task's event as an item.

    Raises:
        StorageFailed: it does not fit into an item.
    """
    at = _milliseconds(event.at)
    item = {
        "TaskId": text(key_text(event.task_id)),
        "UpdateTime": number(at),
        "UpdateType": text("finished" if event.is_finished else "started"),
        "FinishTime" if event.is_finished else "StartTime": number(at),
        **expiry("ExpiryDate", expires),
        **_event(event, f"task {event.task_id[:100]!r}"),
    }
    if event.is_finished:
        item |= {
            "NumberOfJobs": number(event.jobs),
            "RowsRead": number(event.rows_read),
            "RowsWritten": number(event.rows_written),
            "MillisecondsOnJobs": number(int(event.busy_s * 1_000)),
        }
        rates = {
            "ReadRate": rate(event.rows_read, event.busy_s),
            "WriteRate": rate(event.rows_written, event.busy_s),
        }
        item |= {name: number(value) for name, value in rates.items() if value is not None}
    return item


def job_event_of(item: Item) -> JobEvent:
    """Return the event of a job's item."""
    return decode_job_event(_body(item["Event"]))


def task_event_of(item: Item) -> TaskEvent:
    """Return the event of a task's item."""
    return decode_task_event(_body(item["Event"]))


def file_key(job_id: str | None, file: SubmittedFile) -> Item:
    """Return the key of a file in a job, or of a pending one."""
    path = key_text(f"{file.table_id}/{file.path}", ORDER_KEY_BYTES_MAX)
    job = NOT_ASSIGNED if job_id is None else key_text(job_id)
    return {"JobId": text(job), "FilePath": text(path)}


def file_item(job_id: str | None, file: SubmittedFile) -> Item:
    """Return a file as an item. One in a job does not expire until the job is sent."""
    item = {
        **file_key(job_id, file),
        "Files": text("all"),
        "Table": text(file.table_id),
        "Url": text(file.path),
        "FileSize": number(file.size_bytes),
        "ReceivedTime": number(_milliseconds(file.received)),
        "Received": number(as_microseconds(file.received)),
        **expiry("ExpiryTime", file.expires),
    }
    if file.csv is not None:
        item["Csv"] = text(text_of_csv(file.csv))
    if file.upsert:
        item["Upsert"] = {"BOOL": True}
    if job_id is not None:
        item["AssignedJob"] = text(job_id)
        del item["ExpiryTime"]
    return item


def file_of(item: Item) -> SubmittedFile:
    """Return the file of an item."""
    return SubmittedFile(
        table_id=item["Table"]["S"],
        path=item["Url"]["S"],
        size_bytes=number_of(item, "FileSize"),
        received=as_time(number_of(item, "Received")),
        expires=as_time(number_of(item, "Expires")),
        csv=CsvOptions.from_text(item["Csv"]["S"]) if "Csv" in item else None,
        upsert="Upsert" in item,
        job_id=item["AssignedJob"]["S"] if "AssignedJob" in item else None,
    )


def _event(event: JobEvent | TaskEvent, whose: str) -> Item:
    body = encode_event(event)
    if len(body) <= _SHORT_MAX:
        return {"Event": {"S": body}}
    packed = zlib.compress(body.encode())
    if len(packed) > _BYTES_MAX:
        raise StorageFailed(
            f"cannot record an event of {whose}: it has {len(packed):,} bytes when compressed, and "
            f"an item of DynamoDB may have {_BYTES_MAX:,}. The job goes on; send a shorter message."
        )
    return {"Event": {"B": packed}}


def _body(value: Item) -> str:
    if "S" in value:
        return str(value["S"])
    packed: bytes = value["B"]
    return zlib.decompress(packed).decode()


def _attributes(event: JobEvent) -> Item:
    """Return the attributes that upstream has for an event."""
    described: Iterable[tuple[str, Callable[[Any], Item], Any]] = (
        ("JobRunId", text, event.run_id),
        ("TaskId", text, event.task_id),
        ("InputFilesCount", number, event.input_files),
        ("FilesWrittenCount", number, event.files),
        ("RowsRead", number, event.rows_read),
        ("RowsWritten", number, event.rows_written),
        ("PartitionId", text, event.partition_id),
        ("JsonMessage", text, event.message),
    )
    item = {name: of(value) for name, of, value in described if value is not None}
    if event.type in _TIMES:
        item[_TIMES[event.type]] = number(_milliseconds(event.at))
    if event.type in _REASONS:
        item[_REASONS[event.type]] = {"L": [text(each) for each in event.reasons]}
    if event.type in (JobEventType.ACCEPTED, JobEventType.REJECTED):
        item["ValidationResult"] = text(event.type.name)
    if event.type is JobEventType.FINISHED:
        item["JobCommittedWhenFilesAdded"] = {"BOOL": not event.is_committed}
    return item


def _milliseconds(time: datetime) -> int:
    return as_microseconds(time) // 1_000


def _storable(value: str) -> str:
    return value.encode("utf-8", "backslashreplace").decode()
