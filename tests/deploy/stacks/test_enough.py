"""With no more than its role allows, each worker and function does its work (in an emulator)."""

from __future__ import annotations

import json
import uuid
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import boto3
import pytest

import sleeper
from sleeper.deploy.settings import DeploymentSettings
from sleeper.deploy.stacks.app import synthesise
from sleeper.interfaces.lambdas import handlers, warm_instance
from sleeper.model.jobs.kinds import QueueName
from sleeper.model.jobs.query_statuses import QueryState
from sleeper.model.jobs.statuses import JobState
from sleeper.storage.aws import clients
from sleeper.storage.aws.deployment.deployment import instance_tables
from sleeper.storage.aws.deployment.table_index import ALL_TABLES
from sleeper.storage.aws.ecs_tasks import EcsTasks
from tests.aws.lambdas.functions import Context
from tests.aws.lambdas.waiting_stack import request, stack
from tests.contracts.jobs.lambda_records import records_from
from tests.contracts.s3_server import REGION, s3_credentials, s3_server
from tests.deploy.stacks.conftest import NETWORK, Deployed
from tests.deploy.stacks.enforcing_proxy import enforcing_proxy
from tests.deploy.stacks.test_roles import listed, statements
from tests.stories.test_ingest_jobs import SCHEMA, work, written

__all__ = ["s3_credentials", "s3_server", "stack"]


ACCOUNT = "000000000000"
STACKS = (
    "IngestStack,IngestBatcherStack,QueryStack,BulkExportStack,CompactionStack,"
    "GarbageCollectorStack,PartitionSplittingStack,TableMetricsStack,EmrBulkImportStack"
)

OPERATIONS = (
    ("split", "partition-splitter", "FindPartitionsToSplitQ.fifo"),
    ("collect", "garbage-collector", "GCJobQ.fifo"),
    ("measure", "table-metrics", "MetricsJobQ.fifo"),
)
"""The operations on tables, their functions and their queues."""


class World:
    """An instance whose requests go through a proxy that enforces roles."""

    def __init__(self, proxy, server, folder) -> None:
        self.proxy, self.server = proxy, server
        self.id = f"role-{uuid.uuid4().hex[:8]}"
        self.source = f"source-{self.id}"
        self.client("s3").create_bucket(Bucket=self.source)
        given = {
            "sleeper.ingest.source.bucket": self.source,
            "sleeper.default.table.ingest.batcher.ingest.queue": "standard_ingest",
            "sleeper.default.table.ingest.batcher.job.min.size": "1",
            "sleeper.jobs.called.queues": "commit,query",
        }
        self.instance = sleeper.create_instance(f"aws://{self.id}", given)
        names = given | NETWORK | {"sleeper.id": self.id, "sleeper.optional.stacks": STACKS}
        settings = DeploymentSettings.of(names, account=ACCOUNT, region=REGION)
        self.deployed = Deployed.__new__(Deployed)
        self.deployed.settings = settings
        self.deployed.made = synthesise(settings, folder / "assembly")
        self.names = settings.names
        instance_tables(self.id, REGION, pause=lambda _: None, new_id=lambda: "x").make(*ALL_TABLES)
        queues = ("GCJobQ.fifo", "FindPartitionsToSplitQ.fifo", "MetricsJobQ.fifo")
        for queue in (*queues, *(each.replace("Q.fifo", "DLQ.fifo") for each in queues)):
            self.client("sqs").create_queue(
                QueueName=self.names.prefix + queue, Attributes={"FifoQueue": "true"}
            )
        for function in settings.called_functions.values():
            self.client("lambda").create_function(
                FunctionName=function,
                PackageType="Image",
                Code={"ImageUri": settings.function_image},
                Role=self.names.role_arn("x"),
            )
        self.instance.create_table("numbers", SCHEMA, row_keys=["id"])
        self.folder = folder

    def client(self, service):
        """A client that no role limits."""
        return boto3.client(service, region_name=REGION, endpoint_url=self.server.endpoint)

    def uploaded(self, *numbers):
        """Put a file with a row for each number into the bucket of input files."""
        key = f"{uuid.uuid4().hex}.parquet"
        path = written(self.folder / key, *numbers)
        self.client("s3").upload_file(str(path), self.source, key)
        return f"s3://{self.source}/{key}"

    @contextmanager
    def role(self, name, *, denied=(), opens=True):
        """Open the instance anew, and let it do what a role allows; else fail in the end."""
        rights = {
            effect: [
                (action, resource)
                for owner, statement in statements(self.deployed)
                if owner == self.names.named(name) and statement["Effect"] == effect
                for action in listed(statement["Action"])
                for resource in listed(statement["Resource"])
                if isinstance(resource, str)
            ]
            for effect in ("Allow", "Deny")
        }
        assert rights["Allow"], name
        self.proxy.allowed, self.proxy.forbidden = rights["Allow"], rights["Deny"]
        self.proxy.denied = []
        try:
            yield sleeper.connect(self.instance.url) if opens else None
        finally:
            self.proxy.allowed = None
        refused = {each for each in self.proxy.denied if each.action not in denied}
        assert refused == set(), name

    def messages(self, queue):
        """What Lambda would call a function with. They are taken out of the queue."""
        sqs = self.client("sqs")
        url = sqs.get_queue_url(QueueName=queue)["QueueUrl"]
        records = records_from(url, endpoint=self.server.endpoint)
        for each in records:
            sqs.delete_message(QueueUrl=url, ReceiptHandle=each["receiptHandle"])
        return {"Records": records}


@pytest.fixture(scope="module")
def environment():
    """Variables that last for a module."""
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@pytest.fixture(scope="module")
def world(s3_server, environment, tmp_path_factory):
    """One instance for all tests: it takes seconds to make."""
    for name, value in {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}.items():
        environment.setenv(name, value)
    environment.setenv("AWS_REGION", REGION)
    environment.setenv("NO_PROXY", "127.0.0.1")
    environment.setattr(clients, "_clients", {})
    with enforcing_proxy(s3_server.endpoint, f"{REGION}:{ACCOUNT}") as proxy:
        environment.setenv("AWS_ENDPOINT_URL", proxy.endpoint)
        made = World(proxy, s3_server, tmp_path_factory.mktemp("roles"))
        environment.setenv("SLEEPER_INSTANCE", made.instance.url)
        yield made


@pytest.fixture(autouse=True)
def cold(monkeypatch):
    """Each function opens the instance itself."""
    monkeypatch.setattr(warm_instance, "_open", type(warm_instance._open)())


def ids(instance):
    return instance.table("numbers").query().to_arrow().column("id").to_pylist()


def test_users_submit_and_read_with_the_policies_for_them(world):
    """`ingest-by-queue`, `ingest-direct` and `query`. Dead letters, which are of all, none sees."""
    with world.role("ingest-direct") as mine:
        mine.table("numbers").ingest([{"id": "0001", "n": 1}])
    with world.role("ingest-by-queue", denied={"sqs:GetQueueUrl"}) as mine:
        job = mine.jobs.submit_ingest("numbers", [world.uploaded(2)])
        assert mine.jobs.job(job).state
    with world.role("query") as mine:
        assert "0001" in ids(mine)
        query = mine.jobs.submit_query("numbers", key="0001")
    with world.role("query"):  # the function has the name of the policy
        handlers.query({"waiting": "query"}, Context())
    assert world.instance.jobs.query(query).state is QueryState.COMPLETED


def test_workers_run_jobs_with_the_roles_of_tasks(world):
    """An ingest of a file, a compaction and an export, each from a queue or a plan."""
    job = world.instance.jobs.submit_ingest("numbers", [world.uploaded(10, 11)])
    with world.role("ingest-task") as mine:
        work(mine)
    assert world.instance.jobs.job(job).state is JobState.FINISHED
    for number in range(20, 34):
        world.instance.table("numbers").ingest([{"id": f"{number:04}", "n": number}])
    before = world.instance.table("numbers").report_files().references
    with world.role("compaction-task") as mine:
        work(mine, "compaction")
    assert world.instance.table("numbers").report_files().references < before
    export = world.instance.jobs.submit_export("numbers")
    with world.role("export-task") as mine:
        work(mine, "export")
    assert world.instance.jobs.query(export, kind="export").state is QueryState.COMPLETED


def test_functions_run_queries_and_commits_and_batches(world):
    """`query`, `committer`, `batcher-submit` and `batcher-create-jobs`."""
    query = world.instance.jobs.submit_query("numbers", key="0001")
    with world.role("query"):
        answer = handlers.query(world.messages(world.names.queue(QueueName.QUERY)), Context())
    assert answer == {"batchItemFailures": []}
    assert world.instance.jobs.query(query).state is QueryState.COMPLETED
    world.instance.jobs.submit_files("numbers", [world.uploaded(50)])
    with world.role("batcher-submit"):
        event = world.messages(world.names.queue(QueueName.BATCHER))
        assert handlers.submit_to_batcher(event, Context()) == {"batchItemFailures": []}
    with world.role("batcher-create-jobs"):
        assert handlers.create_batches({}, Context())["files"] == 1
    table = world.instance.table("numbers")
    table.set_properties({"sleeper.table.statestore.commit.async.enabled": "true"})
    job = world.instance.jobs.submit_ingest("numbers", [world.uploaded(60)])
    with world.role("ingest-task") as mine:
        work(mine)
    with world.role("committer"):
        assert handlers.commit({"waiting": "commit"}, Context()) == {"batchItemFailures": []}
    assert world.instance.jobs.job(job).state is JobState.FINISHED


def test_files_beside_tables_are_submitted_and_rows_of_tables_are_not(world):
    """Given files in the bucket of tables, then the batcher sees those that are no table's."""
    bucket = world.names.buckets.data_bucket
    path = world.uploaded(70).partition("s3://")[2]
    for key in ("uploads/june.parquet", "0a1b2c3d/data/partition_root/june.parquet"):
        world.client("s3").copy_object(Bucket=bucket, Key=key, CopySource=path)
        world.instance.jobs.submit_files("numbers", [f"s3://{bucket}/{key}"])

    with world.role("batcher-submit", denied={"s3:GetObject"}):
        event = world.messages(world.names.queue(QueueName.BATCHER))
        handlers.submit_to_batcher(event, Context())
        (refused,) = {each.arn for each in world.proxy.denied}
    assert refused.endswith("/0a1b2c3d/data/partition_root/june.parquet")
    waiting = [each.path for each in world.instance.jobs.stores.batcher.pending()]
    assert [each for each in waiting if bucket in each] == [f"s3://{bucket}/uploads/june.parquet"]
    world.instance.jobs.stores.batcher.delete_expired(datetime.max.replace(tzinfo=UTC))


def test_a_driver_is_started_for_a_bulk_import(world, environment):
    """Given a job for EMR, then its starter asks for a cluster, and reads no row."""
    environment.setenv("SLEEPER_QUEUE", QueueName.BULK_IMPORT_EMR)
    environment.setenv("AWS_DEFAULT_REGION", REGION)  # Lambda sets it
    world.instance.set_properties(
        {
            "sleeper.bulk.import.emr.role.name": "emr",
            "sleeper.bulk.import.emr.ec2.role.name": "machines",
            "sleeper.bulk.import.environment": "s3://jars/environment",
            "sleeper.subnets": "subnet-0a1b2c3d",
        }
    )
    job = {"id": "june", "tableName": "numbers", "files": [world.uploaded(80)]}
    world.instance.jobs.send_message(QueueName.BULK_IMPORT_EMR, json.dumps(job))

    with world.role("bulk-import-emr-starter"):
        event = world.messages(world.names.queue(QueueName.BULK_IMPORT_EMR))
        answer = handlers.start_bulk_imports(event, Context())

    assert answer == {"batchItemFailures": []}
    assert world.instance.jobs.job("june").state is JobState.ACCEPTED


def test_queues_are_watched(world, environment):
    """`queue-watch` counts messages, and reads metrics of queues that have some; opens no instance."""
    function = world.deployed.resource("AWS::Lambda::Function", "queue-watch").properties
    for name, value in function["Environment"]["Variables"].items():
        environment.setenv(name, value)
    url = world.client("sqs").get_queue_url(QueueName=world.names.queue(QueueName.QUERY))
    environment.setenv("SLEEPER_QUEUES_URL", url["QueueUrl"].rpartition("/")[0])

    world.instance.jobs.submit_query("numbers", key="0001")  # one waits: else no metric is read

    with world.role("queue-watch", opens=False):
        found = handlers.watch_queues({}, Context())
    world.messages(world.names.queue(QueueName.QUERY))

    assert found["deadLetters"] == {}


def test_properties_of_a_template_are_written(world, stack):
    """`properties-writer` makes no resource, and reads no table."""
    before = dict(world.instance.properties.values)
    after = before | {"sleeper.gc.batch.size": "7"}

    with world.role("properties-writer", opens=False):
        handlers.write_properties(request(stack, "Update", after, before), Context())

    assert stack.answers[0][2]["Status"] == "SUCCESS"
    with sleeper.connect(world.instance.url) as opened:
        assert opened.properties.text("sleeper.gc.batch.size") == "7"


def test_every_function_is_run_with_its_role(world):
    """Given the functions of all stacks here, then each is in one of these tests."""
    here = Path(__file__).read_text()
    named = {each.name for each in world.deployed.resources("AWS::Lambda::Function")}
    of_operations = {f"{each}-trigger" for _, each, _ in OPERATIONS} | {f for _, f, _ in OPERATIONS}
    run = {each for each in named if f'role("{each.removeprefix(world.names.prefix)}"' in here}

    assert {each.removeprefix(world.names.prefix) for each in named - run} == of_operations


@pytest.mark.parametrize(("operation", "function", "queue"), OPERATIONS)
def test_operations_on_tables_are_triggered_and_run(world, environment, operation, function, queue):
    """A trigger sends a message for the table, and the function runs the operation."""
    named = world.names.prefix + queue
    url = world.client("sqs").get_queue_url(QueueName=named)["QueueUrl"]
    environment.setenv("SLEEPER_TABLES_QUEUE_URL", url)

    with world.role(f"{function}-trigger"):
        asked = handlers.trigger_tables({"operation": operation}, Context())
    assert asked == {"tables": ["numbers"]}
    with world.role(function):
        answer = handlers.run_tables(world.messages(named), Context())
    assert answer == {"batchItemFailures": []}


def test_the_starter_sees_what_waits(world, environment, monkeypatch):
    """Messages of a queue, and compactions of tables that have changed; ECS is not there to ask."""
    started = []
    monkeypatch.setattr(EcsTasks, "running", lambda self, family: (0, 0))
    monkeypatch.setattr(
        EcsTasks, "start", lambda self, family, count: started.append((family, count)) or count
    )
    function = world.deployed.resource("AWS::Lambda::Function", "worker-starter").properties
    for name, value in function["Environment"]["Variables"].items():
        environment.setenv(name, value if isinstance(value, str) else "of-the-stack")
    work(world.instance)  # what other tests have sent: this one counts messages
    world.instance.jobs.submit_ingest("numbers", [world.uploaded(90)])
    for number in range(100, 114):
        world.instance.table("numbers").ingest([{"id": f"{number:04}", "n": number}])
    planned = len(world.instance.table("numbers").plan_compaction().jobs)
    world.instance.jobs.submit_query("numbers", key="0001")
    rules = world.deployed.resources("AWS::Events::Rule", stack="WorkersStack")
    (event,) = (json.loads(each.properties["Targets"][0]["Input"]) for each in rules)

    with world.role("worker-starter"):
        answer = handlers.start_workers(event, Context())

    assert planned >= 1
    assert event["functions"].keys() == {"query", "commit", "bulk-import-emr"}
    assert answer == {"ingest": 1, "compaction": planned, "query": 1}
    assert started == [
        (world.names.named("ingest"), 1),
        (world.names.named("compaction"), planned),
    ]
