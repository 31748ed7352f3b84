"""Checks that what has the instance's names is the instance's, and can be deployed."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sleeper.deploy.flow.checks.findings import Finding, failure, ok
from sleeper.deploy.flow.deployed_stacks import DeployedStack, DeployedStacks
from sleeper.errors import AlreadyExists
from sleeper.storage.aws.clients import aws_client
from sleeper.storage.aws.deployment.belongings import AwsBelongings
from sleeper.storage.aws.deployment.buckets import InstanceBuckets
from sleeper.storage.aws.deployment.instance_names import InstanceNames
from sleeper.storage.aws.names import owner_tag_value


def check_stacks(stacks: DeployedStacks, found: Mapping[str, DeployedStack]) -> list[Finding]:
    """Check that stacks with names of the instance's are its own, and in a state to go on from."""
    findings = [
        finding for each in stacks.owner_failures(found.values()) for finding in failure(each)
    ]
    for each in found.values():
        if each.way_out is not None:
            findings += failure(
                f"stack {each.name} is {each.status} ({each.reason or 'no reason is given'}). "
                f"Type: {each.way_out}"
            )
    made = sorted(each.name for each in found.values() if each.is_made)
    if made and not findings:
        return ok(f"deployed already: {', '.join(made)}")
    return findings


def check_resources(
    names: InstanceNames,
    region: str,
    endpoint: str | None,
    pause: Callable[[int], None],
    *,
    keeps: bool,
) -> list[Finding]:
    """Check what is there of an instance that has no stacks.

    Its buckets and tables are taken over by CloudFormation, which cannot take over queues.

    Args:
        names: The names of its buckets.
        region: Its region.
        endpoint: URL of an S3 server that is not Amazon's.
        pause: Waits before another attempt, given how many there were.
        keeps: Whether buckets and tables are kept when their stack is deleted.
    """
    url = f"aws://{names.instance_id}"
    buckets = InstanceBuckets(aws_client("s3", region, endpoint), url)
    findings: list[Finding] = []
    kept = []
    for bucket in names.buckets:
        try:
            buckets.check(bucket)
        except AlreadyExists as error:
            findings += failure(str(error))
            continue
        tag = buckets.owner_tag(bucket)
        if tag == owner_tag_value(url):
            kept.append(bucket)
        elif tag is not None:
            findings += failure(
                f"bucket {bucket} is there already, without a tag: delete it, which is empty"
            )
    belongings = AwsBelongings(names.instance_id, url, region=region, pause=pause)
    kept += [each.name for each in belongings.tables()]
    queues = belongings.queues()
    if queues:
        filled = [f"{each.name} ({each.count} messages)" for each in queues if each.count]
        findings += failure(
            f"{url} is there already, made by `sleeper init`, and CloudFormation cannot take over "
            f"its queues: {', '.join(each.name for each in queues)}. Pause it (sleeper pause), let "
            "the queues run empty, delete them (aws sqs delete-queue), wait a minute, and run this "
            "again: buckets and tables are kept with all they hold"
            f"{f'. Not empty: {chr(44).join(filled)}' if filled else ''}"
        )
    elif kept and not keeps:
        findings += failure(
            f"{url} has buckets and tables without a stack, and CloudFormation takes over only "
            "what it keeps: set sleeper.retain.infra.after.destroy to true for this deployment"
        )
    elif kept:
        findings += ok(
            "taken over with all they hold, from an instance without stacks: "
            f"{', '.join(sorted(kept))}"
        )
    return findings
