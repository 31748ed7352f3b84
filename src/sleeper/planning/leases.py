"""Which compaction jobs have had their files for too long (design section 9)."""

from __future__ import annotations

from datetime import datetime

from sleeper.state.table_state import TableState
from sleeper.state.transactions.claims import Claim


def expired_claims(state: TableState, before: datetime) -> tuple[Claim, ...]:
    """Return what jobs claimed before a time: each job once a partition, by job id."""
    found: dict[tuple[str, str], list[str]] = {}
    for partition_id, totals in state.files.totals().items():
        if not totals.references_on_jobs:
            continue
        for reference in state.files.references_on(partition_id):
            claimed = reference.updated
            if reference.job_id is not None and claimed is not None and claimed < before:
                found.setdefault((reference.job_id, partition_id), []).append(reference.filename)
    return tuple(
        Claim(job_id=job_id, partition_id=partition_id, filenames=tuple(names))
        for (job_id, partition_id), names in sorted(found.items())
    )
