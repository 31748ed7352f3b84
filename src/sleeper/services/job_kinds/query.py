"""Queries from a queue: their rows become a file that their sender reads."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from sleeper.errors import JobInvalid
from sleeper.instance import Instance
from sleeper.model.formats.query_json import (
    QueryMessage,
    query_columns,
    query_failures,
    query_regions,
    query_warnings,
    read_query,
)
from sleeper.model.formats.results_publishing import ResultsDestination, read_results_publishing
from sleeper.model.jobs.events import UNKNOWN_TABLE, JobKind
from sleeper.model.jobs.messages import ReceivedMessage
from sleeper.services.job_reader import JobOutcome, MessageRejected, RunContext
from sleeper.table.table import Table

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class QueryWork:
    """A query that can be run.

    Attributes:
        instance: Where its table is.
        table: The table.
        query: What is asked.
    """

    instance: Instance
    table: Table
    query: QueryMessage

    @property
    def job_id(self) -> str:
        """The query's id."""
        return self.query.query_id or ""

    @property
    def table_id(self) -> str:
        """Its table."""
        return self.table.table_id

    @property
    def input_files(self) -> None:
        """A query names no files."""
        return

    @property
    def input_hash(self) -> None:
        """It is not compared with others."""
        return

    @property
    def is_tracked(self) -> bool:
        """Queries are tracked."""
        return True

    @property
    def has_driver(self) -> bool:
        """It is run by the worker itself."""
        return False

    def done_before(self) -> JobOutcome | None:
        """Return where the rows are, if they were written."""
        results = self.instance.jobs.results
        if not results.has_query(self.job_id):
            return None
        return JobOutcome(
            rows_written=results.rows_of_query(self.job_id),
            files=1,
            locations=(results.query_location(self.job_id),),
        )

    def run(self, run: RunContext) -> JobOutcome:
        """Write the rows of all regions to one file, in key order (rules QRY-10, QRY-13)."""
        schema = self.table.schema
        regions = [
            {
                name: (limits.min, limits.max)
                for name, limits in zip(schema.row_key_names, region.ranges, strict=True)
            }
            for region in query_regions(self.query, schema)
        ]
        columns = query_columns(self.query, schema)
        run.check()
        rows = self.table.query(regions=regions, columns=columns)
        publishing, _ = read_results_publishing(self.query.publisher)
        if publishing.destination is ResultsDestination.NOTHING:
            with rows:
                return JobOutcome(rows_written=sum(batch.num_rows for batch in rows))
        results = self.instance.jobs.results
        count = results.write_query(self.job_id, rows, publishing)
        location = results.query_location(self.job_id)
        return JobOutcome(rows_written=count, files=1, locations=(location,))


class QueryReader:
    """Reads messages of the query queue (rule QRY-8).

    Args:
        instance: Whose tables are queried.
    """

    kind = JobKind.QUERY

    def __init__(self, instance: Instance) -> None:
        self._instance = instance

    def read(self, message: ReceivedMessage) -> QueryWork:
        """Return the query in a message.

        Raises:
            MessageRejected: it is none, or cannot be run, for all the reasons that it names.
            StorageFailed: the instance cannot be looked at now.
        """
        try:
            query = read_query(message.body)
        except JobInvalid as invalid:
            raise MessageRejected(message.message_id, invalid.failures) from None
        tables = self._instance.jobs.tables
        record = tables.find(table_id=query.table_id, table_name=query.table_name)
        table = None if record is None else tables.table(record.table_id)
        failures = query_failures(query, None if table is None else table.schema)
        if failures or table is None:
            raise MessageRejected(
                query.query_id or message.message_id,
                tuple(failures),
                table_id=UNKNOWN_TABLE if table is None else table.table_id,
            )
        for warning in query_warnings(query):
            _log.warning("query %s: %s", query.query_id, warning)
        return QueryWork(self._instance, table, query)
