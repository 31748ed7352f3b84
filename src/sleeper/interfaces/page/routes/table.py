"""A table: its counts and first rows, its partition tree and leaves as pictures, and its fields."""

from __future__ import annotations

from typing import Any, Final

from fastapi import APIRouter
from fastapi.responses import Response

from sleeper.errors import SleeperError
from sleeper.html.markup import Markup
from sleeper.interfaces.page.rendering import listing, path_of
from sleeper.interfaces.page.routes.rows import grid_of
from sleeper.interfaces.page.visits import PageRoute, Reading
from sleeper.model.schema import schema_grid
from sleeper.pictures.charts import files_picture
from sleeper.pictures.svg import NARROW, WIDE
from sleeper.pictures.tree import tree_picture
from sleeper.tables.plots import leaf_amounts

router = APIRouter(route_class=PageRoute, include_in_schema=False)

_SAMPLE: Final = 5
_WIDTHS: Final = (WIDE, NARROW)


@router.get(path_of("tables") + "/{table:segment}")
def show_table(visit: Reading, table: str, page: int = 1) -> Response:
    """Show a table."""
    opened = visit.table(table)
    state = opened.state()
    totals = state.files.totals()
    leaves = leaf_amounts(opened.schema, state)
    size_bytes, is_whole_size = state.files.referenced_bytes()
    try:
        sample, caption, failure = *grid_of(opened.query(limit=_SAMPLE + 1), _SAMPLE), ""
    except SleeperError as error:
        sample, caption, failure = Markup(), "", str(error)
    split_rows = opened.properties.splitting.threshold_rows
    facts: dict[str, Any] = {
        "rows": sum(total.rows for total in totals.values()),
        "estimated": any(total.estimated for total in totals.values()),
        "files": state.files.file_count,
        "size_bytes": size_bytes,
        "is_whole_size": is_whole_size,
        "leaves_count": state.tree.leaf_count,
        "transaction": state.number,
        "at": state.at,
    }
    return visit.page(
        "table.html",
        table=opened.name,
        table_id=opened.table_id,
        online=opened.online,
        sample=sample,
        caption=caption,
        failure=failure,
        trees=[tree_picture(state.tree, totals, opened.schema, width=w) for w in _WIDTHS],
        pictures=[files_picture(leaves, split_rows=split_rows, width=w) for w in _WIDTHS],
        schema=schema_grid(opened.schema),
        leaves=listing(leaves, page),
        **facts,
    )
