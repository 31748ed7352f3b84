"""States of jobs in any order of events, with queues in SQS and events in DynamoDB, on a server.

The same machine and model as in `test_states_of_jobs.py`. Waits are real, so messages are hidden for
a second. SQS finds no message by its id, so whoever asks for a job looks at its queues' dead letters.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule, run_state_machine_as_test

from sleeper.model.jobs.kinds import QueueName
from sleeper.storage.aws.jobs.job_stores import AwsJobStores
from tests.any_order.test_states_of_jobs import StatesOfJobs
from tests.contracts.s3_server import (
    REGION,
    aws_endpoint,
    kept_clients,
    s3_credentials,
    s3_server,
)
from tests.soak import tries

__all__ = ["aws_endpoint", "kept_clients", "s3_credentials", "s3_server"]

HIDDEN_S = 1


class StatesOfJobsInAws(StatesOfJobs):
    """Jobs in SQS and DynamoDB. Time is the server's, but for those that workers have wrong."""

    def stores(self, new_id: Callable[[], str]) -> Any:
        """Return queues and tables that nobody used before."""
        self.time = datetime.now(UTC)
        return AwsJobStores(
            f"test-{uuid.uuid4().hex[:12]}",
            "memory://",
            self.queue_settings(),
            region=REGION,
            now=lambda: datetime.now(UTC),
            sleep=time.sleep,
            pause=lambda attempt: time.sleep(0.01 * attempt),
            new_id=lambda: str(uuid.uuid4()),  # one server sees the ids of all examples
            look_s=0,
        )

    def queue_settings(self) -> dict[QueueName, Any]:
        """Hide messages for a second alone."""
        return {
            name: replace(each, visibility_s=HIDDEN_S)
            for name, each in super().queue_settings().items()
        }

    @rule(seconds=st.just(HIDDEN_S))
    def wait(self, seconds: int) -> None:
        """Let time go by; dead letters that a look received are seen again too."""
        time.sleep(seconds + 0.1)
        self.time = datetime.now(UTC)

    @invariant()
    def each_job_has_one_state(self) -> None:
        """Let each question look at the dead letters: else a look is shared for ten seconds."""
        self.time = datetime.now(UTC)
        self.jobs._looked.clear()
        super().each_job_has_one_state()

    def pass_long(self) -> None:
        """Let more time go by than any message is hidden for."""
        time.sleep(HIDDEN_S + 0.5)
        self.time = datetime.now(UTC)


@pytest.mark.soak
def test_each_job_has_one_state_in_aws(kept_clients):
    """Given any order of steps, then each job is told as its messages and runs say (TRK-9, TRK-10)."""
    run_state_machine_as_test(
        StatesOfJobsInAws,
        settings=settings(
            max_examples=tries(2, soak=40),
            stateful_step_count=8,
            deadline=None,
            suppress_health_check=[*HealthCheck],
        ),
    )
