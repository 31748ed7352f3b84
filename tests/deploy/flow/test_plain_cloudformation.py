"""Templates alone make an instance that works: with the emulator's services, and with those of others.

The stacks are made by the script of docs/deploy/embedding.md. DynamoDB Local and ElasticMQ have no
CloudFormation: they are given the tables and queues that the templates have, as they stand there. So
is moto, whose CloudFormation is not asked: these are its DynamoDB and SQS.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import uuid
from collections import OrderedDict
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sleeper
from sleeper.interfaces.lambdas import handlers, warm_instance
from sleeper.model.jobs.kinds import QueueName
from sleeper.model.jobs.statuses import JobState
from sleeper.storage.aws import clients
from tests.contracts.s3_server import REGION, s3_credentials
from tests.contracts.servers.dynamodb_local import shared_dynamodb_local
from tests.contracts.servers.elasticmq import shared_elasticmq
from tests.contracts.servers.moto import shared_moto
from tests.deploy.flow.emulator import ACCOUNT, Cloud, account, cdk_path, make_runnable
from tests.deploy.flow.test_deployment import (
    BATCHER_QUEUE,
    SCHEMA,
    Context,
    environment,
    network,
    run_worker,
    smoke_job,
    switch_off_functions,
    take_all,
)
from tests.patience import PATIENCE_S
from tests.unit.interfaces.command_line import sleeper as command

__all__ = ["account", "cdk_path", "environment", "network", "s3_credentials"]

PAGE = Path(__file__).parents[3] / "docs" / "deploy" / "embedding.md"
STACKS = "IngestStack,IngestBatcherStack,QueryStack,CompactionStack,GarbageCollectorStack"
TABLE_EXTRAS = ("PointInTimeRecoverySpecification", "TimeToLiveSpecification")
"""What a table is given after it is made: CloudFormation takes it with the rest."""
AT_ONCE = {
    "sleeper.table.ingest.batcher.job.min.size": "0",
    "sleeper.table.compaction.files.batch.size": "2",
    "sleeper.table.compaction.strategy.class": "BasicCompactionStrategy",
}


@pytest.fixture(scope="module")
def cloud(environment):
    """The emulator, and the id of an instance; no image is looked for."""
    return Cloud(environment, f"p-{uuid.uuid4().hex[:8]}")


@pytest.fixture(scope="module")
def folder(cloud, network, tmp_path_factory):
    """The templates."""
    made = tmp_path_factory.mktemp("templates")
    done = command(
        *("deploy", "templates", cloud.instance_id, *network),
        *("--account", ACCOUNT, "--region", REGION, "--out", str(made)),
        *("--set", f"sleeper.optional.stacks={STACKS}"),
        *("--set", f"{BATCHER_QUEUE}=standard_ingest"),
    )
    assert done.exit_code == 0, done.output
    return made


@pytest.fixture(scope="module")
def deployed(cloud, folder):
    """The names of the stacks that the page's script has made, in its order."""
    for path in folder.glob("*.template.json"):
        template = json.loads(path.read_text())
        make_runnable(template, cloud.endpoint)
        path.write_text(json.dumps(template))
    (script,) = re.findall(r"```python\n(import json\n.*?)```\n", PAGE.read_text(), re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-c", script, str(folder)],
        env={**os.environ, "AWS_DEFAULT_REGION": REGION},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def resources_of(folder, kind):
    """The properties of each resource of a type, by its name in the template."""
    return {
        name: resource["Properties"]
        for path in folder.glob("*.template.json")
        for name, resource in json.loads(path.read_text())["Resources"].items()
        if resource["Type"] == kind
    }


def make_tables(cloud, folder):
    """Make the tables of the templates, where the environment says that DynamoDB is."""
    dynamodb = cloud.client("dynamodb")
    for made in resources_of(folder, "AWS::DynamoDB::Table").values():
        given = {name: value for name, value in made.items() if name not in TABLE_EXTRAS}
        dynamodb.create_table(**given)
        if expiry := made.get("TimeToLiveSpecification"):
            dynamodb.update_time_to_live(
                TableName=made["TableName"], TimeToLiveSpecification=expiry
            )


def make_queues(cloud, folder):
    """Make the queues of the templates where SQS is: those of dead letters first."""
    sqs, arns = cloud.client("sqs"), {}
    found = resources_of(folder, "AWS::SQS::Queue").items()
    for name, made in sorted(found, key=lambda each: "RedrivePolicy" in each[1]):
        attributes = {
            key: str(value).lower() if isinstance(value, bool) else str(value)
            for key, value in made.items()
            if key not in ("QueueName", "RedrivePolicy", "Tags")
        }
        if redrive := made.get("RedrivePolicy"):
            (target, _) = redrive["deadLetterTargetArn"]["Fn::GetAtt"]
            policy = {**redrive, "deadLetterTargetArn": arns[target]}
            attributes["RedrivePolicy"] = json.dumps(policy)
        url = sqs.create_queue(QueueName=made["QueueName"], Attributes=attributes)["QueueUrl"]
        told = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
        arns[name] = told["Attributes"]["QueueArn"]


def servers(name, config, tmp_path_factory):
    """Where DynamoDB and SQS are, outside of the emulator."""
    given = config, tmp_path_factory
    if name == "moto":
        return shared_moto(*given), shared_moto(*given)
    return shared_dynamodb_local(*given), shared_elasticmq(*given)


@pytest.fixture(params=["emulator", "dynamodb-local-elasticmq", "moto"])
def services(request, deployed, cloud, folder, tmp_path_factory, monkeypatch):
    """Where DynamoDB and SQS are: in the emulator, or in the servers of others."""
    for function in ("batcher", "query", "committer"):
        switch_off_functions(cloud, function)
    if request.param != "emulator":
        dynamodb, sqs = servers(request.param, request.config, tmp_path_factory)
        monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", dynamodb)
        monkeypatch.setenv("AWS_ENDPOINT_URL_SQS", sqs)
        make_tables(cloud, folder)
        make_queues(cloud, folder)
    monkeypatch.setattr(clients, "_clients", {})
    monkeypatch.setattr(warm_instance, "_open", OrderedDict())  # functions begin anew
    monkeypatch.setenv("SLEEPER_INSTANCE", cloud.url)
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)  # Lambda sets it
    return request.param


def test_the_script_of_the_page_makes_stacks_in_their_order(deployed, folder, cloud):
    """Given the templates, then each stack is there, after those that it needs."""
    listed = json.loads((folder / "stacks.json").read_text())["stacks"]
    order = {each["kind"]: deployed.index(each["name"]) for each in listed}

    assert set(deployed) == set(cloud.stacks().all()) == {each["name"] for each in listed}
    assert all(order[need] < order[each["kind"]] for each in listed for need in each["needs"])


def entries_of(cloud, table):
    """How many entries of a table's log DynamoDB has, where the environment says that it is."""
    return cloud.client("dynamodb").query(
        TableName=f"sleeper-{cloud.instance_id}-transaction-log",
        KeyConditionExpression="TABLE_ID = :id",
        ExpressionAttributeValues={":id": {"S": table.table_id}},
        Select="COUNT",
    )["Count"]


@pytest.mark.usefixtures("services")
def test_rows_go_in_and_out_of_an_instance_that_templates_made(cloud, tmp_path):
    """Given nothing but templates, then jobs, queries, the batcher and compactions work (STR-1)."""
    with sleeper.connect(cloud.url) as instance:

        def deliver(_):
            run_worker(cloud, "ingest")
            handlers.query({"waiting": "query"}, Context())

        smoke_job(instance, cloud, deliver, has_query=True).run()

        table = instance.create_table("numbers", SCHEMA, row_keys=["id"], properties=AT_ONCE)
        bucket = instance.properties.text("sleeper.data.bucket")
        rows = pa.table({"id": [f"{n:02}" for n in range(60)], "n": range(60)}, schema=SCHEMA)
        for start in (0, 30):
            pq.write_table(rows.slice(start, 30), tmp_path / "file.parquet")
            cloud.client("s3").upload_file(str(tmp_path / "file.parquet"), bucket, f"{start}")
            instance.jobs.submit_files("numbers", [f"s3://{bucket}/{start}"])
            take_all(cloud, instance, QueueName.BATCHER, handlers.submit_to_batcher)
            assert handlers.create_batches({}, Context()) == {"jobs": 1, "files": 1}
            run_worker(cloud, "ingest")
        assert {each.state for each in instance.jobs.list()} == {JobState.FINISHED}

        table.refresh()
        assert len(table.references()) == 2
        run_worker(cloud, "compaction")
        table.refresh()
        assert len(table.references()) == 1
        assert len(table.collect_garbage(force=True).deleted) == 2
        assert table.query().to_arrow().equals(rows.cast(table.arrow_schema))
        assert all(each.findings == () for each in instance.verify().tables)
        assert entries_of(cloud, table) == table.refresh()
        instance.delete_table("numbers")
