"""File references, file names and table records."""

from __future__ import annotations

import pytest

from sleeper.errors import BadRequest
from sleeper.model import paths
from sleeper.model.files import FileReference
from sleeper.model.tables import TableRecord, checked_table_name


class TestFileReference:
    """The share of one partition in one data file."""

    def test_is_exact_whole_and_free_at_first(self):
        """As a file is that ingest has just written for one leaf (FRF-1, FRF-2)."""
        reference = FileReference(filename="f.parquet", partition_id="root", row_count=3)

        assert not reference.row_count_estimated
        assert reference.whole_file
        assert reference.job_id is None

    def test_may_have_no_rows(self):
        """A compaction that filters everything still writes a file (CMP-14)."""
        assert FileReference(filename="f", partition_id="p", row_count=0).row_count == 0

    def test_has_no_negative_row_count(self):
        """A count below 0 is a slip of its writer."""
        with pytest.raises(ValueError, match="0 or more, not -1"):
            FileReference(filename="f", partition_id="p", row_count=-1)

    def test_has_no_more_rows_than_a_file_can_hold(self):
        """Counts are added up in 64 bits; a log entry may say anything."""
        with pytest.raises(ValueError, match="2\\*\\*63"):
            FileReference(filename="f", partition_id="p", row_count=10**30)


class TestPaths:
    """Names relative to the table's folder, so that an instance can be moved."""

    def test_a_data_file_lies_under_its_partition(self):
        """As upstream lays them out."""
        assert paths.data_file("root", "a1") == "data/partition_root/a1.parquet"

    def test_a_sketch_lies_beside_its_file(self):
        """With the same name (ING-8)."""
        assert paths.sketch_file("data/partition_p/a.parquet") == "data/partition_p/a.sketches"

    def test_only_the_ending_is_replaced(self):
        """A partition or job may be called `x.parquet` too."""
        name = paths.data_file("x.parquet", "y.parquet")

        assert paths.sketch_file(name) == "data/partition_x.parquet/y.parquet.sketches"


class TestTableName:
    """What a table may be called."""

    @pytest.mark.parametrize("name", ["trades", "My Table", "ü/x", "a.b-c_d", "🏔"])
    def test_may_be_any_printable_text(self, name):
        """Names are no paths."""
        assert checked_table_name(name) == name

    @pytest.mark.parametrize("name", ["", " ", "a ", " a", "a\nb", "a\0", None, 3])
    def test_may_not_be_confusing(self, name):
        """Nothing invisible (TBL-1)."""
        with pytest.raises(BadRequest, match="cannot be a table's name"):
            checked_table_name(name)


class TestTableRecord:
    """What the table index keeps of a table."""

    def test_reads_back_all_its_properties(self):
        """Id, name and online flag travel as properties too."""
        record = TableRecord("0a1b2c3d", "trades", online=False, properties={"x": "1"})

        assert TableRecord.of(record.all_properties()) == record

    def test_is_online_unless_it_says_otherwise(self):
        """The property's default is true (TBL-6)."""
        record = TableRecord.of({"sleeper.table.id": "0a", "sleeper.table.name": "trades"})

        assert record.online
