"""What an instance is deployed with: its properties, checked for AWS as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version

from sleeper.deploy.fargate_sizes import ON_FARGATE, TaskSize, task_size
from sleeper.deploy.names import DeployedNames
from sleeper.deploy.setting_failures import setting_failures
from sleeper.errors import PropertiesInvalid
from sleeper.language.value_classes import dataclass
from sleeper.model.jobs.messages import QueueName, QueueSettings
from sleeper.model.jobs.queue_settings import queue_settings
from sleeper.model.known_properties import deployment as known
from sleeper.model.known_properties.cloud import OPTIONAL_STACKS
from sleeper.model.known_properties.typed import InstanceProperties
from sleeper.storage.aws.deployment.deployment import Deployment


@dataclass(frozen=True, slots=True)
class DeploymentSettings:
    """All that stacks are made from.

    Attributes:
        properties: The instance's properties.
        names: Names and ARNs of its resources.
        stacks: The optional stacks that are deployed, in the order of `OPTIONAL_STACKS`.
        image_tag: The tag of its images.
    """

    properties: InstanceProperties
    names: DeployedNames
    stacks: tuple[str, ...]
    image_tag: str

    @classmethod
    def of(cls, properties: Mapping[str, str], *, account: str, region: str) -> DeploymentSettings:
        """Read the settings from an instance's properties.

        Args:
            properties: What was set, by full name; `sleeper.id` at least.
            account: The number of the AWS account.
            region: The region.

        Raises:
            PropertiesInvalid: a property is not allowed, is missing, or contradicts another; has
                all failures.
        """
        failures = dict(setting_failures(properties, account, region))
        if failures:
            raise PropertiesInvalid(failures)
        typed = InstanceProperties(properties)
        return cls(
            typed,
            DeployedNames(typed.id, account, region),
            tuple(each for each in OPTIONAL_STACKS if each in typed.cloud.optional_stacks),
            typed.cloud.version or version("sleeper-store"),
        )

    def has(self, stack: str) -> bool:
        """Return whether an optional stack is deployed."""
        return stack in self.stacks

    @property
    def has_tasks(self) -> bool:
        """Whether workers run on Fargate."""
        return any(map(self.has, ON_FARGATE))

    @property
    def subnets(self) -> tuple[str, ...]:
        """The subnets of tasks and clusters."""
        return self.properties.cloud.subnets or ()

    def queue(self, name: QueueName) -> QueueSettings:
        """Return how a queue delivers."""
        return queue_settings(self.properties, name)

    def image(self, name: str) -> str:
        """Return the URI of an image in ECR: `worker` or `spark`."""
        names = self.names
        host = f"{names.account}.dkr.ecr.{names.region}.{names.domain}"
        return f"{host}/{self.repository(name)}:{self.image_tag}"

    def repository(self, image: str) -> str:
        """Return the name of the repository that has an image."""
        return f"{self.properties.cloud.repositories}/{image}"

    def task_size(self, kind: str) -> TaskSize:
        """Return the size of workers of a kind: `ingest`, `compaction` or `export`."""
        return task_size(self.properties, kind)

    def memory_mb(self, own: int | None) -> int:
        """Return the memory of a function: its own, or that of all that hold states."""
        return self.properties.lambdas.table_state_memory_mb if own is None else own

    def at_once(self, reserved: int | None, most: int | None) -> tuple[int | None, int]:
        """Return the concurrency that a function of tables reserves, and its limit.

        Args:
            reserved: What its own property reserves; 0 for nothing, None if it is not set.
            most: The limit of its own property; None if it is not set.
        """
        lambdas = self.properties.lambdas
        kept = (lambdas.at_once_reserved if reserved is None else reserved) or None
        limit = most or lambdas.at_once_max
        return kept, limit if kept is None else max(2, min(limit, kept))

    def timeout_s(self, timeout_s: int, queue: QueueName) -> int:
        """Return how long a function may take for messages of a queue: no longer than a lease."""
        return max(1, min(timeout_s, int(self.queue(queue).visibility_s)))

    def resource_properties(self) -> dict[str, str]:
        """Return the properties that name its resources, as `sleeper init` stores them."""
        names = self.names
        deployment = Deployment(names.buckets, names.region, None)
        urls: dict[str, str] = {}
        for name in QueueName:
            queue, dead = names.queues(name).queue, names.queues(name).dead
            urls |= known.queue_url_properties(name, names.queue_url(queue), names.queue_url(dead))
        return {"sleeper.id": names.instance_id, **deployment.properties(), **urls}

    def tags(self) -> dict[str, str]:
        """Return the tags that the user gave."""
        return dict(self.properties.cloud.tags or {})
