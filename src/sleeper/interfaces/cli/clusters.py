"""Options that describe a cluster.

An option that is not given may be a property of the instance: upstream's deployment writes the
ids and roles of its resources there.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import click

from sleeper.interfaces import bulk_import_job
from sleeper.model.known_properties.typed import InstanceProperties
from sleeper.spark.submit.configured_clusters import configured_disks
from sleeper.spark.submit.emr import Emr
from sleeper.spark.submit.emr_serverless import EmrServerless
from sleeper.spark.submit.spark_submit import ENTRY_IN_IMAGE, Kubernetes, SparkSubmit
from sleeper.spark.submit.submitted_jobs import Cluster

F = TypeVar("F", bound=Callable[..., Any])

PLATFORMS = ("spark-submit", "emr-serverless", "emr", "persistent-emr", "kubernetes")
_EMR = ("emr", "persistent-emr")
_AWS = (*_EMR, "emr-serverless")
_COMMAND = ("spark-submit", "kubernetes")
_OF_EMR = "sleeper.bulk.import.emr."
_SHIPPED = ("spark-submit", *_AWS)
# Each option: its name, its platforms, metavar, help.
_OPTIONS: tuple[tuple[str, tuple[str, ...], str, str], ...] = (
    ("environment", _SHIPPED, "URL", "Folder of packages made by `sleeper spark-environment`."),
    ("spark_submit", _COMMAND, "PROGRAM", "The spark-submit to run, instead of the one found."),
    (
        "deploy_mode",
        ("spark-submit",),
        "MODE",
        "Where the driver runs: here (client) or there (cluster).",
    ),
    ("image", ("kubernetes",), "IMAGE", "Container image with Spark and Sleeper."),
    ("entry", ("kubernetes",), "PATH", "The entry script in the image, local:///..."),
    ("namespace", ("kubernetes",), "NAME", "Namespace of the pods."),
    ("service_account", ("kubernetes",), "NAME", "Service account of the driver."),
    ("application_id", ("emr-serverless",), "ID", "The application."),
    ("execution_role", ("emr-serverless",), "ARN", "The role that the job runs as."),
    ("cluster_id", _EMR, "ID", "A running cluster; without it emr creates one for the job."),
    ("cluster_name", _EMR, "NAME", "A running cluster, by its name."),
    ("service_role", ("emr",), "NAME", "The role of EMR itself."),
    ("instance_profile", ("emr",), "NAME", "The role of the machines, which the job uses."),
    ("subnet", ("emr",), "ID", "Subnet of the machines; may be repeated."),
    ("log_uri", _AWS, "S3-URL", "Where logs go."),
    ("region", _AWS, "REGION", "The AWS region."),
    ("endpoint_url", _AWS, "URL", "A server other than AWS."),
)


def cluster_options(command: F) -> F:
    """Add every option of clusters to a command; they are passed by their names."""
    for name, platforms, metavar, about in reversed(_OPTIONS):
        command = click.option(
            f"--{name.replace('_', '-')}",
            name,
            metavar=metavar,
            multiple=name == "subnet",
            type=click.Choice(["client", "cluster"]) if name == "deploy_mode" else str,
            help=f"{about}  [{', '.join(platforms)}]",
        )(command)
    return command


def refuse_strangers(platform: str | None, asked: dict[str, Any]) -> None:
    """Check that every given cluster option belongs to the platform.

    Raises:
        click.UsageError: one belongs to another platform, or there is no platform.
    """
    for name, platforms, _, _ in _OPTIONS:
        if asked[name] and platform not in platforms:
            option = f"--{name.replace('_', '-')}"
            raise click.UsageError(f"{option} goes with --submit {' or '.join(platforms)}")


def cluster_of(
    platform: str, asked: dict[str, Any], master: str | None, properties: InstanceProperties
) -> Cluster:
    """Return the cluster that the options describe.

    Raises:
        click.UsageError: an option is missing, or belongs to another platform.
    """
    refuse_strangers(platform, asked)
    if platform in _AWS and master:
        raise click.UsageError(f"--master goes with --submit {' or '.join(_COMMAND)}")
    option = _OptionValues(platform, asked, properties)
    match platform:
        case "spark-submit":
            return SparkSubmit(
                program=asked["spark_submit"] or _found_spark_submit(),
                master=master or "local[*]",
                deploy_mode=asked["deploy_mode"] or "client",
                python=sys.executable,
                entry=str(Path(bulk_import_job.__file__).absolute()),
            )
        case "kubernetes":
            return _kubernetes(option, asked, master)
        case "emr" | "persistent-emr":
            return _emr(option, asked, kept=platform == "persistent-emr", properties=properties)
        case _:
            return EmrServerless(
                application_id=option("application_id", "emr.serverless.application.id"),
                execution_role_arn=option("execution_role", "emr.serverless.role.arn"),
                log_uri=asked["log_uri"],
                region=asked["region"],
                endpoint_url=asked["endpoint_url"],
            )


class _OptionValues:
    """Returns the value of an option, or of a property of the instance, or a default."""

    def __init__(
        self, platform: str, asked: dict[str, Any], properties: InstanceProperties
    ) -> None:
        self._platform, self._asked, self._properties = platform, asked, properties

    def __call__(self, name: str, from_property: str | None, default: str | None = None) -> str:
        own = self._asked[name]
        full = f"sleeper.bulk.import.{from_property}"
        said = own or (self._properties.text(full) if from_property else None) or default
        if said:
            return str(said)
        raise click.UsageError(
            f"--submit {self._platform} needs --{name.replace('_', '-')}"
            + (f", or the instance's property {full}" if from_property else "")
        )


def _kubernetes(option: _OptionValues, asked: dict[str, Any], master: str | None) -> Kubernetes:
    asked["master"] = master
    server = option("master", "eks.k8s.endpoint")
    return Kubernetes(
        program=asked["spark_submit"] or _found_spark_submit(),
        master=server if master else f"k8s://{server}",
        image=option("image", None),
        entry=asked["entry"] or ENTRY_IN_IMAGE,
        namespace=option("namespace", "eks.k8s.namespace", "default"),
        service_account=asked["service_account"] or "spark",
    )


def _emr(
    option: _OptionValues, asked: dict[str, Any], *, kept: bool, properties: InstanceProperties
) -> Emr:
    if asked["cluster_id"] and asked["cluster_name"]:
        raise click.UsageError("--cluster-id and --cluster-name name one cluster: leave one out")
    if kept and not asked["cluster_id"]:
        asked["cluster_name"] = option("cluster_name", "persistent.emr.cluster.name")
    if asked["cluster_id"] or asked["cluster_name"]:
        for name in ("service_role", "instance_profile", "subnet", "log_uri"):
            if asked[name]:
                written = f"--{name.replace('_', '-')}"
                raise click.UsageError(f"{written} is for a new cluster: leave it out")
    return Emr(
        cluster_id=asked["cluster_id"],
        cluster_name=asked["cluster_name"],
        service_role=option("service_role", "emr.role.name", "EMR_DefaultRole_V2"),
        instance_profile=option("instance_profile", "emr.ec2.role.name", "EMR_EC2_DefaultRole"),
        subnet_ids=tuple(asked["subnet"]),
        log_uri=asked["log_uri"],
        key_pair=properties.text(f"{_OF_EMR}keypair.name"),
        security_group=properties.text(f"{_OF_EMR}master.additional.security.group"),
        security_configuration=properties.text(f"{_OF_EMR}security.conf.name"),
        ebs=configured_disks(properties),
        region=asked["region"],
        endpoint_url=asked["endpoint_url"],
    )


def _found_spark_submit() -> str:
    """Return the spark-submit of the installed pyspark, or else the one on the path.

    It is the one inside pyspark, not the script beside this Python, which would look for Spark
    with the `python3` on the path.
    """
    installed = find_spec("pyspark")
    if installed is not None and installed.origin is not None:
        own = Path(installed.origin).parent / "bin" / "spark-submit"
        if own.exists():
            return str(own)
    return shutil.which("spark-submit") or "spark-submit"
