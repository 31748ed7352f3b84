"""Names of an instance's buckets in AWS: those of upstream."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from sleeper.errors import UrlInvalid
from sleeper.storage.aws.clients import aws_client, aws_failure, vendor_errors

_ID = re.compile("[A-Za-z0-9](?:[A-Za-z0-9.-]{0,18}[A-Za-z0-9])?")


@dataclass(frozen=True, slots=True)
class InstanceNames:
    """The names of an instance's buckets. They follow from its id and the account.

    >>> InstanceNames("Demo.2", "123456789012").config_bucket
    'sleeper-demo-2-config-123456789012'

    Attributes:
        instance_id: Its id.
        account: The number of its AWS account.
    """

    instance_id: str
    account: str

    @property
    def config_bucket(self) -> str:
        """Return the bucket of properties, by which upstream's clients find the instance."""
        return self._bucket("config")

    @property
    def data_bucket(self) -> str:
        """Return the bucket of tables."""
        return self._bucket("table-data")

    @property
    def query_results_bucket(self) -> str:
        """Return the bucket of results of queries that came from a queue."""
        return self._bucket("query-results")

    @property
    def bulk_import_bucket(self) -> str:
        """Return the bucket of bulk import jobs that run on a cluster."""
        return self._bucket("bulk-import")

    @property
    def bulk_export_bucket(self) -> str:
        """Return the bucket of exports that came from a queue."""
        return self._bucket("bulk-export-results")

    @property
    def buckets(self) -> tuple[str, ...]:
        """Return all of them; the one of properties is last."""
        return (
            self.data_bucket,
            self.query_results_bucket,
            self.bulk_import_bucket,
            self.bulk_export_bucket,
            self.config_bucket,
        )

    def _bucket(self, of: str) -> str:
        cleaned = self.instance_id.lower().replace(".", "-")
        return f"sleeper-{cleaned}-{of}-{self.account}"


def is_instance_id(text: str) -> bool:
    """Return whether an instance in AWS can have this id (rule INS-1)."""
    return _ID.fullmatch(text) is not None


def instance_id_of(url: str) -> str:
    """Return the id in the URL of an instance in AWS.

    >>> instance_id_of("aws://demo")
    'demo'

    Raises:
        UrlInvalid: it is not the id of an instance (rule INS-1).
    """
    instance_id = url.partition("://")[2].removesuffix("/")
    if not is_instance_id(instance_id):
        raise UrlInvalid(
            f"{url!r:.100} does not name an instance in AWS: write aws:// and an id of at most 20 "
            "letters from a to z, digits, dots and dashes, such as aws://demo"
        )
    return instance_id


# ---------------------------------------------------------------- identity
#
# The AWS account and the region that this process works in.


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
