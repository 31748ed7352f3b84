"""What an instance in AWS keeps of what was replaced or deleted, and what it lets nobody delete.

Stacks and `sleeper init` both take it from here, so that they make the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from sleeper.model.known_properties.cloud import CloudProperties
from sleeper.storage.aws.deployment.names import InstanceNames
from sleeper.storage.aws.deployment.table_index import (
    INDEX_TABLES,
    REVISION_TABLES,
    STATE_TABLES,
)
from sleeper.storage.aws.dynamo_tables import DynamoTable


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeping:
    """What is kept of buckets and tables.

    Attributes:
        old_days: How many days buckets of properties and tables keep objects that were replaced or
            deleted; 0 for none.
        recovered: Tables that can be restored to any second of the last 35 days.
        protected: Tables that DynamoDB refuses to delete, until that is switched off.
        by_stacks: Properties that were set, and that stacks alone obey.
    """

    old_days: int
    recovered: tuple[DynamoTable, ...]
    protected: tuple[DynamoTable, ...]
    by_stacks: tuple[str, ...] = ()

    @classmethod
    def of(cls, cloud: CloudProperties) -> Self:
        """Return what the properties of an instance say."""
        revisions = cloud.recovers_states or cloud.recovers_revisions
        wanted = (
            (INDEX_TABLES, cloud.recovers_index),
            (STATE_TABLES, cloud.recovers_states),
            (REVISION_TABLES, revisions),
        )
        protects = cloud.retains_data if cloud.protects_tables is None else cloud.protects_tables
        return cls(
            old_days=cloud.old_versions_days,
            recovered=tuple(each for tables, recovers in wanted if recovers for each in tables),
            protected=(*INDEX_TABLES, *STATE_TABLES, *REVISION_TABLES) if protects else (),
            by_stacks=tuple(
                name
                for name, given in (
                    ("sleeper.kms.key.arn", cloud.key_arn),
                    ("sleeper.access.logs.bucket", cloud.access_logs_bucket),
                )
                if given is not None
            ),
        )

    def days_in(self, bucket: str, names: InstanceNames) -> int:
        """Return how many days a bucket keeps what was replaced or deleted; 0 for none."""
        return self.old_days if bucket in (names.config_bucket, names.data_bucket) else 0
