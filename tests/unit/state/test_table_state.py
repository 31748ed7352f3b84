"""What can be asked of a table's state (rules STS-10, STS-11)."""

from __future__ import annotations

import pytest

from sleeper.errors import FileReferenceAssignedToJob, FileReferenceNotFound, PartitionNotFound
from sleeper.state.table_state import TableState
from sleeper.state.transactions.files import AddFiles, Claim, ClaimFiles
from tests.unit.state.small_tables import LATER, NOON, after, one_partition, part, ref, two_leaves


@pytest.fixture
def table():
    """Files a and b on the leaves, a shared; c unclaimed on root; d waiting since noon."""
    files = AddFiles(
        references=(part("a", "R"), part("a", "L"), ref("b", "R"), ref("c")), unreferenced=("d",)
    )
    claim = ClaimFiles(assignments=(Claim(job_id="job", partition_id="R", filenames=("a", "b")),))
    return after(two_leaves(), files, claim)


class TestFileQueries:
    """The reads of rule STS-10 about files."""

    def test_references_come_by_filename_then_partition(self, table):
        """Every reference once, in one order for every reader."""
        found = [(each.filename, each.partition_id) for each in table.references()]

        assert found == [("a", "L"), ("a", "R"), ("b", "R"), ("c", "root")]

    def test_claimed_references_have_the_id_of_their_job(self, table):
        """A reference with a job id belongs to a running compaction."""
        free = [(ref.filename, ref.partition_id) for ref in table.references() if not ref.job_id]

        assert free == [("a", "L"), ("c", "root")]

    def test_a_file_that_waits_for_collection_is_a_file(self):
        """A table is without files only when none is tracked, referenced or not."""
        waiting = after(one_partition(), AddFiles(unreferenced=("d",)))

        assert one_partition().has_no_files
        assert not waiting.has_no_files

    def test_garbage_is_what_waits_since_strictly_before(self, table):
        """A file that is unreferenced since noon is garbage after noon, not at noon."""
        assert list(table.unreferenced_before(LATER)) == ["d"]
        assert list(table.unreferenced_before(NOON)) == []

    def test_a_report_lists_only_so_many_waiting_files(self):
        """FRF-7: at most as many as asked for, and whether there are more."""
        table = after(one_partition(), AddFiles(unreferenced=("x", "y", "z")))

        assert table.unreferenced_up_to(2) == ([("x", NOON), ("y", NOON)], True)
        assert table.unreferenced_up_to(3)[1] is False


class TestPartitionQueries:
    """The reads of rule STS-10 about partitions."""

    def test_leaves_come_in_key_order(self):
        """The lower child first."""
        assert [leaf.partition_id for leaf in two_leaves().leaf_partitions()] == ["L", "R"]

    def test_an_unknown_partition_is_not_found(self):
        """The message names it."""
        with pytest.raises(PartitionNotFound, match="Partition not found: nowhere"):
            two_leaves().partition("nowhere")

    def test_before_initialisation_there_is_no_tree(self):
        """Asking for it says what has to be done; asking for leaves gives none."""
        with pytest.raises(PartitionNotFound, match="InitialisePartitions"):
            _ = TableState.empty().tree

        assert TableState.empty().leaf_partitions() == ()


class TestIsAssigned:
    """Whether a compaction job still holds its inputs (rule STS-11)."""

    def test_all_files_must_be_claimed_by_the_job(self, table):
        """True for the claimed ones; false when one of them is unclaimed."""
        assert table.is_assigned("job", "R", ["a", "b"])
        assert not table.is_assigned("job", "L", ["a"])

    def test_another_job_is_an_error(self, table):
        """The message names the job that has the claim."""
        with pytest.raises(FileReferenceAssignedToJob, match="'job'"):
            table.is_assigned("other", "R", ["a"])

    def test_a_missing_reference_is_an_error(self, table):
        """The message says where the file is instead."""
        with pytest.raises(FileReferenceNotFound, match="referenced by partition 'R'"):
            table.is_assigned("job", "L", ["b"])
