"""Rows of more keys than an entry names are deleted: older files lose the keys of a file (DEL-1)."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sleeper
from sleeper.errors import CommitTooLarge, RowsChanged
from sleeper.state.state_store import GroupResult
from sleeper.tables.deletions import keys as deleted_keys
from tests.stories.test_large_upserts import (
    ROWS,
    check,
    files,
    found,
    key_files,
    new_table,
    old_rows,
    rows,
)


@pytest.fixture
def table(tmp_path):
    """20,000 rows in two leaves, each in two files."""
    table = new_table(tmp_path, split_points=[10_000])
    for first in (0, 1):
        table.ingest(rows(range(first, ROWS, 2), "old"))
    return table


def stored(table):
    names = {each.key for each in table._current().files.listing("data/")}
    return {name for name in names if name.endswith(".parquet")}


class TestDeletions:
    """What is written, and what readers leave out."""

    @pytest.mark.parametrize(
        "keys",
        [range(0, ROWS, 10), range(1_000, 3_000), [*range(0, ROWS, 31), *range(ROWS, ROWS + 500)]],
        ids=["all over", "in a row", "with some that are not there"],
    )
    def test_no_file_is_written_again(self, table, keys):
        """Given keys wherever they are, one entry says so, and a file of them is all that is new."""
        before, was_stored, version = files(table), stored(table), table.refresh()

        done = table.delete(keys=[*keys])

        assert (done.transaction, done.regions) == (version + 1, len(keys))
        assert files(table) == before
        assert stored(table) - was_stored == key_files(table)
        assert found(table, as_of=version) == old_rows()
        check(table, {k: "old" for k in range(ROWS) if k not in {*keys}})

    def test_a_file_of_keys_has_nothing_else(self, table):
        """Given a table with values, its file of deleted keys has the row keys alone, in order."""
        table.delete(keys=[*range(0, 15_000, 7)])

        read = [pq.read_table(table._current().files.url(name)) for name in key_files(table)]
        assert {tuple(each.column_names) for each in read} == {("k",)}
        keys = sorted(key for each in read for key in each.column("k").to_pylist())
        assert keys == [*range(0, 15_000, 7)]

    def test_rows_of_later_stay(self, table):
        """Given an ingest of the same keys after it, its rows are there."""
        table.delete(keys=[*range(5_000)])
        table.ingest(rows([7, 8], "later"))

        check(table, {7: "later", 8: "later", **dict.fromkeys(range(5000, ROWS), "old")})

    def test_keys_of_a_table_without_files_change_nothing(self, tmp_path):
        """Given no file that could have the rows, there is no entry."""
        table = new_table(tmp_path)
        version = table.refresh()

        assert table.delete(keys=[*range(2_000)]).transaction == version
        assert stored(table) == set()

    def test_are_refused_where_their_leaf_has_changed(self, table):
        """Given an ingest since the version that it relies on, nothing is deleted, and no file left."""
        version = table.refresh()
        table.ingest(rows([ROWS], "later"))
        before = stored(table)

        with pytest.raises(RowsChanged):
            table.delete(keys=[*range(15_000)], if_unchanged_since=version)

        assert table.count() == ROWS + 1
        assert stored(table) == before

    def test_of_columns_that_were_added_and_sort_keys(self, tmp_path):
        """Given a table of two row keys and a sort key whose columns have changed, whole keys go."""
        instance = sleeper.connect(tmp_path / "wide", create=True)
        schema = pa.schema([(name, pa.int64()) for name in ("a", "b", "s", "v")])
        table = instance.create_table("t", schema, row_keys=["a", "b"], sort_keys=["s"])
        every = [(a, b, s, 0) for a in range(80) for b in range(40) for s in range(2)]
        columns = dict(zip(schema.names, map(list, zip(*every, strict=True)), strict=True))
        table.ingest(pa.table(columns, schema=schema))
        table.alter(add=[pa.field("w", pa.string())])
        gone = {(a, b) for a in range(0, 80, 2) for b in range(40)} - {(2, 2)}

        table.delete(keys=sorted(gone))

        wanted = [row[:3] for row in every if row[:2] not in gone]
        for _ in range(2):
            kept = table.query(columns=["a", "b", "s"]).to_pylist()
            assert [tuple(row.values()) for row in kept] == wanted
            assert table.count() == len(wanted)
            assert len(table.query(key=(2, 2)).to_pylist()) == 2
            assert table.query(key=(2, 3)).to_pylist() == []
            assert table.verify().clean
            table.compact(all_files=True)
        assert table.state().deletes == ()

    def test_a_store_without_room_for_names_has_leaves_written_anew(self, table, monkeypatch):
        """Given a store that refuses the entry for its size, rows are written out, and counted."""
        store = type(table._current().store)
        commit = store.commit_group

        def small(self, transactions, *, together=False):
            if any(isinstance(each, deleted_keys.DeleteKeys) for each in transactions):
                refusal = CommitTooLarge("no room")
                return GroupResult(self.state(), (refusal,) * len(transactions))
            return commit(self, transactions, together=together)

        monkeypatch.setattr(store, "commit_group", small)

        assert table.delete(keys=[*range(2_000)]).rows == 2_000
        assert table.state().deletes == ()
        assert table.count() == ROWS - 2_000

    def test_a_table_of_format_1_has_leaves_written_anew(self, tmp_path):
        """Given readers that would show the rows, they are written out at once."""
        table = new_table(tmp_path)
        table.downgrade()
        table.ingest(rows(range(ROWS), "old"))

        assert table.delete(keys=[*range(2_000)]).rows == 2_000
        assert table.count() == ROWS - 2_000
