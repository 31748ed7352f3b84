"""Properties of a table: what each does, its value and where that comes from, and a form."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Form
from fastapi.responses import Response

from sleeper.errors import PropertiesInvalid
from sleeper.interfaces.page.rendering import path_of
from sleeper.interfaces.page.visits import Administering, PageRoute, Reading, Visit, moved
from sleeper.model.known_properties.catalogue import TABLE_PROPERTIES
from sleeper.model.known_properties.typed import TableProperties
from sleeper.model.known_properties.value_kinds import JAVA_ITERATOR
from sleeper.model.tables import SCHEMA
from sleeper.tables.table import Table

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class PropertyLine:
    """A property of a table as the page shows it.

    Attributes:
        name: Its full name.
        group: The heading it is listed under.
        description: What it does.
        wanted: What a value must be.
        value: What is in force, or an empty text.
        own: What was set for the table, or an empty text.
        source: Where the value comes from.
        editable: Whether it can be changed.
    """

    name: str
    group: str
    description: str
    wanted: str
    value: str
    own: str
    source: str
    editable: bool


@router.get(path_of("tables") + "/{table:segment}/properties")
def show_properties(visit: Reading, table: str, find: str = "") -> Response:
    """Show the properties that have an effect, and all others that are set."""
    opened = visit.table(table)
    opened.refresh()
    return _page(visit, opened, find=find)


@router.post(path_of("tables") + "/{table:segment}/properties")
def set_property(
    visit: Administering,
    table: str,
    name: Annotated[str, Form()],
    value: Annotated[str, Form()] = "",
) -> Response:
    """Set a property of a table; an empty value takes it away."""
    opened = visit.table(table)
    try:
        opened.set_properties({name: value.strip() or None})
    except PropertiesInvalid as error:
        return _page(visit, opened, failed=name, failure=str(error), typed=value)
    return moved("tables", opened.name, "properties", done="saved", anchor=name)


def _page(
    visit: Visit,
    table: Table,
    *,
    find: str = "",
    failed: str = "",
    failure: str = "",
    typed: str = "",
) -> Response:
    word = find.strip().lower()
    groups: dict[str, list[PropertyLine]] = {}
    for line in _lines(table.properties):
        if word in f"{line.name} {line.description}".lower():
            groups.setdefault(line.group, []).append(line)
    return visit.page(
        "properties.html",
        status=HTTPStatus.BAD_REQUEST if failure else HTTPStatus.OK,
        table=table.name,
        find=find,
        groups=groups,
        failed=failed,
        failure=failure,
        typed=typed,
    )


def _lines(properties: TableProperties) -> list[PropertyLine]:
    known = {each.name: each for each in TABLE_PROPERTIES}
    lines = []
    for each in TABLE_PROPERTIES:
        own = properties.values.get(each.name, "")
        value = properties.text(each.name)
        can_be_set = each.used and each.editable and each.kind is not JAVA_ITERATOR
        if each.name == SCHEMA or not (own or can_be_set or (each.used and value)):
            continue
        source = "set here" if own else "the default"
        if not own and properties.is_given(each.name):
            source = "set for all tables of the instance"
        lines.append(
            PropertyLine(
                name=each.name,
                group=each.group,
                description=each.description,
                wanted=each.kind.wanted,
                value=value or "",
                own=own,
                source=source,
                editable=each.editable,
            )
        )
    lines += [
        PropertyLine(
            name=name,
            group="Not known to Sleeper",
            description="It is kept, and has no effect.",
            wanted="any text",
            value=value,
            own=value,
            source="set here",
            editable=True,
        )
        for name, value in sorted(properties.values.items())
        if name not in known
    ]
    return lines
