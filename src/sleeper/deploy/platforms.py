"""Spark platforms that a deployment can make: what they are called, and why they could not work."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from sleeper.deploy.names import DeployedNames
from sleeper.model.formats.bulk_import_job import BulkImportJob
from sleeper.model.jobs.platforms import (
    EKS,
    EMR,
    EMR_SERVERLESS,
    PERSISTENT_EMR,
    PLATFORMS,
    Platform,
)
from sleeper.model.known_properties.typed import InstanceProperties, TableProperties
from sleeper.model.stacks import OPTIONAL_STACKS, StackName
from sleeper.spark.submit.conf_check import conf_failures
from sleeper.spark.submit.configured_clusters import configured_disks
from sleeper.spark.submit.effective_conf import Platform as SparkPlatform
from sleeper.spark.submit.effective_conf import (
    effective_spark_conf,
    platform_setting,
    setting_properties,
)
from sleeper.spark.submit.eks import FARGATE_SIZES, Eks
from sleeper.spark.submit.emr import (
    emr_setting_failures,
    fit_failures,
    release_failures,
    type_failures,
)
from sleeper.spark.submit.emr_serverless import EmrServerless, size_failures

_TABLES: Final = "sleeper.table.bulk.import.emr."
_APPLICATION: Final = "AWS::EMRServerless::Application"
APPLICATION_ID: Final = f"{EMR_SERVERLESS.family}.application.id"
"""The property with the id of the application of EMR Serverless, which AWS chooses."""

_NO_JOB: Final = BulkImportJob()

Resources = Callable[[str], Iterable[tuple[str, str, str]]]
"""Gives the type, the name in the template and the id in AWS of each resource of a stack."""

_Resources = Callable[[], Iterable[tuple[str, str, str]]]


def service_role(platform: Platform) -> str:
    """Return the name of the role of EMR itself, after the instance's prefix."""
    return f"{platform.resource}-service"


def machine_role(platform: Platform) -> str:
    """Return the name of the role of EMR's machines and of their profile, after the prefix."""
    return f"{platform.resource}-machines"


def state_machine_arn(names: DeployedNames) -> str:
    """Return the ARN of the state machine that runs jobs on EKS."""
    return names.arn("states", f"stateMachine:{names.named(EKS.resource)}")


def platform_properties(
    names: DeployedNames, stacks: Collection[StackName], resources: Resources
) -> dict[str, str]:
    """Return the properties that say to an instance which platforms its stacks have made.

    All but one follow from the instance's id.

    Args:
        names: Names of the deployment.
        stacks: The optional stacks that are deployed.
        resources: Gives the resources of a deployed stack by its name in AWS.
    """
    found: dict[str, str] = {}
    for platform in PLATFORMS:
        if platform.stack in stacks:
            there = partial(resources, names.stack(platform.stack))
            found |= _FACTS[platform](platform, names, there)
    return found


def changed_platforms(
    names: DeployedNames,
    stacks: Collection[StackName],
    resources: Resources,
    now: InstanceProperties,
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
    properties: InstanceProperties, chosen: Sequence[StackName]
) -> Iterator[tuple[str, str]]:
    """Yield why the platforms of some stacks could not run any job, by family of properties."""
    for platform in PLATFORMS:
        failures = _CHECKS[platform](properties) if platform.stack in chosen else []
        if failures:
            yield platform.family, f"{platform.stack}: {'; '.join(failures)}."


def _serverless_facts(
    platform: Platform, names: DeployedNames, there: _Resources
) -> dict[str, str]:
    ids = [(APPLICATION_ID, place) for kind, _, place in there() if kind == _APPLICATION]
    return {f"{platform.family}.role.arn": names.role_arn(platform.resource), **dict(ids)}


def _emr_facts(platform: Platform, names: DeployedNames, there: _Resources) -> dict[str, str]:
    return {
        f"{platform.family}.role.name": names.named(service_role(platform)),
        f"{platform.family}.ec2.role.name": names.named(machine_role(platform)),
        f"{platform.family}.security.conf.name": names.named(platform.resource),
    }


def _persistent_facts(
    platform: Platform, names: DeployedNames, there: _Resources
) -> dict[str, str]:
    return {f"{platform.family}.cluster.name": names.named(platform.resource)}


def _eks_facts(platform: Platform, names: DeployedNames, there: _Resources) -> dict[str, str]:
    return {f"{platform.family}.statemachine.arn": state_machine_arn(names)}


def _serverless_failures(properties: InstanceProperties) -> list[str]:
    clusters = properties.clusters
    cluster = EmrServerless(
        application_id="", execution_role_arn="", release=clusters.serverless_release
    )
    conf = effective_spark_conf("emr-serverless", properties, _NO_JOB)
    failures = [*_conf_failures("emr-serverless", properties), *cluster.failures(conf)]
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
        named = f"{EMR_SERVERLESS.family}.initial.capacity.{role}"
        failures += size_failures(named, cores, memory_gb, disk_gb)
    return failures


def _emr_failures(properties: InstanceProperties) -> list[str]:
    table = TableProperties({}, properties)

    def setting(name: str) -> str:
        return platform_setting(f"{_TABLES}{name}", table, _NO_JOB)

    return [
        *_conf_failures("emr", properties),
        *emr_setting_failures(setting),
        *fit_failures(setting, effective_spark_conf("emr", properties, _NO_JOB)),
        *configured_disks(properties).failures(),
    ]


def _persistent_failures(properties: InstanceProperties) -> list[str]:
    release = f"{PERSISTENT_EMR.family}.release.label"

    def setting(name: str) -> str:
        return properties.text(f"{PERSISTENT_EMR.family}.{name}") or ""

    return [
        *release_failures(properties.clusters.persistent_release, release),
        *_conf_failures("emr", properties),
        *type_failures(setting),
        *fit_failures(setting, effective_spark_conf("emr", properties, _NO_JOB)),
        *configured_disks(properties).failures(),
    ]


def _eks_failures(properties: InstanceProperties) -> list[str]:
    clusters = properties.clusters
    if clusters.eks_type != "FARGATE":
        named = f"{EKS.family}.cluster.type is {clusters.eks_type}"
        return [f"{named}, but a deployment makes clusters with Fargate alone: say FARGATE"]
    cluster = Eks(state_machine_arn="", executor_storage=clusters.eks_executor_storage)
    conf = effective_spark_conf("eks", properties, _NO_JOB)
    return [*_conf_failures("eks", properties), *cluster.failures(conf)]


def _conf_failures(platform: SparkPlatform, properties: InstanceProperties) -> list[str]:
    """Say what is wrong with Spark's settings for jobs that set none."""
    return conf_failures(
        platform,
        effective_spark_conf(platform, properties, _NO_JOB),
        properties=setting_properties(platform, properties),
    )


_FACTS: Final[
    Mapping[Platform, Callable[[Platform, DeployedNames, _Resources], dict[str, str]]]
] = {
    EMR: _emr_facts,
    PERSISTENT_EMR: _persistent_facts,
    EMR_SERVERLESS: _serverless_facts,
    EKS: _eks_facts,
}
_CHECKS: Final[Mapping[Platform, Callable[[InstanceProperties], list[str]]]] = {
    EMR: _emr_failures,
    PERSISTENT_EMR: _persistent_failures,
    EMR_SERVERLESS: _serverless_failures,
    EKS: _eks_failures,
}


# ---------------------------------------------------------------- fargate
#
# The sizes of tasks that Fargate has.


def size_failure(cpu: int, memory_mb: int) -> str | None:
    """Say why Fargate has no task of a size; None if it has.

    >>> size_failure(2048, 4096) is None
    True
    """
    allowed = FARGATE_SIZES.get(cpu)
    if allowed is None:
        units = ", ".join(map(str, FARGATE_SIZES))
        return f"Fargate has no task with {cpu} processor units, only {units}."
    if memory_mb in allowed:
        return None
    near = min(allowed, key=lambda each: (abs(each - memory_mb), each))
    return (
        f"Fargate has no task with {cpu} processor units and {memory_mb} MB. With so many units "
        f"memory is {allowed[0]} to {allowed[-1]}: {near} is nearest."
    )
