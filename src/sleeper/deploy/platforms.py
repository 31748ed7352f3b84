"""Spark platforms that a deployment can make: what they are called, and why they could not work."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from sleeper.deploy.names import DeployedNames
from sleeper.model.formats.bulk_import_job import BulkImportJob
from sleeper.model.known_properties.cloud import OPTIONAL_STACKS
from sleeper.model.known_properties.typed import InstanceProperties, TableProperties
from sleeper.spark.submit.configured_clusters import configured_disks
from sleeper.spark.submit.effective_conf import effective_spark_conf, platform_setting
from sleeper.spark.submit.eks import Eks
from sleeper.spark.submit.emr import emr_setting_failures, release_failures, type_failures
from sleeper.spark.submit.emr_serverless import EmrServerless, size_failures

SERVERLESS: Final = "bulk-import-emr-serverless"
EMR: Final = "bulk-import-emr"
PERSISTENT: Final = "bulk-import-persistent-emr"
EKS: Final = "bulk-import-eks"
"""What the names of a platform's resources begin with, after the instance's prefix."""

_PREFIX: Final = "sleeper.bulk.import."
_PERSISTENT: Final = f"{_PREFIX}persistent.emr."
_TABLES: Final = "sleeper.table.bulk.import.emr."
_APPLICATION: Final = "AWS::EMRServerless::Application"
_NO_JOB: Final = BulkImportJob()

Resources = Callable[[str], Iterable[tuple[str, str, str]]]
"""Gives the type, the name in the template and the id in AWS of each resource of a stack."""


def service_role(name: str) -> str:
    """Return the name of the role of EMR itself, after the instance's prefix."""
    return f"{name}-service"


def machine_role(name: str) -> str:
    """Return the name of the role of EMR's machines and of their profile, after the prefix."""
    return f"{name}-machines"


def state_machine_arn(names: DeployedNames) -> str:
    """Return the ARN of the state machine that runs jobs on EKS."""
    return names.arn("states", f"stateMachine:{names.named(EKS)}")


def platform_properties(
    names: DeployedNames, stacks: Iterable[str], resources: Resources
) -> dict[str, str]:
    """Return the properties that say to an instance which platforms its stacks have made.

    All but one follow from the instance's id.

    Args:
        names: Names of the deployment.
        stacks: The optional stacks that are deployed.
        resources: Gives the resources of a deployed stack by its name in AWS.
    """
    found: dict[str, str] = {}
    for stack in stacks:
        if stack == "EmrServerlessBulkImportStack":
            there = resources(names.stack(stack))
            ids = [place for kind, _, place in there if kind == _APPLICATION]
            found[f"{_PREFIX}emr.serverless.role.arn"] = names.role_arn(SERVERLESS)
            found |= {f"{_PREFIX}emr.serverless.application.id": each for each in ids}
        elif stack == "EmrBulkImportStack":
            found[f"{_PREFIX}emr.role.name"] = names.named(service_role(EMR))
            found[f"{_PREFIX}emr.ec2.role.name"] = names.named(machine_role(EMR))
            found[f"{_PREFIX}emr.security.conf.name"] = names.named(EMR)
        elif stack == "PersistentEmrBulkImportStack":
            found[f"{_PERSISTENT}cluster.name"] = names.named(PERSISTENT)
        elif stack == "EksBulkImportStack":
            found[f"{_PREFIX}eks.statemachine.arn"] = state_machine_arn(names)
    return found


def changed_platforms(
    names: DeployedNames, stacks: Sequence[str], resources: Resources, now: InstanceProperties
) -> dict[str, str | None]:
    """Return the properties of platforms that a deployment changes; None takes one away.

    Args:
        names: Names of the deployment.
        stacks: The optional stacks that are deployed.
        resources: Gives the resources of a deployed stack by its name in AWS.
        now: The instance's properties as they are.
    """
    made = platform_properties(names, stacks, resources)
    others = platform_properties(names, set(OPTIONAL_STACKS) - set(stacks), lambda _: ())
    gone = {name for name, text in others.items() if now.text(name) == text}
    changed = {name: text for name, text in made.items() if now.text(name) != text}
    return {**changed, **dict.fromkeys(gone)}


def platform_failures(
    properties: InstanceProperties, chosen: Sequence[str]
) -> Iterator[tuple[str, str]]:
    """Yield why the platforms of some stacks could not run any job, by family of properties."""
    checks = {
        "EmrServerlessBulkImportStack": (f"{_PREFIX}emr.serverless", _serverless_failures),
        "EmrBulkImportStack": (f"{_PREFIX}emr", _emr_failures),
        "PersistentEmrBulkImportStack": (f"{_PREFIX}persistent.emr", _persistent_failures),
        "EksBulkImportStack": (f"{_PREFIX}eks", _eks_failures),
    }
    for stack, (family, check) in checks.items():
        failures = check(properties) if stack in chosen else []
        if failures:
            yield family, f"{stack}: {'; '.join(failures)}."


def _serverless_failures(properties: InstanceProperties) -> list[str]:
    clusters = properties.clusters
    cluster = EmrServerless(
        application_id="", execution_role_arn="", release=clusters.serverless_release
    )
    failures = cluster.failures(effective_spark_conf("emr-serverless", properties, _NO_JOB))
    if not clusters.serverless_is_ready:
        return failures
    sizes = {
        "driver": (
            clusters.serverless_ready_driver_cores,
            clusters.serverless_ready_driver_memory,
            clusters.serverless_ready_driver_disk,
        ),
        "executor": (
            clusters.serverless_ready_executor_cores,
            clusters.serverless_ready_executor_memory,
            clusters.serverless_ready_executor_disk,
        ),
    }
    for role, size in sizes.items():
        cores, memory_gb, disk_gb = (int(re.sub("[^0-9]", "", each)) for each in size)
        named = f"{_PREFIX}emr.serverless.initial.capacity.{role}"
        failures += size_failures(named, cores, memory_gb, disk_gb)
    return failures


def _emr_failures(properties: InstanceProperties) -> list[str]:
    table = TableProperties({}, properties)
    failures = emr_setting_failures(
        lambda name: platform_setting(f"{_TABLES}{name}", table, _NO_JOB)
    )
    return [*failures, *configured_disks(properties).failures()]


def _persistent_failures(properties: InstanceProperties) -> list[str]:
    release = f"{_PERSISTENT}release.label"
    return [
        *release_failures(properties.clusters.persistent_release, release),
        *type_failures(lambda name: properties.text(f"{_PERSISTENT}{name}") or ""),
        *configured_disks(properties).failures(),
    ]


def _eks_failures(properties: InstanceProperties) -> list[str]:
    clusters = properties.clusters
    if clusters.eks_type != "FARGATE":
        named = f"{_PREFIX}eks.cluster.type is {clusters.eks_type}"
        return [f"{named}, but a deployment makes clusters with Fargate alone: say FARGATE"]
    cluster = Eks(state_machine_arn="", executor_storage=clusters.eks_executor_storage)
    return cluster.failures(effective_spark_conf("eks", properties, _NO_JOB))


# ---------------------------------------------------------------- fargate sizes
#
# The workers that run on Fargate, and the sizes of tasks that it has.

ON_FARGATE: Final = {
    "IngestStack": "ingest",
    "CompactionStack": "compaction",
    "BulkExportStack": "export",
}
"""Stacks of workers on Fargate, and the kinds of these workers."""

_SIZES: Final = {
    256: (512, 1024, 2048),
    512: range(1024, 4096 + 1, 1024),
    1024: range(2048, 8192 + 1, 1024),
    2048: range(4096, 16384 + 1, 1024),
    4096: range(8192, 30720 + 1, 1024),
    8192: range(16384, 61440 + 1, 4096),
    16384: range(32768, 122880 + 1, 8192),
}


@dataclass(frozen=True, slots=True)
class TaskSize:
    """The size of a worker on Fargate.

    Attributes:
        architecture: `X86_64` or `ARM64`.
        cpu: Processor units; 1024 are one vCPU.
        memory_mb: Its memory.
    """

    architecture: str
    cpu: int
    memory_mb: int


def task_size(properties: InstanceProperties, kind: str) -> TaskSize:
    """Return the size of workers of a kind that an instance's properties give."""
    tasks = properties.tasks
    if kind == "ingest":
        return TaskSize(tasks.ingest_architecture, tasks.ingest_cpu, tasks.ingest_memory_mb)
    if kind == "compaction":
        if tasks.compaction_architecture == "ARM64":
            return TaskSize("ARM64", tasks.compaction_arm_cpu, tasks.compaction_arm_memory_mb)
        return TaskSize("X86_64", tasks.compaction_x86_cpu, tasks.compaction_x86_memory_mb)
    if tasks.export_architecture == "ARM64":
        return TaskSize("ARM64", tasks.export_arm_cpu, tasks.export_arm_memory_mb)
    return TaskSize("X86_64", tasks.export_x86_cpu, tasks.export_x86_memory_mb)


def size_failure(cpu: int, memory_mb: int) -> str | None:
    """Say why Fargate has no task of a size; None if it has.

    >>> size_failure(2048, 4096) is None
    True
    """
    allowed = _SIZES.get(cpu)
    if allowed is None:
        return (
            f"Fargate has no task with {cpu} processor units, only {', '.join(map(str, _SIZES))}."
        )
    if memory_mb in allowed:
        return None
    near = min(allowed, key=lambda each: (abs(each - memory_mb), each))
    return (
        f"Fargate has no task with {cpu} processor units and {memory_mb} MB. With so many units "
        f"memory is {allowed[0]} to {allowed[-1]}: {near} is nearest."
    )
