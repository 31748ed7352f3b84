"""Jobs are submitted: checked here, then sent to a queue for a worker to take.

A message names its table by id, beside the name that its sender used: a job is for the table that
it was submitted for, whatever it is called when a worker takes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sleeper.errors import JobInvalid, QueryInvalid
from sleeper.jobs.arguments import (
    Paths,
    checked_columns,
    checked_flag,
    checked_paths,
    checked_settings,
    checked_since,
    message_text,
    queue_name,
    table_text,
)
from sleeper.jobs.deletions import deletion_document
from sleeper.jobs.jobs_handle import JobsHandle
from sleeper.jobs.reports import file_of_query
from sleeper.model.authors import author_now
from sleeper.model.csv_options import CsvOptions
from sleeper.model.formats.batcher_submission import (
    BatcherSubmission,
    batcher_submission_failures,
    write_batcher_submission,
)
from sleeper.model.formats.bulk_import_job import (
    BulkImportJob,
    bulk_import_job_failures,
    write_bulk_import_job,
)
from sleeper.model.formats.export_job import ExportJob, export_job_failures, write_export_job
from sleeper.model.formats.ingest_job import (
    REASON,
    IngestJob,
    ingest_job_failures,
    write_ingest_job,
)
from sleeper.model.formats.query_json import (
    QueryMessage,
    query_failures,
    region_documents,
    write_query,
)
from sleeper.model.jobs.kinds import BULK_IMPORT_QUEUES, JobKind, QueueName
from sleeper.model.jobs.messages import NewMessage
from sleeper.model.queries import NOT_GIVEN, NotGiven, RegionRequest
from sleeper.ports.ids import given_job_id
from sleeper.state.table_state import Transaction
from sleeper.tables.query import regions_asked_for
from sleeper.tables.table import Table


def submit_ingest(
    self: JobsHandle,
    table: str,
    files: Paths,
    job_id: str | None = None,
    *,
    csv: CsvOptions | Mapping[str, Any] | None = None,
    upsert: bool = False,
    if_unchanged_since: int | None = None,
) -> str:
    """Ask for files to be ingested by a worker, and return the job's id.

    Args:
        table: The table's name.
        files: Files, folders and patterns as `Table.ingest` takes them, as paths or URLs. Paths of
            this machine become absolute: a worker has another working folder. What a folder or
            a pattern means is found when the job is run.
        job_id: Names the work: a job that was committed before adds nothing. Where it is
            None, one is made; a blank one is refused.
        csv: How files of CSV are written, as for `Table.ingest`.
        upsert: Whether the job is a `Table.upsert`: rows of the same row keys are replaced.
        if_unchanged_since: A transaction number, as for `Table.ingest`: the job fails, and is not
            tried again, if a leaf that gets rows has changed since when it commits.

    Raises:
        JobInvalid: every reason why the job cannot be run; nothing was sent.
        StorageFailed: the queue cannot be reached; send the job again with the same id.

    Source: rules ING-9 to ING-11, ING-18 and DEL-5.
    """
    given = given_job_id(job_id) or self.new_id()
    job = IngestJob(
        id=given,
        table_name=table_text(table),
        files=checked_paths(files),
        csv=_csv(csv),
        upsert=checked_flag(upsert, "upsert"),
        if_unchanged_since=checked_since(if_unchanged_since),
    )
    checked = self.tables.checked(job, ingest_job_failures)
    if checked.failures:
        raise JobInvalid(checked.failures)
    bound = replace(job, table_id=checked.table_id)
    message_id = self.send_message(QueueName.INGEST, write_ingest_job(bound))
    self.record_accepted(
        JobKind.INGEST, checked.table_id, given, len(job.paths), message_id=message_id
    )
    return given


def submit_delete(
    self: JobsHandle,
    table: str,
    *,
    key: object = NOT_GIVEN,
    keys: Any = NOT_GIVEN,
    range: RegionRequest | NotGiven = NOT_GIVEN,  # noqa: A002 - the field's own word
    regions: Iterable[RegionRequest] | NotGiven = NOT_GIVEN,
    prefix: Mapping[str, str | bytes] | NotGiven = NOT_GIVEN,
    where: str | None = None,
    job_id: str | None = None,
    reason: str | None = None,
    if_unchanged_since: int | None = None,
) -> str:
    """Ask for rows to be deleted by a worker of ingest jobs, and return the job's id.

    Args:
        table: The table's name.
        key, keys, range, regions, prefix, where: As for `Table.delete`. They are in one message:
            some thousand keys, by the length of their values.
        job_id: As for `submit_ingest`. The job is found among those of ingest.
        reason: Why, for the history.
        if_unchanged_since: As for `submit_ingest`, of the leaves that have such rows.

    Raises:
        JobInvalid: every reason why the job cannot be run; nothing was sent.
        QueryInvalid: a key or a range does not fit the schema.
        BadRequest: the keys or regions are too many for a message.
        TableNotFound: there is no such table.
        StorageFailed: the queue cannot be reached; send the job again with the same id.

    Source: rules DEL-5 and DEL-6.
    """
    given = given_job_id(job_id) or self.new_id()
    opened = self.tables.table(self.table_id(table_text(table)))
    by_key = {"key": key, "keys": keys, "range": range, "regions": regions, "prefix": prefix}
    asked = deletion_document(opened, by_key)
    said = {"where": where, REASON: author_now().reason if reason is None else reason}
    asked |= {name: value for name, value in said.items() if value is not None}
    job = IngestJob(
        id=given,
        table_name=table,
        table_id=opened.table_id,
        delete=asked,
        if_unchanged_since=checked_since(if_unchanged_since),
    )
    checked = self.tables.checked(job, ingest_job_failures)
    if checked.failures:
        raise JobInvalid(checked.failures)
    message_id = self.send_message(QueueName.INGEST, write_ingest_job(job))
    self.record_accepted(JobKind.INGEST, opened.table_id, given, None, message_id=message_id)
    return given


def submit_bulk_import(
    self: JobsHandle,
    table: str,
    files: Paths,
    job_id: str | None = None,
    *,
    queue: QueueName | str = QueueName.BULK_IMPORT,
    spark_conf: Mapping[str, str] | None = None,
    csv: CsvOptions | Mapping[str, Any] | None = None,
    upsert: bool = False,
    if_unchanged_since: int | None = None,
) -> str:
    """Ask for many files to be imported at once, and return the job's id.

    Args:
        table: The table's name.
        files: As for `submit_ingest`.
        job_id: As for `submit_ingest`; lower case letters, digits and dashes, 63 at most.
        queue: One of the bulk import queues: it names the platform. `bulk-import` runs on
            the machine of the worker that takes it.
        spark_conf: Settings of Spark for this job alone.
        csv: How files of CSV are written, as for `Table.ingest`.
        upsert, if_unchanged_since: As for `submit_ingest`.

    Raises:
        JobInvalid: every reason why the job cannot be run; nothing was sent.
        StorageFailed: the queue cannot be reached; send the job again with the same id.

    Source: rules BLK-1, BLK-2, BLK-4, ING-18 and DEL-5.
    """
    job = BulkImportJob(
        id=given_job_id(job_id) or self.new_id(),
        table_name=table_text(table),
        files=checked_paths(files),
        csv=_csv(csv),
        spark_conf=checked_settings(spark_conf, "spark_conf"),
        upsert=checked_flag(upsert, "upsert"),
        if_unchanged_since=checked_since(if_unchanged_since),
    )
    name = queue_name(queue)
    checked = self.tables.checked(job, bulk_import_job_failures)
    is_for_them = name in BULK_IMPORT_QUEUES
    failures = () if is_for_them else (f"{name} is no queue for bulk imports",)
    if checked.failures or failures:
        raise JobInvalid(checked.failures + failures)
    bound = replace(job, table_id=checked.table_id)
    message_id = self.send_message(name, write_bulk_import_job(bound))
    self.record_accepted(
        JobKind.INGEST, checked.table_id, job.id or "", len(job.paths), message_id=message_id
    )
    return job.id or ""


def submit_files(
    self: JobsHandle,
    table: str,
    files: Paths,
    *,
    csv: CsvOptions | Mapping[str, Any] | None = None,
    upsert: bool = False,
) -> None:
    """Give files to the ingest batcher, which makes jobs of a sensible size of them.

    Files that are written in different ways are never in one job, nor are those that add rows and
    those that replace them.

    Args:
        table: The table's name.
        files: As for `submit_ingest`.
        csv: How files of CSV are written, as for `Table.ingest`.
        upsert: Whether their rows replace those of the same row keys, as for `submit_ingest`. A key
            that is in two files of one job fails that job.

    Raises:
        JobInvalid: every reason why they cannot be taken; nothing was sent.
        StorageFailed: the queue cannot be reached. Files that are submitted twice while they
            wait are ingested once.

    Source: rule BAT-1.
    """
    submission = BatcherSubmission(
        table_name=table_text(table),
        files=checked_paths(files),
        csv=_csv(csv),
        upsert=checked_flag(upsert, "upsert"),
    )
    checked = self.tables.checked(submission, batcher_submission_failures)
    if checked.failures:
        raise JobInvalid(checked.failures)
    bound = replace(submission, table_id=checked.table_id)
    self.send_message(QueueName.BATCHER, write_batcher_submission(bound))


def submit_query(
    self: JobsHandle,
    table: str,
    *,
    key: object = NOT_GIVEN,
    keys: Any = NOT_GIVEN,
    range: RegionRequest | NotGiven = NOT_GIVEN,  # noqa: A002 - the field's own word
    regions: Iterable[RegionRequest] | NotGiven = NOT_GIVEN,
    prefix: Mapping[str, str | bytes] | NotGiven = NOT_GIVEN,
    columns: Sequence[str] | None = None,
    query_id: str | None = None,
) -> str:
    """Ask for rows of a table, which a worker writes to a file; return the query's id.

    Args:
        table: The table's name.
        key, keys, range, regions, prefix: As for `Table.query`; all rows without. They become
            regions of one message: some thousand of them, by the length of their values.
        columns: Value fields to return; keys come along.
        query_id: Names the query and its file, for one table; where it is None, one is made.

    Raises:
        QueryInvalid: a field, value, range or column does not fit the schema, or the id was used
            for a query of another table.
        BadRequest: the keys or regions are too many for a message.
        TableNotFound: there is no such table.
        StorageFailed: the queue cannot be reached.

    Source: rule QRY-8.
    """
    given = given_job_id(query_id, "query_id")
    table_id = self.table_id(table_text(table))
    opened = self.tables.table(table_id)
    schema = opened.schema
    wanted = regions_asked_for(
        schema,
        opened.arrow_schema,
        key=key,
        keys=keys,
        range=range,
        regions=regions,
        prefix=prefix,
    )
    query = QueryMessage(
        query_id=given or self.new_id(),
        table_name=table,
        table_id=table_id,
        regions=region_documents(schema, wanted),
        requested_value_fields=checked_columns(columns),
    )
    failures = query_failures(query, schema)
    if not failures and given is not None:
        try:
            file_of_query(self, query.query_id or "", table_id)
        except JobInvalid as used:
            failures = list(used.failures)
    if failures:
        raise QueryInvalid("; ".join(failures))
    message_id = self.send_message(QueueName.QUERY, write_query(query))
    self.record_accepted(JobKind.QUERY, table_id, query.query_id or "", None, message_id=message_id)
    return query.query_id or ""


def submit_export(self: JobsHandle, table: str, export_id: str | None = None) -> str:
    """Ask for a table to be written to Parquet files, and return the export's id.

    Args:
        table: The table's name.
        export_id: Names the export and its folder; where it is None, one is made.

    Raises:
        JobInvalid: every reason why it cannot be run; nothing was sent.
        StorageFailed: the queue cannot be reached.

    Source: rule EXP-1.
    """
    job = ExportJob(
        export_id=given_job_id(export_id, "export_id") or self.new_id(),
        table_name=table_text(table),
    )
    record = self.tables.find(table_id=None, table_name=table)
    failures = export_job_failures(job, table_found=record is not None)
    if failures or record is None:
        raise JobInvalid(tuple(failures))
    bound = replace(job, table_id=record.table_id)
    message_id = self.send_message(QueueName.EXPORT, write_export_job(bound))
    self.record_accepted(
        JobKind.EXPORT, record.table_id, job.export_id or "", None, message_id=message_id
    )
    return job.export_id or ""


def send(self: JobsHandle, queue: QueueName | str, message: str) -> None:
    """Send a message as it is. The worker that takes it says what is wrong with it.

    Raises:
        BadRequest: there is no such queue, or the message is too large.
        StorageFailed: the queue cannot be reached.
    """
    self.send_message(queue_name(queue), message_text(message))


def _csv(csv: CsvOptions | Mapping[str, Any] | None) -> dict[str, Any]:
    """Return options of CSV as a message has them."""
    options = CsvOptions.of(csv)
    return {} if options is None else options.to_json()


def send_commit(
    self: JobsHandle, table: Table, transaction: Transaction, *, task_id: str, run_id: str
) -> None:
    """Ask the committer to commit a transaction: for workers that have a message of their own.

    They delete it later. So when a power cut takes the request, the job is run again, and asks
    again: the request needs no sync, for which all others who send would wait.

    Args:
        table: Whose log it goes into.
        transaction: What is to be committed.
        task_id: The worker that asks.
        run_id: The run of a job that it ends.

    Raises:
        StorageFailed: it may or may not have been sent. Run the job again.

    Source: rules ING-13 and STS-21.
    """
    message = table.request_commit(transaction, task_id=task_id, run_id=run_id)
    self.stores.queue(QueueName.COMMIT).send(
        [
            NewMessage(
                body=message, group=table.table_id, deduplication_id=run_id, is_sent_again=True
            )
        ]
    )
