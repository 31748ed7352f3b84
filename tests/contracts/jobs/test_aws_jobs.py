"""Queues in SQS keep the contract, on a server that speaks it. Waits are real, and short."""

from __future__ import annotations

import time
import uuid
from datetime import UTC, datetime

import pytest

from sleeper.storage.aws.job_stores import AwsJobStores
from tests.contracts.jobs.job_queue_contract import SETTINGS, JobQueueContract
from tests.contracts.s3_server import REGION, aws_endpoint, s3_credentials, s3_server

__all__ = ["aws_endpoint", "s3_credentials", "s3_server"]


@pytest.fixture
def stores(aws_endpoint):
    stores = AwsJobStores(
        f"test-{uuid.uuid4().hex[:12]}",
        SETTINGS,
        region=REGION,
        now=lambda: datetime.now(UTC),
        sleep=time.sleep,
        new_id=lambda: str(uuid.uuid4()),
        look_s=0,
    )
    yield stores
    stores.close()


class TestSqsQueue(JobQueueContract):
    """A queue in SQS."""

    knows_ages = False

    @pytest.fixture
    def wait(self):
        return time.sleep
