"""Values of key fields: limits, order, next value, and their forms as text."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sleeper.errors import QueryInvalid
from sleeper.model.keys import (
    checked_value,
    next_value,
    smallest_value,
    value_from_json,
    value_from_text,
    value_to_json,
    value_to_text,
)
from sleeper.model.schema import KEY_TYPES, Field, Primitive
from tests.unit.key_values import KEY_VALUES

utf8_text = st.text(st.characters(exclude_categories=["Cs"]))
kinds_and_values = st.sampled_from(KEY_TYPES).flatmap(
    lambda kind: st.tuples(st.just(kind), KEY_VALUES[kind])
)
kinds_and_pairs = st.sampled_from(KEY_TYPES).flatmap(
    lambda kind: st.tuples(st.just(kind), KEY_VALUES[kind], KEY_VALUES[kind])
)


def field(kind: Primitive) -> Field:
    return Field("k", kind)


class TestOrder:
    """The same everywhere: Python, engines, Parquet statistics."""

    @given(utf8_text, utf8_text)
    def test_strings_are_ordered_as_their_utf8_bytes(self, a, b):
        """Which is the order of code points, not of Java's UTF-16 units (rule SCH-8)."""
        assert (a < b) == (a.encode() < b.encode())

    def test_bytes_are_unsigned(self):
        """0x7F comes before 0x80, a shorter prefix first (rule SCH-8)."""
        assert sorted([b"\x80", b"\x7f\x00", b"", b"\x7f", b"\xff"]) == [
            b"",
            b"\x7f",
            b"\x7f\x00",
            b"\x80",
            b"\xff",
        ]

    @given(kinds_and_values)
    def test_nothing_lies_below_the_smallest_value(self, kind_and_value):
        """Each type has a least value and no greatest one is needed (SCH-7)."""
        kind, value = kind_and_value

        assert smallest_value(kind) <= value

    def test_smallest_values_are_upstreams(self):
        """For the types that upstream has (SCH-7)."""
        upstream = (Primitive.INT, Primitive.LONG, Primitive.STRING, Primitive.BYTES)

        assert [smallest_value(kind) for kind in upstream] == [
            -2147483648,
            -9223372036854775808,
            "",
            b"",
        ]

    @given(kinds_and_pairs)
    def test_nothing_lies_between_a_value_and_the_next(self, kind_and_pair):
        """So `(low, high]` and `[next(low), next(high))` are the same values (PRT-2)."""
        kind, value, other = kind_and_pair

        following = next_value(kind, value)

        assert (other > value) == (following is not None and other >= following)

    @pytest.mark.parametrize(
        ("kind", "largest"),
        [
            (Primitive.INT, 2**31 - 1),
            (Primitive.LONG, 2**63 - 1),
            (Primitive.DATE, date.max),
            (Primitive.TIMESTAMP, datetime.max.replace(tzinfo=UTC)),
            (Primitive.TIMESTAMP_NTZ, datetime.max),
        ],
    )
    def test_the_largest_value_has_no_next(self, kind, largest):
        """A range up to and with it has no limit (PRT-2)."""
        assert next_value(kind, largest) is None

    def test_strings_and_bytes_go_on_with_a_zero(self):
        """U+0000 for strings as upstream; for bytes 0x00, because they are unsigned (PRT-2)."""
        assert next_value(Primitive.STRING, "a") == "a\0"
        assert next_value(Primitive.BYTES, b"a") == b"a\x00"


class TestCheckedValue:
    """What a user hands in becomes a plain Python value, or is refused."""

    @given(kinds_and_values)
    def test_values_of_the_type_stay_as_they_are(self, kind_and_value):
        """Nothing is rounded or re-coded."""
        kind, value = kind_and_value

        assert checked_value(field(kind), value) == value

    @pytest.mark.parametrize(
        ("kind", "given_value", "plain"),
        [
            (Primitive.INT, np.int8(5), 5),
            (Primitive.LONG, np.int64(-5), -5),
            (Primitive.STRING, np.str_("x"), "x"),
            (Primitive.BYTES, bytearray(b"x"), b"x"),
            (Primitive.BYTES, memoryview(b"x"), b"x"),
        ],
    )
    def test_values_of_other_libraries_become_plain(self, kind, given_value, plain):
        """Their types compare and hash in other ways."""
        value = checked_value(field(kind), given_value)

        assert value == plain
        assert type(value) is type(plain)

    def test_timestamps_are_brought_to_utc(self):
        """The same instant has one form."""
        half_past = datetime(2026, 1, 1, 1, 30, tzinfo=timezone(timedelta(hours=1)))

        value = checked_value(field(Primitive.TIMESTAMP), half_past)

        assert value == datetime(2026, 1, 1, 0, 30, tzinfo=UTC)
        assert value.tzinfo is UTC

    @pytest.mark.parametrize(
        ("kind", "wrong"),
        [
            (Primitive.INT, 2**31),
            (Primitive.INT, -(2**31) - 1),
            (Primitive.LONG, 2**63),
            (Primitive.INT, True),
            (Primitive.INT, 1.0),
            (Primitive.LONG, "1"),
            (Primitive.STRING, b"a"),
            (Primitive.STRING, "\ud800"),
            (Primitive.BYTES, "a"),
            (Primitive.DATE, datetime(2026, 1, 1)),
            (Primitive.DATE, "2026-01-01"),
            (Primitive.TIMESTAMP, datetime(2026, 1, 1)),
            (Primitive.TIMESTAMP, date(2026, 1, 1)),
            (Primitive.TIMESTAMP_NTZ, datetime(2026, 1, 1, tzinfo=UTC)),
            (Primitive.STRING, None),
        ],
    )
    def test_other_values_are_refused(self, kind, wrong):
        """The message names the field, the value and what is wanted."""
        with pytest.raises(QueryInvalid, match=r"not a value for key field 'k': it must be"):
            checked_value(field(kind), wrong)

    def test_an_instant_that_utc_cannot_hold_is_refused(self):
        """One hour into year 1 east of Greenwich is year 0 in UTC."""
        too_early = datetime.min.replace(tzinfo=timezone(timedelta(hours=2)))

        with pytest.raises(QueryInvalid, match="not a value for key field 'k'"):
            checked_value(field(Primitive.TIMESTAMP), too_early)


class TestText:
    """One value on one line, as split points files and the command line have it (TBL-8)."""

    @given(kinds_and_values, st.booleans())
    def test_reads_back_what_it_writes(self, kind_and_value, base64_encoded):
        """Whichever way strings are written."""
        kind, value = kind_and_value

        text = value_to_text(kind, value, base64_encoded=base64_encoded)

        assert value_from_text(field(kind), text, base64_encoded=base64_encoded) == value

    @pytest.mark.parametrize(
        ("kind", "value", "text"),
        [
            (Primitive.INT, -5, "-5"),
            (Primitive.LONG, 2**40, "1099511627776"),
            (Primitive.STRING, "é x", "é x"),
            (Primitive.BYTES, b"\x00\xff", "AP8="),
            (Primitive.DATE, date(2026, 1, 2), "2026-01-02"),
            (Primitive.TIMESTAMP_NTZ, datetime(2026, 1, 2, 3, 4, 5), "2026-01-02T03:04:05"),
            (
                Primitive.TIMESTAMP,
                datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
                "2026-01-02T03:04:05.000006+00:00",
            ),
        ],
    )
    def test_the_forms(self, kind, value, text):
        """Decimal, raw, base64 for bytes always, ISO 8601."""
        assert value_to_text(kind, value) == text

    def test_strings_may_be_base64(self):
        """Of their UTF-8 bytes."""
        assert value_to_text(Primitive.STRING, "é", base64_encoded=True) == "w6k="

    @pytest.mark.parametrize(
        ("kind", "text", "base64_encoded"),
        [
            (Primitive.INT, "", False),
            (Primitive.INT, "1.5", False),
            (Primitive.INT, "2147483648", False),
            (Primitive.BYTES, "no base64!", False),
            (Primitive.BYTES, "é", False),
            (Primitive.STRING, "é", True),
            (Primitive.STRING, "gA==", True),
            (Primitive.DATE, "01/02/2026", False),
            (Primitive.TIMESTAMP, "2026-01-02T03:04:05", False),
            (Primitive.TIMESTAMP_NTZ, "2026-01-02T03:04:05Z", False),
        ],
    )
    def test_what_is_no_value_is_refused(self, kind, text, base64_encoded):
        """Base64 that is none, or holds no UTF-8, a timestamp that lacks its zone."""
        with pytest.raises(QueryInvalid, match="not a value for key field 'k'"):
            value_from_text(field(kind), text, base64_encoded=base64_encoded)


class TestJson:
    """Values inside JSON documents."""

    @given(kinds_and_values)
    def test_reads_back_what_it_writes(self, kind_and_value):
        """Numbers and strings stay what they are; the rest is text."""
        kind, value = kind_and_value

        assert value_from_json(field(kind), value_to_json(kind, value)) == value

    def test_none_is_null(self):
        """Null is no limit at the end of a range."""
        assert value_to_json(Primitive.LONG, None) is None
        assert value_from_json(field(Primitive.BYTES), None) is None
