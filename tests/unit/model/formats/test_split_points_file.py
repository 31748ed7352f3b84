"""Split points files: one value of the first row key on each line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sleeper.errors import SplitPointsInvalid
from sleeper.model.formats.split_points_file import read_split_points, write_split_points
from sleeper.model.schema import Field, Primitive, Schema

LONGS = Schema(row_keys=[Field("n", Primitive.LONG)])
STRINGS = Schema(row_keys=[Field("s", Primitive.STRING)])
BYTES = Schema(row_keys=[Field("b", Primitive.BYTES)])

texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)


class TestReading:
    """What a person, upstream or another program has written (TBL-8, 2.10)."""

    def test_one_value_a_line(self):
        """Decimal for integers."""
        assert read_split_points("-5\n0\n12\n", LONGS) == [-5, 0, 12]

    def test_strings_are_raw(self):
        """Spaces around them are theirs."""
        assert read_split_points(" b\na \né\n", STRINGS) == [" b", "a ", "é"]

    def test_strings_may_be_base64(self):
        """When the flag says so."""
        assert read_split_points("YQ==\nYgpj\n", STRINGS, base64_encoded=True) == ["a", "b\nc"]

    @pytest.mark.parametrize("base64_encoded", [False, True])
    def test_bytes_are_always_base64(self, base64_encoded):
        """Whatever the flag says."""
        text = "AA==\n/w==\n"

        assert read_split_points(text, BYTES, base64_encoded=base64_encoded) == [b"\0", b"\xff"]

    @pytest.mark.parametrize("text", ["a\nb", "a\nb\n", "a\nb\n\n", "a\r\nb\r\n", "a\rb"])
    def test_lines_end_as_they_like(self, text):
        """With LF, CR LF or CR; empty lines at the end count for nothing."""
        assert read_split_points(text, STRINGS) == ["a", "b"]

    @pytest.mark.parametrize("text", ["", "\n", "\r\n\r\n", "\ufeff"])
    def test_an_empty_file_has_no_points(self, text):
        """Then the table has one partition."""
        assert read_split_points(text, STRINGS) == []

    def test_a_byte_order_mark_is_no_part_of_the_first_point(self):
        """Some editors put one there."""
        assert read_split_points("\ufeffa\nb\n", STRINGS) == ["a", "b"]

    def test_numbers_may_stand_among_spaces(self):
        """Nothing but a string can have spaces of its own."""
        assert read_split_points(" 1\t\n2 \n", LONGS) == [1, 2]

    @pytest.mark.parametrize(
        ("text", "schema", "message"),
        [
            ("1\nx\n", LONGS, "in line 2: 'x'"),
            ("1\n\n2\n", LONGS, "in line 2: ''"),
            ("!\n", BYTES, "in line 1"),
            ("2\n1\n", LONGS, "2 should be less than 1"),
            ("1\n1\n", LONGS, "1 - duplicate found"),
            ("a\n\nb\n", STRINGS, "'a' should be less than ''"),
        ],
    )
    def test_wrong_lines_are_refused(self, text, schema, message):
        """With the line, or the points that are out of order (TBL-9)."""
        with pytest.raises(SplitPointsInvalid, match=message):
            read_split_points(text, schema)


class TestWriting:
    """What export-splits writes (TBL-11)."""

    def test_every_line_has_its_end(self):
        """Also the last."""
        assert write_split_points([1, 2], LONGS) == "1\n2\n"
        assert write_split_points([], LONGS) == ""

    @pytest.mark.parametrize("point", ["a\nb", "a\r", "\ufeffa"])
    def test_a_raw_string_fits_on_a_line(self, point):
        """Else the error says how to write it instead."""
        with pytest.raises(SplitPointsInvalid, match="base64"):
            write_split_points([point], STRINGS)

        written = write_split_points([point], STRINGS, base64_encoded=True)
        assert read_split_points(written, STRINGS, base64_encoded=True) == [point]

    def test_points_are_checked(self):
        """A file that cannot be read is not written (TBL-9)."""
        with pytest.raises(SplitPointsInvalid, match="duplicate"):
            write_split_points([1, 1], LONGS)

    @given(st.sets(texts).map(sorted))
    def test_reads_back_strings(self, points):
        """Raw when lines can hold them, and in base64 always."""
        encoded = write_split_points(points, STRINGS, base64_encoded=True)
        assert read_split_points(encoded, STRINGS, base64_encoded=True) == points

        try:
            raw = write_split_points(points, STRINGS)
        except SplitPointsInvalid:
            assert any(set(p) & set("\r\n") or p.startswith("\ufeff") for p in points)
            return
        assert read_split_points(raw, STRINGS) == points

    @given(st.sets(st.integers(-(2**63) + 1, 2**63 - 1)).map(sorted))
    def test_reads_back_integers(self, points):
        """Up to the ends of 64 bits."""
        assert read_split_points(write_split_points(points, LONGS), LONGS) == points

    @given(st.sets(st.binary(min_size=1)).map(sorted))
    def test_reads_back_bytes(self, points):
        """Whatever they are."""
        assert read_split_points(write_split_points(points, BYTES), BYTES) == points
