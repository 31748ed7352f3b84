"""What functions, tasks and users of an instance may do: actions and the resources they are for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from sleeper.deploy.names import DeployedNames
from sleeper.model.jobs.kinds import URGENT, JobKind, QueueName
from sleeper.model.paths import INSTANCE_PROPERTIES, PROPERTIES_VERSIONS
from sleeper.storage.aws.deployment.table_index import INDEX_TABLES, REVISION_TABLES, STATE_TABLES
from sleeper.storage.aws.dynamo_tables import DynamoTable
from sleeper.storage.aws.jobs.dynamo_tracker import (
    BATCHER_JOBS,
    QUERY_STATES,
    SUBMITTED_FILES,
    job_lookup,
    job_updates,
    task_status,
)

_READ_ITEMS: Final = (
    "BatchGetItem",
    "DescribeTable",
    "DescribeTimeToLive",
    "GetItem",
    "Query",
    "Scan",
)
_WRITE_ITEMS: Final = (
    "BatchWriteItem",
    "ConditionCheckItem",
    "DeleteItem",
    "PutItem",
    "UpdateItem",
)
_TO_FIND: Final = ("GetQueueAttributes", "GetQueueUrl", "ListQueueTags")
_TO_CONSUME: Final = ("ChangeMessageVisibility", "DeleteMessage", "ReceiveMessage")


@dataclass(frozen=True, slots=True)
class Grant:
    """A statement of a policy that allows something.

    Attributes:
        actions: What is allowed, such as `s3:GetObject`.
        resources: On what.
        conditions: When, as policies of IAM say it; None for always.
        denies: Whether it forbids that instead, whatever other statements allow.
    """

    actions: tuple[str, ...]
    resources: tuple[str, ...]
    conditions: Mapping[str, Mapping[str, str | list[str]]] | None = None
    denies: bool = False


def read_bucket(names: DeployedNames, *buckets: str) -> tuple[Grant, ...]:
    """Allow to list buckets and to read their objects."""
    whole, objects = zip(*map(names.bucket_arns, buckets), strict=True)
    return (
        Grant(("s3:GetBucketLocation", "s3:ListBucket"), whole),
        Grant(("s3:GetObject",), objects),
    )


def write_bucket(names: DeployedNames, *buckets: str) -> tuple[Grant, ...]:
    """Allow to read, write and delete the objects of buckets, but not the buckets."""
    objects = tuple(names.bucket_arns(bucket)[1] for bucket in buckets)
    actions = ("AbortMultipartUpload", "DeleteObject", "ListMultipartUploadParts", "PutObject")
    return (*read_bucket(names, *buckets), Grant(_of("s3", actions), objects))


def delete_versions(names: DeployedNames, *buckets: str) -> tuple[Grant, ...]:
    """Allow to delete for good what buckets keep of objects that were replaced or deleted."""
    whole, objects = zip(*map(names.bucket_arns, buckets), strict=True)
    return (
        Grant(("s3:GetBucketVersioning", "s3:ListBucketVersions"), whole),
        Grant(("s3:DeleteObjectVersion",), objects),
    )


def read_sources(names: DeployedNames, buckets: Iterable[str]) -> tuple[Grant, ...]:
    """Allow to read the files of jobs, in buckets that are not the instance's."""
    given = tuple(buckets)
    return read_bucket(names, *given) if given else ()


def read_items(names: DeployedNames, *tables: DynamoTable) -> tuple[Grant, ...]:
    """Allow to read tables in DynamoDB."""
    return (Grant(_of("dynamodb", _READ_ITEMS), _arns(names, tables)),)


def write_items(names: DeployedNames, *tables: DynamoTable) -> tuple[Grant, ...]:
    """Allow to read and write the items of tables in DynamoDB, but not the tables."""
    return (Grant(_of("dynamodb", (*_READ_ITEMS, *_WRITE_ITEMS)), _arns(names, tables)),)


def open_instance(names: DeployedNames) -> tuple[Grant, ...]:
    """Allow to open the instance and its tables."""
    return (
        *read_bucket(names, names.buckets.config_bucket),
        *read_items(names, *INDEX_TABLES),
    )


def read_tables(names: DeployedNames) -> tuple[Grant, ...]:
    """Allow to open the instance, and to read the rows of all tables."""
    return (
        *open_instance(names),
        *read_bucket(names, names.buckets.data_bucket),
        *read_items(names, *STATE_TABLES, *REVISION_TABLES),
    )


def read_states(names: DeployedNames) -> tuple[Grant, ...]:
    """Allow to open the instance, and to read logs and states of tables, but no rows."""
    bucket, _ = names.bucket_arns(names.buckets.data_bucket)
    states = tuple(f"{bucket}/*/{folder}/*" for folder in ("statestore", "states"))
    return (
        *open_instance(names),
        Grant(("s3:GetBucketLocation", "s3:ListBucket"), (bucket,)),
        Grant(("s3:GetObject",), states),
        *read_items(names, *STATE_TABLES, *REVISION_TABLES),
    )


def read_files_beside_tables(names: DeployedNames) -> tuple[Grant, ...]:
    """Allow to read files that somebody put into the bucket of tables, but no rows of tables."""
    bucket, _ = names.bucket_arns(names.buckets.data_bucket)
    rows = Grant(("s3:GetObject",), (f"{bucket}/*/data/partition_*",), denies=True)
    return (*read_bucket(names, names.buckets.data_bucket), rows)


def write_tables(names: DeployedNames) -> tuple[Grant, ...]:
    """Allow to open the instance, and to add, change and delete the rows of all tables."""
    return (
        *open_instance(names),
        *write_bucket(names, names.buckets.data_bucket),
        *write_items(names, *STATE_TABLES, *REVISION_TABLES),
    )


def look_for_work(names: DeployedNames) -> tuple[Grant, ...]:
    """Allow to see whether tables have changed, and to note how far that was seen."""
    notes = f"{names.bucket_arns(names.buckets.config_bucket)[0]}/services/notes/*"
    return (*read_states(names), Grant(("s3:PutObject",), (notes,)))


def write_properties(names: DeployedNames) -> tuple[Grant, ...]:
    """Allow to read and change the properties of the instance, and nothing else of it."""
    bucket, _ = names.bucket_arns(names.buckets.config_bucket)
    objects = tuple(f"{bucket}/{key}" for key in (INSTANCE_PROPERTIES, f"{PROPERTIES_VERSIONS}*"))
    return (
        # Who may not list a bucket is not told that an object is missing, but is refused.
        Grant(("s3:GetBucketLocation", "s3:ListBucket"), (bucket,)),
        Grant(("s3:GetObject", "s3:PutObject"), objects),
    )


def track(names: DeployedNames, *kinds: JobKind) -> tuple[Grant, ...]:
    """Allow to record what becomes of jobs of some kinds, and to read it."""
    queries = (QUERY_STATES,) if JobKind.QUERY in kinds else ()
    tables = [table(kind) for kind in kinds for table in (job_updates, job_lookup, task_status)]
    return write_items(names, *tables, *queries)


def batch(names: DeployedNames) -> tuple[Grant, ...]:
    """Allow to add and take files of the batcher."""
    return write_items(names, SUBMITTED_FILES, BATCHER_JOBS)


def send(names: DeployedNames, *queues: QueueName) -> tuple[Grant, ...]:
    """Allow to send messages to queues, and to call the functions of those that are urgent."""
    urgent = [names.function(URGENT[each]) for each in queues if each in URGENT]
    sent = send_to(names, *map(names.queue, queues))
    return (*sent, call(names, *urgent)) if urgent else sent


def call(names: DeployedNames, *functions: str) -> Grant:
    """Allow to call functions with these names."""
    arns = tuple(names.arn("lambda", f"function:{each}") for each in functions)
    return Grant(("lambda:InvokeFunction",), arns)


def send_to(names: DeployedNames, *queues: str) -> tuple[Grant, ...]:
    """Allow to send messages to queues with these names."""
    return (Grant(_of("sqs", (*_TO_FIND, "SendMessage")), tuple(map(names.queue_arn, queues))),)


def look_at(names: DeployedNames, *queues: QueueName) -> tuple[Grant, ...]:
    """Allow to count the messages of queues and their dead letters."""
    named = [each(queue) for queue in queues for each in (names.queue, names.dead_letters)]
    return (Grant(_of("sqs", _TO_FIND), tuple(map(names.queue_arn, named))),)


def consume(names: DeployedNames, *queues: QueueName) -> tuple[Grant, ...]:
    """Allow to take the messages of queues, to send them again, and to bury them."""
    dead = [names.queue_arn(names.dead_letters(queue)) for queue in queues]
    taken = [names.queue_arn(names.queue(queue)) for queue in queues]
    actions = (*_TO_FIND, *_TO_CONSUME, "SendMessage")
    return (
        Grant(_of("sqs", actions), tuple(taken)),
        Grant(_of("sqs", (*_TO_FIND, "SendMessage")), tuple(dead)),
    )


def consume_from(names: DeployedNames, *queues: str) -> tuple[Grant, ...]:
    """Allow to take the messages of queues with these names."""
    return (Grant(_of("sqs", (*_TO_FIND, *_TO_CONSUME)), tuple(map(names.queue_arn, queues))),)


def administer_queues(names: DeployedNames) -> tuple[Grant, ...]:
    """Allow to send, take, count and move all messages and dead letters."""
    actions = (*_TO_FIND, *_TO_CONSUME, "PurgeQueue", "SendMessage")
    return (Grant(_of("sqs", actions), (names.queue_arn(f"{names.prefix}*"),)),)


def call_functions(names: DeployedNames) -> tuple[Grant, ...]:
    """Allow to call all functions, and to stop and start their schedules."""
    functions, rules = names.function_arn("*"), names.arn("events", f"rule/{names.prefix}*")
    return (
        Grant(("lambda:InvokeFunction",), (functions,)),
        Grant(_of("events", ("DescribeRule", "DisableRule", "EnableRule")), (rules,)),
    )


_ENCRYPTED: Final = ("dynamodb", "s3", "sqs")


def use_key(grants: Iterable[Grant], key: str) -> tuple[Grant, ...]:
    """Allow to use the key that encrypts what grants are on, by these services alone.

    Args:
        grants: What is allowed beside.
        key: The ARN of the key.
    """
    region, account = key.split(":")[3:5]
    names = DeployedNames("", account, region)
    used = {action.partition(":")[0] for grant in grants for action in grant.actions}
    through = [f"{each}.{names.region}.{names.domain}" for each in _ENCRYPTED if each in used]
    if not through:
        return ()
    when = {"StringEquals": {"kms:ViaService": through}}
    return (Grant(("kms:Decrypt", "kms:GenerateDataKey"), (key,), when),)


def _of(service: str, actions: Iterable[str]) -> tuple[str, ...]:
    return tuple(f"{service}:{action}" for action in sorted(actions))


def _arns(names: DeployedNames, tables: Iterable[DynamoTable]) -> tuple[str, ...]:
    return tuple(arn for table in tables for arn in names.table_arns(table))
