"""Routes of tables: list, create, show, change, delete; their partitions and files."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from sleeper.errors import PropertiesInvalid
from sleeper.interfaces.json_documents import change_document, table_document
from sleeper.interfaces.rest.authorization import ADMIN, READ, CheckedRoute
from sleeper.interfaces.rest.bodies import ChangedColumns, ChangedProperties, ChangedTable, NewTable
from sleeper.interfaces.rest.json_values import json_answer, split_points_of
from sleeper.interfaces.rest.served_instance import served_instance
from sleeper.model.schema import Schema
from sleeper.model.tables import NAME

router = APIRouter(prefix="/sleeper/tables", tags=["tables"], route_class=CheckedRoute)

_SPLITS_FILE = "sleeper.table.splits.file"
_FLIGHTS = {"name": "flights", "id": "1f0c61a2", "online": True}


def answers(example: Any, status: int = 200) -> dict[int | str, dict[str, Any]]:
    """Return what the documentation says of a route's answer."""
    return {status: {"content": {"application/json": {"example": example}}}}


@router.get("", dependencies=[READ], responses=answers({"tables": [_FLIGHTS]}))
def list_tables(
    request: Request,
    *,
    properties: Annotated[bool, Query(description="true for their properties too.")] = False,
) -> Response:
    """List the tables by name."""
    records = served_instance(request).instance.tables()
    found: list[dict[str, Any]] = [
        {"name": r.name, "id": r.table_id, "online": r.online} for r in records
    ]
    if properties:
        for document, record in zip(found, records, strict=True):
            document["properties"] = dict(record.properties)
    return json_answer({"tables": found})


@router.post(
    "",
    status_code=201,
    dependencies=[ADMIN],
    responses=answers({"tableId": "1f0c61a2", "tableName": "flights"}, 201),
)
def create_table(body: NewTable, request: Request) -> Response:
    """Create a table, as upstream's API does.

    `sleeper.table.splits.file` is refused: it would name a file of the server. Give splitPoints.
    """
    properties = dict(body.properties)
    schema = Schema.from_json(body.schema_)
    name = properties.pop(NAME, None)
    if name is None:
        raise PropertiesInvalid({NAME: f"{NAME} is missing: it is the name of the new table"})
    _check_no_file(properties)
    points = split_points_of(schema, body.split_points or [])
    instance = served_instance(request).instance
    made = instance.create_table(name, schema, split_points=points, properties=properties)
    return json_answer({"tableId": made.table_id, "tableName": made.name}, 201)


@router.get("/{table:segment}", dependencies=[READ], responses=answers(_FLIGHTS))
def show_table(table: str, request: Request) -> Response:
    """Show the schema, properties and size of a table."""
    opened = served_instance(request).table(table)
    files = opened.report_files()
    return json_answer(table_document(opened, files))


@router.delete("/{table:segment}", status_code=204, dependencies=[ADMIN])
def delete_table(table: str, request: Request) -> Response:
    """Delete a table with all its data. This cannot be undone."""
    served_instance(request).instance.delete_table(table)
    return Response(status_code=204)


@router.get(
    "/{table:segment}/properties",
    dependencies=[READ],
    responses=answers(
        {**_FLIGHTS, "properties": {"sleeper.table.parquet.compression.codec": "zstd"}}
    ),
)
def show_properties(table: str, request: Request) -> Response:
    """Show the properties of a table that are set, its schema among them.

    `defaults` are those of the instance that hold where a table has none.
    """
    served = served_instance(request)
    opened = served.table(table)
    opened.refresh()
    defaults = served.instance.properties.values.items()
    return json_answer(
        {
            "name": opened.name,
            "id": opened.table_id,
            "online": opened.online,
            "properties": dict(opened.properties.values),
            "defaults": {k: v for k, v in defaults if k.startswith("sleeper.default.")},
        }
    )


@router.patch("/{table:segment}/properties", status_code=204, dependencies=[ADMIN])
def change_properties(table: str, body: ChangedProperties, request: Request) -> Response:
    """Set properties of a table."""
    _check_no_file(body.properties)
    served_instance(request).table(table).set_properties(body.properties)
    return Response(status_code=204)


@router.patch("/{table:segment}", status_code=204, dependencies=[ADMIN])
def change_table(table: str, body: ChangedTable, request: Request) -> Response:
    """Rename a table, or turn background operations on it on or off."""
    opened = served_instance(request).table(table)
    if body.name is not None:
        opened.rename(body.name)
    if body.online is not None:
        opened.set_online(online=body.online)
    return Response(status_code=204)


@router.post(
    "/{table:segment}/alter",
    dependencies=[ADMIN],
    responses=answers(
        {
            "transaction": 6,
            "schema": {
                "rowKeyFields": [{"name": "tailnum", "type": "StringType", "id": 1}],
                "sortKeyFields": [],
                "valueFields": [{"name": "dest", "type": "StringType", "id": 2}],
                "schemaId": 2,
                "lastFieldId": 2,
            },
        }
    ),
)
def change_columns(table: str, body: ChangedColumns, request: Request) -> Response:
    """Add, drop, rename or widen columns, or let them be null. No data file is written.

    Rows of before have null, or the default, in new columns. In format 1 it is refused (`upgrade`).
    """
    _check_no_file(body.properties)
    done = served_instance(request).table(table).alter(**body.arguments())
    return json_answer(change_document(done))


@router.get("/{table:segment}/partitions", dependencies=[READ])
def list_partitions(table: str, request: Request) -> Response:
    """Describe every partition, leaves in key order first."""
    return json_answer({"partitions": served_instance(request).table(table).report_partitions()})


@router.get("/{table:segment}/files", dependencies=[READ])
def list_files(
    table: str,
    request: Request,
    *,
    verbose: Annotated[bool, Query(description="true for every file reference too.")] = False,
) -> Response:
    """Count the files of a table."""
    opened = served_instance(request).table(table)
    found = opened.report_files()
    if not verbose:
        return json_answer({"files": found})
    return json_answer({"files": found, "references": opened.references()})


def _check_no_file(properties: Any) -> None:
    """Refuse the property that names a file of the server.

    Raises:
        PropertiesInvalid: it is there.
    """
    if properties.get(_SPLITS_FILE):
        raise PropertiesInvalid(
            {_SPLITS_FILE: f"{_SPLITS_FILE} names a file of the server: give splitPoints instead"}
        )
