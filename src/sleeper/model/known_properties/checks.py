"""Checks of properties before they are stored, and warnings for what has no effect or a bad one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from sleeper.errors import PropertiesInvalid, SchemaInvalid
from sleeper.model.known_properties.catalogue import (
    INSTANCE_PROPERTIES_BY_NAME,
    KNOWN_INSTANCE_PROPERTIES,
    TABLE_PROPERTIES,
    TABLE_PROPERTIES_BY_NAME,
)
from sleeper.model.known_properties.given import misplaced_names, without_effect
from sleeper.model.known_properties.typed import InstanceProperties, TableProperties
from sleeper.model.known_properties.value_kinds import Property, given_text
from sleeper.model.processing import AGGREGATIONS, FILTERS, FUNCTION, parse_processing
from sleeper.model.schema import Schema
from sleeper.model.tables import SCHEMA, STATE_MOVE, STATE_STORE

_INSTEAD: Final = {
    "sleeper.table.name": "Rename the table instead.",
    SCHEMA: "Make a new table with the other schema instead.",
    STATE_STORE: "Move the table's state: `sleeper table migrate-state NAME --to CLASS`.",
    STATE_MOVE: "Only `sleeper table migrate-state` sets it.",
    "sleeper.id": "It was fixed when it was made: make another instance with the other id instead.",
    "sleeper.format.version": "Sleeper sets it when it makes an instance.",
    "sleeper.properties.version": "Sleeper counts it.",
    "sleeper.data.bucket": "It was fixed when it was made: copy the instance by `sleeper backup`.",
}


def validate_table_properties(
    values: Mapping[str, str], schema: Schema, *, given: Mapping[str, str | None] | None = None
) -> None:
    """Check all properties of a table and report every failure together (rule INS-6).

    Args:
        values: All that is set, by full name.
        schema: The table's.
        given: What a caller sets now. Misspelt names are refused here; stored ones may stay.

    Raises:
        PropertiesInvalid: one or more values or names are not allowed; each is in `failures`.
    """
    failures = misplaced_names(given or {}, TABLE_PROPERTIES_BY_NAME, INSTANCE_PROPERTIES_BY_NAME)
    failures |= _failures(values, TABLE_PROPERTIES)
    for check in (
        lambda: _read_schema(given_text(values, SCHEMA) or schema.to_json()),
        lambda: parse_processing(
            values.get(FILTERS), values.get(AGGREGATIONS), schema, values.get(FUNCTION)
        ),
    ):
        try:
            check()
        except PropertiesInvalid as error:
            failures |= error.failures
    _raise_in_order(failures, TABLE_PROPERTIES_BY_NAME)


def validate_instance_properties(
    values: Mapping[str, str], *, given: Mapping[str, str | None] | None = None
) -> None:
    """Check all properties of an instance, with its defaults for tables; report every failure.

    Raises:
        PropertiesInvalid: one or more values, or names that are set now, are not allowed.
    """
    failures = misplaced_names(given or {}, INSTANCE_PROPERTIES_BY_NAME, TABLE_PROPERTIES_BY_NAME)
    failures |= _failures(values, KNOWN_INSTANCE_PROPERTIES)
    _raise_in_order(failures, INSTANCE_PROPERTIES_BY_NAME)


def check_editable(before: Mapping[str, str], after: Mapping[str, str]) -> None:
    """Check that an edit of table or instance properties changes no fixed property.

    Raises:
        PropertiesInvalid: a name, id or schema would change; says what to do instead (rules SCH-9,
            TBL-3).
    """
    failures = {}
    for name, known in (TABLE_PROPERTIES_BY_NAME | INSTANCE_PROPERTIES_BY_NAME).items():
        old, new = given_text(before, name), given_text(after, name)
        if known.editable or old == new:
            continue
        advice = _INSTEAD.get(name, "It was fixed when it was made.")
        failures[name] = f"{name} cannot be changed here from {old!r} to {new!r}. {advice}"
    if failures:
        raise PropertiesInvalid(failures)


def table_property_warnings(
    given: Mapping[str, str | None], in_force: TableProperties | None = None
) -> list[str]:
    """Return warnings for what a caller sets for a table: without effect, or with a bad one.

    Args:
        given: What is set now.
        in_force: All that the table has afterwards; None to look at each property alone.
    """
    found = [] if in_force is None else _compaction_warnings(given, in_force)
    return without_effect(given, TABLE_PROPERTIES_BY_NAME) + found


def instance_property_warnings(
    given: Mapping[str, str | None], values: Mapping[str, str] | None = None
) -> list[str]:
    """Return warnings for what a caller sets for an instance, as `table_property_warnings` does."""
    in_force = None if values is None else TableProperties({}, InstanceProperties(values))
    found = [] if in_force is None else _compaction_warnings(given, in_force)
    return without_effect(given, INSTANCE_PROPERTIES_BY_NAME) + found


def _compaction_warnings(given: Mapping[str, str | None], in_force: TableProperties) -> list[str]:
    """Return a warning if compaction was set now, and never merges files."""
    if not any("table.compaction." in name for name in given):
        return []
    try:
        obstacle = in_force.compaction_obstacle
    except PropertiesInvalid:  # a wrong value that was stored before; whoever reads it is told
        return []
    if obstacle is None:
        return []
    advice = (
        "Increase sleeper.table.compaction.files.batch.size, or decrease "
        "sleeper.table.compaction.strategy.sizeratio.ratio."
    )
    return [f"{obstacle}. {advice}"]


def _read_schema(text: str) -> Schema:
    try:
        return Schema.from_json(text)
    except SchemaInvalid as error:
        raise PropertiesInvalid({SCHEMA: f"{SCHEMA} is {text!r}: {error}."}) from None


def _failures(values: Mapping[str, str], known: Iterable[Property]) -> dict[str, str]:
    failures: dict[str, str] = {}
    for each in known:
        text = given_text(values, each.name)
        if text is None:
            if each.required:
                failures[each.name] = f"{each.name} is not set, but it must be: {each.description}"
            continue
        try:
            each.parse(text)
        except PropertiesInvalid as error:
            failures |= error.failures
    return failures


def _raise_in_order(failures: dict[str, str], order: Mapping[str, Property]) -> None:
    if failures:
        names = [*(name for name in order if name in failures), *sorted(failures.keys() - order)]
        raise PropertiesInvalid({name: failures[name] for name in names})
