"""The batcher's files in DynamoDB.

A transaction writes at most 100 items, so a job of many files is made in several. Until the last
one is done the job is unfinished, and no `unsent` returns it. If its maker is killed, `unsent`
finishes it after a while, with the files that it has by then; the others are still pending.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import islice
from threading import Lock
from typing import Final

from sleeper.model.jobs.kinds import QueueName
from sleeper.model.jobs.submitted_files import SubmittedFile, UnsentJob
from sleeper.storage.aws.dynamo_tables import (
    WRITES_MAX,
    DynamoTable,
    DynamoTables,
    Item,
    as_microseconds,
    number,
)
from sleeper.storage.aws.jobs.dynamo_items import (
    NOT_ASSIGNED,
    PARTITION_KEY_BYTES_MAX,
    expiry,
    file_item,
    file_key,
    file_of,
    has_expired,
    key_text,
    number_of,
    text,
)
from sleeper.storage.aws.jobs.dynamo_tracker import BATCHER_JOBS, BY_RECEIVED, SUBMITTED_FILES

logger = logging.getLogger(__name__)

FILES_TOGETHER: Final = (WRITES_MAX - 1) // 3
"""How many files are put into a job by one transaction: each is written as three items."""

SAVED_TOGETHER: Final = WRITES_MAX // 2
"""How many files are saved by one transaction."""

UNFINISHED_MAX: Final = timedelta(minutes=1)
"""How long a job is being made before another process finishes it."""

_FILES_A_PAGE = 1_000


class DynamoBatcherStore:
    """Submitted files, safe for threads, processes and machines.

    Args:
        tables: The instance's tables.
        now: The clock (aware, UTC).
    """

    def __init__(self, tables: DynamoTables, *, now: Callable[[], datetime]) -> None:
        self._tables, self._now = tables, now
        self._latest = 0
        self._lock = Lock()
        self._swept: frozenset[str] | None = None

    def save(self, files: Sequence[SubmittedFile]) -> None:
        """Store pending files: up to 50 all or none.

        More are stored in groups of 50. After a failure some groups are stored; saving all files
        again, as a message does that is delivered again, stores the rest and changes nothing else.
        """
        if not files:
            return
        self._make_tables()
        different = _different(files)
        for first in range(0, len(different), SAVED_TOGETHER):
            groups = [self._save(each) for each in different[first : first + SAVED_TOGETHER]]
            self._tables.write_together(groups)

    def pending(self) -> list[SubmittedFile]:
        """Return the files without a job, oldest first."""
        return self._files_of(NOT_ASSIGNED)

    def newest(self) -> Iterator[SubmittedFile]:
        """Yield all files, newest first, a page of them in memory.

        The index may lack what was saved within about a second.
        """
        items = self._tables.query(
            SUBMITTED_FILES,
            "Files = :all",
            {":all": text("all")},
            IndexName=BY_RECEIVED,
            ScanIndexForward=False,
            Limit=_FILES_A_PAGE,
        )
        return (file_of(item) for item in items if self._is_kept(item))

    def assign(
        self, job_id: str, files: Sequence[SubmittedFile], queue: QueueName
    ) -> list[SubmittedFile]:
        """Move pending files into a job, and note it as unsent.

        Up to 33 files are moved in one transaction with the note. For more, the job is unfinished
        until all are moved.
        """
        if not files:
            return []
        self._make_tables()
        files = _different(files)
        groups = [self._move(job_id, each) for each in files]
        if len(files) <= FILES_TOGETHER:
            noted = self._note(job_id, files[0].table_id, queue, "unsent")
            moved = self._tables.write_together(groups, guard=noted)
            if moved is not None:
                return [replace(files[n], job_id=job_id) for n in moved]
        else:
            self._assign_in_steps(job_id, files[0].table_id, queue, groups)
        there = self._files_of(key_text(job_id))
        by_path = {each.path: each for each in there}
        return [by_path[each.path] for each in files if each.path in by_path]

    def unsent(self) -> list[UnsentJob]:
        """Return the jobs that were not noted as sent."""
        jobs = []
        for entry in sorted(self._entries(), key=lambda each: number_of(each, "Created")):
            if entry["JobState"]["S"] == "unfinished":
                since = as_microseconds(self._now() - UNFINISHED_MAX)
                if number_of(entry, "Created") > since:
                    continue
                logger.warning("job %s was left unfinished by its maker", entry["Job"]["S"])
                self._finish(entry["Job"]["S"])
            files = self._files_of(entry["EntryId"]["S"])
            if files:
                jobs.append(
                    UnsentJob(
                        job_id=entry["Job"]["S"],
                        table_id=entry["Table"]["S"],
                        queue=QueueName(entry["Queue"]["S"]),
                        paths=tuple(each.path for each in files),
                        csv=files[0].csv,
                        upsert=files[0].upsert,
                    )
                )
            else:  # its maker was killed before it deleted it
                self._write_each([self._delete(BATCHER_JOBS, _job_key(entry["Job"]["S"]))])
        return jobs

    def note_sent(self, job_id: str) -> None:
        """Note that a job was sent. From then on its files expire."""
        key = _job_key(job_id)
        if self._tables.get(BATCHER_JOBS, key) is None:
            return
        self._write_each(
            {
                "Update": {
                    "TableName": self._tables.name(SUBMITTED_FILES),
                    "Key": file_key(job_id, each),
                    "UpdateExpression": "SET ExpiryTime = :expiry",
                    "ConditionExpression": "attribute_exists(JobId)",
                    "ExpressionAttributeValues": {
                        ":expiry": expiry("ExpiryTime", each.expires)["ExpiryTime"]
                    },
                }
            }
            for each in self._files_of(key_text(job_id))
        )
        self._write_each([self._delete(BATCHER_JOBS, key)])

    def reopen(self, job_id: str, paths: Sequence[str], queue: QueueName) -> int:
        """Note a job as unsent again, with some of its files, which expire no longer.

        Killed before the note, files that were left out are forgotten, and the job is not sent.
        """
        files = self._files_of(key_text(job_id))
        kept = [each for each in files if each.path in paths]
        if not kept or self._tables.get(BATCHER_JOBS, _job_key(job_id)) is not None:
            return 0
        self._write_each(
            self._delete(SUBMITTED_FILES, file_key(job_id, each))
            for each in files
            if each.path not in paths
        )
        self._write_each(
            {
                "Update": {
                    "TableName": self._tables.name(SUBMITTED_FILES),
                    "Key": file_key(job_id, each),
                    "UpdateExpression": "REMOVE ExpiryTime",
                    "ConditionExpression": "attribute_exists(JobId)",
                }
            }
            for each in kept
        )
        noted = self._write_each([self._note(job_id, kept[0].table_id, queue, "unsent")])
        return len(kept) if noted else 0

    def delete_tables_except(self, table_ids: Iterable[str]) -> int:
        """Delete files and unsent jobs of all other tables.

        Files in jobs are looked at when the tables are others than the last time.
        """
        kept = frozenset(table_ids)
        self._write_each(
            self._delete(BATCHER_JOBS, {name: entry[name] for name, _ in BATCHER_JOBS.key})
            for entry in self._entries()
            if entry["Table"]["S"] not in kept
        )
        deleted = self._write_each(
            self._delete(SUBMITTED_FILES, {name: item[name] for name, _ in SUBMITTED_FILES.key})
            for item in (self._pending() if kept == self._swept else self._all())
            if item["Table"]["S"] not in kept
        )
        self._swept = kept
        return deleted

    def delete_pending(self) -> int:
        """Delete files without a job."""
        return self._write_each(
            self._delete(SUBMITTED_FILES, file_key(None, each)) for each in self.pending()
        )

    def delete_expired(self, now: datetime) -> int:
        """Do nothing: Amazon deletes what has expired, and until then it is not returned."""
        return 0

    def _make_tables(self) -> None:
        self._tables.make(SUBMITTED_FILES, BATCHER_JOBS)

    def _save(self, file: SubmittedFile) -> list[Item]:
        """Return what saves a file, unless this very submission of it was put into a job."""
        name = self._tables.name
        return [
            {
                "ConditionCheck": {
                    "TableName": name(BATCHER_JOBS),
                    "Key": _submission_key(file),
                    "ConditionExpression": "attribute_not_exists(EntryId)",
                }
            },
            {"Put": {"TableName": name(SUBMITTED_FILES), "Item": file_item(None, file)}},
        ]

    def _move(self, job_id: str, file: SubmittedFile) -> list[Item]:
        """Return what moves a file into a job, unless it changed or is gone."""
        name = self._tables.name
        submission = {**_submission_key(file), **expiry("ExpiryTime", file.expires)}
        return [
            {
                "Delete": {
                    "TableName": name(SUBMITTED_FILES),
                    "Key": file_key(None, file),
                    "ConditionExpression": (
                        "Received = :received AND FileSize = :size AND Expires = :expires"
                    ),
                    "ExpressionAttributeValues": {
                        ":received": number(as_microseconds(file.received)),
                        ":size": number(file.size_bytes),
                        ":expires": number(as_microseconds(file.expires)),
                    },
                }
            },
            {"Put": {"TableName": name(SUBMITTED_FILES), "Item": file_item(job_id, file)}},
            {"Put": {"TableName": name(BATCHER_JOBS), "Item": submission}},
        ]

    def _assign_in_steps(
        self, job_id: str, table_id: str, queue: QueueName, groups: Sequence[Sequence[Item]]
    ) -> None:
        """Move files in several transactions, as long as nobody else finishes the job."""
        self._tables.write_together([[self._note(job_id, table_id, queue, "unfinished")]])
        check = {
            "ConditionCheck": {
                "TableName": self._tables.name(BATCHER_JOBS),
                "Key": _job_key(job_id),
                "ConditionExpression": "JobState = :unfinished",
                "ExpressionAttributeValues": {":unfinished": text("unfinished")},
            }
        }
        for first in range(0, len(groups), FILES_TOGETHER):
            some = groups[first : first + FILES_TOGETHER]
            if self._tables.write_together(some, guard=check) is None:
                logger.warning("job %s was finished by another process", job_id)
                break
        self._finish(job_id)

    def _finish(self, job_id: str) -> None:
        """Let no more files into a job; delete it if it has none."""
        change = {
            "TableName": self._tables.name(BATCHER_JOBS),
            "Key": _job_key(job_id),
            "ConditionExpression": "JobState = :unfinished",
            "ExpressionAttributeValues": {
                ":unfinished": text("unfinished"),
                ":unsent": text("unsent"),
            },
            "UpdateExpression": "SET JobState = :unsent",
        }
        self._write_each([{"Update": change}])
        if not self._files_of(key_text(job_id)):
            self._write_each([self._delete(BATCHER_JOBS, _job_key(job_id))])

    def _note(self, job_id: str, table_id: str, queue: QueueName, state: str) -> Item:
        with self._lock:  # jobs that one process makes at the same moment have an order, too
            self._latest = max(self._latest + 1, as_microseconds(self._now()))
            created = self._latest
        item = {
            **_job_key(job_id),
            "Job": text(job_id),
            "Table": text(table_id),
            "Queue": text(queue.value),
            "JobState": text(state),
            "Created": number(created),
        }
        return {
            "Put": {
                "TableName": self._tables.name(BATCHER_JOBS),
                "Item": item,
                "ConditionExpression": "attribute_not_exists(EntryId)",
            }
        }

    def _delete(self, table: DynamoTable, key: Item) -> Item:
        return {
            "Delete": {
                "TableName": self._tables.name(table),
                "Key": key,
                "ConditionExpression": f"attribute_exists({table.key[0][0]})",
            }
        }

    def _write_each(self, parts: Iterable[Item]) -> int:
        """Write parts, a hundred together; return how many met their conditions."""
        written = 0
        every = iter(parts)
        while some := list(islice(every, WRITES_MAX)):
            written += len(self._tables.write_together([[part] for part in some]) or ())
        return written

    def _entries(self) -> Iterator[Item]:
        return self._tables.query(BATCHER_JOBS, "EntryKind = :job", {":job": text("job")})

    def _all(self) -> Iterator[Item]:
        return self._tables.scan(SUBMITTED_FILES)

    def _pending(self) -> Iterator[Item]:
        return self._items_of(NOT_ASSIGNED)

    def _items_of(self, job: str) -> Iterator[Item]:
        return self._tables.query(SUBMITTED_FILES, "JobId = :job", {":job": text(job)})

    def _files_of(self, job: str) -> list[SubmittedFile]:
        items = self._items_of(job)
        files = [file_of(item) for item in items if self._is_kept(item)]
        return sorted(files, key=lambda each: each.received)

    def _is_kept(self, item: Item) -> bool:
        """Return whether a file has not expired. Those of unsent jobs do not."""
        return "ExpiryTime" not in item or not has_expired(
            item, self._tables.last_answer or self._now()
        )


def _different(files: Iterable[SubmittedFile]) -> list[SubmittedFile]:
    """Return files without those whose path comes again."""
    return list({(each.table_id, each.path): each for each in files}.values())


def _job_key(job_id: str) -> Item:
    return {"EntryKind": text("job"), "EntryId": text(key_text(job_id))}


def _submission_key(file: SubmittedFile) -> Item:
    path = key_text(f"file {file.table_id}/{file.path}", PARTITION_KEY_BYTES_MAX)
    return {"EntryKind": text(path), "EntryId": text(str(as_microseconds(file.received)))}
