"""How queues deliver, by the properties of the instance."""

from __future__ import annotations

import pytest

from sleeper.model.jobs.messages import QueueName, QueueSettings
from sleeper.model.jobs.queue_settings import queue_settings
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


@pytest.mark.parametrize("name", [QueueName.QUERY, QueueName.COMMIT])
def test_other_messages_are_hidden_for_a_quarter_of_an_hour(name):
    """Upstream's properties for these are limits of its lambdas."""
    assert settings(name).visibility_s == 900
