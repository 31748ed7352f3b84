"""Ingest: which files are written, who references them, and what a commit that fails leaves."""

from __future__ import annotations

import pytest

from sleeper.engine.sketches.stored_sketch import read_stored_sketch
from sleeper.engine.writing import leaf_files
from sleeper.errors import CommitContended, CommitOverwritten, CommitUnknown, NullKeys
from sleeper.lookup.parquet.file_end import range_reader, read_file_end
from sleeper.lookup.parquet.page_index import read_offset_index
from sleeper.model.keys import Key
from tests.unit.tables.small_tables import PAIRS, SmallTable, small_table

ROWS = [(7, "a"), (1, "a"), (3, "b"), (5, "a"), (1, "c")]


def shares(table: SmallTable) -> dict[str, list[tuple[str, int, bool, bool]]]:
    """By leaf, in key order: (folder of the file, rows, estimated?, whole file?)."""
    state = table.store.refresh()
    return {
        leaf.partition_id: [
            (r.filename.split("/")[1], r.row_count, r.row_count_estimated, r.whole_file)
            for r in state.files.references_on(leaf.partition_id)
        ]
        for leaf in state.tree.leaves()
    }


def keys_in(table: SmallTable) -> list[Key]:
    """The keys of all rows that are referenced, file after file, read with pyarrow."""
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    names = {reference.filename for reference in table.store.refresh().references()}
    found = []
    for name in sorted(names):
        rows = pq.read_table(pa.BufferReader(table.files.read(name)))
        found.append(list(zip(rows["a"].to_pylist(), rows["b"].to_pylist(), strict=True)))
    return found


class TestOneFilePerLeaf:
    """ING-5, the default."""

    def test_each_leaf_with_rows_gets_a_file_of_its_own(self):
        """Under the leaf's folder, with exact counts, the whole file; others get none (ING-5)."""
        table = small_table([2, 4, 6])
        leaves = [leaf.partition_id for leaf in table.store.refresh().tree.leaves()]

        result = table.ingest([row for row in ROWS if row[0] != 3])

        assert list(shares(table).values()) == [
            [(f"partition_{leaves[0]}", 2, False, True)],
            [],
            [(f"partition_{leaves[2]}", 1, False, True)],
            [(f"partition_{leaves[3]}", 1, False, True)],
        ]
        assert (result.rows_read, result.rows_written, len(result.files)) == (4, 4, 3)

    def test_rows_are_in_key_order_and_on_their_side_of_a_split(self):
        """A split point belongs to the right-hand leaf (PRT-2)."""
        table = small_table([3])

        table.ingest(ROWS)

        assert sorted(keys_in(table)) == [
            [(1, "a"), (1, "c")],
            [(3, "b"), (5, "a"), (7, "a")],
        ]

    def test_each_leaf_costs_one_object(self):
        """Sketches lie in the data files (ING-8), and there is nothing else."""
        table = small_table([3])

        result = table.ingest(ROWS)

        names = [reference.filename for reference in result.files]
        assert table.keys() == {f"t1/{name}" for name in names}
        found = [read_stored_sketch(table.files, each, PAIRS).row_count for each in result.files]
        assert found == [2, 3]

    def test_leaves_that_interleave_each_get_their_rows(self):
        """Split on the second key field, leaves share values of the first (PRT-5)."""
        table = small_table()
        root = table.store.refresh().tree.root_id
        table.split(root, "b", dimension=1)
        table.split(f"{root}-low", 4)

        table.ingest(ROWS)

        assert {leaf: [share[1] for share in found] for leaf, found in shares(table).items()} == {
            f"{root}-low-low": [1],
            f"{root}-low-high": [2],
            f"{root}-high": [2],
        }
        assert sorted(keys_in(table)) == [
            [(1, "a")],
            [(1, "c"), (3, "b")],
            [(5, "a"), (7, "a")],
        ]


class TestOneReferencePerLeaf:
    """ING-6: one file under the root, for whoever wants few files."""

    def test_one_file_is_referenced_by_each_leaf_with_rows(self):
        """Exact counts, and not the whole file where there are several (ING-6)."""
        table = small_table([2, 4, 6])
        root = table.store.refresh().tree.root_id

        result = table.ingest(ROWS, one_file_per_leaf=False)

        folder = f"partition_{root}"
        assert list(shares(table).values()) == [
            [(folder, 2, False, False)],
            [(folder, 1, False, False)],
            [(folder, 1, False, False)],
            [(folder, 1, False, False)],
        ]
        assert len({reference.filename for reference in result.files}) == 1
        assert keys_in(table) == [sorted(ROWS)]

    def test_a_file_for_one_leaf_is_whole(self):
        """Only one leaf has rows: it has the whole file (ING-6, FRF-2)."""
        table = small_table([2, 4, 6])
        root = table.store.refresh().tree.root_id

        table.ingest([(5, "a"), (4, "a")], one_file_per_leaf=False)

        assert [found for found in shares(table).values() if found] == [
            [(f"partition_{root}", 2, False, True)]
        ]

    def test_leaves_that_interleave_share_it(self):
        """The file is in key order over them all."""
        table = small_table()
        root = table.store.refresh().tree.root_id
        table.split(root, "b", dimension=1)

        table.ingest(ROWS, one_file_per_leaf=False)

        assert [[share[1:] for share in found] for found in shares(table).values()] == [
            [(3, False, False)],
            [(2, False, False)],
        ]
        assert keys_in(table) == [sorted(ROWS)]


class TestBySize:
    """ING-16: many leaves with few rows share a file; others have one each."""

    def test_four_leaves_with_few_rows_share_a_file(self):
        """Each with an exact count."""
        table = small_table([2, 4, 6])

        result = table.ingest(ROWS, file_writing="by_size")

        assert len(table.keys()) == 1
        assert [reference.row_count for reference in result.files] == [2, 1, 1, 1]
        assert not any(reference.row_count_estimated for reference in result.files)

    def test_three_leaves_have_a_file_each(self):
        """Three files are few, and reading one alone is cheaper."""
        table = small_table([2, 4, 6])

        table.ingest([row for row in ROWS if row[0] > 2], file_writing="by_size")

        assert len(table.keys()) == 3

    @pytest.mark.parametrize("limit", ["SHARED_LEAF_BYTES_MAX", "SHARED_BYTES_MAX"])
    def test_leaves_with_many_rows_have_a_file_each(self, monkeypatch, limit):
        """More than a mean for each leaf, or more than what may wait in memory for the decision."""
        monkeypatch.setattr(leaf_files, limit, 40)
        table = small_table([2, 4, 6])

        table.ingest([(n, "a" * 100) for n in range(20)], file_writing="by_size")

        assert len(table.keys()) == 4
        assert sorted(len(keys) for keys in keys_in(table)) == [2, 2, 2, 14]

    def test_pages_of_a_shared_file_are_as_small_as_its_parts(self):
        """A reader of one leaf decodes whole pages."""
        table = small_table(range(1, 20))

        table.ingest([(n % 20, f"{n}") for n in range(4_000)], file_writing="by_size")

        (name,) = {reference.filename for reference in table.store.refresh().references()}
        size = len(table.files.read(name))
        footer = read_file_end(size, range_reader(table.files.read_ranges, name)).footer
        (index,) = table.files.read_ranges(name, [footer.chunks[0][0].offset_index])
        assert len(read_offset_index(index, 4_000).offsets) == 40

    def test_leaves_that_interleave_share_it(self):
        """The file is in key order over them all."""
        table = small_table([2, 4])
        root = table.store.refresh().tree.root_id
        for leaf in [each.partition_id for each in table.store.refresh().tree.leaves()]:
            table.split(leaf, "b", dimension=1)

        table.ingest([(n, text) for n in (1, 3, 5) for text in "ac"], file_writing="by_size")

        assert [[share[1:] for share in found] for found in shares(table).values()] == [
            [(1, False, False)]
        ] * 6
        assert {found[0][0] for found in shares(table).values()} == {f"partition_{root}"}


class TestCommits:
    """One commit a job, or nothing (rule ING-2)."""

    def test_no_rows_make_no_transaction(self):
        """Unless the job has an id, which is kept."""
        table = small_table()

        assert table.ingest([]).transaction == 1
        assert table.ingest([], job_id="j").transaction == 2
        assert table.keys() == set()

    def test_refused_input_leaves_no_file(self):
        """Files written before the refusal are deleted."""
        table = small_table([3])

        with pytest.raises(NullKeys):
            table.ingest([*ROWS, {"a": None, "b": "x", "v": 1}])

        assert table.keys() == set()
        assert table.store.refresh().number == 1

    def test_a_job_that_ran_elsewhere_meanwhile_adds_nothing(self):
        """Both saw no such job when they began; the slower one deletes what it wrote."""
        table = small_table([3])
        twin = small_table(table_id="t2", name="twin", beside=table)
        twin.record, twin.store = table.record, table.store

        def rows_while_the_twin_works(done, total):
            if done and not twin_done:
                twin_done.append(twin.ingest(ROWS, job_id="j"))

        twin_done = []
        result = table.ingest(ROWS, job_id="j", progress=rows_while_the_twin_works)

        assert result.already_committed
        assert result.transaction == twin_done[0].transaction == 2
        assert len(table.keys()) == 2
        assert len(table.store.refresh().references()) == 2

    @pytest.mark.parametrize(
        ("error", "kept"),
        [
            (CommitContended("others"), 0),
            (CommitUnknown("no answer"), 2),
            (CommitOverwritten("replaced"), 2),
        ],
    )
    def test_files_are_deleted_only_where_the_commit_has_surely_failed(self, error, kept):
        """
        After CommitUnknown they may be referenced, so they stay (rule ING-2). The error keeps its
        class, and so whether it may be tried again.
        """
        table = small_table([3])

        class NoAnswer:
            """The table's store, but for a commit that fails."""

            refresh, state = table.store.refresh, table.store.state
            time = table.store.time

            def commit(self, transaction):
                raise error

        table.store = NoAnswer()

        with pytest.raises(type(error)) as told:
            table.ingest(ROWS)

        assert len(table.keys()) == kept
        assert told.value.retryable == error.retryable

    def test_progress_is_told(self):
        """Rows so far, and their total where it is known."""
        told = []

        small_table().ingest(ROWS, progress=lambda done, total: told.append((done, total)))

        assert told == [(5, 5)]
