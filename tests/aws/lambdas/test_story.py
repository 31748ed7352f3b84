"""An instance at `aws://` without a server: files go in by queues, and rows come out by queues."""

from __future__ import annotations

import json
import uuid

import pyarrow.parquet as pq
import pytest

import sleeper
from sleeper.interfaces.lambdas import handlers, worker_tasks
from sleeper.model.jobs.kinds import QueueName
from sleeper.model.jobs.statuses import JobState
from tests.aws.lambdas.functions import (
    Context,
    aws_endpoint,
    call,
    client,
    functions_of,
    s3_credentials,
    s3_server,
    tables_queue,
    uploaded,
)
from tests.contracts.jobs.lambda_records import records_from
from tests.stories.test_ingest_jobs import SCHEMA, written
from tests.unit.interfaces.command_line import sleeper as command

__all__ = [
    "aws_endpoint",
    "call",
    "client",
    "functions_of",
    "s3_credentials",
    "s3_server",
    "tables_queue",
]


@pytest.fixture
def instance(functions_of):
    """An instance in AWS with a table."""
    made = sleeper.create_instance(f"aws://story-{uuid.uuid4().hex[:8]}")
    made.create_table("numbers", SCHEMA, row_keys=["id"])
    return functions_of(made)


@pytest.fixture
def cluster(instance, client, monkeypatch):
    """A cluster of ECS with a task definition of workers of ingest; nothing runs in it."""
    name = f"sleeper-{instance.instance_id}-workers"
    client("ecs").create_cluster(clusterName=name)
    client("ecs").register_task_definition(
        family=f"{name}-ingest",
        networkMode="awsvpc",
        requiresCompatibilities=["FARGATE"],
        cpu="256",
        memory="512",
        containerDefinitions=[{"name": "worker", "image": "sleeper", "command": ["ingest"]}],
    )
    monkeypatch.setattr(worker_tasks, "_warm", {})
    monkeypatch.setenv("SLEEPER_CLUSTER", name)
    monkeypatch.setenv("SLEEPER_SUBNETS", "subnet-1")
    monkeypatch.setenv("SLEEPER_TASK_INGEST", f"{name}-ingest")
    return name


def test_a_submitted_file_is_found_by_a_query_and_its_table_is_kept(
    instance, call, client, cluster, tables_queue, aws_endpoint, tmp_path
):
    """Given messages of another program alone, then functions and a worker do the rest."""
    instance.table("numbers").set_properties(
        {
            "sleeper.table.ingest.batcher.ingest.queue": "standard_ingest",
            "sleeper.table.ingest.batcher.job.min.size": "0",
            "sleeper.table.partition.splitting.threshold": 10,
        }
    )
    sqs = client("sqs")
    file = written(tmp_path / "file.parquet", *range(20))
    path = uploaded(client, instance, file, "for_ingest/file.parquet")
    sqs.send_message(
        QueueUrl=instance.properties.text("sleeper.ingest.batcher.submit.queue.url"),
        MessageBody=json.dumps({"tableName": "numbers", "files": [path]}),
    )

    assert call(handlers.submit_to_batcher, QueueName.BATCHER)[1] == []
    assert handlers.create_batches({}, Context()) == {"jobs": 1, "files": 1}
    assert handlers.start_workers({"kinds": ["ingest"]}, Context()) == {"ingest": 1}
    [task] = client("ecs").list_tasks(cluster=cluster)["taskArns"]
    assert task
    done = command("worker", "ingest", "--until-empty", "--instance", instance.url)
    assert done.exit_code == 0, done.output
    (job,) = instance.jobs.list()
    assert job.state is JobState.FINISHED

    assert handlers.trigger_tables({"operation": "split"}, Context()) == {"tables": ["numbers"]}
    records = records_from(tables_queue, endpoint=aws_endpoint)
    assert handlers.run_tables({"Records": records}, Context()) == {"batchItemFailures": []}
    assert instance.table("numbers").report_files().leaf_partitions == 2

    query = {"queryId": "q", "tableName": "numbers", "type": "Query", "regions": [{}]}
    sqs.send_message(
        QueueUrl=instance.properties.text("sleeper.query.queue.url"), MessageBody=json.dumps(query)
    )
    assert call(handlers.query, QueueName.QUERY)[1] == []
    bucket = instance.properties.text("sleeper.query.results.bucket")
    [written_to] = client("s3").list_objects_v2(Bucket=bucket, Prefix="query-q/")["Contents"]
    client("s3").download_file(bucket, written_to["Key"], str(tmp_path / "rows.parquet"))
    assert pq.read_table(tmp_path / "rows.parquet")["n"].to_pylist() == [*range(20)]
