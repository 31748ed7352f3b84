"""Where the jobs of an instance are kept: by its URL, or by the property sleeper.jobs.url."""

from __future__ import annotations

import pytest

from sleeper.errors import PropertiesInvalid
from sleeper.model.jobs.messages import NewMessage, QueueName, QueueSettings
from sleeper.model.known_properties.typed import InstanceProperties, validate_instance_properties
from sleeper.model.object_stores import ObjectStoreSettings
from sleeper.storage.places import job_stores_of, place_of
from tests.contracts.jobs.clock import Clock, numbered

SETTINGS = {QueueName.COMMIT: QueueSettings(fifo=True)}


def open_stores(instance_url, jobs_url=None):
    """Open the jobs of the instance at a URL, whose property has a value."""
    clock = Clock()
    place = place_of(instance_url, ObjectStoreSettings(), clock.now)
    properties = InstanceProperties({"sleeper.jobs.url": jobs_url or ""})
    how = {"now": clock.now, "sleep": clock.sleep, "new_id": numbered("id-")}
    return job_stores_of(place.objects, place.url, properties.jobs.url, SETTINGS, **how)


def send_one(stores):
    """Send a message, and see that it is the queue's only one; FIFO as the settings say."""
    queue = stores.queue(QueueName.COMMIT)
    queue.send([NewMessage(body="a", group="g")])
    assert queue.depth().ready == 1
    stores.close()


def test_a_folder_has_them_in_a_file_of_its_own(tmp_path):
    """In `services/`, made at the first use."""
    stores = open_stores(tmp_path)
    untouched = list(tmp_path.iterdir())

    send_one(stores)

    assert untouched == []
    assert (tmp_path / "services" / "jobs.sqlite").is_file()


def test_an_instance_in_memory_has_them_in_memory(tmp_path, monkeypatch):
    """No file is made, and another opening is another instance."""
    monkeypatch.chdir(tmp_path)

    for _ in range(2):
        send_one(open_stores("memory://"))

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("instance", ["folder", "s3://bucket/instance", "memory://"])
def test_the_property_names_another_file(tmp_path, instance):
    """For every kind of instance; a bucket needs it."""
    folder = tmp_path / instance if instance == "folder" else instance

    send_one(open_stores(folder, f"sqlite://{tmp_path}/a b/jobs"))

    assert (tmp_path / "a b" / "jobs").is_file()
    assert not (tmp_path / "folder").exists()


def test_a_bucket_without_the_property_has_no_jobs():
    """The message names the instance, and says what to set."""
    with pytest.raises(PropertiesInvalid, match=r"s3://bucket/instance.*set sleeper\.jobs\.url"):
        open_stores("s3://bucket/instance")


@pytest.mark.parametrize(
    "url", ["sqs", "sqlite://relative", "sqlite:///", "sqlite:///folder/", "/a"]
)
def test_the_property_is_an_absolute_path_of_sqlite(url):
    """Checked when it is set; queues in SQS are not built yet, and the message says so."""
    with pytest.raises(PropertiesInvalid, match="SQS are not built yet"):
        validate_instance_properties({"sleeper.id": "a", "sleeper.jobs.url": url})
