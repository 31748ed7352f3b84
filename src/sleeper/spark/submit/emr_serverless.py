"""Requests for EMR Serverless: one call, StartJobRun, on an application that exists."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Final

from sleeper.language.value_classes import dataclass
from sleeper.spark.submit.request import PYTHON, AwsRequest, DriverCall, conf_arguments

# What a worker may have: GB of memory, from and to, by vCPU.
_MEMORY_GB: Final = {1: (2, 8), 2: (4, 16), 4: (8, 30), 8: (16, 60), 16: (32, 120)}
_SIZE = re.compile(r"(\d+)\s*([kmgt]?)b?", re.IGNORECASE)
_MIB = {"k": 1 / 1024, "m": 1, "": 1, "g": 1024, "t": 1024 * 1024}
_OVERHEAD_MIB_MIN, _OVERHEAD_SHARE = 384, 0.1  # Spark's own, where nothing is set


@dataclass(frozen=True, slots=True, kw_only=True)
class EmrServerless:
    """An application of EMR Serverless.

    Attributes:
        application_id: Its id; of type SPARK, with release emr-spark-8.0.0 or later.
        execution_role_arn: The role whose permissions the job has.
        log_uri: `s3://` folder for logs besides the service's own; None for its own alone.
        region: Its region; None for what the surroundings say.
        endpoint_url: Another server than AWS's own.
    """

    application_id: str
    execution_role_arn: str
    log_uri: str | None = None
    region: str | None = None
    endpoint_url: str | None = None

    def request(self, call: DriverCall, run_id: str) -> AwsRequest:
        """Return the call. Sent twice with the same run id, it starts one job.

        Raises:
            BadRequest: there is no environment.
        """
        conf = {
            **call.spark_conf,
            "spark.archives": call.archive,
            "spark.emr-serverless.driverEnv.PYSPARK_DRIVER_PYTHON": PYTHON,
            "spark.emr-serverless.driverEnv.PYSPARK_PYTHON": PYTHON,
            "spark.executorEnv.PYSPARK_PYTHON": PYTHON,
        }
        parameters = {
            "applicationId": self.application_id,
            "clientToken": run_id,
            "executionRoleArn": self.execution_role_arn,
            "name": call.name,
            "jobDriver": {
                "sparkSubmit": {
                    "entryPoint": call.entry,
                    "entryPointArguments": [*call.arguments],
                    "sparkSubmitParameters": shlex.join(conf_arguments(conf)),
                }
            },
        }
        if self.log_uri:
            logs = {"s3MonitoringConfiguration": {"logUri": self.log_uri}}
            parameters["configurationOverrides"] = {"monitoringConfiguration": logs}
        return AwsRequest(
            service="emr-serverless",
            operation="start_job_run",
            parameters=parameters,
            answer_id="jobRunId",
            region=self.region,
            endpoint_url=self.endpoint_url,
        )


def worker_failures(spark_conf: Mapping[str, str]) -> Iterator[str]:
    """Yield why the service has no workers of the sizes that Spark's settings ask for."""
    for role in ("driver", "executor"):
        cores = spark_conf.get(f"spark.{role}.cores", "4")
        if not cores.isdecimal() or int(cores) not in _MEMORY_GB:
            yield (
                f"spark.{role}.cores is {cores}, but workers of EMR Serverless have "
                f"{', '.join(map(str, _MEMORY_GB))} vCPU"
            )
            continue
        try:
            memory_mib = _mib(spark_conf.get(f"spark.{role}.memory", "14G"))
            overhead = spark_conf.get(f"spark.{role}.memoryOverhead")
            own = max(_OVERHEAD_MIB_MIN, memory_mib * _OVERHEAD_SHARE)
            memory_mib += own if overhead is None else _mib(overhead)
        except ValueError as error:
            yield f"spark.{role}.memory and memoryOverhead: {error}"
            continue
        least, most = _MEMORY_GB[int(cores)]
        if not least <= memory_mib / 1024 <= most:
            yield (
                f"spark.{role}.memory and memoryOverhead are {memory_mib / 1024:.1f} GB together, "
                f"but a worker of {cores} vCPU of EMR Serverless has {least} to {most} GB"
            )


def _mib(text: str) -> float:
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is no size, such as 6g")
    return int(found[1]) * _MIB[found[2].lower()]
