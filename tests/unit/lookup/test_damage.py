"""Whatever happens to the bytes of a file: the right rows, or an error that names it."""

from __future__ import annotations

import io
import random
import struct
import zlib

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from sleeper.engine.writing.data_file import SealedOutput
from sleeper.errors import DataDamaged
from sleeper.lookup.parquet.footer import read_footer
from sleeper.lookup.parquet.seal import SEAL_MAGIC, seal_size
from sleeper.lookup.reader import LookupReader
from tests.soak import tries

SCHEMA = pa.schema(
    [
        pa.field("k", pa.string(), nullable=False),
        pa.field("n", pa.int64(), nullable=False),
        pa.field("text", pa.string(), nullable=False),
        pa.field("maybe", pa.int32()),
        pa.field("real", pa.float64()),
        pa.field("note", pa.string()),
        pa.field("tags", pa.list_(pa.int64())),
    ]
)

TABLE = pa.table(
    {
        "k": [f"key{i // 2:04d}" for i in range(300)],
        "n": list(range(300)),
        "text": ["t" * (i % 7) for i in range(300)],
        "maybe": [None if i % 5 == 0 else i for i in range(300)],
        "real": [None if i % 60 in (3, 20, 21, 58) else i / 8 for i in range(300)],
        "note": [None if i % 3 == 0 or i > 270 else "é" * (i % 4) for i in range(300)],
        "tags": [list(range(i % 4)) for i in range(300)],
    },
    SCHEMA,
)

ASKED = ["a", "key0000", "key0031", "key0031x", "key0077", "key0149"]


class BytesInMemory:
    """One file, held as bytes. Every other one is read as if it were in a bucket."""

    def __init__(self, body):
        self.body = body
        self.is_remote = zlib.crc32(body) % 2 == 1

    def size(self, key):
        return len(self.body)

    def read_end(self, key, length):
        return self.body[max(0, len(self.body) - length) :], len(self.body)

    def read_ranges(self, key, ranges):
        return [self.body[offset : offset + length] for offset, length in ranges]


class Sink(io.BytesIO):
    """Keeps what was written when it is closed."""

    def close(self):
        self.written = self.getvalue()
        super().close()


def written(*, sealed, **options):
    """The bytes of a small file with two row groups and many pages."""
    options = {
        "max_rows_per_page": 30,
        "write_page_index": True,
        "write_page_checksum": True,
        "compression": "zstd",
        "use_dictionary": ["maybe"],
    } | options
    sink = Sink()
    output = SealedOutput(sink) if sealed else sink
    writer = pq.ParquetWriter(output, SCHEMA, **options)
    writer.write_table(TABLE, row_group_size=180)
    if sealed:
        output.hold()
    writer.close()
    output.close()
    return sink.written


def batch(keys):
    return pa.RecordBatch.from_arrays([pa.array(keys, pa.string())], names=["k"])


ASKINGS = (ASKED[4:5], ASKED)

EXPECTED = {key: TABLE.filter(pc.equal(TABLE["k"], key)).to_pylist() for key in ASKED}


def answers(body):
    """Look up one key alone, then all at once; None where the file is called damaged."""
    reader = LookupReader(BytesInMemory(body))
    found = []
    for keys in ASKINGS:
        try:
            (table,) = reader.look_up(["the-file"], batch(keys), SCHEMA)
        except DataDamaged as error:
            names_the_file = "'the-file'" in str(error) and "Restore" in str(error)
            found.append(None if names_the_file else str(error))
        else:
            found.append(table.to_pylist())
    return found


RIGHT = [[row for key in keys for row in EXPECTED[key]] for keys in ASKINGS]


def wrong_answers(body):
    return [
        (right, found)
        for right, found in zip(RIGHT, answers(body), strict=True)
        if found is not None and found != right
    ]


FILTERED = {"bloom_filter_options": {"k": {"ndv": 90, "fpp": 0.01}}}

VARIANTS = {
    "plain zstd": {},
    "Bloom filters": FILTERED,
    "version 2 pages": {"data_page_version": "2.0"},
    "version 2 pages, not compressed": {"data_page_version": "2.0", "compression": "none"},
    "dictionaries, snappy": {"use_dictionary": True, "compression": "snappy"},
    "delta, gzip": {
        "use_dictionary": False,
        "column_encoding": {"k": "DELTA_BYTE_ARRAY", "n": "DELTA_BINARY_PACKED"},
        "compression": "gzip",
    },
    "not compressed": {"compression": "none", "use_dictionary": False},
}


@pytest.mark.soak
@pytest.mark.parametrize("variant", VARIANTS)
class TestSealedFile:
    """A file with page checksums and a seal, as our writer makes it."""

    def test_is_read_right_when_whole(self, variant):
        """Without damage every key has its rows."""
        assert answers(written(sealed=True, **VARIANTS[variant])) == RIGHT

    def test_no_flipped_bit_gives_a_wrong_answer(self, variant):
        """Each flipped bit is noticed or harmless, wherever it is."""
        body = written(sealed=True, **VARIANTS[variant])
        r = random.Random(variant)
        for at in sorted(r.sample(range(len(body)), tries(60, soak=1500))):
            damaged = bytearray(body)
            damaged[at] ^= 1 << r.randrange(8)
            assert wrong_answers(bytes(damaged)) == [], at

    def test_no_overwritten_stretch_gives_a_wrong_answer(self, variant):
        """Zeros or noise over up to 40 bytes are noticed or harmless."""
        body = written(sealed=True, **VARIANTS[variant])
        r = random.Random(variant)
        for _ in range(tries(20, soak=400)):
            at, length = r.randrange(len(body)), r.randint(1, 40)
            damaged = bytearray(body)
            noise = bytes(length) if r.random() < 0.5 else r.randbytes(length)
            damaged[at : at + length] = noise
            assert wrong_answers(bytes(damaged[: len(body)])) == [], (at, length)

    def test_no_truncation_gives_an_answer(self, variant):
        """A file that was cut off is always called damaged."""
        body = written(sealed=True, **VARIANTS[variant])
        r = random.Random(variant)
        for length in [0, 1, 4, 8, 12, len(body) - 1, *(r.randrange(len(body)) for _ in range(20))]:
            assert answers(body[:length]) == [None] * len(RIGHT), length


@pytest.mark.soak
@pytest.mark.parametrize("variant", VARIANTS)
class TestFileWithoutSeal:
    """A file of another writer, with or without page checksums."""

    def test_damage_hides_rows_at_worst(self, variant):
        """
        Without a seal a damaged bound can hide rows. Rows that do come back
        have been checked by their page's checksum: each is right.
        """
        body = written(sealed=False, **VARIANTS[variant])
        r = random.Random(variant)
        for at in sorted(r.sample(range(len(body)), tries(40, soak=900))):
            damaged = bytearray(body)
            damaged[at] ^= 1 << r.randrange(8)
            for right, found in wrong_answers(bytes(damaged)):
                assert [row for row in found if row not in right] == [], at

    def test_nothing_but_damage_is_ever_raised(self, variant):
        """Without any checksum values may differ, but no other exception and no hang appears."""
        body = written(sealed=False, write_page_checksum=False, **VARIANTS[variant])
        r = random.Random(variant)
        for at in sorted(r.sample(range(len(body)), tries(40, soak=900))):
            damaged = bytearray(body)
            damaged[at] ^= 1 << r.randrange(8)
            for found in answers(bytes(damaged)):
                assert found is None or {row["k"] for row in found} <= set(ASKED), at


def filters_of(body):
    """Start and end of each Bloom filter in a file."""
    found = pq.ParquetFile(io.BytesIO(body)).metadata
    assert found.num_row_groups == 2
    tail = int.from_bytes(body[-8:-4], "little") + 8
    footer = read_footer(body[-tail:-8], len(body) - tail)
    places = [group[0].bloom_filter for group in footer.chunks]
    return [(offset, offset + length) for offset, length in places]


class TestDamagedFilter:
    """A Bloom filter that is not what was written would hide rows."""

    def test_every_flipped_bit_is_noticed(self):
        """Whichever bit it is: a look-up that asks the filter calls the file damaged."""
        body = written(sealed=True, **FILTERED)
        r = random.Random(3)

        for start, end in filters_of(body):
            for at in range(start, end):
                damaged = bytearray(body)
                damaged[at] ^= 1 << r.randrange(8)
                one, all_of_them = answers(bytes(damaged))
                assert all_of_them is None, at
                assert one in (None, RIGHT[0]), at

    def test_a_filter_without_seal_is_not_asked(self):
        """Nothing vouches for it, so rows are found though it says there are none."""
        body = bytearray(written(sealed=False, **FILTERED))
        for start, end in filters_of(body):
            body[start:end] = bytes(end - start)

        assert answers(bytes(body)) == RIGHT

    def test_a_seal_that_leaves_filters_out_leaves_them_unasked(self):
        """Such a seal vouches for footer and indexes alone; its file is read as without filters."""
        body = bytearray(written(sealed=True, **FILTERED))
        for start, end in filters_of(body):
            body[start:end] = bytes(end - start)
        footer_start = len(body) - 8 - int.from_bytes(body[-8:-4], "little")
        size = seal_size(bytes(body[:footer_start]))
        payload = bytes(body[footer_start - size : footer_start - 16 - 2 * 4])
        seal = payload + struct.pack("<II", len(payload), zlib.crc32(payload)) + SEAL_MAGIC

        assert answers(bytes(body[: footer_start - size] + seal + body[footer_start:])) == RIGHT

    def test_a_seal_of_another_number_of_filters_is_damage(self):
        """Half the checksums cannot be told apart from other ones."""
        body = written(sealed=True, **FILTERED)
        footer_start = len(body) - 8 - int.from_bytes(body[-8:-4], "little")
        size = seal_size(body[:footer_start])
        payload = body[footer_start - size : footer_start - 16 - 4]
        seal = payload + struct.pack("<II", len(payload), zlib.crc32(payload)) + SEAL_MAGIC

        assert answers(body[: footer_start - size] + seal + body[footer_start:]) == [None, None]
