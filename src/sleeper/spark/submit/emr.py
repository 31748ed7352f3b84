"""Requests for EMR on EC2: a cluster for one job, or a step on a cluster that is kept.

A cluster's machines come from instance fleets, by the `sleeper.table.bulk.import.emr.*`
settings: types with an optional weight after each (`m7g.4xlarge,m7g.8xlarge,2`), in units of
capacity. The cluster ends by itself when its step has ended.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from sleeper.errors import BadRequest
from sleeper.spark.submit.effective_conf import memory_mib
from sleeper.spark.submit.machine_types import MachineType, near_types
from sleeper.spark.submit.machine_types import machine_types as known_types
from sleeper.spark.submit.request import PYTHON, AwsRequest, DriverCall, conf_arguments
from sleeper.spark.submit.spark_settings import whole_of

# ---------------------------------------------------------------- machines
#
# The machines of a new cluster, by the `sleeper.table.bulk.import.emr.*` settings of a job.
#
# Types have an optional weight after each (`m7g.4xlarge,m7g.8xlarge,2`), in units of capacity.

Setting = Callable[[str], str]
"""Gives a `sleeper.table.bulk.import.emr.*` setting by the part after that."""

_LABEL = re.compile(r"(emr-spark|emr)-(\d+)\.\d+\.\d+")
_RELEASE_MIN = 8  # emr-spark-8.0.0 has Spark 4.0; emr-7 has 3.5
_MARKETS = ("SPOT", "ON_DEMAND")
_ROLES: Final = ("master", "executor")
_FAMILIES: Final = {"x86_64": "x86", "arm64": "arm"}
_NEWER: Final = "a type that is newer than this table can be used on a kept cluster"
_TYPES_MAX: Final = 5  # of one fleet without an allocation strategy, says AWS
# EMR has no io2 at all, and wants a number of operations for io1, for which there is no property.
_VOLUME_TYPES: Final = ("gp2", "gp3")


@dataclass(frozen=True, slots=True, kw_only=True)
class EbsVolumes:
    """The disks of each executor machine of a new cluster.

    Attributes:
        size_gb: Of one.
        volume_type: As EC2 calls it, such as `gp3`.
        per_instance: How many there are.
    """

    size_gb: int
    volume_type: str
    per_instance: int

    def configuration(self) -> dict[str, Any]:
        """Return them as EMR wants them."""
        volume = {"SizeInGB": self.size_gb, "VolumeType": self.volume_type}
        return {
            "EbsOptimized": True,
            "EbsBlockDeviceConfigs": [
                {"VolumeSpecification": volume, "VolumesPerInstance": self.per_instance}
            ],
        }

    def failures(self) -> Iterator[str]:
        """Yield why EMR has no such disks."""
        if self.volume_type not in _VOLUME_TYPES:
            yield (
                f"sleeper.bulk.import.emr.ebs.volume.type is {self.volume_type!r}, which EMR does "
                f"not have, or not without a number of operations: say {' or '.join(_VOLUME_TYPES)}"
            )


def emr_setting_failures(setting: Setting) -> list[str]:
    """Return what is wrong with the settings of a new cluster, all of it.

    Args:
        setting: Gives a `sleeper.table.bulk.import.emr.*` setting by the part after that.
    """
    failures = [*release_failures(setting("release.label"), "release.label")]
    wanted = [each.strip() for each in setting("instance.architecture").split(",")]
    if len(wanted) > 1:
        failures.append(
            f"instance.architecture is {', '.join(wanted)}, but an archive of Sleeper's packages "
            "is for one architecture: say x86_64 or arm64"
        )
    if (market := setting("executor.market.type")).upper() not in _MARKETS:
        failures.append(f"executor.market.type is {market!r}: say {' or '.join(_MARKETS)}")
    failures += type_failures(setting)
    failures += _capacity_failures(setting)
    return [*dict.fromkeys(failures)]


def _capacity_failures(setting: Setting) -> Iterator[str]:
    units: list[int] = []
    for name in ("executor.initial.capacity", "executor.max.capacity"):
        try:
            units.append(capacity(setting, name))
        except BadRequest as error:
            yield str(error)
    if len(units) > 1 and units[0] > units[1]:
        least, most = units
        yield f"executor.initial.capacity is {least}, more than executor.max.capacity, {most}"


def release_failures(label: str, named: str) -> Iterator[str]:
    """Yield why a release of EMR cannot run Sleeper.

    Args:
        label: Such as `emr-spark-8.0.0`.
        named: The setting that has it, for messages.
    """
    found = _LABEL.fullmatch(label)
    if found is None:
        yield f"{named} is {label!r}, which is no release of EMR: say emr-spark-8.0.0"
    elif int(found[2]) < _RELEASE_MIN:
        yield (
            f"{named} is {label}, whose Spark is too old: Sleeper needs Spark 4.0, which "
            "comes with emr-spark-8.0.0"
        )


def type_failures(setting: Setting) -> Iterator[str]:
    """Yield why the machine types of a cluster cannot be.

    Types of the architecture that is not used are looked at too, one by one.

    Args:
        setting: Gives `instance.architecture` and the types of each role.
    """
    for role in _ROLES:
        for family in _FAMILIES.values():
            name = f"{role}.{family}.instance.types"
            listed = map(str.strip, setting(name).split(","))
            unknown = (_unknown_type(each) for each in listed if each and not each.isdigit())
            yield from (f"{name}: {failure}" for failure in unknown if failure)
        try:
            types = [each["InstanceType"] for each in machine_types(setting, role)]
        except BadRequest as error:
            yield str(error)
            continue
        named = f"{role} machine types"
        if not types:
            yield f"{named}: there is none; name one, such as m7g.xlarge"
        yield from _mixed_types(named, types, setting("instance.architecture"))
        if len(types) > _TYPES_MAX:
            yield f"{named} are {len(types)}, but EMR takes {_TYPES_MAX} at most"


def _unknown_type(name: str) -> str | None:
    if name in known_types():
        return None
    near = near_types(name)
    hint = f"; did you mean {' or '.join(near)}?" if near else ", such as m7g.xlarge"
    return f"{name!r} is no machine type of EMR{hint} ({_NEWER})"


def _mixed_types(named: str, types: list[str], architecture: str) -> Iterator[str]:
    """Yield types that are there twice, or have another architecture than the packages."""
    for name in dict.fromkeys(types):
        if types.count(name) > 1:
            yield f"{named}: {name} is there {types.count(name)} times"
        known = known_types().get(name)
        wanted = [each.strip() for each in architecture.split(",")]
        if known is not None and known.architecture not in wanted:
            yield (
                f"{named}: {name} is {known.architecture}, but instance.architecture is "
                f"{architecture}"
            )


def fit_failures(setting: Setting, spark_conf: Mapping[str, str]) -> Iterator[str]:
    """Yield why a driver or an executor fits no machine of a type that is named.

    Both run on executors' machines: the master runs none.

    Args:
        setting: Gives `instance.architecture` and the types of executors.
        spark_conf: Spark's settings. What cannot be read is left to `conf_failures`.
    """
    try:
        names = [each["InstanceType"] for each in machine_types(setting, "executor")]
    except BadRequest:
        return  # `type_failures` says it
    for machine in filter(None, map(known_types().get, dict.fromkeys(names))):
        for role in ("driver", "executor"):
            yield from _misfits(machine, role, spark_conf)


def _misfits(machine: MachineType, role: str, spark_conf: Mapping[str, str]) -> Iterator[str]:
    cores = whole_of(spark_conf, f"spark.{role}.cores")
    if cores is not None and cores > machine.cores:
        yield f"spark.{role}.cores is {cores}, but {machine.name} has {machine.cores} vCPU"
    try:
        size_mib = memory_mib(role, spark_conf)
    except ValueError:
        return
    if size_mib > machine.containers_mib:
        yield (
            f"spark.{role}.memory and memoryOverhead are {size_mib / 1024:.1f} GB together, but "
            f"of the {machine.memory_mib / 1024:.0f} GB of {machine.name} EMR leaves "
            f"{machine.containers_mib / 1024:.1f} to Spark"
        )


def machine_types(setting: Setting, role: str) -> list[dict[str, Any]]:
    """Return the machine types of a role, of every architecture, with their weights.

    Raises:
        BadRequest: they cannot be read.
    """
    wanted = [each.strip() for each in setting("instance.architecture").split(",")]
    configs: list[dict[str, Any]] = []
    for architecture in wanted:
        if architecture not in _FAMILIES:
            raise BadRequest(f"{architecture!r} is no architecture of EMR: say x86_64 or arm64")
        name = f"{role}.{_FAMILIES[architecture]}.instance.types"
        for item in filter(None, map(str.strip, setting(name).split(","))):
            if not item.isdigit():
                configs.append({"InstanceType": item})
            elif int(item) == 0:
                raise BadRequest(f"{name} is {setting(name)!r}: a weight must be above 0")
            elif configs and "WeightedCapacity" not in configs[-1]:
                configs[-1]["WeightedCapacity"] = int(item)
            else:
                raise BadRequest(
                    f"{name} is {setting(name)!r}: the weight {item} follows no machine type"
                )
    return configs


def capacity(setting: Setting, name: str) -> int:
    """Return a number of capacity units.

    Raises:
        BadRequest: it is none.
    """
    text = setting(name)
    if not text.isdigit() or int(text) < 1:
        raise BadRequest(f"{name} is {text!r}: it must be a whole number above 0")
    return int(text)


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

    def failures(self, setting: Setting, spark_conf: Mapping[str, str]) -> list[str]:
        """Return why a new cluster cannot be made, or not run a job; nothing for one that runs.

        Args:
            setting: Gives a `sleeper.table.bulk.import.emr.*` setting by the part after that.
            spark_conf: Spark's settings.
        """
        if self.is_kept:
            return []
        disks = self.ebs.failures() if self.ebs else ()
        return [
            *emr_setting_failures(setting),
            *fit_failures(setting, spark_conf),
            *disks,
        ]

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
