"""Jobs, queues, the batcher and dead letters."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any, Final

from fastapi import APIRouter, Form
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from sleeper.interfaces.page.rendering import first, path_of
from sleeper.interfaces.page.visits import Administering, PageRoute, Reading, Visit, moved
from sleeper.model.jobs.kinds import ANSWERS, JobKind
from sleeper.model.jobs.query_statuses import QueryStatus
from sleeper.model.jobs.statuses import JobState, JobStatus, seconds_between

router = APIRouter(route_class=PageRoute, include_in_schema=False)

_SHOWN: Final = 50


@router.get(path_of("jobs"))
def show_jobs(visit: Reading, kind: str = "ingest", state: str = "", live: str = "yes") -> Response:
    """Show the newest jobs of a kind, and what waits."""
    if kind not in [*JobKind] or (state and state not in JobState.__members__):
        raise HTTPException(HTTPStatus.NOT_FOUND, "there are no such jobs")
    jobs = visit.instance.jobs
    depths = jobs.queue_depths()
    files, more_files = first(jobs.submitted_files(pending=True), _SHOWN)
    lines, more = _jobs(visit, JobKind(kind), state)
    return visit.page(
        "jobs.html",
        kind=kind,
        kinds=[each.value for each in JobKind],
        state=state,
        states=[] if kind in ANSWERS else [each.value for each in JobState],
        live=live != "no",
        lines=lines,
        more=more,
        names=_names(visit),
        depths=[
            (name.value, depth)
            for name, depth in depths.items()
            if depth.ready or depth.hidden or depth.dead
        ],
        files=files,
        more_files=more_files,
        at=visit.now(),
    )


@router.get(path_of("dead-letters"))
def show_dead_letters(visit: Reading) -> Response:
    """Show the messages of each queue that are delivered no more."""
    jobs = visit.instance.jobs
    counts = {name: depth.dead for name, depth in jobs.queue_depths().items() if depth.dead}
    queues = [
        (name.value, count, jobs.dead_letters(name, limit=_SHOWN)) for name, count in counts.items()
    ]
    return visit.page("dead_letters.html", queues=queues)


@router.post(path_of("dead-letters"))
def redrive(
    visit: Administering, queue: Annotated[str, Form()], message: Annotated[str, Form()] = ""
) -> Response:
    """Put one dead letter, or all of a queue, back into the queue."""
    visit.instance.jobs.redrive(queue, [message] if message else None)
    return moved("dead-letters", done="redriven")


def _names(visit: Visit) -> dict[str, str]:
    return {record.table_id: record.name for record in visit.instance.tables()}


def _jobs(visit: Visit, kind: JobKind, state: str) -> tuple[list[dict[str, Any]], bool]:
    jobs = visit.instance.jobs
    if kind in ANSWERS:
        asked, more = first(jobs.queries(kind=kind), _SHOWN)
        return [_query_line(each) for each in asked], more
    found, more = first(jobs.list(kind=kind, state=state or None), _SHOWN)
    return [_job_line(each) for each in found], more


def _job_line(status: JobStatus) -> dict[str, Any]:
    run = status.furthest_run
    return {
        "id": status.job_id,
        "table_id": status.table_id,
        "state": status.state.value,
        "updated": status.updated,
        "rows": run.rows_written if run else None,
        "seconds": run.seconds if run else None,
        "reasons": status.reasons[:3],
    }


def _query_line(status: QueryStatus) -> dict[str, Any]:
    return {
        "id": status.query_id,
        "table_id": status.table_id,
        "state": status.state.value,
        "updated": status.updated,
        "rows": status.rows,
        "seconds": seconds_between(status.started, status.finished),
        "reasons": status.errors[:3],
    }
