"""A table's schema as Spark has it, and the Arrow form that Spark's own conversion gives it."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sleeper.errors import BadRequest, QueryInvalid, SchemaInvalid
from sleeper.model.column_types import TYPE_TRAITS, traits_of
from sleeper.model.queries import checked_columns
from sleeper.model.schema import (
    DecimalType,
    FieldType,
    ListType,
    MapType,
    Primitive,
    Schema,
    StructType,
    plain_kinds,
)

if TYPE_CHECKING:  # an extra, and slow to import
    from pyspark.sql import SparkSession
    from pyspark.sql import types as T  # noqa: N812 - as everybody calls it


def to_spark_schema(schema: Schema, columns: Sequence[str] | None = None) -> T.StructType:
    """Return the Spark schema of a table's rows, or of some of their columns, in that order.

    Keys are never null; values, and what is in lists and maps, only where the schema says so.

    Raises:
        QueryInvalid: a column is unknown or named twice.
    """
    from pyspark.sql import types as T  # noqa: N812, PLC0415 - an extra, and slow to import

    fields = {field.name: field for field in schema.fields}
    wanted = [fields[name] for name in checked_columns(schema, columns)]
    return T.StructType([T.StructField(f.name, to_spark_type(f.type), f.nullable) for f in wanted])


def check_session(spark: SparkSession, schema: Schema) -> None:
    """Check that a session has the settings that the types of a schema need.

    Raises:
        BadRequest: it lacks one.
    """
    for field in schema.fields:
        for kind in plain_kinds(field.type):
            traits = traits_of(kind)
            name = None if traits is None else traits.spark_setting
            if name is not None and str(spark.conf.get(name, "false")).lower() != "true":
                raise BadRequest(
                    f"Spark has the type of field {field.name!r} only where the session's setting "
                    f'{name} is true: spark.conf.set("{name}", "true")'
                )


def to_spark_type(kind: FieldType) -> T.DataType:
    """Return the Spark type of a field type.

    `TimestampType` is an instant in both worlds, `TimestampNtzType` a wall clock; both have
    microseconds.
    """
    from pyspark.sql import types as T  # noqa: N812, PLC0415 - an extra, and slow to import

    match kind:
        case Primitive():
            plain: T.DataType = getattr(T, str(TYPE_TRAITS[kind].spark))()
            return plain
        case DecimalType(precision, scale):
            return T.DecimalType(precision, scale)
        case ListType(element, nullable):
            return T.ArrayType(to_spark_type(element), containsNull=nullable)
        case MapType(key, value, nullable):
            item = to_spark_type(value)
            return T.MapType(to_spark_type(key), item, valueContainsNull=nullable)
        case StructType(parts):
            return T.StructType([T.StructField(n, to_spark_type(part)) for n, part in parts])


def checked_spark_schema(given: T.StructType, schema: Schema) -> pa.Schema:
    """Return the Arrow schema of batches for Spark, which asked for columns by a Spark schema.

    Raises:
        QueryInvalid: a column is unknown, or Spark wants another type than the table's.
    """
    ours = to_spark_schema(schema, given.fieldNames())
    for want, have in zip(given.fields, ours.fields, strict=True):
        if want.dataType != have.dataType:
            raise QueryInvalid(
                f"column {have.name!r} is {have.dataType.simpleString()} in the table, so it "
                f"cannot be read as {want.dataType.simpleString()}: leave the schema out, then cast"
            )
    return arrow_schema_of(given)


def arrow_schema_of(given: T.StructType) -> pa.Schema:
    """Return what Spark's conversion to Arrow makes of a Spark schema."""
    from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415 - see above

    # Spark 4.0 always uses UTC; later versions have a parameter for the time zone.
    named = "timezone" in inspect.signature(to_arrow_schema).parameters
    options: dict[str, Any] = {"timezone": "UTC"} if named else {}
    return to_arrow_schema(given, **options)


def columns_of_spark(given: Any) -> pa.Schema:
    """Return the columns of a DataFrame, or of a StructType, as Arrow has them.

    Raises:
        SchemaInvalid: a column is of a type that Arrow lacks.
    """
    from pyspark.errors import PySparkTypeError  # noqa: PLC0415 - see above
    from pyspark.sql.types import StructType  # noqa: PLC0415 - see above

    kind = given if isinstance(given, StructType) else given.schema
    columns = []
    for field in kind.fields:
        try:
            columns += arrow_schema_of(StructType([field]))
        except PySparkTypeError:
            raise SchemaInvalid(
                f"column {field.name!r} is of Spark's type {field.dataType.simpleString()}, which "
                "no field can have: cast it to another, such as string"
            ) from None
    return pa.schema(columns)
