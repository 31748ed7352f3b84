"""Which files of the ingest batcher become which jobs (rule BAT-4)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final

from sleeper.language.value_classes import dataclass
from sleeper.model.jobs.messages import QueueName
from sleeper.model.jobs.submitted_files import SubmittedFile
from sleeper.model.known_properties.typed import TableProperties

_CLOSED: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimits:
    """When a table's files become jobs, and how large these are.

    Attributes:
        files_min: Fewer files wait, unless one has waited too long.
        files_max: Files in a job, at most.
        bytes_min: Fewer bytes wait, unless a file has waited too long.
        bytes_max: Bytes in a job, at most; a larger file is a job by itself.
        age_max: No file waits longer.
        queue: Where jobs are sent.
        kept: How long one can ask which job a file went to, from its submission on.
    """

    files_min: int
    files_max: int
    bytes_min: int
    bytes_max: int
    age_max: timedelta
    queue: QueueName
    kept: timedelta


def batch_limits(properties: TableProperties) -> BatchLimits:
    """Return a table's limits, by its properties `sleeper.table.ingest.batcher.*`."""
    batcher = properties.batcher
    queue = batcher.ingest_queue.replace("standard_", "").replace("_", "-")
    return BatchLimits(
        files_min=batcher.job_min_files,
        files_max=batcher.job_max_files,
        bytes_min=batcher.job_min_bytes,
        bytes_max=batcher.job_max_bytes,
        age_max=timedelta(seconds=batcher.file_age_max_s),
        queue=QueueName(queue),
        kept=timedelta(minutes=min(batcher.tracking_minutes, 100 * 365 * 24 * 60)),
    )


def files_by_table(pending: Iterable[SubmittedFile]) -> dict[str, list[SubmittedFile]]:
    """Return the pending files of each table; tables and files in the order of the files."""
    by_table: dict[str, list[SubmittedFile]] = defaultdict(list)
    for file in pending:
        by_table[file.table_id].append(file)
    return dict(by_table)


def plan_batches(
    files: Sequence[SubmittedFile], limits: BatchLimits, now: datetime
) -> list[list[SubmittedFile]]:
    """Return which files of one table become a job together: all of them, or none yet.

    They become jobs when one was received before `now` less the greatest age, or when they are
    as many, and as many bytes, as a job waits for. Each file goes into the first job that has
    room for it (rule BAT-4).

    Args:
        files: The table's pending files, oldest first.
        limits: The table's limits.
        now: The time (aware, UTC).
    """
    return _first_fit(files, limits) if _is_due(files, limits, now) else []


def _is_due(files: Sequence[SubmittedFile], limits: BatchLimits, now: datetime) -> bool:
    oldest = min((file.received for file in files), default=now)
    if oldest < now - limits.age_max:
        return True
    enough_bytes = sum(file.size_bytes for file in files) >= limits.bytes_min
    return bool(files) and len(files) >= limits.files_min and enough_bytes


def _first_fit(files: Sequence[SubmittedFile], limits: BatchLimits) -> list[list[SubmittedFile]]:
    batches: list[list[SubmittedFile]] = []
    room = _Room()
    for file in files:
        size_bytes = file.size_bytes
        at = room.first_with(size_bytes)
        if at is None:
            batches.append([file])
            left = limits.bytes_max - size_bytes
            room.append(left if limits.files_max > 1 else _CLOSED)
        else:
            batch = batches[at]
            batch.append(file)
            is_full = len(batch) >= limits.files_max
            room.set(at, _CLOSED if is_full else room.of(at) - size_bytes)
    return batches


class _Room:
    """The bytes that are left in each of a list of batches; finds the first with enough.

    A complete binary tree in a list: each node has the greatest of the two beneath it, so that
    finding, changing and adding one take a step for each level.
    """

    def __init__(self) -> None:
        self._leaves = 1
        self._tree = [_CLOSED, _CLOSED]  # node n is above nodes 2n and 2n + 1; the root is 1
        self._count = 0

    def of(self, at: int) -> int:
        """Return what is left in a batch."""
        return self._tree[self._leaves + at]

    def first_with(self, wanted: int) -> int | None:
        """Return the first batch that has as much left; None without one."""
        tree, leaves = self._tree, self._leaves
        if tree[1] < wanted:
            return None
        node = 1
        while node < leaves:
            node *= 2
            if tree[node] < wanted:
                node += 1
        return node - leaves

    def append(self, left: int) -> None:
        """Add a batch at the end."""
        if self._count == self._leaves:
            self._double()
        self._count += 1
        self.set(self._count - 1, left)

    def set(self, at: int, left: int) -> None:
        """Change what is left in a batch."""
        tree = self._tree
        node = self._leaves + at
        tree[node] = left
        while node > 1:
            other = tree[node ^ 1]
            node //= 2
            most = max(other, left)
            if tree[node] == most:
                return
            tree[node] = left = most

    def _double(self) -> None:
        levels = [self._tree[self._leaves :] + [_CLOSED] * self._leaves]
        while len(levels[-1]) > 1:
            beneath = levels[-1]
            levels.append(list(map(max, beneath[::2], beneath[1::2])))
        self._leaves *= 2
        self._tree = [_CLOSED, *(value for level in reversed(levels) for value in level)]
