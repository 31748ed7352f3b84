"""An instance is deployed, used, changed and removed in an emulator, by the CDK's command line."""

from __future__ import annotations

import json
import uuid
from collections import OrderedDict
from functools import partial
from importlib.metadata import version
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sleeper
from sleeper.deploy.flow import deployment, images, preparation, service_roles, spark_packages
from sleeper.deploy.flow.smoke_job import TABLE, SmokeJob
from sleeper.errors import DeploymentFailed
from sleeper.interfaces.lambdas import handlers, warm_instance
from sleeper.model.jobs.kinds import QueueName
from sleeper.model.jobs.statuses import JobState
from tests.contracts.s3_server import REGION, s3_credentials
from tests.deploy.flow.emulator import (
    EMULATOR_LACKS,
    Cloud,
    account,
    cdk_path,
    cloud_with_image,
    download_from,
    enter_cloud,
    put_plain,
    synthesise_for,
)
from tests.unit.interfaces.command_line import json_of
from tests.unit.interfaces.command_line import sleeper as command

__all__ = ["account", "cdk_path", "s3_credentials"]


PAGE = Path(__file__).parents[3] / "docs" / "deploy" / "aws.md"
STACKS = ",".join(
    (
        *("IngestStack", "IngestBatcherStack", "BulkExportStack", "QueryStack", "CompactionStack"),
        *("GarbageCollectorStack", "PartitionSplittingStack", "DashboardStack"),
        "TableMetricsStack",
    )
)
"""All that the emulator can make: EMR Serverless is not among it."""
BATCHER_QUEUE = "sleeper.default.table.ingest.batcher.ingest.queue"
AT_ONCE = {"sleeper.table.ingest.batcher.job.min.size": "0"}
SCHEMA = pa.schema([("id", pa.string()), ("n", pa.int64())])


@pytest.fixture(scope="module")
def environment(account, cdk_path):
    """What commands find in the environment: the emulator, and the CDK's command line."""
    patch = pytest.MonkeyPatch()
    enter_cloud(patch, account, cdk_path)
    patch.setattr(images, "download", partial(download_from, account))
    patch.setattr(service_roles, "KNOWN_S", 0)
    yield account
    patch.undo()


@pytest.fixture(scope="module")
def cloud(environment):
    """The emulator, with an image in ECR and the id of an instance."""
    return cloud_with_image(environment, "e")


@pytest.fixture(scope="module")
def network(cloud):
    """Options that name a VPC and a subnet with a way out."""
    ec2 = cloud.client("ec2")
    vpc = ec2.create_vpc(CidrBlock="10.80.0.0/16")["Vpc"]["VpcId"]
    subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.80.1.0/24")["Subnet"]["SubnetId"]
    return "--set", f"sleeper.vpc={vpc}", "--set", f"sleeper.subnets={subnet}"


@pytest.fixture(scope="module")
def deployed(cloud, network):
    """What the command printed, which was interrupted when all stacks were there."""
    words = (
        *("deploy", "aws", cloud.instance_id, *network),
        *("--set", f"sleeper.optional.stacks={STACKS}", "--yes", "--no-smoke-test"),
        *("--set", f"{BATCHER_QUEUE}=standard_ingest"),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(deployment, "create_instance", interrupted)
        stopped = command(*words)
    assert stopped.exit_code == 130, stopped.output
    done = command(*words)
    assert done.exit_code == 0, done.output
    return done


def interrupted(*_):
    raise KeyboardInterrupt


def stack_names(cloud):
    return {each.rpartition("-")[2] for each in cloud.stacks().all()}


def without_id(values, cloud):
    """Properties with `ID` for the id, and without those that tell the version of a deployment."""
    named = {
        name: text.replace(cloud.instance_id, "ID").replace(
            cloud.endpoint, f"https://sqs.{REGION}.amazonaws.com"
        )
        for name, text in values.items()
    }
    alone = ("sleeper.version", "sleeper.retain.infra.after.destroy", "sleeper.properties.version")
    return {name: text for name, text in named.items() if name not in alone}


def worker_command(cloud, kind):
    """The command that a task of ECS runs for a kind of jobs, which ends when there are none."""
    ecs = cloud.client("ecs")
    families = ecs.list_task_definition_families(
        familyPrefix=f"sleeper-{cloud.instance_id}-", status="ACTIVE"
    )["families"]
    (family,) = (each for each in families if kind in each.lower())
    found = ecs.describe_task_definition(taskDefinition=family)["taskDefinition"]
    (container,) = found["containerDefinitions"]
    assert container["entryPoint"] == ["sleeper"]
    assert cloud.url in container["command"]
    return [*container["command"]]


def run_worker(cloud, kind):
    words = worker_command(cloud, kind)
    words[words.index("--idle") + 1] = "0"
    done = command(*words)
    assert done.exit_code == 0, done.output


def smoke_job(instance, cloud, rest, **more):
    settings = {"has_ingest": True, "has_query": False, "looks_max": 3}
    groups = {"ingest": ("/sleeper/ingest",)}
    return SmokeJob(
        instance=instance, log_groups=groups, rest=rest, report=lambda _: None, **settings | more
    )


def test_after_an_interruption_by_the_end_nothing_is_left_to_do(deployed, cloud):
    """Given an interruption after all stacks, then these have written the properties too."""
    assert "InstanceStack: no change" in deployed.output
    assert "nothing to do" in deployed.output
    assert {"InstanceStack", "GarbageCollectorStack"} <= stack_names(cloud)

    again = command("deploy", "aws", cloud.instance_id, "--yes")

    assert again.exit_code == 0, again.output
    assert "nothing to do" in again.output


@pytest.mark.usefixtures("deployed")
def test_its_properties_are_those_of_init(cloud):
    """Given an instance that `sleeper init` made, then both have the same properties."""
    other = Cloud(cloud.endpoint, f"i-{uuid.uuid4().hex[:8]}")
    with sleeper.create_instance(other.url) as made, sleeper.connect(cloud.url) as opened:
        given = {"sleeper.vpc", "sleeper.subnets", "sleeper.optional.stacks", BATCHER_QUEUE}
        given.add("sleeper.jobs.called.queues")  # init makes no functions
        found = without_id(opened.properties.values, cloud)
        assert {n: t for n, t in found.items() if n not in given} == without_id(
            made.properties.values, other
        )
        assert opened.properties.values["sleeper.version"] == version("sleeper-store")


@pytest.mark.usefixtures("deployed")
def test_a_job_goes_through_what_was_made(cloud):
    """Given a job in the queue of CloudFormation, then the task's command runs it (STR-1)."""
    with sleeper.connect(cloud.url) as instance:
        smoke_job(instance, cloud, lambda _: run_worker(cloud, "ingest")).run()
        assert TABLE not in instance

        table = instance.create_table("numbers", SCHEMA, row_keys=["id"])
        table.ingest(pa.table({"id": ["a"], "n": [1]}, schema=SCHEMA))
        assert sleeper.connect(cloud.url).table("numbers").query(key="a").to_pylist() == [
            {"id": "a", "n": 1}
        ]


@pytest.mark.usefixtures("deployed")
def test_a_smoke_job_that_nobody_takes_says_where_to_look(cloud):
    """Given no worker, then the error names the queue, its depth and the log group."""
    with sleeper.connect(cloud.url) as instance:
        with pytest.raises(DeploymentFailed, match=r"no worker took.*`ingest`.*/sleeper/ingest"):
            smoke_job(instance, cloud, lambda _: None).run()
        assert TABLE not in instance
    queue = cloud.client("sqs").get_queue_url(QueueName=f"sleeper-{cloud.instance_id}-IngestJobQ")
    cloud.client("sqs").purge_queue(QueueUrl=queue["QueueUrl"])


@pytest.mark.usefixtures("deployed")
def test_a_query_is_answered_by_the_handler_of_its_function(cloud, monkeypatch):
    """Given a query in its queue, when its function is called, then its rows are there."""

    found = cloud.client("lambda").get_function(FunctionName=f"sleeper-{cloud.instance_id}-query")
    assert found["Configuration"]["Environment"]["Variables"]["SLEEPER_INSTANCE"] == cloud.url
    monkeypatch.setenv("SLEEPER_INSTANCE", cloud.url)

    def deliver(_):
        assert handlers.query({"waiting": "query"}, Context()) == {"batchItemFailures": []}

    with sleeper.connect(cloud.url) as instance:
        smoke_job(instance, cloud, deliver, has_ingest=False, has_query=True).run()


class Context:
    """What Lambda tells of a call."""

    def get_remaining_time_in_millis(self):
        return 60_000


def switch_off_functions(cloud, function):
    """Have the emulator take no messages for a function, whose image it cannot run."""
    client = cloud.client("lambda")
    name = f"sleeper-{cloud.instance_id}-{function}"
    for each in client.list_event_source_mappings(FunctionName=name)["EventSourceMappings"]:
        client.update_event_source_mapping(UUID=each["UUID"], Enabled=False)


def event_of(message, url):
    """A message as Lambda delivers it."""
    attributes = {
        name: {
            "stringValue": value.get("StringValue"),
            "dataType": value["DataType"],
        }
        for name, value in message.get("MessageAttributes", {}).items()
    }
    return {
        "Records": [
            {
                "messageId": message["MessageId"],
                "receiptHandle": message["ReceiptHandle"],
                "body": message["Body"],
                "attributes": message.get("Attributes", {}),
                "messageAttributes": attributes,
                "eventSource": "aws:sqs",
                "eventSourceARN": f"arn:aws:sqs:{REGION}:000000000000:{url.rpartition('/')[2]}",
            }
        ]
    }


@pytest.mark.usefixtures("deployed")
def test_a_rebuilt_image_with_the_same_tag_changes_functions_and_tasks(cloud):
    """Given another image with the tag that is deployed, then what runs it is shown as changed."""
    tag = version("sleeper-store")
    before = put_plain(cloud, "sleeper/worker", tag, "amd64")
    function = cloud.client("lambda").get_function(
        FunctionName=f"sleeper-{cloud.instance_id}-query"
    )
    after = put_plain(cloud, "sleeper/worker", tag, "amd64", build="another")

    shown = json_of(command("deploy", "aws", cloud.instance_id, "--dry-run", "--json"))
    put_plain(cloud, "sleeper/worker", tag, "amd64")

    assert function["Code"]["ImageUri"].endswith(f"/sleeper/worker@{before}")
    assert any(each["text"].endswith(f" is {after}") for each in shown["findings"])
    changed = [each for stack in shown["stacks"] for each in stack["resources"]]
    assert {each["type"] for each in changed} == {
        "AWS::Lambda::Function",
        "AWS::ECS::TaskDefinition",
    }
    assert {each["name"] for each in changed} >= {"query", "committer", "ingest", "compaction"}


@pytest.mark.usefixtures("deployed")
def test_a_change_is_shown_made_and_written(cloud):
    """Given another time of a queue, and a stack less, then both are shown, and done."""
    fewer = STACKS.replace(",GarbageCollectorStack", "")
    options = (
        *("--set", "sleeper.query.queue.visibility.timeout.seconds=950"),
        *("--set", f"sleeper.optional.stacks={fewer}", "--no-smoke-test"),
    )

    shown = json_of(command("deploy", "aws", cloud.instance_id, *options, "--dry-run", "--json"))
    refused = command("deploy", "aws", cloud.instance_id, *options, answer="no\n")
    done = command("deploy", "aws", cloud.instance_id, *options, "--yes")

    changed = {each["name"].rpartition("-")[2]: each for each in shown["stacks"]}
    assert changed["GarbageCollectorStack"]["is_removed"]
    queues = [each for each in changed["QueuesStack"]["resources"] if each["properties"]]
    assert {"VisibilityTimeout"} in [set(each["properties"]) for each in queues]
    assert changed["InstanceStack"]["resources"] == []
    assert shown["properties"]["sleeper.query.queue.visibility.timeout.seconds"] == "950"
    assert not any(each["losses"] for each in shown["stacks"])
    assert refused.exit_code == 1
    assert "nothing was changed" in refused.output
    assert done.exit_code == 0, done.output
    assert "GarbageCollectorStack" not in stack_names(cloud)
    with sleeper.connect(cloud.url) as instance:
        values = instance.properties.values
    assert values["sleeper.query.queue.visibility.timeout.seconds"] == "950"
    assert values["sleeper.optional.stacks"] == fewer


@pytest.mark.usefixtures("deployed")
def test_a_file_for_emr_finds_a_cluster_with_packages(cloud, tmp_path, monkeypatch):
    """Given EMR and no packages, when it is deployed, then a batched file starts its driver.

    The emulator makes a cluster, as it was asked to, and runs nothing on it.
    """
    monkeypatch.setattr(warm_instance, "_open", OrderedDict())  # a function begins anew
    monkeypatch.setattr(spark_packages, "sleeper_requirements", lambda _: [])
    here = partial(without_security_configurations, cloud.endpoint)
    monkeypatch.setattr(preparation, "synthesise", here)
    options = (
        *("--set", f"sleeper.optional.stacks={STACKS},EmrBulkImportStack"),
        *("--set", f"{BATCHER_QUEUE}=bulk_import_emr", "--no-smoke-test", "--yes"),
    )
    done = command("deploy", "aws", cloud.instance_id, *options)
    again = command("deploy", "aws", cloud.instance_id, *options)
    assert done.exit_code == 0, done.output
    assert "will be made by pip" in done.output
    assert "nothing to do" in again.output, again.output

    switch_off_functions(cloud, "batcher")
    monkeypatch.setenv("SLEEPER_INSTANCE", cloud.url)
    monkeypatch.setenv("SLEEPER_QUEUE", QueueName.BULK_IMPORT_EMR)
    monkeypatch.setattr(warm_instance, "_open", type(warm_instance._open)())  # a new process
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)  # Lambda sets it
    pq.write_table(pa.table({"id": ["a"], "n": [1]}, schema=SCHEMA), tmp_path / "1.parquet")
    with sleeper.connect(cloud.url) as instance:
        instance.create_table("batched", SCHEMA, row_keys=["id"], properties=AT_ONCE)
        bucket = instance.properties.text("sleeper.data.bucket")
        cloud.client("s3").upload_file(str(tmp_path / "1.parquet"), bucket, "in/1.parquet")
        instance.jobs.submit_files("batched", [f"s3://{bucket}/in/1.parquet"])
        take_all(cloud, instance, QueueName.BATCHER, handlers.submit_to_batcher)
        (file,) = instance.jobs.submitted_files()
        handlers.create_batches({}, Context())
        take_all(cloud, instance, QueueName.BULK_IMPORT_EMR, handlers.start_bulk_imports)
        (file,) = instance.jobs.submitted_files()
        assert instance.jobs.job(file.job_id).state is JobState.ACCEPTED

    emr = cloud.client("emr")
    name = f"sleeper-{cloud.instance_id}-batched-{file.job_id}"[:64]
    (cluster,) = (each for each in emr.list_clusters()["Clusters"] if each["Name"] == name)
    (step,) = emr.list_steps(ClusterId=cluster["Id"])["Steps"]
    sent = step["Config"]["Args"]
    archive = sent[sent.index("--archives") + 1].removesuffix("#environment")
    assert "/arm64/" in archive
    place, _, key = archive.removeprefix("s3://").partition("/")
    assert cloud.client("s3").head_object(Bucket=place, Key=key)["ContentLength"] > 1_000_000


def without_security_configurations(endpoint, settings, folder):
    """Templates without what the emulator's CloudFormation has not."""
    made = synthesise_for(endpoint, settings, folder)
    for each in made.stacks:
        template = json.loads(each.template.read_text())
        template["Resources"] = {
            name: resource
            for name, resource in template["Resources"].items()
            if resource["Type"] != "AWS::EMR::SecurityConfiguration"
        }
        each.template.write_text(json.dumps(template))
    return made


def take_all(cloud, instance, queue, function):
    """Call a function with what waits in a queue, and delete what did not fail."""
    sqs = cloud.client("sqs")
    url = instance.jobs.stores.queue(queue).urls()[0]
    received = sqs.receive_message(
        QueueUrl=url, AttributeNames=["All"], MessageAttributeNames=["All"], WaitTimeSeconds=20
    )
    (message,) = received["Messages"]
    assert function(event_of(message, url), Context()) == {"batchItemFailures": []}
    sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])


@pytest.mark.usefixtures("deployed")
def test_a_removed_instance_keeps_its_data_and_is_taken_over(cloud):
    """Given data that is kept, then stacks go, and its data goes when it is not kept any more."""
    with sleeper.connect(cloud.url) as instance:
        if "numbers" not in instance:
            instance.create_table("numbers", SCHEMA, row_keys=["id"])

    refused = command("destroy", cloud.url, answer="")
    gone = command("destroy", cloud.url, "--yes")
    kept = command("destroy", cloud.url, "--yes")

    assert refused.exit_code == 1
    assert gone.exit_code == 0, gone.output
    assert stack_names(cloud) == set()
    with sleeper.connect(cloud.url) as instance:
        assert "numbers" in instance
        assert instance.pause_switch.paused_since() is None
    assert kept.exit_code == 1
    assert "sleeper.retain.infra.after.destroy=false" in kept.output

    again = command("deploy", "aws", cloud.instance_id, "--dry-run")
    assert again.exit_code == 0, again.output
    assert "taken over with all they hold" in again.output

    name = "sleeper.retain.infra.after.destroy=false"
    assert command("instance", "set", name, "--instance", cloud.url).exit_code == 0
    typed = command("destroy", cloud.url, answer="another\n")
    assert "was not typed" in typed.output
    removed = command("destroy", cloud.url, answer=f"{cloud.instance_id}\n")
    assert removed.exit_code == 0, removed.output
    tables = cloud.client("dynamodb").list_tables()["TableNames"]
    assert [each for each in tables if cloud.instance_id in each] == []
    assert stack_names(cloud) == set()


@pytest.mark.parametrize("lack", EMULATOR_LACKS)
def test_the_page_says_what_the_emulator_does_not_do(lack):
    """What these tests do by other means is on the page of deployments."""
    assert f"- {lack}\n" in PAGE.read_text()


def test_all_mistakes_are_told_at_once(environment):
    """Given wrong properties and no image, then one message has each of them (INS-1)."""
    done = command(
        *("deploy", "aws", "wrong", "--yes"),
        *("--set", "sleeper.optional.stacks=IngestStak,AthenaStack"),
        *("--set", "sleeper.account=123456789012", "--set", "sleeper.fargate.spot=perhaps"),
    )

    assert done.exit_code == 1
    for told in ("IngestStak", "IngestStack", "AthenaStack", "sleeper.account", "fargate.spot"):
        assert told in done.output
    assert "nothing was deployed" in done.output


def test_an_id_that_names_in_aws_cannot_have_is_refused(environment):
    """Given an id that is too long, or has other characters, then it is told with all the rest."""
    for wrong in ("a" * 21, "under_score", "-dash"):
        done = command("deploy", "aws", "--set", "sleeper.fargate.spot=perhaps", "--", wrong)
        assert done.exit_code == 1
        assert "at most 20" in done.output
        assert "fargate.spot" in done.output
        assert "nothing was deployed" in done.output
