"""Somebody changes the properties of an instance, while others use it."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pyarrow as pa
import pytest

import sleeper
from sleeper.errors import CommitContended, CommitUnknown, DataDamaged, PropertiesInvalid
from sleeper.storage.local.folder import FolderObjects
from tests.unit.interfaces.command_line import json_of
from tests.unit.interfaces.command_line import sleeper as command

SCHEMA = pa.schema([("id", pa.string())])
BATCH = "sleeper.gc.batch.size"
DELAY = "sleeper.default.table.gc.delay.minutes"
OLD = Path(__file__).parent / "old_instances" / "0ce6825.tar.gz"


@pytest.fixture
def url(tmp_path):
    sleeper.create_instance(tmp_path / "instance").close()
    return str(tmp_path / "instance")


def shown(url):
    """Return what `sleeper instance show --json` says of each property."""
    document = json_of(command("instance", "show", "--json", "--instance", url))
    return {each["name"]: each for each in document["properties"]}


class TestTheCommandLine:
    """`sleeper instance`."""

    def test_shows_what_is_in_force_and_what_is_set(self, url):
        """Given a property that was set, then it is marked, and the others have defaults."""
        done = command("instance", "set", f"{BATCH}=5000", f"{DELAY}=60", "--instance", url)

        assert done.exit_code == 0, done.output
        assert done.stdout.splitlines()[:2] == [f"{BATCH} = 5000", f"{DELAY} = 60"]
        assert "in force for every command and process that starts from now on" in done.stdout
        known = shown(url)
        assert known[BATCH] == {
            "name": BATCH,
            "value": "5000",
            "is_set": True,
            "default": "10000",
            "is_fixed": False,
        }
        assert (known["sleeper.gc.files.maximum"]["value"], known["sleeper.id"]["is_fixed"]) == (
            "750000",
            True,
        )
        lines = command("instance", "show", "--instance", url).stdout.splitlines()
        assert lines[:3] == ["id       instance", f"url      {url}", "version  1"]
        assert [line.split() for line in lines if BATCH in line] == [["set", BATCH, "5000"]]
        assert [line.split() for line in lines if "gc.files.max" in line] == [
            ["sleeper.gc.files.maximum", "750000"]
        ]

    def test_resets_by_unset_and_by_an_empty_value(self, url):
        """Given properties that are set, then both ways lead back to the default."""
        command("instance", "set", f"{BATCH}=5000", f"{DELAY}=60", "--instance", url)

        first = command("instance", "unset", BATCH, "--instance", url)
        second = command("instance", "set", f"{DELAY}=", "--instance", url)

        assert first.stdout.splitlines()[0] == f"{BATCH} is back to its default"
        assert second.stdout.splitlines()[0] == f"{DELAY} is back to its default"
        assert not shown(url)[BATCH]["is_set"]
        assert not shown(url)[DELAY]["is_set"]

    @pytest.mark.parametrize(
        ("setting", "why"),
        [
            ("sleeper.id=other", "It was fixed when it was made: make another instance"),
            ("sleeper.properties.version=7", "Sleeper counts it"),
            ("sleeper.data.bucket=b", "copy the instance by `sleeper backup`"),
            (f"{BATCH}=many", "it must be a whole number"),
            (f"{BATCH}s=5", f"Did you mean {BATCH}?"),
            ("sleeper.table.gc.delay.minutes=5", f"The default of all tables is {DELAY}"),
        ],
    )
    def test_refuses_with_what_to_do(self, url, setting, why):
        """Given a fixed property, a bad value or a wrong name, then nothing at all is set."""
        refused = command("instance", "set", f"{DELAY}=60", setting, "--instance", url)

        assert (refused.exit_code, refused.stdout) == (1, "")
        assert why in refused.stderr
        assert not shown(url)[DELAY]["is_set"]

    def test_warns_of_names_without_effect_and_of_jobs_that_stay(self, url, tmp_path):
        """Given an unknown name, or another place for jobs, then stderr says what follows."""
        jobs = f"sqlite://{tmp_path}/jobs.sqlite"
        unknown = command("instance", "set", "sleeper.colour=red", "--instance", url)
        moved = command("instance", "set", f"sleeper.jobs.url={jobs}", "--instance", url)

        assert "sleeper.colour is stored, but no property has this name" in unknown.stderr
        assert "What is in services/jobs.sqlite stays there" in moved.stderr
        with sleeper.connect(url) as opened:
            opened.create_table("t", SCHEMA, row_keys=["id"])
            opened.jobs.submit_query("t")
        assert (tmp_path / "jobs.sqlite").exists()


class TestHandles:
    """Who sees a change, and from when on."""

    def test_the_handle_that_changed_it_uses_it_for_what_it_opens(self, url):
        """Given a table that was open, then it keeps its default, and one opened later does not."""
        with sleeper.connect(url) as instance:
            before = instance.create_table("t", SCHEMA, row_keys=["id"])

            instance.set_properties({DELAY: 60, "sleeper.run.gc.offline": True})

            assert instance.properties.values[DELAY] == "60"
            assert instance.properties.gc.offline_tables
            assert before.properties.gc.delay_minutes == 15
            assert instance.table("t").properties.gc.delay_minutes == 60

    def test_another_handle_sees_it_when_it_connects_again(self, url):
        """Given a handle that was open, then it keeps what it read; the next one does not."""
        with sleeper.connect(url) as early, sleeper.connect(url) as other:
            other.set_properties({BATCH: 5})

            assert early.properties.gc.batch_files == 10_000
            with sleeper.connect(url) as late:
                assert late.properties.gc.batch_files == 5

    def test_an_early_handle_keeps_the_changes_of_others(self, url):
        """Given two handles that connected before, when each sets one, then both are (rule INS-10)."""
        with sleeper.connect(url) as one, sleeper.connect(url) as other:
            one.set_properties({BATCH: 5})
            other.set_properties({DELAY: 60})

            assert other.properties.values.items() >= {BATCH: "5", DELAY: "60"}.items()
            one.set_properties({BATCH: None})
            assert BATCH not in one.properties.values
            assert one.properties.values[DELAY] == "60"

    def test_an_instance_in_memory_changes_too(self):
        """Given an instance that nobody can connect to again, then its handle has the change."""
        with sleeper.connect("memory://") as instance:
            instance.create_table("t", SCHEMA, row_keys=["id"])
            instance.set_properties({DELAY: 60})

            assert instance.table("t").properties.gc.delay_minutes == 60


class TestTrouble:
    """What is not as it should be."""

    def test_an_old_instance_is_changed(self, tmp_path):
        """Given an instance of an early version, then it opens as before, and may be changed."""
        with tarfile.open(OLD) as archive:
            archive.extractall(tmp_path, filter="data")
        before = sleeper.connect(tmp_path).properties.values
        assert "sleeper.properties.version" not in before

        sleeper.connect(tmp_path).set_properties({BATCH: 5})

        changed = {BATCH: "5", "sleeper.properties.version": "1"}
        assert sleeper.connect(tmp_path).properties.values == {**before, **changed}
        assert [record.name for record in sleeper.connect(tmp_path).tables()]

    def test_a_copy_that_cannot_be_written_is_logged(self, url, monkeypatch, caplog):
        """Given a version that is stored and a copy that is not, then the change is in force."""
        sleeper.connect(url).set_properties({BATCH: 4})

        def refuse(self, key, body):
            raise sleeper.StorageFailed(f"{key}: no answer")

        monkeypatch.setattr(FolderObjects, "put", refuse)
        sleeper.connect(url).set_properties({BATCH: 5})

        assert "instance.properties still has an older version" in caplog.text
        assert f"{BATCH}=4\n" in (Path(url) / "instance.properties").read_text()
        assert sleeper.connect(url).properties.gc.batch_files == 5

    def test_a_damaged_version_is_named(self, url):
        """Given a version whose text is broken, then it is not passed over."""
        sleeper.connect(url).set_properties({BATCH: 5})
        version = Path(url) / f"properties/{2:020d}.properties"
        for text in ("", "sleeper.id=i\nsleeper.properties.version=7\n"):
            version.write_text(text)

            with pytest.raises(DataDamaged, match=f"{version.name} of the instance at"):
                sleeper.connect(url)

    def test_what_is_unknown_is_reported_as_unknown(self, url, monkeypatch):
        """Given storage that confirms nothing, or others who are always faster, then errors say so."""
        instance = sleeper.connect(url)
        instance.set_properties({BATCH: 4})
        create = FolderObjects.create

        def silent(self, key, body):
            raise sleeper.StorageFailed(f"{key}: no answer")

        def overtaken(self, key, body):
            create(self, key, body.replace(f"{BATCH}=5".encode(), f"{BATCH}=6".encode()))
            return create(self, key, body)

        monkeypatch.setattr(FolderObjects, "create", silent)
        with pytest.raises(CommitUnknown, match="look with `sleeper instance show`"):
            instance.set_properties({BATCH: 5})
        monkeypatch.setattr(FolderObjects, "create", overtaken)
        monkeypatch.setattr("time.sleep", lambda seconds: None)
        with pytest.raises(CommitContended, match="Set the properties again"):
            instance.set_properties({BATCH: 5})

    def test_the_version_is_not_given_by_a_user(self, tmp_path):
        """Given a new instance, then its version cannot be set."""
        with pytest.raises(PropertiesInvalid, match="Sleeper counts changes itself"):
            sleeper.create_instance(tmp_path / "i", {"sleeper.properties.version": 3})


def test_a_backup_has_the_newest_properties(url, tmp_path):
    """Given a change after the handle was opened, then the copy has it, and no history."""
    with sleeper.connect(url) as early:
        jobs = f"sqlite://{tmp_path}/jobs.sqlite"
        sleeper.connect(url).set_properties({BATCH: 5, "sleeper.jobs.url": jobs})

        copied = early.backup(tmp_path / "copy")

    values = sleeper.connect(copied.url).properties.values
    assert values == {"sleeper.id": "instance", "sleeper.format.version": "1", BATCH: "5"}
    sleeper.connect(copied.url).set_properties({BATCH: 6})
    assert sleeper.connect(copied.url).properties.gc.batch_files == 6
    assert json.loads(json.dumps(values))[BATCH] == "5"
