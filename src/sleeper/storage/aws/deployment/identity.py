"""The AWS account and the region that this process works in."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from sleeper.storage.aws.clients import aws_client, aws_failure, vendor_errors


@dataclass(frozen=True, slots=True)
class AwsIdentity:
    """Whose resources this process uses.

    Attributes:
        account: The number of the account.
        region: The region.
    """

    account: str
    region: str


def aws_identity(region: str | None) -> AwsIdentity:
    """Return account and region of this process's credentials; asks STS once in a process.

    Args:
        region: The region; None for the one that boto3 finds.

    Raises:
        MissingExtra: boto3 is not installed.
        StorageFailed: there are no valid credentials, or no answer.
    """
    return _identity_of(aws_client("sts", region))


def configured_region() -> str | None:
    """Return the region that boto3 finds in the environment or its files; None for none.

    Raises:
        MissingExtra: boto3 is not installed.
    """
    aws_client("sts")  # raises where boto3 is missing
    import boto3  # noqa: PLC0415 - an extra, and slow to import

    found: str | None = boto3.session.Session().region_name
    return found


@lru_cache(maxsize=8)
def _identity_of(client: Any) -> AwsIdentity:
    try:
        account = client.get_caller_identity()["Account"]
    except vendor_errors() as error:
        raise aws_failure(
            error,
            "find out",
            "the AWS account of these credentials",
            writes=False,
            permission="sts:GetCallerIdentity",
        ) from error
    return AwsIdentity(str(account), str(client.meta.region_name))
