"""A job on its way to a cluster: checked, planned as a value, saved, sent (BLK-2 to BLK-4)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

from sleeper.engine.inputs.input_files import file_sizes
from sleeper.errors import (
    BadRequest,
    InputNotFound,
    JobInvalid,
    MissingExtra,
    StorageFailed,
    UrlInvalid,
)
from sleeper.model.formats.bulk_import_job import (
    BulkImportJob,
    bulk_import_job_failures,
    read_bulk_import_job,
    write_bulk_import_job,
)
from sleeper.model.known_properties.typed import InstanceProperties, TableProperties
from sleeper.model.tables import TableRecord
from sleeper.ports.ids import NewId
from sleeper.ports.objects import InputStore, Objects
from sleeper.ports.table_index import TableIndex
from sleeper.spark.submit.aws_calls import account_quota, count_steps
from sleeper.spark.submit.driver_process import DriverProcess
from sleeper.spark.submit.effective_conf import (
    Platform,
    effective_spark_conf,
    is_sized,
    platform_setting,
    region_conf,
    setting_properties,
)
from sleeper.spark.submit.eks import Eks
from sleeper.spark.submit.emr import Emr, Setting
from sleeper.spark.submit.emr_serverless import EmrServerless
from sleeper.spark.submit.executors import FARGATE_QUOTA, SERVERLESS_QUOTA, Demand, Quota
from sleeper.spark.submit.request import ARCHITECTURE, AwsRequest, DriverCall, Request
from sleeper.spark.submit.send import send
from sleeper.spark.submit.spark_settings import unknown_settings
from sleeper.spark.submit.spark_submit import Kubernetes, SparkSubmit
from sleeper.spark.submit.submission_check import EMR_SETTINGS, CheckedCall, submission_failures

Cluster = SparkSubmit | DriverProcess | Kubernetes | Eks | Emr | EmrServerless

_LOG = logging.getLogger(__name__)
_FOLDER = "bulk_import/"
_KEPT = timedelta(days=30)
_NAME_LENGTH_MAX = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """What is sent to a cluster for one run of a job.

    Attributes:
        platform: The kind of cluster.
        job: The job, with its id.
        job_place: The key in the instance under which the run's driver finds the job.
        request: What is sent to the cluster.
        demand: What the job asks the platform for; None where the cluster's own size counts.
        started: What the cluster calls that which it started; None before, and for commands.
    """

    platform: Platform
    job: BulkImportJob
    job_place: str
    request: Request
    demand: Demand | None = None
    started: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmittedJobs:
    """The jobs of an instance that clusters are to run.

    Attributes:
        objects: Everything the instance stores.
        index: Its tables.
        properties: Its properties.
        url: Where a driver finds it.
        new_id: Fresh random ids.
        now: The clock (aware, UTC).
        inputs: Finds input files by URL, for their sizes; None where they are not looked at.
    """

    objects: Objects
    index: TableIndex
    properties: InstanceProperties
    url: str
    new_id: NewId
    now: Callable[[], datetime]
    inputs: InputStore | None = None

    def plan(
        self,
        job: BulkImportJob,
        cluster: Cluster,
        *,
        environment: str | None = None,
        options: tuple[str, ...] = (),
        run_id: str | None = None,
    ) -> Submission:
        """Return what would be sent to a cluster. Nothing is saved or started.

        Paths of this machine become absolute: a driver has another working folder. Where the number
        of executors follows from the input, its files are listed.

        Args:
            job: With or without an id; with its table's name or id.
            cluster: Who is to run it.
            environment: Folder or URL of Sleeper's packages, where the cluster needs them; may
                have `{architecture}` in it, for the cluster's processors.
            options: More arguments for the entry script, such as `--ignore-extra-columns`.
            run_id: Names the run, if the caller has reported it already; else one is made.

        Raises:
            JobInvalid: every reason why the job cannot be run, or not there (rule BLK-2).
            BadRequest: the cluster cannot be asked for it like this.
        """
        job = replace(job, id=(job.id or "").strip() or self.new_id())
        record = self.table_of(job)
        local = "://" not in self.url
        missing = _missing(job.paths) if local else []
        failures = bulk_import_job_failures(
            job, table_found=record is not None, missing_paths=missing
        )
        failures += self.failures(job, cluster, environment=environment)
        if failures:
            raise JobInvalid(tuple(failures))
        assert record is not None
        if local:
            job = replace(job, files=tuple(map(_absolute, job.paths)))
        run_id = run_id or self.new_id()
        place = f"{_FOLDER}{job.id}-{run_id}.json"
        platform = platform_of(cluster)
        input_bytes = self._input_bytes(job) if is_sized(platform) else None
        spark_conf = self._spark_conf(platform, job, input_bytes)
        call = DriverCall(
            name=f"sleeper-{self.properties.id}-{record.name}-{job.id}"[:_NAME_LENGTH_MAX],
            arguments=(place, "--instance", self.url, *options),
            spark_conf=spark_conf,
            environment=self._environment(cluster, job, environment),
        )
        request = self._request(cluster, call, run_id, job, record)
        demand = None
        if is_sized(platform):
            demand = Demand.of(spark_conf, input_bytes, _quota_of(cluster))
        return Submission(
            platform=platform, job=job, job_place=place, request=request, demand=demand
        )

    def notes(self, submission: Submission, *, ask: bool = True) -> list[str]:
        """Return what people should know of a submission: its size, and names that do nothing.

        Args:
            submission: What is to be sent.
            ask: Whether AWS may be asked for the quota of the account, if the job asks for more
                than a new account has. Where it gives no answer, that of a new account counts.
        """
        unknown = unknown_settings(submission.job.spark_conf)
        notes = [f"{', '.join(unknown)}: no setting of Spark itself; passed on"] if unknown else []
        demand, request = submission.demand, submission.request
        if demand is None:
            return notes
        limit = _limit_of(demand, request) if ask and isinstance(request, AwsRequest) else None
        return [demand.told(limit), *notes]

    def _input_bytes(self, job: BulkImportJob) -> int | None:
        """Return the bytes of a job's input; None where its files cannot be listed from here."""
        if self.inputs is None:
            return None
        try:
            return sum(file_sizes(job.paths, self.inputs).values())
        except (InputNotFound, UrlInvalid, StorageFailed, MissingExtra) as error:
            _LOG.info("the size of the input of job %s is not known: %s", job.id, error)
            return None

    def failures(
        self, job: BulkImportJob, cluster: Cluster, *, environment: str | None = None
    ) -> list[str]:
        """Return every reason why a cluster could not run a job, by values alone.

        What is wrong with the job itself, wherever it would run, is not among them.
        """
        platform = platform_of(cluster)
        return submission_failures(
            cluster,
            CheckedCall(
                job=job,
                url=self.url,
                environment=self._environment(cluster, job, environment),
                platform=platform,
                spark_conf=self._spark_conf(platform, job),
                properties=setting_properties(platform, self.properties),
                setting=self._settings(job, self.table_of(job)),
            ),
        )

    def _environment(
        self, cluster: Cluster, job: BulkImportJob, environment: str | None
    ) -> str | None:
        """Return the folder of packages for a cluster's processors, where they are known."""
        clusters = self.properties.clusters
        match cluster:
            case _ if environment is None or ARCHITECTURE not in environment:
                return environment
            case Emr(cluster_name=None):
                wanted = self._settings(job, self.table_of(job))("instance.architecture")
            case Emr():
                wanted = clusters.persistent_architecture
            case EmrServerless():
                wanted = clusters.serverless_architecture
            case _:
                return environment
        return environment.replace(ARCHITECTURE, wanted.strip().lower())

    def steps_under_way(self, cluster: Emr) -> int:
        """Return how many steps wait or run on a running cluster that is known by its name.

        Raises:
            SubmissionFailed: there is no such cluster, or it could not be asked.
            MissingExtra: boto3 is not installed.
        """
        return count_steps(
            cluster.cluster_name or "", region=cluster.region, endpoint_url=cluster.endpoint_url
        )

    def _spark_conf(
        self, platform: Platform, job: BulkImportJob, input_bytes: int | None = None
    ) -> dict[str, str]:
        return {
            **region_conf(platform, self.properties),
            **effective_spark_conf(platform, self.properties, job, input_bytes),
        }

    def _settings(self, job: BulkImportJob, record: TableRecord | None) -> Setting:
        table = TableProperties(record.properties if record else {}, self.properties)
        return lambda name: platform_setting(EMR_SETTINGS + name, table, job)

    def _request(
        self,
        cluster: Cluster,
        call: DriverCall,
        run_id: str,
        job: BulkImportJob,
        record: TableRecord,
    ) -> Request:
        match cluster:
            case Emr():
                return cluster.request(call, self._settings(job, record))
            case EmrServerless():
                return cluster.request(call, run_id)
            case Eks():
                return cluster.request(
                    call, table_id=record.table_id, job_id=job.id or "", run_id=run_id
                )
            case _:
                return cluster.request(call)

    def submit(self, submission: Submission) -> Submission:
        """Save a job where its driver finds it, then ask the cluster for the run (rule BLK-3).

        Returns:
            The submission, with what the cluster started.

        Raises:
            SubmissionFailed: the cluster did not take it; nothing is left but the saved job.
            MissingExtra: boto3 is needed and not installed.
            StorageFailed: the job could not be saved; the cluster was not asked.
        """
        self.save(submission)
        return replace(submission, started=send(submission.request))

    def save(self, submission: Submission) -> None:
        """Save a job where its driver finds it.

        Raises:
            StorageFailed: it could not be saved.
        """
        self._delete_old()
        text = write_bulk_import_job(submission.job)
        if not self.objects.create(submission.job_place, text.encode()):
            raise StorageFailed(f"{submission.job_place} exists already; try again")

    def read(self, place: str) -> BulkImportJob:
        """Return a job that was submitted, by the place it was saved at.

        Raises:
            BadRequest: no job was saved there.
            JobInvalid: the object there is no job.
        """
        body = self.objects.read(place)
        if body is None:
            raise BadRequest(f"no bulk import job was saved at {place!r} in {self.url}")
        return read_bulk_import_job(body.decode())

    def delete(self, place: str) -> None:
        """Delete a job that has ended well: nobody reads it again.

        What cannot be deleted stays, and is deleted when it is old.
        """
        _LOG.info("deleting the bulk import job %s, which has ended", place)
        try:
            self.objects.delete([place])
        except StorageFailed as error:
            _LOG.warning("the bulk import job %s cannot be deleted: %s", place, error)

    def _delete_old(self) -> None:
        """Delete jobs that were saved so long ago that no cluster will read them."""
        before = self.now() - _KEPT
        try:
            old = [each.key for each in self.objects.listing(_FOLDER) if each.modified < before]
            if old:
                _LOG.info("deleting %d old bulk import jobs: %s", len(old), ", ".join(old))
                self.objects.delete(old)
        except StorageFailed as error:
            _LOG.warning("old bulk import jobs cannot be deleted: %s", error)

    def table_of(self, job: BulkImportJob) -> TableRecord | None:
        """Return a job's table, or None; its id wins over its name (rule ING-9)."""
        if job.table_id:
            return self.index.by_id(job.table_id)
        return self.index.by_name(job.table_name) if job.table_name else None


def _missing(paths: Sequence[str]) -> list[str]:
    return [path for path in paths if "://" not in path and not Path(path).expanduser().exists()]


def _absolute(path: str) -> str:
    return path if "://" in path else str(Path(path).expanduser().absolute())


def _limit_of(demand: Demand, request: AwsRequest) -> float | None:
    """Return the quota of the account, if it matters; None where it cannot be known."""
    quota = demand.quota
    if quota is None or not demand.is_above(quota.of_new_account) or request.endpoint_url:
        return None
    return account_quota(quota.service, quota.code, region=request.region)


def _quota_of(cluster: Cluster) -> Quota | None:
    """Return the quota of an account that limits a job on a cluster."""
    match cluster:
        case EmrServerless():
            return SERVERLESS_QUOTA
        case Eks(is_fargate=True):
            return FARGATE_QUOTA
        case _:
            return None


def platform_of(cluster: Cluster) -> Platform:
    """Return the kind of a cluster."""
    match cluster:
        case SparkSubmit() | DriverProcess():
            return "spark-submit"
        case Kubernetes():
            return "kubernetes"
        case Eks():
            return "eks"
        case Emr():
            return "emr"
        case EmrServerless():
            return "emr-serverless"
