"""A table: its counts, its partition tree and leaves as pictures, and its fields."""

from __future__ import annotations

from typing import Any, Final

from fastapi import APIRouter
from fastapi.responses import Response

from sleeper.interfaces.page.rendering import listing, path_of
from sleeper.interfaces.page.visits import PageRoute, Reading
from sleeper.model.schema import schema_grid
from sleeper.pictures.charts import files_picture
from sleeper.pictures.svg import NARROW, WIDE
from sleeper.pictures.tree import tree_picture
from sleeper.tables.plots import leaf_amounts

router = APIRouter(route_class=PageRoute, include_in_schema=False)

_WIDTHS: Final = (WIDE, NARROW)


@router.get(path_of("tables") + "/{table:segment}")
def show_table(visit: Reading, table: str, page: int = 1) -> Response:
    """Show a table."""
    opened = visit.table(table)
    state = opened.state()
    totals = state.files.totals()
    leaves = leaf_amounts(opened.schema, state)
    split_rows = opened.properties.splitting.threshold_rows
    facts: dict[str, Any] = {
        "rows": sum(total.rows for total in totals.values()),
        "estimated": any(total.estimated for total in totals.values()),
        "files": state.files.file_count,
        "leaves_count": state.tree.leaf_count,
        "transaction": state.number,
        "at": state.at,
    }
    return visit.page(
        "table.html",
        table=opened.name,
        table_id=opened.table_id,
        online=opened.online,
        trees=[tree_picture(state.tree, totals, opened.schema, width=w) for w in _WIDTHS],
        pictures=[files_picture(leaves, split_rows=split_rows, width=w) for w in _WIDTHS],
        schema=schema_grid(opened.schema),
        leaves=listing(leaves, page),
        **facts,
    )
