"""Returns the rows of a table as a DataFrame, by Spark's Parquet reader where that is right.

That reader is several times faster than a data source in Python, and prunes columns. It applies no
filters and aggregations of a table and does not cut files to a leaf's region, so it is used only
where none of that is needed. Otherwise the data source reads.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from operator import and_, or_
from typing import TYPE_CHECKING, Any, Final

from sleeper.errors import MissingExtra
from sleeper.model.column_types import TYPE_TRAITS, traits_of
from sleeper.model.formats.query_json import regions_to_json
from sleeper.model.keys import key_type, next_value, smallest_value, value_to_text
from sleeper.model.queries import LeafQuery, checked_columns
from sleeper.model.ranges import Region, whole_region
from sleeper.model.schema import Field, FieldType, Schema
from sleeper.spark.column_names import columns_to_text, quoted_name
from sleeper.spark.data_source.open_table import TableFiles
from sleeper.spark.data_source.schema import to_spark_schema, to_spark_type
from sleeper.spark.worker_python import check_worker_python
from sleeper.state.plans.queries import plan_leaf_queries
from sleeper.state.table_state import TableState

if TYPE_CHECKING:  # an extra, and slow to import
    from pyspark.sql import Column, DataFrame, SparkSession

S3_SCHEME = "spark.sleeper.s3.scheme"
"""The session's setting that says by which scheme its JVM reads `s3://`, such as `s3a`."""

_REGIONS_MAX = 200  # more conditions than that take the JVM longer to compile than they save
_PLAIN_PATH = re.compile(r"/[\w\-./+=@, ]*")  # Spark takes *?[]{}\ for patterns, and : for more
PARQUET_OPTIONS: Final = {
    "datetimeRebaseMode": "CORRECTED",
    "ignoreCorruptFiles": "false",
    "ignoreMissingFiles": "false",
    "parquet.page.verify-checksum.enabled": "true",
    "recursiveFileLookup": "true",  # otherwise a folder named a=b would become a column
}
"""The options by which Spark reads our files exactly as they were written."""


def to_frame(
    spark: SparkSession,
    table: TableFiles,
    state: TableState,
    *,
    regions: Sequence[Region],
    columns: Sequence[str] | None,
    options: Mapping[str, str],
) -> DataFrame:
    """Return rows of one state of a table as a DataFrame; nothing is read yet.

    Spark's Parquet reader is used when all of this is so, and the data source otherwise:
    the table has no filters and no aggregations; every file is referenced whole, by a leaf or by
    a partition that was split; the JVM can read the files' place (a folder, or S3 if the session's
    setting `S3_SCHEME` says how); there are at most 200 regions; and no two columns differ only in
    the case of letters.

    Args:
        spark: The session.
        table: The table's files.
        state: The state to read.
        regions: Rows inside any of these, each once.
        columns: What to return, in this order; None for all.
        options: What makes the data source find the table.

    Raises:
        QueryInvalid: a column is unknown or named twice.
        MissingExtra: the data source is needed, and the Python of Spark's workers has no Sleeper,
            or another version.
    """
    schema = table.schema
    names = checked_columns(schema, columns)
    groups = plan_leaf_queries(state, regions)
    if not groups:
        return spark.createDataFrame([], to_spark_schema(schema, names))
    leaves = [leaf for group in groups for leaf in group]
    locations = None
    if len(regions) <= _REGIONS_MAX:
        locations = parquet_files(table, state, leaves, spark.conf.get(S3_SCHEME, None))
    if locations is not None:
        return _read_parquet(spark, schema, locations, regions, names)
    asked = {
        "as_of": str(state.number),
        "columns": columns_to_text(names),
        "regions": regions_to_json(schema, regions),
    }
    try:
        frame = spark.read.format("sleeper").options(**options, **asked).load()
    except Exception as error:
        if not _is_missing(str(error)):
            raise
        raise MissingExtra(
            "Spark does not find the data source 'sleeper': the Python that it starts on the "
            "driver's machine has no Sleeper. Set PYSPARK_PYTHON, and PYSPARK_DRIVER_PYTHON where "
            "it is set, to a Python that has, before the session starts"
        ) from error
    check_worker_python(spark)
    return frame


def _is_missing(text: str) -> bool:
    """Return whether Spark failed because its Python has no Sleeper, or no pyspark."""
    return "DATA_SOURCE_NOT_FOUND" in text or "No module named" in text


def parquet_files(
    table: TableFiles, state: TableState, leaves: Sequence[LeafQuery], s3_scheme: str | None
) -> list[str] | None:
    """Return the files to read as plain Parquet; None where that would be wrong or impossible.

    Args:
        table: The table's files.
        state: The state to read.
        leaves: Leaves of `plan_leaf_queries`.
        s3_scheme: What the session's setting `S3_SCHEME` says, if anything.
    """
    names = table.schema.names
    if (
        state.deletes
        or not table.processing.is_identity
        or len({name.casefold() for name in names}) < len(names)
    ):
        return None
    whole = _files_referenced_whole(state, leaves)
    filenames = dict.fromkeys(name for leaf in leaves for name in leaf.filenames)
    if not whole.issuperset(filenames):
        return None  # or they have other columns than the table has now
    found = [_location(table.files.url(name), s3_scheme) for name in filenames]
    return [each for each in found if each is not None] if None not in found else None


def _files_referenced_whole(state: TableState, leaves: Iterable[LeafQuery]) -> set[str]:
    """Return the files of leaves and of their ancestors of which every row is the table's.

    Only those of the newest schema.
    """
    upwards = (state.tree.ids_upwards(leaf.leaf_id) for leaf in leaves)
    partition_ids = {partition_id for ids in upwards for partition_id in ids}
    return {
        reference.filename
        for partition_id in partition_ids
        for reference in state.files.references_on(partition_id)
        if reference.whole_file and reference.schema_number == state.schema_id
    }


def _location(url: str, s3_scheme: str | None) -> str | None:
    scheme, separator, rest = url.partition("://")
    if not separator:
        return url if _PLAIN_PATH.fullmatch(url) else None
    if scheme == "s3" and s3_scheme and _PLAIN_PATH.fullmatch("/" + rest):
        return f"{s3_scheme}://{rest}"
    return None


def _read_parquet(
    spark: SparkSession,
    schema: Schema,
    locations: Sequence[str],
    regions: Sequence[Region],
    names: Sequence[str],
) -> DataFrame:

    rows = spark.read.schema(to_spark_schema(schema)).options(**PARQUET_OPTIONS).parquet(*locations)
    if whole_region(schema) not in regions:
        rows = rows.filter(_in_any(schema, regions))
    kinds = {field.name: field.type for field in schema.fields}
    return rows.select(*[_selected(name, kinds[name]) for name in names])


def _selected(name: str, kind: FieldType) -> Column:
    """Return a column so that filters on it are not pushed down where NaN would be lost.

    Spark skips a row group when a number lies outside its statistics, which leave NaN out, and
    NaN is greater than every number to Spark. It pushes no filter through `nanvl`, which changes
    no value: NaN becomes NaN. Files written since have no such statistics; older ones do.
    """
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - see above

    column = F.col(quoted_name(name))
    traits = traits_of(kind)
    if traits is None or not traits.has_nan:
        return column
    return F.nanvl(column, F.lit(math.nan).cast(to_spark_type(kind))).alias(name)


def _in_any(schema: Schema, regions: Sequence[Region]) -> Column:
    """The condition that a row lies in one of some regions."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - see above

    conditions = [reduce(and_, _inside(schema, region), F.lit(True)) for region in regions]
    return reduce(or_, conditions, F.lit(False))


def _inside(schema: Schema, region: Region) -> Iterable[Column]:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - see above

    for field, key_range in zip(schema.row_keys, region.ranges, strict=True):
        column, kind = F.col(quoted_name(field.name)), key_type(field)
        if key_range.max is not None and next_value(kind, key_range.min) == key_range.max:
            yield column == _literal(field, key_range.min)
            continue
        if key_range.min != smallest_value(kind):
            yield column >= _literal(field, key_range.min)
        if key_range.max is not None:
            yield column < _literal(field, key_range.max)


def _literal(field: Field, value: Any) -> Column:
    """A key value as a Spark literal of exactly its field's type."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - see above

    kind = key_type(field)
    if TYPE_TRAITS[kind].spark_takes_values:
        return F.lit(value).cast(to_spark_type(kind))
    return F.lit(value_to_text(kind, value)).cast(to_spark_type(kind))
