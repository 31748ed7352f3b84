"""Results as JSON documents: for the command line with `--json`, and for the REST server."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from datetime import date, datetime
from typing import Any

from sleeper import errors
from sleeper.errors import SleeperError
from sleeper.model.tables import SCHEMA
from sleeper.tables.alter import ColumnChange
from sleeper.tables.report import FilesReport
from sleeper.tables.table import Table


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


def change_document(done: ColumnChange) -> dict[str, Any]:
    """Return what a change of columns shows."""
    return {"transaction": done.transaction, "schema": json.loads(done.schema.to_json())}


def error_of(document: Mapping[str, Any]) -> SleeperError:
    """Return the error that a problem document tells of; a class that is not known is our base.

    Raises:
        LookupError: it is no problem document of ours.
        TypeError: as before.
    """
    name, detail = document["class"], document["detail"]
    kind = getattr(errors, str(name), SleeperError)
    if not (isinstance(kind, type) and issubclass(kind, SleeperError)):
        kind = SleeperError
    error = kind.__new__(kind, detail)
    for key, value in document.get("attributes", {}).items():
        setattr(error, key, tuple(value) if isinstance(value, list) else value)
    return error
