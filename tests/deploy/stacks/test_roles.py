"""Roles and policies allow what they are for, on what they are for."""

from __future__ import annotations

import json
from fnmatch import fnmatchcase

from sleeper.model.jobs.kinds import URGENT, QueueName
from tests.deploy.stacks.test_templates import ALL, DEPLOYMENTS, deployed

__all__ = ["deployed"]


WITHOUT_RESOURCE = {
    "cloudwatch:GetMetricData": "it knows none",
    "ecr:GetAuthorizationToken": "a token is for the whole registry",
    "ecs:ListTasks": "its only resource is a container instance, which Fargate has none of; the "
    "condition names the cluster",
    "elasticmapreduce:AddTags": "a cluster has no name before; the condition names its tag",
    "elasticmapreduce:ListClusters": "a list is of the whole account",
    "elasticmapreduce:RunJobFlow": "a cluster is not there yet; the condition names its tag",
}
"""Actions for which AWS knows no resource, and why."""

WRITES = ("s3:PutObject", "s3:DeleteObject")
INLINE_CHARACTERS_MAX = 10_240
POLICY_CHARACTERS_MAX = 6_144


def listed(value):
    return value if isinstance(value, list) else [value]


def documents(deployed):
    """The policies of roles, and those for users, by name."""
    for role in deployed.resources("AWS::IAM::Role"):
        for policy in role.properties.get("Policies", []):
            yield role.name, policy["PolicyDocument"]
    for policy in deployed.resources("AWS::IAM::ManagedPolicy"):
        yield policy.name, policy.properties["PolicyDocument"]


def statements(deployed):
    for name, document in documents(deployed):
        for statement in document["Statement"]:
            yield name, statement


def test_no_statement_allows_every_action(deployed):
    """No `*`, and no `service:*`."""
    wide = {
        (name, action)
        for name, statement in statements(deployed)
        for action in listed(statement["Action"])
        if "*" in action
    }

    assert wide == set()


def test_every_statement_names_its_resources(deployed):
    """`*` only where AWS knows no resource; and none of another instance's."""
    for name, statement in statements(deployed):
        for resource in listed(statement["Resource"]):
            if resource == "*" or str(resource).endswith(":cluster/*"):
                assert set(listed(statement["Action"])) <= set(WITHOUT_RESOURCE), name
            elif isinstance(resource, str):
                assert is_named(resource, deployed.settings), (name, resource)


def test_a_role_uses_the_key_for_what_it_reads_and_by_these_services_alone(deployed):
    """Given a key, whoever may read or write a service's data may use the key through it."""
    key, region = deployed.settings.properties.cloud.key_arn, deployed.settings.names.region

    for name, document in documents(deployed):
        used, through = set[str](), set[str]()
        for each in document["Statement"]:
            services = {action.partition(":")[0] for action in listed(each["Action"])}
            used |= services & {"s3", "dynamodb", "sqs"}
            by = each.get("Condition", {}).get("StringEquals", {}).get("kms:ViaService", [])
            if by:
                assert each["Resource"] == key, name
                assert set(each["Action"]) == {"kms:Decrypt", "kms:GenerateDataKey"}, name
                through |= {one.removesuffix(f".{region}.amazonaws.com") for one in listed(by)}
        assert through == (used if key else set()), name


def is_named(arn, settings):
    """Whether an ARN is that of the instance's, of its images or network, or of input files."""
    sources = settings.properties.cloud.source_buckets or ()
    cloud = settings.properties.cloud
    network = (f"vpc/{cloud.vpc}", *(f"subnet/{each}" for each in settings.subnets))
    repositories = [settings.repository(image) for image in ("worker", "spark")]
    return (
        settings.names.prefix in arn
        or arn == cloud.key_arn
        or any(arn.startswith(f"arn:aws:s3:::{bucket}") for bucket in sources)
        or any(arn.endswith(f":{each}") for each in network)
        or any(arn.endswith(f":repository/{each}") for each in repositories)
    )


def test_policies_are_as_short_as_aws_wants_them(deployed):
    """6,144 characters of a policy, 10,240 of a role's own, both without spaces."""
    for role in deployed.resources("AWS::IAM::Role"):
        own = sum(
            len(json.dumps(policy["PolicyDocument"], separators=(",", ":")))
            for policy in role.properties.get("Policies", [])
        )
        assert own <= INLINE_CHARACTERS_MAX, (role.name, own)
    for policy in deployed.resources("AWS::IAM::ManagedPolicy"):
        length = len(json.dumps(policy.properties["PolicyDocument"], separators=(",", ":")))
        assert length <= POLICY_CHARACTERS_MAX, (policy.name, length)


def allowed(deployed, name, action, arn):
    """Whether a role or a policy for users allows an action on a resource, and does not deny it."""
    effects = {
        statement["Effect"]
        for owner, statement in statements(deployed)
        if owner == deployed.settings.names.named(name)
        for each in listed(statement["Action"])
        for resource in listed(statement["Resource"])
        if isinstance(resource, str)
        if fnmatchcase(action, each) and fnmatchcase(arn, resource)
    }
    return effects == {"Allow"}


def those_allowed(deployed, arn, *actions):
    """The roles and policies of users that allow one of some actions on a resource."""
    prefix = deployed.settings.names.prefix
    names = {name.removeprefix(prefix) for name, _ in documents(deployed)}
    return {name for name in names if any(allowed(deployed, name, each, arn) for each in actions)}


def test_few_may_write_to_each_bucket(synthesised):
    """Given all stacks, then who writes is listed here: a query role is not there for data."""
    deployed = synthesised(ALL)
    names = deployed.settings.names
    buckets = names.buckets
    clusters = {
        name.removeprefix(names.prefix)
        for name, _ in documents(deployed)
        if "bulk-import" in name or "emr" in name.lower() or "eks" in name.lower()
    }

    def writers(bucket):
        return those_allowed(deployed, names.bucket_arns(bucket)[0] + "/some/key", *WRITES)

    writers_of_tables = {
        "admin",
        "committer",
        "compaction-task",
        "garbage-collector",
        "ingest-direct",
        "ingest-task",
        "partition-splitter",
    }
    assert writers(buckets.data_bucket) - clusters == writers_of_tables
    assert writers(buckets.config_bucket) == {"admin"}  # but for the properties: see below
    assert writers(buckets.query_results_bucket) == {"admin", "query"}
    assert writers(buckets.bulk_export_bucket) == {"admin", "export-task"}
    assert writers(buckets.bulk_import_bucket) - clusters == {"admin"}


def test_few_may_read_rows(synthesised):
    """Given all stacks, then who reads rows is listed here: what looks for work reads states alone."""
    deployed = synthesised(ALL)
    names = deployed.settings.names
    data = names.bucket_arns(names.buckets.data_bucket)[0]

    def readers(key):
        return those_allowed(deployed, f"{data}/{key}", "s3:GetObject")

    of_rows = readers("0a1b2c3d/data/partition_root/0a1b.parquet")
    of_states = readers("0a1b2c3d/statestore/snapshots/newest")
    assert of_rows == {
        "admin",
        "bulk-import-eks-jobs",
        "bulk-import-emr-machines",
        "bulk-import-emr-serverless",
        "bulk-import-persistent-emr-machines",
        "committer",
        "compaction-task",
        "export-task",
        "garbage-collector",
        "ingest-direct",
        "ingest-task",
        "partition-splitter",
        "query",
    }
    starters = {f"bulk-import-{each}-starter" for each in ("eks", "emr", "emr-serverless")}
    assert {"table-metrics", "table-metrics-trigger", "worker-starter", *starters} <= of_states
    assert "batcher-submit" in readers("uploads/june.parquet") - of_rows


def test_notes_are_all_that_functions_write_beside_the_properties(synthesised):
    """What looks for work notes what it has seen; one function of a deployment writes properties."""
    deployed = synthesised(ALL)
    config = deployed.settings.names.bucket_arns(deployed.settings.names.buckets.config_bucket)[0]

    def writers(key):
        return those_allowed(deployed, f"{config}/{key}", *WRITES)

    triggers = {
        f"{each}-trigger" for each in ("garbage-collector", "partition-splitter", "table-metrics")
    }
    assert writers("services/notes/split.json") == triggers | {"worker-starter", "admin"}
    for key in ("services/paused", "tables/1", "tables/index/1"):
        assert writers(key) == {"admin"}, key
    for key in ("instance.properties", "properties/00000000000000000001.properties"):
        assert writers(key) == {"admin", "properties-writer"}, key


def test_who_writes_properties_deletes_nothing_and_reads_no_table(deployed):
    """The function that CloudFormation calls has the properties, and a log of its own."""
    names = deployed.settings.names
    actions = {
        action
        for name, statement in statements(deployed)
        if name == names.named("properties-writer")
        for action in listed(statement["Action"])
    }

    assert actions - {"kms:Decrypt", "kms:GenerateDataKey"} == {
        "logs:CreateLogStream",
        "logs:PutLogEvents",
        "s3:GetBucketLocation",
        "s3:GetObject",
        "s3:ListBucket",
        "s3:PutObject",
    }
    data = names.bucket_arns(names.buckets.data_bucket)[1]
    assert not allowed(deployed, "properties-writer", "s3:GetObject", data)


def test_nobody_may_make_change_or_delete_what_stacks_make(deployed):
    """Buckets, tables, queues, functions and roles are CloudFormation's."""
    verbs = ("Create", "Delete", "Update", "PutBucket", "Put", "Attach", "Set", "Add", "Remove")
    allowed_here = {
        "dynamodb:DeleteItem",
        "dynamodb:PutItem",
        "dynamodb:UpdateItem",
        "logs:CreateLogStream",
        "lambda:UpdateEventSourceMapping",  # to enable and disable it: see the test below
        "logs:PutLogEvents",
        "s3:DeleteObject",
        "s3:DeleteObjectVersion",
        "s3:PutObject",
        "sqs:DeleteMessage",
    }
    changes = {
        action
        for name, statement in statements(deployed)
        if "bulk-import" not in name
        for action in listed(statement["Action"])
        if action.partition(":")[2].startswith(verbs)
    }

    assert changes - allowed_here == set()


def test_a_mapping_is_enabled_by_the_function_that_follows_its_queue_alone(deployed):
    """Given roles that may change a mapping, then it is one of their stack that begins disabled."""
    found = {}
    for role in deployed.resources("AWS::IAM::Role"):
        for policy in role.properties.get("Policies", []):
            for statement in policy["PolicyDocument"]["Statement"]:
                if "lambda:UpdateEventSourceMapping" in listed(statement["Action"]):
                    found[role.name.removeprefix(deployed.settings.names.prefix)] = (
                        role.stack,
                        statement["Resource"],
                    )
    sources = {
        (each.stack, each.id): each.properties
        for each in deployed.resources("AWS::Lambda::EventSourceMapping")
    }

    assert found.keys() == {
        "batcher-create-jobs",
        "garbage-collector-trigger",
        "partition-splitter-trigger",
        "table-metrics-trigger",
    }
    for name, (stack, resource) in found.items():
        start, ref = resource["Fn::Join"][1]
        assert start.endswith(":event-source-mapping:")
        source = sources.pop((stack, ref["Ref"]))
        assert source["Enabled"] is False
        function = deployed.resource("AWS::Lambda::Function", name).properties
        variables = function["Environment"]["Variables"]
        queue = source["EventSourceArn"].rpartition(":")[2]
        assert variables["SLEEPER_SOURCE"] == ref
        assert variables["SLEEPER_SOURCE_QUEUE_URL"].endswith(f"/{queue}")
    assert sources == {}, "no queue is asked all the time"


def test_functions_are_called_by_the_starter_and_by_senders_alone(deployed):
    """Given urgent queues, then who sends to one may call its function, and the starter all."""
    names = deployed.settings.names
    called = deployed.settings.called_functions
    prefix = names.prefix

    for queue, function in called.items():
        arn = names.arn("lambda", f"function:{function}")
        callers = those_allowed(deployed, arn, "lambda:InvokeFunction")
        senders = those_allowed(deployed, names.queue_arn(names.queue(queue)), "sqs:SendMessage")
        own = {function.removeprefix(prefix)}
        if queue not in URGENT:
            senders = {"admin"}
        assert callers == senders - own | {"worker-starter", "admin"} | (
            {"query"}
            if queue is QueueName.QUERY
            else set()  # the policy of users has this name too
        ), queue


def test_old_versions_are_deleted_by_administrators_alone(deployed):
    """Purges need it; what a worker deletes by mistake can be brought back."""
    buckets = deployed.settings.names.buckets
    for bucket in (buckets.config_bucket, buckets.data_bucket):
        key = f"arn:aws:s3:::{bucket}/1/data/x"
        assert those_allowed(deployed, key, "s3:DeleteObjectVersion") == {"admin"}


def test_a_query_reads_tables_and_writes_results_alone(synthesised):
    """The function and the users' policy named `query` are two; the latter writes no results."""
    deployed = synthesised(ALL)
    names = deployed.settings.names
    data = names.bucket_arns(names.buckets.data_bucket)[1]
    log = names.arn("dynamodb", f"table/{names.prefix}transaction-log")

    assert allowed(deployed, "query", "s3:GetObject", data)
    assert allowed(deployed, "query", "dynamodb:Query", log)
    for action in ("dynamodb:PutItem", "dynamodb:UpdateItem", "dynamodb:DeleteItem"):
        assert not allowed(deployed, "query", action, log)


def test_workers_take_only_messages_of_their_queue(synthesised):
    """Given a queue, then one role receives from it, and the policy for administrators."""
    deployed = synthesised(ALL)
    names = deployed.settings.names
    expected = {
        "IngestJobQ": {"ingest-task"},
        "QueryQueue": {"query"},
        "BulkExport-Q": {"export-task"},
        "IngestBatcherSubmitQ": {"batcher-submit"},
        "StateStoreCommitterQ.fifo": {"committer"},
        "GCJobQ.fifo": {"garbage-collector"},
        "FindPartitionsToSplitQ.fifo": {"partition-splitter"},
        "MetricsJobQ.fifo": {"table-metrics"},
    }

    for queue, roles in expected.items():
        arn = names.queue_arn(names.prefix + queue)
        assert those_allowed(deployed, arn, "sqs:ReceiveMessage") == roles | {"admin"}, queue


def test_input_files_are_read_only_where_the_property_says(synthesised):
    """`sleeper.ingest.source.bucket` lists buckets; without it no other bucket is read."""
    deployed = synthesised(DEPLOYMENTS["all, with the longest names"])
    source = deployed.settings.properties.cloud.source_buckets[0]

    readers = those_allowed(deployed, f"arn:aws:s3:::{source}/file.parquet", "s3:GetObject")
    assert {"ingest-task", "batcher-submit"} <= readers
    assert those_allowed(deployed, f"arn:aws:s3:::{source}/file.parquet", *WRITES) == set()
    assert those_allowed(synthesised(ALL), f"arn:aws:s3:::{source}/file", "s3:GetObject") == set()


def test_only_the_starter_passes_roles_and_only_to_tasks(synthesised):
    """Whoever passes a role can do what the role can."""
    deployed = synthesised(ALL)

    found = [
        (name, statement)
        for name, statement in statements(deployed)
        if "iam:PassRole" in listed(statement["Action"]) and "bulk-import" not in name
    ]

    ((name, statement),) = found
    assert name.endswith("-worker-starter")
    assert statement["Condition"] == {
        "StringEquals": {"iam:PassedToService": "ecs-tasks.amazonaws.com"}
    }
    assert len(statement["Resource"]) == 6


def test_a_role_is_taken_by_its_service_alone_and_kept_within_the_boundary(deployed):
    """No account or wildcard takes a role; the boundary is on each."""
    boundary = deployed.settings.properties.cloud.boundary

    for role in deployed.resources("AWS::IAM::Role"):
        trust = role.properties["AssumeRolePolicyDocument"]
        if "Fn::Sub" in trust:  # a text that CloudFormation completes
            trust = json.loads(trust["Fn::Sub"][0])
        for statement in trust["Statement"]:
            assert statement["Principal"].keys() <= {"Service", "Federated"}, role.name
        assert role.properties.get("PermissionsBoundary") == boundary, role.name
