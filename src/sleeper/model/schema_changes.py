"""Changes of a table's columns: what may change, and the schema that comes of it (rules COL).

A field is known by its id: files keep the names that they were written with, and readers find a
field in them by its id (docs/format.md). So a field that is dropped and one that is added later are
two, whatever their names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches

from sleeper.errors import SchemaInvalid
from sleeper.model.column_types import DecimalType, traits_of
from sleeper.model.schema import Field, FieldType, Schema, type_to_text


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaChange:
    """A change of columns: first some are dropped, then renamed, then changed, then added.

    Attributes:
        drop: Names of value fields that the table has no longer.
        rename: New names of value fields.
        widen: New types of value fields, by their names before the change.
        nullable: Names, before the change, of value fields that may be null from now on.
        add: New value fields, which become the last columns. Each may be null, or has a default.
    """

    drop: tuple[str, ...] = ()
    rename: Mapping[str, str] = field(default_factory=dict)
    widen: Mapping[str, FieldType] = field(default_factory=dict)
    nullable: tuple[str, ...] = ()
    add: tuple[Field, ...] = ()

    @property
    def is_empty(self) -> bool:
        """True if nothing changes."""
        return not (self.drop or self.rename or self.widen or self.nullable or self.add)


def with_ids(schema: Schema) -> Schema:
    """Return a schema whose fields have ids: those of a first schema are counted from 1 on.

    The order is that of data files, so that everybody gives a field the same id.
    """
    if schema.last_id:
        return schema
    numbered = [
        replace(each, id=number, first_name=each.name)
        for number, each in enumerate(schema.fields, 1)
    ]
    rows, keys = len(schema.row_keys), len(schema.keys)
    return replace(
        schema,
        row_keys=tuple(numbered[:rows]),
        sort_keys=tuple(numbered[rows:keys]),
        values=tuple(numbered[keys:]),
        last_id=len(numbered),
    )


def changed_schema(schema: Schema, change: SchemaChange) -> Schema:
    """Return the schema of a table after a change of its columns.

    A change to what is there already, such as a new name that is the old one, is none: then it is
    the same schema, with its number.

    Raises:
        SchemaInvalid: a field is not there, or is a key; a name is taken; a type is not wider; or a
            new field can have no value in rows that are there.
    """
    before = with_ids(schema)
    _check_names(before, change)
    values, names = list[Field](), {each.name: each.name for each in before.fields}
    for each in before.values:
        if each.name in change.drop:
            del names[each.name]
            continue
        after = each
        if each.name in change.widen:
            after = replace(after, type=_wider(each, change.widen[each.name]))
        if each.name in change.nullable:
            after = replace(after, nullable=True)
        after = replace(after, name=change.rename.get(each.name, each.name))
        names[each.name] = after.name
        values.append(after)
    if tuple(values) == before.values and not change.add:
        return schema
    last_id = before.last_id
    for new in change.add:
        if not new.nullable and new.default is None:
            raise SchemaInvalid(
                f"field {new.name!r} has no value in the rows that are there: make it nullable, or "
                "give it a default"
            )
        last_id += 1
        values.append(replace(new, id=last_id, first_name=None))
    columns = [names[name] for name in before.columns if name in names]
    return Schema(
        row_keys=before.row_keys,
        sort_keys=before.sort_keys,
        values=tuple(values),
        columns=(*columns, *(new.name for new in change.add)),
        number=before.number + 1,
        last_id=last_id,
    )


def shown_like(schema: Schema, newer: Schema) -> Schema:
    """Return a schema of a log with its columns in the order in which the table has them now.

    The log may have no order for the first schema. If the columns that the table still has are in
    the order of data files, so were all; else those that it has no longer come last.
    """
    if not schema.columns_as_stored or schema.last_id:
        return schema
    known = {each.id: each.name for each in with_ids(newer).fields}
    places = {name: place for place, name in enumerate(newer.columns)}

    def place(each: Field) -> int:
        return places.get(known.get(each.id, ""), len(places))

    fields = with_ids(schema).fields
    kept = [place(each) for each in fields if place(each) < len(places)]
    if kept == sorted(kept):
        return schema
    ordered = sorted(fields, key=place)
    return replace(schema, columns=tuple(each.name for each in ordered))


def _wider(given: Field, wanted: FieldType) -> FieldType:
    """Return the wider type; raise SchemaInvalid if a value of the field could change in it."""
    kind = given.type
    if isinstance(kind, DecimalType) and isinstance(wanted, DecimalType):
        fits = kind.scale == wanted.scale and kind.precision < wanted.precision
    else:
        traits = traits_of(kind)
        fits = traits is not None and traits.wider is not None and traits.wider == wanted
    if not fits:
        raise SchemaInvalid(
            f"field {given.name!r} is of {type_to_text(kind)} and cannot become "
            f"{type_to_text(wanted)}: IntType may become LongType, FloatType DoubleType, and a "
            "DecimalType one of more digits before the point. For another type add a field, and "
            "write it"
        )
    return wanted


def _check_names(schema: Schema, change: SchemaChange) -> None:
    for what, names in (
        ("dropped", change.drop),
        ("renamed", change.rename),
        ("given a wider type", change.widen),
        ("made nullable", change.nullable),
    ):
        _check_are_values(schema, names, what)
    gone = [
        name for name in (*change.rename, *change.widen, *change.nullable) if name in change.drop
    ]
    if gone:
        raise SchemaInvalid(f"field {gone[0]!r} is dropped, so nothing else of it can change")
    kept = [each.name for each in schema.fields if each.name not in change.drop]
    after = [change.rename.get(name, name) for name in kept] + [new.name for new in change.add]
    taken = sorted({name for name in after if after.count(name) > 1})
    if taken:
        raise SchemaInvalid(
            f"the table would have more than one field named {taken[0]!r}: choose another name"
        )


def _check_are_values(schema: Schema, names: Iterable[str], what: str) -> None:
    values = [each.name for each in schema.values]
    for name in names:
        if name in schema.key_names:
            raise SchemaInvalid(
                f"field {name!r} is a key, and cannot be {what}: keys order the rows of all files. "
                "Make a table with other keys, and ingest the rows into it"
            )
        if name not in values:
            near = get_close_matches(str(name), values, n=1)
            meant = f": is {near[0]!r} meant?" if near else ""
            raise SchemaInvalid(
                f"field {name!r} cannot be {what}, for the table has none of this name{meant}; "
                f"it has {[*schema.columns]}"
            )
