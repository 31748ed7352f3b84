"""Delta encodings, against pyarrow's writer and pages that are damaged."""

from __future__ import annotations

import io
from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sleeper.lookup.parquet.compact_protocol import read_struct
from sleeper.lookup.parquet.delta import read_lengths, read_numbers
from sleeper.lookup.plain_pages import PlainPages, joined_byte_arrays


def page(values, kind, encoding):
    """The body of the one page that pyarrow makes of some values."""
    file = io.BytesIO()
    schema = pa.schema([pa.field("a", kind, nullable=False)])
    pq.write_table(
        pa.table([pa.array(values, kind)], schema=schema),
        file,
        compression="none",
        use_dictionary=False,
        column_encoding={"a": encoding},
        data_page_size=1 << 30,
        write_batch_size=1 << 20,
    )
    raw = file.getvalue()
    place = pq.ParquetFile(file).metadata.row_group(0).column(0)
    header, start = read_struct(raw, place.data_page_offset)
    return raw[start : start + header[3]]


def wholes(bits):
    """Numbers of some bits: any, alike, rising, or few among many."""
    some = st.integers(-(1 << bits - 1), (1 << bits - 1) - 1)
    near = st.integers(-3, 3)
    lists = st.lists(some, min_size=1, max_size=300) | st.lists(near, min_size=1, max_size=300)
    return (
        lists
        | lists.map(sorted)
        | st.tuples(some, st.integers(1, 600)).map(lambda a: [a[0]] * a[1])
    )


@pytest.mark.parametrize("kind", [pa.int64(), pa.int32()], ids=str)
@given(data=st.data())
def test_numbers_are_those_that_pyarrow_encoded(kind, data):
    """Any numbers, alike, rising, or far apart, come back."""
    values = data.draw(wholes(kind.bit_width))

    found = read_numbers(
        page(values, kind, "DELTA_BINARY_PACKED"), len(values), kind.bit_width // 8
    )

    assert np.frombuffer(found, f"<i{kind.bit_width // 8}").tolist() == values


@pytest.mark.parametrize("block", [8, 64, 250])
def test_numbers_of_every_width_are_unpacked(block):
    """Each part of a block has its own width; a number may lie in nine bytes."""
    pick = Random(block)
    values = [pick.getrandbits(1 + place // block % 64) - (1 << 63) for place in range(64 * block)]

    found = read_numbers(page(values, pa.int64(), "DELTA_BINARY_PACKED"), len(values), 8)

    assert np.frombuffer(found, "<i8").tolist() == values


@given(st.lists(st.binary(max_size=40) | st.just(b"") | st.just(b"\0\xff"), min_size=1), st.data())
def test_byte_arrays_are_cut_by_their_lengths(values, data):
    """One range of rows and several, empty values and zeros among them."""
    body = page(values, pa.binary(), "DELTA_LENGTH_BYTE_ARRAY")
    start = data.draw(st.integers(0, len(values) - 1))
    end = data.draw(st.integers(start + 1, len(values)))

    lengths, at = read_lengths(body, len(values))
    view = joined_byte_arrays(PlainPages(body[at:], len(values), None, lengths), pa.binary())
    one = view.rows(np.array([start]), np.array([end]))
    two = view.rows(np.array([0, start]), np.array([1, end]))

    for array in (one, two):
        array.validate(full=True)
    assert one.to_pylist() == values[start:end]
    assert two.to_pylist() == [values[0], *values[start:end]]


@given(st.lists(st.binary(max_size=9), min_size=1), st.data())
def test_a_key_is_found_among_joined_byte_arrays(values, data):
    """All rows that equal it, and none if there are none."""
    values = sorted(values)
    body = page(values, pa.binary(), "DELTA_LENGTH_BYTE_ARRAY")
    key = data.draw(st.sampled_from(values) | st.binary(max_size=9))

    lengths, at = read_lengths(body, len(values))
    view = joined_byte_arrays(PlainPages(body[at:], len(values), None, lengths), pa.binary())
    low, high = view.find(key, 0, len(values))

    assert [place for place, value in enumerate(values) if value == key] == [*range(low, high)]


@pytest.mark.parametrize("read", [lambda d, n: read_numbers(d, n, 8), read_lengths])
def test_damaged_numbers_are_refused_or_have_the_right_count(read):
    """Whatever the bytes say, they lead to an error, or to as many values as the page has."""
    values = [b"a" * (place % 70) for place in range(400)]
    body = page(values, pa.binary(), "DELTA_LENGTH_BYTE_ARRAY")
    numbers = page([*range(0, 4_000, 7)], pa.int64(), "DELTA_BINARY_PACKED")
    pick = Random(5)
    for whole, count in ((body, 400), (numbers, 572)):
        for _ in range(300):
            broken = bytearray(whole)
            for _ in range(pick.choice((1, 1, 5))):
                broken[pick.randrange(min(len(broken), 40))] = pick.randrange(256)
            cut = bytes(broken[: pick.choice((len(broken), pick.randrange(len(broken))))])
            try:
                found = read(cut, count)
            except ValueError:
                continue
            assert len(found) in {8 * count, 2}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x80\x01\x04",
        b"\x80\x01\x00\x02\x00" + bytes(9),
        b"\x80\x80\x80\x80\x10\x04\x02\x00" + bytes(9),  # a block of four milliards
        b"\x80\x01\x04\x02\x00\x02\x41\x00\x00\x00" + bytes(260),  # 65 bits
        b"\x80\x01\x04\x02\x00\x02\x08\x00\x00\x00" + bytes(31),  # ends early
        b"\x80\x01\x04\x02\x00\x02\x08\x00\x00\x00" + bytes(33),  # does not end
        b"\x80\x01\x04\x03\x00\x02\x08\x00\x00\x00" + bytes(32),  # another count
    ],
)
def test_impossible_numbers_are_refused(body):
    """Blocks without parts, too large, too short, too long, of other counts."""
    with pytest.raises(ValueError, match="a page"):
        read_numbers(body, 2, 8)


def test_numbers_of_other_widths_are_refused():
    """Only whole numbers of four and eight bytes are encoded so."""
    with pytest.raises(ValueError, match="type"):
        read_numbers(b"", 0, 0)


@given(st.lists(st.lists(st.binary(max_size=9), min_size=1), min_size=2, max_size=5), st.data())
def test_values_of_several_pages_are_joined(pages, data):
    """Pages lie apart in the bytes; ranges of rows go over their borders."""
    if data.draw(st.booleans()):
        pages = [[value.ljust(9) for value in page_values] for page_values in pages]
    values = [value for page_values in pages for value in page_values]
    whole, starts, lengths = b"", [], []
    for page_values in pages:
        body = page(page_values, pa.binary(), "DELTA_LENGTH_BYTE_ARRAY")
        each, at = read_lengths(whole + body, len(page_values), len(whole))
        starts.append(at)
        lengths += [each] * len(page_values) if isinstance(each, int) else each.tolist()
        whole += body
    joined = lengths[0] if len({*lengths}) == 1 else np.array(lengths)
    counts = np.array([len(page_values) for page_values in pages])
    found = PlainPages(whole, len(values), None, joined, np.array(starts), counts)
    view = joined_byte_arrays(found, pa.binary())
    start = data.draw(st.integers(0, len(values) - 1))
    end = data.draw(st.integers(start, len(values)))

    one = view.rows(np.array([start]), np.array([end]))
    two = view.rows(np.array([0, start]), np.array([1, end]))

    for array in (one, two):
        array.validate(full=True)
    assert one.to_pylist() == values[start:end]
    assert two.to_pylist() == [values[0], *values[start:end]]
