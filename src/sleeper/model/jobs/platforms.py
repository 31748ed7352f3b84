"""The platforms that run Spark for bulk imports from queues, one row each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from sleeper.model.jobs.kinds import QueueName
from sleeper.model.stacks import StackName


@dataclass(frozen=True, slots=True, kw_only=True)
class Platform:
    """A platform.

    Attributes:
        name: What commands and trackers call it.
        queue: The queue of jobs for it. What a deployment makes for it is named so too.
        stack: The stack that makes it.
        family: What the names of its properties begin with.
        described_by: The properties that describe it: without one of them it is not there.
        takes_packages: Whether drivers are given the packages of Sleeper; others have an image.
    """

    name: str
    queue: QueueName
    stack: StackName
    family: str
    described_by: tuple[str, ...]
    takes_packages: bool = True

    @property
    def resource(self) -> str:
        """What the names of its resources begin with, after the instance's prefix."""
        return str(self.queue)

    @property
    def starter(self) -> str:
        """The function that starts its jobs, after the instance's prefix."""
        return f"{self.resource}-starter"


_PREFIX: Final = "sleeper.bulk.import."

EMR: Final = Platform(
    name="emr",
    queue=QueueName.BULK_IMPORT_EMR,
    stack=StackName.EMR,
    family=f"{_PREFIX}emr",
    described_by=(f"{_PREFIX}emr.role.name", f"{_PREFIX}emr.ec2.role.name"),
)
"""Clusters of EMR, one for each job."""

PERSISTENT_EMR: Final = Platform(
    name="persistent-emr",
    queue=QueueName.BULK_IMPORT_PERSISTENT_EMR,
    stack=StackName.PERSISTENT_EMR,
    family=f"{_PREFIX}persistent.emr",
    described_by=(f"{_PREFIX}persistent.emr.cluster.name",),
)
"""A cluster of EMR that is kept."""

EMR_SERVERLESS: Final = Platform(
    name="emr-serverless",
    queue=QueueName.BULK_IMPORT_EMR_SERVERLESS,
    stack=StackName.EMR_SERVERLESS,
    family=f"{_PREFIX}emr.serverless",
    described_by=(
        f"{_PREFIX}emr.serverless.application.id",
        f"{_PREFIX}emr.serverless.role.arn",
    ),
)
"""An application of EMR Serverless."""

EKS: Final = Platform(
    name="eks",
    queue=QueueName.BULK_IMPORT_EKS,
    stack=StackName.EKS,
    family=f"{_PREFIX}eks",
    described_by=(f"{_PREFIX}eks.statemachine.arn",),
    takes_packages=False,
)
"""Pods of EKS, started by a state machine."""

PLATFORMS: Final = (EMR_SERVERLESS, EMR, PERSISTENT_EMR, EKS)
"""All of them, in the order in which their stacks are deployed."""

BY_QUEUE: Final[Mapping[QueueName, Platform]] = {each.queue: each for each in PLATFORMS}
"""The platform that each queue is for."""
