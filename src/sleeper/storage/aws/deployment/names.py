"""Names of an instance's buckets in AWS: those of upstream."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sleeper.errors import UrlInvalid

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
