"""Stream read: what transactions add to a table, each row once.

An offset is a transaction number. A micro-batch holds the files that were added after its start,
up to its end; or, at the beginning of a stream from `earliest`, the whole table as it is at its
end. The table's filters are applied, its aggregations are not: rows come as they were added.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from sleeper.errors import BadRequest, VersionNotFound
from sleeper.model.processing import Processing
from sleeper.model.queries import LeafQuery
from sleeper.ports.transaction_log import TransactionLog
from sleeper.spark.data_source.open_table import SparkTable
from sleeper.spark.data_source.reader import LeavesTask, StreamRequest, read_partition
from sleeper.state.change_feed import AddedFile, ChangeFeed, added_between
from sleeper.state.plans.queries import plan_leaf_queries
from sleeper.state.table_state import TableState

_NUMBER = "transaction"
_BEFORE_ALL = -1  # the offset of a stream that begins with the whole table
_TASK_ROWS = 1_000_000

Offset = dict[str, int]


class TableStreamReader(DataSourceStreamReader):
    """Streams a table, on any Spark.

    Args:
        open_table: Opens the table, at first use.
        request: Which rows, and from where on.
        arrow_schema: The columns, as Spark expects them.
    """

    def __init__(
        self,
        open_table: Callable[[], SparkTable],
        request: StreamRequest,
        arrow_schema: pa.Schema,
    ) -> None:
        self._open_table = open_table
        self._request = request
        self._arrow_schema = arrow_schema
        self._opened: SparkTable | None = None
        self._added: ChangeFeed | None = None
        self._told: int | None = None
        self._final: int | None = None

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """Return where a stream begins that has no checkpoint."""
        match self._request.start:
            case "earliest":
                return {_NUMBER: _BEFORE_ALL}
            case "latest":
                return {_NUMBER: self._table().store.refresh().number}
            case number:
                self._check_number(number)
                return {_NUMBER: number}

    def latestOffset(self, start: Offset | None = None, limit: Any = None) -> Offset:  # noqa: N802 - Spark's name
        """Return where the next micro-batch ends: at the last transaction that added files.

        Spark 4.0 and 4.1 ask without arguments; 4.2 and later say where it starts, and how
        much it may hold.
        """
        self._table().check_exists()
        if start is None:
            return {_NUMBER: self._latest_without_start()}
        number = start[_NUMBER]
        if number == _BEFORE_ALL:
            final = self._final
            return {_NUMBER: self._table().store.refresh().number if final is None else final}
        return {_NUMBER: self._latest_after(number, getattr(limit, "max_files", None))}

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Return the input partitions of one micro-batch.

        Raises:
            VersionNotFound: files of it were compacted, and collected, before they were read.
        """
        first, last = start[_NUMBER], end[_NUMBER]
        table = self._table()
        if first == _BEFORE_ALL:
            return self._whole(table, _state_at(table, last))
        added = [*added_between(_log_of(table), table.schema, first, last)]
        _check_not_collected((each.filename for each in added), table.store.refresh())
        return self._of_files(table, added)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the rows of one input partition."""
        return read_partition(partition)

    def commit(self, end: Offset) -> None:
        """Drop what is cached of the transactions that were read."""
        if self._added is not None:
            self._added.forget(end[_NUMBER])

    def stop(self) -> None:
        """Drop the open table and what is cached of it."""
        self._opened = self._added = None

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._open_table, self._request, self._arrow_schema)

    def _table(self) -> SparkTable:
        if self._opened is None:
            self._opened = self._open_table()
        return self._opened

    def _check_number(self, number: int) -> None:
        newest = self._table().store.refresh().number
        if number > newest:
            raise VersionNotFound(
                f"the table has no transaction {number} to stream from; the newest is {newest}. "
                "If the table was deleted and made again, start with a new checkpoint."
            )

    def _latest_without_start(self) -> int:
        """The last transaction that added files, but for a start: there all that there are."""
        if self._told is None:
            self._told = self._table().store.refresh().number
        for each in self._added_after(self._told):
            self._told = each.number
        return self._told

    def _latest_after(self, start: int, files_max: int | None) -> int:
        """The transaction up to which a micro-batch goes; `start` when there is nothing new."""
        latest = start
        for files, each in enumerate(self._added_after(start)):
            if self._final is not None and each.number > self._final:
                break
            if files_max is not None and files >= files_max and each.number != latest:
                break
            latest = each.number
        return latest

    def _added_after(self, number: int) -> Iterator[AddedFile]:
        if self._added is None:
            self._check_number(number)
            table = self._table()
            self._added = ChangeFeed(_log_of(table), table.schema, number)
        self._added.read_new_entries()
        return self._added.between(number)

    def _whole(self, table: SparkTable, state: TableState) -> list[InputPartition]:
        groups = plan_leaf_queries(state, self._request.regions)
        newest = table.store.refresh()
        if newest.number != state.number:
            names = {name for group in groups for leaf in group for name in leaf.filenames}
            _check_not_collected(names, newest)
        return [self._partition(table, [group], table.table_files.processing) for group in groups]

    def _of_files(self, table: SparkTable, added: Iterable[AddedFile]) -> list[InputPartition]:
        """Input partitions of about a million rows; every file is read by itself, and whole."""
        filters = Processing(filters=table.table_files.processing.filters)
        partitions: list[InputPartition] = []
        group: list[list[LeafQuery]] = []
        rows = 0
        for each in added:
            if group and rows + each.row_count > _TASK_ROWS:
                partitions.append(self._partition(table, group, filters))
                group, rows = [], 0
            group.append([LeafQuery("", self._request.regions, (each.filename,))])
            rows += each.row_count
        if group:
            partitions.append(self._partition(table, group, filters))
        return partitions

    def _partition(
        self, table: SparkTable, groups: Sequence[Sequence[LeafQuery]], processing: Processing
    ) -> InputPartition:
        return InputPartition(
            LeavesTask(
                table=replace(table.table_files, processing=processing),
                groups=groups,
                arrow_schema=self._arrow_schema,
                now_ms=table.now_ms(),
            )
        )


def open_stream_reader(
    open_table: Callable[[], SparkTable], request: StreamRequest, arrow_schema: pa.Schema
) -> TableStreamReader:
    """Return the stream reader that suits this Spark."""
    kind = LimitedTableStreamReader if _LIMITS is not None else TableStreamReader
    return kind(open_table, request, arrow_schema)


def _limits() -> Any:
    """Return Spark's class for the limit of a micro-batch; None before 4.2."""
    try:
        from pyspark.sql.streaming import datasource  # noqa: PLC0415 - there is none before 4.2
    except ImportError:
        return None
    return datasource


_LIMITS = _limits()
_AvailableNow: Any = getattr(_LIMITS, "SupportsTriggerAvailableNow", object)


class LimitedTableStreamReader(TableStreamReader, _AvailableNow):  # type: ignore[misc]
    """Streams a table on Spark 4.2 and later, which asks how much a micro-batch may hold."""

    def getDefaultReadLimit(self) -> Any:  # noqa: N802 - Spark's name
        """Return the limit that the user set, or none."""
        files_max = self._request.files_max
        return _LIMITS.ReadAllAvailable() if files_max is None else _LIMITS.ReadMaxFiles(files_max)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Remember what is there now: this run of the stream ends with it."""
        self._final = self._table().store.refresh().number

    def reportLatestOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """Return the table's newest transaction, for Spark's metrics."""
        return {_NUMBER: self._table().store.refresh().number}


def _log_of(table: SparkTable) -> TransactionLog:
    if table.log is None:
        raise BadRequest(
            "a stream follows the transaction log of a table, and this table's state store keeps "
            "none: make the table with sleeper.table.statestore.classname TransactionLogStateStore "
            "or DynamoDBTransactionLogStateStore"
        )
    return table.log


def _check_not_collected(filenames: Iterable[str], newest: TableState) -> None:
    gone = sorted({name for name in filenames if not newest.files.is_tracked(name)})
    if gone:
        raise VersionNotFound(
            f"{len(gone)} files that this micro-batch needs were compacted and then deleted "
            f"before the stream read them, {gone[0]!r} among them. Their rows are in the table: "
            "start the stream again with a new checkpoint, from 'earliest'. Let the table's "
            "garbage wait longer than the stream may be behind."
        )


def _state_at(table: SparkTable, number: int) -> TableState:
    """Return the state that a stream begins with."""
    try:
        return table.store.at(number)
    except VersionNotFound as error:
        raise VersionNotFound(
            f"{error} This stream was to begin with that state: start the stream again with a new "
            "checkpoint, from 'earliest'."
        ) from None
