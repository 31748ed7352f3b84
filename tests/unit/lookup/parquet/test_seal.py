"""Page sums: the CRC-32 of all bytes before each border between pages."""

from __future__ import annotations

import io
import zlib

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sleeper.engine.writing.data_file import SealedOutput
from sleeper.lookup.parquet import file_end
from sleeper.lookup.parquet.seal import PAGE_SUMS_MAGIC, sum_at
from sleeper.lookup.parquet_index import ParquetIndex

TABLE = pa.table(
    {
        "k": range(1_000),
        "text": [f"{n % 7}" for n in range(1_000)],
        "list": [[n] * (n % 3) for n in range(1_000)],
    }
)


class Sink(io.BytesIO):
    """Keeps what was written when it is closed."""

    def close(self):
        self.written = self.getvalue()
        super().close()


class Joining:
    """A stream that hands on two writes as one."""

    closed = False

    def __init__(self, output):
        self.output, self.waiting, self.at = output, [], 0

    def write(self, data):
        self.waiting.append(bytes(data))
        self.at += len(data)
        if len(self.waiting) == 3:
            self.flush()
        return len(data)

    def flush(self):
        self.output.write(b"".join(self.waiting))
        self.waiting = []

    def tell(self):
        return self.at

    def close(self):
        self.flush()


def written(wrap=lambda output: output):
    """A file of three row groups with lists and dictionaries."""
    sink = Sink()
    output = SealedOutput(sink)
    options = {"max_rows_per_page": 90, "write_page_index": True, "write_page_checksum": True}
    stream = wrap(output)
    writer = pq.ParquetWriter(stream, TABLE.schema, use_dictionary=["text"], **options)
    writer.write_table(TABLE, row_group_size=400)
    output.hold()
    writer.close()
    if stream is not output:
        stream.close()
    output.close()
    return sink.written


def opened(body):
    def read(ranges):
        return [body[offset : offset + length] for offset, length in ranges]

    return ParquetIndex("f", file_end.read_file_end(len(body), read)), read


@pytest.mark.parametrize("held", [1 << 20, 0], ids=["in memory", "read when they are needed"])
def test_they_are_the_checksums_of_all_bytes_before_each_page(monkeypatch, held):
    """A chunk has one at its start, at its first data page, and after each page."""
    monkeypatch.setattr(file_end, "HELD_BYTES_MAX", held)
    monkeypatch.setattr(file_end, "FIRST_READ_BYTES", max(8, held))
    body = written()
    index, read = opened(body)
    leaves = range(len(index.footer.leaves))
    dictionaries = 0
    for group in range(3):
        index.load([group], tuple(leaves), (0,), read)
        for leaf in leaves:
            chunk, offsets = index.chunk(group, leaf), index.locations(group, leaf).offsets
            borders = sorted({chunk.offset, *offsets.tolist(), chunk.end})
            (sums,) = index.page_sums([(group, leaf)], read)
            found = [sum_at(sums, number) for number in range(len(sums) // 4)]
            assert found == [zlib.crc32(body[:border]) for border in borders]
            dictionaries += offsets[0] != chunk.offset

    assert dictionaries == 3


def test_other_readers_see_the_file_as_ever():
    """They lie where nobody looks."""
    assert pq.read_table(io.BytesIO(written())).equals(TABLE)


def test_a_file_whose_pages_were_written_together_has_none_and_that_is_logged(caplog):
    """Then where pages end is not known; the file is read by the checksums of its headers."""
    body = written(Joining)

    index, _ = opened(body)

    assert not index.has_page_sums
    assert index.is_sealed
    assert "gets no page sums" in caplog.text


def test_what_says_where_they_are_is_checked():
    """A count that does not fit is damage, as is one that would lead outside of the file."""
    body = written()
    end = body.rindex(PAGE_SUMS_MAGIC)
    for at in (end - 8, end - 5, end - 4, end - 12):
        damaged = bytearray(body)
        damaged[at] ^= 0x40
        with pytest.raises(ValueError, match="page sums are damaged"):
            opened(bytes(damaged))
