"""A table's schema: row keys, sort keys and values, with their types.

Row keys partition and sort the rows, sort keys order rows with equal row keys, values
are all other fields. In data files, columns are in this order. Whoever reads rows gets them in the
order that the table was made with, `Schema.columns`. The JSON form is upstream's (rule FMT-3) with
a few additional types, and the position of each field where that order is another than the files'.
Once the columns of a table were changed, its schema has a number, and each field an id.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from dataclasses import field as stored
from difflib import get_close_matches
from functools import partial
from typing import Any, Final

from sleeper.errors import SchemaInvalid
from sleeper.html.markup import Markup, element, grid, joined
from sleeper.html.values import NotebookHtml
from sleeper.model.column_types import KEY_TYPES, TYPE_TRAITS, DecimalType, Primitive

__all__ = [
    "KEY_TYPES",
    "DecimalType",
    "Field",
    "FieldType",
    "ListType",
    "MapType",
    "Primitive",
    "Schema",
    "StructType",
    "check_name",
    "plain_kinds",
    "type_from_json",
    "type_from_text",
    "type_to_json",
    "type_to_text",
]


@dataclass(frozen=True, slots=True)
class ListType(NotebookHtml):
    """A list of values of any one type.

    Attributes:
        element: The type of its elements.
        nullable: True if elements may be null.
    """

    element: FieldType
    nullable: bool = False


@dataclass(frozen=True, slots=True)
class MapType(NotebookHtml):
    """A map from keys of a primitive or decimal type to values of any one type.

    Attributes:
        key: The type of its keys, which are never null.
        value: The type of its values.
        nullable: True if values may be null.
    """

    key: Primitive | DecimalType
    value: FieldType
    nullable: bool = False


@dataclass(frozen=True, slots=True)
class StructType(NotebookHtml):
    """Values with several named parts, each of a type of its own. Any part may be null.

    Attributes:
        parts: The name and type of each part, in order; at least one.

    Raises:
        SchemaInvalid: there are no parts, or a name is empty, not allowed, or used twice.
    """

    parts: tuple[tuple[str, FieldType], ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", tuple((name, kind) for name, kind in self.parts))
        if not self.parts:
            raise SchemaInvalid(
                "a StructType needs a part at least: Parquet cannot keep an empty one"
            )
        for name, _ in self.parts:
            check_name(name)
        repeated = sorted(n for n, count in Counter(n for n, _ in self.parts).items() if count > 1)
        if repeated:
            raise SchemaInvalid(f"a StructType has more than one part named {repeated}")


FieldType = Primitive | DecimalType | ListType | MapType | StructType

LEVELS_MAX: Final = 16
"""How many levels a type may have: libraries go through them by recursion."""


def _depth(kind: object) -> int:
    """Return the number of levels of a type: 1 for a primitive type."""
    match kind:
        case ListType(element):
            return 1 + _depth(element)
        case MapType(_, value):
            return 1 + _depth(value)
        case StructType(parts):
            return 1 + max(_depth(part) for _, part in parts)
    return 1


@dataclass(frozen=True, slots=True)
class Field(NotebookHtml):
    """One named column.

    Attributes:
        name: Any text that is not empty and has no NUL character.
        type: The type of its values.
        nullable: True if values may be null; for value fields only (rule SCH-5).
        id: A number that no other field of the table has or had; None if the columns of the table
            were never changed.
        first_name: Its name in files that have no ids; None if they do not have it.
        default: Its value, as text, in rows of files that do not have it; None for null.
    """

    name: str
    type: FieldType
    nullable: bool = False
    id: int | None = stored(default=None, repr=False)
    first_name: str | None = stored(default=None, repr=False)
    default: str | None = stored(default=None, repr=False)

    def __post_init__(self) -> None:
        check_name(self.name)
        if _depth(self.type) > LEVELS_MAX:
            raise SchemaInvalid(
                f"field {self.name!r} has types inside of types at more than {LEVELS_MAX} levels"
            )


def check_name(name: str) -> None:
    """Raise SchemaInvalid for a name that a field, or a part of a struct, cannot have."""
    if not name or type(name) is not str:
        raise SchemaInvalid(f"a field needs a name, not {name!r}")
    if any("\ud800" <= each <= "\udfff" for each in name):
        raise SchemaInvalid(f"the field name {name!r} is not valid Unicode")
    if "\0" in name:
        raise SchemaInvalid(
            f"the field name {name!r} has a NUL character, which libraries of Arrow "
            "cannot pass on: leave it out"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema(NotebookHtml):
    """The fields of a table, in three ordered groups.

    Attributes:
        row_keys: At least one. They partition the table and sort the rows.
        sort_keys: Order rows whose row keys are equal.
        values: All other fields.
        columns: The names of all fields in the order in which rows are returned, and SQL writes
            by position. Given as (), it is that of `names`.
        number: 1 for the first schema of a table, and one more after each change of its columns.
        last_id: The largest id that a field of the table has or had; 0 if none has one.
        fields: All fields: row keys, sort keys, values. The order of columns in data files.
        keys: Row keys, then sort keys: the fields that order rows.
        names: The names of all fields, in the order of `fields`.
        row_key_names: The names of the row key fields.
        key_names: The names of row keys and sort keys.

    Raises:
        SchemaInvalid: one of rules SCH-1 to SCH-6 is broken, or `columns` are not all fields.
    """

    row_keys: tuple[Field, ...]
    sort_keys: tuple[Field, ...] = ()
    values: tuple[Field, ...] = ()
    columns: tuple[str, ...] = ()
    number: int = stored(default=1, repr=False)
    last_id: int = stored(default=0, repr=False)
    fields: tuple[Field, ...] = stored(init=False, repr=False, compare=False)
    keys: tuple[Field, ...] = stored(init=False, repr=False, compare=False)
    names: tuple[str, ...] = stored(init=False, repr=False, compare=False)
    row_key_names: tuple[str, ...] = stored(init=False, repr=False, compare=False)
    key_names: tuple[str, ...] = stored(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        remember = partial(object.__setattr__, self)  # asked for thousands of times
        for group in ("row_keys", "sort_keys", "values"):
            remember(group, tuple(getattr(self, group)))
        remember("keys", (*self.row_keys, *self.sort_keys))
        remember("fields", (*self.keys, *self.values))
        remember("names", _names(self.fields))
        remember("row_key_names", _names(self.row_keys))
        remember("key_names", _names(self.keys))
        if not self.row_keys:
            raise SchemaInvalid("Must have at least one row key field")
        _check_keys("Row", self.row_keys)
        _check_keys("Sort", self.sort_keys)
        repeated = sorted(name for name, n in Counter(self.names).items() if n > 1)
        if repeated:
            raise SchemaInvalid(f"Found duplicate field names: {repeated}")
        remember("columns", _checked_order(self.columns, self.names))

    def _html(self) -> Markup:
        return joined([element("strong", "Schema"), schema_grid(self)])

    @property
    def columns_as_stored(self) -> bool:
        """True if rows are returned with their columns in the order of data files."""
        return self.columns == self.names

    def as_stored(self) -> Schema:
        """Return the schema whose columns are in the order of data files."""
        if self.columns_as_stored:
            return self
        return replace(self, columns=())

    def as_new(self) -> Schema:
        """Return the schema of a new table with the same columns: without what is of one table."""
        if not self.last_id:
            return self

        def plain(fields: Iterable[Field]) -> tuple[Field, ...]:
            return tuple(Field(each.name, each.type, each.nullable) for each in fields)

        return Schema(
            row_keys=plain(self.row_keys),
            sort_keys=plain(self.sort_keys),
            values=plain(self.values),
            columns=self.columns,
        )

    @classmethod
    def from_json(cls, text: str | bytes | Mapping[str, Any]) -> Schema:
        """Read upstream's schema JSON (rule FMT-3), or the object it parses to.

        Raises:
            SchemaInvalid: it is not JSON, or breaks a rule.
        """
        try:
            document = text if isinstance(text, Mapping) else json.loads(text)
        except (ValueError, RecursionError) as error:
            raise SchemaInvalid(f"the schema is not JSON: {error}") from None
        if not isinstance(document, Mapping):
            raise SchemaInvalid("the schema must be a JSON object with rowKeyFields")
        unknown = sorted(set(document) - {*_GROUPS, *_NUMBERS})
        if unknown:
            raise SchemaInvalid(
                f"unknown entries in the schema: {unknown}; known: {[*_GROUPS]}. For a table "
                "with the columns of data give row_keys=[...] too"
            )
        groups = {ours: _read_fields(document, theirs) for theirs, ours in _GROUPS.items()}
        numbers = {
            ours: _read_number(document, theirs)
            for theirs, ours in _NUMBERS.items()
            if theirs in document
        }
        found = cls(
            row_keys=groups["row_keys"],
            sort_keys=groups["sort_keys"],
            values=groups["values"],
            columns=_read_order(document),
            number=numbers.get("number", 1),
            last_id=numbers.get("last_id", 0),
        )
        _check_ids(found)
        return found

    def to_json(self, indent: int | None = None) -> str:
        """Write upstream's schema JSON (rule FMT-3).

        Fields have their positions only where columns are not in the order of data files.
        """
        places = {} if self.columns_as_stored else {n: at for at, n in enumerate(self.columns)}
        document: dict[str, Any] = {
            theirs: [_field_to_json(field, places) for field in getattr(self, ours)]
            for theirs, ours in _GROUPS.items()
        }
        if self.last_id:
            document |= {theirs: getattr(self, ours) for theirs, ours in _NUMBERS.items()}
        return json.dumps(document, indent=indent, ensure_ascii=False)


_GROUPS = {"rowKeyFields": "row_keys", "sortKeyFields": "sort_keys", "valueFields": "values"}

_NUMBERS = {"schemaId": "number", "lastFieldId": "last_id"}
"""Entries of a schema whose columns were changed. Earlier versions of ours refuse it for them."""

_POSITION = "position"
_ID, _FIRST_NAME, _DEFAULT = "id", "nameWithoutId", "default"
"""Entries of a field that upstream's readers, and earlier versions of ours, do not look at."""


_KEY_ADVICE: Mapping[object, str] = {
    DecimalType: ": its unscaled number, such as 1995 for 19.95, as LongType",
}


_FLOAT_ADVICE = (
    ". Whole numbers are floats in pandas where some are missing: leave those rows out, and make "
    "the others integers again, as by astype('int64')"
)


def _names(fields: Iterable[Field]) -> tuple[str, ...]:
    return tuple([each.name for each in fields])


def _checked_order(columns: Iterable[str], names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of all fields in the order of `columns`; as they are without any."""
    if isinstance(columns, str):
        raise SchemaInvalid(f"columns is a list of names, not {columns!r}")
    order = tuple(columns)
    if not order or order == names:
        return names
    if len(order) != len(names) or {*order} != {*names}:
        raise SchemaInvalid(
            f"columns must name each field once, in the order in which rows are returned: "
            f"{[*order]} are not the fields {[*names]}. Leave columns out for the order of the "
            "fields"
        )
    return order


def _check_keys(kind: str, fields: Iterable[Field]) -> None:
    for field in fields:
        if isinstance(field.type, ListType | MapType | StructType):
            raise SchemaInvalid(f"{kind} key fields must have a primitive type: {field.name!r}")
        if field.type not in KEY_TYPES:
            allowed = ", ".join(kind.value for kind in KEY_TYPES)
            advice = _KEY_ADVICE.get(type(field.type), "")
            if isinstance(field.type, Primitive) and TYPE_TRAITS[field.type].is_number:
                advice = _FLOAT_ADVICE
            raise SchemaInvalid(
                f"{kind} key field {field.name!r} cannot be of {type_to_text(field.type)}, which "
                f"has no order that all engines agree on; keys may be {allowed}. Keep the field as "
                f"a value, and derive a key from it{advice}"
            )
        if field.nullable:
            raise SchemaInvalid(f"{kind} key fields cannot be nullable: {field.name!r}")


def _read_fields(document: Mapping[str, Any], group: str) -> tuple[Field, ...]:
    entries = document.get(group) or []
    if not isinstance(entries, list):
        raise SchemaInvalid(f"{group} must be a list of fields")
    return tuple(_read_field(group, entry) for entry in entries)


def _read_field(group: str, entry: object) -> Field:
    if not isinstance(entry, Mapping) or "name" not in entry or "type" not in entry:
        raise SchemaInvalid(f"each entry of {group} needs a name and a type, unlike {entry!r}")
    nullable = entry.get("nullable", False)
    if not isinstance(nullable, bool):
        raise SchemaInvalid(f"nullable must be true or false on field {entry['name']!r}")
    return Field(
        entry["name"],
        type_from_json(entry["type"]),
        nullable,
        id=_read_number(entry, _ID) if _ID in entry else None,
        first_name=_read_text(entry, _FIRST_NAME),
        default=_read_text(entry, _DEFAULT),
    )


def _read_text(entry: Mapping[str, Any], name: str) -> str | None:
    value = entry.get(name)
    if value is None or isinstance(value, str):
        return value
    raise SchemaInvalid(f"{name} of field {entry['name']!r} must be a text, not {value!r}")


def _check_ids(schema: Schema) -> None:
    """Check that the fields of a changed schema have ids of their own, and those of others none."""
    ids = [each.id for each in schema.fields if each.id is not None]
    if not schema.last_id and not ids:
        return
    if len({*ids}) < len(schema.fields) or max(ids) > schema.last_id:
        raise SchemaInvalid(
            f"each field needs an {_ID} of its own, from 1 to lastFieldId, or none has one: {ids}"
        )


def _read_number(document: Mapping[str, Any], name: str) -> int:
    value = document[name]
    if type(value) is not int or value < 1:
        raise SchemaInvalid(f"{name} must be a whole number from 1 on, not {value!r}")
    return value


def _read_order(document: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of all fields by their positions; none where no field has one."""
    entries = [entry for group in _GROUPS for entry in document.get(group) or ()]
    places = {entry["name"]: entry[_POSITION] for entry in entries if _POSITION in entry}
    if not places:
        return ()
    known = [each for each in places.values() if type(each) is int]
    if sorted(known) != [*range(len(entries))]:
        raise SchemaInvalid(
            f"each field needs a {_POSITION} of its own, from 0 to {len(entries) - 1}, or none has "
            f"one: {places}"
        )
    return tuple(sorted(places, key=places.__getitem__))


def type_from_json(value: object, *, levels: int = LEVELS_MAX) -> FieldType:
    """Read one type of schema JSON, of so many levels of types inside of types at most.

    Raises:
        SchemaInvalid: the type is unknown (rule SCH-6), or the key of a map is nested.
    """
    if not levels:
        raise SchemaInvalid(f"a type has types inside of types at more than {LEVELS_MAX} levels")
    match value:
        case str() if value in Primitive._value2member_map_:
            return Primitive(value)
        case {"ListType": {"elementType": element}}:
            return ListType(*_item_from_json(element, levels - 1))
        case {"MapType": {"keyType": key, "valueType": item}}:
            return MapType(_map_key(key), *_item_from_json(item, levels - 1))
        case {"StructType": {"fields": [*parts]}}:
            return StructType(tuple(_part_from_json(part, levels - 1) for part in parts))
        case {"DecimalType": {"precision": int() as precision, "scale": int() as scale}}:
            return DecimalType(precision, scale)
    plain = f"; plain types are {', '.join(Primitive._value2member_map_)}"
    known = plain if isinstance(value, str) else ""
    raise SchemaInvalid(f"Unknown type {json.dumps(value, default=repr)}{known}")


def plain_kinds(kind: FieldType) -> tuple[Primitive | DecimalType, ...]:
    """Return a type itself, or the types of what is in a list, a map or a struct, at any depth."""
    match kind:
        case ListType(element):
            return plain_kinds(element)
        case MapType(key, value):
            return (key, *plain_kinds(value))
        case StructType(parts):
            return tuple(plain for _, part in parts for plain in plain_kinds(part))
        case Primitive() | DecimalType():
            return (kind,)


def type_to_json(kind: FieldType) -> str | dict[str, Any]:
    """Write one type for schema JSON."""
    match kind:
        case Primitive():
            return kind.value
        case ListType(element, nullable):
            return {"ListType": {"elementType": _item_to_json(element, nullable)}}
        case MapType(key, value, nullable):
            item = _item_to_json(value, nullable)
            return {"MapType": {"keyType": type_to_json(key), "valueType": item}}
        case StructType(parts):
            fields = [{"name": name, "type": type_to_json(part)} for name, part in parts]
            return {"StructType": {"fields": fields}}
        case DecimalType(precision, scale):
            return {"DecimalType": {"precision": precision, "scale": scale}}


def type_to_text(kind: FieldType) -> str:
    """Return the name of a type for messages, such as `MapType(StringType, LongType)`."""
    match kind:
        case Primitive():
            return kind.value
        case ListType(element, nullable):
            return f"ListType({type_to_text(element)}{_OR_NULL if nullable else ''})"
        case MapType(key, value, nullable):
            item = type_to_text(value) + (_OR_NULL if nullable else "")
            return f"MapType({type_to_text(key)}, {item})"
        case StructType(parts):
            return f"StructType({', '.join(f'{n} {type_to_text(part)}' for n, part in parts)})"
        case DecimalType(precision, scale):
            return f"DecimalType({precision}, {scale})"


def type_from_text(text: str, *, levels: int = LEVELS_MAX) -> FieldType:
    """Read a type as `type_to_text` writes it, such as `DecimalType(10, 2)`.

    Raises:
        SchemaInvalid: there is no such type, or its levels are too many.
    """
    if not levels:
        raise SchemaInvalid(f"a type has types inside of types at more than {LEVELS_MAX} levels")
    plain = text.strip()
    if plain in Primitive._value2member_map_:
        return Primitive(plain)
    kind, opened, rest = plain.partition("(")
    parts = _split_at_commas(rest[:-1]) if opened and rest.endswith(")") else []
    match kind, parts:
        case "DecimalType", [precision, scale] if {precision, scale} <= _SMALL_NUMBERS:
            return DecimalType(int(precision), int(scale))
        case "ListType", [element]:
            return ListType(*_item_from_text(element, levels - 1))
        case "MapType", [key, value]:
            kind_of_key = _checked_map_key(type_from_text(key, levels=levels - 1))
            return MapType(kind_of_key, *_item_from_text(value, levels - 1))
        case "StructType", [_, *_]:
            return StructType(tuple(_part_from_text(each, levels - 1) for each in parts))
    near = get_close_matches(plain, Primitive._value2member_map_, n=1)
    meant = f": is {near[0]} meant?" if near else "."
    known = ", ".join(Primitive._value2member_map_)
    raise SchemaInvalid(
        f"unknown type {text!r:.200}{meant} Types are {known}, DecimalType(10, 2), "
        "ListType(LongType), MapType(StringType, LongType or null), StructType(a LongType)"
    )


_SMALL_NUMBERS = frozenset(map(str, range(100)))


def _split_at_commas(text: str) -> list[str]:
    """Return the parts between commas that are in no parentheses."""
    parts, depth = [""], 0
    for each in text:
        depth += (each == "(") - (each == ")")
        if each == "," and not depth:
            parts.append("")
        else:
            parts[-1] += each
    return [part.strip() for part in parts]


def _item_from_text(text: str, levels: int) -> tuple[FieldType, bool]:
    return type_from_text(text.removesuffix(_OR_NULL), levels=levels), text.endswith(_OR_NULL)


def _part_from_text(text: str, levels: int) -> tuple[str, FieldType]:
    before = text.partition("(")[0]
    name, _, kind = before.rpartition(" ")
    return name, type_from_text(kind + text[len(before) :], levels=levels)


_OR_NULL = " or null"
_NULLABLE = "NullableType"
"""Stands around the type of what a list or map has, if it may be null. It is no entry beside the
type, which upstream's readers, and earlier versions of ours, would not look at: they refuse it."""


def _item_from_json(value: object, levels: int) -> tuple[FieldType, bool]:
    """Return the type of what a list or map has, and whether it may be null."""
    match value:
        case {"NullableType": kind}:
            return type_from_json(kind, levels=levels), True
    return type_from_json(value, levels=levels), False


def _item_to_json(kind: FieldType, nullable: bool) -> str | dict[str, Any]:  # noqa: FBT001 - see above
    return {_NULLABLE: type_to_json(kind)} if nullable else type_to_json(kind)


def _map_key(value: object) -> Primitive | DecimalType:
    return _checked_map_key(type_from_json(value))


def _checked_map_key(kind: FieldType) -> Primitive | DecimalType:
    if not isinstance(kind, Primitive | DecimalType):
        raise SchemaInvalid(f"keys of maps have a primitive type, not {type_to_text(kind)}")
    return kind


def _part_from_json(entry: object, levels: int) -> tuple[str, FieldType]:
    match entry:
        case {"name": str() as name, "type": kind}:
            return name, type_from_json(kind, levels=levels)
    raise SchemaInvalid(f"each field of a StructType needs a name and a type, unlike {entry!r}")


def _field_to_json(field: Field, places: Mapping[str, int]) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": field.name, "type": type_to_json(field.type)}
    if field.nullable:
        entry["nullable"] = True
    if field.name in places:
        entry[_POSITION] = places[field.name]
    more = {_ID: field.id, _FIRST_NAME: field.first_name, _DEFAULT: field.default}
    return entry | {name: value for name, value in more.items() if value is not None}


def _default_note(field: Field) -> str:
    return "" if field.default is None else f", {field.default:.40} in older rows"


def schema_grid(schema: Schema) -> Markup:
    """Return a table of the fields of a schema, in the order of columns: name, type and role."""
    fields = {field.name: field for field in schema.fields}
    roles = {
        **{field.name: "row key" for field in schema.row_keys},
        **{field.name: "sort key" for field in schema.sort_keys},
    }
    return grid(
        ["field", "type", "role"],
        [
            (
                field.name,
                type_to_text(field.type) + (", or null" if field.nullable else ""),
                roles.get(field.name, "value") + _default_note(field),
            )
            for field in map(fields.__getitem__, schema.columns)
        ],
    )
