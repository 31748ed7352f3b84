"""Deleting tables."""

from __future__ import annotations

import pytest

from sleeper.errors import TableNotFound
from sleeper.tables.delete import delete_table
from tests.unit.tables.small_tables import small_table

ROWS = [(1, "a"), (5, "b")]


class TestDelete:
    """TBL-4."""

    def test_everything_under_its_id_goes_and_nothing_else(self):
        """Data, log and snapshots of this table; other tables stay (TBL-4)."""
        table = small_table([3])
        other = small_table(name="other", table_id="t11", beside=table)
        for each in (table, other):
            each.ingest(ROWS)
        theirs = {info.key for info in table.objects.listing("t11/")}

        count = delete_table(table.record, table.context)

        assert count == 2 + 2  # transactions, and a data file of each leaf
        assert list(table.objects.listing("t1/")) == []
        assert {info.key for info in table.objects.listing("t11/")} == theirs
        assert [record.name for record in table.index.all()] == ["other"]

    def test_killed_half_way_it_is_gone_all_the_same(self, monkeypatch):
        """It leaves the index first, so nobody opens a table with holes."""
        table = small_table()
        table.ingest(ROWS)

        class Killed(Exception):
            """The process ends here."""

        def delete(keys):
            raise Killed

        monkeypatch.setattr(table.objects, "delete", delete)

        with pytest.raises(Killed):
            delete_table(table.record, table.context)

        assert table.index.all() == ()

    def test_twice_is_once_too_often(self):
        """The second is told that it is gone."""
        table = small_table()
        delete_table(table.record, table.context)

        with pytest.raises(TableNotFound):
            delete_table(table.record, table.context)
