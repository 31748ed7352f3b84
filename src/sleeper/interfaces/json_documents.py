"""Results as JSON documents: for the command line with `--json`, and for the REST server."""

from __future__ import annotations

import json
from dataclasses import asdict, is_dataclass
from datetime import date, datetime
from typing import Any

from sleeper.model.known_properties.typed import SCHEMA
from sleeper.operations.report import FilesReport
from sleeper.table.table import Table


def plain_value(value: Any) -> Any:
    """Return a result value that JSON has not as one that it has: for `default` of `json.dumps`."""
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return value.isoformat() if isinstance(value, date | datetime) else str(value)


def table_document(table: Table, files: FilesReport) -> dict[str, Any]:
    """Return what `sleeper table show --json` shows of a table."""
    return {
        "name": table.name,
        "id": table.table_id,
        "online": table.online,
        "schema": json.loads(table.schema.to_json()),
        "properties": {k: v for k, v in table.properties.values.items() if k != SCHEMA},
        "files": files,
    }
