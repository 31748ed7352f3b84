"""Maintenance of a table: what compaction, splitting and the collector would do now, and why."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter
from fastapi.responses import Response

from sleeper.interfaces.page.rendering import first, listing, path_of
from sleeper.interfaces.page.visits import PageRoute, Reading
from sleeper.pictures.tree import region_text

router = APIRouter(route_class=PageRoute, include_in_schema=False)

_SHOWN: Final = 50


@router.get(path_of("tables") + "/{table:segment}/maintenance")
def show_maintenance(visit: Reading, table: str, page: int = 1, look: str = "") -> Response:
    """Show what maintenance would do; orphans are looked for when they are asked for."""
    opened = visit.table(table)
    plan = opened.plan_compaction()
    plans = listing(plan.leaves, page)
    tree = opened.state().tree
    keys = [
        region_text(tree.partition(each.partition_id), opened.schema)
        if each.partition_id in tree
        else each.partition_id
        for each in plans.entries
    ]
    large = [each for each in opened.leaf_sizes() if each.too_large]
    garbage, more_garbage = first(opened.garbage(), _SHOWN)
    orphans = opened.orphans() if look == "orphans" else None
    return visit.page(
        "maintenance.html",
        table=opened.name,
        online=opened.online,
        plan=plan,
        plans=plans,
        keys=keys,
        claims=opened.claims()[:_SHOWN],
        large=[(region_text(each.partition, opened.schema), each) for each in large[:_SHOWN]],
        large_count=len(large),
        split_rows=opened.properties.splitting.threshold_rows,
        garbage=garbage,
        more_garbage=more_garbage,
        gc=opened.properties.gc,
        orphans=orphans,
        shown=_SHOWN,
    )
