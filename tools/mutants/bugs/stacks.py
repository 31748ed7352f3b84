"""Bugs in stacks of AWS, and in the settings that they are made from."""

from __future__ import annotations

from ..bug import Bug

_SOURCE = "storage/aws/jobs/queue_source.py"
_FOLLOWED = ("tests/aws/lambdas/test_queue_source.py",)
_WATCH = "storage/aws/jobs/queue_watch.py"
_ALARMS = ("tests/deploy/stacks/test_alarms.py",)

BUGS = (
    Bug(
        name="errors-of-functions-unheard",
        breaks="Errors of functions are not counted, so nobody hears of them.",
        module="deploy/stacks/parts.py",
        right="    count_errors(stack, settings, spec.name, logs)\n",
        wrong="",
        tests=_ALARMS,
    ),
    Bug(
        name="stopped-tasks-are-failures",
        breaks="Each worker that ends well, or is stopped by a person, sends a message.",
        module="deploy/stacks/watching.py",
        right='                        "containers": {"exitCode": [{"anything-but": [0]}]},\n',
        wrong="",
        tests=_ALARMS,
    ),
    Bug(
        name="jobs-of-other-instances-are-heard",
        breaks="An instance whose id begins with that of another is heard of too.",
        module="deploy/stacks/watching.py",
        right='dict.fromkeys((f"sleeper-{names.instance_id}-", names.prefix))',
        wrong='dict.fromkeys((f"sleeper-{names.instance_id}", names.prefix))',
        tests=_ALARMS,
    ),
    Bug(
        name="alarms-end-between-two-looks",
        breaks="An alarm of queues ends, and begins again, while its cause lasts.",
        module="deploy/stacks/watching.py",
        right="minutes * 120 + 300",
        wrong="minutes * 60",
        tests=_ALARMS,
    ),
    Bug(
        name="budget-of-the-whole-account",
        breaks="A budget counts what other programs of the account cost.",
        module="deploy/stacks/watching.py",
        right='cost_filters={"TagKeyValue": [f"user:{OWNER_TAG}${owner_tag_value(names.url)}"]},',
        wrong="",
        tests=_ALARMS,
    ),
    Bug(
        name="tasks-cost-without-a-tag",
        breaks="Workers have no tag, so a budget does not count them.",
        module="storage/aws/ecs_tasks.py",
        right='            "propagateTags": "TASK_DEFINITION",',
        wrong="           ",
        tests=("tests/unit/storage/aws/test_ecs_tasks.py",),
    ),
    Bug(
        name="queues-are-left-with-work",
        breaks="A queue with a message that a function has taken is asked no more.",
        module=_SOURCE,
        right='    "ApproximateNumberOfMessagesNotVisible",\n',
        wrong="",
        tests=_FOLLOWED,
    ),
    Bug(
        name="counts-of-a-minute-ago",
        breaks="A queue is asked no more, as its message is not counted yet.",
        module=_SOURCE,
        right='            if not wanted and now - found["LastModified"] < _KEPT:\n',
        wrong="            if False:\n",
        tests=_FOLLOWED,
    ),
    Bug(
        name="sent-messages-wait-for-another-look",
        breaks="Messages that were sent wait until a later look counts them.",
        module=_SOURCE,
        right="            wanted = sent or self._has_messages(sqs)\n",
        wrong="            wanted = self._has_messages(sqs)\n",
        tests=_FOLLOWED,
    ),
    Bug(
        name="metrics-of-nothing",
        breaks="Metrics are printed while nothing is wrong, and paid for.",
        module=_WATCH,
        right="        if not figures:\n            return None\n",
        wrong="",
        tests=("tests/aws/lambdas/test_queue_watch.py",),
    ),
    Bug(
        name="oldest-age-is-the-longest-of-long-ago",
        breaks="A wait that is over raises an alarm.",
        module=_WATCH,
        right='max(zip(each["Timestamps"], each["Values"], strict=True), default=None)',
        wrong='max(zip(each["Values"], each["Values"], strict=True), default=None)',
        tests=("tests/aws/lambdas/test_queue_watch.py",),
    ),
    Bug(
        name="queries-write-tables",
        breaks="A function that runs queries may write and delete the rows of tables.",
        module="deploy/stacks/jobs.py",
        right=(
            "            *grants.read_tables(names),\n"
            "            *grants.track(names, JobKind.QUERY),\n"
        ),
        wrong=(
            "            *grants.write_tables(names),\n"
            "            *grants.track(names, JobKind.QUERY),\n"
        ),
        tests=("tests/deploy/stacks/test_roles.py",),
    ),
    Bug(
        name="trackers-without-expiry",
        breaks="Roles do not allow what a tracker asks of its tables, so that no job is tracked.",
        module="deploy/grants.py",
        right='    "DescribeTimeToLive",\n',
        wrong="",
        tests=("tests/deploy/stacks/test_enough.py",),
    ),
    Bug(
        name="two-starters",
        breaks="Two starters at once start twice as many workers as are needed.",
        module="deploy/stacks/workers.py",
        right="        reserved=1,  # two at once would start twice as many\n",
        wrong="",
        tests=("tests/deploy/stacks/test_running.py",),
    ),
    Bug(
        name="data-goes-with-its-stack",
        breaks="Tables in DynamoDB are deleted with their stack.",
        module="deploy/stacks/parts.py",
        right=(
            "        deletion_protection=protects,\n"
            "        removal_policy=RemovalPolicy.RETAIN if retain else RemovalPolicy.DESTROY,\n"
        ),
        wrong=(
            "        deletion_protection=protects,\n        removal_policy=RemovalPolicy.DESTROY,\n"
        ),
        tests=("tests/deploy/stacks/test_templates.py",),
    ),
    Bug(
        name="old-versions-for-ever",
        breaks="A bucket keeps what was replaced or deleted for ever, and is paid for it.",
        module="deploy/stacks/parts.py",
        right="                noncurrent_version_expiration=Duration.days(old_days),\n",
        wrong="",
        tests=("tests/deploy/stacks/test_instance.py",),
    ),
    Bug(
        name="states-that-anybody-deletes",
        breaks="Tables of states are not protected from deletion; those of records are.",
        module="storage/aws/deployment/keeping.py",
        right="protected=(*INDEX_TABLES, *STATE_TABLES, *REVISION_TABLES) if protects else (),",
        wrong="protected=(*INDEX_TABLES, *REVISION_TABLES) if protects else (),",
        tests=("tests/deploy/stacks/test_instance.py",),
    ),
    Bug(
        name="init-keeps-no-history",
        breaks="Tables that `sleeper init` makes cannot be restored, and those of stacks can.",
        module="storage/aws/deployment/deployment.py",
        right="        tables.keep_history(*keeping.recovered)\n",
        wrong="",
        tests=("tests/deploy/stacks/test_as_init.py",),
    ),
    Bug(
        name="key-by-any-service",
        breaks="Who may use a queue may decrypt objects that are taken from a bucket.",
        module="deploy/grants.py",
        right="for each in _ENCRYPTED if each in used]",
        wrong="for each in _ENCRYPTED]",
        tests=("tests/deploy/stacks/test_roles.py",),
    ),
    Bug(
        name="dead-letters-without-the-key",
        breaks="Dead letters are encrypted by Amazon's key where the user's is wanted.",
        module="deploy/stacks/parts.py",
        right=(
            "        encryption=encryption,\n"
            "        encryption_master_key=key,\n"
            "        enforce_ssl=True,\n"
            "        retention_period=Duration.seconds(RETENTION_S),\n"
            "    )\n"
        ),
        wrong=(
            "        encryption=sqs.QueueEncryption.SQS_MANAGED,\n"
            "        enforce_ssl=True,\n"
            "        retention_period=Duration.seconds(RETENTION_S),\n"
            "    )\n"
        ),
        tests=("tests/deploy/stacks/test_templates.py",),
    ),
    Bug(
        name="old-versions-stay",
        breaks="A bucket with old versions cannot be removed: its objects are deleted, not they.",
        module="storage/aws/deployment/buckets.py",
        right='        kinds = ("Versions", "DeleteMarkers")\n',
        wrong='        kinds = ("Versions",)\n',
        tests=("tests/aws/test_what_init_keeps.py",),
    ),
    Bug(
        name="protection-stays",
        breaks="An instance whose tables are protected cannot be removed.",
        module="storage/aws/deployment/belongings.py",
        right="                    if protected:\n",
        wrong="                    if not protected:\n",
        tests=("tests/unit/storage/test_instances_in_aws.py",),
    ),
    Bug(
        name="leases-shorter-than-calls",
        breaks="AWS refuses a function that takes longer than its messages are hidden.",
        module="deploy/settings.py",
        right="        return max(1, min(timeout_s, int(self.queue(queue).visibility_s)))\n",
        wrong="        return timeout_s\n",
        tests=("tests/deploy/stacks/test_settings.py",),
    ),
    Bug(
        name="first-failure-alone",
        breaks="A batcher without a stack for its jobs is found after it was deployed.",
        module="deploy/settings.py",
        right="    if StackName.BATCHER in chosen and wanted not in (None, *chosen):\n",
        wrong="    if StackName.BATCHER not in chosen and wanted not in (None, *chosen):\n",
        tests=("tests/deploy/stacks/test_settings.py",),
    ),
    Bug(
        name="lookers-read-rows",
        breaks="What looks for work may read the rows of all tables.",
        module="deploy/grants.py",
        right='    return (*read_states(names), Grant(("s3:PutObject",), (notes,)))\n',
        wrong='    return (*read_tables(names), Grant(("s3:PutObject",), (notes,)))\n',
        tests=("tests/deploy/stacks/test_roles.py",),
    ),
    Bug(
        name="batcher-reads-rows",
        breaks="The batcher may read the rows of tables with the files beside them.",
        module="deploy/stacks/parts.py",
        right="        effect=iam.Effect.DENY if grant.denies else iam.Effect.ALLOW,\n",
        wrong="        effect=iam.Effect.ALLOW,\n",
        tests=("tests/deploy/stacks/test_roles.py",),
    ),
    Bug(
        name="isolated-arns-of-all",
        breaks="ARNs in regions that are isolated begin as those of all others, and name nothing.",
        module="model/aws_partitions.py",
        right='    AwsPartition("aws-iso", r"us-iso-\\w+-\\d+", "c2s.ic.gov"),\n',
        wrong='    AwsPartition("aws", r"us-iso-\\w+-\\d+", "c2s.ic.gov"),\n',
        tests=("tests/unit/model/test_aws_partitions.py",),
    ),
)
