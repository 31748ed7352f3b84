"""Emptying tables."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sleeper.errors import SplitPointsInvalid
from sleeper.tables.reinitialise import reinitialise
from tests.unit.tables.small_tables import SmallTable, small_table, store_of

ROWS = [(1, "a"), (5, "b")]


class TestReinitialise:
    """TBL-5."""

    def empty(self, table: SmallTable, split_points=None) -> int:
        return reinitialise(table.opened(), split_points)

    @pytest.mark.parametrize(("split_points", "leaves"), [(None, 2), ([], 1), ([1, 2, 3], 4)])
    def test_rows_go_and_partitions_stay_or_are_made_anew(self, split_points, leaves):
        """One commit takes all rows; data files and sketches are deleted (TBL-5)."""
        table = small_table([3])
        table.ingest(ROWS)
        before = table.store.refresh().tree

        number = self.empty(table, split_points)

        state = table.store.refresh()
        assert (number, state.number, state.files.file_count) == (3, 3, 0)
        assert len(list(state.tree.leaves())) == leaves
        assert (state.tree == before) == (split_points is None)
        assert table.keys() == set()

    def test_a_job_may_run_again(self):
        """Its rows are gone, so its id is too."""
        table = small_table()
        table.ingest(ROWS, job_id="j")

        self.empty(table)

        assert not table.ingest(ROWS, job_id="j").already_committed
        assert table.store.refresh().files.file_count == 1

    def test_files_of_an_ingest_under_way_stay(self):
        """They are not tracked yet; the ingest commits them afterwards."""
        table = small_table()
        emptied = []

        def empty_meanwhile(done, total):
            if not emptied:
                other = replace_store(table)
                emptied.append(self.empty(other))

        result = table.ingest(ROWS, progress=empty_meanwhile)

        assert result.transaction == emptied[0] + 1
        assert table.store.refresh().files.file_count == 1
        assert len(table.keys()) == 1

    def test_refused_split_points_take_nothing_away(self):
        """They are checked before the commit (TBL-9)."""
        table = small_table()
        table.ingest(ROWS)

        with pytest.raises(SplitPointsInvalid):
            self.empty(table, [2, 1])

        assert table.store.refresh().files.file_count == 1


def replace_store(table: SmallTable) -> SmallTable:
    """The same table, seen by another process."""
    return replace(table, store=store_of(table.objects, table.record.table_id, table.new_id))
