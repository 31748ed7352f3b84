"""What an instance is deployed with: its properties, checked for AWS as a whole."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from importlib.metadata import version
from typing import Final

from sleeper.deploy.image_addresses import EcrAddress, with_registry
from sleeper.deploy.names import RETAIN, DeployedNames
from sleeper.deploy.platforms import (
    APPLICATION_ID,
    platform_failures,
    platform_properties,
    size_failure,
)
from sleeper.errors import PropertiesInvalid, UrlInvalid
from sleeper.model.aws_partitions import partition_of
from sleeper.model.formats.properties_file import FORMAT_PROPERTY, VERSION_PROPERTY
from sleeper.model.jobs.kinds import QUEUES, QUEUES_OF_BATCHER, TASK_KINDS, URGENT, QueueName
from sleeper.model.jobs.messages import QueueSettings
from sleeper.model.jobs.platforms import PLATFORMS
from sleeper.model.jobs.settings import queue_settings, task_size
from sleeper.model.known_properties import deployment as known
from sleeper.model.known_properties.checks import validate_instance_properties
from sleeper.model.known_properties.typed import InstanceProperties
from sleeper.model.known_properties.value_kinds import PREFIX
from sleeper.model.stacks import OPTIONAL_STACKS, STACKS_OF_OTHERS, StackName
from sleeper.storage.aws.deployment.deployment import Deployment
from sleeper.storage.aws.deployment.names import instance_id_of

# ---------------------------------------------------------------- regions
#
# Regions of AWS that have services which others lack.

EMR_SERVERLESS_REGIONS: Final = (
    "af-south-1",
    "ap-east-1",
    "ap-east-2",
    "ap-northeast-1",
    "ap-northeast-2",
    "ap-northeast-3",
    "ap-south-1",
    "ap-south-2",
    "ap-southeast-1",
    "ap-southeast-2",
    "ap-southeast-3",
    "ap-southeast-4",
    "ap-southeast-5",
    "ap-southeast-6",
    "ap-southeast-7",
    "ca-central-1",
    "ca-west-1",
    "cn-north-1",
    "cn-northwest-1",
    "eu-central-1",
    "eu-central-2",
    "eu-isoe-west-1",
    "eu-north-1",
    "eu-south-1",
    "eu-south-2",
    "eu-west-1",
    "eu-west-2",
    "eu-west-3",
    "eusc-de-east-1",
    "il-central-1",
    "me-central-1",
    "me-south-1",
    "mx-central-1",
    "sa-east-1",
    "us-east-1",
    "us-east-2",
    "us-gov-east-1",
    "us-gov-west-1",
    "us-iso-east-1",
    "us-isob-east-1",
    "us-west-1",
    "us-west-2",
)
"""Those with EMR Serverless, as botocore knows them; a test compares."""


# ---------------------------------------------------------------- what is wrong with settings
#
# What is wrong with the properties that an instance would be deployed with.

_ID: Final = "sleeper.id"
_STACKS: Final = "sleeper.optional.stacks"
_JOBS_URL: Final = "sleeper.jobs.url"
_CALLED: Final = "sleeper.jobs.called.queues"
_FUNCTION_IMAGE: Final = "sleeper.image.functions"
_BATCHER_QUEUE: Final = "sleeper.default.table.ingest.batcher.ingest.queue"

_CLUSTERS_IN_VPC: Final = (StackName.EMR, StackName.PERSISTENT_EMR, StackName.EKS)
_IN_VPC: Final = (
    *(each.stack for each in TASK_KINDS if each.stack is not None),
    *_CLUSTERS_IN_VPC,
)


def setting_failures(
    properties: Mapping[str, str], account: str, region: str
) -> Iterator[tuple[str, str]]:
    """Yield every failure of a deployment's properties, with the property.

    Of two of one property the later one says more.
    """
    try:
        validate_instance_properties(properties, given=properties)
    except PropertiesInvalid as error:
        yield from error.failures.items()
    yield from _identity_failures(properties, account, region)
    named = [each.strip() for each in properties.get(_STACKS, "").split(",") if each.strip()]
    unknown = [reason for each in named if (reason := _stack_failure(each))]
    if unknown:
        yield _STACKS, f"{_STACKS}: {' '.join(unknown)}"
    readable = _readable(properties)
    by_lower = {each.lower(): each for each in OPTIONAL_STACKS}
    chosen = [by_lower[each.lower()] for each in named if each.lower() in by_lower]
    if not named:
        chosen = [*map(StackName, readable.cloud.optional_stacks)]
    for name, told in _network_failures(readable, chosen):
        if name in readable.values or not properties.get(name, "").strip():
            yield name, told  # one that is malformed is told as that, and not as missing
    yield from _size_failures(readable, chosen)
    yield from platform_failures(readable, chosen)
    yield from _contradictions(readable, chosen)
    yield from _safekeeping_failures(readable, region)
    yield from _image_failures(readable, account, region)
    is_region = partition_of(region) is not None
    if StackName.EMR_SERVERLESS in chosen and is_region and region not in EMR_SERVERLESS_REGIONS:
        yield (
            known.REGION,
            (
                f"{known.REGION} is {region!r}, where there is no EMR Serverless. Set {_STACKS} "
                f"to a list without {StackName.EMR_SERVERLESS}, or use a region that has it, such "
                f"as {', '.join(_near_regions(region))}."
            ),
        )


def _readable(properties: Mapping[str, str]) -> InstanceProperties:
    """Return properties without those that cannot be read, so that the others can be checked."""
    try:
        validate_instance_properties(properties)
    except PropertiesInvalid as error:
        properties = {name: text for name, text in properties.items() if name not in error.failures}
    return InstanceProperties(properties)


def _identity_failures(
    properties: Mapping[str, str], account: str, region: str
) -> Iterator[tuple[str, str]]:
    given = properties.get(_ID, "").strip()
    try:
        instance_id_of(f"aws://{given}")
    except UrlInvalid:
        yield (
            _ID,
            (
                f"{_ID} is {given!r:.100}, but names in AWS are made with it: write at most 20 "
                "letters from a to z, digits, dots and dashes, with a letter or digit first and "
                "last."
            ),
        )
    for name, value, is_right, wanted in (
        (
            known.ACCOUNT,
            account,
            re.fullmatch("[0-9]{12}", account) is not None,
            "the 12 digits of an AWS account",
        ),
        (known.REGION, region, partition_of(region) is not None, "a region, such as eu-west-2"),
    ):
        set_to = properties.get(name, "").strip()
        if not is_right:
            yield name, f"{name} is {value!r:.100}, but it must be {wanted}."
        elif set_to and set_to != value:
            yield name, f"{name} is {set_to!r:.100}, but the credentials are those of {value!r}."


def _stack_failure(name: str) -> str | None:
    by_lower = {each.lower(): each for each in (*OPTIONAL_STACKS, *STACKS_OF_OTHERS)}
    found = by_lower.get(name.lower())
    if found is None:
        near = get_close_matches(name.lower(), by_lower, n=1)
        hint = f"Did you mean {by_lower[near[0]]}? " if near else ""
        return f"there is no stack {name!r:.100}. {hint}There are {', '.join(OPTIONAL_STACKS)}."
    if found in STACKS_OF_OTHERS:
        return f"{found} is only in upstream: {STACKS_OF_OTHERS[found]}, and leave it out here."
    return None


def _network_failures(
    properties: InstanceProperties, chosen: Sequence[StackName]
) -> Iterator[tuple[str, str]]:
    inside: list[str] = [each for each in _IN_VPC if each in chosen]
    if properties.cloud.in_vpc:
        inside.append("sleeper.deploy.in.vpc")
    if not inside:
        return
    needed = f"which {' and '.join(inside)} {'need' if len(inside) > 1 else 'needs'}"
    if properties.cloud.vpc is None:
        yield (
            "sleeper.vpc",
            (
                f"sleeper.vpc is missing, {needed}. Set it to the id of a VPC whose machines "
                "reach S3, DynamoDB, SQS, ECR and CloudWatch, such as deploy/aws/vpc.yaml makes; "
                f"or leave these stacks out of {_STACKS}."
            ),
        )
    wanted = 2 if StackName.EKS in chosen else 1
    if len(properties.cloud.subnets or ()) < wanted:
        yield (
            "sleeper.subnets",
            (
                f"sleeper.subnets has {len(properties.cloud.subnets or ())} subnets, {needed}. "
                f"Set it to {wanted} or more subnets of that VPC"
                f"{', in two availability zones, which EKS asks for' if wanted > 1 else ''}."
            ),
        )


def _image_failures(
    properties: InstanceProperties, account: str, region: str
) -> Iterator[tuple[str, str]]:
    """Yield why Lambda, which reads images from ECR in its own region alone, refuses one."""
    given = properties.cloud.function_image
    if given is None:
        return
    found = EcrAddress.of(with_registry(given, DeployedNames("any", account, region).registry))
    if found is None or found.region != region:
        yield (
            _FUNCTION_IMAGE,
            (
                f"{_FUNCTION_IMAGE} is {given!r:.200}, but Lambda takes images from ECR in its own "
                f"region alone: push it to a repository of ECR in {region}."
            ),
        )


def _size_failures(
    properties: InstanceProperties, chosen: Sequence[StackName]
) -> Iterator[tuple[str, str]]:
    for kind in TASK_KINDS:
        if kind.task is None or kind.stack not in chosen:
            continue
        size = task_size(properties, kind.task)
        if reason := size_failure(size.cpu, size.memory_mb):
            cpu, memory = (f"{PREFIX}{each}" for each in kind.task.size(size.architecture))
            yield cpu, f"{cpu} and {memory}: {reason}"


def _contradictions(
    properties: InstanceProperties, chosen: Sequence[StackName]
) -> Iterator[tuple[str, str]]:
    """Yield what no property is wrong in by itself."""
    queue = (properties.text(_BATCHER_QUEUE) or "").lower()
    wanted = QUEUES[QUEUES_OF_BATCHER[queue]].stack if queue in QUEUES_OF_BATCHER else None
    if StackName.BATCHER in chosen and wanted not in (None, *chosen):
        yield (
            _BATCHER_QUEUE,
            (
                f"{_BATCHER_QUEUE} is {queue}, so {StackName.BATCHER} would send its jobs where "
                f"nobody takes them: add {wanted} to {_STACKS}, or set another queue."
            ),
        )
    if properties.jobs.url not in (None, "sqs"):
        yield (
            _JOBS_URL,
            (
                f"{_JOBS_URL} is {properties.jobs.url!r:.100}, but functions and tasks in AWS take "
                "jobs from SQS: leave it out."
            ),
        )
    clusters = properties.clusters
    if clusters.persistent_capacity_min > clusters.persistent_capacity_max:
        yield (
            "sleeper.bulk.import.persistent.emr.min.capacity",
            (
                "sleeper.bulk.import.persistent.emr.min.capacity is "
                f"{clusters.persistent_capacity_min}, more than "
                "sleeper.bulk.import.persistent.emr.max.capacity, "
                f"{clusters.persistent_capacity_max}."
            ),
        )
    yield from _lease_failures(properties)


def _safekeeping_failures(properties: InstanceProperties, region: str) -> Iterator[tuple[str, str]]:
    """Yield a key of another region, and logs of the access to buckets that go into these."""
    key, logs = properties.cloud.key_arn, properties.cloud.access_logs_bucket
    if key is not None and key.split(":")[3] != region:
        yield (
            "sleeper.kms.key.arn",
            (
                f"sleeper.kms.key.arn is a key in {key.split(':')[3]}, but the instance is in "
                f"{region}: set it to the ARN of a key in {region}."
            ),
        )
    given = properties.values.get(_ID, "").strip().lower().replace(".", "-")
    if logs is not None and logs.startswith(f"sleeper-{given}-"):
        yield (
            "sleeper.access.logs.bucket",
            (
                f"sleeper.access.logs.bucket is {logs}, which the instance makes for itself: each "
                "log would be logged again. Set it to a bucket of yours in the same region."
            ),
        )


def _lease_failures(properties: InstanceProperties) -> Iterator[tuple[str, str]]:
    """Yield each time of a function that is longer than the lease of its messages."""
    for name, queue in (
        ("sleeper.query.processor.timeout.seconds", QueueName.QUERY),
        ("sleeper.statestore.committer.lambda.timeout.seconds", QueueName.COMMIT),
    ):
        lease = f"{PREFIX}{QUEUES[queue].lease}"
        given = properties.values.get(name, "").strip()
        lease_s = queue_settings(properties, queue).visibility_s
        if given and int(given) > lease_s:
            yield (
                name,
                (
                    f"{name} is {given}, longer than the lease of a message, {lease} "
                    f"({lease_s:.0f}): AWS refuses that. Make it shorter, or the lease longer."
                ),
            )


def _near_regions(region: str) -> list[str]:
    here = partition_of(region)
    reachable = [each for each in EMR_SERVERLESS_REGIONS if partition_of(each) == here]
    start = region.partition("-")[0]
    near = [each for each in reachable if each.startswith(start)] or reachable
    return near[:3] or ["us-east-1"]


VERSION: Final = "sleeper.version"
"""The property with the version that is deployed, which is the tag of its images."""


def deployed_values(
    instance_id: str, stored: Mapping[str, str], given: Mapping[str, str | None]
) -> dict[str, str]:
    """Return the properties that an instance is deployed with.

    Args:
        instance_id: The instance.
        stored: Its properties so far; none for a new instance.
        given: What is set now; None takes one away.
    """
    before = stored or Deployment.defaults()
    set_now = {VERSION: version("sleeper-store"), **given}
    merged = {RETAIN: "true", **before, **set_now, _ID: instance_id}
    return {name: text for name, text in merged.items() if text is not None}


@dataclass(frozen=True, slots=True)
class DeploymentSettings:
    """All that stacks are made from.

    Attributes:
        properties: The instance's properties.
        names: Names and ARNs of its resources.
        stacks: The optional stacks that are deployed, in the order of `OPTIONAL_STACKS`.
        image_tag: The tag of its images.
        digests: Addresses of images by digest, by their addresses by tag, as far as ECR was asked:
            what is deployed changes when another image is pushed with the same tag.
        written_later: Names of properties that no template has, because who deploys writes them
            after all stacks.
    """

    properties: InstanceProperties
    names: DeployedNames
    stacks: tuple[StackName, ...]
    image_tag: str
    digests: Mapping[str, str] = field(default_factory=dict)
    written_later: frozenset[str] = frozenset()

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

    def has(self, stack: StackName) -> bool:
        """Return whether an optional stack is deployed."""
        return stack in self.stacks

    @property
    def has_tasks(self) -> bool:
        """Whether workers run on Fargate."""
        return any(each.stack in self.stacks for each in TASK_KINDS)

    @property
    def called_functions(self) -> dict[QueueName, str]:
        """The names of functions that are called for messages of their queues, by these.

        WorkersStack has what counts the messages.
        """
        by_stack = {StackName.COMMITTER: URGENT[QueueName.COMMIT]}
        by_stack |= {StackName.QUERY: URGENT[QueueName.QUERY]} if self.has(StackName.QUERY) else {}
        by_stack |= {each.stack: each.starter for each in PLATFORMS if self.has(each.stack)}
        return {
            queue: self.names.function(by_stack[spec.stack])
            for queue, spec in QUEUES.items()
            if spec.stack in by_stack
        }

    @property
    def subnets(self) -> tuple[str, ...]:
        """The subnets of tasks and clusters."""
        return self.properties.cloud.subnets or ()

    def queue(self, name: QueueName) -> QueueSettings:
        """Return how a queue delivers."""
        return queue_settings(self.properties, name)

    def image(self, name: str) -> str:
        """Return the address of an image in the account's ECR: `worker` or `spark`."""
        return self._resolved(self._default_image(name))

    @property
    def function_image(self) -> str:
        """The address of the image that functions run."""
        return self._resolved(self._worker_image(self.properties.cloud.function_image))

    @property
    def task_image(self) -> str:
        """The address of the image that workers on Fargate run."""
        return self._resolved(self._worker_image(self.properties.cloud.task_image))

    @property
    def images(self) -> tuple[str, ...]:
        """The addresses of all images that its stacks use."""
        found = [self.function_image]
        found += [self.task_image] if self.has_tasks else []
        found += [self.image("spark")] if self.has(StackName.EKS) else []
        return tuple(dict.fromkeys(found))

    def _worker_image(self, given: str | None) -> str:
        if given is None:
            return self._default_image("worker")
        return with_registry(given, self.names.registry)

    def _default_image(self, name: str) -> str:
        return f"{self.names.registry}/{self.repository(name)}:{self.image_tag}"

    def _resolved(self, address: str) -> str:
        return self.digests.get(address, address)

    def repository(self, image: str) -> str:
        """Return the name of the repository that has an image."""
        return f"{self.properties.cloud.repositories}/{image}"

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

    def template_properties(self) -> dict[str, str]:
        """Return the properties of the instance that PropertiesStack writes.

        Those of a platform whose id AWS chooses are written by that platform's own stack.
        """
        known_platforms = platform_properties(self.names, OPTIONAL_STACKS, lambda _: ())
        values = self.properties.values
        not_here = {name for name, text in known_platforms.items() if values.get(name) == text}
        not_here |= {*self.written_later, FORMAT_PROPERTY, VERSION_PROPERTY, _CALLED}
        called = ",".join(each for each in self.called_functions if each in URGENT)
        if self.has(StackName.EMR_SERVERLESS):
            not_here.add(APPLICATION_ID)
        return {
            **{name: text for name, text in values.items() if name not in not_here},
            **platform_properties(self.names, self.stacks, lambda _: ()),
            **self.resource_properties(),
            _CALLED: called,
        }

    def tags(self) -> dict[str, str]:
        """Return the tags that the user gave."""
        return dict(self.properties.cloud.tags or {})
