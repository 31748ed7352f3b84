"""The batcher's files in dictionaries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import count
from threading import RLock

from sleeper.language.value_classes import dataclass
from sleeper.model.jobs.messages import QueueName
from sleeper.model.jobs.submitted_files import SubmittedFile, UnsentJob


@dataclass(frozen=True, slots=True)
class _Unsent:
    table_id: str
    queue: QueueName


class MemoryBatcherStore:
    """Submitted files in the memory of this process, safe for threads."""

    def __init__(self) -> None:
        self._numbers = count()
        self._files: dict[tuple[str | None, str, str], tuple[int, SubmittedFile]] = {}
        self._unsent: dict[str, _Unsent] = {}
        self._lock = RLock()

    def save(self, files: Sequence[SubmittedFile]) -> None:
        """Keep pending files."""
        with self._lock:
            in_jobs = {
                (each.table_id, each.path, each.received)
                for _, each in self._files.values()
                if each.job_id is not None
            }
            for each in files:
                if (each.table_id, each.path, each.received) in in_jobs:
                    continue
                pending = replace(each, job_id=None)
                self._files[None, each.table_id, each.path] = (next(self._numbers), pending)

    def pending(self) -> list[SubmittedFile]:
        """Return the files without a job, oldest first."""
        return [each for each in self._oldest_first() if each.job_id is None]

    def newest(self) -> Iterator[SubmittedFile]:
        """Yield all files, newest first."""
        return iter(self._oldest_first()[::-1])

    def assign(
        self, job_id: str, files: Sequence[SubmittedFile], queue: QueueName
    ) -> list[SubmittedFile]:
        """Move pending files into a job."""
        assigned: list[SubmittedFile] = []
        with self._lock:
            for each in files:
                number, found = self._files.get((None, each.table_id, each.path), (0, None))
                if found is not None and found == replace(each, job_id=None):
                    del self._files[None, each.table_id, each.path]
                    assigned.append(replace(found, job_id=job_id))
                    self._files[job_id, each.table_id, each.path] = (number, assigned[-1])
            if assigned:
                self._unsent[job_id] = _Unsent(assigned[0].table_id, queue)
        return assigned

    def unsent(self) -> list[UnsentJob]:
        """Return the jobs that were not noted as sent."""
        with self._lock:
            files = self._oldest_first()
            return [
                UnsentJob(
                    job_id=job_id,
                    table_id=job.table_id,
                    queue=job.queue,
                    paths=tuple(each.path for each in files if each.job_id == job_id),
                )
                for job_id, job in self._unsent.items()
            ]

    def note_sent(self, job_id: str) -> None:
        """Note that a job was sent."""
        with self._lock:
            self._unsent.pop(job_id, None)

    def delete_tables_except(self, table_ids: Iterable[str]) -> int:
        """Forget files and unsent jobs of all other tables."""
        kept = set(table_ids)
        with self._lock:
            gone = [job_id for job_id, job in self._unsent.items() if job.table_id not in kept]
            for job_id in gone:
                del self._unsent[job_id]
            return self._delete(lambda each: each.table_id not in kept)

    def delete_pending(self) -> int:
        """Forget files without a job."""
        return self._delete(lambda each: each.job_id is None)

    def delete_expired(self, now: datetime) -> int:
        """Forget files that have expired."""
        return self._delete(lambda each: each.expires < now and each.job_id not in self._unsent)

    def _oldest_first(self) -> list[SubmittedFile]:
        with self._lock:
            numbered = list(self._files.values())
        return [each for _, each in sorted(numbered, key=lambda of: (of[1].received, of[0]))]

    def _delete(self, unwanted: Callable[[SubmittedFile], bool]) -> int:
        with self._lock:
            keys = [key for key, (_, each) in self._files.items() if unwanted(each)]
            for key in keys:
                del self._files[key]
            return len(keys)
