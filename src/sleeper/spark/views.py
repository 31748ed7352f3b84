"""Tables of an instance as temporary views, for SQL."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from sleeper.spark.column_names import quoted_name

if TYPE_CHECKING:  # an extra, and slow to import
    from pyspark.sql import DataFrame, SparkSession


class _Record(Protocol):
    @property
    def name(self) -> str: ...


class _Table(Protocol):
    def to_spark(self, spark: SparkSession) -> DataFrame: ...


class _Instance(Protocol):
    def tables(self) -> Iterable[_Record]: ...

    def table(self, name: str) -> _Table: ...


def register(
    spark: SparkSession, instance: _Instance, tables: Iterable[str] | None = None
) -> list[str]:
    """Make a temporary view of each table, so that SQL can name it.

    A view shows its table as it is now; call this again for a newer state. Where the table
    allows it, Spark's own Parquet reader serves the view: it reads only the columns and row
    groups that a query needs, and EXPLAIN shows what it pushed. A view of the same name is
    replaced.

    Args:
        spark: A session, classic or Connect, whose workers reach the instance.
        instance: The instance.
        tables: Names of the tables; None for all.

    Returns:
        The names of the views, which are those of the tables. Names that are not identifiers of
        SQL go in backquotes in a query.

    Raises:
        TableNotFound: there is no such table.
        BadRequest: the instance is in memory, where no other process can read it.
        MissingExtra: a view needs Python workers, and their Python has no Sleeper, or another
            version.
    """
    names = [record.name for record in instance.tables()] if tables is None else [*tables]
    frames = {name: instance.table(name).to_spark(spark) for name in names}
    for name, frame in frames.items():
        frame.createOrReplaceTempView(quoted_name(name))
    return names
