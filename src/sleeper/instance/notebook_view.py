"""What notebooks show for an instance."""

from __future__ import annotations

from collections.abc import Sequence

from sleeper.html.markup import counted, element, grid
from sleeper.html.values import in_notebook
from sleeper.model.schema import Schema
from sleeper.model.tables import SCHEMA, TableRecord

_TABLES_MAX = 50


def instance_html(instance_id: str, url: str, tables: Sequence[TableRecord]) -> str:
    """Return an instance's id and URL, and a list of its tables."""
    rows = [
        (
            record.name,
            ", ".join(Schema.from_json(record.properties[SCHEMA]).row_key_names),
            record.table_id,
            "online" if record.online else "offline",
        )
        for record in tables[:_TABLES_MAX]
    ]
    caption = counted(len(tables), "table")
    if len(tables) > _TABLES_MAX:
        caption += f"; the first {_TABLES_MAX} by name"
    return in_notebook(
        element("strong", f"Instance {instance_id}"),
        " at ",
        element("code", url),
        grid(["name", "row keys", "id", "maintenance"], rows, caption=caption),
    )
