"""Checks what belongs to the account: its region and its quotas."""

from __future__ import annotations

from typing import Final

from sleeper.deploy.flow.checks.findings import Finding, ok, warning
from sleeper.storage.aws.clients import aws_client
from sleeper.storage.aws.deployment.identity import AwsIdentity, aws_identity

_QUOTAS: Final = {False: "L-3032A538", True: "L-36FBB829"}
"""Codes of the quotas of Fargate's processors: on demand, and spot."""


def check_account(account: str, region: str) -> list[Finding]:
    """Say which account and region are used."""
    return ok(f"account {account}, region {region}")


def identity_of(region: str | None) -> AwsIdentity:
    """Return the account and the region of these credentials.

    Raises:
        StorageFailed: there are no valid credentials.
    """
    return aws_identity(region)


def check_vcpus(wanted: float, region: str, *, is_spot: bool) -> list[Finding]:
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
