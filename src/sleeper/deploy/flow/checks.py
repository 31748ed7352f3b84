"""What checks find, and how they are run so that all failures are reported at once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from sleeper.deploy.flow.deployed_stacks import DeployedStack, DeployedStacks
from sleeper.deploy.settings import DeploymentSettings
from sleeper.errors import AlreadyExists, BadRequest, MissingExtra, PropertiesInvalid, SleeperError
from sleeper.storage.aws.clients import aws_client, error_code, owner_tag_value, vendor_errors
from sleeper.storage.aws.deployment.belongings import AwsBelongings
from sleeper.storage.aws.deployment.buckets import InstanceBuckets
from sleeper.storage.aws.deployment.names import InstanceNames

logger = logging.getLogger(__name__)

_NOT_ALLOWED: Final = (
    "AccessDenied",
    "AccessDeniedException",
    "UnauthorizedOperation",
    "AuthorizationError",
    "NotAuthorized",
)


class Level(StrEnum):
    """How bad it is."""

    OK = "ok"
    WARNING = "warning"
    FAILURE = "failure"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What one check found.

    Attributes:
        level: Whether it stands in the way.
        text: What was found, and what to do, as a sentence.
    """

    level: Level
    text: str


Check = Callable[[], Iterable[CheckResult]]


def ok(text: str) -> list[CheckResult]:
    """Return that all is well."""
    return [CheckResult(Level.OK, text)]


def warning(text: str) -> list[CheckResult]:
    """Return something to know of, which does not stand in the way."""
    return [CheckResult(Level.WARNING, text)]


def failure(text: str) -> list[CheckResult]:
    """Return something that stands in the way."""
    return [CheckResult(Level.FAILURE, text)]


def run_checks(checks: Mapping[str, Check]) -> list[CheckResult]:
    """Run checks by name, each whatever others found; return all findings.

    One that may not ask AWS, or gets no answer, is a warning: what it looks for may be right.
    """
    found: list[CheckResult] = []
    for name, check in checks.items():
        try:
            found += check()
        except PropertiesInvalid as error:
            found += [CheckResult(Level.FAILURE, text) for text in error.failures.values()]
        except (BadRequest, MissingExtra) as error:
            found += failure(str(error))
        except SleeperError as error:
            logger.warning("the check of %s failed: %s", name, error)
            found += warning(f"{name}: not checked, for {error}")
        except vendor_errors() as error:
            logger.info("the check of %s has no answer: %s", name, error)
            allowed = "" if error_code(error) not in _NOT_ALLOWED else "these credentials may not: "
            found += warning(f"{name}: not checked, {allowed}{_first_line(error)}")
    return found


def raise_failures(findings: Iterable[CheckResult]) -> None:
    """Raise all failures as one error.

    Raises:
        BadRequest: there are some; lists them all.
    """
    failures = [each.text for each in findings if each.level is Level.FAILURE]
    if failures:
        listed = "".join(f"\n- {each}" for each in failures)
        raise BadRequest(f"nothing was deployed:{listed}")


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0][:300]


# ---------------------------------------------------------------- account
#
# Checks what belongs to the account: its region and its quotas.

_QUOTAS: Final = {False: "L-3032A538", True: "L-36FBB829"}
"""Codes of the quotas of Fargate's processors: on demand, and spot."""


def check_account(account: str, region: str) -> list[CheckResult]:
    """Say which account and region are used."""
    return ok(f"account {account}, region {region}")


def check_vcpus(wanted: float, region: str, *, is_spot: bool) -> list[CheckResult]:
    """Compare the processors of the largest number of tasks with the quota of Fargate."""
    client = aws_client("service-quotas", region)
    answer = client.get_service_quota(ServiceCode="fargate", QuotaCode=_QUOTAS[is_spot])
    quota = float(answer["Quota"]["Value"])
    kind = "Fargate Spot" if is_spot else "Fargate"
    if wanted > quota:
        return warning(
            f"workers may take {wanted:g} vCPUs at once, but the account has a quota of "
            f"{quota:g} of {kind}: more tasks than that wait. Set fewer tasks at once, or ask for "
            "more in Service Quotas"
        )
    return ok(f"{wanted:g} vCPUs of workers are within the quota of {quota:g} of {kind}")


_CONCURRENCY_QUOTA: Final = "L-B99A9384"
_UNRESERVED_MIN: Final = 100
"""What Lambda leaves to functions that reserve nothing."""


def check_concurrency(reserved: Mapping[str, int], region: str) -> list[CheckResult]:
    """Compare what functions reserve of the account's concurrency with what Lambda lets them.

    Args:
        reserved: What each function will reserve, by its name.
        region: The region.
    """
    client = aws_client("lambda", region)
    limits = client.get_account_settings()["AccountLimit"]
    limit, unreserved = limits["ConcurrentExecutions"], limits["UnreservedConcurrentExecutions"]
    own = sum(_reserved_now(client, name) for name in reserved)
    wanted, most = sum(reserved.values()), max(0, unreserved + own - _UNRESERVED_MIN)
    if wanted <= most:
        return ok(f"functions reserve {wanted} of {limit} concurrent executions of the account")
    each = ", ".join(f"{name} {count}" for name, count in sorted(reserved.items()))
    return failure(
        f"functions reserve {wanted} concurrent executions ({each}), but the account lets them "
        f"reserve {most} in {region}: its limit is {limit}, other functions reserve "
        f"{limit - unreserved - own}, and Lambda keeps {_UNRESERVED_MIN} unreserved. Ask for a "
        "higher limit: aws service-quotas request-service-quota-increase --service-code lambda "
        f"--quota-code {_CONCURRENCY_QUOTA} --desired-value {max(1000, limit + wanted)} --region "
        f"{region}. Or reserve nothing: --set sleeper.lambda.reserves.concurrency=false"
    )


def _reserved_now(client: Any, function: str) -> int:
    """Return what a function reserves already, which it keeps or gives back."""
    try:
        answer = client.get_function_concurrency(FunctionName=function)
    except vendor_errors() as error:
        if error_code(error) != "ResourceNotFoundException":
            raise
        return 0
    return int(answer.get("ReservedConcurrentExecutions") or 0)


# ---------------------------------------------------------------- alarms
#
# Checks that somebody hears of alarms and failures.

_EMAIL: Final = "sleeper.errors.email"
_TOPIC: Final = "sleeper.alarms.topic.arn"
_NO_TOPIC: Final = ("NotFound", "NotFoundException", "InvalidParameter")
_PUBLISHERS: Final = ("cloudwatch.amazonaws.com", "events.amazonaws.com")
_BUDGETS: Final = "budgets.amazonaws.com"


def check_hearers(settings: DeploymentSettings) -> list[CheckResult]:
    """Check that alarms are sent to somebody, and that a topic of the user's is in the region."""
    cloud, region = settings.properties.cloud, settings.names.region
    if cloud.alarms_topic is not None and cloud.alarms_topic.split(":")[3] != region:
        return failure(
            f"{_TOPIC} is {cloud.alarms_topic}, but alarms of {region} can be sent only to a topic "
            "there"
        )
    heard = [each for each in (cloud.errors_email, cloud.alarms_topic) if each is not None]
    if not heard:
        return warning(
            f"nobody hears of dead letters, failures and delays: set {_EMAIL} to an address, or "
            f"{_TOPIC} to a topic of yours"
        )
    return ok(f"alarms and failures are sent to {' and '.join(heard)}")


def check_topic(topic: str, region: str, *, has_budget: bool = False) -> list[CheckResult]:
    """Check that the user's topic is there, and that its policy lets alarms and rules publish.

    Args:
        topic: The ARN of the topic.
        region: The region.
        has_budget: Whether a budget publishes too.
    """
    client = aws_client("sns", region)
    try:
        attributes = client.get_topic_attributes(TopicArn=topic)["Attributes"]
    except vendor_errors() as error:
        if error_code(error) not in _NO_TOPIC:
            raise
        return failure(f"{_TOPIC} is {topic}, but there is no such topic")
    policy = attributes.get("Policy") or ""
    publishers = (*_PUBLISHERS, _BUDGETS) if has_budget else _PUBLISHERS
    missing = [each for each in publishers if each not in policy]
    if missing:
        return warning(
            f"the policy of {topic} does not name {' and '.join(missing)}: unless it lets them "
            "publish, what they tell is lost. docs/operating/alarms.md has the statement"
        )
    also = ", and of the budget" if has_budget else ""
    return ok(f"topic {topic} takes messages of alarms and rules{also}")


# ---------------------------------------------------------------- network
#
# Checks the VPC and the subnets that workers run in.

_NO_VPC: Final = ("InvalidVpcID.NotFound", "NotFound")
_NO_SUBNET: Final = ("InvalidSubnetID.NotFound", "NotFound", "InvalidSubnetID.Malformed")
_SERVICES: Final = "ECR, SQS, DynamoDB, S3, STS, ECS, Lambda, CloudWatch and its logs"
_EVERYWHERE: Final = ("0.0.0.0/0", "::/0")


def check_network(
    vpc: str, subnets: Sequence[str], region: str, *, for_functions: bool = False
) -> list[CheckResult]:
    """Check that the VPC and the subnets exist, belong together, and reach the services of AWS.

    Args:
        vpc: The VPC.
        subnets: The subnets of tasks and clusters.
        region: The region.
        for_functions: Whether functions run there too, which have no public address.
    """
    client = aws_client("ec2", region)
    if not _exists(client, vpc):
        return failure(
            f"sleeper.vpc is {vpc}, but there is no such VPC in {region}; deploy/aws/vpc.yaml "
            "makes one to begin with (docs/deploy/aws.md, Network)"
        )
    found, missing = _subnets(client, subnets)
    findings = [
        finding
        for each in missing
        for finding in failure(f"sleeper.subnets has {each}, but it is not in {region}")
    ]
    for subnet, its in found.items():
        if its["VpcId"] != vpc:
            findings += failure(
                f"sleeper.subnets has {subnet}, which is in {its['VpcId']}, not in {vpc}"
            )
    if findings:
        return findings
    tables = _route_tables(client, vpc, found)
    return [
        *ok(f"VPC {vpc} has the subnets {', '.join(subnets)}"),
        *_ways_out(tables, for_functions=for_functions),
        *_gateways(client, vpc, region, tables),
    ]


def _exists(client: Any, vpc: str) -> bool:
    try:
        return bool(client.describe_vpcs(VpcIds=[vpc])["Vpcs"])
    except vendor_errors() as error:
        if (error_code(error) or "").endswith(_NO_VPC) or "InvalidVpc" in str(error):
            return False
        raise


def _subnets(
    client: Any, names: Sequence[str]
) -> tuple[dict[str, Mapping[str, Any]], tuple[str, ...]]:
    """Return the subnets that there are by their ids, and the ids of others."""
    found: dict[str, Mapping[str, Any]] = {}
    for name in names:
        try:
            answer = client.describe_subnets(SubnetIds=[name])["Subnets"]
        except vendor_errors() as error:
            if (error_code(error) or "").endswith(_NO_SUBNET) or "InvalidSubnet" in str(error):
                continue
            raise
        found |= {str(each["SubnetId"]): each for each in answer}
    return found, tuple(name for name in names if name not in found)


def _route_tables(client: Any, vpc: str, subnets: Iterable[str]) -> dict[str, Mapping[str, Any]]:
    """Return the route table of each subnet: its own, or the main one of the VPC."""
    tables = client.describe_route_tables(Filters=[{"Name": "vpc-id", "Values": [vpc]}])
    by_subnet: dict[str, Mapping[str, Any]] = {}
    main: Mapping[str, Any] = {}
    for table in tables["RouteTables"]:
        for each in table.get("Associations", ()):
            if each.get("Main"):
                main = table
            if "SubnetId" in each:
                by_subnet[each["SubnetId"]] = table
    return {name: by_subnet.get(name, main) for name in subnets}


def _ways_out(tables: Mapping[str, Mapping[str, Any]], *, for_functions: bool) -> list[CheckResult]:
    """Warn of subnets from which a task, or a function, reaches neither ECR nor SQS."""
    closed = [name for name, table in tables.items() if not _leads_out(table)]
    if closed:
        return warning(
            f"subnets {', '.join(closed)} have no route to the internet (an internet gateway or "
            f"a NAT). Workers need one, or VPC endpoints for {_SERVICES}"
        )
    public = [name for name, table in tables.items() if _leads_out(table, by="igw-")]
    if for_functions and public:
        return warning(
            f"subnets {', '.join(public)} lead out by an internet gateway, which functions and "
            "EMR Serverless cannot use, for they have no public address (sleeper.deploy.in.vpc is "
            f"true). Use subnets with a NAT, or VPC endpoints for {_SERVICES}"
        )
    return []


def _gateways(
    client: Any, vpc: str, region: str, tables: Mapping[str, Mapping[str, Any]]
) -> list[CheckResult]:
    """Warn of subnets without a public way, from which rows do not go by a gateway endpoint.

    It is free, and a NAT is paid by the gigabyte; a public address pays nothing for S3 either.
    """
    answer = client.describe_vpc_endpoints(Filters=[{"Name": "vpc-id", "Values": [vpc]}])
    wanted = {
        str(each.get("RouteTableId")) for each in tables.values() if not _leads_out(each, by="igw-")
    }
    missing = []
    for service in ("s3", "dynamodb"):
        routed = {
            str(table)
            for each in answer.get("VpcEndpoints", ())
            if each.get("ServiceName", "").endswith(f".{region}.{service}")
            and each.get("VpcEndpointType", "Gateway") == "Gateway"
            for table in each.get("RouteTableIds", ())
        }
        if not wanted <= routed:
            missing.append((service, sorted(wanted - routed)))
    return [
        finding
        for service, routes in missing
        for finding in warning(
            f"VPC {vpc} has no gateway endpoint of {service} in {', '.join(routes)}: through a NAT "
            "each gigabyte costs $0.045 and more, and without one there is no way. One costs "
            "nothing: aws ec2 create-vpc-endpoint "
            f"--vpc-id {vpc} --service-name {gateway_name(service, region)} "
            f"--route-table-ids {' '.join(routes)}"
        )
    ]


def gateway_name(service: str, region: str) -> str:
    """Return the name of the gateway endpoint of S3 or DynamoDB: it begins so in China too.

    Names of interface endpoints begin otherwise there, for some services.

    >>> gateway_name("dynamodb", "cn-north-1")
    'com.amazonaws.cn-north-1.dynamodb'
    """
    return f"com.amazonaws.{region}.{service}"


def _leads_out(table: Mapping[str, Any], *, by: str = "") -> bool:
    return any(
        each.get("DestinationCidrBlock", each.get("DestinationIpv6CidrBlock")) in _EVERYWHERE
        and each.get("GatewayId", "").startswith(by)
        for each in table.get("Routes", ())
    )


# ---------------------------------------------------------------- stacks and resources
#
# Checks that what has the instance's names is the instance's, and can be deployed.


def check_stacks(stacks: DeployedStacks, found: Mapping[str, DeployedStack]) -> list[CheckResult]:
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
) -> list[CheckResult]:
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
    findings: list[CheckResult] = []
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
