"""Requests for EMR Serverless: one call, StartJobRun, on an application that exists."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from sleeper.spark.submit.request import PYTHON, AwsRequest, DriverCall, conf_arguments


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
