"""Requests for EMR Serverless: one call, StartJobRun, on an application that exists."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from sleeper.errors import BadRequest
from sleeper.spark.submit.effective_conf import memory_mib
from sleeper.spark.submit.emr import release_failures
from sleeper.spark.submit.request import PYTHON, AwsRequest, DriverCall, conf_arguments
from sleeper.spark.submit.spark_settings import mib_of, whole_of

# What a worker may have: GB of memory, from and to, by vCPU.
_MEMORY_GB: Final = {1: (2, 8), 2: (4, 16), 4: (8, 30), 8: (16, 60), 16: (32, 120)}
_DISK_GB: Final = (20, 200)
_SHUFFLE_DISK_GB: Final = (20, 2000)  # of the type shuffle_optimized

RELEASE: Final = "sleeper.bulk.import.emr.serverless.release"
PARAMETERS_CHARACTERS_MAX: Final = 102_400  # of the settings of one job, says AWS


@dataclass(frozen=True, slots=True, kw_only=True)
class EmrServerless:
    """An application of EMR Serverless.

    Attributes:
        application_id: Its id; of type SPARK, with release emr-spark-8.0.0 or later.
        execution_role_arn: The role whose permissions the job has.
        release: The application's release, for the check; None where it is not known.
        log_uri: `s3://` folder for logs besides the service's own; None for its own alone.
        disk_key_arn: The key of KMS that encrypts disks of workers; None for the service's own.
        region: Its region; None for what the surroundings say.
        endpoint_url: Another server than AWS's own.
    """

    application_id: str
    execution_role_arn: str
    release: str | None = None
    log_uri: str | None = None
    disk_key_arn: str | None = None
    region: str | None = None
    endpoint_url: str | None = None

    def failures(self, spark_conf: Mapping[str, str]) -> list[str]:
        """Return why the application cannot run a job with these settings of Spark."""
        release = release_failures(self.release, RELEASE) if self.release else ()
        return [*release, *worker_failures(spark_conf)]

    def request(self, call: DriverCall, run_id: str) -> AwsRequest:
        """Return the call. Sent twice with the same run id, it starts one job.

        Raises:
            BadRequest: there is no environment, or there are more settings than fit.
        """
        conf = {
            **call.spark_conf,
            "spark.archives": call.archive,
            "spark.emr-serverless.driverEnv.PYSPARK_DRIVER_PYTHON": PYTHON,
            "spark.emr-serverless.driverEnv.PYSPARK_PYTHON": PYTHON,
            "spark.executorEnv.PYSPARK_PYTHON": PYTHON,
        }
        settings = shlex.join(conf_arguments(conf))
        if len(settings) > PARAMETERS_CHARACTERS_MAX:
            raise BadRequest(
                f"Spark's settings would have {len(settings):,} characters, and EMR Serverless "
                f"allows {PARAMETERS_CHARACTERS_MAX:,}: set fewer in the job"
            )
        parameters = {
            "applicationId": self.application_id,
            "clientToken": run_id,
            "executionRoleArn": self.execution_role_arn,
            "name": call.name,
            "jobDriver": {
                "sparkSubmit": {
                    "entryPoint": call.entry,
                    "entryPointArguments": [*call.arguments],
                    "sparkSubmitParameters": settings,
                }
            },
        }
        if overrides := self._overrides():
            parameters["configurationOverrides"] = overrides
        return AwsRequest(
            service="emr-serverless",
            operation="start_job_run",
            parameters=parameters,
            answer_id="jobRunId",
            region=self.region,
            endpoint_url=self.endpoint_url,
        )

    def _overrides(self) -> dict[str, dict[str, object]]:
        """Return what a job has otherwise than its application."""
        overrides: dict[str, dict[str, object]] = {}
        if self.log_uri:
            logs = {"logUri": self.log_uri}
            overrides["monitoringConfiguration"] = {"s3MonitoringConfiguration": logs}
        if self.disk_key_arn:
            overrides["diskEncryptionConfiguration"] = {"encryptionKeyArn": self.disk_key_arn}
        return overrides


def size_failures(named: str, cores: int, memory_gb: int, disk_gb: int) -> list[str]:
    """Return why the service has no workers of a size that is kept ready.

    Args:
        named: The properties that have it, for messages.
        cores: Processors.
        memory_gb: Memory.
        disk_gb: Disk.
    """
    if cores not in _MEMORY_GB:
        return [f"{named}.cores is {cores}, but there are {', '.join(map(str, _MEMORY_GB))} vCPU"]
    checked = (("memory", memory_gb, _MEMORY_GB[cores]), ("disk", disk_gb, _DISK_GB))
    return [
        f"{named}.{what} is {size} GB, but a worker of {cores} vCPU has {least} to {most} GB"
        for what, size, (least, most) in checked
        if not least <= size <= most
    ]


def worker_failures(spark_conf: Mapping[str, str]) -> Iterator[str]:
    """Yield why the service has no workers of the sizes that Spark's settings ask for.

    What cannot be read is no size of a worker, and is left to `conf_failures`.
    """
    for role in ("driver", "executor"):
        yield from _disk_failures(spark_conf, role)
        name = f"spark.{role}.cores"
        cores = whole_of({name: "4", **spark_conf}, name)
        if cores is not None and cores not in _MEMORY_GB:
            yield (
                f"{name} is {cores}, but workers of EMR Serverless have "
                f"{', '.join(map(str, _MEMORY_GB))} vCPU"
            )
        try:
            size_gb = memory_mib(role, spark_conf, "14G") / 1024
        except ValueError:
            continue
        known = {cores: _MEMORY_GB[cores]} if cores in _MEMORY_GB else _MEMORY_GB
        least, most = min(low for low, _ in known.values()), max(high for _, high in known.values())
        if not least <= size_gb <= most:
            worker = f"a worker of {cores} vCPU" if len(known) == 1 else "a worker"
            yield (
                f"spark.{role}.memory and memoryOverhead are {size_gb:.1f} GB together, "
                f"but {worker} of EMR Serverless has {least} to {most} GB"
            )


def _disk_failures(spark_conf: Mapping[str, str], role: str) -> Iterator[str]:
    name = f"spark.emr-serverless.{role}.disk"
    text = spark_conf.get(name)
    if text is None:
        return
    kind = spark_conf.get(f"{name}.type", "standard").lower()
    least, most = _SHUFFLE_DISK_GB if kind == "shuffle_optimized" else _DISK_GB
    try:
        size_gb = mib_of(text) / 1024
    except ValueError:
        return
    if not least <= size_gb <= most:
        yield f"{name} is {text}, but a {kind} disk of EMR Serverless has {least} to {most} GB"
