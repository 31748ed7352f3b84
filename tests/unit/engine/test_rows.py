"""What a query returns, and what can be made of it."""

from __future__ import annotations

import sys

import polars as pl
import pyarrow as pa
import pytest

from sleeper.engine.rows import Rows
from sleeper.errors import BadRequest, DataDamaged

SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("tags", pa.map_(pa.string(), pa.field("value", pa.int64(), nullable=False))),
    ]
)
DICTS = [{"id": "a", "tags": {"x": 1}}, {"id": "b", "tags": None}, {"id": "c", "tags": {}}]
TABLE = pa.table(
    [["a", "b", "c"], pa.array([[("x", 1)], None, []], SCHEMA.types[1])], schema=SCHEMA
)


def stream():
    """Rows that are read as they are asked for, a row a batch."""
    return Rows(iter(TABLE.to_batches(max_chunksize=1)), SCHEMA, transaction=7)


def in_memory():
    """Rows that were found by key."""
    return Rows.from_table(TABLE, transaction=7)


BOTH = pytest.mark.parametrize("make", [stream, in_memory])


@BOTH
class TestEitherKind:
    """A stream and rows in memory are used alike."""

    def test_become_what_one_works_with(self, make):
        """Arrow, polars, pandas, dicts, batches; maps become dicts where Python has them."""
        assert make().to_arrow().equals(TABLE)
        assert make().to_pylist() == DICTS
        assert list(make().rows()) == DICTS
        assert pa.Table.from_batches(make()).equals(TABLE)
        assert make().reader().read_all().equals(TABLE)
        assert make().to_polars()["id"].to_list() == ["a", "b", "c"]
        assert make().to_pandas()["tags"].tolist() == [{"x": 1}, None, {}]
        assert make().count() == 3

    def test_are_taken_by_other_libraries(self, make):
        """Whoever knows the Arrow PyCapsule interface needs no method of ours."""
        assert pa.table(make()).equals(TABLE)
        assert pl.DataFrame(make()).height == 3
        assert pa.RecordBatchReader.from_stream(make()).read_all().equals(TABLE)

    def test_know_their_schema_and_transaction(self, make):
        """Both are known before anything is read."""
        assert make().schema.equals(SCHEMA)
        assert make().transaction == 7

    def test_tell_about_themselves(self, make):
        """The representation reads nothing, and names the columns."""
        rows = make()

        assert repr(rows).startswith("<Rows of transaction 7: ")
        assert "id: string" in repr(rows)
        assert rows.count() == 3

    def test_ask_for_pandas_where_it_is_missing(self, make, monkeypatch):
        """The message names the extra, and the rows are still there."""
        rows = make()
        monkeypatch.setitem(sys.modules, "pandas", None)

        with pytest.raises(BadRequest, match=r"pip install 'sleeper-store\[pandas\]'"):
            rows.to_pandas()

        assert rows.count() == 3

    def test_keep_their_schema_without_any_row(self, make):
        """An empty answer has columns too."""
        rows = (
            Rows(iter(()), SCHEMA, transaction=1)
            if make is stream
            else Rows.from_table(SCHEMA.empty_table(), transaction=1)
        )

        assert rows.to_arrow().equals(SCHEMA.empty_table())


class TestAStream:
    """An answer that is read while one iterates."""

    def test_gives_rows_in_the_memory_of_a_batch(self):
        """Rows come before the next batch is read; whoever leaves early closes the stream."""
        read = []

        def batches():
            try:
                for batch in TABLE.to_batches(max_chunksize=1):
                    read.append(batch)
                    yield batch
            finally:
                read.append("closed")

        rows = Rows(batches(), SCHEMA, transaction=7).rows()

        assert next(rows) == DICTS[0]
        assert len(read) == 1
        rows.close()
        assert read[1:] == ["closed"]

    @pytest.mark.parametrize(
        "read", [Rows.to_arrow, Rows.count, list, Rows.close], ids=lambda read: read.__name__
    )
    def test_is_read_once(self, read):
        """A second reading is refused, and never an answer without rows."""
        rows = stream()
        read(rows)

        for again in (Rows.to_arrow, Rows.count, Rows.reader, iter):
            with pytest.raises(BadRequest, match="read once"):
                again(rows)
        assert "read or closed" in repr(rows)

    def test_is_read_no_further_than_asked(self):
        """Batches come one at a time; closing stops the source."""
        log = []

        def source():
            try:
                for batch in TABLE.to_batches(max_chunksize=1):
                    log.append("read")
                    yield batch
            finally:
                log.append("closed")

        with Rows(source(), SCHEMA, transaction=1) as rows:
            assert log == []
            batches = iter(rows)
            next(batches)
            assert log == ["read"]
            batches.close()

        assert log == ["read", "closed"]

    def test_closes_its_source_unread(self):
        """Leaving the block lets go of what the stream holds."""
        closed = []

        class Source:
            def __iter__(self):
                return self

            def __next__(self):
                raise StopIteration

            def close(self):
                closed.append(True)

        with Rows(Source(), SCHEMA, transaction=1) as rows:
            rows.close()

        assert closed == [True]

    @pytest.mark.parametrize("read", [Rows.to_arrow, Rows.count, lambda r: r.reader().read_all()])
    def test_tells_what_went_wrong_in_the_middle(self, read):
        """Our own errors arrive as they are, through Arrow's reader too."""
        with pytest.raises(DataDamaged, match="file x"):
            read(self.broken())

    def test_tells_other_libraries_what_went_wrong_as_text(self):
        """The class is lost on the way through C, the message is not."""
        with pytest.raises(pa.ArrowInvalid, match="data file x is damaged"):
            pa.table(self.broken())

    def broken(self):
        def source():
            yield TABLE.to_batches()[0]
            raise DataDamaged("data file x is damaged")

        return Rows(source(), SCHEMA, transaction=1)


def test_rows_in_memory_may_be_read_again():
    """An answer to keys is a value: it can be looked at as often as one likes."""
    rows = in_memory()

    assert rows.to_arrow() is TABLE
    assert rows.to_pylist() == rows.to_pylist() == DICTS
    assert "3 rows in memory" in repr(rows)


class TestLength:
    """`len(rows)`: only where no file must be read for it."""

    def test_of_rows_in_memory_is_their_number(self):
        """So the rows of one key are true if there are any."""
        assert len(in_memory()) == 3
        assert in_memory()
        assert not Rows.from_table(TABLE.slice(0, 0), transaction=7)

    def test_of_a_stream_is_known_by_what_knows_it(self):
        """It is asked each time, and the rows stay unread."""
        rows = Rows(iter(TABLE.to_batches()), SCHEMA, 7, known_count=lambda: 3)

        assert [len(rows), len(rows)] == [3, 3]
        assert len(list(rows)) == 1

    def test_that_is_not_known_is_a_type_error_that_names_count(self):
        """Iteration still works: Python asks for a length first, and does without it."""
        with pytest.raises(TypeError, match=r"use rows\.count\(\)"):
            len(stream())
        with pytest.raises(TypeError, match=r"use rows\.count\(\)"):
            bool(stream())
        assert len([*stream()]) == len(list(stream())) == 3

    def test_of_a_stream_that_was_read_is_not_known(self):
        """Its rows are gone."""
        rows = Rows(iter(TABLE.to_batches()), SCHEMA, 7, known_count=lambda: 3)
        rows.to_arrow()

        with pytest.raises(TypeError, match="not known"):
            len(rows)


class TestLimited:
    """`Rows.limited`: the first rows only."""

    @pytest.mark.parametrize("limit", [0, 1, 2, 3, 4])
    @BOTH
    def test_has_the_first_rows(self, make, limit):
        """A stream, and rows in memory."""
        assert make().limited(limit).to_arrow().equals(TABLE.slice(0, limit))
        assert make().limited(limit).limited(1).count() == min(1, limit)

    def test_closes_the_stream_after_the_last_row(self):
        """Nothing more is read than the batch that has it."""
        read = []

        def batches():
            try:
                for batch in TABLE.to_batches(max_chunksize=1):
                    read.append(batch.num_rows)
                    yield batch
            finally:
                read.append("closed")

        assert Rows(batches(), SCHEMA, 7).limited(2).count() == 2
        assert read == [1, 1, "closed"]

    def test_counts_with_the_counter_of_the_stream(self):
        """Also when its first batch was read ahead."""
        rows = Rows(iter(TABLE.to_batches()), SCHEMA, 7, counter=lambda: 3, known_count=lambda: 3)
        limited = rows.limited(2).begun()

        assert limited.count() == len(limited) == 2
        assert limited.to_arrow().num_rows == 2
        with pytest.raises(BadRequest, match="read or closed before"):
            rows.to_arrow()
