"""Which unfinished files are deleted: our own, in our own folder, when something is written."""

from __future__ import annotations

import errno
import os
from datetime import UTC, datetime

import pytest

from sleeper.storage.local.failures import read_failure
from sleeper.storage.local.folder import FolderObjects

LATER = datetime(3000, 1, 1, tzinfo=UTC)
OURS = ".tmp-12345-7"


@pytest.fixture
def root(tmp_path):
    return tmp_path / "instance"


@pytest.fixture
def objects(root):
    """The objects of a process whose clock is far ahead: to it every file is old."""
    return FolderObjects(root, now=lambda: LATER)


def test_a_write_deletes_what_a_writer_that_died_has_left(root, objects):
    """Before the first write of a process; a view of the store does it too."""
    (root / ".tmp-writes").mkdir(parents=True)
    (root / ".tmp-writes" / OURS).write_bytes(b"half")

    objects.under("t").put("a", b"")

    assert list((root / ".tmp-writes").iterdir()) == []


def test_reading_deletes_nothing(root, objects):
    """Whoever only reads may have no right to delete, and did not ask for it."""
    (root / ".tmp-writes").mkdir(parents=True)
    (root / ".tmp-writes" / OURS).write_bytes(b"half")

    objects.read("a")
    list(objects.listing())
    objects.delete([])

    assert [path.name for path in (root / ".tmp-writes").iterdir()] == [OURS]


def test_a_symbolic_link_in_place_of_the_folder_is_not_followed(root, objects, tmp_path, caplog):
    """It may lead to a home directory, with names that only look like ours; the log says so."""
    home = tmp_path / "home"
    home.mkdir()
    for name in ("thesis.doc", OURS):
        (home / name).write_text("dear")
    root.mkdir()
    (root / ".tmp-writes").symlink_to(home)

    objects.put("a", b"")
    swept = objects.sweep_temporaries(0, LATER)

    assert swept == 0
    assert sorted(path.name for path in home.iterdir()) == [OURS, "thesis.doc"]
    assert "is not swept" in caplog.text


def test_files_of_other_names_are_not_ours(root, objects):
    """Nor are folders, links and the lock files of writers, whatever they are called."""
    hidden = root / ".tmp-writes"
    hidden.mkdir(parents=True)
    for name in ("thesis.doc", "turn-01234567", ".tmp-notes", f"{OURS}.bak"):
        (hidden / name).write_text("dear")
    (hidden / ".tmp-1-1").mkdir()
    (hidden / ".tmp-1-2").symlink_to(root / "elsewhere")

    swept = objects.sweep_temporaries(0, LATER)

    assert swept == 0
    assert len(list(hidden.iterdir())) == 6


def test_each_deletion_is_logged(root, objects, caplog):
    """By its name."""
    caplog.set_level("INFO")
    (root / ".tmp-writes").mkdir(parents=True)
    (root / ".tmp-writes" / OURS).write_bytes(b"half")

    objects.sweep_temporaries(0, LATER)

    assert f"deleted unfinished file {OURS}" in caplog.text


def mode(path) -> int:
    return path.stat().st_mode & 0o777


class TestSharedFolders:
    """A folder that several users share, one of them with a umask that shuts others out."""

    @pytest.fixture
    def shut_out(self):
        before = os.umask(0o077)
        yield
        os.umask(before)

    def test_what_is_written_can_be_read_by_whoever_may_read_the_folder(self, root, shut_out):
        """Entries, data, snapshots: an unreadable log entry would end the table for others."""
        root.mkdir()
        root.chmod(0o775)
        objects = FolderObjects(root)

        objects.create("t/log/1", b"entry")
        objects.put("t/data/1", b"data")
        with objects.open_output("t/data/2") as output:
            output.write(b"data")

        files = [root / "t/log/1", root / "t/data/1", root / "t/data/2"]
        assert [mode(path) for path in files] == [0o644] * 3
        folders = [root / "t", root / "t/log", root / "t/data", root / ".tmp-writes"]
        assert [mode(path) for path in folders] == [0o775] * 4

    def test_a_private_folder_stays_private(self, root, shut_out):
        """An instance that such a user makes is that user's alone."""
        objects = FolderObjects(root)

        objects.create("t/log/1", b"entry")

        assert [mode(root), mode(root / "t"), mode(root / "t/log/1")] == [0o700, 0o700, 0o600]

    def test_bits_that_the_umask_gives_are_kept(self, root):
        """Nothing is taken away: a folder's mode only adds."""
        root.mkdir(mode=0o700)
        before = os.umask(0o022)
        try:
            FolderObjects(root).create("a", b"")
        finally:
            os.umask(before)

        assert mode(root / "a") == 0o644

    def test_a_file_of_another_user_that_cannot_be_read_is_told_as_that(self, root):
        """Whose it is, and what its owner must do: nobody else can mend it."""
        root.mkdir()
        (root / "entry").write_bytes(b"")
        (root / "entry").chmod(0o600)

        told = str(read_failure(PermissionError(errno.EACCES, "denied"), str(root / "entry")))

        assert f"belongs to user {os.getuid()}, mode 0600" in told
        assert "chmod -R g+rX" in told
