"""References to data files, and claims of compaction jobs on them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class FileReference:
    """The rows of one data file that belong to one partition.

    Partitions that reference the same file must have disjoint regions, or the
    rows in the overlap would be read twice (rule FRF-3).

    Attributes:
        filename: Path of the Parquet file inside the table's folder (`model.paths`).
        partition_id: The partition whose region selects the rows.
        row_count: Rows selected; an estimate when `row_count_estimated`.
        row_count_estimated: True after a push-down, until a compaction counts again.
        whole_file: True when this is the only reference to the file, so that every row of
            it belongs here; False when readers must select by the partition's region.
        job_id: The compaction job that has claimed this reference, if any.
        updated: When the state last changed this reference; set by the state (rule STS-5).

    Raises:
        ValueError: `row_count` is negative, or no file can have as many rows.

    Source: rules FRF-1, FRF-2.
    """

    filename: str
    partition_id: str
    row_count: int
    row_count_estimated: bool = False
    whole_file: bool = True
    job_id: str | None = None
    updated: datetime | None = None

    def __post_init__(self) -> None:
        if self.row_count < 0:
            raise ValueError(f"row_count must be 0 or more, not {self.row_count}")
        if self.row_count >= 2**63:
            raise ValueError("row_count must be below 2**63: no file can have as many rows")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimOwner:
    """The process that runs a compaction job, as reports show it. It holds no secret.

    Attributes:
        host: The name of its machine.
        pid: Its process id there.
        worker_id: A random id of the run.
    """

    host: str
    pid: int
    worker_id: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRecord:
    """A compaction job that has claimed files: its owner, and since when.

    Attributes:
        owner: Who runs it.
        since: When it claimed them.
        renewed: When it last renewed its claims; the lease counts from here.
    """

    owner: ClaimOwner
    since: datetime
    renewed: datetime
