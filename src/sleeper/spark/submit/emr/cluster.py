"""Requests for EMR on EC2: a cluster for one job, or a step on a cluster that is kept.

A cluster's machines come from instance fleets, by the `sleeper.table.bulk.import.emr.*`
settings: types with an optional weight after each (`m7g.4xlarge,m7g.8xlarge,2`), in units of
capacity. The cluster ends by itself when its step has ended.
"""

from __future__ import annotations

from typing import Any

from sleeper.errors import BadRequest
from sleeper.language.value_classes import dataclass
from sleeper.spark.submit.emr.machines import (
    EbsVolumes,
    Setting,
    capacity,
    emr_setting_failures,
    machine_types,
)
from sleeper.spark.submit.request import PYTHON, AwsRequest, DriverCall, conf_arguments

STEP_CHARACTERS_MAX = 10_240  # of the strings of one step, says AWS

FOR_MANAGED_POLICIES = {"Key": "for-use-with-amazon-emr-managed-policies", "Value": "true"}
"""A tag: AWS's own policies for EMR, of version 2, let EMR work on nothing without it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Emr:
    """A cluster on EC2, running or to be made.

    Attributes:
        cluster_id: A cluster that runs; without it and a name, one is made for the job.
        cluster_name: A cluster that runs, by its name.
        service_role: What EMR itself may do; for a new cluster.
        instance_profile: What the machines, and so the job, may do; for a new cluster.
        subnet_ids: Where a new cluster's machines are; none for the account's default.
        log_uri: `s3://` folder for a new cluster's logs.
        key_pair: An EC2 key pair, to reach a new cluster's machines by SSH.
        security_group: One more security group for a new cluster's master.
        security_configuration: EMR's security configuration of a new cluster, by name.
        ebs: The disks of a new cluster's executors; None for EMR's default.
        steps_max: How many steps a running cluster is given at once; with as many, it is full.
            None for no limit but EMR's own.
        region: Its region; None for what the surroundings say.
        endpoint_url: Another server than AWS's own.
    """

    cluster_id: str | None = None
    cluster_name: str | None = None
    service_role: str = "EMR_DefaultRole_V2"
    instance_profile: str = "EMR_EC2_DefaultRole"
    subnet_ids: tuple[str, ...] = ()
    log_uri: str | None = None
    key_pair: str | None = None
    security_group: str | None = None
    security_configuration: str | None = None
    ebs: EbsVolumes | None = None
    steps_max: int | None = None
    region: str | None = None
    endpoint_url: str | None = None

    @property
    def is_kept(self) -> bool:
        """Whether the cluster runs already, and goes on when the job has ended."""
        return bool(self.cluster_id or self.cluster_name)

    def failures(self, setting: Setting) -> list[str]:
        """Return why a new cluster cannot be made; nothing for a cluster that runs.

        Args:
            setting: Gives a `sleeper.table.bulk.import.emr.*` setting by the part after that.
        """
        if self.is_kept:
            return []
        disks = self.ebs.failures() if self.ebs else ()
        return [*emr_setting_failures(setting), *disks]

    def request(self, call: DriverCall, setting: Setting) -> AwsRequest:
        """Return the call: RunJobFlow, or AddJobFlowSteps for a cluster that runs.

        Raises:
            BadRequest: there is no environment, machine types cannot be read, or the step is
                longer than EMR allows.
        """
        if self.is_kept:
            operation, answer_id = "add_job_flow_steps", "StepIds"
            step = _step(call, on_failure="CONTINUE")
            parameters: dict[str, Any] = {"Steps": [step]}
            if self.cluster_id:
                parameters["JobFlowId"] = self.cluster_id
        else:
            operation, answer_id = "run_job_flow", "JobFlowId"
            parameters = self._new_cluster(call, setting)
        return AwsRequest(
            service="emr",
            operation=operation,
            parameters=parameters,
            answer_id=answer_id,
            cluster_name=None if self.cluster_id else self.cluster_name,
            region=self.region,
            endpoint_url=self.endpoint_url,
        )

    def _new_cluster(self, call: DriverCall, setting: Setting) -> dict[str, Any]:
        limits = {
            "UnitType": "InstanceFleetUnits",
            "MinimumCapacityUnits": capacity(setting, "executor.initial.capacity"),
            "MaximumCapacityUnits": capacity(setting, "executor.max.capacity"),
        }
        return {
            "Name": call.name,
            "ReleaseLabel": setting("release.label"),
            "Applications": [{"Name": "Spark"}],
            "Instances": self._instances(setting),
            "ManagedScalingPolicy": {"ComputeLimits": limits},
            "ScaleDownBehavior": "TERMINATE_AT_TASK_COMPLETION",
            "Steps": [_step(call, on_failure="TERMINATE_CLUSTER")],
            "ServiceRole": self.service_role,
            "JobFlowRole": self.instance_profile,
            "VisibleToAllUsers": True,
            "Tags": [FOR_MANAGED_POLICIES],
            **({"LogUri": self.log_uri} if self.log_uri else {}),
            **(
                {"SecurityConfiguration": self.security_configuration}
                if self.security_configuration
                else {}
            ),
        }

    def _instances(self, setting: Setting) -> dict[str, Any]:
        market = setting("executor.market.type").upper()
        target = "TargetSpotCapacity" if market == "SPOT" else "TargetOnDemandCapacity"
        return {
            "InstanceFleets": [
                {
                    "Name": "Driver",
                    "InstanceFleetType": "MASTER",
                    "TargetOnDemandCapacity": 1,
                    # Weights count executors; there is one machine here, whatever its size.
                    "InstanceTypeConfigs": [
                        {"InstanceType": each["InstanceType"]}
                        for each in machine_types(setting, "master")
                    ],
                },
                {
                    "Name": "Executors",
                    "InstanceFleetType": "CORE",
                    target: capacity(setting, "executor.initial.capacity"),
                    "InstanceTypeConfigs": [
                        {**each, **self._disks()} for each in machine_types(setting, "executor")
                    ],
                },
            ],
            "KeepJobFlowAliveWhenNoSteps": False,
            "TerminationProtected": False,
            **({"Ec2SubnetIds": [*self.subnet_ids]} if self.subnet_ids else {}),
            **({"Ec2KeyName": self.key_pair} if self.key_pair else {}),
            **(
                {"AdditionalMasterSecurityGroups": [self.security_group]}
                if self.security_group
                else {}
            ),
        }

    def _disks(self) -> dict[str, Any]:
        return {"EbsConfiguration": self.ebs.configuration()} if self.ebs else {}


def _step(call: DriverCall, *, on_failure: str) -> dict[str, Any]:
    conf = {
        **call.spark_conf,
        "spark.pyspark.python": PYTHON,
        "spark.yarn.appMasterEnv.PYSPARK_PYTHON": PYTHON,
    }
    arguments = [
        *("spark-submit", "--master", "yarn", "--deploy-mode", "cluster", "--name", call.name),
        *("--archives", call.archive),
        *conf_arguments(conf),
        call.entry,
        *call.arguments,
    ]
    length = sum(map(len, arguments))
    if length > STEP_CHARACTERS_MAX:
        raise BadRequest(
            f"the step would have {length:,} characters, and EMR allows {STEP_CHARACTERS_MAX:,}: "
            "set fewer Spark settings in the job"
        )
    return {
        "Name": call.name,
        "ActionOnFailure": on_failure,
        "HadoopJarStep": {"Jar": "command-runner.jar", "Args": arguments},
    }
