"""How queues deliver, by the properties of the instance."""

from __future__ import annotations

import pytest

from sleeper.model.jobs.kinds import QueueName
from sleeper.model.jobs.messages import QueueSettings
from sleeper.model.jobs.settings import HandlingSettings, handling_settings, queue_settings
from sleeper.model.known_properties.typed import InstanceProperties


def settings(name: QueueName, **values: object) -> QueueSettings:
    """Settings with properties whose names have `_` for each dot."""
    texts = {name.replace("_", "."): str(value) for name, value in values.items()}
    return queue_settings(InstanceProperties(texts), name)


@pytest.mark.parametrize("name", QueueName)
def test_only_the_committers_queue_keeps_order(name):
    """Its messages are taken table by table, each in the order of sending (STS-21)."""
    assert settings(name).fifo is (name is QueueName.COMMIT)


@pytest.mark.parametrize("name", [name for name in QueueName if name is not QueueName.COMMIT])
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
        (QueueName.QUERY, 900, "sleeper_query_queue_visibility_timeout_seconds"),
        (QueueName.COMMIT, 60, "sleeper_statestore_committer_queue_visibility_timeout_seconds"),
    ],
)
def test_a_property_says_how_long_a_message_is_hidden(name, default_s, property_name):
    """Upstream's for most; for queries and commits upstream has the limits of lambdas."""
    assert settings(name).visibility_s == default_s
    assert settings(name, **{property_name: 77}).visibility_s == 77
    assert settings(name, **{property_name: 900}).visibility_s == 900


def test_no_message_is_hidden_for_longer_than_half_a_day():
    """No queue can do that; the property may say so."""
    name = QueueName.INGEST

    hidden_s = settings(name, sleeper_ingest_queue_visibility_timeout_seconds=99_999).visibility_s

    assert hidden_s == 43_200


def test_a_request_to_the_committer_is_tried_until_it_is_answered():
    """A thousand times, whatever the instance says."""
    assert settings(QueueName.COMMIT, sleeper_jobs_receives_max=2).receives_max == 1000


def handling(name: QueueName, **values: object) -> HandlingSettings:
    """How messages are handled, with properties whose names have `_` for each dot."""
    texts = {name.replace("_", "."): str(value) for name, value in values.items()}
    return handling_settings(InstanceProperties(texts), name)


class TestHandling:
    """How messages of a queue are handled."""

    def test_messages_with_ingest_jobs(self):
        """By upstream's defaults, and our waits."""
        assert handling(QueueName.INGEST) == HandlingSettings(
            keepalive_s=300, retry_first_s=10, retry_max_s=900
        )

    def test_messages_with_exports(self):
        """They have properties of their own."""
        settings = handling(
            QueueName.EXPORT,
            sleeper_bulk_export_keepalive_period_seconds=30,
            sleeper_bulk_export_job_failed_visibility_timeout_seconds=5,
        )

        assert (settings.keepalive_s, settings.retry_first_s) == (30, 5)

    @pytest.mark.parametrize("name", QueueName)
    def test_a_lease_is_renewed_before_it_ends(self, name):
        """Whatever the properties say: three times at least."""
        visibility = "sleeper_ingest_queue_visibility_timeout_seconds"

        for values in ({}, {visibility: 60}):
            hidden_s = settings(name, **values).visibility_s
            assert 0 < handling(name, **values).keepalive_s <= hidden_s / 3

    def test_waits_never_fall(self):
        """The longest wait is not shorter than the first."""
        settings = handling(
            QueueName.INGEST,
            sleeper_jobs_retry_first_seconds=99_999_999,
            sleeper_jobs_retry_max_seconds=5,
        )

        assert (settings.retry_first_s, settings.retry_max_s) == (43_200, 43_200)
