"""Properties of a deployment to AWS: what its stacks are made with. Most names are upstream's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sleeper.model.known_properties.value_kinds import (
    BOOLEAN,
    KEY_ARN,
    LAMBDA_TIMEOUT,
    LOG_DAYS,
    NOT_NEGATIVE,
    POSITIVE,
    QUEUE_BATCH,
    TAGS,
    TEXT,
    list_of,
    matching,
    one_of,
    setting,
    whole,
)
from sleeper.model.stacks import DEFAULT_STACKS, OPTIONAL_STACKS, STACKS_OF_OTHERS

_STACKS: Final = list_of(
    one_of(*OPTIONAL_STACKS, *STACKS_OF_OTHERS),
    "a list of optional stacks, such as IngestStack,CompactionStack",
)
ARCHITECTURE: Final = one_of("X86_64", "ARM64")
_LAMBDA_MB: Final = whole(128, 10_240, "a whole number of megabytes from 128 to 10240")
_RESERVED: Final = whole(0, 1_000, "a whole number from 0 to 1000")
_AT_ONCE: Final = whole(2, 1_000, "a whole number from 2 to 1000")


_VPC: Final = matching("vpc-[0-9a-f]{8,17}", "the id of a VPC, such as vpc-0a1b2c3d")
_SUBNETS: Final = list_of(
    matching("subnet-[0-9a-f]{8,17}", ""), "a list of ids of subnets, such as subnet-0a1b2c3d"
)
_BUCKET: Final = matching("[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]", "the name of a bucket")
_BUCKETS: Final = list_of(_BUCKET, "a list of names of buckets")
_REPOSITORIES: Final = matching(
    "[a-z0-9]+(?:[._/-][a-z0-9]+)*", "the beginning of names of repositories in ECR"
)
_IMAGE_TAG: Final = matching("[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}", "the tag of an image")
_IMAGE: Final = matching(
    r"(?:(?:[A-Za-z0-9-]+\.[A-Za-z0-9.-]+|localhost)(?::[0-9]+)?/)?"
    r"[a-z0-9]+(?:(?:[._/]|__|-+)[a-z0-9]+)*"
    r"(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}|@sha256:[0-9a-f]{64})",
    "the address of an image with a tag or a digest, such as sleeper/worker:1.0",
)
_EMAIL: Final = matching(r"[^@\s,]+@[^@\s,]+", "an email address")
_TOPIC: Final = matching(
    "arn:aws[a-z-]*:sns:[a-z0-9-]+:[0-9]{12}:[A-Za-z0-9_-]{1,256}",
    "the ARN of a standard topic of SNS",
)
_TAG_NAME: Final = matching("[A-Za-z0-9 _.:/=+@-]{1,128}", "the name of a tag")
_BOUNDARY: Final = matching("arn:aws[a-z-]*:iam::[0-9]{12}:policy/.+", "the ARN of a policy of IAM")


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudProperties:
    """What all stacks share."""

    optional_stacks: tuple[str, ...] = setting(
        "optional.stacks", ",".join(DEFAULT_STACKS), _STACKS, "Parts that are deployed."
    )
    vpc: str | None = setting("vpc", None, _VPC, "VPC of tasks and clusters.")
    in_vpc: bool = setting(
        "deploy.in.vpc",
        "false",
        BOOLEAN,
        "Whether functions and EMR Serverless run in that VPC too. They have no public address "
        "there: subnets need a NAT, or the VPC endpoints for all that they use.",
        since="ours",
    )
    subnets: tuple[str, ...] | None = setting(
        "subnets", None, _SUBNETS, "Subnets of tasks and clusters, all in that VPC."
    )
    repositories: str = setting(
        "ecr.repository.prefix",
        "sleeper",
        _REPOSITORIES,
        "Beginning of the names of the repositories in ECR that have the images: "
        "<prefix>/worker and <prefix>/spark.",
    )
    version: str | None = setting(
        "version",
        None,
        _IMAGE_TAG,
        "Tag of the images; the version of Sleeper that deploys, if none is set.",
    )
    function_image: str | None = setting(
        "image.functions",
        None,
        _IMAGE,
        "Image of functions, by a tag or a digest: a single image for their processor, in ECR of "
        "the region. Without a host it is in the account's. <prefix>/worker:<version> if not set.",
        since="ours",
    )
    task_image: str | None = setting(
        "image.tasks",
        None,
        _IMAGE,
        "Image of workers on Fargate, by a tag or a digest: an index may have several processors. "
        "<prefix>/worker:<version> if not set.",
        since="ours",
    )
    source_buckets: tuple[str, ...] | None = setting(
        "ingest.source.bucket",
        None,
        _BUCKETS,
        "Buckets that workers and clusters of a deployment may read files of jobs from.",
    )
    alarm_minutes: int = setting(
        "deploy.alarm.message.age.minutes",
        "60",
        POSITIVE,
        "A message that waits for longer raises an alarm.",
        since="ours",
    )
    tags: dict[str, str] | None = setting(  # noqa: RUF009 - a field, as all settings are
        "tags", None, TAGS, "Tags of all AWS resources."
    )
    stack_tag: str = setting(
        "stack.tag.name",
        "DeploymentStack",
        _TAG_NAME,
        "Name of the tag that says by which stack a resource was deployed.",
    )
    retains_data: bool = setting(
        "retain.infra.after.destroy",
        "true",
        BOOLEAN,
        "Buckets and tables in DynamoDB stay when their stack is deleted.",
    )
    retains_logs: bool = setting(
        "retain.logs.after.destroy", "true", BOOLEAN, "Logs stay when their stack is deleted."
    )
    log_days: int = setting(
        "log.retention.days", "30", LOG_DAYS, "How long AWS keeps logs; -1 is without limit."
    )
    errors_email: str | None = setting(
        "errors.email", None, _EMAIL, "Who is told of dead letters, failures and old messages."
    )
    alarms_topic: str | None = setting(
        "alarms.topic.arn",
        None,
        _TOPIC,
        "Topic of SNS that alarms and failures are sent to, in place of one that is made. Its "
        "policy must allow cloudwatch.amazonaws.com and events.amazonaws.com to publish.",
        since="ours",
    )
    look_minutes: int = setting(
        "alarms.look.period.minutes",
        "10",
        whole(1, 360, "a whole number of minutes from 1 to 360"),
        "How often it is looked for dead letters and for messages that wait too long.",
        since="ours",
    )
    tasks_alarm: int | None = setting(
        "alarms.running.tasks",
        None,
        POSITIVE,
        "More tasks of workers at once than this raise an alarm; none without it.",
        since="ours",
    )
    budget_dollars: int | None = setting(
        "budget.usd.per.month",
        None,
        POSITIVE,
        "Dollars that the instance may cost in a month: where 80 or 100 percent of them are "
        "spent, or are forecast to be, the topic of alarms hears. Nothing is stopped. Costs are "
        "found by the tag sleeper.instance.url, which must be activated as a cost allocation tag.",
        since="ours",
    )
    boundary: str | None = setting(
        "deploy.permissions.boundary",
        None,
        _BOUNDARY,
        "Policy that limits what any role of the deployment can do.",
        since="ours",
    )
    key_arn: str | None = setting(
        "kms.key.arn",
        None,
        KEY_ARN,
        "Your key of KMS, which encrypts what a deployment stores: buckets, tables in DynamoDB, "
        "queues, alarms, logs, disks of tasks and job runs, variables of functions, and secrets of "
        "EKS. Amazon's own keys do, if none is set.",
        since="ours",
    )
    access_logs_bucket: str | None = setting(
        "access.logs.bucket",
        None,
        _BUCKET,
        "Your bucket, to which S3 writes who reads and writes the instance's buckets.",
        since="ours",
    )
    recovers_index: bool = setting(
        "tables.index.dynamo.pointintimerecovery",
        "true",
        BOOLEAN,
        "The table index can be restored to any second of the last 35 days.",
    )
    recovers_states: bool = setting(
        "statestore.dynamo.pointintimerecovery",
        "true",
        BOOLEAN,
        "So can logs and states in DynamoDB.",
    )
    recovers_revisions: bool = setting(
        "statestore.s3.dynamo.pointintimerecovery",
        "true",
        BOOLEAN,
        "So can the revisions of states in S3.",
    )
    old_versions_days: int = setting(
        "deploy.old.versions.days",
        "7",
        NOT_NEGATIVE,
        "How long the buckets of properties and tables keep objects that were replaced or "
        "deleted; 0 keeps none.",
        since="ours",
    )
    protects_tables: bool | None = setting(
        "deploy.deletion.protection",
        None,
        BOOLEAN,
        "DynamoDB refuses to delete tables of records, logs and states; if it is not set, as "
        "sleeper.retain.infra.after.destroy says.",
        since="ours",
    )
    dashboard_minutes: int = setting(
        "dashboard.time.window.minutes", "5", POSITIVE, "Window of the dashboard."
    )
    metrics_minutes: int = setting(
        "deploy.table.metrics.period.minutes",
        "5",
        POSITIVE,
        "How often tables are measured.",
        since="ours",
    )
    metrics_namespace: str = setting(
        "cloudwatch.table.metrics.namespace", "Sleeper", TEXT, "Namespace of metrics."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskProperties:
    """Workers on Fargate."""

    spot: bool = setting(
        "fargate.spot",
        "false",
        BOOLEAN,
        "Tasks run on spare capacity, for less money: AWS may stop one at any time, and its job is "
        "run again. While there is none, tasks run on demand.",
        since="ours",
    )
    public_ip: bool = setting(
        "fargate.public.ip",
        "false",
        BOOLEAN,
        "Tasks have public addresses, which they need in a subnet that reaches AWS by an internet "
        "gateway alone. Nothing can connect to them.",
        since="ours",
    )
    ingest_architecture: str = setting(
        "ingest.task.cpu.architecture",
        "X86_64",
        ARCHITECTURE,
        "Processor of ingest tasks.",
        since="ours",
    )
    ingest_cpu: int = setting(
        "ingest.task.cpu", "2048", POSITIVE, "Processor units of a task; 1024 are one vCPU."
    )
    ingest_memory_mb: int = setting("ingest.task.memory.mb", "4096", POSITIVE, "Memory of a task.")
    ingest_period_minutes: int = setting(
        "ingest.task.creation.period.minutes", "1", POSITIVE, "How often tasks are started."
    )
    compaction_architecture: str = setting(
        "compaction.task.cpu.architecture",
        "X86_64",
        ARCHITECTURE,
        "Processor of tasks. Upstream's default is ARM64: here one image serves all by default.",
    )
    compaction_x86_cpu: int = setting(
        "compaction.task.x86.cpu", "4096", POSITIVE, "Processor units of a task; 1024 are one vCPU."
    )
    compaction_x86_memory_mb: int = setting(
        "compaction.task.x86.memory.mb", "8192", POSITIVE, "Memory of a task."
    )
    compaction_arm_cpu: int = setting(
        "compaction.task.arm.cpu", "4096", POSITIVE, "Processor units of a task; 1024 are one vCPU."
    )
    compaction_arm_memory_mb: int = setting(
        "compaction.task.arm.memory.mb", "8192", POSITIVE, "Memory of a task."
    )
    compaction_period_minutes: int = setting(
        "compaction.task.creation.period.minutes", "1", POSITIVE, "How often tasks are started."
    )
    export_architecture: str = setting(
        "bulk.export.task.cpu.architecture", "X86_64", ARCHITECTURE, "Processor of tasks."
    )
    export_x86_cpu: int = setting(
        "bulk.export.task.x86.cpu", "1024", POSITIVE, "Processor units of a task."
    )
    export_x86_memory_mb: int = setting(
        "bulk.export.task.x86.memory.mb", "4096", POSITIVE, "Memory of a task."
    )
    export_arm_cpu: int = setting(
        "bulk.export.task.arm.cpu", "1024", POSITIVE, "Processor units of a task."
    )
    export_arm_memory_mb: int = setting(
        "bulk.export.task.arm.memory.mb", "4096", POSITIVE, "Memory of a task."
    )
    export_period_minutes: int = setting(
        "bulk.export.task.creation.period.minutes", "1", POSITIVE, "How often tasks are started."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LambdaProperties:
    """Lambda functions. Memory that is not set is that of `table_state_memory_mb`."""

    architecture: str = setting(
        "lambda.cpu.architecture", "X86_64", ARCHITECTURE, "Processor of functions.", since="ours"
    )
    reserves: bool = setting(
        "lambda.reserves.concurrency",
        "true",
        BOOLEAN,
        "Functions reserve concurrency of the account. Without it two starters at once may start "
        "more workers than wait; an account whose limit is 100 or less can reserve none.",
        since="ours",
    )
    table_state_memory_mb: int = setting(
        "default.lambda.table.state.memory.mb",
        "4096",
        _LAMBDA_MB,
        "Memory of functions that hold states of tables, unless another is set.",
    )
    at_once_reserved: int | None = setting(
        "default.lambda.concurrency.reserved",
        None,
        _RESERVED,
        "Concurrency of the account that each function of tables has for itself.",
    )
    at_once_max: int = setting(
        "default.lambda.concurrency.max",
        "10",
        _AT_ONCE,
        "Tables that each function handles at once, at most.",
    )
    trigger_memory_mb: int = setting(
        "batch.table.lambdas.memory.mb",
        "1024",
        _LAMBDA_MB,
        "Memory of functions that send one message for each table.",
    )
    trigger_timeout_s: int = setting(
        "batch.table.lambdas.timeout.seconds", "60", LAMBDA_TIMEOUT, "Time for that."
    )
    starter_memory_mb: int = setting(
        "task.runner.memory.mb", "512", _LAMBDA_MB, "Memory of the function that starts tasks."
    )
    starter_timeout_s: int = setting(
        "task.runner.timeout.seconds", "900", LAMBDA_TIMEOUT, "Time for starting tasks."
    )
    committer_memory_mb: int | None = setting(
        "statestore.committer.lambda.memory.mb", None, _LAMBDA_MB, "Memory of the committer."
    )
    committer_timeout_s: int = setting(
        "statestore.committer.lambda.timeout.seconds", "900", LAMBDA_TIMEOUT, "Time of one run."
    )
    committer_reserved: int = setting(
        "statestore.committer.concurrency.reserved",
        "10",
        _RESERVED,
        "Concurrency of the account that the committer has for itself; 0 reserves none.",
    )
    committer_max: int | None = setting(
        "statestore.committer.concurrency.max", None, _AT_ONCE, "Committers at once, at most."
    )
    query_memory_mb: int | None = setting(
        "query.processor.memory.mb", None, _LAMBDA_MB, "Memory of the function that runs queries."
    )
    query_timeout_s: int = setting(
        "query.processor.timeout.seconds", "900", LAMBDA_TIMEOUT, "Time for one query."
    )
    submitter_memory_mb: int = setting(
        "ingest.batcher.submitter.memory.mb", "1024", _LAMBDA_MB, "Memory for taking submissions."
    )
    batcher_memory_mb: int = setting(
        "ingest.batcher.job.creation.memory.mb", "512", _LAMBDA_MB, "Memory for making batches."
    )
    batcher_timeout_s: int = setting(
        "ingest.batcher.job.creation.timeout.seconds",
        "900",
        LAMBDA_TIMEOUT,
        "Time for making them.",
    )
    splitting_memory_mb: int | None = setting(
        "partition.splitting.finder.memory.mb", None, _LAMBDA_MB, "Memory for splitting a table."
    )
    splitting_timeout_s: int = setting(
        "partition.splitting.finder.timeout.seconds",
        "900",
        LAMBDA_TIMEOUT,
        "Time for splitting a table.",
    )
    splitting_reserved: int | None = setting(
        "partition.splitting.finder.concurrency.reserved", None, _RESERVED, "Concurrency of it."
    )
    splitting_max: int | None = setting(
        "partition.splitting.finder.concurrency.max", None, _AT_ONCE, "Tables at once, at most."
    )
    splitting_tables: int = setting(
        "partition.splitting.finder.batch.size", "1", QUEUE_BATCH, "Tables in one run."
    )
    gc_memory_mb: int | None = setting(
        "gc.memory.mb", None, _LAMBDA_MB, "Memory for collecting garbage of a table."
    )
    gc_timeout_s: int = setting(
        "gc.lambda.timeout.seconds", "840", LAMBDA_TIMEOUT, "Time for collecting garbage."
    )
    gc_reserved: int | None = setting(
        "gc.concurrency.reserved", None, _RESERVED, "Concurrency of it."
    )
    gc_max: int | None = setting("gc.concurrency.max", None, _AT_ONCE, "Tables at once, at most.")
    gc_tables: int = setting("gc.table.batch.size", "1", QUEUE_BATCH, "Tables in one run.")
    metrics_reserved: int | None = setting(
        "lambda.table.metrics.concurrency.reserved", None, _RESERVED, "Concurrency of it."
    )
    metrics_max: int | None = setting(
        "lambda.table.metrics.concurrency.max", None, _AT_ONCE, "Tables at once, at most."
    )
    metrics_tables: int = setting(
        "run.table.metrics.batch.size", "1", QUEUE_BATCH, "Tables in one run."
    )
    import_memory_mb: int | None = setting(
        "bulk.import.starter.memory.mb", None, _LAMBDA_MB, "Memory for starting bulk imports."
    )
