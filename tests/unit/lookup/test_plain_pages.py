"""PLAIN byte arrays: where the values are, whatever their lengths."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sleeper.lookup.columns import ArrowValues
from sleeper.lookup.plain_pages import (
    ByteArrayView,
    EvenByteArrays,
    PlainByteArrays,
    view_byte_arrays,
)


def plain(values):
    """The bytes of a PLAIN page."""
    return b"".join(len(value).to_bytes(4, "little") + value for value in values)


def view(values):
    return view_byte_arrays(plain(values), len(values), pa.binary())


def rows(values, *ranges):
    """Take ranges of a view of the values."""
    starts, ends = (np.array(side) for side in zip(*ranges, strict=True))
    found = view(values).rows(starts, ends)
    found.validate(full=True)
    return found.to_pylist()


VALUES = st.lists(
    st.binary(max_size=300)
    | st.text(max_size=9).map(str.encode)
    | st.integers(0, 40).map(bytes)
    | st.sampled_from([b"", b"\0" * 9, plain([b"a", b"", b"bc"]), b"\x01\0\0\0", b"x" * 70_000]),
    min_size=1,
    max_size=40,
)

REFUSED = (ValueError, OSError)


class TestView:
    """Finding where values start."""

    @given(VALUES)
    def test_values_are_cut_apart(self, values):
        """Zeros, empty values, and values that look like lengths lead nowhere else."""
        assert rows(values, (0, len(values))) == values

    @given(VALUES, st.data())
    def test_ranges_of_values_are_taken(self, values, data):
        """One range, or several, in order."""
        count = len(values)
        cuts = sorted(data.draw(st.sets(st.integers(0, count), min_size=2, max_size=8)))
        ranges = list(zip(cuts[0::2], cuts[1::2], strict=False))

        assert rows(values, *ranges) == [value for a, b in ranges for value in values[a:b]]

    @pytest.mark.parametrize(
        ("values", "kind"),
        [
            ([b"abc"] * 9, EvenByteArrays),
            ([b""] * 3, EvenByteArrays),
            ([b"a" * n for n in range(1, 40)], ByteArrayView),
            ([b"a" * n for n in range(1, 256)], ByteArrayView),
            ([b"a" * (n % 3) for n in range(1, 40)], ArrowValues),
            ([b"a" * n for n in range(200, 400)], ArrowValues),
            ([b"\0" * n for n in range(50)], ArrowValues),
        ],
    )
    def test_each_kind_has_its_way(self, values, kind):
        """One length; text of up to 255 bytes; empty values, long ones and zeros by pyarrow."""
        assert type(view(values)) is kind
        assert rows(values, (0, len(values))) == values

    def test_large_pages_are_cut_apart(self):
        """Many small values, and values of hundreds of kilobytes."""
        r = random.Random(1)
        small = [bytes(r.randint(0, 9)) for _ in range(60_000)]
        large = [r.randbytes(r.choice((0, 10, 65_532, 65_536, 200_000))) for _ in range(60)]
        text = [b"x" * r.randint(1, 255) for _ in range(9_000)]

        for values in (small, large, small + large, text):
            assert rows(values, (0, len(values))) == values

    @given(VALUES, st.data())
    def test_another_count_is_refused(self, values, data):
        """The lengths must lead to the end in as many steps as there are values."""
        count = data.draw(st.integers(0, 60).filter(lambda n: n != len(values)))

        with pytest.raises(REFUSED):
            view_byte_arrays(plain(values), count, pa.binary())

    def test_bytes_before_the_first_value_are_refused(self):
        """Lengths that lead to the end must start at the start."""
        with pytest.raises(REFUSED):
            view_byte_arrays(b"xyz" + plain([b"a", b"bc", b"def"]), 3, pa.binary())

    @given(VALUES, st.data())
    def test_damage_is_refused_or_gives_values_of_the_page(self, values, data):
        """After any flipped bit the values still fill the page exactly, or there are none."""
        page = bytearray(plain(values))
        page[data.draw(st.integers(0, min(len(page), 3_000) - 1))] ^= 1 << data.draw(
            st.integers(0, 7)
        )
        try:
            found = view_byte_arrays(bytes(page), len(values), pa.binary())
        except REFUSED:
            return
        every = found.rows(np.array([0]), np.array([len(values)])).to_pylist()
        assert plain(every) == bytes(page)

    @given(st.binary(max_size=99), st.integers(0, 30))
    def test_any_bytes_are_values_or_refused(self, data, count):
        """No other errors are raised."""
        try:
            found = view_byte_arrays(data, count, pa.binary())
        except REFUSED:
            return
        every = np.array([0]), np.array([count])
        assert plain(found.rows(*every).to_pylist()) == data


class TestFind:
    """Keys among byte arrays."""

    @given(
        st.lists(st.binary(max_size=4), min_size=1, max_size=40).map(sorted), st.binary(max_size=4)
    )
    def test_a_key_has_the_rows_that_equal_it(self, values, key):
        """Of even and of uneven lengths; none where the key is not."""
        low, high = PlainByteArrays(plain(values), len(values), pa.binary()).find(
            key, 0, len(values)
        )

        assert values[low:high] == [value for value in values if value == key]
