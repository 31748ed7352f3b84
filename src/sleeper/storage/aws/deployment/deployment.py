"""What an instance in AWS is made of: buckets, tables in DynamoDB, and queues."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Final

from sleeper.errors import BadRequest, PropertiesInvalid
from sleeper.model.jobs.kinds import QueueName
from sleeper.model.jobs.messages import QueueSettings
from sleeper.model.known_properties import deployment as known
from sleeper.model.paths import INSTANCE_PROPERTIES
from sleeper.ports.ids import NewId
from sleeper.ports.objects import Belonging
from sleeper.storage.aws.clients import OWNER_TAG, aws_client, owner_tag_value, resource_prefix
from sleeper.storage.aws.deployment.belongings import AwsBelongings
from sleeper.storage.aws.deployment.buckets import InstanceBuckets
from sleeper.storage.aws.deployment.identity import AwsIdentity
from sleeper.storage.aws.deployment.keeping import Keeping
from sleeper.storage.aws.deployment.names import InstanceNames
from sleeper.storage.aws.deployment.table_index import ALL_TABLES, BY_ID, BY_NAME
from sleeper.storage.aws.dynamo_tables import DynamoTables
from sleeper.storage.aws.jobs.dynamo_tracker import QUERY_STATES
from sleeper.storage.aws.jobs.job_stores import AwsJobStores

logger = logging.getLogger(__name__)

_DEFAULTS: Final = {
    "sleeper.default.table.statestore.classname": "DynamoDBTransactionLogStateStore"
}
"""Properties that a new instance in AWS has, unless it is given others."""


@dataclass(frozen=True, slots=True)
class Deployment:
    """The resources of one instance in AWS. Their names follow from its id and the account.

    Attributes:
        names: The names of its buckets.
        region: The region.
        endpoint: URL of an S3 server that is not Amazon's; None for Amazon's own.
    """

    names: InstanceNames
    region: str
    endpoint: str | None

    @classmethod
    def of(cls, instance_id: str, identity: AwsIdentity, endpoint: str | None) -> Deployment:
        """Return the deployment of an instance in an account and a region."""
        return cls(InstanceNames(instance_id, identity.account), identity.region, endpoint)

    @property
    def url(self) -> str:
        """The URL of the instance."""
        return _url(self.names.instance_id)

    def properties(self) -> dict[str, str]:
        """Return the properties that name its resources, but for URLs of queues."""
        names, prefix = self.names, resource_prefix(self.names.instance_id)
        return {
            known.ACCOUNT: names.account,
            known.REGION: self.region,
            known.CONFIG_BUCKET: names.config_bucket,
            known.DATA_BUCKET: names.data_bucket,
            known.QUERY_RESULTS_BUCKET: names.query_results_bucket,
            known.BULK_IMPORT_BUCKET: names.bulk_import_bucket,
            known.BULK_EXPORT_BUCKET: names.bulk_export_bucket,
            known.NAME_INDEX: prefix + BY_NAME.name,
            known.ID_INDEX: prefix + BY_ID.name,
            known.QUERY_TRACKER: prefix + QUERY_STATES.name,
        }

    @staticmethod
    def defaults() -> dict[str, str]:
        """Return the properties that a new instance has, unless it is given others."""
        return dict(_DEFAULTS)

    def has_config_bucket(self) -> bool:
        """Return whether there is a bucket with the name of the bucket of properties."""
        return self._buckets().exists(self.names.config_bucket)

    def make(
        self,
        settings: Mapping[QueueName, QueueSettings],
        keeping: Keeping,
        *,
        now: Callable[[], datetime],
        sleep: Callable[[float], None],
        pause: Callable[[int], None],
        new_id: NewId,
    ) -> dict[str, str]:
        """Make all resources that are missing; return the properties with URLs of queues.

        What an interrupted call made is used.

        Args:
            settings: How queues deliver.
            keeping: What is kept of what is replaced or deleted.
            now: The clock (aware, UTC).
            sleep: Waits for so many seconds.
            pause: Waits before another attempt, with jitter, given how many there were.
            new_id: Makes an id that no other process uses.

        Raises:
            AlreadyExists: a bucket belongs to somebody else.
            PropertiesInvalid: a queue belongs to another instance, or properties want what stacks
                alone make.
            StorageFailed: something cannot be made.
        """
        buckets = self._buckets()
        if keeping.by_stacks and not self.has_config_bucket():
            raise PropertiesInvalid(
                {
                    name: f"{name} is obeyed by `sleeper deploy aws` alone, and this makes an "
                    "instance without stacks: deploy it, or leave the property out."
                    for name in keeping.by_stacks
                }
            )
        for bucket in self.names.buckets:  # before anything is made
            buckets.check(bucket)
        jobs = AwsJobStores(
            self.names.instance_id,
            self.url,
            settings,
            region=self.region,
            now=now,
            sleep=sleep,
            pause=pause,
            new_id=new_id,
        )
        urls: dict[str, str] = {}
        for name in QueueName:
            urls |= known.queue_url_properties(name, *jobs.queue(name).urls())
        for bucket in self.names.buckets:
            buckets.make(bucket)
            if days := keeping.days_in(bucket, self.names):
                buckets.keep_old_versions(bucket, days)
        tables = instance_tables(self.names.instance_id, self.region, pause=pause, new_id=new_id)
        tables.make(*ALL_TABLES, protected=keeping.protected)
        tables.keep_history(*keeping.recovered)
        logger.info("made the buckets, tables and queues of %s in %s", self.url, self.region)
        return urls

    def belongings(self, *, pause: Callable[[int], None]) -> list[Belonging]:
        """Return all resources that there are, in the order in which they are removed.

        The bucket of properties is last, and `instance.properties` in it: while that is there, or
        the bucket, this can be repeated.

        Args:
            pause: Waits before another attempt, given how many there were.

        Raises:
            BadRequest: a bucket with a name of the instance's does not belong to it.
            StorageFailed: there is no answer.
        """
        buckets, config = self._buckets(), self.names.config_bucket
        tags = {bucket: buckets.owner_tag(bucket) for bucket in self.names.buckets}
        for bucket, tag in tags.items():
            if tag not in (None, owner_tag_value(self.url)):
                raise BadRequest(
                    f"nothing was removed: bucket {bucket} does not belong to {self.url}. It "
                    f"{f'belongs to {tag}' if tag else f'has no tag {OWNER_TAG}'}. If it is this "
                    f"instance's, set its tag {OWNER_TAG} to {self.url}; else rename or delete it."
                )
        aws = AwsBelongings(self.names.instance_id, self.url, region=self.region, pause=pause)
        tables = aws.tables()
        index = (each for each in tables if each.name.endswith((BY_ID.name, BY_NAME.name)))
        of_index = list(index)
        of_buckets = [
            Belonging(
                "bucket",
                bucket,
                buckets.count(bucket),
                "objects",
                partial(_remove, buckets, bucket),
            )
            for bucket, tag in tags.items()
            if tag is not None
        ]
        last = [each for each in of_buckets if each.name == config]
        others = [each for each in of_buckets if each.name != config]
        tables = [each for each in tables if each not in of_index]
        return [*aws.queues(), *tables, *others, *of_index, *last]

    def check(self, values: Mapping[str, str]) -> None:
        """Check that properties, as they are stored, name this instance and its resources.

        Raises:
            PropertiesInvalid: they do not; lists every failure.
        """
        wanted = {"sleeper.id": self.names.instance_id, **self.properties()}
        where = f"s3://{self.names.config_bucket}/instance.properties"
        failures = {
            name: f"{name} is {values.get(name, '')!r:.100} in {where}, but it must be {right!r}: "
            f"{_reason(name)}"
            for name, right in wanted.items()
            if values.get(name, "").strip() != right
        }
        if failures:
            raise PropertiesInvalid(failures)

    def _buckets(self) -> InstanceBuckets:
        return InstanceBuckets(aws_client("s3", self.region, self.endpoint), self.url)


def instance_tables(
    instance_id: str, region: str | None, *, pause: Callable[[int], None], new_id: NewId
) -> DynamoTables:
    """Return the tables of an instance in DynamoDB.

    Args:
        instance_id: Its id.
        region: The region of AWS; None for the one that boto3 finds.
        pause: Waits before another attempt, with jitter, given how many there were.
        new_id: Makes an id that no other process uses.
    """
    return DynamoTables(
        partial(aws_client, "dynamodb", region),
        resource_prefix(instance_id),
        pause=pause,
        new_id=new_id,
        owner=_url(instance_id),
    )


def _remove(buckets: InstanceBuckets, bucket: str) -> None:
    buckets.empty(bucket, last=INSTANCE_PROPERTIES)
    buckets.delete(bucket)


def _url(instance_id: str) -> str:
    return f"aws://{instance_id}"


def _reason(name: str) -> str:
    if name == "sleeper.id":
        return "the bucket is that of another instance. Use that one's id, or choose another."
    if name == known.REGION:
        return "set AWS_REGION to the region of the instance."
    return "its name follows from the instance's id and account. Correct the line in that file."
