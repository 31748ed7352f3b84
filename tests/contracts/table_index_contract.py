"""What every table index must do, whatever lies beneath it."""

from __future__ import annotations

import random
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from sleeper.errors import (
    BadRequest,
    TableAlreadyExists,
    TableChanged,
    TableNotFound,
)
from sleeper.model.tables import TableRecord


def table(table_id: str, name: str, **properties: str) -> TableRecord:
    """Return the record of an online table."""
    return TableRecord(table_id=table_id, name=name, properties=properties)


def short_pause(attempt: int) -> None:
    """Wait a random time that grows, so that of many writers each wins in the end."""
    time.sleep(random.uniform(0, min(0.1, 0.001 * 2**attempt)))


class TableIndexContract:
    """Subclass it and supply `open_index`, which opens one and the same index, empty at first."""

    def test_a_table_is_found_by_name_and_by_id(self, open_index):
        """With everything it was added with (TBL-2)."""
        index = open_index()
        record = TableRecord("0a", "trades", online=False, properties={"p": "é\n=:", "q": ""})

        index.add(record)

        assert index.by_name("trades") == record
        assert index.by_id("0a") == record
        assert index.all() == (record,)

    def test_what_is_known_of_a_name_may_be_old_but_was_there(self, open_index):
        """Nothing need be known; what is known is the table as a handle has seen it."""
        index = open_index()
        record = table("0a", "t")
        index.add(record)
        index.by_name("t")

        assert index.known_by_name("t") in (record, None)
        assert index.known_by_name("other") is None

    def test_what_is_not_there_is_none(self, open_index):
        """An index needs no making: it begins without tables."""
        index = open_index()

        assert index.all() == ()
        assert index.by_name("trades") is None
        assert index.by_id("0a") is None

    def test_tables_are_listed_by_name(self, open_index):
        """In the order of their characters, whenever they were added (TBL-2, TBL-7)."""
        index = open_index()
        for table_id, name in (("1", "b"), ("2", "ü"), ("3", "a"), ("4", "B")):
            index.add(table(table_id, name))

        assert [record.name for record in index.all()] == ["B", "a", "b", "ü"]

    def test_any_name_will_do(self, open_index):
        """Names are not paths here."""
        index = open_index()
        names = ["../up", "a/b", "a b", "🏔", "%20", "a" * 500]

        for n, name in enumerate(names):
            index.add(table(str(n), name))

        assert [open_index().by_name(name).table_id for name in names] == list("012345")

    def test_a_name_is_given_once(self, open_index):
        """A second table of a name is refused, and the first one stays (TBL-1)."""
        index = open_index()
        index.add(table("1", "trades"))

        with pytest.raises(TableAlreadyExists, match="'trades'"):
            index.add(table("2", "trades"))

        assert index.all() == (table("1", "trades"),)

    def test_an_id_is_given_once(self, open_index):
        """Two tables with one id would share their data."""
        index = open_index()
        index.add(table("1", "trades"))

        with pytest.raises(TableAlreadyExists, match="id 1"):
            index.add(table("1", "quotes"))

    def test_a_table_is_renamed(self, open_index):
        """The new name finds it, the old one is free (TBL-3)."""
        index = open_index()
        index.add(table("1", "old", p="kept"))

        index.replace(table("1", "old", p="kept"), table("1", "new", p="kept"))
        index.add(table("2", "old"))

        assert index.by_name("new") == table("1", "new", p="kept")
        assert index.by_name("old") == table("2", "old")

    def test_a_table_cannot_take_anothers_name(self, open_index):
        """Both stay as they were (TBL-3)."""
        index = open_index()
        index.add(table("1", "a"))
        index.add(table("2", "b"))

        with pytest.raises(TableAlreadyExists, match="'b'"):
            index.replace(table("1", "a"), table("1", "b"))

        assert index.all() == (table("1", "a"), table("2", "b"))

    def test_a_change_needs_the_record_as_it_is(self, open_index):
        """Of two that read the same record, the second to write is refused and told what moved."""
        index, other = open_index(), open_index()
        read = table("1", "a", p="0")
        index.add(read)

        other.replace(read, replace(read, properties={"p": "1"}))

        with pytest.raises(TableChanged, match="properties"):
            index.replace(read, replace(read, online=False))
        assert index.by_id("1") == table("1", "a", p="1")

    def test_a_change_never_moves_to_another_id(self, open_index):
        """The id names the data of a table (TBL-3)."""
        index = open_index()
        index.add(table("1", "a"))

        with pytest.raises(BadRequest, match="never changes"):
            index.replace(table("1", "a"), table("2", "a"))

    def test_a_removed_table_is_gone(self, open_index):
        """Its name is free for another (TBL-4)."""
        index = open_index()
        index.add(table("1", "a"))

        index.remove("1")
        index.add(table("2", "a"))

        assert index.by_id("1") is None
        assert index.by_name("a") == table("2", "a")

    def test_what_is_gone_cannot_be_changed(self, open_index):
        """The message names tables that may have been meant."""
        index = open_index()
        index.add(table("1", "trades"))
        index.add(table("2", "trade"))
        index.remove("2")

        with pytest.raises(TableNotFound, match="'trades'"):
            index.replace(table("2", "trade"), table("2", "trade", p="1"))
        with pytest.raises(TableNotFound, match="'2'"):
            index.remove("2")

    def test_every_handle_sees_every_change_at_once(self, open_index):
        """Handles opened before and after a change agree."""
        early, writer = open_index(), open_index()
        assert early.all() == ()

        writer.add(table("1", "a"))
        writer.add(table("2", "b"))
        seen = early.all()
        early.remove("1")

        assert seen == (table("1", "a"), table("2", "b"))
        assert [handle.all() for handle in (early, writer, open_index())] == [
            (table("2", "b"),)
        ] * 3

    def test_many_changes_are_kept(self, open_index):
        """Whoever opens the index after hundreds of changes sees all of them."""
        index = open_index()
        for n in range(100):
            index.add(table(str(n), f"t{n:03d}"))
        for n in range(0, 100, 3):
            index.remove(str(n))
        for n in range(1, 100, 3):
            index.replace(table(str(n), f"t{n:03d}"), table(str(n), f"renamed{n:03d}"))

        opened = open_index()

        assert opened.all() == index.all()
        assert len(opened.all()) == 66
        assert opened.by_name("renamed097") == table("97", "renamed097")
        assert opened.by_name("t097") is None

    def test_of_many_that_add_one_name_one_wins(self, open_index):
        """Eight handles race for each of several names: one is let in, the others are refused."""
        handles = [open_index() for _ in range(8)]

        def add_all(handle: int) -> list[bool]:
            return [_succeeds(handles[handle].add, table(f"{handle}-{n}", f"t{n}")) for n in names]

        names = range(6)
        with ThreadPoolExecutor(8) as threads:
            answers = list(threads.map(add_all, range(8)))

        winners = [[h for h in range(8) if answers[h][n]] for n in names]
        assert [len(each) for each in winners] == [1] * 6
        assert open_index().all() == tuple(
            table(f"{h}-{n}", f"t{n}") for n, (h,) in enumerate(winners)
        )

    def test_threads_may_share_a_handle(self, open_index):
        """Nothing is lost when many change different tables through one handle."""
        index = open_index()

        with ThreadPoolExecutor(8) as threads:
            list(threads.map(lambda n: index.add(table(str(n), f"t{n:02d}")), range(40)))

        assert [record.table_id for record in index.all()] == [str(n) for n in range(40)]


def _succeeds(change, record: TableRecord) -> bool:
    try:
        change(record)
    except TableAlreadyExists:
        return False
    return True
