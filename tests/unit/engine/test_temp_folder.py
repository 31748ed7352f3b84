"""The folder for temp files: the one that is named, whatever its state, and no other in silence."""

from __future__ import annotations

import errno
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest

from sleeper.engine.sorting.sort import SortSettings, sort_into_groups
from sleeper.engine.temp_folder import temp_file_failures, temp_folder
from sleeper.errors import StorageFailed, StorageFull, StorageReadOnly

SCHEMA = pa.schema([("k", pa.int64())])


def test_the_folder_is_the_given_one_then_that_of_tmpdir_then_the_systems(monkeypatch, tmp_path):
    """Python's own function is asked only where nothing is named."""
    monkeypatch.setenv("TMPDIR", str(tmp_path / "named"))
    assert temp_folder(tmp_path) == tmp_path
    assert temp_folder() == tmp_path / "named"

    monkeypatch.delenv("TMPDIR")
    assert temp_folder() == Path(tempfile.gettempdir())


@pytest.mark.parametrize("named", ["/proc", "/does/not/exist", "/dev/null"])
def test_a_sort_does_not_spill_elsewhere_than_where_it_should(monkeypatch, named):
    """Given a TMPDIR where nothing can be written, then the sort fails and names it."""
    monkeypatch.setenv("TMPDIR", named)
    monkeypatch.setattr(tempfile, "tempdir", None)
    batches = [pa.record_batch([range(n, n + 5_000)], schema=SCHEMA) for n in range(40)]

    with pytest.raises(StorageFailed, match=f"temporary files, '{named}'.*TMPDIR"):
        for _, chunks in sort_into_groups(
            batches,
            SCHEMA,
            key_names=["k"],
            bounds=[],
            settings=SortSettings(memory_bytes=100_000),
        ):
            list(chunks)


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOSPC, StorageFull),
        (errno.EDQUOT, StorageFull),
        (errno.EROFS, StorageReadOnly),
        (errno.EACCES, StorageReadOnly),
        (errno.EIO, StorageFailed),
    ],
)
def test_failures_say_what_is_wrong_with_the_folder(number, kind):
    """A full one needs space, and why; one that cannot be written another place."""
    with (
        pytest.raises(StorageFailed, match=r"'/scratch'.*TMPDIR") as told,
        temp_file_failures(Path("/scratch"), "rows wait there"),
    ):
        raise OSError(number, "words of the system")

    assert type(told.value) is kind
    assert ("rows wait there" in str(told.value)) == (kind is StorageFull)
