"""Queues in SQS keep the contract, on a server that speaks it. Waits are real, and short."""

from __future__ import annotations

import time
import uuid
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from sleeper.model.jobs.kinds import JobKind, QueueName
from sleeper.storage.aws.jobs.job_stores import AwsJobStores
from tests.contracts.jobs.batcher_store_contract import file
from tests.contracts.jobs.job_queue_contract import (
    SETTINGS,
    JobQueueContract,
    JobQueueTimesContract,
)
from tests.contracts.jobs.job_tracker_contract import INGESTS, event
from tests.contracts.s3_server import (
    REGION,
    aws_endpoint,
    kept_clients,
    s3_credentials,
    s3_server,
)
from tests.contracts.servers.elasticmq import sqs_server
from tests.soak import SOAK

__all__ = ["aws_endpoint", "kept_clients", "s3_credentials", "s3_server", "sqs_server"]


@pytest.fixture
def stores(kept_clients):
    stores = AwsJobStores(
        f"test-{uuid.uuid4().hex[:12]}",
        "s3://bucket/test",
        SETTINGS,
        region=REGION,
        now=lambda: datetime.now(UTC),
        sleep=time.sleep,
        pause=lambda attempt: time.sleep(0.01 * attempt),
        new_id=lambda: str(uuid.uuid4()),
        look_s=0,
    )
    yield stores
    stores.close()


class TestSqsQueue(JobQueueTimesContract):
    """A queue in SQS."""

    knows_ages = False
    finds_dead_letters = False

    @pytest.fixture
    def wait(self):
        return time.sleep


@pytest.mark.soak
class TestSqsQueueOfElasticMq(JobQueueTimesContract if SOAK else JobQueueContract):
    """A queue in SQS, on the other server that speaks it.

    To wait for its times takes a minute.
    """

    knows_ages = False
    finds_dead_letters = False

    @pytest.fixture
    def kept_clients(self, sqs_server):
        """Clients of SQS alone: the other services are where they were."""

    @pytest.fixture
    def wait(self):
        return time.sleep


def test_tracker_and_batcher_store_are_in_dynamodb(stores):
    """Their tables are made at first use; there is nothing in them before."""
    now = datetime.now(UTC)
    started = event(at=now)
    submitted = replace(file("a"), received=now, expires=now + timedelta(days=7))
    empty = [*stores.tracker.jobs(INGESTS), *stores.batcher.unsent()]

    stores.tracker.record([started], expires=now + timedelta(days=7))
    stores.batcher.save([submitted])
    stores.batcher.assign("job", stores.batcher.pending(), QueueName.INGEST)

    assert empty == []
    assert stores.tracker.events_of_job(JobKind.INGEST, "job") == [started]
    assert [job.paths for job in stores.batcher.unsent()] == [("a",)]
