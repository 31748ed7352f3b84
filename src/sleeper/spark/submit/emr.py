"""Requests for EMR on EC2: a cluster for one job, or a step on a cluster that is kept.

A cluster's machines come from instance fleets, by the `sleeper.table.bulk.import.emr.*`
settings: types with an optional weight after each (`m7g.4xlarge,m7g.8xlarge,2`), in units of
capacity. The cluster ends by itself when its step has ended.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sleeper.errors import BadRequest
from sleeper.spark.submit.request import PYTHON, AwsRequest, DriverCall, conf_arguments

Setting = Callable[[str], str]
"""Gives a `sleeper.table.bulk.import.emr.*` setting by the part after that."""

STEP_CHARACTERS_MAX = 10_240  # of the strings of one step, says AWS

# AWS's own policies for EMR, of version 2, let EMR work on nothing without it.
_FOR_MANAGED_POLICIES = {"Key": "for-use-with-amazon-emr-managed-policies", "Value": "true"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Emr:
    """A cluster on EC2, running or to be made.

    Attributes:
        cluster_id: A cluster that runs; None makes one for the job.
        service_role: What EMR itself may do; for a new cluster.
        instance_profile: What the machines, and so the job, may do; for a new cluster.
        subnet_ids: Where a new cluster's machines are; none for the account's default.
        log_uri: `s3://` folder for a new cluster's logs.
        region: Its region; None for what the surroundings say.
        endpoint_url: Another server than AWS's own.
    """

    cluster_id: str | None = None
    service_role: str = "EMR_DefaultRole_V2"
    instance_profile: str = "EMR_EC2_DefaultRole"
    subnet_ids: tuple[str, ...] = ()
    log_uri: str | None = None
    region: str | None = None
    endpoint_url: str | None = None

    def request(self, call: DriverCall, setting: Setting) -> AwsRequest:
        """Return the call: RunJobFlow, or AddJobFlowSteps for a cluster that runs.

        Raises:
            BadRequest: there is no environment, machine types cannot be read, or the step is
                longer than EMR allows.
        """
        if self.cluster_id:
            operation, answer_id = "add_job_flow_steps", "StepIds"
            step = _step(call, on_failure="CONTINUE")
            parameters: dict[str, Any] = {"JobFlowId": self.cluster_id, "Steps": [step]}
        else:
            operation, answer_id = "run_job_flow", "JobFlowId"
            parameters = self._new_cluster(call, setting)
        return AwsRequest(
            service="emr",
            operation=operation,
            parameters=parameters,
            answer_id=answer_id,
            region=self.region,
            endpoint_url=self.endpoint_url,
        )

    def _new_cluster(self, call: DriverCall, setting: Setting) -> dict[str, Any]:
        limits = {
            "UnitType": "InstanceFleetUnits",
            "MinimumCapacityUnits": _count(setting, "executor.initial.capacity"),
            "MaximumCapacityUnits": _count(setting, "executor.max.capacity"),
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
            "Tags": [_FOR_MANAGED_POLICIES],
            **({"LogUri": self.log_uri} if self.log_uri else {}),
        }

    def _instances(self, setting: Setting) -> dict[str, Any]:
        market = setting("executor.market.type").upper()
        capacity = "TargetSpotCapacity" if market == "SPOT" else "TargetOnDemandCapacity"
        return {
            "InstanceFleets": [
                {
                    "Name": "Driver",
                    "InstanceFleetType": "MASTER",
                    "TargetOnDemandCapacity": 1,
                    # Weights count executors; there is one machine here, whatever its size.
                    "InstanceTypeConfigs": [
                        {"InstanceType": each["InstanceType"]} for each in _types(setting, "master")
                    ],
                },
                {
                    "Name": "Executors",
                    "InstanceFleetType": "CORE",
                    capacity: _count(setting, "executor.initial.capacity"),
                    "InstanceTypeConfigs": _types(setting, "executor"),
                },
            ],
            "KeepJobFlowAliveWhenNoSteps": False,
            "TerminationProtected": False,
            **({"Ec2SubnetIds": [*self.subnet_ids]} if self.subnet_ids else {}),
        }


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


def _types(setting: Setting, role: str) -> list[dict[str, Any]]:
    """The machine types of a role, of every architecture that is wanted, with their weights."""
    families = {"x86_64": "x86", "arm64": "arm"}
    wanted = [each.strip() for each in setting("instance.architecture").split(",")]
    configs: list[dict[str, Any]] = []
    for architecture in wanted:
        if architecture not in families:
            raise BadRequest(f"{architecture!r} is no architecture of EMR: say x86_64 or arm64")
        name = f"{role}.{families[architecture]}.instance.types"
        for item in filter(None, map(str.strip, setting(name).split(","))):
            if not item.isdigit():
                configs.append({"InstanceType": item})
            elif configs and "WeightedCapacity" not in configs[-1]:
                configs[-1]["WeightedCapacity"] = int(item)
            else:
                raise BadRequest(
                    f"{name} is {setting(name)!r}: the weight {item} follows no machine type"
                )
    return configs


def _count(setting: Setting, name: str) -> int:
    text = setting(name)
    if not text.isdigit() or int(text) < 1:
        raise BadRequest(f"{name} is {text!r}: it must be a whole number above 0")
    return int(text)
