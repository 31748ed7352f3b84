"""What notebooks show for an instance."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sleeper.model.schema import Schema
from sleeper.model.tables import SCHEMA
from sleeper.pictures.markup import counted, element, grid, joined
from sleeper.pictures.views import VIEW_STYLE

if TYPE_CHECKING:
    from sleeper.instance.instance import Instance

_TABLES_MAX = 50


def instance_html(instance: Instance) -> str:
    """Return the instance's id and URL, and a list of its tables."""
    records = instance.tables()
    rows = [
        (
            record.name,
            ", ".join(Schema.from_json(record.properties[SCHEMA]).row_key_names),
            record.table_id,
            "online" if record.online else "offline",
        )
        for record in records[:_TABLES_MAX]
    ]
    caption = counted(len(records), "table")
    if len(records) > _TABLES_MAX:
        caption += f"; the first {_TABLES_MAX} by name"
    parts = [
        VIEW_STYLE,
        joined(
            [
                element("strong", f"Instance {instance.instance_id}"),
                " at ",
                element("code", instance.url),
            ]
        ),
        grid(["name", "row keys", "id", "maintenance"], rows, caption=caption),
    ]
    return element("div", joined(parts), class_="sleeper-view")
