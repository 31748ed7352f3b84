"""Which ingest jobs a table has committed, so that a job that comes again adds nothing.

A record is kept for the time that its job asked for, and until many entries have followed it: a
clock that was wrong for a while forgets nothing. What counts as expired is decided by the
transactions alone, never by the clock of whoever reads, so every replay of a log agrees.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

_ENTRIES_MIN = 10_000  # a record is kept while fewer entries have followed it
_RECENT_MIN = 64  # fold no smaller layer: copying it is cheaper than thinking about it


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedJob:
    """An ingest or bulk import job, as its own transaction names it.

    Attributes:
        job_id: Chosen by whoever asked for the job.
        keep_until: How long the table remembers the id, at least (aware, UTC).
        rows_read: Rows in its input.
        rows_written: Rows in its data files, which filters and aggregations may have reduced.
    """

    job_id: str
    keep_until: datetime
    rows_read: int
    rows_written: int

    def record(self, *, number: int, at: datetime, files: int) -> JobRecord:
        """Return what a table remembers of it: committed as `number`, with so many files."""
        return JobRecord(
            number=number,
            at=at,
            keep_until=self.keep_until,
            rows_read=self.rows_read,
            rows_written=self.rows_written,
            files=files,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """What a table remembers of a job that it has committed.

    Attributes:
        number: The transaction that made the job's rows visible.
        at: When (aware, UTC).
        keep_until: When the record may be forgotten, if enough entries have followed it.
        rows_read: Rows in the job's input.
        rows_written: Rows in the data files that it added.
        files: How many data files it added.
    """

    number: int
    at: datetime
    keep_until: datetime
    rows_read: int
    rows_written: int
    files: int


@dataclass(frozen=True, slots=True, eq=False)
class CommittedJobs:
    """The committed jobs of a table, by id. A value: `with_job` makes a new one.

    Two layers keep `with_job` cheap: a large one that versions share, and a small one that is
    copied. The small one is folded into the large one when its length passes the square root
    of the other's.

    Attributes:
        last: The job that was committed last. Records whose time is over when it was committed
            are forgotten, if enough entries lie between. None while there was no job.
    """

    last: JobRecord | None = None
    _folded: Mapping[str, JobRecord] = field(default_factory=dict)
    _recent: Mapping[str, JobRecord] = field(default_factory=dict)

    @classmethod
    def of(cls, records: Iterable[tuple[str, JobRecord]]) -> CommittedJobs:
        """Build from (job id, record) pairs, as `records` yields them."""
        by_id = dict(records)
        return cls(max(by_id.values(), key=lambda each: each.number, default=None), by_id)

    def find(self, job_id: str) -> JobRecord | None:
        """Return what is remembered of a job; None when it was never committed, or forgotten."""
        record = self._recent.get(job_id) or self._folded.get(job_id)
        return record if record is not None and self._is_kept(record) else None

    def with_job(self, job_id: str, record: JobRecord) -> CommittedJobs:
        """Return these with one more, the last, and without those that expired before it."""
        recent = {**self._recent, job_id: record}
        added = CommittedJobs(record, self._folded, recent)
        if len(recent) < _RECENT_MIN or len(recent) ** 2 < len(self._folded):
            return added
        return CommittedJobs(record, dict(added.records()))

    def records(self) -> Iterator[tuple[str, JobRecord]]:
        """Yield (job id, record) of every job that is remembered."""
        for job_id, record in {**self._folded, **self._recent}.items():
            if self._is_kept(record):
                yield job_id, record

    def __len__(self) -> int:
        return sum(1 for _ in self.records())

    def _is_kept(self, record: JobRecord) -> bool:
        last = self.last
        if last is None or last.number - record.number < _ENTRIES_MIN:
            return True
        return record.keep_until >= last.at
