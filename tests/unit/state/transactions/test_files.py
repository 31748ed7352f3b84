"""Every transaction about files: what it does, and what refuses it (rules STS-5 to STS-9)."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from sleeper.errors import (
    FileAlreadyExists,
    FileHasReferences,
    FileNotTracked,
    FileReferenceAlreadyExists,
    FileReferenceAssignedToJob,
    FileReferenceNotAssignedToJob,
    FileReferenceNotFound,
    JobAlreadyCommitted,
    NewReferenceSameAsOldReference,
    PartitionNotInTree,
)
from sleeper.state.table_state import CommittedJob, TableState
from sleeper.state.transactions.files import (
    AddFiles,
    Claim,
    ClaimFiles,
    ClearFiles,
    DeleteFiles,
    ReferencePush,
    ReplaceFiles,
    SplitFileReferences,
)
from tests.unit.state.small_tables import (
    LATER,
    MUCH_LATER,
    NOON,
    after,
    contents,
    filenames_by_partition,
    one_partition,
    part,
    plain,
    ref,
    split,
    two_leaves,
)


def finished(job_id="job-1", **more):
    job = {"keep_until": MUCH_LATER, "rows_read": 120, "rows_written": 100, **more}
    return CommittedJob(job_id=job_id, **job)


def add(*references, **more):
    return AddFiles(references=references, **more)


def claim(job_id, partition_id, *filenames):
    return ClaimFiles(
        assignments=(Claim(job_id=job_id, partition_id=partition_id, filenames=filenames),)
    )


def compact(*inputs, into="new", partition_id="root", job_id="job"):
    return ReplaceFiles(job_id=job_id, inputs=inputs, output=ref(into, partition_id, 200))


def push(filename, partition_id, *into):
    return SplitFileReferences(
        pushes=(ReferencePush(filename=filename, partition_id=partition_id, into=into),)
    )


class TestAddFiles:
    """Making new files visible (rule STS-5)."""

    def test_makes_all_files_visible_at_once(self):
        """Every reference is there, stamped with the time of the transaction."""
        table = after(two_leaves(), add(ref("a", "L"), part("b", "L"), part("b", "R")), at=LATER)

        assert filenames_by_partition(table) == {"L": ("a", "b"), "R": ("b",)}
        assert {each.updated for each in table.references()} == {LATER}

    def test_the_state_sets_the_time_whatever_the_caller_says(self):
        """References copied from an older state bring their times, which do not count."""
        table = after(one_partition(), add(ref("a", updated=MUCH_LATER)), at=NOON)

        assert table.references()[0].updated == NOON

    def test_adds_files_that_only_wait_for_collection(self):
        """A file without references is tracked, and waits from the time of the transaction."""
        table = after(one_partition(), AddFiles(unreferenced=("a",)), at=LATER)

        assert table.files.unreferenced_since("a") == LATER

    @pytest.mark.parametrize("again", [add(ref("new"), ref("a")), AddFiles(unreferenced=("a",))])
    def test_refuses_a_file_that_is_tracked(self, again):
        """One known name refuses the whole batch."""
        table = after(one_partition(), add(ref("a")))

        with pytest.raises(FileAlreadyExists, match=r"'a'.* referenced by partition 'root'"):
            after(table, again)

    def test_refuses_a_file_that_waits_for_collection(self):
        """The collector is about to delete that name, so nobody may take it."""
        table = after(one_partition(), AddFiles(unreferenced=("a",)))

        with pytest.raises(FileAlreadyExists, match="waits for garbage collection"):
            after(table, add(ref("a")))

    def test_takes_a_reference_to_a_partition_that_was_split(self):
        """PRT-13: a writer with an older tree is not turned away."""
        assert filenames_by_partition(after(two_leaves(), add(ref("a", "root")))) == {
            "root": ("a",)
        }

    def test_refuses_a_partition_that_does_not_exist(self):
        """Rows there would belong to nobody."""
        with pytest.raises(PartitionNotInTree, match="'nowhere'"):
            after(two_leaves(), add(ref("a", "nowhere")))

    def test_refuses_files_before_there_are_partitions(self):
        """A table without partitions has no place for rows."""
        with pytest.raises(PartitionNotInTree, match="'root'"):
            after(TableState.empty(), add(ref("a")))

    @pytest.mark.parametrize("second", ["L", "root"])
    def test_refuses_to_count_rows_twice(self, second):
        """FRF-3: not twice on one partition, not on a partition and its ancestor."""
        with pytest.raises(FileReferenceAlreadyExists, match="read"):
            after(two_leaves(), add(part("a", "L"), part("a", second)))

    def test_records_the_job_that_wrote_the_files(self):
        """Its transaction, times and counts are kept for as long as the job asked for."""
        table = after(one_partition(), add(ref("a"), ref("b"), job=finished()), at=LATER)

        done = table.jobs.find("job-1")
        assert (done.number, done.at, done.keep_until) == (2, LATER, MUCH_LATER)
        assert (done.rows_read, done.rows_written, done.files) == (120, 100, 2)

    def test_records_a_job_that_wrote_nothing(self):
        """A job whose rows were all filtered away is done all the same."""
        table = after(one_partition(), AddFiles(job=finished(rows_written=0)))

        assert table.jobs.find("job-1").files == 0

    def test_refuses_a_job_that_was_committed(self):
        """The answer says which transaction did it, even if the files have other names."""
        table = after(one_partition(), add(ref("a"), job=finished()))

        with pytest.raises(JobAlreadyCommitted) as refused:
            after(table, add(ref("b"), job=finished()))

        assert (refused.value.job_id, refused.value.number) == ("job-1", 2)

    def test_knows_a_job_whose_files_are_long_gone(self):
        """After compaction and collection of its files the job is still known."""
        table = after(
            one_partition(),
            add(ref("a"), job=finished()),
            claim("job", "root", "a"),
            compact("a"),
            DeleteFiles(filenames=("a",)),
        )

        with pytest.raises(JobAlreadyCommitted):
            after(table, add(ref("a"), job=finished()))

    def test_forgets_a_job_when_its_time_is_over(self):
        """Then the same id is a new job, once many entries have followed."""
        table = after(
            one_partition(),
            add(ref("a"), job=finished(keep_until=LATER)),
            add(ref("b"), job=finished("job-2")),
            at=NOON,
        )
        table = replace(table, number=table.number + 10_000)
        table = after(table, add(ref("c"), job=finished("job-3")), at=LATER + timedelta(seconds=1))

        assert after(table, add(ref("d"), job=finished())).jobs.find("job-1").number == 10_005

    def test_changes_nothing_when_it_is_empty(self):
        """An empty list makes no transaction."""
        table = one_partition()

        assert AddFiles().apply(table, NOON) is table

    def test_is_refused_at_once_when_it_contradicts_itself(self):
        """A file has references or it has none."""
        with pytest.raises(ValueError, match="both with and without"):
            AddFiles(references=(ref("a"),), unreferenced=("a",))


class TestAssignJobIds:
    """Claiming files for compaction jobs (rule STS-7)."""

    def test_claims_the_references_of_one_partition(self):
        """The same file on the other partition stays free."""
        table = after(two_leaves(), add(part("a", "L"), part("a", "R")))

        table = after(table, claim("job", "L", "a"), at=LATER)

        assert plain([table.files.reference("a", "L")]) == [
            part("a", "L", job_id="job", updated=LATER)
        ]
        assert table.files.reference("a", "R") == part("a", "R", updated=NOON, sequence=3)

    def test_claims_all_or_nothing(self):
        """One missing reference refuses every claim of the transaction."""
        table = after(two_leaves(), add(ref("a", "L")))

        with pytest.raises(FileReferenceNotFound, match="'a'; it is referenced by partition 'L'"):
            after(
                table,
                ClaimFiles(
                    assignments=(
                        Claim(job_id="one", partition_id="L", filenames=("a",)),
                        Claim(job_id="two", partition_id="R", filenames=("a",)),
                    )
                ),
            )

    def test_refuses_a_file_that_is_gone(self):
        """STS-7 has one answer for a missing file and a missing reference."""
        with pytest.raises(FileReferenceNotFound, match="does not track it"):
            after(two_leaves(), claim("job", "L", "gone"))

    def test_refuses_what_another_job_has_claimed(self):
        """The message names that job."""
        table = after(one_partition(), add(ref("a")), claim("first", "root", "a"))

        with pytest.raises(FileReferenceAssignedToJob, match="'first'"):
            after(table, claim("second", "root", "a"))

    def test_refuses_two_jobs_for_one_file_in_one_transaction(self):
        """The second of the two would be refused anyway."""
        table = after(one_partition(), add(ref("a")))
        both = ClaimFiles(
            assignments=tuple(
                Claim(job_id=job_id, partition_id="root", filenames=("a",))
                for job_id in ("first", "second")
            )
        )

        with pytest.raises(FileReferenceAssignedToJob, match="'first'"):
            after(table, both)

    def test_changes_nothing_without_filenames(self):
        """A claim on nothing is dropped."""
        table = one_partition()

        assert claim("job", "root").apply(table, NOON) is table


class TestReplaceFiles:
    """Committing a compaction (rule STS-8)."""

    @pytest.fixture
    def claimed(self):
        """Files a and b on root, claimed by `job`."""
        return after(one_partition(), add(ref("a"), ref("b")), claim("job", "root", "a", "b"))

    def test_puts_the_output_in_the_place_of_the_inputs(self, claimed):
        """Inputs wait for collection from then on; the output is free for the next job."""
        table = after(claimed, compact("a", "b"), at=LATER)

        assert plain(table.references()) == [ref("new", row_count=200, updated=LATER)]
        assert list(table.files.unreferenced()) == [("a", LATER), ("b", LATER)]

    def test_a_shared_file_outlives_the_first_partition_that_compacts_it(self):
        """
        A file that two partitions share waits for garbage collection only
        when the second of them has compacted it as well (FRF-6).
        """
        table = after(
            two_leaves(),
            add(part("shared", "L"), part("shared", "R")),
            claim("left", "L", "shared"),
            claim("right", "R", "shared"),
        )

        after_left = after(
            table, compact("shared", into="l", partition_id="L", job_id="left"), at=NOON
        )
        after_both = after(
            after_left, compact("shared", into="r", partition_id="R", job_id="right"), at=LATER
        )

        assert after_left.files.unreferenced_since("shared") is None
        assert after_both.files.unreferenced_since("shared") == LATER

    def test_makes_a_share_whole_again(self):
        """FRF-5: the output is counted exactly and belongs to one partition alone."""
        table = after(two_leaves(), add(part("a", "L"), part("a", "R")), claim("job", "L", "a"))

        table = after(table, compact("a", partition_id="L"), at=LATER)

        assert table.files.reference("new", "L") == ref("new", "L", 200, updated=LATER, sequence=5)

    def test_counts_a_repeated_input_once(self, claimed):
        """Naming a file twice changes nothing."""
        assert contents(after(claimed, compact("a", "b", "a"))) == contents(
            after(claimed, compact("a", "b"))
        )

    def test_refuses_inputs_that_were_replaced(self, claimed):
        """A job that comes again after its commit is told so, and its inputs are safe."""
        done = after(claimed, compact("a", "b"))

        with pytest.raises(FileReferenceNotFound, match="no partition references it"):
            after(done, compact("a", "b", into="other"))

    def test_refuses_inputs_that_were_collected(self, claimed):
        """The table does not know their names any longer."""
        done = after(claimed, compact("a", "b"), DeleteFiles(filenames=("a", "b")))

        with pytest.raises(FileNotTracked, match="'a'"):
            after(done, compact("a", "b", into="other"))

    @pytest.mark.parametrize(
        ("job_id", "reason"), [("other", "is claimed by job 'job'"), ("free", "is unclaimed")]
    )
    def test_refuses_inputs_that_its_job_has_not_claimed(self, claimed, job_id, reason):
        """Claimed by another job, or by none."""
        table = after(claimed, add(ref("c")))
        inputs = ("a",) if job_id == "other" else ("c",)

        with pytest.raises(FileReferenceNotAssignedToJob, match=reason):
            after(table, compact(*inputs, job_id=job_id))

    def test_refuses_an_output_that_exists(self, claimed):
        """Two files of one name cannot both be kept."""
        table = after(claimed, add(ref("new")))

        with pytest.raises(FileAlreadyExists, match="'new'"):
            after(table, compact("a", "b"))

    def test_refuses_at_once_to_write_over_an_input(self):
        """Checked when the value is made, so no job can be planned that way."""
        with pytest.raises(NewReferenceSameAsOldReference, match="'a'"):
            compact("a", "b", into="a")

    @pytest.mark.parametrize("half", [{"task_id": "task"}, {"run_id": "run"}])
    def test_takes_task_and_run_together_or_not_at_all(self, half):
        """The tracker needs both or neither."""
        with pytest.raises(ValueError, match="together"):
            ReplaceFiles(job_id="job", inputs=("a",), output=ref("new"), **half)

    def test_needs_an_input(self):
        """A compaction of nothing would be an ingest without a check."""
        with pytest.raises(ValueError, match="no input"):
            compact()

    def test_leaves_the_output_unclaimed(self, claimed):
        """A claim by the job that is done would lock the file for ever."""
        replaced = ReplaceFiles(job_id="job", inputs=("a", "b"), output=ref("new", job_id="job"))

        assert after(claimed, replaced).references()[0].job_id is None


class TestSplitFileReferences:
    """Pushing references of a split partition down (rule STS-6)."""

    def test_moves_a_reference_to_the_partitions_below(self):
        """The file stays tracked, and is shared from then on."""
        table = after(two_leaves(), add(ref("a")))

        table = after(table, push("a", "root", part("a", "L"), part("a", "R")), at=LATER)

        assert plain(table.references()) == [
            part("a", "L", updated=LATER),
            part("a", "R", updated=LATER),
        ]
        assert table.files.unreferenced_since("a") is None

    def test_goes_all_the_way_to_the_leaves(self):
        """Several levels at once, as deep as the tree is."""
        table = two_leaves()
        table = after(table, split(table.partition("R"), 75, "RL", "RR"), add(ref("a")))

        table = after(table, push("a", "root", part("a", "L"), part("a", "RL"), part("a", "RR")))

        assert set(filenames_by_partition(table)) == {"L", "RL", "RR"}

    @pytest.mark.parametrize(
        ("into", "refusal"),
        [
            (("root",), PartitionNotInTree),
            (("nowhere",), PartitionNotInTree),
            (("L", "L"), FileReferenceAlreadyExists),
            (("R", "RL"), FileReferenceAlreadyExists),
        ],
    )
    def test_refuses_places_where_rows_would_be_lost_or_doubled(self, into, refusal):
        """Only partitions below the old one, and no two of which one lies below the other."""
        table = two_leaves()
        table = after(table, split(table.partition("R"), 75, "RL", "RR"), add(ref("a")))

        with pytest.raises(refusal):
            after(table, push("a", "root", *(part("a", place) for place in into)))

    def test_refuses_what_a_job_has_claimed(self):
        """The job will replace the old reference, so it must stay where it is."""
        table = after(two_leaves(), add(ref("a")), claim("job", "root", "a"))

        with pytest.raises(FileReferenceAssignedToJob, match="'job'"):
            after(table, push("a", "root", part("a", "L"), part("a", "R")))

    def test_refuses_a_reference_that_is_there_already(self):
        """A file that is on L cannot come to L from above as well."""
        table = after(two_leaves(), add(ref("a", "root")))
        doubled = after(table, push("a", "root", part("a", "L"), part("a", "R")))
        again = SplitFileReferences(
            pushes=tuple(
                ReferencePush(filename="a", partition_id="root", into=(part("a", place),))
                for place in ("L", "R")
            )
        )

        with pytest.raises(FileReferenceNotFound):
            after(doubled, again)
        with pytest.raises(FileReferenceNotFound, match="twice"):
            after(table, again)

    def test_refuses_a_new_reference_that_another_push_brings(self):
        """Sound tables have no reference above another; one that has is not made worse."""
        table = two_leaves()
        table = after(table, split(table.partition("R"), 75, "RL", "RR"))
        unsound = table.files.changed(added=[part("a", "root"), part("a", "R")], at=NOON)
        table = TableState(table.number, table.partitions, unsound, table.jobs)

        with pytest.raises(FileReferenceAlreadyExists, match="'R' references 'a' already"):
            after(table, push("a", "root", part("a", "L"), part("a", "R")))

    def test_refuses_files_and_references_that_are_gone(self):
        """A file that is unknown, and one that is elsewhere."""
        table = after(two_leaves(), add(ref("a", "L")))

        with pytest.raises(FileNotTracked, match="'gone'"):
            after(table, push("gone", "root", part("gone", "L")))
        with pytest.raises(FileReferenceNotFound, match="partition 'L'"):
            after(table, push("a", "root", part("a", "R")))

    def test_keeps_to_one_file_for_each_push(self):
        """Another file's reference cannot take the place of this one's; neither can none."""
        with pytest.raises(ValueError, match="'b'"):
            push("a", "root", part("b", "L"))
        with pytest.raises(ValueError):
            push("a", "root")

    def test_changes_nothing_when_it_is_empty(self):
        """Nothing to push is nothing to write."""
        table = one_partition()

        assert SplitFileReferences(pushes=()).apply(table, NOON) is table


class TestDeleteFiles:
    """Forgetting collected files (rule STS-9)."""

    def test_forgets_files_without_references(self):
        """Their names are free again, and the table is empty."""
        table = after(one_partition(), AddFiles(unreferenced=("a", "b")))

        assert after(table, DeleteFiles(filenames=("a", "b"))).has_no_files

    def test_forgets_all_or_nothing(self):
        """One unknown name refuses the whole list."""
        table = after(one_partition(), AddFiles(unreferenced=("a",)))

        with pytest.raises(FileNotTracked, match="'b'"):
            after(table, DeleteFiles(filenames=("a", "b")))

    def test_refuses_a_file_that_somebody_references(self):
        """The message carries the number of references."""
        table = after(two_leaves(), add(part("a", "L"), part("a", "R")))

        with pytest.raises(FileHasReferences, match="2 references"):
            after(table, DeleteFiles(filenames=("a",)))

    def test_can_run_while_garbage_is_being_listed(self):
        """The list of a state stays what it was, whatever is committed meanwhile."""
        table = after(one_partition(), AddFiles(unreferenced=("a", "b", "c")))

        listed = []
        for filename in table.unreferenced_before(LATER):
            table = after(table, DeleteFiles(filenames=(filename,)))
            listed.append(filename)

        assert listed == ["a", "b", "c"]
        assert table.has_no_files


class TestClearFiles:
    """Emptying a table (rule STS-2)."""

    def test_drops_files_and_keeps_partitions(self):
        """Referenced or not, no file is left."""
        table = after(two_leaves(), add(ref("a"), unreferenced=("b",)))

        cleared = after(table, ClearFiles())

        assert cleared.has_no_files
        assert cleared.partitions is table.partitions

    def test_forgets_the_jobs_as_well(self):
        """Who fills the table again under the same job ids means it."""
        table = after(one_partition(), add(ref("a"), job=finished()))

        cleared = after(table, ClearFiles())

        assert cleared.jobs.find("job-1") is None
        assert after(cleared, add(ref("a"), job=finished())).jobs.find("job-1").number == 4

    def test_changes_nothing_in_an_empty_table(self):
        """There is nothing to write down."""
        table = one_partition()

        assert ClearFiles().apply(table, NOON) is table
