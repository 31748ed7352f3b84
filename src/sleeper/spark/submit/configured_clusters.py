"""The clusters that an instance's properties describe, for jobs that come from queues."""

from __future__ import annotations

from typing import Final

from sleeper.errors import BadRequest
from sleeper.model.jobs import platforms
from sleeper.model.jobs.platforms import PLATFORMS
from sleeper.model.known_properties.deployment import BULK_IMPORT_BUCKET, REGION
from sleeper.model.known_properties.typed import InstanceProperties
from sleeper.spark.submit.eks import Eks
from sleeper.spark.submit.emr import EbsVolumes, Emr
from sleeper.spark.submit.emr_serverless import EmrServerless

STEPS_AT_ONCE: Final = "sleeper.bulk.import.persistent.emr.step.concurrency.level"
FULL_DELAY: Final = "sleeper.bulk.import.persistent.emr.cluster.full.requeue.delay"
SUBNETS: Final = "sleeper.subnets"

_PREFIX: Final = "sleeper.bulk.import."
_STEPS_AT_ONCE, _FULL_DELAY_S = 2, 60  # upstream's


def configured_cluster(
    platform: str, properties: InstanceProperties
) -> Emr | EmrServerless | Eks | None:
    """Return the cluster of a platform; None where the properties do not describe one.

    Args:
        platform: The name of one of `PLATFORMS`.
        properties: The instance's.

    Raises:
        BadRequest: there is no such platform.
    """
    row = next((each for each in PLATFORMS if each.name == platform), None)
    if row is None:
        raise BadRequest(f"no platform {platform!r} can be set up by properties")
    needed = [properties.text(name) or "" for name in row.described_by]
    if not all(needed):
        return None
    region = properties.text(REGION)
    match row:
        case platforms.EMR_SERVERLESS:
            application, role = needed
            return EmrServerless(
                application_id=application,
                execution_role_arn=role,
                release=properties.text(f"{_PREFIX}emr.serverless.release"),
                log_uri=_log_uri(properties),
                disk_key_arn=properties.cloud.key_arn,
                region=region,
            )
        case platforms.PERSISTENT_EMR:
            return Emr(
                cluster_name=needed[0],
                steps_max=int(properties.text(STEPS_AT_ONCE) or _STEPS_AT_ONCE),
                region=region,
            )
        case platforms.EKS:
            storage = properties.text(f"{_PREFIX}eks.spark.executor.ephemeral.storage")
            kind = properties.text(f"{_PREFIX}eks.cluster.type") or "fargate"
            return Eks(
                state_machine_arn=needed[0],
                executor_storage=storage or "175Gi",
                is_fargate=kind.lower() == "fargate",
                region=region,
            )
        case _:
            return _emr(properties, service_role=needed[0], profile=needed[1])


def configured_disks(properties: InstanceProperties) -> EbsVolumes:
    """Return the disks of executors of EMR."""
    size, count = (
        properties.text(f"{_PREFIX}emr.ebs.{name}") or ""
        for name in ("volume.size.gb", "volumes.per.instance")
    )
    return EbsVolumes(
        size_gb=int(size or 0),
        volume_type=properties.text(f"{_PREFIX}emr.ebs.volume.type") or "",
        per_instance=int(count or 0),
    )


def full_delay_s(properties: InstanceProperties) -> int:
    """Return how long a job waits when the kept cluster of EMR is full."""
    return int(properties.text(FULL_DELAY) or _FULL_DELAY_S)


def _emr(properties: InstanceProperties, *, service_role: str, profile: str) -> Emr:
    """The machines of a cluster for each job, but for what a job decides."""

    def text(name: str) -> str | None:
        return properties.text(f"{_PREFIX}emr.{name}")

    subnets = (properties.text(SUBNETS) or "").split(",")
    return Emr(
        service_role=service_role,
        instance_profile=profile,
        subnet_ids=tuple(filter(None, map(str.strip, subnets))),
        log_uri=_log_uri(properties),
        key_pair=text("keypair.name"),
        security_group=text("master.additional.security.group"),
        security_configuration=text("security.conf.name"),
        ebs=configured_disks(properties),
        region=properties.text(REGION),
    )


def _log_uri(properties: InstanceProperties) -> str | None:
    """Where clusters' logs go: where upstream has them."""
    bucket = properties.text(BULK_IMPORT_BUCKET)
    return f"s3://{bucket}/logs/" if bucket else None
