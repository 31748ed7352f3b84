"""The tables that jobs are for, and the input that jobs name."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock
from typing import TypeVar

from sleeper.engine.inputs.input_files import file_sizes, find_files
from sleeper.errors import BadRequest, InputNotFound, TableNotFound, UrlInvalid
from sleeper.jobs.deletions import check_deletion
from sleeper.jobs.input_places import InputPlaces
from sleeper.model.formats.batcher_submission import BatcherSubmission
from sleeper.model.formats.bulk_import_job import BulkImportJob
from sleeper.model.formats.ingest_job import IngestJob
from sleeper.model.jobs.events import UNKNOWN_TABLE
from sleeper.model.known_properties.typed import TableProperties
from sleeper.model.tables import TableRecord
from sleeper.ports.objects import InputStore
from sleeper.ports.table_index import TableIndex
from sleeper.state.table_state import JobRecord
from sleeper.tables.table import Table

_TABLES_OPEN_MAX = 10

_AnyJob = TypeVar("_AnyJob", IngestJob, BulkImportJob, BatcherSubmission)


LastNumbers = Callable[[Sequence[TableRecord], Mapping[str, int]], dict[str, int]]


@dataclass(frozen=True, slots=True)
class CheckedJob:
    """A job, as its table and its files say.

    Attributes:
        record: Its table; None if there is none.
        before: What the table's log says of the job; None if it was not committed, or not asked.
        failures: Every reason why it cannot be run; none when it can.
    """

    record: TableRecord | None
    before: JobRecord | None
    failures: tuple[str, ...]

    @property
    def table_id(self) -> str:
        """The table's id; `UNKNOWN_TABLE` where there is none."""
        return UNKNOWN_TABLE if self.record is None else self.record.table_id


class JobTables:
    """Finds the tables and files that jobs name. Safe for threads.

    A few tables are kept open, so that a worker's next job on one need not open it again.

    Args:
        index: Which tables there are.
        inputs: Finds input files by URL.
        open_table: Opens a table by its record.
        names_buckets: Whether a relative path in a message is a bucket and a key, as upstream's
            clients write it.
        places: From where jobs may read; None for any place.
        last_numbers: Returns the number of each table's last commit, given those known before.
    """

    def __init__(
        self,
        index: TableIndex,
        inputs: InputStore,
        open_table: Callable[[TableRecord], Table],
        *,
        names_buckets: bool = False,
        places: InputPlaces | None = None,
        last_numbers: LastNumbers = lambda records, known: {},
    ) -> None:
        self._index = index
        self._inputs = inputs
        self._open_table = open_table
        self._names_buckets = names_buckets
        self._places = places
        self.last_numbers = last_numbers
        self._lock = Lock()
        self._open: OrderedDict[str, Table] = OrderedDict()

    def all(self) -> tuple[TableRecord, ...]:
        """Return every table, ordered by name."""
        return self._index.all()

    def table(self, table_id: str) -> Table:
        """Return an open table.

        Raises:
            TableNotFound: there is none of this id.
        """
        with self._lock:
            if table_id in self._open:
                self._open.move_to_end(table_id)
                return self._open[table_id]
        record = self._index.by_id(table_id)
        if record is None:
            raise TableNotFound(f"there is no table of id {table_id!r}; it may have been deleted")
        table = self._open_table(record)
        with self._lock:
            self._open[table_id] = table
            if len(self._open) > _TABLES_OPEN_MAX:
                self._open.popitem(last=False)
        return table

    def properties(self, table_id: str) -> TableProperties:
        """Return the properties of a table as they are now; an open one has those of its opening.

        Raises:
            TableNotFound: there is none of this id.
        """
        opened = self.table(table_id)
        record = self._index.by_id(table_id)
        if record is None:
            raise TableNotFound(f"table {opened.name!r} was deleted")
        return replace(opened.properties, values=record.properties)

    def find(self, *, table_id: str | None, table_name: str | None) -> TableRecord | None:
        """Return the table of a job, or None; the id wins over the name (rule ING-9)."""
        if table_id:
            return self._index.by_id(table_id)
        return self._index.by_name(table_name) if table_name else None

    def located(self, job: _AnyJob) -> _AnyJob:
        """Return a job from a message with the places that its paths mean."""
        if not self._names_buckets or job.files is None:
            return job
        return replace(job, files=tuple(path and in_bucket(path) for path in job.files))

    def missing(self, paths: Iterable[str]) -> list[str]:
        """Return those of a job's paths that name nothing that could be read (rule ING-11).

        Raises:
            StorageFailed: the storage does not answer.
        """
        return [path for path in paths if not self._exists(path)]

    def checked(
        self,
        job: IngestJob | BatcherSubmission,
        failures_of: Callable[..., list[str]],
        *,
        job_id: str | None = None,
    ) -> CheckedJob:
        """Look at a job's table and files, and return every reason why it cannot be run.

        Args:
            job: The job.
            failures_of: Names the reasons: such as `ingest_job_failures`.
            job_id: Asks the table's log for this job. One that was committed may be without files.

        Raises:
            StorageFailed: the storage does not answer.
        """
        record = self.find(table_id=job.table_id, table_name=job.table_name)
        before = self.committed(record.table_id, job_id) if record and job_id else None
        if before is None and self._places and (refused := self._places.refusals(job.paths)):
            return CheckedJob(record, None, tuple(refused))
        missing = [] if before is not None else self.missing(job.paths)
        failures = failures_of(job, table_found=record is not None, missing_paths=missing)
        if record is not None and before is None and not failures:
            failures = self._refusals_of_changes(record.table_id, job)
        return CheckedJob(record, before, tuple(failures))

    def _refusals_of_changes(self, table_id: str, job: IngestJob | BatcherSubmission) -> list[str]:
        """Return why rows of a table cannot be replaced, or deleted, as a job says."""
        asked = job.delete if isinstance(job, IngestJob) else None
        if not job.upsert and asked is None:
            return []
        try:
            table = self.table(table_id)
            table.refresh()
            if job.upsert:
                table.properties.processing(table.schema).check_upsert(table.name)
            if asked is not None:
                check_deletion(table, asked)
        except TableNotFound:
            return []  # its job will not find it either
        except BadRequest as refusal:
            return [f"{'upsert' if job.upsert else 'delete'}: {refusal}"]
        return []

    def committed(self, table_id: str, job_id: str) -> JobRecord | None:
        """Return what a table's log says of an ingest job; None where it does not know it.

        Raises:
            StorageFailed: the table cannot be read now.
        """
        if table_id == UNKNOWN_TABLE:
            return None
        try:
            return self.table(table_id).state().jobs.find(job_id)
        except TableNotFound:
            return None

    def has_file(self, table_id: str, filename: str) -> bool:
        """Return whether a table tracks a data file now.

        Raises:
            StorageFailed: the table cannot be read now.
        """
        try:
            return self.table(table_id).state().files.is_tracked(filename)
        except TableNotFound:
            return False

    def may_have_claims(self, table_id: str, job_id: str) -> bool:
        """Return whether a compaction job may have claims now; False if its table has none of it.

        Raises:
            StorageFailed: the table cannot be read now.
        """
        try:
            return job_id in self.table(table_id).state().claims
        except TableNotFound:
            return True  # nobody can tell any more

    def sized_files(self, paths: Iterable[str]) -> dict[str, int]:
        """Return the Parquet files that paths name, each once, with their sizes in bytes.

        Raises:
            InputNotFound: a path names nothing any longer.
            StorageFailed: the storage does not answer.
        """
        return file_sizes(paths, self._inputs)

    def _exists(self, path: str) -> bool:
        try:
            find_files([path], self._inputs)
        except (InputNotFound, UrlInvalid):
            return False
        return True


def in_bucket(path: str) -> str:
    """Return the URL of a path that is a bucket and a key; other paths and URLs as they are.

    >>> in_bucket("trades/2026/june/"), in_bucket("/data/june.parquet")
    ('s3://trades/2026/june/', '/data/june.parquet')
    """
    return path if "://" in path or path.startswith("/") else f"s3://{path}"


def absolute(path: str | os.PathLike[str]) -> str:
    """Return a path as a worker with another working folder can read it. URLs stay as they are."""
    text = os.fspath(path)
    return text if "://" in text else str(Path(text).expanduser().absolute())
