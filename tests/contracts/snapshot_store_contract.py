"""What every snapshot store must do, whatever lies beneath it."""

from __future__ import annotations

import pytest

from sleeper.errors import ObjectNotFound


def parts(of: str) -> dict[str, bytes]:
    """Return the two parts of a table's state, as bytes that name it."""
    return {
        "partitions.parquet": f"partitions of {of}".encode(),
        "files.parquet": f"files of {of}".encode(),
    }


class SnapshotStoreContract:
    """Subclass it and supply `snapshots`, an empty store for these two parts."""

    def test_a_snapshot_is_loaded_as_it_was_saved(self, snapshots):
        """Part by part, byte for byte."""
        saved = snapshots.save(7, parts("seven"))

        assert saved
        assert snapshots.load(7, "partitions.parquet") == b"partitions of seven"
        assert snapshots.load(7, "files.parquet") == b"files of seven"

    def test_snapshots_are_listed_by_number(self, snapshots):
        """Ascending as numbers, not as text."""
        for number in (1_000, 9, 200):
            snapshots.save(number, parts(str(number)))

        assert snapshots.numbers() == (9, 200, 1_000)

    def test_a_store_without_snapshots_lists_none(self, snapshots):
        """It needs no making."""
        assert snapshots.numbers() == ()

    def test_the_first_snapshot_of_a_number_stays(self, snapshots):
        """A second one holds the same state, so it is not written; its writer is told."""
        snapshots.save(7, parts("first"))

        saved = snapshots.save(7, parts("second"))

        assert not saved
        assert snapshots.load(7, "files.parquet") == b"files of first"

    def test_a_missing_snapshot_is_told_by_its_number(self, snapshots):
        """As is a part that does not exist."""
        snapshots.save(7, parts("seven"))

        with pytest.raises(ObjectNotFound, match="snapshot 8"):
            snapshots.load(8, "files.parquet")
        with pytest.raises(ObjectNotFound, match=r"nothing\.parquet"):
            snapshots.load(7, "nothing.parquet")

    def test_a_copy_of_a_new_state_replaces_the_last_one(self, snapshots):
        """It is no snapshot: no listing shows it."""
        assert snapshots.newest() is None

        for body in (b"one", b"two"):
            snapshots.save_newest(body)

        assert snapshots.newest() == b"two"
        assert snapshots.numbers() == ()
