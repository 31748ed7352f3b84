"""Checks the VPC and the subnets that workers run in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sleeper.deploy.flow.checks.findings import Finding, failure, ok, warning
from sleeper.storage.aws.clients import aws_client
from sleeper.storage.aws.failures import error_code, vendor_errors

_NO_VPC: Final = ("InvalidVpcID.NotFound", "NotFound")
_NO_SUBNET: Final = ("InvalidSubnetID.NotFound", "NotFound", "InvalidSubnetID.Malformed")
_EVERYWHERE: Final = ("0.0.0.0/0", "::/0")


def check_network(vpc: str, subnets: Sequence[str], region: str) -> list[Finding]:
    """Check that the VPC and the subnets exist, belong together, and reach the services of AWS."""
    client = aws_client("ec2", region)
    if not _exists(client, vpc):
        return failure(f"sleeper.vpc is {vpc}, but there is no such VPC in {region}")
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
    return [*ok(f"VPC {vpc} has the subnets {', '.join(subnets)}"), *_routes(client, vpc, found)]


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


def _routes(client: Any, vpc: str, subnets: Mapping[str, Mapping[str, Any]]) -> list[Finding]:
    """Warn of subnets from which a task reaches neither ECR nor SQS."""
    tables = client.describe_route_tables(Filters=[{"Name": "vpc-id", "Values": [vpc]}])
    by_subnet: dict[str, Mapping[str, Any]] = {}
    main: Mapping[str, Any] = {}
    for table in tables["RouteTables"]:
        for each in table.get("Associations", ()):
            if each.get("Main"):
                main = table
            if "SubnetId" in each:
                by_subnet[each["SubnetId"]] = table
    closed = [name for name in subnets if not _leads_out(by_subnet.get(name, main))]
    if closed:
        return warning(
            f"subnets {', '.join(closed)} have no route to the internet (an internet gateway or "
            "a NAT). Workers need one, or VPC endpoints for ECR, SQS, DynamoDB, S3, STS and "
            "CloudWatch Logs"
        )
    return []


def _leads_out(table: Mapping[str, Any]) -> bool:
    return any(
        each.get("DestinationCidrBlock", each.get("DestinationIpv6CidrBlock")) in _EVERYWHERE
        for each in table.get("Routes", ())
    )
