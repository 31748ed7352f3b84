"""What became of all that an instance was asked to do: is everything there, and once?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa

from sleeper.model.jobs.query_statuses import QueryState
from sleeper.model.jobs.statuses import JobState
from tests.any_order.killed_serve.asked import KEYS, Asked, AskedTable, Read, Written, ids_of


class Found:
    """What an instance has of the jobs that it was asked to do.

    Args:
        asked: What it was asked.
    """

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self._jobs = asked.instance.jobs
        self._ended: set[str] = set()

    def job_ids(self) -> dict[str, str]:
        """Return the job of each file that was given to the batcher, and has one."""
        files = [*self._jobs.submitted_files()]
        assert len({file.path for file in files}) == len(files)
        return {file.path: file.job_id for file in files if file.job_id is not None}

    def is_all_done(self) -> bool:
        """Return whether nothing is under way any more."""
        batched = self.job_ids()
        for each in self._asked.tables.values():
            for job in each.written:
                job_id = job.job_id or batched.get(job.path)
                if job_id is None or not self._is_written(job_id):
                    return False
            if not all(self._is_read(job) for job in each.read):
                return False
        return all(map(self._is_rejected, self._asked.nonsense)) and self.are_queues_empty()

    def are_queues_empty(self) -> bool:
        """Return whether no message is left."""
        depths = self._jobs.queue_depths().values()
        return not any(depth.ready + depth.hidden for depth in depths)

    def overdue_s(self) -> float:
        """Return for how long the oldest claim whose lease has ended is held nevertheless."""
        now = datetime.now(UTC)
        ends = [claim.lease_ends for each in self._tables() for claim in each.table.claims()]
        return max(((now - end).total_seconds() for end in ends), default=0.0)

    def claims(self) -> int:
        """Return how many claims there are."""
        return sum(len(each.table.claims()) for each in self._tables())

    def compactions(self) -> Counter[str]:
        """Return how many compaction jobs ended in which state; none that has no claims goes on."""
        claims = {claim.job_id for each in self._tables() for claim in each.table.claims()}
        statuses = [*self._jobs.list(kind="compaction")]
        assert {status.job_id for status in statuses if not status.is_over} <= claims
        return Counter(str(status.state) for status in statuses)

    def check(self) -> int:
        """Check that nothing is lost and nothing is doubled; return how many rows there are."""
        assert not any(depth.dead for depth in self._jobs.queue_depths().values())
        assert not self._jobs.stores.batcher.pending()
        assert not self._jobs.stores.batcher.unsent()
        batched = self.job_ids()
        given = {job.path for each in self._tables() for job in each.written if not job.job_id}
        assert batched.keys() == given
        return sum(self._check_table(each, batched) for each in self._tables())

    def _check_table(self, each: AskedTable, batched: dict[str, str]) -> int:
        commits = {job.number: self._commit_of(job, each, batched) for job in each.written}
        rows = each.table.query().to_arrow()
        assert jobs_with_rows(rows) == commits.keys()
        for read in each.read:
            self._check_read(read, commits)
        return rows.num_rows

    def _commit_of(self, job: Written, each: AskedTable, batched: dict[str, str]) -> int:
        job_id = job.job_id or batched[job.path]
        record = self._jobs.tables.committed(each.table.table_id, job_id)
        assert record is not None, f"{job} is said to be finished, and the log does not have it"
        return record.number

    def _check_read(self, read: Read, commits: dict[int, int]) -> None:
        """Check that a result is a version of the table, no older than the question."""
        status = self._jobs.query(read.job_id, kind=read.kind)
        (location,) = status.locations
        rows = self._asked.results.read(location)
        shown = jobs_with_rows(rows, read.low, read.high)
        number = max([read.floor, *(commits[job] for job in shown)])
        version = {
            job
            for job, at in commits.items()
            if at <= number and len(ids_of([job], read.low, read.high))
        }
        assert shown == version, (read, number, shown ^ version)
        assert status.rows == rows.num_rows, read

    def _is_written(self, job_id: str) -> bool:
        return self._has_ended(job_id, lambda: self._jobs.job(job_id).state is JobState.FINISHED)

    def _is_rejected(self, job_id: str) -> bool:
        return self._has_ended(job_id, lambda: self._jobs.job(job_id).state is JobState.REJECTED)

    def _is_read(self, read: Read) -> bool:
        def is_completed() -> bool:
            status = self._jobs.query(read.job_id, kind=read.kind)
            return status.state is QueryState.COMPLETED

        return self._has_ended(read.job_id, is_completed)

    def _has_ended(self, job_id: str, look) -> bool:
        """Look at a job until it has ended, and not again."""
        if job_id not in self._ended and look():
            self._ended.add(job_id)
        return job_id in self._ended

    def _tables(self) -> Iterator[AskedTable]:
        return iter(self._asked.tables.values())


def jobs_with_rows(rows: pa.Table, low: int = 0, high: int = KEYS) -> set[int]:
    """Return the numbers of the jobs whose rows are there: each row once, none missing."""
    numbers = np.unique(rows["job"].to_numpy())
    assert np.array_equal(rows["id"].to_numpy(), ids_of(numbers, low, high))
    return set(numbers.tolist())
