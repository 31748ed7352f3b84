"""Queries from a queue: their rows become a file that their sender reads."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from sleeper.errors import JobInvalid, StorageFailed
from sleeper.instance.instance import Instance
from sleeper.model.formats.query_json import (
    QueryMessage,
    query_columns,
    query_failures,
    query_regions,
    query_warnings,
    read_query,
)
from sleeper.model.formats.results import (
    ResultsDestination,
    ResultsPublishing,
    read_results_publishing,
)
from sleeper.model.jobs.events import UNKNOWN_TABLE, JobEventType
from sleeper.model.jobs.kinds import JobKind, QueueName
from sleeper.model.jobs.messages import ReceivedMessage
from sleeper.tables.table import Table
from sleeper.workers.job import Job, JobOutcome, JobReader, MessageRejected, RunContext

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryWork(Job):
    """A query that can be run.

    Attributes:
        instance: Where its table is.
        table: The table.
        query: What is asked.
        is_delivered_again: Whether its message was delivered before.
        file: The key of the file with its rows, if they were written before.
    """

    instance: Instance
    table: Table
    query: QueryMessage
    is_delivered_again: bool
    file: str | None

    def done_before(self) -> JobOutcome | None:
        """Return where the rows are, if they were written or sent.

        Messages leave nothing to look at, so of a query that is delivered again the tracker is
        asked.
        """
        destination = self.publishing.destination
        if destination is ResultsDestination.SQS and self.is_delivered_again:
            return self._sent_before()
        results = self.instance.jobs.results
        if destination is not ResultsDestination.S3 or self.file is None:
            return None
        return JobOutcome(
            rows_written=results.rows_of_query(self.job_id, self.file),
            files=1,
            locations=(results.url(self.file),),
        )

    @property
    def publishing(self) -> ResultsPublishing:
        """Where the rows go."""
        return read_results_publishing(self.query.publisher)[0]

    def run(self, run: RunContext) -> JobOutcome:
        """Publish the rows of all regions, in key order (rules QRY-10, QRY-11, QRY-13)."""
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
        publishing, results = self.publishing, self.instance.jobs.results
        if publishing.destination is ResultsDestination.NOTHING:
            with rows:
                return JobOutcome(rows_written=sum(batch.num_rows for batch in rows))
        if publishing.destination is ResultsDestination.SQS:
            count = results.send_query(self.job_id, rows, schema, publishing)
            return JobOutcome(rows_written=count, locations=(publishing.queue_url or "",))
        count = results.write_query(self.job_id, self.table_id, rows, publishing)
        location = results.query_location(self.job_id, self.table_id)
        return JobOutcome(rows_written=count, files=1, locations=(location,))

    def _sent_before(self) -> JobOutcome | None:
        """Return what an earlier run sent, if the tracker has its end."""
        tracker = self.instance.jobs.stores.tracker
        try:
            events = tracker.events_of_job(JobKind.QUERY, self.job_id)
        except StorageFailed as failure:
            _log.warning("rows of query %s may be sent twice: %s", self.job_id, failure)
            return None
        ends = (
            JobOutcome(rows_written=event.rows_written or 0, locations=event.locations)
            for event in events
            if event.type is JobEventType.FINISHED and event.table_id == self.table_id
        )
        return next(ends, None)


class QueryReader(JobReader):
    """Reads messages of the query queue (rule QRY-8).

    Args:
        instance: Whose tables are queried.
    """

    kind = JobKind.QUERY

    def __init__(self, instance: Instance) -> None:
        super().__init__(instance.jobs.tables)
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
        return QueryWork(
            job_id=query.query_id or "",
            table_id=table.table_id,
            instance=self._instance,
            table=table,
            query=query,
            is_delivered_again=message.receives > 1,
            file=self._file(query.query_id or "", table.table_id),
        )

    def _file(self, query_id: str, table_id: str) -> str | None:
        """Return the key of a query's rows, if they were written before.

        Raises:
            MessageRejected: its id was used for another table.
        """
        try:
            return self._instance.jobs.file_of_query(query_id, table_id)
        except JobInvalid as used:
            raise MessageRejected(query_id, used.failures, table_id=table_id) from None


def open_reader(instance: Instance, queue: QueueName) -> QueryReader:
    """Return what reads the messages of the queue."""
    return QueryReader(instance)
