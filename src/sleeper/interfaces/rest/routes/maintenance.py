"""Routes of maintenance: what would be done and why, and doing it while the request waits."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import Response

from sleeper.interfaces.rest.authorization import ADMIN, READ, CheckedRoute
from sleeper.interfaces.rest.bodies import (
    CompactBody,
    PublishBody,
    PurgeBody,
    RowsByKey,
    UnpublishBody,
)
from sleeper.interfaces.rest.json_values import json_answer
from sleeper.interfaces.rest.served_instance import served_instance
from sleeper.interfaces.rest.statements.questions import asked_of

router = APIRouter(
    prefix="/sleeper/tables/{table:segment}", tags=["maintenance"], route_class=CheckedRoute
)


@router.get("/compaction", dependencies=[READ])
def plan_compaction(table: str, request: Request) -> Response:
    """Show which compactions would run now, and why."""
    return json_answer(served_instance(request).table(table).plan_compaction())


@router.get("/claims", dependencies=[READ])
def list_claims(table: str, request: Request) -> Response:
    """List the claims of compaction jobs on files."""
    return json_answer({"claims": served_instance(request).table(table).claims()})


@router.post("/compact", dependencies=[ADMIN])
def compact(table: str, body: CompactBody, request: Request) -> Response:
    """Merge files, so that queries read fewer."""
    done = served_instance(request).table(table).compact(all_files=body.all_files)
    return json_answer(
        {
            "jobs": len(done.jobs),
            "pushed_down": done.pushed_down,
            "transaction": done.transaction,
        }
    )


@router.post("/upgrade", dependencies=[ADMIN])
def upgrade(table: str, request: Request) -> Response:
    """Give the table format 2: its log says who changed what, and rows can be deleted."""
    return json_answer(served_instance(request).table(table).upgrade())


@router.post("/downgrade", dependencies=[ADMIN])
def downgrade(table: str, request: Request) -> Response:
    """Give the table format 1 again, for versions of Sleeper before format 2."""
    return json_answer(served_instance(request).table(table).downgrade())


@router.post("/split", dependencies=[ADMIN])
def split(table: str, request: Request) -> Response:
    """Split large leaf partitions."""
    done = served_instance(request).table(table).split_partitions()
    return json_answer({"splits": len(done)})


@router.post("/gc", dependencies=[ADMIN])
def collect_garbage(table: str, request: Request) -> Response:
    """Delete files that are no longer referenced, once they are old enough."""
    return json_answer(served_instance(request).table(table).collect_garbage())


@router.get("/publications", dependencies=[READ])
def list_publications(table: str, request: Request) -> Response:
    """Show what is published for other engines, and how far it lags behind."""
    return json_answer({"publications": served_instance(request).table(table).publications()})


@router.post("/publish", dependencies=[ADMIN])
def publish(table: str, body: PublishBody, request: Request) -> Response:
    """Let other engines read the table's files in place."""
    opened = served_instance(request).table(table)
    return json_answer(opened.publish(body.as_, make_clean=body.make_clean))


@router.post("/unpublish", dependencies=[ADMIN])
def unpublish(table: str, body: UnpublishBody, request: Request) -> Response:
    """Remove what other engines read the table by. Rows and data files stay."""
    deleted = served_instance(request).table(table).unpublish(body.as_)
    return json_answer({"format": body.as_, "deleted": deleted})


@router.post("/purge", dependencies=[ADMIN])
def purge(table: str, body: PurgeBody, request: Request) -> Response:
    """Remove row keys from all that is stored of the table, and answer with the proof."""
    opened = served_instance(request).table(table)
    keys = asked_of(opened.schema, RowsByKey(keys=body.keys))["keys"]
    return json_answer(opened.purge(keys=keys).to_json())


@router.get("/purges", dependencies=[READ])
def list_purges(table: str, request: Request) -> Response:
    """List the purges of the table, the newest first, with how far each is."""
    found = served_instance(request).table(table).purges()
    return json_answer({"purges": [each.to_json() for each in found]})
