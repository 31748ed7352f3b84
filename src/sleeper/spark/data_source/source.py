"""The data source: returns Spark's reader or writer. A subclass parses the options."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from sleeper.spark.data_source.open_table import SparkTable
from sleeper.spark.data_source.reader import ReadRequest, SparkTableReader, StreamRequest
from sleeper.spark.data_source.schema import arrow_schema_of, checked_spark_schema, to_spark_schema
from sleeper.spark.data_source.stream_reader import open_stream_reader
from sleeper.spark.data_source.stream_writer import open_stream_writer
from sleeper.spark.data_source.writer import TableWriter, WritePlan, plan_write


class TableSource(DataSource):
    """Reads and writes the table that its options name. A subclass parses the options."""

    @classmethod
    def name(cls) -> str:
        """Return `sleeper`, the word for `format`."""
        return "sleeper"

    @abstractmethod
    def open_table(self) -> SparkTable:
        """Return the table that the options name."""

    @abstractmethod
    def columns(self) -> list[str] | None:
        """Return the columns that the options name; None for all."""

    @abstractmethod
    def as_of(self) -> int | None:
        """Return the transaction that the options ask for; None for the newest, and for streams."""

    @abstractmethod
    def read_request(self, table: SparkTable) -> ReadRequest:
        """Return which rows the options ask for."""

    @abstractmethod
    def stream_request(self, table: SparkTable) -> StreamRequest:
        """Return which rows the options ask to be streamed."""

    @abstractmethod
    def job_id(self) -> str | None:
        """Return the name that the options give to a write."""

    @abstractmethod
    def upsert(self) -> bool:
        """Return whether the options ask a write to replace rows that have the same row keys."""

    def schema(self) -> StructType:
        """Return the Spark schema of the rows to be read."""
        return to_spark_schema(self._as_asked(self.open_table()).schema, self.columns())

    def _as_asked(self, table: SparkTable) -> SparkTable:
        """Return a table with the columns that it had in the version that is asked for."""
        at = self.as_of()
        if at is None or not table.schema.last_id:
            return table
        return replace(table, table_files=table.table_files.as_of(table.store.at(at), table.store))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return what reads one state of the table."""
        table = self._as_asked(self.open_table())
        arrow_schema = checked_spark_schema(schema, table.schema)
        return SparkTableReader(table, self.read_request(table), arrow_schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return what reads rows as they are added."""
        table = self.open_table()
        arrow_schema = checked_spark_schema(schema, table.schema)
        return open_stream_reader(self.open_table, self.stream_request(table), arrow_schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001 - Spark's signature
        """Return what adds a DataFrame to the table, or replaces rows by it."""
        return TableWriter(self._plan_write(schema, overwrite), self.open_table, self.job_id())

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: FBT001, N802 - Spark's signature
        """Return what adds the micro-batches of a stream to the table."""
        plan = self._plan_write(schema, overwrite)
        return open_stream_writer(plan, self.open_table, self.job_id())

    def _plan_write(self, schema: StructType, overwrite: bool) -> WritePlan:  # noqa: FBT001 - as Spark gives it
        given = arrow_schema_of(schema)
        return plan_write(self.open_table(), given, overwrite=overwrite, upsert=self.upsert())
