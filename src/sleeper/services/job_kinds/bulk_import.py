"""Jobs of bulk import: many files become rows of a table, here or on a cluster.

The queue says which platform a job is for. A platform that the instance's properties do not
describe is not there: the job runs here then. The worker does it, or a Spark driver beside it where
`sleeper.bulk.import.local.spark.master` is set.
"""

from __future__ import annotations

import logging
import os
import sys
from dataclasses import dataclass, replace

from sleeper.errors import JobInvalid
from sleeper.instance import Instance
from sleeper.jobs.instance_jobs import InstanceJobs
from sleeper.model.formats.bulk_import_job import (
    BulkImportJob,
    bulk_import_job_failures,
    read_bulk_import_job,
)
from sleeper.model.jobs.events import UNKNOWN_TABLE, JobKind, hash_of_paths
from sleeper.model.jobs.messages import QueueName, ReceivedMessage
from sleeper.ports.ids import given_job_id
from sleeper.services.job_reader import JobOutcome, MessageRejected, RunContext
from sleeper.spark.submit.configured_clusters import configured_cluster
from sleeper.spark.submit.driver_process import DriverProcess, run_driver
from sleeper.spark.submit.request import CommandRequest
from sleeper.spark.submit.submitted_jobs import Cluster
from sleeper.state.committed_jobs import JobRecord

_log = logging.getLogger(__name__)

_HERE = "local"
_SPARK_HERE = "local, spark"
_PLATFORMS = {
    QueueName.BULK_IMPORT_EMR: "emr",
    QueueName.BULK_IMPORT_PERSISTENT_EMR: "persistent-emr",
    QueueName.BULK_IMPORT_EMR_SERVERLESS: "emr-serverless",
}


@dataclass(frozen=True, slots=True)
class BulkImportWork:
    """A bulk import job that can be run.

    Attributes:
        instance: Where its table is.
        table_id: The table.
        job: The job, with its id.
        cluster: Who is to run it; None for this process.
        platform: Where it runs, as the tracker shows it.
        before: What the table's log said of the job when its message was read.
    """

    instance: Instance
    table_id: str
    job: BulkImportJob
    cluster: Cluster | None
    platform: str
    before: JobRecord | None

    @property
    def job_id(self) -> str:
        """The job's id, given or made."""
        return self.job.id or ""

    @property
    def input_files(self) -> int:
        """How many paths it names."""
        return len(self.job.paths)

    @property
    def input_hash(self) -> str:
        """Tells its files from others."""
        return hash_of_paths(self.job.paths)

    @property
    def is_tracked(self) -> bool:
        """Bulk imports are tracked."""
        return True

    @property
    def has_driver(self) -> bool:
        """Whether a driver does the work and reports it, here or on a cluster."""
        return self.cluster is not None

    def done_before(self) -> JobOutcome | None:
        """Return what the table's log said of the job when its message was read."""
        return JobOutcome.of_record(self.before, platform=self.platform)

    def run(self, run: RunContext) -> JobOutcome:
        """Import the files, or start a driver that does, and reports its own end."""
        if self.cluster is not None:
            self._start_driver(self.cluster, run)
            return JobOutcome(is_finished=False, platform=self.platform)
        table = self.instance.jobs.tables.table(self.table_id)
        result = table.bulk_import(
            self.job.paths,
            self.job_id,
            conf=self.job.spark_conf,
            progress=lambda done, total: run.check(),
        )
        if self.job.spark_conf and result.engine == "local":
            _log.info("job %s ran without Spark: its sparkConf was not used", self.job_id)
        return JobOutcome(
            rows_read=result.rows_read,
            rows_written=result.rows_written,
            files=len({reference.filename for reference in result.files}),
            transaction=result.transaction,
            platform=f"{_HERE}, {result.engine}",
        )

    def _start_driver(self, cluster: Cluster, run: RunContext) -> None:
        jobs = self.instance.submitted_jobs
        environment = self.instance.properties.jobs.environment
        planned = jobs.plan(self.job, cluster, environment=environment, run_id=run.run_id)
        if isinstance(cluster, DriverProcess) and isinstance(planned.request, CommandRequest):
            _log.info("job %s runs on Spark, %s", self.job_id, cluster.master)
            jobs.save(planned)
            run_driver(planned.request, run.check)
            return
        submitted = jobs.submit(planned)
        _log.info("job %s runs on %s as %s", self.job_id, self.platform, submitted.started)


class BulkImportReader:
    """Reads messages of the bulk import queues (rules BLK-1 and BLK-2).

    Args:
        instance: Whose tables are imported into.
        queue: The queue that messages come from: it says for which platform they are.
    """

    kind = JobKind.INGEST

    def __init__(self, instance: Instance, queue: QueueName) -> None:
        self._instance = instance
        self._queue = queue

    def read(self, message: ReceivedMessage) -> BulkImportWork:
        """Return the job in a message. Without an id it gets the message's, so it is done once.

        Raises:
            MessageRejected: it is none, or cannot be run, for all the reasons that it names.
            StorageFailed: the instance or the input cannot be looked at now.
        """
        try:
            job = read_bulk_import_job(message.body)
        except JobInvalid as invalid:
            raise MessageRejected(message.message_id, invalid.failures) from None
        job = replace(job, id=given_job_id(job.id) or message.message_id)
        return self._checked(job)

    def _checked(self, job: BulkImportJob) -> BulkImportWork:
        jobs: InstanceJobs = self._instance.jobs
        record = jobs.tables.find(table_id=job.table_id, table_name=job.table_name)
        table_id = record.table_id if record else UNKNOWN_TABLE
        before = jobs.tables.committed(table_id, job.id or "")
        missing = jobs.tables.missing(job.paths) if before is None else []
        failures = bulk_import_job_failures(
            job, table_found=record is not None, missing_paths=missing
        )
        if failures or record is None:
            raise MessageRejected(job.id or "", tuple(failures), table_id=table_id)
        if job.class_name:
            _log.info(
                "job %s asks for %s: there is one algorithm here, which does the same",
                job.id,
                job.class_name,
            )
        cluster = self._cluster()
        platform = _HERE
        if cluster is not None:
            is_here = isinstance(cluster, DriverProcess)
            platform = _SPARK_HERE if is_here else _PLATFORMS[self._queue]
        return BulkImportWork(self._instance, table_id, job, cluster, platform, before)

    def _cluster(self) -> Cluster | None:
        platform = _PLATFORMS.get(self._queue)
        properties = self._instance.properties
        if platform is not None:
            cluster = configured_cluster(platform, properties)
            if cluster is not None:
                return cluster
            _log.info("%s is not set up in the instance's properties: running here", platform)
        master = properties.jobs.spark_master
        if master is None:
            return None
        return DriverProcess(master=master, python=sys.executable, parent_id=os.getpid())
