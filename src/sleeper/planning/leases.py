"""Finds compaction jobs whose lease has ended."""

from __future__ import annotations

from datetime import datetime

from sleeper.state.table_state import TableState
from sleeper.state.transactions.claims import Claim


def expired_claims(state: TableState, before: datetime) -> tuple[Claim, ...]:
    """Return claims made before a time and not renewed since: each job once a partition."""
    found: dict[tuple[str, str], list[str]] = {}
    for partition_id, totals in state.files.totals().items():
        if not totals.references_on_jobs:
            continue
        for reference in state.files.references_on(partition_id):
            job_id, claimed = reference.job_id, reference.updated
            if job_id is None or claimed is None:
                continue
            record = state.claims.get(job_id)
            renewed = record.renewed if record else claimed
            if max(claimed, renewed) < before:
                found.setdefault((job_id, partition_id), []).append(reference.filename)
    return tuple(
        Claim(job_id=job_id, partition_id=partition_id, filenames=tuple(names))
        for (job_id, partition_id), names in sorted(found.items())
    )
