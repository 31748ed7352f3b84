"""The clusters that an instance's properties describe, for jobs that come from queues."""

from __future__ import annotations

from sleeper.errors import BadRequest
from sleeper.model.known_properties.typed import InstanceProperties
from sleeper.spark.submit.emr import EbsVolumes, Emr
from sleeper.spark.submit.emr_serverless import EmrServerless

_PREFIX = "sleeper.bulk.import."


def configured_cluster(platform: str, properties: InstanceProperties) -> Emr | EmrServerless | None:
    """Return the cluster of a platform; None where the properties do not describe one.

    Args:
        platform: `emr`, `persistent-emr` or `emr-serverless`.
        properties: The instance's.

    Raises:
        BadRequest: there is no such platform.
    """

    def text(name: str) -> str | None:
        return properties.text(f"{_PREFIX}{name}")

    match platform:
        case "emr-serverless":
            application, role = (
                text("emr.serverless.application.id"),
                text("emr.serverless.role.arn"),
            )
            if application is None or role is None:
                return None
            return EmrServerless(application_id=application, execution_role_arn=role)
        case "persistent-emr":
            name = text("persistent.emr.cluster.name")
            return None if name is None else Emr(cluster_name=name)
        case "emr":
            service_role, profile = text("emr.role.name"), text("emr.ec2.role.name")
            if service_role is None or profile is None:
                return None
            return Emr(
                service_role=service_role,
                instance_profile=profile,
                key_pair=text("emr.keypair.name"),
                security_group=text("emr.master.additional.security.group"),
                security_configuration=text("emr.security.conf.name"),
                ebs=EbsVolumes(
                    size_gb=int(text("emr.ebs.volume.size.gb") or 0),
                    volume_type=text("emr.ebs.volume.type") or "",
                    per_instance=int(text("emr.ebs.volumes.per.instance") or 0),
                ),
            )
        case _:
            raise BadRequest(f"no platform {platform!r} can be set up by properties")
