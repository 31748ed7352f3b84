"""Every template of every deployment keeps the rules of all, and is one that AWS takes."""

from __future__ import annotations

import json
import re
from fnmatch import fnmatchcase

import pytest
from cfnlint.config import ConfigMixIn
from cfnlint.runner import Runner

from sleeper.deploy.names import PROPERTIES_TYPE
from sleeper.model.stacks import OPTIONAL_STACKS
from tests.deploy.stacks.conftest import ACCOUNT, NETWORK, REGION, Deployed

LONGEST_ID = "a234567890.23456789Z"
ALL = {"sleeper.optional.stacks": ",".join(OPTIONAL_STACKS)}
DEPLOYMENTS = {
    "the default": {},
    "all": ALL,
    "all, with the longest names": ALL
    | {
        "sleeper.id": LONGEST_ID,
        "sleeper.ecr.repository.prefix": "a-rather-long-prefix/of-repositories/of-a-team",
        "sleeper.errors.email": "somebody@example.com",
        "sleeper.ingest.source.bucket": ",".join(f"bucket-{n}-{'x' * 53}" for n in range(4)),
        "sleeper.tags": ",".join(f"{'name' * 20}{n},{'value' * 40}" for n in range(20)),
        "sleeper.deploy.permissions.boundary": f"arn:aws:iam::{ACCOUNT}:policy/limits",
        "sleeper.subnets": ",".join(f"subnet-{n:017x}" for n in range(12)),
        "sleeper.fargate.spot": "true",
        "sleeper.lambda.cpu.architecture": "ARM64",
        "sleeper.retain.infra.after.destroy": "false",
        "sleeper.retain.logs.after.destroy": "false",
        "sleeper.log.retention.days": "-1",
        "sleeper.statestore.dynamo.pointintimerecovery": "false",
        "sleeper.tables.index.dynamo.pointintimerecovery": "false",
        "sleeper.deploy.old.versions.days": "0",
        "sleeper.default.lambda.concurrency.reserved": "3",
        "sleeper.gc.table.batch.size": "10",
    },
}
KEY = f"arn:aws:kms:{REGION}:{ACCOUNT}:key/0a1b2c3d-1111-2222-3333-444455556666"
DEPLOYMENTS["all, with the longest names"] |= {
    "sleeper.kms.key.arn": KEY,
    "sleeper.access.logs.bucket": f"logs-{'x' * 58}",
}
TEMPLATE_BYTES_MAX = 51_200
BY_THE_HOUR = {
    "AWS::DynamoDB::GlobalTable",
    "AWS::DMS::ReplicationInstance",
    "AWS::EC2::ClientVpnEndpoint",
    "AWS::EC2::EIP",
    "AWS::EC2::Instance",
    "AWS::EC2::LaunchTemplate",
    "AWS::EC2::NatGateway",
    "AWS::EC2::TransitGateway",
    "AWS::EC2::VPCEndpoint",
    "AWS::EC2::VPNGateway",
    "AWS::ECS::Service",
    "AWS::EKS::Cluster",
    "AWS::EMR::Cluster",
    "AWS::ElastiCache::CacheCluster",
    "AWS::ElasticLoadBalancingV2::LoadBalancer",
    "AWS::KMS::Key",
    "AWS::Lambda::Version",
    "AWS::OpenSearchService::Domain",
    "AWS::RDS::DBInstance",
    "AWS::SecretsManager::Secret",
}
"""Types of resources that cost money while nothing uses them, by the hour or the month."""

LENGTHS_MAX = {
    ("AWS::CloudWatch::Alarm", "AlarmName"): 255,
    ("AWS::CloudWatch::Dashboard", "DashboardName"): 255,
    ("AWS::DynamoDB::Table", "TableName"): 255,
    ("AWS::EC2::SecurityGroup", "GroupName"): 255,
    ("AWS::ECS::Cluster", "ClusterName"): 255,
    ("AWS::ECS::TaskDefinition", "Family"): 255,
    ("AWS::EKS::Cluster", "Name"): 100,
    ("AWS::EMR::Cluster", "Name"): 256,
    ("AWS::EMRServerless::Application", "Name"): 64,
    ("AWS::Events::Rule", "Name"): 64,
    ("AWS::IAM::InstanceProfile", "InstanceProfileName"): 128,
    ("AWS::IAM::ManagedPolicy", "ManagedPolicyName"): 128,
    ("AWS::IAM::Role", "RoleName"): 64,
    ("AWS::Lambda::Function", "FunctionName"): 64,
    ("AWS::S3::Bucket", "BucketName"): 63,
    ("AWS::SNS::Topic", "TopicName"): 256,
    ("AWS::SQS::Queue", "QueueName"): 80,
}


@pytest.fixture(scope="module", params=DEPLOYMENTS)
def deployed(request, synthesised) -> Deployed:
    """Each deployment."""
    return synthesised(DEPLOYMENTS[request.param])


def texts_in(value):
    """All texts in a template."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from texts_in(each)
    elif isinstance(value, list):
        for each in value:
            yield from texts_in(each)


def test_no_template_has_an_error(synthesised, tmp_path):
    """cfn-lint finds none."""
    texts = {
        stack.template.read_text()
        for properties in DEPLOYMENTS.values()
        for stack in synthesised(properties).made.stacks
    }
    paths = [tmp_path / f"{number}.json" for number in range(len(texts))]
    for path, text in zip(paths, sorted(texts), strict=True):
        path.write_text(text)

    matches = Runner(ConfigMixIn(["--regions", REGION, "--", *map(str, paths)])).run()

    found = [f"{each.rule.id} {each.message} {each.path} {each.filename}" for each in matches]
    assert found == []


def test_each_template_can_be_sent_as_it_is(deployed):
    """A longer one would need a bucket, and so a bootstrap of the account."""
    sizes = {kind: stack.template.stat().st_size for kind, stack in deployed.stacks.items()}

    assert {kind: size for kind, size in sizes.items() if size > TEMPLATE_BYTES_MAX} == {}


def test_stacks_share_nothing_but_names(deployed):
    """No exports, imports, parameters or assets: stacks come and go by themselves."""
    for kind, template in deployed.templates.items():
        assert template.keys() <= {"Description", "Resources"}, kind
        assert "Fn::ImportValue" not in deployed.stacks[kind].template.read_text(), kind
    for path in deployed.made.folder.glob("*.json"):
        assert "cdk-hnb659fds" not in path.read_text(), path
        assert not path.name.endswith(".assets.json"), path


def test_stacks_come_after_those_that_they_need(deployed):
    """What they name exists when they are deployed."""
    kinds = list(deployed.stacks)

    for number, stack in enumerate(deployed.made.stacks):
        assert set(stack.needs) <= set(kinds[:number]), stack.kind
        if stack.kind not in ("InstanceStack", "QueuesStack"):
            assert {"InstanceStack", "QueuesStack"} <= set(stack.needs), stack.kind
    assert set(deployed.settings.stacks) <= set(kinds)


def test_every_name_is_the_instances_and_within_the_limits_of_aws(deployed):
    """Given the longest id, then no name is too long, and each begins with the instance's prefix."""
    prefix, seen = deployed.settings.names.prefix, set()

    for each in deployed.resources():
        for name, value in each.properties.items():
            limit = LENGTHS_MAX.get((each.type, name))
            if limit is None:
                continue
            assert value.startswith(prefix), (each.type, value)
            assert len(value) <= limit, (each.type, value)
            assert (each.type, value) not in seen
            seen.add((each.type, value))
    assert all(len(stack.name) <= 128 for stack in deployed.made.stacks)
    named = {kind for kind, _ in LENGTHS_MAX}
    assert {kind for kind, _ in seen} == named & {each.type for each in deployed.resources()}


def test_what_a_stack_names_is_made_by_some_stack(deployed):
    """An ARN or URL that leads to nothing would be found out at run time only."""
    prefix = re.escape(deployed.settings.names.prefix)
    patterns = {
        "AWS::Lambda::Function": f":function:({prefix}.*)",
        "AWS::SQS::Queue": f"(?::sqs:{REGION}:{ACCOUNT}:|/{ACCOUNT}/)({prefix}.*)",
        "AWS::DynamoDB::Table": f":table/({prefix}[^/]*)",
        "AWS::S3::Bucket": f":s3:::({prefix}[^/]*)",
        "AWS::IAM::Role": f':role/({prefix}[^"]*)',  # in a definition of states too
        "AWS::ECS::TaskDefinition": f":task-definition/({prefix}[^:]*)",
    }
    texts = [text for each in deployed.resources() for text in texts_in([each.properties])]
    # The starter knows all kinds of workers, whichever are chosen.
    others = re.compile(f"{prefix}(ingest|compaction|export)(-task|-execution)?")
    all_chosen = set(OPTIONAL_STACKS) == set(deployed.settings.stacks)

    for kind, pattern in patterns.items():
        named = {found[1] for text in texts for found in re.finditer(pattern, text)}
        made = {each.name for each in deployed.resources(kind)}
        lost = {each for each in named if not any(fnmatchcase(name, each) for name in made)}
        assert named, kind
        assert [each for each in lost if all_chosen or not others.fullmatch(each)] == [], kind


def key_of(deployed):
    """The user's key; None without one."""
    return deployed.settings.properties.cloud.key_arn


def test_every_queue_has_dead_letters_and_is_encrypted_and_closed(deployed):
    """Encrypted by SQS, or by the user's key; requests without TLS are denied."""
    queues = deployed.resources("AWS::SQS::Queue")
    policies = {
        (policy.stack, ref["Ref"]): policy.properties["PolicyDocument"]["Statement"]
        for policy in deployed.resources("AWS::SQS::QueuePolicy")
        for ref in policy.properties["Queues"]
    }
    dead = {
        (each.stack, each.properties["RedrivePolicy"]["deadLetterTargetArn"]["Fn::GetAtt"][0])
        for each in queues
        if "RedrivePolicy" in each.properties
    }

    assert len(queues) >= 20
    for queue in queues:
        key = (queue.stack, queue.id)
        assert queue.properties.get("KmsMasterKeyId") == key_of(deployed), queue.name
        by_sqs = queue.properties.get("SqsManagedSseEnabled", False)
        assert by_sqs is (key_of(deployed) is None), queue.name
        assert ("RedrivePolicy" in queue.properties) is (key not in dead), queue.name
        (statement,) = policies[key]
        assert (statement["Effect"], statement["Action"]) == ("Deny", "sqs:*")
        assert statement["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}


def test_every_bucket_is_encrypted_and_closed(deployed):
    """Nothing public, nothing without TLS; objects belong to the bucket's owner."""
    buckets = deployed.resources("AWS::S3::Bucket")
    policies = {
        each.properties["Bucket"]["Ref"]: each.properties["PolicyDocument"]["Statement"]
        for each in deployed.resources("AWS::S3::BucketPolicy")
    }

    assert {each.name for each in buckets} == set(deployed.settings.names.buckets.buckets)
    for bucket in buckets:
        (rule,) = bucket.properties["BucketEncryption"]["ServerSideEncryptionConfiguration"]
        own = {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": key_of(deployed)}
        by = rule["ServerSideEncryptionByDefault"]
        assert by == (own if key_of(deployed) else {"SSEAlgorithm": "AES256"})
        assert rule.get("BucketKeyEnabled", False) is bool(key_of(deployed))
        logs_bucket = deployed.settings.properties.cloud.access_logs_bucket
        logging = bucket.properties.get("LoggingConfiguration")
        wanted = {"DestinationBucketName": logs_bucket, "LogFilePrefix": f"{bucket.name}/"}
        assert logging == (wanted if logs_bucket else None)
        assert set(bucket.properties["PublicAccessBlockConfiguration"].values()) == {True}
        (statement,) = policies[bucket.id]
        assert (statement["Effect"], statement["Action"]) == ("Deny", "s3:*")
        assert statement["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}


def test_the_users_key_encrypts_all_that_is_stored(deployed):
    """Tables, alarms, logs, disks of tasks, variables of functions, secrets; else Amazon's own does."""
    key = key_of(deployed)

    for table in deployed.resources("AWS::DynamoDB::Table"):
        own = {"KMSMasterKeyId": key, "SSEEnabled": True, "SSEType": "KMS"}
        assert table.properties.get("SSESpecification") == (own if key else None)
    for topic in deployed.resources("AWS::SNS::Topic"):
        assert topic.properties.get("KmsMasterKeyId") == key
    for group in deployed.resources("AWS::Logs::LogGroup"):
        assert group.properties.get("KmsKeyId") == key
    for cluster in deployed.resources("AWS::ECS::Cluster"):
        storage = {"FargateEphemeralStorageKmsKeyId": key}
        disks = {"ManagedStorageConfiguration": storage} if key else None
        assert cluster.properties.get("Configuration") == disks
    for function in deployed.resources("AWS::Lambda::Function"):
        assert function.properties.get("KmsKeyArn") == key
    for cluster in deployed.resources("AWS::EKS::Cluster"):
        secrets = [{"Provider": {"KeyArn": key}, "Resources": ["secrets"]}]
        assert cluster.properties.get("EncryptionConfig") == (secrets if key else None)
    if key is not None:
        assert deployed.resources("AWS::KMS::Key") == []


def test_data_and_logs_stay_unless_the_properties_say_otherwise(deployed):
    """Buckets, tables and logs are kept by `sleeper.retain...`; all else goes with its stack."""
    cloud = deployed.settings.properties.cloud
    data, logs = (
        "Retain" if keeps else "Delete" for keeps in (cloud.retains_data, cloud.retains_logs)
    )
    kept = {
        "AWS::S3::Bucket": data,
        "AWS::DynamoDB::Table": data,
        "AWS::Logs::LogGroup": logs,
    }

    for each in deployed.resources():
        policies = {each.whole.get("DeletionPolicy"), each.whole.get("UpdateReplacePolicy")}
        if each.type in kept:
            assert policies == {kept[each.type]}, each.name
        elif each.type == PROPERTIES_TYPE:
            assert policies == {"Retain"}, each.name  # so nobody is called when a stack is deleted
        else:
            assert policies <= {None, "Delete"}, each.name


def test_every_group_of_logs_is_kept_as_long_as_the_property_says(deployed):
    """-1 is for ever, which AWS calls no number; each function and task has its own."""
    days = deployed.settings.properties.cloud.log_days
    groups = deployed.resources("AWS::Logs::LogGroup")

    assert {each.properties.get("RetentionInDays") for each in groups} == {
        days if days > 0 else None
    }
    for function in deployed.resources("AWS::Lambda::Function"):
        assert function.properties["LoggingConfig"]["LogGroup"]["Ref"] in {
            each.id for each in groups
        }


def test_no_function_takes_longer_than_its_messages_are_hidden(deployed):
    """AWS refuses a mapping to such a function."""
    queues = {each.name: each.properties for each in deployed.resources("AWS::SQS::Queue")}
    functions = {
        (each.stack, each.id): each.properties
        for each in deployed.resources("AWS::Lambda::Function")
    }
    sources = deployed.resources("AWS::Lambda::EventSourceMapping")

    assert sources
    for source in sources:
        queue = queues[source.properties["EventSourceArn"].rpartition(":")[2]]
        function = functions[source.stack, source.properties["FunctionName"]["Ref"]]
        assert function["Timeout"] <= queue["VisibilityTimeout"], source.id
        assert source.properties["FunctionResponseTypes"] == ["ReportBatchItemFailures"]


def test_the_tags_of_a_stack_are_the_users_and_its_name(deployed):
    """AWS gives a stack's tags to its resources; what init looks for is on each of them too."""
    manifest = json.loads((deployed.made.folder / "manifest.json").read_text())
    tags = deployed.settings.tags()

    for kind, stack in deployed.stacks.items():
        found = manifest["artifacts"][kind]["properties"]["tags"]
        assert found.items() >= (tags | {"DeploymentStack": stack.name}).items(), kind
        assert found.keys() - tags.keys() <= {"DeploymentStack", "sleeper.instance.url"}, kind
    url = deployed.settings.names.url
    for each in deployed.resources():
        if each.type in ("AWS::S3::Bucket", "AWS::SQS::Queue", "AWS::DynamoDB::Table"):
            assert {"Key": "sleeper.instance.url", "Value": url} in each.properties["Tags"], (
                each.name
            )


def test_nothing_costs_by_the_hour_in_the_default_set(synthesised):
    """An instance that nobody uses costs requests of its schedules, and what it stores."""
    default = synthesised()

    assert {each.type for each in default.resources()} & BY_THE_HOUR == set()
    for table in default.resources("AWS::DynamoDB::Table"):
        assert table.properties["BillingMode"] == "PAY_PER_REQUEST"
    for function in default.resources("AWS::Lambda::Function"):
        assert "VpcConfig" not in function.properties
        assert "SnapStart" not in function.properties
    for application in default.resources("AWS::EMRServerless::Application"):
        assert "InitialCapacity" not in application.properties
    texts = [each for template in default.templates.values() for each in texts_in(template)]
    assert "ProvisionedConcurrencyConfig" not in " ".join(texts)


def without_values(template):
    """A template without what its properties are."""
    resources = template["Resources"]
    return {name: each for name, each in resources.items() if each["Type"] != PROPERTIES_TYPE}


@pytest.mark.parametrize("stack", OPTIONAL_STACKS)
def test_a_stack_alone_is_the_same_as_with_all_others(synthesised, stack):
    """Given one optional stack, then its template is the one that is tested above."""
    everything = synthesised(ALL)
    queue = "sleeper.default.table.ingest.batcher.ingest.queue"
    alone = synthesised(
        {"sleeper.optional.stacks": stack}
        if stack != "IngestBatcherStack"
        else {"sleeper.optional.stacks": f"{stack},IngestStack", queue: "standard_ingest"}
    )

    for kind, template in alone.templates.items():
        whole = everything.templates[kind]
        if kind == "PropertiesStack":  # which has the list of stacks
            assert without_values(template) == without_values(whole)
        elif kind in ("AlarmsStack", "DashboardStack", "WorkersStack"):
            assert template["Resources"].keys() <= whole["Resources"].keys()
        else:
            assert template == whole
    clusters = alone.resources("AWS::ECS::Cluster", stack="WorkersStack")
    assert len(clusters) == alone.settings.has_tasks


def test_a_network_is_named_where_one_is_needed_and_nowhere_else(deployed):
    """VPC and subnets are those of the properties; none is made, and none is looked for."""
    made = {each.type for each in deployed.resources()}

    assert made.isdisjoint({"AWS::EC2::VPC", "AWS::EC2::Subnet", "AWS::EC2::RouteTable"})
    groups = deployed.resources("AWS::EC2::SecurityGroup")
    assert {each.properties["VpcId"] for each in groups} == {NETWORK["sleeper.vpc"]}
