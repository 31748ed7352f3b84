"""What is particular to objects in a folder: durability, hidden files, foreign files."""

from __future__ import annotations

import errno
import os
import pickle
import stat
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sleeper.errors import BadRequest, StorageFailed, StorageReadOnly
from sleeper.storage.local.folder import FolderObjects


@pytest.fixture
def objects(tmp_path):
    return FolderObjects(tmp_path / "instance")


@pytest.fixture
def steps(monkeypatch, tmp_path):
    """What the system is asked to do from here on, in order; it does all of it."""
    done = []

    def watch(name, describe):
        call = getattr(os, name)

        def watched(*arguments, **options):
            result = call(*arguments, **options)
            with suppress(ValueError):  # of objects of earlier tests that are collected now
                done.append(f"{name} {describe(*arguments)}")
            return result

        monkeypatch.setattr(os, name, watched)

    def shown(path):
        relative = Path(path).relative_to(tmp_path).as_posix()
        return "hidden file" if "/.tmp-writes/" in relative else relative

    watch("fsync", lambda descriptor: shown(Path(f"/proc/self/fd/{descriptor}").readlink()))
    watch("link", lambda _, path: shown(path))
    watch("replace", lambda _, path: shown(path))
    watch("unlink", shown)
    watch("mkdir", lambda path, *_: shown(path))
    return done


needs_proc = pytest.mark.skipif(
    not Path("/proc/self/fd").exists(), reason="only Linux tells which file a descriptor is"
)


@needs_proc
class TestDurability:
    """Nobody is told before a power cut could no longer undo it."""

    def test_the_first_object_makes_every_folder_durable(self, objects, steps):
        """Each new folder is named durably in the one above, before an object is put there."""
        objects.create("a/b/1", b"body")

        assert [step for step in steps if "tmp-writes" not in step] == [
            "mkdir instance",
            "fsync .",
            "fsync hidden file",
            "mkdir instance/a",
            "fsync instance",
            "mkdir instance/a/b",
            "fsync instance/a",
            "link instance/a/b/1",
            "unlink hidden file",
            "fsync instance/a/b",
        ]

    def test_a_later_object_costs_two_syncs(self, objects, steps):
        """Its body before it has a name, and its name before its writer is told."""
        objects.create("a/b/1", b"body")
        steps.clear()

        objects.create("a/b/2", b"body")

        assert steps == [
            "fsync hidden file",
            "link instance/a/b/2",
            "unlink hidden file",
            "fsync instance/a/b",
        ]

    def test_a_replacement_costs_two_syncs(self, objects, steps):
        """The same for put and for a stream."""
        objects.put("a/1", b"body")
        steps.clear()

        objects.put("a/1", b"other")
        with objects.open_output("a/1") as output:
            output.write(b"third")

        assert steps == ["fsync hidden file", "replace instance/a/1", "fsync instance/a"] * 2

    def test_a_folder_that_another_process_made_is_made_durable_too(self, objects, steps):
        """Its maker may have died before it got so far."""
        FolderObjects(objects.root).put("a/b/1", b"")
        steps.clear()

        FolderObjects(objects.root).put("a/b/2", b"")

        assert "fsync instance" in steps
        assert "fsync instance/a" in steps

    def test_taken_is_said_of_what_is_durable(self, objects, steps):
        """An own earlier write may be all but done: then `taken` must not come before its end."""
        objects.create("a/1", b"body")
        steps.clear()

        objects.create("a/1", b"body")

        assert steps == ["fsync instance/a"]

    def test_a_deletion_is_made_durable_once_a_folder(self, objects, steps):
        """However many objects of it go."""
        for n in range(5):
            objects.put(f"a/{n}", b"")
        steps.clear()

        objects.delete(f"a/{n}" for n in range(4))

        assert steps == [*(f"unlink instance/a/{n}" for n in range(4)), "fsync instance/a"]


class TestReadOnlyFileSystem:
    """Every deletion is refused there, before the system looks whether there is such a file."""

    @pytest.fixture
    def objects(self, objects, monkeypatch):
        """Objects of a file system that was mounted again to be read only."""
        objects.put("data/there", b"body")

        def refuse(path, **_options):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)

        monkeypatch.setattr(os, "unlink", refuse)
        return objects

    def test_what_is_not_there_is_deleted(self, objects):
        """An output that could not be begun leaves nothing that a sweep would have to delete."""
        objects.delete(["data/never written", "no folder/at all", "data/there/below a file"])

        assert [info.key for info in objects.listing()] == ["data/there"]

    def test_what_is_there_stays_and_is_told(self, objects):
        """The file is named, and not one that was never written."""
        with pytest.raises(StorageReadOnly, match=r"data/there: Read-only file system"):
            objects.delete(["data/never written", "data/there"])

        assert objects.read("data/there") == b"body"


class TestHiddenFiles:
    """Files that are being written."""

    def test_they_are_in_no_listing(self, objects):
        """Not of the store, nor of a view."""
        output = objects.under("a").open_output("b")
        output.write(b"half of it")

        listed = [*objects.listing(), *objects.listing("."), *objects.under("a").listing()]
        output.abort()

        assert listed == []

    def test_one_that_was_swept_cannot_be_finished(self, objects):
        """A writer that slept past the sweep is told; it does not report a file that is not."""
        output = objects.open_output("data/1")
        objects.sweep_temporaries(0, datetime(3000, 1, 1, tzinfo=UTC))

        with pytest.raises(StorageFailed, match="data/1"):
            output.close()

        assert objects.read("data/1") is None

    def test_sweeping_where_nothing_is_does_nothing(self, objects):
        """Not even make the folder."""
        assert objects.sweep_temporaries(0, datetime(3000, 1, 1, tzinfo=UTC)) == 0
        assert not objects.root.exists()


class TestFolders:
    """Folders come and go with the objects in them."""

    def test_reading_makes_no_folder(self, objects):
        """Only a write does."""
        objects.read("a/b")
        list(objects.listing("a/"))
        objects.delete(["a/b"])

        assert not objects.root.exists()

    def test_an_emptied_folder_is_removed(self, objects):
        """So a deleted table leaves no skeleton; the store's own folder stays."""
        objects.put("t/data/1", b"")
        objects.put("t/data/2", b"")
        objects.put("u/1", b"")

        objects.delete(["t/data/1"])
        kept = (objects.root / "t/data").exists()
        objects.delete(["t/data/2", "u/1"])

        assert kept
        assert [path.name for path in objects.root.iterdir()] == [".tmp-writes"]

    def test_a_folder_that_others_removed_is_made_again(self, objects):
        """Whatever this process remembers of it."""
        objects.put("t/data/1", b"")
        FolderObjects(objects.root).delete(["t/data/1"])

        created = objects.create("t/data/2", b"2")

        assert created
        assert objects.read("t/data/2") == b"2"

    def test_a_listing_opens_only_folders_that_matter(self, objects, monkeypatch):
        """One folder of the log, not the thousands of data files beside it."""
        for key in ("t/data/p1/1", "t/data/p2/1", "t/log/1", "t/log/2", "u/log/1"):
            objects.put(key, b"")
        opened = []
        scandir = os.scandir
        monkeypatch.setattr(os, "scandir", lambda path: opened.append(path) or scandir(path))

        list(objects.listing("t/log/", "t/log/1"))
        list(objects.listing("t/data/", "t/data/p1/9"))
        list(objects.listing("t/data/p2"))

        assert [Path(path).relative_to(objects.root).as_posix() for path in opened] == [
            "t/log",
            "t/data",
            "t/data/p1",
            "t/data/p2",
            "t/data",
            "t/data/p2",
        ]


class TestFiles:
    """The files themselves."""

    def test_they_are_as_readable_as_any_new_file(self, objects):
        """Their mode is the umask's: another user of the folder can read them."""
        before = os.umask(0o027)
        try:
            objects.create("a", b"")
            objects.put("b", b"")
            objects.open_output("c").close()
        finally:
            os.umask(before)

        modes = {stat.S_IMODE((objects.root / name).stat().st_mode) for name in "abc"}
        assert modes == {0o640}

    def test_foreign_files_are_not_objects(self, objects, tmp_path):
        """Links and names that no key can have are not listed, so nobody deletes them."""
        objects.put("a/1", b"")
        (tmp_path / "elsewhere").mkdir()
        (tmp_path / "elsewhere/file").write_bytes(b"")
        (objects.root / "a/link").symlink_to(tmp_path / "elsewhere/file")
        (objects.root / "a/loop").symlink_to(objects.root)
        Path(os.fsdecode(os.fsencode(objects.root) + b"/a/\xff")).write_bytes(b"")
        os.mkfifo(objects.root / "a/pipe")

        assert [info.key for info in objects.listing()] == ["a/1"]

    def test_a_relative_folder_is_refused(self):
        """It would be another one in another working directory."""
        with pytest.raises(BadRequest, match="absolute"):
            FolderObjects(Path("instance"))

    def test_they_can_be_sent_to_another_process(self, objects):
        """A view pickles; the copy sees the same objects."""
        view = objects.under("a")
        view.put("b", b"body")

        copy = pickle.loads(pickle.dumps(view))

        assert copy == view
        assert copy.read("b") == b"body"
