"""Requests for EKS: one call, StartExecution, of the state machine that runs jobs there.

The state machine knows the cluster, the namespace and the image (`state_machine.py`). Its input
says what is to run, and how large its pods are.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Final

from sleeper.errors import BadRequest
from sleeper.language.value_classes import dataclass
from sleeper.spark.submit.eks.pods import (
    PodSize,
    executor_template,
    fargate_failures,
    pod_prefix,
)
from sleeper.spark.submit.request import AwsRequest, DriverCall, conf_arguments

ENTRY: Final = "local:///sleeper/sleeper_bulk_import.py"
INPUT_BYTES_MAX: Final = 262_144  # of one execution, says AWS

_DIGEST: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Eks:
    """A state machine that runs jobs on a cluster of EKS.

    Attributes:
        state_machine_arn: The state machine.
        executor_storage: The disk of each executor's pod.
        is_fargate: Whether pods run on Fargate, which has sizes of its own.
        region: Its region; None for what the surroundings say.
        endpoint_url: Another server than AWS's own.
    """

    state_machine_arn: str
    executor_storage: str = "175Gi"
    is_fargate: bool = True
    region: str | None = None
    endpoint_url: str | None = None

    def failures(self, spark_conf: Mapping[str, str]) -> list[str]:
        """Return why there are no pods of the sizes that Spark's settings ask for."""
        return [*fargate_failures(spark_conf, self.executor_storage)] if self.is_fargate else []

    def request(self, call: DriverCall, *, table_id: str, job_id: str, run_id: str) -> AwsRequest:
        """Return the call. An execution is named by its job, so that a second call starts none.

        Args:
            call: The driver.
            table_id: The job's table.
            job_id: The job.
            run_id: Its run; the pods are named by job and run.

        Raises:
            BadRequest: the job is too large for an execution's input.
        """
        pods = pod_prefix(job_id, run_id)
        size = PodSize.of("driver", call.spark_conf)
        conf = {
            **call.spark_conf,
            "spark.app.name": call.name,
            "spark.kubernetes.executor.podNamePrefix": pods,
        }
        given = {
            "job": {"id": job_id, "tableId": table_id, "runId": run_id},
            "pod": pods,
            "driver": {"cpu": str(size.cores), "memory": f"{size.mib}Mi"},
            "executorPodTemplate": executor_template(self.executor_storage),
            "args": [*conf_arguments(conf), ENTRY, *call.arguments],
        }
        text = json.dumps(given)
        if len(text.encode()) > INPUT_BYTES_MAX:
            raise BadRequest(
                f"the job would have {len(text.encode()):,} bytes, and Step Functions allows "
                f"{INPUT_BYTES_MAX:,}: set fewer Spark settings in it"
            )
        return AwsRequest(
            service="stepfunctions",
            operation="start_execution",
            parameters={
                "stateMachineArn": self.state_machine_arn,
                "name": execution_name(table_id, job_id),
                "input": text,
            },
            answer_id="executionArn",
            is_once=True,
            region=self.region,
            endpoint_url=self.endpoint_url,
        )


def execution_name(table_id: str, job_id: str) -> str:
    """Return the name of a job's first execution: the job's id, and a mark of its table.

    >>> execution_name("9f2c", "june")
    'june-745c056dc09f'
    """
    return f"{job_id}-{hashlib.sha256(table_id.encode()).hexdigest()[:_DIGEST]}"
