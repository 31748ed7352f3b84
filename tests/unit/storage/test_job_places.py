"""Where the jobs of an instance are kept: by its URL, or by the property sleeper.jobs.url."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from sleeper.errors import DataDamaged, PropertiesInvalid
from sleeper.model.jobs.kinds import QueueName
from sleeper.model.jobs.messages import NewMessage, QueueSettings
from sleeper.model.known_properties.checks import validate_instance_properties
from sleeper.model.known_properties.typed import InstanceProperties
from sleeper.model.object_stores import ObjectStoreSettings
from sleeper.storage.places import place_of
from tests.contracts.jobs.clock import Clock, numbered

SETTINGS = {QueueName.COMMIT: QueueSettings(fifo=True)}


def open_stores(instance_url, jobs_url=None, instance_id="demo"):
    """Open the jobs of the instance at a URL, whose property has a value."""
    clock = Clock()
    place = place_of(instance_url, ObjectStoreSettings(), clock.now)
    properties = InstanceProperties({"sleeper.jobs.url": jobs_url or ""})
    how = {
        "now": clock.now,
        "sleep": clock.sleep,
        "pause": lambda attempt: None,
        "new_id": numbered("id-"),
    }
    return place.job_stores(instance_id, properties.jobs.url, SETTINGS, **how)


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
    "url", ["sqs:", "SQS", "sqlite://relative", "sqlite:///", "sqlite:///folder/", "/a"]
)
def test_the_property_is_an_absolute_path_of_sqlite(url):
    """Checked when it is set; or `sqs`, and the message says so."""
    with pytest.raises(PropertiesInvalid, match="must be sqs, or sqlite:///"):
        validate_instance_properties({"sleeper.id": "a", "sleeper.jobs.url": url})


class TestOneFileOfTwoInstances:
    """Two instances that name one file by sleeper.jobs.url would take each other's jobs."""

    @pytest.fixture
    def url(self, tmp_path):
        return f"sqlite://{tmp_path}/jobs"

    def test_the_second_is_refused_with_both_named_and_what_to_do(self, tmp_path, url):
        """Before it sends or receives anything."""
        send_one(open_stores(tmp_path / "first", url, "first"))

        with pytest.raises(PropertiesInvalid) as refused:
            open_stores("s3://bucket/second", url, "second")

        for named in ("'first'", f"{tmp_path}/first", "'second'", "s3://bucket/second"):
            assert named in str(refused.value)
        assert "Set sleeper.jobs.url of the second to another file" in str(refused.value)

    def test_a_file_that_both_opened_before_it_was_there_is_the_first_writers(self, tmp_path, url):
        """The second is refused at its first call, and has changed nothing."""
        first = open_stores(tmp_path / "first", url, "first")
        second = open_stores(tmp_path / "second", url, "second")
        send_one(first)

        for call in (
            lambda queue: queue.send([NewMessage(body="b", group="g")]),
            lambda queue: queue.receive(),
            lambda queue: queue.depth(),
        ):
            with pytest.raises(PropertiesInvalid, match="'second'"):
                call(second.queue(QueueName.COMMIT))

        assert first.queue(QueueName.COMMIT).depth().ready == 1

    def test_a_file_of_an_older_version_is_the_next_writers(self, tmp_path, url):
        """It remembers nobody; whoever only reads it does not write to it."""
        send_one(open_stores(tmp_path / "first", url, "first"))
        with closing(sqlite3.connect(tmp_path / "jobs")) as file:
            file.execute("DROP TABLE owner")

        assert open_stores(tmp_path / "third", url, "third").queue(QueueName.COMMIT).depth().ready
        second = open_stores(tmp_path / "second", url, "second").queue(QueueName.COMMIT)
        assert len(second.receive()) == 1

        with pytest.raises(PropertiesInvalid, match="'third'"):
            open_stores(tmp_path / "third", url, "third")

    def test_an_instance_that_was_moved_keeps_its_file_and_says_so_once(
        self, tmp_path, url, caplog
    ):
        """Another one of the same id cannot be told from it, so both places are named."""
        send_one(open_stores(tmp_path / "here", url))
        for _ in range(2):
            moved = open_stores(tmp_path / "there", url).queue(QueueName.COMMIT)
            assert moved.receive(visibility_s=0)

        (line,) = [each.message for each in caplog.records if each.levelname == "WARNING"]
        assert f"{tmp_path}/here" in line
        assert f"{tmp_path}/there" in line

    def test_a_file_that_is_damaged_is_told_by_its_first_use(self, tmp_path, url, caplog):
        """Its owner cannot be seen: that is logged, and maintenance of tables goes on."""
        (tmp_path / "jobs").write_bytes(b"no file of SQLite, but long enough for a header" * 9)

        stores = open_stores(tmp_path / "first", url)

        assert "whose file of jobs it is cannot be seen now" in caplog.text
        with pytest.raises(DataDamaged):
            stores.queue(QueueName.COMMIT).depth()
