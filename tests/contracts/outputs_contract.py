"""What every stream into an object must do, and every path to one."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.contracts.objects_contract import keys_of

A_TABLE = pa.table({"key": [1, 2, 3], "value": ["a", "b", "c"]})


class OutputContract:
    """What every stream into an object must do. Subclass it and supply `objects`, empty."""

    def test_an_object_appears_when_its_stream_is_closed(self, objects):
        """Before that there is nothing, however much was written."""
        output = objects.open_output("a/b")
        output.write(b"x" * 3_000_000)
        output.flush()
        before = (objects.read("a/b"), keys_of(objects))

        output.close()

        assert before == (None, [])
        assert objects.size("a/b") == 3_000_000

    def test_a_stream_counts_what_is_written(self, objects):
        """`write` and `tell` speak of bytes; any buffer of bytes will do."""
        with objects.open_output("a") as output:
            written = [output.write(b"abc"), output.write(memoryview(b"defg"))]
            position = output.tell()

        assert (written, position) == ([3, 4], 7)
        assert objects.read("a") == b"abcdefg"

    def test_a_stream_replaces_what_was_there(self, objects):
        """The old object stays until the new one is whole."""
        objects.put("a", b"old")

        with objects.open_output("a") as output:
            output.write(b"new")
            during = objects.read("a")

        assert during == b"old"
        assert objects.read("a") == b"new"

    def test_closing_twice_is_closing_once(self, objects):
        """A second close does not bring back what somebody deleted meanwhile."""
        output = objects.open_output("a")
        open_before = output.closed
        output.close()
        objects.delete(["a"])

        output.close()
        output.abort()

        assert (open_before, output.closed) == (False, True)
        assert objects.read("a") is None

    def test_an_aborted_stream_leaves_nothing(self, objects):
        """Not under its key, and not after a close either."""
        output = objects.open_output("a/b")
        output.write(b"half of it")

        output.abort()
        output.abort()
        output.close()

        assert output.closed
        assert keys_of(objects) == []

    def test_an_exception_aborts(self, objects):
        """A `with` block that fails leaves what was there before."""
        objects.put("a", b"old")

        with pytest.raises(RuntimeError, match="stop"), objects.open_output("a") as output:
            output.write(b"new, but not all of it")
            raise RuntimeError("stop")

        assert objects.read("a") == b"old"

    def test_writing_to_a_closed_stream_is_an_error(self, objects):
        """As with any file."""
        output = objects.open_output("a")
        output.close()

        with pytest.raises(ValueError, match="closed"):
            output.write(b"late")

    @pytest.mark.filterwarnings("ignore::ResourceWarning")
    def test_a_forgotten_stream_leaves_nothing(self, objects):
        """A stream that nobody closed, because its owner is gone, never becomes an object."""
        output = objects.open_output("a/b")
        output.write(b"half of it")

        del output

        assert keys_of(objects) == []

    def test_pyarrow_writes_parquet_through_a_stream(self, objects):
        """pyarrow takes the stream for a file; what it wrote can be read again."""
        with objects.open_output("data/1.parquet") as output:
            pq.write_table(A_TABLE, output)

        body = objects.read("data/1.parquet")
        assert pq.read_table(pa.BufferReader(body)) == A_TABLE

    def test_a_parquet_file_that_fails_half_way_is_not_there(self, objects):
        """pyarrow closes its own writer on the way out, which must not make the file visible."""
        with (
            pytest.raises(RuntimeError, match="stop"),
            objects.open_output("data/1.parquet") as output,
            pq.ParquetWriter(output, A_TABLE.schema) as writer,
        ):
            writer.write_table(A_TABLE)
            raise RuntimeError("stop")

        assert keys_of(objects) == []


class PathUrlContract:
    """What a store on this machine must do when it is asked for a path. Supply `objects`, empty."""

    def test_an_engine_opens_an_object_by_its_path(self, objects):
        """The path ends like the key, because engines look at that."""
        objects.put("data/a b.parquet", _parquet(A_TABLE))

        path = objects.url("data/a b.parquet")

        assert path.endswith(".parquet")
        assert pq.read_table(path) == A_TABLE

    def test_a_path_follows_the_object(self, objects):
        """The same path shows what is put there later, and nothing after a delete."""
        path = objects.url("a")
        with pytest.raises(FileNotFoundError):
            _read(path)

        objects.put("a", b"first")
        first = _read(objects.url("a"))
        with objects.open_output("a") as output:
            output.write(b"second")
        second = _read(path)
        objects.delete(["a"])

        assert (objects.url("a"), first, second) == (path, b"first", b"second")
        with pytest.raises(FileNotFoundError):
            _read(path)

    def test_a_view_gives_the_same_path(self, objects):
        """An object has one path, whoever asks."""
        objects.put("a/b", b"")

        assert objects.under("a").url("b") == objects.url("a/b")


def _parquet(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    return sink.getvalue().to_pybytes()


def _read(path: str) -> bytes:
    return Path(path).read_bytes()
