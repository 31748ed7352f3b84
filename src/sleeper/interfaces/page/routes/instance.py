"""The instance at a glance: its tables, its jobs by state, and whether it is paused."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, Final

from fastapi import APIRouter
from fastapi.responses import Response

from sleeper.errors import BadRequest, SleeperError
from sleeper.interfaces.page.rendering import first, listing, path_of
from sleeper.interfaces.page.visits import Administering, PageRoute, Reading, Visit, moved
from sleeper.model.jobs.kinds import JobKind
from sleeper.model.tables import TableRecord

router = APIRouter(route_class=PageRoute, include_in_schema=False)

_TABLES: Final = 20
_JOBS_MAX: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class TableLine:
    """A table in the list.

    Attributes:
        name: Its name.
        online: Whether maintenance runs on it.
        rows: Its rows; None if it cannot be read.
        files: Its files.
        size_bytes: Their bytes: of those whose size is known.
        leaves: Its leaves.
        failure: Why it cannot be read.
    """

    name: str
    online: bool
    rows: int | None = None
    files: int | None = None
    leaves: int | None = None
    size_bytes: int | None = None
    failure: str = ""


@router.get(path_of())
def show_instance(visit: Reading, page: int = 1) -> Response:
    """Show the instance."""
    found = listing(visit.instance.tables(), page, _TABLES)
    return visit.page(
        "instance.html",
        url=visit.instance.url,
        paused_since=visit.instance.pause_switch.paused_since(),
        tables=found,
        lines=[_line(visit, record) for record in found.entries],
        **_jobs(visit),
    )


@router.post(path_of("pause"))
def pause(visit: Administering) -> Response:
    """Stop services and workers."""
    visit.instance.pause_switch.pause()
    return moved(done="paused")


@router.post(path_of("resume"))
def resume(visit: Administering) -> Response:
    """Let services and workers begin again."""
    visit.instance.pause_switch.resume()
    return moved(done="resumed")


def _line(visit: Visit, record: TableRecord) -> TableLine:
    try:
        state = visit.table(record.name).state()
        leaves = state.tree.leaf_count
    except SleeperError as error:
        return TableLine(name=record.name, online=record.online, failure=str(error))
    totals = state.files.totals().values()
    return TableLine(
        name=record.name,
        online=record.online,
        rows=sum(total.rows for total in totals),
        files=state.files.file_count,
        leaves=leaves,
        size_bytes=state.files.referenced_bytes()[0],
    )


def _jobs(visit: Visit) -> dict[str, Any]:
    """Count the newest jobs by state, and what waits in queues."""
    try:
        jobs = visit.instance.jobs
    except BadRequest as error:
        return {"no_jobs": str(error), "job_counts": {}, "queues": {}, "dead": 0}
    counts = {}
    for kind in (JobKind.INGEST, JobKind.COMPACTION):
        newest, is_more = first(jobs.list(kind=kind), _JOBS_MAX)
        by_state = Counter(job.state.value for job in newest)
        counts[kind.value] = (sorted(by_state.items()), len(newest), is_more)
    depths = jobs.queue_depths()
    queues = {name.value: depth for name, depth in depths.items() if depth.ready or depth.hidden}
    dead = sum(depth.dead for depth in depths.values())
    return {"no_jobs": "", "job_counts": counts, "queues": queues, "dead": dead}
