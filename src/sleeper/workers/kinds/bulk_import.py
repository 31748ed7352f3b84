"""Jobs of bulk import: many files become rows of a table, here or on a cluster.

The queue says which platform a job is for.
"""

from __future__ import annotations

import logging
import os
import sys
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from sleeper.errors import JobInvalid, SubmissionFailed
from sleeper.instance.instance import Instance
from sleeper.jobs.instance_jobs import InstanceJobs
from sleeper.model.formats.bulk_import_job import (
    BulkImportJob,
    bulk_import_job_failures,
    read_bulk_import_job,
)
from sleeper.model.jobs.events import hash_of_paths
from sleeper.model.jobs.kinds import BULK_IMPORT_QUEUES, JobKind, QueueName
from sleeper.model.jobs.messages import ReceivedMessage
from sleeper.model.jobs.platforms import BY_QUEUE, Platform
from sleeper.model.known_properties.typed import InstanceProperties
from sleeper.ports.ids import given_job_id
from sleeper.spark.submit.configured_clusters import (
    STEPS_AT_ONCE,
    configured_cluster,
    full_delay_s,
)
from sleeper.spark.submit.driver_process import DriverProcess, run_driver
from sleeper.spark.submit.emr import Emr
from sleeper.spark.submit.request import CommandRequest
from sleeper.spark.submit.spark_settings import setting_failures
from sleeper.spark.submit.submitted_jobs import Cluster
from sleeper.state.table_state import JobRecord
from sleeper.workers.job import Job, JobDeferred, JobOutcome, JobReader, MessageRejected, RunContext

# ---------------------------------------------------------------- bulk import place
#
# Where the jobs of a queue run, by the instance's properties.

HERE: Final = "local"
"""The platform of jobs that a worker does itself, as the tracker shows it."""

_SPARK_HERE: Final = "local, spark"


@dataclass(frozen=True, slots=True)
class BulkImportPlace:
    """Where the bulk imports of a queue run.

    Attributes:
        cluster: Who is to run them; None for the worker that takes them.
        platform: How the tracker shows it.
        told: For people: completes the sentence "the job runs ...".
    """

    cluster: Cluster | None
    platform: str
    told: str

    @property
    def is_elsewhere(self) -> bool:
        """Whether another machine than the worker's runs the driver."""
        return self.cluster is not None and not isinstance(self.cluster, DriverProcess)


def bulk_import_place(queue: QueueName, properties: InstanceProperties) -> BulkImportPlace:
    """Return where the bulk imports of a queue run.

    A platform that the properties do not describe is not there: the jobs run here then. The worker
    does them, or a Spark driver beside it where `sleeper.bulk.import.local.spark.master` is set.
    """
    why = ""
    platform = BY_QUEUE.get(queue)
    if platform is not None:
        cluster = configured_cluster(platform.name, properties)
        if cluster is not None:
            return BulkImportPlace(cluster, platform.name, f"on {platform.name}")
        why = f", as {platform.name} is not set up: {_unset(platform)}"
    master = properties.jobs.spark_master
    if master is None:
        return BulkImportPlace(None, HERE, f"in a worker of bulk imports{why}")
    driver = DriverProcess(master=master, python=sys.executable, parent_id=os.getpid())
    where = f"on Spark at {master}, by a driver beside a worker of bulk imports"
    return BulkImportPlace(driver, _SPARK_HERE, where + why)


def _unset(platform: Platform) -> str:
    """Say which properties would set up a platform."""
    names = platform.described_by
    if len(names) == 1:
        return f"{names[0]} is not set"
    return f"{' and '.join(names)} are not all set"


def where_jobs_run(queue: QueueName, properties: InstanceProperties) -> str:
    """Return where the jobs of a queue of ingest or bulk import run, for people."""
    if queue in BULK_IMPORT_QUEUES:
        return bulk_import_place(queue, properties).told
    return "in a worker of ingest jobs"


_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkImportWork(Job):
    """A bulk import job that can be run.

    Attributes:
        instance: Where its table is.
        job: The job, with its id.
        cluster: Who is to run it; None for this process.
        platform: Where it runs, as the tracker shows it.
        before: What the table's log said of the job when its message was read.
    """

    instance: Instance
    job: BulkImportJob
    cluster: Cluster | None
    platform: str
    before: JobRecord | None

    def done_before(self) -> JobOutcome | None:
        """Return what the table's log said of the job when its message was read."""
        return JobOutcome.of_record(self.before, platform=self.platform)

    def run(self, run: RunContext) -> JobOutcome:
        """Import the files, or start a driver that does, and reports its own end.

        The commit is done here, or by the committer (rule ING-13); that of an upsert, and of a
        job that relies on a version, is done here (rules ING-18 and DEL-5).
        """
        if self.cluster is not None:
            self._start_driver(self.cluster, run)
            return JobOutcome(is_finished=False, platform=self.platform)
        jobs = self.instance.jobs
        table, send = jobs.tables.table(self.table_id), None
        is_plain = not self.job.is_committed_by_its_worker
        if table.properties.async_commits.bulk_import and is_plain:
            send = partial(jobs.send_commit, table, task_id=run.task_id, run_id=run.run_id)
        result = table.bulk_import(
            self.job.paths,
            self.job_id,
            conf=self.job.spark_conf,
            csv=self.job.csv_options,
            ignore_extra_columns=True,
            progress=lambda done, total: run.check(),
            send_commit=send,
            upsert=self.job.upsert,
            if_unchanged_since=self.job.if_unchanged_since,
        )
        if self.job.spark_conf and result.engine == "local":
            _log.info("job %s ran without Spark: its sparkConf was not used", self.job_id)
        return JobOutcome(
            rows_read=result.rows_read,
            rows_written=result.rows_written,
            files=len({reference.filename for reference in result.files}),
            transaction=result.transaction if result.is_committed else None,
            is_committed=result.is_committed,
            commit_s=table.last_commit_s if result.is_committed else None,
            platform=f"{HERE}, {result.engine}",
        )

    def _start_driver(self, cluster: Cluster, run: RunContext) -> None:
        jobs = self.instance.submitted_jobs
        environment = self.instance.properties.jobs.environment
        planned = jobs.plan(self.job, cluster, environment=environment, run_id=run.run_id)
        for note in jobs.notes(planned):
            _log.info("job %s: %s", self.job_id, note)
        if isinstance(cluster, DriverProcess) and isinstance(planned.request, CommandRequest):
            jobs.save(planned)
            run_driver(planned.request, run.check)
            return
        try:
            submitted = jobs.submit(planned)
        except SubmissionFailed as failure:
            if failure.is_full:
                delay_s = full_delay_s(self.instance.properties)
                raise JobDeferred(str(failure), delay_s) from None
            raise
        _log.info("job %s runs on %s as %s", self.job_id, self.platform, submitted.started)


class BulkImportReader(JobReader):
    """Reads messages of the bulk import queues (rules BLK-1 and BLK-2).

    Args:
        instance: Whose tables are imported into.
        queue: The queue that messages come from: it says for which platform they are.
    """

    kind = JobKind.INGEST

    def __init__(self, instance: Instance, queue: QueueName) -> None:
        super().__init__(instance.jobs.tables)
        self._instance = instance
        self._queue = queue

    def read(self, message: ReceivedMessage) -> BulkImportWork:
        """Return the job in a message. Without an id it gets the message's, so it is done once.

        Raises:
            MessageRejected: it is none, or cannot be run, for all the reasons that it names.
            JobDeferred: its cluster has no room for it now.
            StorageFailed: the instance or the input cannot be looked at now.
        """
        try:
            job = self._instance.jobs.tables.located(read_bulk_import_job(message.body))
        except JobInvalid as invalid:
            raise MessageRejected(message.message_id, invalid.failures) from None
        job = replace(job, id=given_job_id(job.id) or message.message_id)
        return self._checked(job)

    def _checked(self, job: BulkImportJob) -> BulkImportWork:
        jobs: InstanceJobs = self._instance.jobs
        checked = jobs.tables.checked(job, bulk_import_job_failures, job_id=job.id)
        place = bulk_import_place(self._queue, self._instance.properties)
        failures = checked.failures
        if checked.before is None and place.is_elsewhere:
            failures += self._cluster_failures(job, place)
        if checked.before is None and place.cluster is None:
            failures += tuple(
                f"{name} {reason}" for name, reason in setting_failures(job.spark_conf)
            )
        if failures:
            raise MessageRejected(job.id or "", failures, table_id=checked.table_id)
        if job.class_name:
            _log.info(
                "job %s asks for %s: there is one algorithm here, which does the same",
                job.id,
                job.class_name,
            )
        if checked.before is None:
            self._await_room(place)
            _log.info("job %s of the %s queue runs %s", job.id, self._queue, place.told)
        return BulkImportWork(
            job_id=job.id or "",
            table_id=checked.table_id,
            input_files=len(job.paths),
            input_hash=hash_of_paths(job.paths),
            has_driver=place.cluster is not None,
            instance=self._instance,
            job=job,
            cluster=place.cluster,
            platform=place.platform,
            before=checked.before,
        )

    def _cluster_failures(self, job: BulkImportJob, place: BulkImportPlace) -> tuple[str, ...]:
        """Return why the place's cluster could not run a job (BLK-2)."""
        assert place.cluster is not None
        environment = self._instance.properties.jobs.environment
        return tuple(
            self._instance.submitted_jobs.failures(job, place.cluster, environment=environment)
        )

    def _await_room(self, place: BulkImportPlace) -> None:
        """Defer a job whose cluster is full (BLK-12). What cannot be asked, the run reports."""
        if not isinstance(place.cluster, Emr) or place.cluster.steps_max is None:
            return
        try:
            under_way = self._instance.submitted_jobs.steps_under_way(place.cluster)
        except SubmissionFailed as failure:
            _log.info("the steps of %s cannot be counted: %s", place.platform, failure)
            return
        if under_way >= place.cluster.steps_max:
            raise JobDeferred(
                f"{place.cluster.cluster_name} is full: {under_way} steps wait or run, and "
                f"{STEPS_AT_ONCE} is {place.cluster.steps_max}",
                full_delay_s(self._instance.properties),
            )


def open_reader(instance: Instance, queue: QueueName) -> BulkImportReader:
    """Return what reads the messages of one of the queues."""
    return BulkImportReader(instance, queue)
