"""Exports from a queue: a table becomes Parquet files beside the instance's tables."""

from __future__ import annotations

from dataclasses import dataclass

from sleeper.errors import JobInvalid
from sleeper.instance.instance import Instance
from sleeper.model.formats.export_job import export_job_failures, read_export_job
from sleeper.model.jobs.events import UNKNOWN_TABLE
from sleeper.model.jobs.kinds import JobKind, QueueName
from sleeper.model.jobs.messages import ReceivedMessage
from sleeper.workers.job import Job, JobOutcome, JobReader, MessageRejected, RunContext


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportWork(Job):
    """An export that can be run.

    Attributes:
        instance: Where its table is.
    """

    instance: Instance

    def done_before(self) -> JobOutcome | None:
        """Return where the files are, if the export is complete."""
        results = self.instance.jobs.results
        exported = results.exported(self.table_id, self.job_id)
        if exported is None:
            return None
        return JobOutcome(
            rows_written=exported.row_count,
            files=len(exported.parts),
            transaction=exported.transaction,
            locations=(results.export_location(self.table_id, self.job_id),),
        )

    def run(self, run: RunContext) -> JobOutcome:
        """Write the table's rows, filtered and aggregated, in key order (rules EXP-2, EXP-3)."""
        results = self.instance.jobs.results
        results.delete_unfinished_export(self.table_id, self.job_id)
        target = results.export_location(self.table_id, self.job_id)
        exported = self.instance.jobs.tables.table(self.table_id).export(
            target, progress=lambda done, total: run.check()
        )
        return JobOutcome(
            rows_written=exported.rows,
            files=len(exported.files),
            transaction=exported.transaction,
            locations=(target,),
        )


class ExportReader(JobReader):
    """Reads messages of the export queue (rule EXP-1).

    Args:
        instance: Whose tables are exported.
    """

    kind = JobKind.EXPORT

    def __init__(self, instance: Instance) -> None:
        super().__init__(instance.jobs.tables)
        self._instance = instance

    def read(self, message: ReceivedMessage) -> ExportWork:
        """Return the export in a message. Without an id it gets the message's.

        Raises:
            MessageRejected: it is none, or cannot be run, for all the reasons that it names.
            StorageFailed: the instance cannot be looked at now.
        """
        try:
            job = read_export_job(message.body)
        except JobInvalid as invalid:
            raise MessageRejected(message.message_id, invalid.failures) from None
        tables = self._instance.jobs.tables
        record = tables.find(table_id=job.table_id, table_name=job.table_name)
        export_id = job.export_id or message.message_id
        failures = export_job_failures(job, table_found=record is not None)
        if failures or record is None:
            table_id = UNKNOWN_TABLE if record is None else record.table_id
            raise MessageRejected(export_id, tuple(failures), table_id=table_id)
        return ExportWork(instance=self._instance, table_id=record.table_id, job_id=export_id)


def open_reader(instance: Instance, queue: QueueName) -> ExportReader:
    """Return what reads the messages of the queue."""
    return ExportReader(instance)
