"""Sketches: quantiles and ranks of row keys, and split points estimated from input."""

from __future__ import annotations

import struct
import zlib
from datetime import UTC, date, datetime, timedelta

import pyarrow as pa
import pytest
from datasketches import quantiles_items_sketch
from hypothesis import given
from hypothesis import strategies as st

from sleeper.columns.type_traits import arrow_type
from sleeper.engine.arrow_schema import to_arrow
from sleeper.engine.sketches.sketch import Sketches, estimate_split_points, union
from sleeper.engine.sketches.stored_sketch import (
    SKETCHED_ROWS_MAX,
    SketchBuilder,
    _serde,
    read_sketches,
)
from sleeper.errors import DataDamaged, FormatTooNew, SplitPointsInvalid
from sleeper.model.ranges import Range
from sleeper.model.schema import Field, Primitive, Schema

LONG_KEY = Schema(row_keys=(Field("k", Primitive.LONG),))
NEW_YEAR = datetime(2020, 1, 1, tzinfo=UTC)


def stored(table: pa.Table, schema: Schema, chunk_rows: int | None = None) -> bytes:
    builder = SketchBuilder(schema)
    for batch in table.to_batches(max_chunksize=chunk_rows):
        builder.add(pa.Table.from_batches([batch]))
    return builder.to_bytes()


def sketched(values, schema: Schema = LONG_KEY, chunk_rows: int | None = None) -> Sketches:
    table = pa.table({"k": pa.array(values, to_arrow(schema).field("k").type)})
    return read_sketches(stored(table, schema, chunk_rows), schema, "f.sketches")


HEADER_BYTES = 30 + 20


def inflated(whole: bytes) -> bytes:
    """The body of a stored sketch of one field, decompressed."""
    size = int.from_bytes(whole[22:30], "little")
    return pa.Codec("zstd").decompress(whole[HEADER_BYTES:-4], size, asbytes=True)


def assembled(header: bytes, body: bytes) -> bytes:
    """A stored sketch of one field, with its length and checksum as they must be."""
    whole = header[:22] + len(body).to_bytes(8, "little") + header[30:]
    whole += pa.Codec("zstd").compress(body, asbytes=True)
    return whole + zlib.crc32(whole).to_bytes(4, "little")


def of_first_form(values: list[bytes] | list[int], kind: Primitive, stride: int = 1) -> bytes:
    """What earlier versions stored: an items sketch of DataSketches."""
    sketch = quantiles_items_sketch(2048)
    for value in values:
        sketch.update(value)
    body = sketch.serialize(_serde(kind))
    return assembled_in_first_form(body, kind, len(values), stride)


def assembled_in_first_form(body: bytes, kind: Primitive, count: int, stride: int = 1) -> bytes:
    deflated = zlib.compress(body, 9)
    whole = b"SLPRSKT\1" + struct.pack("<HQQ", 1, count, stride)
    whole += kind.value.encode().ljust(20, b"\0") + len(deflated).to_bytes(8, "little") + deflated
    return whole + zlib.crc32(whole).to_bytes(4, "little")


class TestQuantiles:
    """`quantile`, as splits ask for it (rules SPL-3, SPL-4)."""

    @pytest.mark.parametrize(
        ("values", "median"),
        [(range(1000), 500), ([25, 50, 75], 50), (range(10, 81, 10), 50), ([7], 7)],
    )
    def test_have_the_median_that_the_rule_names(self, values, median):
        """The examples of rule SPL-4."""
        assert sketched(list(values)).quantile(0, 0.5) == median

    @given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=200), st.floats(0, 1))
    def test_are_items_at_their_place_while_all_rows_are_sketched(self, values, fraction):
        """The item at index min(n - 1, floor(q * n)) of the values in order."""
        ordered = sorted(values)

        found = sketched(ordered).quantile(0, fraction)

        assert found == ordered[min(len(values) - 1, int(fraction * len(values)))]

    @pytest.mark.parametrize(
        ("kind", "values"),
        [
            (Primitive.INT, [-(2**31), 0, 2**31 - 1]),
            (Primitive.LONG, [-(2**63), 0, 2**63 - 1]),
            (Primitive.STRING, ["", "a\0b", "é", "\uffff", "\U00010000"]),
            (Primitive.BYTES, [b"", b"\0", b"\x7f", b"\x80", b"\xff" * 70_000]),
            (Primitive.DATE, [date.min, date(1970, 1, 1), date.max]),
            (
                Primitive.TIMESTAMP,
                [datetime.min.replace(tzinfo=UTC), NEW_YEAR, datetime.max.replace(tzinfo=UTC)],
            ),
            (Primitive.TIMESTAMP_NTZ, [datetime.min, datetime(2020, 1, 1), datetime.max]),
        ],
    )
    def test_are_plain_values_of_every_key_type(self, kind, values):
        """What goes in comes out, in order, and its rank is the share of rows below it."""
        sketches = sketched(values, Schema(row_keys=(Field("k", kind),)))

        count = len(values)
        assert [sketches.quantile(0, place / count) for place in range(count)] == values
        assert [sketches.rank(0, value) for value in values] == [n / count for n in range(count)]

    @pytest.mark.parametrize("row_count", [SKETCHED_ROWS_MAX + 1, 50_000, 1_000_003])
    def test_stay_close_when_only_some_rows_are_sketched(self, row_count):
        """Quantiles and ranks are off by less than a 2,000th, and the ends are exact."""
        sketches = sketched(list(range(row_count)), chunk_rows=99_991)

        assert sketches.row_count == row_count
        assert (sketches.quantile(0, 0), sketches.quantile(0, 1)) == (0, row_count - 1)
        for tenth in range(1, 10):
            assert sketches.quantile(0, tenth / 10) == pytest.approx(
                row_count * tenth / 10, abs=row_count / 2000
            )
            assert sketches.rank(0, row_count * tenth // 10) == pytest.approx(
                tenth / 10, abs=1 / 2000
            )

    def test_are_told_for_every_row_key(self):
        """The second key is not in order in the file, but its quantiles are found too."""
        schema = Schema(row_keys=(Field("k", Primitive.LONG), Field("s", Primitive.STRING)))
        table = pa.table({"k": [1, 1, 2], "s": ["b", "z", "a"]})

        sketches = read_sketches(stored(table, schema), schema, "f")

        assert [sketches.quantile(0, q) for q in (0, 0.5, 1)] == [1, 1, 2]
        assert [sketches.quantile(1, q) for q in (0, 0.5, 1)] == ["a", "b", "z"]

    def test_of_no_rows_are_none(self):
        """An empty file has a sketch that says so."""
        empty = sketched([])

        assert empty.row_count == 0
        with pytest.raises(ValueError, match="no rows"):
            empty.quantile(0, 0.5)

    def test_do_not_hold_all_of_long_keys(self):
        """Keys of a megabyte are sketched too, fewer of them."""
        schema = Schema(row_keys=(Field("k", Primitive.BYTES),))
        values = [bytes([n]) * (1 << 20) for n in range(100)]
        builder = SketchBuilder(schema)
        for value in values:
            builder.add(pa.table({"k": [value]}))

        sketches = read_sketches(builder.to_bytes(), schema, "f")

        assert sketches.quantile(0, 1) == values[-1]
        assert abs(sketches.quantile(0, 0.5)[0] - 50) <= 8


class TestUnion:
    """`union`: the rows of several files together."""

    def test_counts_each_row_the_same(self):
        """A large file whose rows are sketched thinly weighs as much as it has rows."""
        large = sketched(list(range(100_000)))
        small = sketched(list(range(100_000, 101_000)))

        both = union([small, large])

        assert both.row_count == 101_000
        assert both.quantile(0, 0.5) == pytest.approx(50_500, abs=60)
        assert both.rank(0, 100_000) == pytest.approx(100_000 / 101_000, abs=0.0005)
        assert both.quantile(0, 1) == 100_999

    @given(st.lists(st.lists(st.integers(0, 50), max_size=20), min_size=1, max_size=4))
    def test_is_exact_where_its_parts_are(self, parts):
        """The median of small files together is the median of all their rows."""
        everything = sorted(value for part in parts for value in part)
        if not everything:
            return

        both = union([sketched(sorted(part)) for part in parts])

        assert both.quantile(0, 0.5) == everything[len(everything) // 2]

    def test_of_no_rows_is_refused(self):
        """There is nothing to describe."""
        with pytest.raises(ValueError, match="no rows"):
            union([sketched([])])


class TestStoredForm:
    """The bytes in a data file."""

    @given(st.data())
    def test_is_found_damaged_wherever_a_byte_changes(self, data):
        """Any flipped bit and any cut is told, with the name of the file."""
        whole = stored(pa.table({"k": [1, 2, 3]}), LONG_KEY)
        place = data.draw(st.integers(0, len(whole) - 1))
        flipped = bytearray(whole)
        flipped[place] ^= 1 << data.draw(st.integers(0, 7))

        for damaged in (bytes(flipped), whole[:place]):
            with pytest.raises(DataDamaged, match=r"'f\.sketches'"):
                read_sketches(damaged, LONG_KEY, "f.sketches")

    @pytest.mark.parametrize("kind", [Primitive.LONG, Primitive.STRING, Primitive.DATE])
    @given(data=st.data())
    def test_that_was_changed_on_purpose_is_damage_or_can_be_used(self, kind, data):
        """Whoever changes bytes and mends the checksum gets an answer, or DataDamaged."""
        schema = Schema(row_keys=(Field("k", kind),))
        values = {
            Primitive.LONG: [1, 2, 3],
            Primitive.STRING: ["a", "b", "ü"],
            Primitive.DATE: [date(2020, 1, n) for n in (1, 2, 3)],
        }[kind]
        whole = stored(pa.table({"k": values}), schema)
        fields, body = bytearray(whole[:HEADER_BYTES]), bytearray(inflated(whole))
        for target in (fields, body):
            for _ in range(data.draw(st.integers(0, 3))):
                place = data.draw(st.integers(8 if target is fields else 0, len(target) - 1))
                target[place] = data.draw(st.integers(0, 255))

        try:
            read = read_sketches(assembled(bytes(fields), bytes(body)), schema, "f")
        except DataDamaged:
            return
        if read.row_count:
            middle = read.quantile(0, 0.5)
            assert 0 <= read.rank(0, middle) <= 1
            assert read.least_median_most(0, Range(read.quantile(0, 0.0), None)) is not None

    def test_does_not_fill_the_memory(self):
        """600 kB can hold 600 MB of zeros: no more is decompressed than a builder writes."""
        whole = stored(pa.table({"k": [1]}), LONG_KEY)
        bomb = assembled(whole[:HEADER_BYTES], bytes(100 << 20))
        old_bomb = assembled_in_first_form(bytes(100 << 20), Primitive.LONG, 1)

        for each in (bomb, old_bomb):
            with pytest.raises(DataDamaged, match="has more than"):
                read_sketches(each, LONG_KEY, "f")

    def test_with_values_that_overlap_is_damaged(self):
        """Offsets that go back would name bytes of other values, or none."""
        schema = Schema(row_keys=(Field("k", Primitive.BYTES),))
        whole = stored(pa.table({"k": [b"aaaa", b"b"]}), schema)
        body = bytearray(inflated(whole))
        body[16 + 4 : 16 + 8] = (9).to_bytes(4, "little")

        with pytest.raises(DataDamaged, match="overlap"):
            read_sketches(assembled(whole[:HEADER_BYTES], bytes(body)), schema, "f")

    def test_of_another_schema_is_refused(self):
        """A sketch of other keys cannot be this file's."""
        text_key = Schema(row_keys=(Field("k", Primitive.STRING),))
        two_keys = Schema(row_keys=(*LONG_KEY.row_keys, Field("l", Primitive.LONG)))
        whole = stored(pa.table({"k": [1]}), LONG_KEY)

        for other in (text_key, two_keys):
            with pytest.raises(DataDamaged, match="row key"):
                read_sketches(whole, other, "f")

    def test_of_a_newer_format_is_told_apart_from_damage(self):
        """Upgrading helps; restoring would not."""
        newer = bytearray(stored(pa.table({"k": [1]}), LONG_KEY)[:-4])
        newer[7] = 3

        with pytest.raises(FormatTooNew, match="upgrade"):
            read_sketches(bytes(newer) + zlib.crc32(newer).to_bytes(4, "little"), LONG_KEY, "f")


class TestFirstForm:
    """What earlier versions stored beside their files."""

    def test_is_read(self):
        """Every second row of eight is sketched, and the last."""
        read = read_sketches(of_first_form([0, 2, 4, 6, 7], Primitive.LONG), LONG_KEY, "f")

        assert read.row_count == 5
        assert [read.quantile(0, n / 5) for n in range(5)] == [0, 2, 4, 6, 7]

    def test_of_strings_is_read(self):
        """They are UTF-8 there."""
        schema = Schema(row_keys=(Field("k", Primitive.STRING),))
        whole = of_first_form([b"a", "ü".encode()], Primitive.STRING)

        assert read_sketches(whole, schema, "f").quantile(0, 0.9) == "ü"

    @given(data=st.data())
    def test_that_was_changed_on_purpose_is_damage_or_can_be_used(self, data):
        """Whoever changes bytes and mends the checksum gets an answer, or DataDamaged."""
        kind = data.draw(st.sampled_from([Primitive.STRING, Primitive.DATE]))
        schema = Schema(row_keys=(Field("k", kind),))
        whole = of_first_form({Primitive.STRING: [b"a", b"b"], Primitive.DATE: [1, 2]}[kind], kind)
        body = bytearray(zlib.decompress(whole[54:-4]))
        for _ in range(data.draw(st.integers(0, 3))):
            body[data.draw(st.integers(8, len(body) - 1))] = data.draw(st.integers(0, 255))

        try:
            read = read_sketches(assembled_in_first_form(bytes(body), kind, 2), schema, "f")
        except DataDamaged:
            return
        assert 0 <= read.rank(0, read.quantile(0, 0.5)) <= 1


class TestEstimate:
    """`estimate_split_points`: rule TBL-10."""

    FIELD = Field("k", Primitive.LONG)

    def test_parts_rows_evenly(self):
        """Points lie at i / n of the rows, whatever order they come in."""
        values = [(n * 7919) % 10_000 for n in range(10_000)]
        columns = [pa.chunked_array([values[:4_000]]), pa.chunked_array([values[4_000:]])]

        assert estimate_split_points(columns, self.FIELD, 4) == [2_500, 5_000, 7_500]

    def test_gives_fewer_points_where_values_repeat(self):
        """Equal points are one."""
        columns = [pa.chunked_array([[1] * 90 + [2] * 10])]

        assert estimate_split_points(columns, self.FIELD, 10) == [1, 2]

    def test_takes_every_key_type(self):
        """Points are plain values."""
        days = [date(2020, 1, 1) + timedelta(days=n) for n in range(10)]
        column = pa.chunked_array([pa.array(days, arrow_type(Primitive.DATE))])

        assert estimate_split_points([column], Field("k", Primitive.DATE), 2) == [days[5]]

    def test_never_gives_the_least_value_of_the_type(self):
        """The leaf below it would be empty (rule TBL-9)."""
        columns = [pa.chunked_array([["", "", "", "a"]])]

        assert estimate_split_points(columns, Field("k", Primitive.STRING), 4) == ["a"]

    def test_ignores_nulls_and_knows_nothing_of_nothing(self):
        """No values, no points."""
        nothing = pa.chunked_array([pa.nulls(3, pa.int64())])

        assert estimate_split_points([nothing], self.FIELD, 4) == []

    def test_wants_at_least_two_partitions(self):
        """One partition has no split points."""
        with pytest.raises(SplitPointsInvalid, match="at least 2"):
            estimate_split_points([], self.FIELD, 1)
