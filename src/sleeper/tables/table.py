"""The public class `Table`: what users call, with its full description.

Each method loads the module of its verb when it is called, so a process that only reads loads no
writer. What a verb does, step by step, is said in its module.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Never

from sleeper.engine.rows import Rows, WholeTable
from sleeper.errors import BadRequest, QueryInvalid, TableNotFound
from sleeper.model.authors import committing
from sleeper.model.queries import (
    NOT_GIVEN,
    NotGiven,
    RegionRequest,
    checked_as_of,
    checked_max_age,
    unknown_arguments,
)
from sleeper.model.tables import TableRecord, no_such_table
from sleeper.tables.instance_context import InstanceContext
from sleeper.tables.open_table import TableHandle
from sleeper.tables.query import checked_query

if TYPE_CHECKING:
    import polars as pl
    from pyspark.sql import DataFrame, SparkSession

    from sleeper.model.csv_options import CsvOptions
    from sleeper.model.files import FileReference
    from sleeper.model.known_properties.given import PropertyValue
    from sleeper.pictures.svg import Svg
    from sleeper.spark.data_source.open_table import SparkTable
    from sleeper.state.commit_request import CommitRequest
    from sleeper.state.kept_versions import KeptVersions
    from sleeper.state.plans.bulk_imports import EngineAsked
    from sleeper.state.plans.claims import HeldClaim
    from sleeper.state.plans.compactions import CompactionPlan
    from sleeper.state.plans.splits_and_merges import LeafSize, SiblingLeaves
    from sleeper.state.table_state import Transaction
    from sleeper.state.transactions.files import AddFiles
    from sleeper.tables.alter import ColumnChange, NewFields, NewType
    from sleeper.tables.bulk_import import BulkImportResult
    from sleeper.tables.claims import ReleaseResult
    from sleeper.tables.commit_requests import CommitAnswer
    from sleeper.tables.compact import CompactionSummary, CompactionWatch
    from sleeper.tables.deletions.regions import RowDeletion
    from sleeper.tables.export import ExportResult
    from sleeper.tables.garbage import GcSummary, SweepResult
    from sleeper.tables.history import HistoryEntry
    from sleeper.tables.ingest import IngestResult
    from sleeper.tables.migrate_state import MigrationResult
    from sleeper.tables.publish import PublishResult
    from sleeper.tables.purges.records import Purge
    from sleeper.tables.report import FilesReport, PartitionReport
    from sleeper.tables.split_and_merge import MergeResult, SplitResult
    from sleeper.tables.upgrade import FormatChange
    from sleeper.tables.verify import VerifySummary


class Table(TableHandle, WholeTable):
    """One table of an instance: its rows, properties, partitions and maintenance.

    A handle is cheap: files and state are opened at first use, and an idle handle makes no
    requests. It is safe in threads and may be pickled. A forked process may look up keys; it may
    read ranges and ingest only if its parent has not. Every call checks for new properties and
    commits (in a local folder these are two calls of the file system), but a query that may be
    older (`max_age`).

    >>> import sleeper
    >>> instance = sleeper.connect("memory://")
    >>> schema = pa.schema([("id", pa.string()), ("n", pa.int64())])
    >>> table = instance.create_table("numbers", schema, row_keys=["id"])
    >>> table.ingest([{"id": "b", "n": 2}, {"id": "a", "n": 1}]).rows_written
    2
    >>> table.query(key="a").to_pylist()
    [{'id': 'a', 'n': 1}]
    """

    # Rows.

    def ingest(
        self,
        data: object,
        job_id: str | None = None,
        *,
        csv: CsvOptions | Mapping[str, Any] | None = None,
        ignore_extra_columns: bool = False,
        set_aside: str | os.PathLike[str] | None = None,
        progress: Callable[[int, int | None], None] = lambda done, total: None,
        send_commit: Callable[[AddFiles], None] | None = None,
        if_unchanged_since: int | None = None,
    ) -> IngestResult:
        """Add rows, all in one commit.

        Args:
            data: A path or URL, or a list of them (Parquet files, CSV or JSON lines, by the ends of
                their names; folders of them; patterns such as "in/*.csv"), an Arrow table, reader
                or Dataset, anything with the Arrow C stream (polars, DuckDB), a polars LazyFrame, a
                pandas DataFrame, an iterable of dicts, or a dict of columns. It is read once, in
                batches; memory is bounded by `sleeper.table.ingest.memory`
                (docs/guide/adding-rows.md).
            job_id: Identifies this job. Repeating a committed job changes nothing. If it is None,
                an id is made; the result and the error CommitUnknown contain it. A blank one is
                refused.
            csv: How files of CSV are written: `CsvOptions`, or a dict of them, such as
                {"separator": ";"}. With it all files are CSV, whatever their names.
            ignore_extra_columns: True to drop columns that the table does not have. A column whose
                name is similar to a missing column is refused anyway: it may be misspelt.
            set_aside: A new Parquet file for rows whose key is null; without it such input is
                refused.
            progress: Called after each batch with the rows read so far, and their total if known.
            send_commit: Sends the transaction to a committer, as workers do; the rows are visible
                when it has committed. Without it this call commits.
            if_unchanged_since: A transaction number, such as that of an answer: nothing is added if
                a leaf that would get rows has changed since (rule DEL-5).

        Raises:
            InputRefused: the input does not fit the table; nothing was changed.
            RowsChanged: a leaf has changed since `if_unchanged_since`; nothing was changed.
            VersionNotFound: that version is no longer kept; nothing was changed.
            CommitContended: other writers committed first each time; try again.
            CommitUnknown: storage gave no answer; run again with the job id that it names.
            StorageFailed: storage failed; nothing was changed.
            TableNotFound: the table was deleted.

        Source: rules ING-1, ING-2, ING-5, ING-6 and ING-8.
        """
        from sleeper.tables.ingest import ingest

        table, state = self._newest()
        return ingest(
            table,
            data,
            job_id,
            csv=csv,
            ignore_extra_columns=ignore_extra_columns,
            set_aside=set_aside,
            progress=progress,
            send_commit=send_commit,
            if_unchanged_since=if_unchanged_since,
            state=state,
        )

    def upsert(
        self,
        data: object,
        job_id: str | None = None,
        *,
        csv: CsvOptions | Mapping[str, Any] | None = None,
        ignore_extra_columns: bool = False,
        set_aside: str | os.PathLike[str] | None = None,
        progress: Callable[[int, int | None], None] = lambda done, total: None,
        reason: str | None = None,
        if_unchanged_since: int | None = None,
    ) -> IngestResult:
        """Add rows in place of those that have the same row keys, all in one commit (rule DEL-3).

        A reader sees the old rows of a key or the new ones. Where a table has sort keys, all rows
        of a row key are replaced by those that are given. It costs hardly more than an ingest, and
        readers leave the old rows out until a compaction. Leaves of a table of format 1 (see
        `upgrade`) are written anew.

        Args:
            data, job_id, csv, ignore_extra_columns, set_aside, progress: As for `ingest`.
            reason: Why, for the history.
            if_unchanged_since: As for `ingest`.

        Raises:
            BadRequest: the table aggregates, or has a function.
            RowsChanged, VersionNotFound: as by `ingest`.
            InputRefused: the input does not fit the table, or has a key twice; nothing was changed.
            CommitContended: others changed the same leaves each time; try again.
            CommitTooLarge: the table's state store cannot replace so many files at once.
            CommitUnknown: storage gave no answer; run again with the job id that it names.
            StorageFailed: storage failed; nothing was changed.
            TableNotFound: the table was deleted.
        """
        from sleeper.tables.upsert import upsert

        with committing(reason=reason):
            return upsert(
                self._current(),
                data,
                job_id,
                csv=csv,
                ignore_extra_columns=ignore_extra_columns,
                set_aside=set_aside,
                progress=progress,
                if_unchanged_since=if_unchanged_since,
            )

    def bulk_import(
        self,
        data: object,
        job_id: str | None = None,
        *,
        engine: EngineAsked = "auto",
        spark: SparkSession | None = None,
        master: str | None = None,
        conf: Mapping[str, str] | None = None,
        csv: CsvOptions | Mapping[str, Any] | None = None,
        ignore_extra_columns: bool = False,
        set_aside: str | os.PathLike[str] | None = None,
        progress: Callable[[int, int | None], None] = lambda done, total: None,
        send_commit: Callable[[AddFiles], None] | None = None,
        upsert: bool = False,
        if_unchanged_since: int | None = None,
    ) -> BulkImportResult:
        """Add many rows, all in one commit.

        A table with too few leaves for the input is split first, by a sample of the rows: to one
        leaf for each million rows or 128 MiB (beyond 4,096 of them, up to 1 GiB), or to as many as
        the property `sleeper.table.bulk.import.min.leaf.partitions` requires. Rows are processed as
        in ingest.

        Args:
            data: As for `ingest`, or a Spark DataFrame. For a stream no leaf is split: it is read
                once.
            job_id, csv, ignore_extra_columns, send_commit: As for `ingest`.
            engine: `local`, `spark`, or `auto` for the cheaper one that can import the input.
            spark: A session to use, classic or Connect; without it one is started and kept.
            master: Where to start Spark instead: `local[4]`, `spark://host:7077`, ...
            conf: Settings of the session that is started.
            set_aside: Where to write rows whose key is null; without it such input is refused. A
                new Parquet file for the local engine; for Spark a new folder that driver and
                workers share.
            progress: Called repeatedly with the estimated rows that are done, and of all rows.
            upsert: True to replace rows that have the same row keys, as `upsert` does. Spark sorts
                and writes the new rows; this process takes the old ones out.
            if_unchanged_since: As for `ingest`. That it splits leaves before changes no row.

        Raises:
            InputRefused: the input does not fit the table; no row of it is visible.
            BadRequest: a setting of `conf` is misspelt, or no value of its kind; lists all. Or rows
                are to be replaced in a table that aggregates, or by a committer.
            RowsChanged: a leaf has changed since `if_unchanged_since`; no row was changed.
            InsufficientData: there are too few different keys for the required leaves.
            MissingExtra: Spark is needed and not installed.
            CommitContended, SplitAttemptsExceeded: other writers committed first each time; try
                again.
            CommitUnknown: storage gave no answer; run again with the job id that it names.
            StorageFailed, TableNotFound: as for `ingest`.

        Source: rules BLK-5, BLK-7 and BLK-10.
        """
        from sleeper.tables.bulk_import import bulk_import

        return bulk_import(
            self._current(),
            data,
            job_id,
            engine=engine,
            spark=spark,
            master=master,
            conf=conf,
            csv=csv,
            ignore_extra_columns=ignore_extra_columns,
            set_aside=set_aside,
            progress=progress,
            send_commit=send_commit,
            upsert=upsert,
            if_unchanged_since=if_unchanged_since,
        )

    def explain_bulk_import(
        self,
        data: object,
        *,
        cores: int,
        csv: CsvOptions | Mapping[str, Any] | None = None,
        ignore_extra_columns: bool = False,
    ) -> str:
        """Return how Spark would import data, as text: tasks, blocks, bytes, memory, seconds.

        Nothing is imported. Footers of files are read, and keys are sampled if the table has leaves
        enough. Of a DataFrame nothing is evaluated: its size is three times Spark's estimate,
        which counts files as they are compressed.

        Args:
            data: Parquet files, or a Spark DataFrame.
            cores: Tasks that Spark runs at the same time.
            csv, ignore_extra_columns: As for `bulk_import`.

        Raises:
            BadRequest: the rows are in this process, which imports them without Spark.
            InputRefused: the input does not fit the table.
        """
        from sleeper.tables.bulk_import import explain_bulk_import

        return explain_bulk_import(
            self._current(), data, cores=cores, csv=csv, ignore_extra_columns=ignore_extra_columns
        )

    def query(
        self,
        key: object = NOT_GIVEN,
        *,
        keys: Any = NOT_GIVEN,
        range: RegionRequest | NotGiven = NOT_GIVEN,  # noqa: A002 - the field's own word
        regions: Iterable[RegionRequest] | NotGiven = NOT_GIVEN,
        prefix: Mapping[str, str | bytes] | NotGiven = NOT_GIVEN,
        where: str | None = None,
        limit: int | None = None,
        columns: Sequence[str] | None = None,
        as_of: int | datetime | None = None,
        ordered: bool = True,
        max_age: float | timedelta | None = None,
        **unknown: Never,
    ) -> Rows:
        """Read rows by key or key range, in key order; all rows without either.

        None for key, keys, range, regions or prefix is refused; an empty list returns no rows.

        Args:
            key: One row key: a value, a tuple for composite keys, or {field: value}. The first
                fields of a composite key find all rows that have them.
            keys: Many complete row keys: a list, or an Arrow or NumPy array.
            range: {field: (min, max)}, meaning [min, max), or {field: (min, min_inclusive, max,
                max_inclusive)}; None is no limit. For any of the row key fields.
            regions: Several such ranges; a row in two of them is returned once.
            prefix: {field: how its values begin}, for string and bytes fields of the row key;
                alone, or with key, range or regions of other fields.
            where: A condition in SQL over any fields, such as "n > 1 AND name LIKE 'a%'"; alone, or
                with the others. Conditions on row keys narrow what is read (docs/guide/sql.md).
            limit: The most rows to return; reading stops there.
            columns: The columns to return, in this order; all without it.
            as_of: A transaction number, or an aware datetime, which means the last transaction at
                or before it: reads the table as it was after that transaction.
            ordered: False to read a range, or all rows, in any order: files are read in parallel
                and not merged, and keys only if they are asked for.
            max_age: Seconds, or a `timedelta`: within so long after a look for newer commits this
                handle does not look again, and may miss what other processes changed. None takes
                the table's property; 0 looks (docs/buckets.md).
            unknown: Names of fields are no arguments; they are refused with what to write.

        Returns:
            Rows with exactly the requested columns; they are read during iteration, or by
            `.to_arrow()`, `.to_pandas()`, `.to_polars()` or `.to_pylist()`.

        Raises:
            QueryInvalid: a field, value, range or column does not fit the schema.
            VersionNotFound: there is no transaction `as_of`, or its files were deleted.
            DataDamaged: a file of the table is missing or wrong.
            TableNotFound: the table was deleted.

        Source: rules QRY-1 to QRY-6, QRY-21, QRY-22.
        """
        if unknown:
            raise unknown_arguments(self.schema, unknown)
        version, age_s = checked_as_of(as_of), checked_max_age(max_age)
        query = checked_query(
            self.schema,
            key=key,
            keys=keys,
            range=range,
            regions=regions,
            prefix=prefix,
            where=where,
            limit=limit,
            columns=columns,
            ordered=ordered,
        )
        if version is None:
            return self._answered(query.rows, age_s)
        from sleeper.tables.versions import rows_as_of

        return rows_as_of(self._current(), version, query.rows)

    def head(self, n: int = 5) -> Rows:
        """Return the first rows in key order, `n` of them; little more is read.

        Raises:
            QueryInvalid: `n` is not a number of rows.
        """
        if n is None:
            raise QueryInvalid("n must be a number of rows, not None; query() returns all rows")
        return self.query(limit=n)

    def count(
        self,
        *,
        key: object = NOT_GIVEN,
        keys: Any = NOT_GIVEN,
        range: RegionRequest | NotGiven = NOT_GIVEN,  # noqa: A002 - the field's own word
        regions: Iterable[RegionRequest] | NotGiven = NOT_GIVEN,
        prefix: Mapping[str, str | bytes] | NotGiven = NOT_GIVEN,
        where: str | None = None,
        as_of: int | datetime | None = None,
    ) -> int:
        """Return the exact number of rows that `query` returns for the same arguments.

        Without a filter, an aggregation or a function this reads no rows: the table's state knows
        how many rows whole leaves have, and page indexes and a few keys tell the rest. A condition
        `where` on values reads the columns that it needs.

        Args and Raises: as `query`.

        Source: rule QRY-21.
        """
        with self.query(
            key=key,
            keys=keys,
            range=range,
            regions=regions,
            prefix=prefix,
            where=where,
            columns=[self.schema.names[0]],
            as_of=as_of,
            ordered=False,
        ) as rows:
            return rows.count()

    def sql(
        self,
        statement: str,
        *,
        as_of: int | datetime | None = None,
        if_unchanged_since: int | None = None,
    ) -> Rows:
        """Run one SQL statement that reads this table, or deletes rows of it, by its name.

        Conditions on row keys narrow what is read: =, IN, BETWEEN, comparisons and LIKE 'prefix%',
        with AND, OR and NOT. Names are case-sensitive; those with signs are quoted: "my.table".
        Sorting, grouping and joining use at most 1 GiB of memory; grouping, and sorting of rows
        that meet a condition, spill to the temp folder.

        >>> import sleeper
        >>> instance = sleeper.connect("memory://")
        >>> schema = pa.schema([("id", pa.string()), ("n", pa.int64())])
        >>> table = instance.create_table("numbers", schema, row_keys=["id"])
        >>> table.ingest([{"id": "b", "n": 2}, {"id": "a", "n": 1}]).rows_written
        2
        >>> table.sql("SELECT sum(n) AS total FROM numbers WHERE id < 'c'").to_pylist()
        [{'total': 3}]

        `DELETE FROM numbers WHERE n > 1` deletes rows, and returns one row with the number of rows
        that went as `deleted`. Conditions on row keys alone (in a table of format 2, see `upgrade`)
        are one entry and write no file (rule DEL-1); any other is `delete(where=...)`. No other
        statement changes anything.

        Args:
            statement: SELECT, WITH, VALUES, EXPLAIN or DESCRIBE, in the dialect of DataFusion; or
                DELETE FROM with the name and a condition.
            as_of: A transaction number or an aware time, as for `query`.
            if_unchanged_since: Of a DELETE, as for `delete`.

        Returns:
            The rows, as a stream, in no order unless the statement says one. A column name that
            occurs twice gets a number: `id`, `id_1`.

        Raises:
            QueryInvalid: it is another statement, a DELETE of an older version or without a
                condition, cannot be understood, or names an unknown column.
            CommitContended, CommitTooLarge, CommitUnknown, RowsChanged: of a DELETE, as by
                `delete`.
            VersionNotFound: there is no transaction `as_of`, or its files were deleted.
            DataDamaged: a file of the table is missing or wrong.
            StorageFailed: the temp folder is full, or the statement needs too much memory.
        """
        from sleeper.tables.sql import check_deletes, deletion_asked_for, sql

        deletion = deletion_asked_for(statement, lambda: [self.name])
        version = checked_as_of(as_of)
        if deletion is not None:
            if version is not None:
                raise QueryInvalid("rows are deleted from the newest version: leave out as_of")
            from sleeper.tables.deletions.statement import delete_by_statement

            return delete_by_statement(self._current(), deletion.where, if_unchanged_since)
        check_deletes(if_unchanged_since)
        answer = partial(sql, statement=statement)
        if version is None:
            return self._answered(answer, None)
        from sleeper.tables.versions import rows_as_of

        return rows_as_of(self._current(), version, answer)

    def explain_sql(self, statement: str) -> str:
        """Return what a statement would do: DataFusion's plan, and what is read of this table.

        Of the table it says how many leaves and files are read, and how many pages of these files,
        by their indexes. No row is read.

        Raises:
            QueryInvalid: as by `sql`.
        """
        from sleeper.tables.sql import explain_sql

        return explain_sql(self._current(), statement)

    def scan_polars(self, *, ordered: bool = False) -> pl.LazyFrame:
        """Return this table as a LazyFrame of polars, at the transaction that is the newest now.

        Rows are read when the frame is collected: only the columns that it needs, and only where
        its conditions on row keys can be true (`==`, `is_in`, `is_between`, comparisons and
        `str.starts_with`, with `&`, `|` and `~`). Batches are given to polars one after the other.

        Args:
            ordered: True for rows in key order, which reads files of a leaf together.

        Raises:
            BadRequest: `ordered` is not a bool.
            DataDamaged: a file of the table is missing or wrong; raised while the frame is
                collected.
        """
        from sleeper.tables.sql import scan_polars

        return scan_polars(self._current(), ordered=ordered)

    def to_duckdb(self, connection: Any, name: str | None = None) -> None:
        """Register this table in a connection to DuckDB, at the transaction that is the newest now.

        DuckDB reads rows while a statement runs: only the columns that it needs, and only where its
        conditions on row keys can be true, as far as it passes them on. Register again for newer
        rows.

        Args:
            connection: What `duckdb.connect()` returned.
            name: The name in DuckDB; that of the table without it.

        Raises:
            BadRequest: it is no connection, or `name` is no name.
        """
        from sleeper.tables.sql import to_duckdb

        to_duckdb(self._current(), connection, name)

    def to_spark(
        self,
        spark: SparkSession,
        *,
        key: object = NOT_GIVEN,
        keys: Any = NOT_GIVEN,
        range: RegionRequest | NotGiven = NOT_GIVEN,  # noqa: A002 - the field's own word
        regions: Iterable[RegionRequest] | NotGiven = NOT_GIVEN,
        prefix: Mapping[str, str | bytes] | NotGiven = NOT_GIVEN,
        columns: Sequence[str] | None = None,
        as_of: int | datetime | None = None,
    ) -> DataFrame:
        """Return rows as a Spark DataFrame, in no order; all rows without a key or range.

        The DataFrame reads the table's current version, however late it is used. It uses Spark's
        own Parquet reader if the table has no processing and every file belongs to one leaf; then
        all columns are nullable, as always with Spark's Parquet. Otherwise the data source
        `sleeper` merges and processes the rows in Python. That takes more time and prunes no
        columns: name the columns that you need.

        For a bucket the data source is used too, unless the session's setting
        `spark.sleeper.s3.scheme` names the scheme by which its JVM reads `s3://`, such as `s3a`.

        Args:
            spark: A session, classic or Connect. Its workers must reach the instance's folder or
                bucket by the same URL, and be able to import `sleeper`.
            key: As for `query`.
            keys: As for `query`.
            range: As for `query`.
            regions: As for `query`.
            prefix: As for `query`.
            columns: As for `query`.
            as_of: As for `query`.

        Raises:
            QueryInvalid: a field, value, range or column does not fit the schema.
            VersionNotFound: there is no transaction `as_of`.
            TableNotFound: the table was deleted.
            BadRequest: the instance is in memory, and no other process can read it.
            MissingExtra: Python workers are needed, and their Python has no Sleeper or another
                version of it.

        Source: rule QRY-20.
        """
        from sleeper.tables.spark import to_spark

        return to_spark(
            self._current(),
            spark,
            key=key,
            keys=keys,
            range=range,
            regions=regions,
            prefix=prefix,
            columns=columns,
            as_of=as_of,
        )

    def open_for_spark(self) -> SparkTable:
        """Return the description of this table that the data source `sleeper` needs.

        Raises:
            BadRequest: the instance is in memory.
            TableNotFound: the table was deleted.
        """
        from sleeper.tables.spark import open_for_spark

        return open_for_spark(self._current())

    def export(
        self,
        target: str | os.PathLike[str],
        *,
        range: RegionRequest | NotGiven = NOT_GIVEN,  # noqa: A002 - the field's own word
        regions: Iterable[RegionRequest] | NotGiven = NOT_GIVEN,
        prefix: Mapping[str, str | bytes] | NotGiven = NOT_GIVEN,
        columns: Sequence[str] | None = None,
        as_of: int | datetime | None = None,
        spark: SparkSession | None = None,
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> ExportResult:
        """Write rows to Parquet files, in key order; all rows without a range or prefix.

        Rows are processed as by `query`: filtered and aggregated. Files are named
        `part-00000.parquet` and so on. The rows of a leaf are in one file, those of a leaf of 8
        million rows or more in several of about 4 million, and small neighbouring leaves share a
        file. `ingest` and `bulk_import` accept the folder as input. A local folder
        becomes visible atomically when all files are written; in a bucket the file `_SUCCESS` is
        written last. If the export fails, its files are deleted.

        Args:
            target: A local folder that does not exist or is empty, or an empty
                `s3://bucket/folder`.
            range, regions, prefix, columns, as_of: As for `query`.
            spark: A session, classic or Connect, whose workers write the files in parallel.
                They must reach the instance and the target by the same paths or URLs. Without
                it this process writes them one by one, in the memory of a query.
            progress: Called after each file with the number of written files, and of all files.

        Raises:
            QueryInvalid: a field, value, range or column does not fit the schema.
            VersionNotFound: there is no transaction `as_of`, or its files were deleted.
            AlreadyExists: the target is not empty.
            UrlInvalid: the target is neither a folder nor in a bucket.
            DataDamaged: a file of the table is missing or wrong.
            StorageFailed: the target cannot be written; StorageFull if it is full.
            TableNotFound: the table was deleted.
            MissingExtra: the target is in a bucket; `sleeper-store[objectstore]` is not installed.
            BadRequest: the instance is in memory, and Spark cannot read it.

        Source: rules EXP-2, EXP-3.
        """
        from sleeper.tables.export import export

        return export(
            self._current(),
            target,
            range=range,
            regions=regions,
            prefix=prefix,
            columns=columns,
            as_of=as_of,
            spark=spark,
            progress=progress,
        )

    # History.

    def history(self, limit: int | None = None) -> tuple[HistoryEntry, ...]:
        """Return what the table's transactions did, the newest first.

        Args:
            limit: How many of the last transactions; all without it. Only these are read.

        Raises:
            QueryInvalid: `limit` is not a number of transactions.
            BadRequest: the table's state store keeps no log of transactions.
            TableNotFound: the table was deleted.
        """
        from sleeper.tables.history import history

        return history(self._current(), limit)

    def kept_versions(self) -> KeptVersions:
        """Return which versions of the table can be read by `as_of`: the first and the newest.

        Raises:
            TableNotFound: the table was deleted.
        """
        from sleeper.tables.versions import kept

        return kept(self._current().store)

    def diff(
        self,
        before: int | datetime,
        after: int | datetime | None = None,
        *,
        columns: Sequence[str] | None = None,
    ) -> Rows:
        """Return the rows that ingests added between two versions, in key order.

        Rows are as they were added: the table's filters are applied, its aggregations are not. Rows
        that a compaction wrote anew are not among them, because they were in the table before.

        Args:
            before: A transaction number, or an aware datetime, which means the last transaction at
                or before it. Its rows are not returned; 0, or a time before the first, is the empty
                table.
            after: The same, for the last transaction whose rows are returned; the newest without
                it.
            columns: The columns to return, in this order; all without it.

        Returns:
            The rows; `.transaction` is the number of `after`.

        Raises:
            QueryInvalid: `before` is later than `after`, or an argument has the wrong type.
            VersionNotFound: there is no such transaction, or files of it were deleted since.
            BadRequest: the table's state store keeps no log of transactions.
            TableNotFound: the table was deleted.
        """
        from sleeper.tables.diff import diff

        table, state = self._newest()
        return diff(table, state, before, after, columns=columns)

    # Engines of others.

    def publish(self, as_: str, *, make_clean: bool = False) -> PublishResult:
        """Let other engines read the table's files in place (docs/guide/publish.md).

        What they need is written beside the files, and no row is copied. They see one version of
        the table until the next is published; a property publishes while `serve` runs. The newest
        version is published in which each file has rows of the table alone: not one between the
        compactions of two leaves that share a file.

        Args:
            as_: The format: "delta" or "iceberg".
            make_clean: Compact first what stands in the way of publishing the newest version, and
                nothing else.

        Returns:
            Which transaction is published, how far it lags behind, and what to give to readers. It
            may have been published before.

        Raises:
            BadRequest: a column has a type that the format lacks, or the table's rows age off.
            NothingToPublish: no version can be read as it is, and none is published.
            CommitContended: other publishers were faster each time.
            StorageFailed: try again; readers have the version before, or this one.
            TableNotFound: the table was deleted.
        """
        from sleeper.tables.publish import publish

        return publish(self._current(), as_, make_clean=make_clean)

    def publish_if_due(self) -> tuple[PublishResult, ...]:
        """Publish in the formats of `sleeper.table.publish.formats`, if enough was committed.

        Returns:
            What was published now.

        Raises: as `publish`, but NothingToPublish.
        """
        from sleeper.tables.publish import publish_if_due

        return publish_if_due(self._current())

    def publications(self) -> tuple[PublishResult, ...]:
        """Return what is published of the table, and how far it lags behind, by format."""
        from sleeper.tables.publish import publications

        return publications(self._current())

    def unpublish(self, as_: str) -> int:
        """Remove what `publish` wrote; other engines can no longer read the table.

        Rows and data files stay. Files that were kept for readers alone become garbage.

        Args:
            as_: The format.

        Returns:
            The number of deleted objects.

        Raises:
            BadRequest: there is no such format.
            StorageFailed: some may be left: run it again.
        """
        from sleeper.tables.publish import unpublish

        return unpublish(self._current(), as_)

    # Commits that another process makes.

    def request_commit(
        self,
        transaction: Transaction,
        *,
        task_id: str | None = None,
        run_id: str | None = None,
    ) -> str:
        """Return the message that asks a committer to commit a transaction.

        A transaction that is too large for a message is stored first, in the table's folder.

        Args:
            transaction: What is to be committed.
            task_id: The worker that asks.
            run_id: The run of a job that it ends.

        Raises:
            StorageFailed: a large transaction cannot be stored.
        """
        from sleeper.tables.commit_requests import request_commit

        return request_commit(self._current(), transaction, task_id=task_id, run_id=run_id)

    def commit_requests(self, requests: Sequence[CommitRequest]) -> list[CommitAnswer]:
        """Commit requests of this table in one entry, and return what became of each, in order.

        One that the table's state forbids is refused, and the others are committed all the same.

        Raises:
            CommitContended, StorageFailed: nothing was committed; ask again.
            CommitUnknown: they may have been committed; ask again, and the log answers.
            TableNotFound: the table was deleted.
        """
        from sleeper.tables.commit_requests import commit_requests

        return commit_requests(self._current(), requests)

    def delete_requests(self, requests: Iterable[CommitRequest]) -> None:
        """Delete what was stored of requests that were answered, and are delivered no more.

        Raises:
            StorageFailed: it cannot be deleted; it does no harm.
        """
        from sleeper.tables.commit_requests import delete_requests

        delete_requests(self._current(), requests)

    # Definition.

    def split_points(self) -> list[Any]:
        """Return the split points on the first row key, ascending (rule TBL-11)."""
        from sleeper.model.partitions import split_points_of

        return split_points_of(self.state().tree)

    def report_partitions(self) -> list[PartitionReport]:
        """Describe every partition, leaves in key order first (rule ADM-6)."""
        from sleeper.tables.report import report_partitions

        return report_partitions(self._current())

    def report_files(self) -> FilesReport:
        """Count the table's files, references and rows (rule ADM-5)."""
        from sleeper.tables.report import report_files

        return report_files(self.state())

    def references(self) -> list[FileReference]:
        """Return every file reference, by partition in key order."""
        from sleeper.tables.report import list_references

        return list_references(self.state())

    def rename(self, name: str) -> None:
        """Rename the table. Its id, data and open handles do not change (rule TBL-3).

        Raises:
            TableAlreadyExists: another table has this name.
        """
        from sleeper.tables.change import rename_table

        self._adopt(rename_table(self.table_id, name, index=self._context.index))

    def set_online(self, *, online: bool) -> None:
        """Turn background operations on the table on or off (rule TBL-6)."""
        from sleeper.tables.change import set_table_online

        self._adopt(set_table_online(self.table_id, online=online, index=self._context.index))

    def set_properties(self, changes: Mapping[str, PropertyValue | None]) -> None:
        """Set properties by their full names; None resets to the default.

        Args:
            changes: Values are str, int or bool.

        Raises:
            PropertiesInvalid: a name or value is not allowed, or the property cannot be changed.
        """
        from sleeper.tables.change import set_table_properties

        context = self._context
        self._adopt(
            set_table_properties(
                self.table_id, changes, index=context.index, instance=context.properties
            )
        )

    def delete(
        self,
        *,
        key: object = NOT_GIVEN,
        keys: Iterable[object] | NotGiven = NOT_GIVEN,
        range: RegionRequest | NotGiven = NOT_GIVEN,  # noqa: A002 - the field's own word
        regions: Iterable[RegionRequest] | NotGiven = NOT_GIVEN,
        prefix: Mapping[str, str | bytes] | NotGiven = NOT_GIVEN,
        where: str | None = None,
        job_id: str | None = None,
        reason: str | None = None,
        if_unchanged_since: int | None = None,
    ) -> RowDeletion:
        """Delete rows by their keys, or by a condition, in one entry (rules DEL-1 and DEL-2).

        Rows that the table has now are gone for every reader; rows of the same keys that are added
        later stay. Files keep the bytes until a compaction has written them anew and garbage was
        collected. Where a table aggregates, rows are deleted before they are united.

        With a condition, leaves that have such rows are written anew without them, which takes as
        long as to compact these leaves; it is asked of rows as `query` returns them. Compactions
        that run there begin again. Rows that are added meanwhile stay.

        Args:
            key: A row key, or the first values of one, as for `query`; or
            keys: complete row keys, any number, or a table that has them in columns. In a table of
                format 1, leaves that have rows of more than 1,000 are written anew, as by a
                condition; or
            range: one region of keys; or
            regions: several.
            prefix: The rows whose fields have these prefixes.
            where: Instead of all these: a condition in SQL, such as `"fare < 0 AND day > 3"`, which
                may name row keys. Rows for which it is null stay.
            job_id: Names the work: a deletion of an id that was committed before deletes nothing.
                Without one, a deletion that is repeated deletes rows that were added since, too.
            reason: Why, for the history.
            if_unchanged_since: A transaction number: nothing is deleted if a leaf of these keys, or
                one that has rows which meet the condition, has changed since (rule DEL-5).

        Raises:
            QueryInvalid: a key, a range, a prefix or the condition does not fit the schema, none is
                given, or one has every key: use `reinitialise` to remove all rows.
            BadRequest: there are more than 1,000 regions, or the table has format 1 (see `upgrade`)
                and at most 1,000 keys or regions are given.
            TableChanged: files still have 1,000 deleted keys and ranges: compact first.
            RowsChanged, VersionNotFound: as by `ingest`.
            CommitTooLarge: the table's state store cannot replace so many files at once.
            CommitContended, StorageFailed: nothing was deleted.
            CommitUnknown: it may have been committed; run it again with the same job id.
            TableNotFound: the table was deleted.
        """
        asked: dict[str, Any] = {
            "key": key,
            "keys": keys,
            "range": range,
            "regions": regions,
            "prefix": prefix,
        }
        from sleeper.tables.deletions.once import delete_once

        since = if_unchanged_since
        with committing(reason=reason):
            table = self._current()
            if where is not None:
                from sleeper.tables.deletions.where import delete_where

                by_condition = partial(
                    delete_where, table, where, if_unchanged_since=since, **asked
                )
                return delete_once(table, job_id, by_condition)
            from sleeper.tables.deletions.keys import delete_by_keys

            by_keys = partial(delete_by_keys, table, if_unchanged_since=since, **asked)
            return delete_once(table, job_id, by_keys)

    def purge(self, *, keys: Iterable[object], reason: str | None = None) -> Purge:
        """Remove all rows of some row keys and every trace of them, and prove it (rule DEL-4).

        Files that have such rows are written anew and deleted at once, whether the rows can be seen
        or not; split points that are such keys are replaced; the log and older states lose the
        keys, so versions from before end; results of queries and exports in the instance that have
        such rows are deleted. Then all of it is searched. Repeat the same call after a failure: it
        goes on. Rows that are added meanwhile with these keys are removed as well; stop who adds
        them.

        Args:
            keys: Complete row keys, as for `query`, or a table that has them in columns.
            reason: Why, for the history and the proof. It may not name a key.

        Returns:
            The proof. `finished` says whether nothing was found that still has a key; `findings`
            and `out_of_reach` say what may.

        Raises:
            QueryInvalid: a key does not fit the schema.
            BadRequest: the table has format 1 (see `upgrade`), is published, or its state store
                keeps no snapshots; or the reason names a key. Nothing was purged.
            CommitContended: others changed the same leaves each time. Purge the same keys again.
            CommitTooLarge: the table's state store cannot replace so many files at once.
            DataDamaged: something cannot be read, so it may have a key.
            StorageFailed, CommitUnknown: purge the same keys again.
            TableNotFound: the table was deleted.
        """
        from sleeper.tables.deletions.keys import listed_keys
        from sleeper.tables.purges.purge import purge

        with committing(reason=reason):
            table = self._current()
            return purge(table, listed_keys(table, keys))

    def purges(self) -> tuple[Purge, ...]:
        """Return the purges of the table, the newest first, each with how far it is.

        Raises:
            StorageFailed: they cannot be read.
        """
        from sleeper.tables.purges.purge import purges

        return purges(self._current())

    def alter(
        self,
        *,
        add: NewFields = (),
        drop: Iterable[str] = (),
        rename: Mapping[str, str] | None = None,
        widen: Mapping[str, NewType] | None = None,
        nullable: Iterable[str] = (),
        defaults: Mapping[str, Any] | None = None,
        properties: Mapping[str, PropertyValue | None] | None = None,
        reason: str | None = None,
    ) -> ColumnChange:
        """Change value columns; no data file is written (rules COL-1 to COL-8).

        Rows that were written before have null, or the default, in a new column, whatever a dropped
        column of the same name had. Compactions write files with the new columns. `as_of` reads
        with the columns of then. A writer that still has the old columns may go on.

        Args:
            add: New columns, as an Arrow schema or as fields; they come last. One that is not
                nullable needs a default.
            drop: Columns to leave out.
            rename: New names, by the names of now.
            widen: New types, by name: int32 may become int64, float32 float64, and a decimal one of
                more digits before its point.
            nullable: Columns that may be null from now on.
            defaults: Values of new columns in the rows that are there, by name.
            properties: Properties to set in the same step, such as aggregations that name a new
                column.
            reason: Why, for the history.

        Raises:
            SchemaInvalid: a change is not possible; says which is. Nothing was changed.
            PropertiesInvalid: filters or aggregations name other columns. Nothing was changed.
            BadRequest: the table has format 1 (see `upgrade`), or nothing is to be changed.
            CommitContended, CommitUnknown, StorageFailed: run it again; what was changed already
                says that it is there.
            TableNotFound: the table was deleted.
        """
        from sleeper.tables.alter import alter, asked_change, record_change

        change = asked_change(
            add=add,
            drop=drop,
            rename=rename or {},
            widen=widen or {},
            nullable=nullable,
            defaults=defaults or {},
        )
        with committing(reason=reason):
            record, before = alter(self._current(), change, properties or {})
            return record_change(self._adopt(record), before)

    def reinitialise(self, split_points: Sequence[Any] | None = None) -> int:
        """Remove all rows, and return the new transaction number (rule TBL-5).

        Args:
            split_points: New partitions; None keeps them, an empty list makes one.

        Raises:
            SplitPointsInvalid: split points have the wrong type, or are not strictly ascending.
        """
        from sleeper.tables.reinitialise import reinitialise

        return reinitialise(self._current(), split_points)

    def migrate_state(self, to: str) -> MigrationResult:
        """Move the table's state to another state store, or complete an interrupted move.

        The copy is read back and compared first. Queries go on; a commit that comes meanwhile makes
        it start again, a few times, and from the last step on commits go to the new store.
        Transaction numbers, job ids and claims stay; earlier versions stay behind, so `as_of`
        cannot read them.

        Args:
            to: The class of the state store, as of the property
                `sleeper.table.statestore.classname`.

        Raises:
            BadRequest: there is no such state store.
            CommitContended: others wrote to the table in every attempt. Nothing was changed.
            TableChanged: an interrupted move to a third store must be completed first.
            CommitUnknown, StorageFailed: run it again, which completes the move or begins anew.
            DataDamaged: the copy is not what was written. The table is as it was.
            TableNotFound: the table was deleted.
        """
        from sleeper.tables.migrate_state import migrate_state

        result = migrate_state(self._current(), to)
        self._current()  # adopts the record that names the new store
        return result

    def upgrade(self) -> FormatChange:
        """Give the table format 2: its log says who changed what, and cannot be changed unnoticed.

        New tables have it; one that an earlier version of Sleeper made may have format 1. One entry
        is committed; data files stay as they are. From then on versions of Sleeper that do not know
        format 2 refuse the table. In a state store without a log nothing says who committed.

        Returns:
            The format, and that before: a table that has format 2 stays as it is.

        Raises:
            CommitContended, CommitUnknown, StorageFailed: run it again.
            TableNotFound: the table was deleted.
        """
        from sleeper.tables.upgrade import upgrade

        return upgrade(self._current())

    def downgrade(self) -> FormatChange:
        """Give the table format 1 again, so that versions before format 2 can read and write it.

        The state is written whole beside the log. Versions that do not know format 2 cannot read
        the table as of earlier transactions.

        Raises:
            BadRequest: the state store keeps no snapshots. Nothing was changed.
            CommitContended, CommitUnknown, StorageFailed: run it again.
            TableNotFound: the table was deleted.
        """
        from sleeper.tables.upgrade import downgrade

        return downgrade(self._current())

    # Maintenance.

    def plan_compaction(self, *, all_files: bool = False) -> CompactionPlan:
        """Return what `compact` would do now, leaf by leaf, with reasons; nothing is changed.

        References of split partitions are counted on the leaves to which `compact` would move them.
        Files of claims whose lease has ended count as free.
        """
        from sleeper.tables.compact import plan_compaction

        return plan_compaction(self._current(), all_files=all_files)

    def compact(
        self,
        *,
        all_files: bool = False,
        workers: int = 1,
        spark: SparkSession | None = None,
        progress: Callable[[int, int], None] = lambda done, total: None,
        watch: CompactionWatch | None = None,
    ) -> CompactionSummary:
        """Merge files, leaf by leaf, so that queries read fewer files.

        References of split partitions are moved to the leaves first. Each job is committed when it
        has ended, on Spark together with those that end at about the same time. Files are claimed
        for a few jobs at a time, and claims are renewed while the jobs run. If a run is killed, its
        committed jobs stay, and so do a few claims: the next run releases them after
        `sleeper.table.compaction.job.lease.minutes`; `release_claims` does it at once.
        A running job needs about 1 GiB of memory, however many rows it has.

        Args:
            all_files: Merge also files that the strategy leaves out, until each leaf has one file.
            workers: Number of jobs that run in parallel; from two on, each in its own process.
            spark: A session, classic or Connect, whose workers run the jobs, one on each core,
                instead of this machine. They must reach the instance by the same URL.
            progress: Called with the number of jobs that have ended, and the number of all jobs.
            watch: Follows the jobs, for a worker; only without `workers` and `spark`.

        Returns:
            The result, including failed jobs. The table stays readable if jobs fail.

        Raises:
            CommitContended, CommitUnknown, StorageFailed: try again.
            TableNotFound: the table was deleted.
            BadRequest: `workers`, `spark` or `watch` are given together, or Spark misses the
                instance.

        Source: rules CMP-1 to CMP-9, CMP-14, CMP-16.
        """
        from sleeper.tables.compact import compact

        return compact(
            self._current(),
            all_files=all_files,
            workers=workers,
            spark=spark,
            progress=progress,
            watch=watch,
        )

    def claims(self) -> tuple[HeldClaim, ...]:
        """Return the claims of compaction jobs: their files, owners and times.

        A claim ends `sleeper.table.compaction.job.lease.minutes` after its last renewal.
        """
        from sleeper.tables.claims import claims

        return claims(self._current())

    def release_claims(
        self, job_id: str | None = None, *, expired_only: bool = False
    ) -> ReleaseResult:
        """Release the claims of compaction jobs, so that other jobs may compact their files.

        Use it for claims of processes that have died. If a job is still running, its commit is
        refused. The next compaction releases claims whose lease has ended anyway.

        Args:
            job_id: The job; without it, all jobs of the table.
            expired_only: Release the claims of all jobs whose lease has ended, and no others.

        Raises:
            BadRequest: `job_id` and `expired_only` are given together.
            CommitContended, CommitUnknown, StorageFailed: try again.
            TableNotFound: the table was deleted.

        Source: ours; upstream's claims do not end.
        """
        from sleeper.tables.claims import release_claims

        return release_claims(self._current(), job_id, expired_only=expired_only)

    def leaf_sizes(self) -> tuple[LeafSize, ...]:
        """Return the leaves that have rows, the largest first, and whether each will be split.

        References of split partitions are counted on the leaves to which they would be moved.
        """
        from sleeper.tables.split_and_merge import leaf_sizes

        return leaf_sizes(self._current())

    def split_partitions(self, *, spark: SparkSession | None = None) -> tuple[SplitResult, ...]:
        """Split leaves of at least `sleeper.table.partition.splitting.threshold` rows.

        Each is cut in two at the median of its keys. No file is moved: files belong to both halves.
        Ingest, compaction and queries may run at the same time.

        Args:
            spark: A session, classic or Connect, whose workers read the sketches that tell where
                leaves are cut: for a table with thousands of large leaves.

        Returns:
            The result of each leaf that was large enough, the largest first.

        Raises:
            CommitContended, CommitUnknown, StorageFailed: try again.
            TableNotFound: the table was deleted.

        Source: rules SPL-1 to SPL-6.
        """
        from sleeper.tables.split_and_merge import split_partitions

        return split_partitions(self._current(), spark=spark)

    def small_siblings(self, *, rows_below: int | None = None) -> tuple[SiblingLeaves, ...]:
        """Return the pairs of leaves that `merge_partitions` would merge first; nothing is changed.

        Args:
            rows_below: As for `merge_partitions`.
        """
        from sleeper.tables.split_and_merge import small_siblings

        return small_siblings(self._current(), rows_below=rows_below)

    def merge_partitions(self, *, rows_below: int | None = None) -> tuple[MergeResult, ...]:
        """Merge pairs of small leaves with the same parent, up the tree.

        No file is moved. Ingest, compaction and queries may run at the same time. Empty leaves that
        were made by split points are merged too.

        Args:
            rows_below: Leaves of one parent with fewer rows together are merged. Without it,
                `sleeper.table.partition.merging.threshold`; its default 0 merges none.

        Returns:
            The result of each pair, in the order in which they were tried.

        Raises:
            BadRequest: `rows_below` is more than the rows at which a leaf is split.
            CommitContended, CommitUnknown, StorageFailed: try again.
            TableNotFound: the table was deleted.

        Source: ours; upstream never merges leaves.
        """
        from sleeper.tables.split_and_merge import merge_partitions

        return merge_partitions(self._current(), rows_below=rows_below)

    def garbage(self, *, force: bool = False) -> Sequence[str]:
        """Return the files that `collect_garbage` would delete; nothing is changed."""
        from sleeper.tables.garbage import garbage

        return garbage(self._current(), force=force)

    def collect_garbage(
        self,
        *,
        force: bool = False,
        spark: SparkSession | None = None,
        progress: Callable[[int], None] = lambda deleted: None,
    ) -> GcSummary:
        """Delete files that no partition has referenced for `sleeper.table.gc.delay.minutes`.

        The delay must be longer than any query takes, because a query reads the files of the state
        that it began with. `as_of` can no longer read versions that need the deleted files.

        Args:
            force: Delete without delay. Use it only if nobody reads the table: a running query
                would lose its files.
            spark: A session, classic or Connect, whose workers delete the files.
            progress: Called after each batch with the number of deleted files.

        Raises:
            ClockTooFarAhead: this machine's clock is wrong; nothing was deleted.
            CommitContended, CommitUnknown, StorageFailed: try again.
            TableNotFound: the table was deleted.

        Source: rules GC-1 to GC-5.
        """
        from sleeper.tables.garbage import collect_garbage

        return collect_garbage(self._current(), force=force, spark=spark, progress=progress)

    def orphans(self, *, force: bool = False) -> SweepResult:
        """Return the files that `sweep_orphans` would delete; nothing is changed."""
        from sleeper.tables.garbage import sweep_orphans

        return sweep_orphans(self._current(), delete=False, force=force)

    def sweep_orphans(self, *, force: bool = False) -> SweepResult:
        """Delete orphans: files of killed or refused jobs, which no transaction names.

        Only files older than `sleeper.table.gc.orphan.age.minutes`, by the clock of the storage,
        are deleted.

        Args:
            force: Delete orphans of any age. Running jobs lose their files, and their commits are
                refused.

        Raises:
            ClockTooFarAhead: this machine's clock is wrong; nothing was deleted.
            StorageFailed: the storage cannot be listed. Deletions that fail are in the result.
            TableNotFound: the table was deleted.
        """
        from sleeper.tables.garbage import sweep_orphans

        return sweep_orphans(self._current(), delete=True, force=force)

    def verify(
        self,
        *,
        quick: bool = False,
        chain: bool = False,
        spark: SparkSession | None = None,
        progress: Callable[[int, int | None], None] = lambda done, total: None,
    ) -> VerifySummary:
        """Check everything that is stored of the table; change nothing.

        The state is read anew, the log replayed and compared with snapshots. Of every referenced
        data file all pages are compared with their checksums, and keys with their order, their
        partition, counts, limits and the sketch. Others may write, compact and collect garbage
        meanwhile.

        Args:
            quick: Read the state and the ends of data files only.
            chain: Read the log only, and name every entry of format 2 that was changed after it was
                written.
            spark: A session, classic or Connect, whose workers check the data files. This process
                checks state and log, and what a worker finds fault with once more.
            progress: Called with the number of checked log entries, and later files, and of all.

        Returns:
            What was checked and what is wrong. Faults do not raise.

        Raises:
            BadRequest: the state store keeps no log, whose chain could be checked.
            TableNotFound: the table was deleted.
            StorageFailed: the storage did not answer.

        Source: ours; upstream has no such check.
        """
        from sleeper.tables.verify import verify

        return verify(self._current(), quick=quick, chain=chain, spark=spark, progress=progress)

    # Pictures and notebooks.

    def plot_tree(self) -> Svg:
        """Return a picture of the partition tree: splits, leaves, their rows and files."""
        from sleeper.tables.plots import plot_tree

        return plot_tree(self._current())

    def plot_files(self) -> Svg:
        """Return a picture of how many files and rows each leaf has, in key order."""
        from sleeper.tables.plots import plot_files

        return plot_files(self._current())

    def plot_history(self, limit: int | None = 500) -> Svg:
        """Return a picture of the last transactions over time, and of the rows that they added.

        Args:
            limit: The number of transactions; None for all. The log is read for them.

        Raises:
            BadRequest: the table's state store keeps no log.
        """
        from sleeper.tables.plots import plot_history

        return plot_history(self._current(), limit)

    def _repr_html_(self) -> str:
        """Return what notebooks show for a table: its counts and its fields."""
        from sleeper.tables.plots import table_html

        return table_html(self._current())


def open_table(name: str, context: InstanceContext) -> Table:
    """Return the table with a name; its state is begun to be read beside the look for the name.

    Raises:
        TableNotFound: there is no table with this name.
    """
    is_begun = context.objects.is_remote and isinstance(name, str)
    known = context.index.known_by_name(name) if is_begun else None
    begun = None if known is None else Table(known, context).begun()
    record = record_of(name, context)
    return Table(record, context) if begun is None or record != known else begun


def record_of(name: str, context: InstanceContext) -> TableRecord:
    """Return the record of the table with a name.

    Raises:
        TableNotFound: there is no table with this name; the message names similar ones.
    """
    if not isinstance(name, str):
        raise BadRequest(f"a table's name must be a string, not {name!r}")
    record = context.index.by_name(name)
    if record is None:
        raise TableNotFound(no_such_table(name, [table.name for table in context.index.all()]))
    return record
