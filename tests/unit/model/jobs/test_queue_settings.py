"""How queues deliver, by the properties of the instance."""

from __future__ import annotations

import pytest

from sleeper.model.jobs.messages import QueueName, QueueSettings
from sleeper.model.jobs.queue_settings import WorkerSettings, queue_settings, worker_settings
from sleeper.model.known_properties.typed import InstanceProperties


def settings(name: QueueName, **values: object) -> QueueSettings:
    """Settings with properties whose names have `_` for each dot."""
    texts = {name.replace("_", "."): str(value) for name, value in values.items()}
    return queue_settings(InstanceProperties(texts), name)


@pytest.mark.parametrize("name", QueueName)
def test_only_the_committers_queue_keeps_order(name):
    """Its messages are taken table by table, each in the order of sending (STS-21)."""
    assert settings(name).fifo is (name is QueueName.COMMIT)


@pytest.mark.parametrize("name", QueueName)
def test_a_message_is_tried_three_times(name):
    """Unless the instance says otherwise."""
    assert settings(name).receives_max == 3
    assert settings(name, sleeper_jobs_receives_max=10).receives_max == 10


@pytest.mark.parametrize(
    ("name", "default_s", "property_name"),
    [
        (QueueName.INGEST, 900, "sleeper_ingest_queue_visibility_timeout_seconds"),
        (QueueName.BULK_IMPORT, 900, "sleeper_ingest_queue_visibility_timeout_seconds"),
        (QueueName.BULK_IMPORT_EKS, 900, "sleeper_ingest_queue_visibility_timeout_seconds"),
        (QueueName.BATCHER, 20, "sleeper_ingest_batcher_submitter_timeout_seconds"),
        (QueueName.EXPORT, 900, "sleeper_bulk_export_queue_visibility_timeout_seconds"),
    ],
)
def test_a_property_says_how_long_a_message_is_hidden(name, default_s, property_name):
    """Each kind of job has one of upstream's."""
    assert settings(name).visibility_s == default_s
    assert settings(name, **{property_name: 77}).visibility_s == 77
    assert settings(name, **{property_name: 900}).visibility_s == 900


def test_no_message_is_hidden_for_longer_than_half_a_day():
    """No queue can do that; the property may say so."""
    name = QueueName.INGEST

    hidden_s = settings(name, sleeper_ingest_queue_visibility_timeout_seconds=99_999).visibility_s

    assert hidden_s == 43_200


@pytest.mark.parametrize("name", [QueueName.QUERY, QueueName.COMMIT])
def test_other_messages_are_hidden_for_a_quarter_of_an_hour(name):
    """Upstream's properties for these are limits of its lambdas."""
    assert settings(name).visibility_s == 900


def workers(name: QueueName, **values: object) -> WorkerSettings:
    """Settings of workers, with properties whose names have `_` for each dot."""
    texts = {name.replace("_", "."): str(value) for name, value in values.items()}
    return worker_settings(InstanceProperties(texts), name)


class TestWorkers:
    """How workers take from a queue."""

    def test_workers_of_ingest_jobs(self):
        """By upstream's defaults."""
        assert workers(QueueName.INGEST) == WorkerSettings(
            workers_max=200, wait_s=20, keepalive_s=300, retry_first_s=10, retry_max_s=900
        )

    def test_workers_of_exports(self):
        """They have properties of their own."""
        settings = workers(
            QueueName.EXPORT,
            sleeper_bulk_export_max_concurrent_tasks=7,
            sleeper_bulk_export_keepalive_period_seconds=30,
            sleeper_bulk_export_job_failed_visibility_timeout_seconds=5,
        )

        assert (settings.workers_max, settings.keepalive_s, settings.retry_first_s) == (7, 30, 5)

    @pytest.mark.parametrize("name", QueueName)
    def test_a_lease_is_renewed_before_it_ends(self, name):
        """Whatever the properties say: three times at least."""
        hidden_s = settings(name).visibility_s

        assert 0 < workers(name).keepalive_s <= hidden_s / 3

    @pytest.mark.parametrize("name", [QueueName.QUERY, QueueName.COMMIT, QueueName.BATCHER])
    def test_other_workers_have_no_limit_of_upstreams(self, name):
        """Its deployment limits them elsewhere."""
        assert workers(name).workers_max is None

    def test_waits_never_fall(self):
        """The longest wait is not shorter than the first."""
        settings = workers(
            QueueName.INGEST,
            sleeper_jobs_retry_first_seconds=99_999_999,
            sleeper_jobs_retry_max_seconds=5,
        )

        assert (settings.retry_first_s, settings.retry_max_s) == (43_200, 43_200)
