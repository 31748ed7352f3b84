"""The ingest jobs that a table has committed, so that a job that runs again adds nothing.

A record is kept for the time that its job requested, and until many entries have followed it, so
that a clock that is wrong for a while does not delete records. Only times in transactions decide
what has expired, not the clock of the reader, so every replay of a log gives the same result.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

_ENTRIES_MIN = 10_000  # a record is kept while fewer entries have followed it
_RECENT_MIN = 64  # a smaller layer is never folded: copying it is cheap


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedJob:
    """An ingest or bulk import job, as its transaction records it.

    Attributes:
        job_id: The id that the caller chose.
        keep_until: Until when the table keeps the id, at least (aware, UTC).
        rows_read: Rows in its input.
        rows_written: Rows in its data files; fewer if the table filters or aggregates.
    """

    job_id: str
    keep_until: datetime
    rows_read: int
    rows_written: int

    def record(self, *, number: int, at: datetime, files: int) -> JobRecord:
        """Return the table's record of it: committed as `number`, with `files` files."""
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
    """A table's record of a committed job.

    Attributes:
        number: The transaction that made the job's rows visible.
        at: When it was committed (aware, UTC).
        keep_until: From when on the record may be dropped, if enough entries have followed it.
        rows_read: Rows in the job's input.
        rows_written: Rows in the data files that it added.
        files: Number of data files that it added.
    """

    number: int
    at: datetime
    keep_until: datetime
    rows_read: int
    rows_written: int
    files: int


@dataclass(frozen=True, slots=True)
class JobChanges:
    """How the committed jobs of a table differ from older ones.

    Attributes:
        recorded: Records that are new, or another than before.
        dropped: Ids of jobs without a record now.
        cleared: True if some were dropped that had not expired: all records from before were.
    """

    recorded: Mapping[str, JobRecord]
    dropped: frozenset[str]
    cleared: bool


@dataclass(frozen=True, slots=True, eq=False)
class CommittedJobs:
    """The committed jobs of a table, by id. Immutable: `with_job` makes a new value.

    Two layers keep `with_job` cheap: a large one that versions share, and a small one that is
    copied. The small one is folded into the large one when its length exceeds the square root
    of the large one's.

    Attributes:
        last: The job that was committed last. Records that had expired when it was committed
            are dropped, if enough entries followed them. None if there was no job.
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
        """Return the record of a job; None if it was never committed, or its record was dropped."""
        record = self._recent.get(job_id) or self._folded.get(job_id)
        return record if record is not None and self._is_kept(record) else None

    def with_job(self, job_id: str, record: JobRecord) -> CommittedJobs:
        """Return the jobs with one more, the last, and without those that expired before it."""
        return self.with_jobs({job_id: record})

    def with_jobs(self, records: Mapping[str, JobRecord]) -> CommittedJobs:
        """Return the jobs with those of one entry, in their order."""
        *_, last = records.values()
        recent = {**self._recent, **records}
        added = CommittedJobs(last, self._folded, recent)
        if len(recent) < _RECENT_MIN or len(recent) ** 2 < len(self._folded):
            return added
        return CommittedJobs(last, dict(added.records()))

    def changes_since(self, before: CommittedJobs) -> JobChanges:
        """Return what was recorded and dropped since an older value.

        The cost is proportional to the smaller layer, or to both if it was folded since.
        """
        old, new = before._layers(), self._layers()
        if self._folded is before._folded:
            old, new = before._recent, self._recent
        recorded = {name: each for name, each in new.items() if old.get(name) is not each}
        dropped = {name: each for name, each in old.items() if name not in new}
        cleared = any(before._is_kept(each) and self._is_kept(each) for each in dropped.values())
        return JobChanges(recorded, frozenset(dropped), cleared)

    def _layers(self) -> Mapping[str, JobRecord]:
        return {**self._folded, **self._recent} if self._folded else self._recent

    def records(self) -> Iterator[tuple[str, JobRecord]]:
        """Yield (job id, record) of every recorded job."""
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
