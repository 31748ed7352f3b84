"""Settings of a deployment are read from properties, and all that is wrong is said at once."""

from __future__ import annotations

from dataclasses import replace

import boto3
import pytest

from sleeper.deploy.platforms import size_failure
from sleeper.deploy.settings import EMR_SERVERLESS_REGIONS, DeploymentSettings
from sleeper.errors import PropertiesInvalid
from sleeper.model.jobs.kinds import QueueName
from sleeper.model.stacks import OPTIONAL_STACKS
from tests.deploy.stacks.conftest import ACCOUNT, NETWORK, REGION, settings_of

ALL = ",".join(OPTIONAL_STACKS)


def failures(properties, *, account=ACCOUNT, region=REGION):
    with pytest.raises(PropertiesInvalid) as refused:
        DeploymentSettings.of({"sleeper.id": "demo"} | properties, account=account, region=region)
    return dict(refused.value.failures)


def test_everything_that_is_wrong_is_said_at_once():
    """Given ten mistakes of several kinds, when settings are read, then each is told by its name."""
    wrong = {
        "sleeper.id": "an id with spaces, longer than twenty",
        "sleeper.optional.stacks": "IngestStak,AthenaStack,CompactionStack,IngestBatcherStack",
        "sleeper.compaction.task.x86.cpu": "3000",
        "sleeper.gc.period.minutes": "often",
        "sleeper.jobs.url": "sqlite:////var/lib/jobs.sqlite",
        "sleeper.log.retention.days": "31",
        "sleeper.query.processor.timeout.seconds": "800",
        "sleeper.query.queue.visibility.timeout.seconds": "60",
        "sleeper.bulk.import.persistent.emr.min.capacity": "11",
        "sleeper.errors.email": "nobody",
    }

    found = failures(wrong, account="12", region="London")

    assert found.keys() == {
        "sleeper.id",
        "sleeper.optional.stacks",
        "sleeper.compaction.task.x86.cpu",
        "sleeper.gc.period.minutes",
        "sleeper.jobs.url",
        "sleeper.log.retention.days",
        "sleeper.query.processor.timeout.seconds",
        "sleeper.bulk.import.persistent.emr.min.capacity",
        "sleeper.errors.email",
        "sleeper.account",
        "sleeper.region",
        "sleeper.vpc",
        "sleeper.subnets",
        "sleeper.default.table.ingest.batcher.ingest.queue",
    }
    assert all(name in told for name, told in found.items())


def test_a_stack_that_there_is_none_of_is_told_with_near_names_and_advice():
    """A misspelt one has the near name; one that only upstream has, what to use instead."""
    wrong = {"sleeper.optional.stacks": "querystack, QueryStak, EmrStudioStack, RestApiStack"}

    told = failures(wrong)["sleeper.optional.stacks"]

    assert "there is no stack 'QueryStak'. Did you mean QueryStack?" in told
    assert "EmrStudioStack is only in upstream: use the console of EMR Serverless" in told
    assert "RestApiStack is only in upstream: run `sleeper server`" in told
    assert "'querystack'" not in told


def test_stacks_are_chosen_in_any_case_and_deployed_in_order():
    """Given names in lower case and another order, then each is deployed once."""
    chosen = settings_of(
        {"sleeper.optional.stacks": " tablemetricsstack, INGESTSTACK ,ingestStack"}
    )

    assert chosen.stacks == ("IngestStack", "TableMetricsStack")


@pytest.mark.parametrize(
    ("stack", "needs"),
    [
        (stack, stack in ("IngestStack", "CompactionStack", "BulkExportStack"))
        for stack in (
            "IngestStack",
            "CompactionStack",
            "BulkExportStack",
            "QueryStack",
            "GarbageCollectorStack",
        )
    ],
)
def test_only_stacks_of_tasks_and_clusters_need_a_network(stack, needs):
    """Functions are in no VPC."""
    chosen = {"sleeper.optional.stacks": stack}

    if needs:
        assert failures(chosen).keys() == {"sleeper.vpc", "sleeper.subnets"}
    else:
        assert DeploymentSettings.of(
            {"sleeper.id": "demo"} | chosen, account=ACCOUNT, region=REGION
        )


def test_eks_needs_two_subnets():
    """EKS asks for two availability zones."""
    one = NETWORK | {"sleeper.subnets": "subnet-0a1b2c3d"}

    found = failures(one | {"sleeper.optional.stacks": "EksBulkImportStack"})

    assert found.keys() == {"sleeper.subnets"}
    assert "2 or more subnets" in found["sleeper.subnets"]


@pytest.mark.parametrize(
    ("queue", "stack"),
    [
        ("standard_ingest", "IngestStack"),
        ("bulk_import_emr", "EmrBulkImportStack"),
        ("bulk_import_persistent_emr", "PersistentEmrBulkImportStack"),
        ("bulk_import_eks", "EksBulkImportStack"),
        ("bulk_import_emr_serverless", "EmrServerlessBulkImportStack"),
    ],
)
def test_the_batcher_sends_only_to_a_queue_that_is_served(queue, stack):
    """Given a batcher whose jobs nobody would take, then the stack to add is named."""
    name = "sleeper.default.table.ingest.batcher.ingest.queue"
    given = NETWORK | {name: queue, "sleeper.optional.stacks": "IngestBatcherStack"}

    assert f"add {stack} to sleeper.optional.stacks" in failures(given)[name]
    assert settings_of(given | {"sleeper.optional.stacks": f"IngestBatcherStack,{stack}"})


def test_a_region_without_emr_serverless_is_told_with_regions_that_have_it():
    """The default set has it, so the region matters without any property."""
    found = failures(NETWORK, region="us-gov-north-9")

    assert found.keys() == {"sleeper.region"}
    assert "such as us-gov-east-1, us-gov-west-1." in found["sleeper.region"]
    without = {"sleeper.optional.stacks": "QueryStack"}
    assert settings_of(without, region="us-gov-north-9").names.partition == "aws-us-gov"


def test_regions_with_emr_serverless_are_those_that_botocore_knows():
    """A new release of botocore may know more: then the list is to be changed."""
    session = boto3.session.Session()
    known = {
        region
        for partition in session.get_available_partitions()
        for region in session.get_available_regions("emr-serverless", partition_name=partition)
    }

    assert set(EMR_SERVERLESS_REGIONS) == known


@pytest.mark.parametrize(
    ("region", "arn", "domain"),
    [
        ("eu-west-2", "arn:aws:", "eu-west-2.amazonaws.com"),
        ("cn-north-1", "arn:aws-cn:", "cn-north-1.amazonaws.com.cn"),
        ("us-gov-west-1", "arn:aws-us-gov:", "us-gov-west-1.amazonaws.com"),
        ("us-iso-east-1", "arn:aws-iso:", "us-iso-east-1.c2s.ic.gov"),
        ("us-isob-east-1", "arn:aws-iso-b:", "us-isob-east-1.sc2s.sgov.gov"),
        ("eusc-de-east-1", "arn:aws-eusc:", "eusc-de-east-1.amazonaws.eu"),
    ],
)
def test_each_part_of_aws_has_its_arns_and_its_domain(region, arn, domain):
    """Given a region that is isolated, sovereign or in China, then names are those of its part."""
    made = settings_of({"sleeper.optional.stacks": "QueryStack"}, region=region)

    assert made.names.function_arn("query").startswith(arn)
    assert made.image("worker").startswith(f"{ACCOUNT}.dkr.ecr.{domain}/")
    assert made.names.queue_url("q") == f"https://sqs.{domain}/{ACCOUNT}/q"


@pytest.mark.parametrize("region", ["London", "us-isox-east-1", "mars-west-1", "eu-west-2a", ""])
def test_what_is_no_region_is_refused(region):
    """Given a name that no part of AWS has for a region, then it is told, with an example."""
    assert "must be a region" in failures(NETWORK, region=region)["sleeper.region"]


def test_properties_of_another_account_or_region_are_refused():
    """Given an instance that exists elsewhere, then its stacks are not made here."""
    found = failures(
        {"sleeper.account": "999999999999", "sleeper.region": "eu-west-1"}
        | {"sleeper.optional.stacks": "QueryStack"}
    )

    assert found["sleeper.account"].endswith("are those of '123456789012'.")
    assert found["sleeper.region"].endswith("are those of 'eu-west-2'.")


@pytest.mark.parametrize("given", ["", "-demo", "demo-", "a" * 21, "über", "a/b", "a_b"])
def test_an_id_that_names_in_aws_cannot_have_is_refused(given):
    """Buckets have the id in their names."""
    assert failures({"sleeper.id": given, "sleeper.optional.stacks": "QueryStack"}).keys() == {
        "sleeper.id"
    }


@pytest.mark.parametrize(
    ("cpu", "memory_mb", "told"),
    [
        (256, 512, None),
        (16384, 122880, None),
        (8192, 16384 + 4096, None),
        (8192, 16384 + 1024, "memory is 16384 to 61440: 16384 is nearest"),
        (1024, 512, "memory is 2048 to 8192: 2048 is nearest"),
        (3, 512, "no task with 3 processor units"),
    ],
)
def test_sizes_of_tasks_are_those_of_fargate(cpu, memory_mb, told):
    """Fargate has some sizes only, and a failed deployment is a late place to learn it."""
    found = size_failure(cpu, memory_mb)

    assert (found is None) if told is None else told in found


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        (
            "sleeper.kms.key.arn",
            "arn:aws:kms:us-east-1:123456789012:key/abc",
            "us-east-1.*eu-west-2",
        ),
        ("sleeper.kms.key.arn", "alias/mine", "ARN of a key of KMS"),
        ("sleeper.access.logs.bucket", "sleeper-demo-config-123456789012", "logged again"),
        ("sleeper.access.logs.bucket", "Not A Bucket", "name of a bucket"),
    ],
)
def test_a_key_is_of_the_region_and_access_is_logged_elsewhere(name, value, told):
    """What AWS would refuse in the middle of a deployment is told before."""
    with pytest.raises(PropertiesInvalid, match=told):
        settings_of({"sleeper.optional.stacks": "QueryStack", name: value})


def test_a_function_never_takes_longer_than_the_lease_of_its_messages():
    """AWS refuses such a function; by default the committer's lease is the shorter."""
    settings = settings_of({"sleeper.optional.stacks": "QueryStack"})
    lambdas = settings.properties.lambdas

    assert settings.queue(QueueName.COMMIT).visibility_s == 60
    assert settings.timeout_s(lambdas.committer_timeout_s, QueueName.COMMIT) == 60
    assert settings.timeout_s(lambdas.query_timeout_s, QueueName.QUERY) == 900
    assert settings.timeout_s(30, QueueName.QUERY) == 30


def test_concurrency_is_that_of_a_function_or_of_all():
    """A limit is no more than what is reserved, and 0 reserves nothing."""
    settings = settings_of(
        {
            "sleeper.optional.stacks": "QueryStack",
            "sleeper.default.lambda.concurrency.reserved": "7",
            "sleeper.default.lambda.concurrency.max": "9",
        }
    )

    assert settings.at_once(None, None) == (7, 7)
    assert settings.at_once(0, None) == (None, 9)
    assert settings.at_once(20, 12) == (20, 12)
    assert settings.at_once(1, None) == (1, 2)  # AWS has no limit below 2


def test_images_are_in_the_registry_of_the_account_and_region():
    """The tag is the version that deploys, or the property's."""
    given = {"sleeper.optional.stacks": "QueryStack"}
    own = given | {"sleeper.ecr.repository.prefix": "team/sleeper", "sleeper.version": "7"}

    registry = f"{ACCOUNT}.dkr.ecr.{REGION}.amazonaws.com"
    assert settings_of(own).image("spark") == f"{registry}/team/sleeper/spark:7"
    assert settings_of(given).image("worker").startswith(f"{registry}/sleeper/worker:0.")
    china = settings_of(given, region="cn-north-1")
    assert china.image("worker").startswith(f"{ACCOUNT}.dkr.ecr.cn-north-1.amazonaws.com.cn/")
    assert china.names.queue_arn("q") == f"arn:aws-cn:sqs:cn-north-1:{ACCOUNT}:q"


DIGEST = f"sha256:{'0a' * 32}"


@pytest.mark.parametrize(
    ("given", "address"),
    [
        ("team/worker:2", f"{ACCOUNT}.dkr.ecr.{REGION}.amazonaws.com/team/worker:2"),
        (f"worker@{DIGEST}", f"{ACCOUNT}.dkr.ecr.{REGION}.amazonaws.com/worker@{DIGEST}"),
        (f"210987654321.dkr.ecr.{REGION}.amazonaws.com/worker:2", None),
        ("registry.example:5000/a/b:2", None),
        ("public.ecr.aws/sleeper/worker:2", None),
    ],
)
def test_an_image_without_a_host_is_in_the_registry_of_the_account(given, address):
    """Given an address with a tag or a digest, then tasks run it, and functions the default."""
    settings = settings_of({"sleeper.image.tasks": given})

    assert settings.task_image == (address or given)
    assert settings.function_image == settings.image("worker")
    assert settings.images == (settings.function_image, settings.task_image)


@pytest.mark.parametrize("wrong", ["worker", "Worker:1", "worker:", f"worker:1@{DIGEST}", "a b:1"])
def test_an_image_has_a_tag_or_a_digest(wrong):
    """Given an address that names no image, or two, then it is refused with an example."""
    with pytest.raises(PropertiesInvalid, match=r"sleeper\.image\.tasks.*sleeper/worker:1\.0"):
        settings_of({"sleeper.image.tasks": wrong})


@pytest.mark.parametrize(
    ("given", "is_taken"),
    [
        ("worker:2", True),
        (f"210987654321.dkr.ecr.{REGION}.amazonaws.com/worker:2", True),
        ("210987654321.dkr.ecr.eu-west-1.amazonaws.com/worker:2", False),
        ("public.ecr.aws/sleeper/worker:2", False),
    ],
)
def test_functions_take_images_of_their_own_region_alone(given, is_taken):
    """Given an image that Lambda cannot read, then it is refused before anything is made."""
    if is_taken:
        assert settings_of({"sleeper.image.functions": given}).function_image.endswith(given)
        return
    with pytest.raises(PropertiesInvalid, match=f"ECR in its own region alone.*{REGION}"):
        settings_of({"sleeper.image.functions": given})


def test_an_image_that_was_resolved_is_named_by_its_digest():
    """Given the digest of a tag, then all that has the tag has the digest instead."""
    settings = settings_of()
    tag = settings.function_image
    digests = {tag: f"{tag.rpartition(':')[0]}@{DIGEST}"}

    resolved = replace(settings, digests=digests)

    assert resolved.function_image == resolved.task_image == digests[tag]
    assert settings_of({"sleeper.optional.stacks": "QueryStack"}).images == (tag,)
    eks = settings_of({"sleeper.optional.stacks": "EksBulkImportStack"})
    assert eks.images == (tag, eks.image("spark"))
