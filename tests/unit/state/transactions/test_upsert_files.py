"""Files whose row keys older files have lost: what an upsert records, and until when (rule DEL-3)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sleeper.errors import FileHasReferences, TableChanged
from sleeper.model.row_deletes import KeyFile
from sleeper.state.plans.garbage import collectable
from sleeper.state.plans.queries import key_files_in, plan_leaf_queries, plan_lookup, plan_row_count
from sleeper.state.snapshot import snapshot_parts, state_from_parts
from sleeper.state.transactions.files import (
    AddFiles,
    Claim,
    ClaimFiles,
    DeleteFiles,
    ReplaceFiles,
    UpsertFiles,
)
from sleeper.state.transactions.formats import SetFormat
from sleeper.state.transactions.partitions import MergePartitions
from tests.unit.state.small_tables import (
    LATER,
    MUCH_LATER,
    SCHEMA,
    after,
    ref,
    split,
    two_leaves,
)


def add(*references):
    return AddFiles(references=references)


def upsert(*references, without_old_rows=()):
    return UpsertFiles(references=references, without_old_rows=frozenset(without_old_rows))


def compact(table, partition_id, inputs, output, at=LATER):
    """The table after a compaction that read it as it is."""
    job = Claim(job_id=output, partition_id=partition_id, filenames=inputs)
    table = after(table, ClaimFiles(assignments=(job,)))
    new = ref(output, partition_id, sequence=table.number)
    return after(table, ReplaceFiles(job_id=output, inputs=inputs, output=new), at=at)


def hidden(table, leaf_id):
    """Of each file of a leaf, the files whose keys are left out of it."""
    return key_files_in(table, table.partition(leaf_id))


@pytest.fixture
def table():
    """`root > L R` in format 2, with the files l on L, r on R, and both on root."""
    files = add(ref("l", "L"), ref("r", "R"), ref("both", "root"))
    return after(two_leaves(), SetFormat(format=2), files)


class TestRecord:
    """Which files lose keys, and of which."""

    def test_older_files_of_the_leaf_and_above_lose_its_keys(self, table):
        """Given a new file on L, then l and both have lost its keys there, and r has not."""
        now = after(table, upsert(ref("new", "L", 7)))

        assert hidden(now, "L") == {"l": ("new",), "both": ("new",)}
        assert hidden(now, "R") == {}
        assert now.key_files() == {"new": KeyFile("new", 7)}

    def test_each_later_one_is_left_out_of_those_before(self, table):
        """Given two upserts, the first file loses the keys of the second as well."""
        now = after(table, upsert(ref("one", "L")), upsert(ref("two", "L")))

        assert hidden(now, "L") == {"l": ("one", "two"), "both": ("one", "two"), "one": ("two",)}

    def test_files_of_one_upsert_lose_nothing(self, table):
        """Given two new files on a leaf, both have all of their rows."""
        now = after(table, upsert(ref("one", "L"), ref("two", "L")))

        assert {*hidden(now, "L")} == {"l", "both"}

    def test_a_file_of_later_keeps_its_rows(self, table):
        """Given an ingest after it, nothing is left out of its file."""
        now = after(table, upsert(ref("new", "L")), add(ref("later", "L")))

        assert "later" not in hidden(now, "L")

    def test_nothing_is_recorded_where_nothing_can_be_old(self, table):
        """Given a file that is said to replace nothing, one without rows, or a table without files."""
        first = after(two_leaves(), SetFormat(format=2), upsert(ref("new", "L")))
        apart = after(table, upsert(ref("new", "L"), without_old_rows=["new"]))
        empty = after(table, upsert(ref("new", "L", 0)))

        assert first.deletes == apart.deletes == empty.deletes == ()

    def test_plans_say_which_keys_to_leave_out(self, table):
        """Given queries, look-ups and counts, each names the files of the keys."""
        now = after(table, upsert(ref("new", "L")))

        ((lower,), (upper,)) = plan_leaf_queries(now, [now.tree.root.region])
        counted = plan_row_count(now, [now.tree.root.region])

        assert lower.key_files == plan_lookup(now, (7,)).key_files == hidden(now, "L")
        assert upper.key_files == plan_lookup(now, (70,)).key_files == {}
        assert counted.key_files == {"l": ("new",), "both": ("new",)}
        assert counted.known_rows == 200  # of r and new

    def test_a_snapshot_has_it(self, table):
        """Given its parts, the state is read back, and a version that does not know it refuses."""
        now = after(table, upsert(ref("data/partition_L/new.parquet", "L", 7)))
        named = replace(now, files=after(two_leaves()).files)
        parts = snapshot_parts(named, SCHEMA)

        assert state_from_parts(now.number, parts.__getitem__, SCHEMA).deletes == now.deletes
        assert b'"regions"' not in parts["partitions.parquet"]


class TestRefusals:
    """What it cannot be committed to."""

    def test_a_table_of_format_1(self):
        """Readers of format 1 would show the old rows."""
        with pytest.raises(TableChanged, match="format 1"):
            after(two_leaves(), upsert(ref("new", "L")))

    def test_an_entry_that_has_added_rows_to_the_leaf(self, table):
        """Given an ingest or an upsert before it in one entry, it could not tell which is older."""
        entry = replace(table, number=table.number + 1)
        for first in (add(ref("one", "L")), upsert(ref("one", "L"))):
            begun = first.apply(entry, LATER)
            with pytest.raises(TableChanged, match="entry of its own"):
                upsert(ref("two", "L")).apply(begun, LATER)
            upsert(ref("two", "R")).apply(begun, LATER)


class TestEnd:
    """Until when keys are left out, and their files are kept."""

    def test_is_when_no_older_file_is_left(self, table):
        """Given compactions of l and of both, the keys are left out until the last of them."""
        table = after(table, upsert(ref("new", "L")))

        some = compact(table, "L", ("l",), "merged")
        assert hidden(some, "L") == {"both": ("new",)}
        assert compact(some, "root", ("both",), "all").deletes == ()

    def test_of_one_leaf_leaves_the_other(self, table):
        """Given new files on both leaves, each is over by itself."""
        table = compact(table, "root", ("both",), "on-root")
        table = after(table, upsert(ref("a", "L"), ref("b", "R")))
        table = compact(table, "root", ("on-root",), "again")

        assert {*compact(table, "L", ("l",), "c").key_files()} == {"b"}

    def test_a_job_that_read_before_stays_subject_to_it(self, table):
        """Given an output with the number of before, it loses the keys."""
        job = Claim(job_id="j", partition_id="L", filenames=("l",))
        table = after(table, ClaimFiles(assignments=(job,)))
        before = table.number
        table = after(table, upsert(ref("new", "L")))
        output = ref("merged", "L", sequence=before)
        table = after(table, ReplaceFiles(job_id="j", inputs=("l",), output=output))

        assert hidden(table, "L") == {"both": ("new",), "merged": ("new",)}

    def test_a_file_is_no_garbage_before(self, table):
        """Given that it was merged with a later one, it is kept, and garbage from the end on."""
        table = after(table, upsert(ref("new", "L")), add(ref("later", "L")))
        table = compact(table, "L", ("new", "later"), "merged")
        assert "new" not in {*collectable([table], MUCH_LATER)}
        with pytest.raises(FileHasReferences, match="keys of an upsert"):
            DeleteFiles(filenames=("new",)).check(table)

        table = compact(table, "L", ("l",), "rest")
        table = compact(table, "root", ("both",), "all", at=MUCH_LATER)

        assert table.files.unreferenced_since("new") == MUCH_LATER
        assert "new" not in {*collectable([table], MUCH_LATER)}
        DeleteFiles(filenames=("new",)).check(table)

    def test_a_version_needs_it(self, table):
        """Given a newer state that has forgotten the file, a version that reads it is not kept."""
        then = after(table, upsert(ref("new", "L")))
        then = compact(then, "L", ("new",), "merged")
        now = compact(then, "L", ("l",), "rest")
        now = compact(now, "root", ("both",), "all")

        assert not then.needs_more_than(now)
        assert then.needs_more_than(after(now, DeleteFiles(filenames=("new",))))


class TestLeavesThatChange:
    """Splits and merges of the leaf of a new file."""

    def test_of_a_split_leaf_the_keys_are_left_out_below(self, table):
        """Given a split of L, files on its halves that were added before lose the keys."""
        table = after(table, upsert(ref("new", "L")))
        table = after(table, split(table.partition("L"), 25, "LL", "LR"))

        assert hidden(table, "LL") == hidden(table, "LR")
        assert {*hidden(table, "LL")} == {"l", "both"}

    def test_of_merged_leaves_the_keys_are_left_out_above(self, table):
        """Given a merge of L and R, their parent has the keys of both."""
        table = after(table, upsert(ref("a", "L"), ref("b", "R")))
        table = after(table, MergePartitions(parent_id="root", child_ids=("L", "R")))

        assert {*table.deletes[0].key_files} == {"root"}
        assert {*hidden(table, "root")} == {"l", "r", "both"}
        assert {*hidden(table, "root")["l"]} == {"a", "b"}

    def test_a_file_for_a_leaf_that_was_merged_is_of_its_parent(self, table):
        """Given an upsert that was written before a merge, it hides keys in all of the parent."""
        table = after(table, MergePartitions(parent_id="root", child_ids=("L", "R")))

        now = after(table, upsert(ref("new", "L")))

        assert {*hidden(now, "root")} == {"l", "r", "both"}
