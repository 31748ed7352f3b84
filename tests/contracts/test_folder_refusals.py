"""Disks that are full, read-only or unfit: each has its error, and leaves nothing behind."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import sleeper
from sleeper.errors import StorageFailed, StorageFull, StorageReadOnly
from sleeper.storage.local.folder import FolderObjects

LIMIT_BYTES = 100_000
TOO_LARGE = bytes(3 * LIMIT_BYTES)


@pytest.fixture
def objects(tmp_path):
    return FolderObjects(tmp_path / "instance")


@pytest.fixture
def limited(objects):
    """The same objects, while no file of this process may grow past 100 kB."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT_BYTES, hard))
    yield objects
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def files_in(objects: FolderObjects) -> list[Path]:
    """Return every file under the root, hidden ones too."""
    return sorted(path for path in objects.root.rglob("*") if path.is_file())


class TestAFullDisk:
    """The system takes some bytes of a file, and then no more."""

    def test_an_object_that_does_not_fit_is_not_there(self, limited):
        """Neither create nor put leaves a part of it, and what was there stays."""
        limited.put("old", b"old")

        with pytest.raises(StorageFull, match="new"):
            limited.create("new", TOO_LARGE)
        with pytest.raises(StorageFull, match="old"):
            limited.put("old", TOO_LARGE)

        assert limited.read("old") == b"old"
        assert files_in(limited) == [limited.root / "old"]

    def test_a_stream_that_does_not_fit_is_not_there(self, limited):
        """Whether the disk fills up at a write or only at the close."""
        with pytest.raises(StorageFull, match="data/1"), limited.open_output("data/1") as output:
            for _ in range(100):
                output.write(TOO_LARGE)
        with pytest.raises(StorageFull, match="data/2"), limited.open_output("data/2") as output:
            output.write(TOO_LARGE)

        assert files_in(limited) == []

    def test_smaller_objects_still_fit(self, limited):
        """A refusal breaks nothing: the next write may go well."""
        with pytest.raises(StorageFull):
            limited.create("a", TOO_LARGE)

        assert limited.create("a", b"small")


class TestWhatIsNoFile:
    """Somebody put it where an entry of the log belongs."""

    @pytest.fixture(
        params=[lambda path: path.symlink_to("/nowhere/1"), os.mkfifo, Path.mkdir],
        ids=["link to nothing", "pipe", "folder"],
    )
    def path(self, request, objects):
        objects.create("log/0", b"")
        path = objects.root / "log/1"
        request.param(path)
        return path

    def test_is_named_by_whoever_creates_it(self, objects, path):
        """Not taken for another writer's entry, which would be awaited for ever."""
        with pytest.raises(StorageFailed, match=f"{path}.*ove it"):
            objects.create("log/1", b"entry")

    def test_stops_commits_with_a_message_that_says_what_to_do(self, tmp_path, path):
        """Once it is gone, commits go on."""
        table = sleeper.connect(tmp_path / "i", create=True).create_table(
            "t", pa.schema([("id", pa.int64())]), row_keys=["id"]
        )
        entry = next((tmp_path / "i").glob("*/statestore/transactions")) / f"{2:020d}.json"
        path.rename(entry)

        with pytest.raises(StorageFailed, match=f"{entry}.*ove it"):
            table.ingest([{"id": 1}])
        entry.rename(tmp_path / "away")
        assert table.ingest([{"id": 1}]).transaction == 2


def test_a_link_to_an_object_is_followed(objects):
    """An archive may lie on another disk."""
    objects.create("log/1", b"entry")
    (objects.root / "log/2").symlink_to(objects.root / "log/1")

    assert objects.read("log/2") == b"entry"
    assert not objects.create("log/2", b"another")


def test_a_folder_that_may_not_be_written_to_is_told_apart():
    """The kernel's own folder refuses even the administrator; the message says what to do."""
    objects = FolderObjects(Path("/sys/sleeper-instance"))

    for write in (objects.create, objects.put):
        with pytest.raises(StorageReadOnly, match="Allow this user"):
            write("a", b"")
    with pytest.raises(StorageReadOnly):
        objects.open_output("a")
    assert objects.read("a") is None
    assert list(objects.listing()) == []


def test_a_file_in_the_place_of_a_folder_is_named(objects):
    """Where `a` is a file, `a/b` cannot be one; where `a/` is a folder, `a` cannot."""
    objects.put("a", b"")
    objects.put("d/e", b"")

    for write in (objects.create, objects.put):
        with pytest.raises(StorageFailed, match="a/b"):
            write("a/b", b"")
        with pytest.raises(StorageFailed, match="instance/d"):
            write("d", b"")
    with pytest.raises(StorageFailed, match="a/b"):
        objects.open_output("a/b").close()

    assert files_in(objects) == [objects.root / "a", objects.root / "d/e"]


# What follows needs file systems of its own, made in a namespace that only the child sees.
IN_A_NAMESPACE = ["unshare", "--mount", "--map-root-user"]


def run_where_mounts_are_private(script: str, folder: Path) -> str:
    """Run a shell script that may mount, then the Python on its last lines; return its output."""
    mount = [*IN_A_NAMESPACE, "mount", "-t", "tmpfs", "none", str(folder)]
    if (
        not shutil.which("unshare")
        or subprocess.run(mount, check=False, capture_output=True).returncode
    ):
        pytest.skip("this machine lets nobody mount a file system for a test")
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "FOLDER": str(folder),
        "PYTHON": sys.executable,
    }
    done = subprocess.run(
        [*IN_A_NAMESPACE, "sh", "-euc", script],
        check=False,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


PRELUDE = """
import os
from pathlib import Path
from sleeper.errors import *
from sleeper.storage.local.folder import FolderObjects
objects = FolderObjects(Path(os.environ["FOLDER"]))
def attempt(call, *arguments):
    try:
        return call(*arguments)
    except StorageFailed as error:
        return f"{type(error).__name__}: {error}"
"""


class TestOtherFileSystems:
    """File systems that a laptop may meet, made for the occasion."""

    def test_a_file_system_fills_up(self, tmp_path):
        """No space left is StorageFull; what was acknowledged before is whole."""
        script = f"""
            mount -t tmpfs -o size=200k none "$FOLDER"
            "$PYTHON" - <<'END'
{PRELUDE}
created = 0
while (answer := attempt(objects.create, f"log/{{created:03d}}", bytes(10_000))) is True:
    created += 1
print(answer)
print(created > 10)
print([info.size_bytes for info in objects.listing()] == [10_000] * created)
print(attempt(objects.put, "log/000", bytes(200_000)).split(":")[0], objects.size("log/000"))
print(os.listdir(os.environ["FOLDER"] + "/.tmp-writes"))
objects.delete(["log/000", "log/001"])
print(objects.create("log/next", bytes(10_000)))
END
"""

        answer, *rest = run_where_mounts_are_private(script, tmp_path).splitlines()

        assert answer.startswith("StorageFull: ")
        assert "Free some space" in answer
        assert rest == ["True", "True", "StorageFull 10000", "[]", "True"]

    def test_a_read_only_file_system_can_be_read(self, tmp_path):
        """Reads answer; writes, deletes and a taken key are told apart."""
        FolderObjects(tmp_path).put("a", b"body")
        script = f"""
            mount --bind "$FOLDER" "$FOLDER"
            mount -o remount,bind,ro "$FOLDER"
            "$PYTHON" - <<'END'
{PRELUDE}
from datetime import datetime, UTC
print(objects.read("a"), [info.key for info in objects.listing()])
print(attempt(objects.create, "a", b""))
for call in (objects.create, objects.put):
    print(attempt(call, "b", b"").split(":")[0])
print(attempt(objects.open_output, "b").split(":")[0])
print(attempt(objects.delete, ["a"]).split(":")[0])
print(objects.sweep_temporaries(0, datetime(3000, 1, 1, tzinfo=UTC)))
END
"""

        lines = run_where_mounts_are_private(script, tmp_path).splitlines()

        assert lines == ["b'body' ['a']", "False", *["StorageReadOnly"] * 4, "0"]

    def test_a_folder_on_another_file_system_cannot_take_commits(self, tmp_path):
        """A link does not reach across; the message says so, and nothing is left."""
        script = f"""
            mkdir "$FOLDER/log"
            mount -t tmpfs none "$FOLDER/log"
            "$PYTHON" - <<'END'
{PRELUDE}
print(attempt(objects.create, "log/1", b""))
print(attempt(objects.put, "log/1", b"").split(":")[0])
print([info.key for info in objects.listing()], os.listdir(os.environ["FOLDER"] + "/.tmp-writes"))
END
"""

        answer, put, rest = run_where_mounts_are_private(script, tmp_path).splitlines()

        assert answer.startswith("StorageReadOnly: ")
        assert "cannot make hard links" in answer
        assert put == "StorageFailed"
        assert rest == "[] []"
