"""Names and ARNs of what a deployment makes. All follow from the id, the account and the region."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from sleeper.model.aws_partitions import PARTITIONS, AwsPartition, partition_of
from sleeper.model.jobs.kinds import QUEUES, QueueName
from sleeper.model.stacks import StackName
from sleeper.storage.aws.clients import resource_prefix
from sleeper.storage.aws.deployment.names import InstanceNames
from sleeper.storage.aws.dynamo_tables import DynamoTable
from sleeper.storage.aws.jobs.sqs_calls import SqsNames, sqs_names

PROPERTIES_WRITER: Final = "properties-writer"
"""The function that writes the properties that templates have."""

PROPERTIES_TYPE: Final = "Custom::SleeperProperties"
"""The type of a resource that is properties of the instance."""

RETAIN: Final = "sleeper.retain.infra.after.destroy"
"""The property that keeps buckets and tables when an instance is destroyed."""


@dataclass(frozen=True, slots=True)
class OperationNames:
    """An operation on every online table, which a stack runs. Its queues have upstream's names.

    Attributes:
        name: What handlers call it.
        function: The name of its function, after the instance's prefix.
        in_sqs: The names of its queue, with a message for each table, and of that of its dead
            letters, after the prefix.
    """

    name: str
    function: str
    in_sqs: tuple[str, str]

    @property
    def trigger(self) -> str:
        """The name of the function that sends the messages, after the instance's prefix."""
        return f"{self.function}-trigger"


TABLE_OPERATIONS: Final[Mapping[StackName, OperationNames]] = {
    StackName.GARBAGE: OperationNames(
        "collect", "garbage-collector", ("GCJobQ.fifo", "GCJobDLQ.fifo")
    ),
    StackName.SPLITTING: OperationNames(
        "split",
        "partition-splitter",
        ("FindPartitionsToSplitQ.fifo", "FindPartitionsToSplitDLQ.fifo"),
    ),
    StackName.METRICS: OperationNames(
        "measure", "table-metrics", ("MetricsJobQ.fifo", "MetricsJobDLQ.fifo")
    ),
}
"""The operations, by the stacks that run them."""


@dataclass(frozen=True, slots=True)
class DeployedNames:
    """Names and ARNs of one instance's resources.

    >>> DeployedNames("Demo", "123456789012", "eu-west-2").function("query")
    'sleeper-demo-query'

    Attributes:
        instance_id: Its id.
        account: The number of its AWS account.
        region: Its region.
    """

    instance_id: str
    account: str
    region: str

    @property
    def url(self) -> str:
        """The URL of the instance."""
        return f"aws://{self.instance_id}"

    @property
    def partition(self) -> str:
        """The part of AWS that the region is in, with which ARNs begin."""
        return self._part.name

    @property
    def domain(self) -> str:
        """The domain of AWS in the region."""
        return self._part.domain

    @property
    def registry(self) -> str:
        """The host of the account's registry of images."""
        return f"{self.account}.dkr.ecr.{self.region}.{self.domain}"

    @property
    def prefix(self) -> str:
        """What all names begin with."""
        return resource_prefix(self.instance_id)

    @property
    def buckets(self) -> InstanceNames:
        """The names of its buckets."""
        return InstanceNames(self.instance_id, self.account)

    def bucket_arns(self, bucket: str) -> tuple[str, str]:
        """Return the ARN of a bucket, and that of its objects."""
        arn = f"arn:{self.partition}:s3:::{bucket}"
        return arn, f"{arn}/*"

    def named(self, what: str) -> str:
        """Return the name of a function, a role, a rule or any other thing."""
        return self.prefix + what

    def queues(self, name: QueueName) -> SqsNames:
        """Return the names of the queue of a kind of jobs, and of its dead letters."""
        return sqs_names(self.prefix, name, fifo=QUEUES[name].fifo)

    def queue(self, name: QueueName) -> str:
        """Return the name of the queue of a kind of jobs."""
        return self.queues(name).queue

    def dead_letters(self, name: QueueName) -> str:
        """Return the name of the queue of their dead letters."""
        return self.queues(name).dead

    def operation_queues(self, operation: OperationNames) -> SqsNames:
        """Return the names of the queue of an operation on tables, and of its dead letters."""
        queue, dead = operation.in_sqs
        return SqsNames(self.prefix + queue, self.prefix + dead)

    def queue_url(self, queue: str) -> str:
        """Return the URL of a queue by its name."""
        return f"https://sqs.{self.region}.{self.domain}/{self.account}/{queue}"

    def table(self, table: DynamoTable) -> str:
        """Return the full name of a table in DynamoDB."""
        return self.prefix + table.name

    def arn(self, service: str, resource: str, *, region: bool = True) -> str:
        """Return an ARN in the account: `arn("sqs", "sleeper-demo-IngestJobQ")`."""
        where = self.region if region else ""
        return f"arn:{self.partition}:{service}:{where}:{self.account}:{resource}"

    def queue_arn(self, queue: str) -> str:
        """Return the ARN of a queue by its name."""
        return self.arn("sqs", queue)

    def table_arns(self, table: DynamoTable) -> tuple[str, ...]:
        """Return the ARN of a table in DynamoDB, and that of its indexes, if it has any."""
        arn = self.arn("dynamodb", f"table/{self.table(table)}")
        return (arn, f"{arn}/index/*") if table.indexes else (arn,)

    def function_arn(self, what: str) -> str:
        """Return the ARN of a function."""
        return self.arn("lambda", f"function:{self.named(what)}")

    def role_arn(self, what: str) -> str:
        """Return the ARN of a role."""
        return self.arn("iam", f"role/{self.named(what)}", region=False)

    def policy_arn(self, what: str) -> str:
        """Return the ARN of a policy."""
        return self.arn("iam", f"policy/{self.named(what)}", region=False)

    def function(self, what: str) -> str:
        """Return the name of a function."""
        return self.named(what)

    def stack(self, stack: StackName) -> str:
        """Return the name of a stack."""
        return self.prefix + stack

    @property
    def _part(self) -> AwsPartition:
        return partition_of(self.region) or PARTITIONS[0]


_IN_CHINA: Final = ".cn"
_OLD_NAMES: Final = ("ec2", "elasticmapreduce")
"""Services that had another name in China before all got `SERVICE.amazonaws.com` everywhere."""


def service_principals(service: str, domain: str) -> tuple[str, ...]:
    """Return the names by which a service of AWS takes roles, where AWS has that domain.

    A role trusts the first; who may pass roles on may pass them to each.

    >>> service_principals("ec2", "amazonaws.com.cn")
    ('ec2.amazonaws.com', 'ec2.amazonaws.com.cn')
    >>> service_principals("lambda", "amazonaws.com.cn")
    ('lambda.amazonaws.com',)
    """
    name = f"{service}.amazonaws.com"
    is_two = domain.endswith(_IN_CHINA) and service in _OLD_NAMES
    return (name, name + _IN_CHINA) if is_two else (name,)
