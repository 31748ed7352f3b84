"""What is wrong with the properties that an instance would be deployed with."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Final

from sleeper.deploy.fargate_sizes import ON_FARGATE, size_failure, task_size
from sleeper.deploy.platforms import platform_failures
from sleeper.deploy.regions import EMR_SERVERLESS_REGIONS
from sleeper.errors import PropertiesInvalid, UrlInvalid
from sleeper.model.jobs.messages import QueueName
from sleeper.model.jobs.queue_settings import queue_settings
from sleeper.model.known_properties import deployment as known
from sleeper.model.known_properties.cloud import OPTIONAL_STACKS, STACKS_OF_OTHERS
from sleeper.model.known_properties.typed import InstanceProperties, validate_instance_properties
from sleeper.storage.aws.deployment.instance_names import instance_id_of

_ID: Final = "sleeper.id"
_STACKS: Final = "sleeper.optional.stacks"
_JOBS_URL: Final = "sleeper.jobs.url"
_BATCHER_QUEUE: Final = "sleeper.default.table.ingest.batcher.ingest.queue"

_IN_VPC: Final = (
    "IngestStack",
    "CompactionStack",
    "BulkExportStack",
    "EmrBulkImportStack",
    "PersistentEmrBulkImportStack",
    "EksBulkImportStack",
)
_STACK_OF_QUEUE: Final = {
    "standard_ingest": "IngestStack",
    "bulk_import_emr": "EmrBulkImportStack",
    "bulk_import_persistent_emr": "PersistentEmrBulkImportStack",
    "bulk_import_eks": "EksBulkImportStack",
    "bulk_import_emr_serverless": "EmrServerlessBulkImportStack",
}


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
    unknown = [told for each in named if (told := _stack_failure(each))]
    if unknown:
        yield _STACKS, f"{_STACKS}: {' '.join(unknown)}"
    readable = _readable(properties)
    by_lower = {each.lower(): each for each in OPTIONAL_STACKS}
    chosen = [by_lower[each.lower()] for each in named if each.lower() in by_lower]
    if not named:
        chosen = list(readable.cloud.optional_stacks)
    yield from _network_failures(readable, chosen)
    yield from _size_failures(readable, chosen)
    yield from platform_failures(readable, chosen)
    yield from _contradictions(readable, chosen)
    if "EmrServerlessBulkImportStack" in chosen and region not in EMR_SERVERLESS_REGIONS:
        yield (
            known.REGION,
            (
                f"{known.REGION} is {region!r}, where there is no EMR Serverless. Set {_STACKS} "
                "to a list without EmrServerlessBulkImportStack, or use a region that has it, such "
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
    for name, value, pattern, wanted in (
        (known.ACCOUNT, account, "[0-9]{12}", "the 12 digits of an AWS account"),
        (known.REGION, region, "[a-z]{2}(-[a-z]+)+-[0-9]", "a region, such as eu-west-2"),
    ):
        set_to = properties.get(name, "").strip()
        if re.fullmatch(pattern, value) is None:
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
    properties: InstanceProperties, chosen: list[str]
) -> Iterator[tuple[str, str]]:
    inside = [each for each in _IN_VPC if each in chosen]
    if not inside:
        return
    needed = f"which {' and '.join(inside)} {'need' if len(inside) > 1 else 'needs'}"
    if properties.cloud.vpc is None:
        yield (
            "sleeper.vpc",
            (
                f"sleeper.vpc is missing, {needed}. Set it to the id of a VPC whose machines "
                "reach S3, DynamoDB, SQS, ECR and CloudWatch; or leave these stacks out of "
                f"{_STACKS}."
            ),
        )
    wanted = 2 if "EksBulkImportStack" in chosen else 1
    if len(properties.cloud.subnets or ()) < wanted:
        yield (
            "sleeper.subnets",
            (
                f"sleeper.subnets has {len(properties.cloud.subnets or ())} subnets, {needed}. "
                f"Set it to {wanted} or more subnets of that VPC"
                f"{', in two availability zones, which EKS asks for' if wanted > 1 else ''}."
            ),
        )


def _size_failures(properties: InstanceProperties, chosen: list[str]) -> Iterator[tuple[str, str]]:
    starts = {
        "ingest": "ingest.task",
        "compaction": "compaction.task",
        "export": "bulk.export.task",
    }
    for stack, kind in ON_FARGATE.items():
        size = task_size(properties, kind)
        part = "" if kind == "ingest" else ".arm" if size.architecture == "ARM64" else ".x86"
        if stack in chosen and (told := size_failure(size.cpu, size.memory_mb)):
            name = f"sleeper.{starts[kind]}{part}"
            yield f"{name}.cpu", f"{name}.cpu and {name}.memory.mb: {told}"


def _contradictions(properties: InstanceProperties, chosen: list[str]) -> Iterator[tuple[str, str]]:
    """Yield what no property is wrong in by itself."""
    queue = (properties.text(_BATCHER_QUEUE) or "").lower()
    wanted = _STACK_OF_QUEUE.get(queue)
    if "IngestBatcherStack" in chosen and wanted not in (None, *chosen):
        yield (
            _BATCHER_QUEUE,
            (
                f"{_BATCHER_QUEUE} is {queue}, so IngestBatcherStack would send its jobs where "
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


def _lease_failures(properties: InstanceProperties) -> Iterator[tuple[str, str]]:
    """Yield each time of a function that is longer than the lease of its messages."""
    for name, queue, lease in (
        (
            "sleeper.query.processor.timeout.seconds",
            QueueName.QUERY,
            "sleeper.query.queue.visibility.timeout.seconds",
        ),
        (
            "sleeper.statestore.committer.lambda.timeout.seconds",
            QueueName.COMMIT,
            "sleeper.statestore.committer.queue.visibility.timeout.seconds",
        ),
    ):
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
    start = region.partition("-")[0]
    return [each for each in EMR_SERVERLESS_REGIONS if each.startswith(start)][:3] or ["us-east-1"]
