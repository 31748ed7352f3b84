"""What is sent to a cluster, as values: a command to run, or a call of an AWS service.

A request names the saved job, never its content: the driver reads it from the instance.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sleeper.errors import BadRequest

ARCHIVE = "environment.tar.gz"
ARCHITECTURE = "{architecture}"
"""In the folder of Sleeper's packages: the cluster's processors, `x86_64` or `arm64`."""
ENTRY = "sleeper_bulk_import.py"
PYTHON = "./environment/bin/python"
"""The archive's Python, from the folder a cluster's processes work in."""


NO_ENVIRONMENT = (
    "the cluster needs Sleeper's packages: make them by `sleeper spark-environment FOLDER`, put "
    "that folder where the cluster can read it, and name it by --environment, or for jobs of "
    "queues by the instance's property sleeper.bulk.import.environment"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverCall:
    """How the job's driver is started on a cluster.

    Attributes:
        name: What the cluster shows: `sleeper-<instance>-<table>-<job>`, 64 characters at most.
        arguments: Of the entry script: the place of the saved job, the instance, options.
        spark_conf: Spark's settings.
        environment: Folder or URL with `environment.tar.gz` and `sleeper_bulk_import.py`, made by
            `sleeper spark-environment`; None where Sleeper is installed on the cluster.
    """

    name: str
    arguments: tuple[str, ...]
    spark_conf: Mapping[str, str]
    environment: str | None = None

    @property
    def archive(self) -> str:
        """Where the archive of Python packages is, with the name it is unpacked under.

        Raises:
            BadRequest: there is no environment.
        """
        return f"{self._folder}/{ARCHIVE}#environment"

    @property
    def entry(self) -> str:
        """Where the entry script is.

        Raises:
            BadRequest: there is no environment.
        """
        return f"{self._folder}/{ENTRY}"

    @property
    def _folder(self) -> str:
        if not self.environment:
            raise BadRequest(NO_ENVIRONMENT)
        return self.environment.rstrip("/")


@dataclass(frozen=True, slots=True)
class CommandRequest:
    """A program to run here, which sends the job to a cluster or runs its driver."""

    argv: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsRequest:
    """A call of an AWS service.

    Attributes:
        service: As boto3 names it.
        operation: As boto3 names the method.
        parameters: Its arguments.
        answer_id: The key of the answer that holds the id of what was started.
        cluster_name: A running cluster of EMR, whose id is looked up before the call and becomes
            the parameter `JobFlowId`; None where no cluster is named.
        is_once: Whether the parameter `name` may be used once: while that which has it goes on,
            nothing is started; after its end a number is added.
        region: Where; None for that of the environment.
        endpoint_url: Another server than AWS's own.
    """

    service: str
    operation: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    answer_id: str
    cluster_name: str | None = None
    is_once: bool = False
    region: str | None = None
    endpoint_url: str | None = None


Request = CommandRequest | AwsRequest


def conf_arguments(spark_conf: Mapping[str, str]) -> list[str]:
    """Return settings as arguments of spark-submit."""
    return [part for name, value in spark_conf.items() for part in ("--conf", f"{name}={value}")]
