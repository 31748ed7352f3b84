"""The Arrow type of each field type, and back."""

from __future__ import annotations

import pyarrow as pa

from sleeper.model.schema import DecimalType, FieldType, ListType, MapType, Primitive

_ARROW_TYPES: dict[Primitive, pa.DataType] = {
    Primitive.INT: pa.int32(),
    Primitive.LONG: pa.int64(),
    Primitive.STRING: pa.string(),
    Primitive.BYTES: pa.binary(),
    Primitive.DATE: pa.date32(),
    Primitive.TIMESTAMP: pa.timestamp("us", "UTC"),
    Primitive.TIMESTAMP_NTZ: pa.timestamp("us"),
    Primitive.FLOAT: pa.float32(),
    Primitive.DOUBLE: pa.float64(),
    Primitive.BOOLEAN: pa.bool_(),
}
_PRIMITIVES = {arrow: kind for kind, arrow in _ARROW_TYPES.items()}


def arrow_type(kind: FieldType) -> pa.DataType:
    """Return the Arrow type of a field type; elements of lists and maps are never null."""
    match kind:
        case Primitive():
            return _ARROW_TYPES[kind]
        case DecimalType(precision, scale):
            return pa.decimal128(precision, scale)
        case ListType(element):
            return pa.list_(pa.field("element", arrow_type(element), False))
        case MapType(key, value):
            return pa.map_(arrow_type(key), pa.field("value", arrow_type(value), False))


def plain_kind(arrow: pa.DataType) -> Primitive | DecimalType:
    """Return the field type of an Arrow type that is not a list or a map."""
    if pa.types.is_decimal(arrow):
        return DecimalType(arrow.precision, arrow.scale)
    return _PRIMITIVES[arrow]
