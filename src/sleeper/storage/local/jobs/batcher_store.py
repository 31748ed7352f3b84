"""The batcher's files in the SQLite file."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime

from sleeper.model.csv_options import CsvOptions, text_of_csv
from sleeper.model.jobs.kinds import QueueName
from sleeper.model.jobs.submitted_files import SubmittedFile, UnsentJob
from sleeper.storage.local.jobs.database import JobDatabase, as_number, as_time

_PAGE = 1_000
_FILES = """
    SELECT received, number, job_id, table_id, path, size_bytes, expires, csv, upsert
    FROM submitted_file"""
_ASSIGN = """
    UPDATE OR REPLACE submitted_file SET job_id = :job_id
    WHERE job_id = '' AND table_id = :table_id AND path = :path
        AND size_bytes = :size_bytes AND received = :received AND expires = :expires"""
_DELETE_FILES = """
    DELETE FROM submitted_file WHERE table_id NOT IN (SELECT value FROM json_each(?))"""
_DELETE_JOBS = """
    DELETE FROM unsent_job WHERE table_id NOT IN (SELECT value FROM json_each(?))"""

_LEFT_OUT = """
    DELETE FROM submitted_file
    WHERE job_id = :job_id AND path NOT IN (SELECT value FROM json_each(:paths))"""
_REOPEN = """
    INSERT INTO unsent_job(job_id, table_id, queue)
    SELECT :job_id, table_id, :queue FROM submitted_file
    WHERE job_id = :job_id AND path IN (SELECT value FROM json_each(:paths))
        AND NOT EXISTS (SELECT 1 FROM unsent_job WHERE job_id = :job_id) LIMIT 1"""

_Row = tuple[int, int, str, str, str, int, int, str, int]


class SqliteBatcherStore:
    """Submitted files, safe for threads and processes. What was saved survives a power cut.

    Args:
        database: The file.
    """

    def __init__(self, database: JobDatabase) -> None:
        self._database = database

    def save(self, files: Sequence[SubmittedFile]) -> None:
        """Store pending files, all or none."""
        if not files:
            return
        with self._database.writing(durable=True) as connection:
            connection.executemany(
                "INSERT OR REPLACE INTO submitted_file"
                "(job_id, table_id, path, size_bytes, received, expires, csv, upsert)"
                " SELECT '', :table_id, :path, :size_bytes, :received, :expires, :csv, :upsert"
                " WHERE NOT EXISTS (SELECT 1 FROM submitted_file"
                " WHERE table_id = :table_id AND path = :path"
                " AND received = :received AND job_id != '')",
                map(_values, files),
            )

    def pending(self) -> list[SubmittedFile]:
        """Return the files without a job, oldest first."""
        with self._database.reading() as connection:
            rows = connection.execute(
                f"{_FILES} WHERE job_id = '' ORDER BY received, number"
            ).fetchall()
        return [_file(row) for row in rows]

    def newest(self) -> Iterator[SubmittedFile]:
        """Yield all files, newest first, a page of them in memory."""
        after = (2**63 - 1, 2**63 - 1)
        while True:
            with self._database.reading() as connection:
                rows = connection.execute(
                    f"{_FILES} WHERE (received, number) < (?, ?)"
                    " ORDER BY received DESC, number DESC LIMIT ?",
                    (*after, _PAGE),
                ).fetchall()
            yield from map(_file, rows)
            if len(rows) < _PAGE:
                return
            after = rows[-1][:2]

    def assign(
        self, job_id: str, files: Sequence[SubmittedFile], queue: QueueName
    ) -> list[SubmittedFile]:
        """Move pending files into a job, and note it as unsent."""
        with self._database.writing(durable=True) as connection:
            assigned = [
                replace(each, job_id=job_id)
                for each in files
                if connection.execute(_ASSIGN, _values(each) | {"job_id": job_id}).rowcount
            ]
            if assigned:
                connection.execute(
                    "INSERT OR REPLACE INTO unsent_job(job_id, table_id, queue) VALUES(?, ?, ?)",
                    (job_id, assigned[0].table_id, queue),
                )
        return assigned

    def unsent(self) -> list[UnsentJob]:
        """Return the jobs that were not noted as sent."""
        with self._database.reading() as connection:
            jobs = connection.execute(
                "SELECT job_id, table_id, queue FROM unsent_job ORDER BY number"
            ).fetchall()
            return [
                UnsentJob(
                    job_id=job_id,
                    table_id=table_id,
                    queue=QueueName(queue),
                    paths=_paths_of(connection, job_id),
                    csv=CsvOptions.from_text(csv),
                    upsert=bool(upsert),
                )
                for job_id, table_id, queue in jobs
                for csv, upsert in [_kind_of(connection, job_id)]
            ]

    def note_sent(self, job_id: str) -> None:
        """Note that a job was sent."""
        with self._database.writing(durable=True) as connection:
            connection.execute("DELETE FROM unsent_job WHERE job_id = ?", (job_id,))

    def reopen(self, job_id: str, paths: Sequence[str], queue: QueueName) -> int:
        """Note a job as unsent again, with some of its files."""
        chosen = {"job_id": job_id, "queue": queue, "paths": json.dumps(list(paths))}
        with self._database.writing(durable=True) as connection:
            noted = connection.execute(_REOPEN, chosen).rowcount
            if not noted:
                return 0
            connection.execute(_LEFT_OUT, chosen)
            return len(_paths_of(connection, job_id))

    def delete_tables_except(self, table_ids: Iterable[str]) -> int:
        """Delete files and unsent jobs of all other tables."""
        kept = (json.dumps(list(table_ids)),)
        with self._database.writing(durable=True) as connection:
            connection.execute(_DELETE_JOBS, kept)
            return connection.execute(_DELETE_FILES, kept).rowcount

    def delete_pending(self) -> int:
        """Delete files without a job."""
        with self._database.writing(durable=True) as connection:
            return connection.execute("DELETE FROM submitted_file WHERE job_id = ''").rowcount

    def delete_expired(self, now: datetime) -> int:
        """Delete files that have expired."""
        with self._database.writing(durable=False) as connection:
            return connection.execute(
                "DELETE FROM submitted_file WHERE expires < ?"
                " AND job_id NOT IN (SELECT job_id FROM unsent_job)",
                (as_number(now),),
            ).rowcount


def _values(file: SubmittedFile) -> dict[str, str | int]:
    return {
        "table_id": file.table_id,
        "path": file.path,
        "size_bytes": file.size_bytes,
        "received": as_number(file.received),
        "expires": as_number(file.expires),
        "csv": text_of_csv(file.csv),
        "upsert": int(file.upsert),
    }


def _file(row: _Row) -> SubmittedFile:
    received, _, job_id, table_id, path, size_bytes, expires, csv, upsert = row
    return SubmittedFile(
        table_id=table_id,
        path=path,
        size_bytes=size_bytes,
        received=as_time(received),
        expires=as_time(expires),
        csv=CsvOptions.from_text(csv),
        upsert=bool(upsert),
        job_id=job_id or None,
    )


def _paths_of(connection: sqlite3.Connection, job_id: str) -> tuple[str, ...]:
    rows = connection.execute(
        "SELECT path FROM submitted_file WHERE job_id = ? ORDER BY received, number", (job_id,)
    )
    return tuple(path for (path,) in rows)


def _kind_of(connection: sqlite3.Connection, job_id: str) -> tuple[str, int]:
    """Return how the files of a job are written, and whether they replace rows.

    Both are the same for all of them.
    """
    row = connection.execute(
        "SELECT csv, upsert FROM submitted_file WHERE job_id = ? LIMIT 1", (job_id,)
    ).fetchone()
    return ("", 0) if row is None else row
