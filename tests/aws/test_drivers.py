"""Bulk imports that upstream's client asks for are done by Spark, where the instance says so."""

from __future__ import annotations

import json
import uuid

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sleeper
from sleeper.model.jobs.statuses import JobState
from tests.contracts.s3_server import REGION, s3_server
from tests.soak import SOAK
from tests.stories.test_documents_json_in_aws import endpoint
from tests.stories.test_ingest_jobs import SCHEMA, work

__all__ = ["endpoint", "s3_server"]


@pytest.mark.soak
@pytest.mark.skipif(not SOAK, reason="make soak: a driver takes half a minute")
def test_a_message_of_upstreams_client_is_done_by_a_driver(endpoint, tmp_path):
    """Given an instance in AWS and a platform that is not set up, then Spark here does it (BLK-3)."""
    instance = sleeper.create_instance(
        f"aws://spark-{uuid.uuid4().hex[:8]}",
        {
            "sleeper.bulk.import.local.spark.master": "local[1]",
            "sleeper.bulk.import.spark.driver.memory": "1g",
        },
    )
    instance.create_table("numbers", SCHEMA, row_keys=["id"])
    made = {"region_name": REGION, "endpoint_url": endpoint}
    bucket = instance.properties.text("sleeper.data.bucket")
    file = tmp_path / "one.parquet"
    pq.write_table(pa.table({"id": ["a", "b"], "n": [1, 2]}, schema=SCHEMA), file)
    boto3.client("s3", **made).upload_file(str(file), bucket, "for_ingest/one.parquet")
    job = {"id": "june", "tableName": "numbers", "files": [f"{bucket}/for_ingest/one.parquet"]}
    queue = instance.properties.text("sleeper.bulk.import.emr.serverless.job.queue.url")
    boto3.client("sqs", **made).send_message(QueueUrl=queue, MessageBody=json.dumps(job))

    assert work(instance, "bulk-import") == 1

    assert instance.jobs.job("june").state is JobState.FINISHED
    assert instance.jobs.job("june").platform == "spark driver"
    assert instance.table("numbers").query().to_arrow()["n"].to_pylist() == [1, 2]
