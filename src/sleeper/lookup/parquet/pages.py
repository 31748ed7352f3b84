"""Pages: their headers, checksums and compression.

A page's checksum does not cover its header, so each number of the header is checked: sizes against
the offset index and the decompressed size, value counts against the rows of the page, the encoding
against the column chunk's list.

Source: parquet-format, parquet.thrift (PageHeader), Encodings.md, Compression.md.
"""

from __future__ import annotations

import re
import threading
import zlib
from collections import deque
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sleeper.lookup.parquet.compact_protocol import read_struct, read_varint
from sleeper.lookup.parquet.footer import CODECS, ColumnChunk, Leaf

# ---------------------------------------------------------------- levels
#
# Definition and repetition levels: small numbers that mark null values of a page.
#
# Levels are two kinds of runs, each preceded by a varint: one repeated level, or groups of eight
# levels packed into bits. Only levels of flat optional columns, which are 0 (null) or 1, are
# expanded here. For all others only their number is checked.
#
# Source: parquet-format, Encodings.md (RLE / bit-packing hybrid).

Flags = npt.NDArray[np.bool_]
"""One flag for each row: whether it has a value."""

_BYTE_OF_LEVEL = (b"\x00", b"\x01")


def present_rows(levels: bytes, count: int, needed: int | None = None) -> Flags | None:
    """Return which of `count` rows of a flat optional column have a value; None if all have one.

    Needs at most nine bytes a row, and eight for each byte of `levels`.

    Args:
        levels: Their levels.
        count: The rows of the page.
        needed: How many of the first are wanted; all if None. What follows is not looked at.

    Raises:
        ValueError: the number of levels differs from `count`, they do not end with their bytes,
            or are larger than 1.
    """
    if len(levels) < 12:  # One run, as in nearly all pages without nulls: no loop is needed.
        run, at = read_varint(levels + b"\x00", 0)
        if run == count << 1 and at + 1 == len(levels) and levels[at] < 2:
            return None if levels[at] else np.zeros(count if needed is None else needed, np.bool_)
    wanted = count if needed is None else min(needed, count)
    one_byte_each = _expanded(levels, count, wanted)
    present = np.frombuffer(one_byte_each, np.bool_, wanted)
    return None if np.count_nonzero(present) == wanted else present


def _expanded(levels: bytes, count: int, wanted: int) -> bytes:
    """Return the first levels as one byte each, possibly with more at the end.

    The loop is over runs. A run of one level is eight rows long or longer, for all writers that we
    know of.
    """
    packed = np.unpackbits(np.frombuffer(levels, np.uint8), bitorder="little").tobytes()
    parts = []
    at = found = 0
    end = len(levels)
    while at < end and found < wanted:
        run = levels[at]
        at += 1
        if run > 127:
            run, at = _long_run(levels, at - 1)
        length = run >> 1
        if run & 1:
            parts.append(packed[8 * at : 8 * (at + length)])
            at += length
            found += 8 * length
        else:
            if at == end or length > count - found or levels[at] > 1:
                raise ValueError("a page's levels are damaged")
            parts.append(_BYTE_OF_LEVEL[levels[at]] * length)
            at += 1
            found += length
    if found < wanted or (wanted == count and (at != end or found >= count + 8)):
        raise ValueError("a page's levels do not fit its header")
    return b"".join(parts)


def _long_run(levels: bytes, at: int) -> tuple[int, int]:
    try:
        return read_varint(levels, at)
    except IndexError:
        raise ValueError("a page's levels end within a number") from None


def levels_fill(levels: bytes, level_max: int, count: int) -> bool:
    """Return whether RLE and bit-packed runs have `count` levels and end with the bytes."""
    if level_max == 0:
        return len(levels) == 0
    width = level_max.bit_length()
    at = found = 0
    while at < len(levels) and found < count:
        run, at = read_varint(levels, at)
        if run & 1:
            found += (run >> 1) * 8
            at += (run >> 1) * width
        else:
            found += run >> 1
            at += (width + 7) // 8
    return at == len(levels) and count <= found < count + 8


DATA_PAGE, INDEX_PAGE, DICTIONARY_PAGE, DATA_PAGE_V2 = range(4)
PLAIN, PLAIN_DICTIONARY, RLE, RLE_DICTIONARY = 0, 2, 3, 8
DELTA_BINARY_PACKED, DELTA_LENGTH_BYTE_ARRAY = 5, 6


Buffer = bytes | memoryview
"""Bytes of a file: as read, or a view of a larger read."""


INFLATED_BYTES_FREE = 256 << 20
INFLATED_RATIO_MAX = 1_000
VALUES_MAX = 1 << 26
"""A page may decompress to 256 MiB, or to a thousand times the bytes of its whole column chunk,
whichever is more; and it may have 67,108,864 values. Small files can announce more than any memory
holds."""


def is_bomb(inflated_bytes: int, chunk_bytes: int) -> bool:
    """Return whether a page of a chunk, or a chunk, would take more memory than is accepted."""
    return inflated_bytes > max(INFLATED_BYTES_FREE, INFLATED_RATIO_MAX * chunk_bytes)


def check_inflated(header: Buffer, at: int, chunk: ColumnChunk) -> None:
    """Check only that a page decompresses to no more than is accepted, by its header.

    Raises:
        ValueError: it would.
    """
    usual = header[at] == 0x15 and header[at + 2] == 0x15
    if usual and (header[at + 3] < 128 or header[at + 4] < 128 or header[at + 5] < 128):
        return  # a number of at most three bytes: less than 1 MiB
    _check_size(read_struct(bytes(header[at:]))[0][2], chunk)


def _check_size(size: int, chunk: ColumnChunk) -> None:
    if size < 0 or is_bomb(size, chunk.size):
        raise ValueError(
            f"a page of its {chunk.size:,} compressed bytes would become {size:,} in memory, which "
            "is more than is accepted"
        )


class Page(NamedTuple):
    """One page of a file.

    Attributes:
        kind: DATA_PAGE, DICTIONARY_PAGE or DATA_PAGE_V2.
        encoding: Parquet's number of the encoding of its values.
        value_count: Values, nulls included; with nesting, also empty lists.
        row_count: Rows, if the header has them (version 2), else None.
        null_count: Nulls, in the same way.
        uncompressed_size: Bytes of the body when decompressed, levels included.
        levels_sizes: Bytes of repetition and definition levels in a version 2 page, else zeros.
        has_checksum: Whether the header has one, which was then checked.
        is_compressed: False if a version 2 page says so, or the column has no codec.
        body: The bytes after the header.
    """

    kind: int
    encoding: int
    value_count: int
    row_count: int | None
    null_count: int | None
    uncompressed_size: int
    levels_sizes: tuple[int, int]
    has_checksum: bool
    is_compressed: bool
    body: memoryview


def read_pages(raw: Buffer, chunk: ColumnChunk, leaf: Leaf) -> list[Page]:
    """Split the bytes of adjacent pages and check each page.

    Raises:
        ValueError: a page is damaged, or they do not fill `raw` exactly.
    """
    view = memoryview(raw)
    page = _usual_page(raw, view, chunk)
    if page is not None:
        return [page]
    pages = []
    at = 0
    while at < len(raw):
        header, body_at = usual_header(raw, at) or read_struct(bytes(raw), at)
        at = body_at + header[3]
        if header[3] < 0 or at > len(raw):
            raise ValueError("a page is larger than the page index says")
        if header[1] != INDEX_PAGE:
            pages.append(_checked_page(header, view[body_at:at], chunk, leaf))
    return pages


def usual_header(raw: Buffer, at: int) -> tuple[dict[int, Any], int] | None:
    """Decode the most frequent header: of a data page without statistics; None if it is another.

    The result is that of `read_struct`: kind, sizes, possibly a checksum, and a struct of numbers.
    That struct is the same for most pages, so its decoded form is cached.
    """
    found = _USUAL_HEADER.match(raw, at)
    if found is None:
        return None
    kind, size, compressed, checksum, version_1, version_2 = found.groups()
    header: dict[int, Any] = {1: kind[0] >> 1, 2: _number(size), 3: _number(compressed)}
    if checksum is not None:
        header[4] = _number(checksum)
    if version_1 is not None:
        header[5] = _about_page(version_1)
    else:
        header[8] = _about_page(version_2)
    return header, found.end()


_V = rb"[\x80-\xff]{0,4}[\x00-\x7f]"
_USUAL_HEADER = re.compile(
    rb"\x15([\x00\x06])\x15(%b)\x15(%b)(?:\x15(%b)(?=[\x1c\x4c])|(?=[\x2c\x5c]))"
    rb"(?:[\x1c\x2c]((?:\x15%b){4}\x00)|[\x4c\x5c]((?:\x15%b){6}[\x11\x12]?\x00))\x00"
    % (_V, _V, _V, _V, _V),
    re.DOTALL,
)
"""The kind, two sizes, a checksum or not, then the struct of a version 1 or a version 2 page."""


class CompressedHeader(NamedTuple):
    """The most frequent header of a data page, for who decompresses it.

    Attributes:
        without_codec: The header of the same page when it is not compressed, without a checksum.
        end: Where the body begins.
        size: Bytes of the body when decompressed, levels included.
        compressed_size: Bytes of the body.
        levels_size: The first bytes of the body that are never compressed.
        is_compressed: False if a version 2 page says so.
    """

    without_codec: bytes
    end: int
    size: int
    compressed_size: int
    levels_size: int
    is_compressed: bool


def compressed_header(raw: Buffer, at: int) -> CompressedHeader | None:
    """Return a header of the most frequent kind; None if it is another."""
    found = _USUAL_HEADER.match(raw, at)
    if found is None:
        return None
    kind, size, compressed, _, version_1, version_2 = found.groups()
    end, whole = found.end(), _number(size)
    if version_1 is not None:
        start = b"\x15%b\x15%b\x15%b\x2c%b\x00" % (kind, size, size, version_1)
        return CompressedHeader(start, end, whole, _number(compressed), 0, True)
    numbers = _version_2(version_2)
    if numbers is None or sum(numbers[4]) > whole:
        return None
    start = b"\x15%b\x15%b\x15%b\x5c%b\x00" % (kind, size, size, version_2)
    levels, is_compressed = sum(numbers[4]), numbers[5]
    return CompressedHeader(start, end, whole, _number(compressed), levels, is_compressed)


@lru_cache(maxsize=1024)
def _about_page(numbers: bytes) -> dict[int, Any]:
    """Decode the struct inside a page header. Callers must not change it."""
    return read_struct(numbers)[0]


def _number(varint: bytes) -> int:
    value = varint[0]
    if value > 127:  # inlined, because it is called three times a page
        value &= 127
        shift = 7
        for byte in varint[1:]:
            value |= (byte & 127) << shift
            shift += 7
    return (value >> 1) ^ -(value & 1)


def _usual_page(raw: Buffer, view: memoryview, chunk: ColumnChunk) -> Page | None:
    """Check a single page with the most frequent header of all; None if it is anything else.

    It is of version 2, with a checksum, and of ordinary size.
    """
    found = _USUAL_HEADER.match(raw)
    if found is None:
        return None
    _, size, compressed, checksum, _, about = found.groups()
    body = view[found.end() :]
    if about is None or checksum is None or _number(compressed) != len(body):
        return None
    numbers, uncompressed_size = _version_2(about), _number(size)
    if numbers is None or not 0 <= uncompressed_size <= min(
        chunk.uncompressed_size, INFLATED_BYTES_FREE
    ):
        return None
    values, nulls, rows, encoding, levels, is_compressed = numbers
    is_compressed = is_compressed and chunk.codec != 0
    if (
        encoding not in chunk.encodings
        or levels[0] + levels[1] > len(body)
        or not (is_compressed or uncompressed_size == len(body))
    ):
        return None
    if zlib.crc32(body) != _number(checksum) & 0xFFFFFFFF:
        raise ValueError("a page's checksum does not match its bytes")
    return Page(
        DATA_PAGE_V2,
        encoding,
        values,
        rows,
        nulls,
        uncompressed_size,
        levels,
        True,
        is_compressed,
        body,
    )


@lru_cache(maxsize=1024)
def _version_2(about: bytes) -> tuple[int, int, int, int, tuple[int, int], bool] | None:
    """Return the numbers of a version 2 page; None if they are not ordinary."""
    numbers = read_struct(about)[0]
    values, levels = numbers[1], (numbers[6], numbers[5])
    if not 0 <= values <= VALUES_MAX or min(levels) < 0:
        return None
    return values, numbers[2], numbers[3], numbers[4], levels, numbers.get(7, True)


def _checked_page(header: dict[int, Any], body: memoryview, chunk: ColumnChunk, leaf: Leaf) -> Page:
    checksum = header.get(4)
    if checksum is not None and zlib.crc32(body) != checksum & 0xFFFFFFFF:
        raise ValueError("a page's checksum does not match its bytes")
    _check_size(header[2], chunk)
    if header[2] > chunk.uncompressed_size:
        raise ValueError("a page is larger than its column chunk")
    kind = header[1]
    compressed = chunk.codec != 0
    rows, nulls, levels = None, None, (0, 0)
    if kind == DATA_PAGE:
        about = header[5]
        encoding = about[2]
        _check_level_encodings(about, leaf)
    elif kind == DATA_PAGE_V2:
        about = header[8]
        encoding, rows, nulls = about[4], about[3], about[2]
        levels = (about[6], about[5])
        compressed = compressed and about.get(7, True)
        if min(levels) < 0 or sum(levels) > len(body):
            raise ValueError("a page header is damaged")
    elif kind == DICTIONARY_PAGE:
        about = header[7]
        encoding = about[2]
    else:
        raise ValueError(f"a page has unknown kind {kind}")
    if (encoding not in chunk.encodings and kind != DICTIONARY_PAGE) or about[1] < 0:
        raise ValueError("a page header is damaged")
    if about[1] > VALUES_MAX:
        raise ValueError(f"a page has {about[1]:,} values, and at most {VALUES_MAX:,} are accepted")
    if not compressed and header[2] != len(body):
        raise ValueError("an uncompressed page has two different sizes")
    has_checksum = checksum is not None
    size = header[2]
    return Page(kind, encoding, about[1], rows, nulls, size, levels, has_checksum, compressed, body)


def _check_level_encodings(about: dict[int, Any], leaf: Leaf) -> None:
    """Check that levels of version 1 pages are RLE: older bit-packing has no length to check."""
    if (leaf.definition_max and about[3] != RLE) or (leaf.repetition_max and about[4] != RLE):
        raise ValueError("a page's levels are encoded in a way that is not supported")


def check_levels(page: Page, leaf: Leaf) -> None:
    """Check that the levels of a version 2 page have exactly the length in its header.

    Raises:
        ValueError: they do not.
    """
    if page.kind != DATA_PAGE_V2:
        return
    repetition, definition = page.levels_sizes
    levels = bytes(page.body[: repetition + definition])
    for part, level_max in (
        (levels[:repetition], leaf.repetition_max),
        (levels[repetition:], leaf.definition_max),
    ):
        if not levels_fill(part, level_max, page.value_count):
            raise ValueError("a page's levels do not fit its header")


def decompressed(page: Page, codec: int) -> bytes:
    """Return the body of a version 1 or dictionary page, or the values of a version 2 page.

    Raises:
        ValueError, OSError: it does not decompress to the size in its header.
    """
    levels = sum(page.levels_sizes)
    body = page.body[levels:] if levels else page.body
    size = page.uncompressed_size - levels
    if not page.is_compressed:
        return bytes(body)
    if size == 0 and not body:
        return b""
    return decompress(CODECS[codec] or "", body, size)


def decompress(codec: str, body: memoryview, size: int) -> bytes:
    """Decompress `body` to exactly `size` bytes.

    pyarrow does not return the decompressed size. zstd refuses a different size, snappy stores its
    size at the start, and gzip is decompressed by `zlib`. Of lz4 a size that is too large is not
    noticed here: the end of the bytes is then arbitrary, and whoever reads values of them checks
    that they fill the page. Other codecs are left to pyarrow's page reader, which checks the size.
    """
    if codec == "gzip":
        stream = zlib.decompressobj(47)
        try:
            data = stream.decompress(body, size + 1)
        except zlib.error as error:
            raise ValueError(f"a page does not decompress: {error}") from None
        if len(data) != size or not stream.eof:
            raise ValueError("a page does not decompress to the size in its header")
        return data
    if codec == "zstd" and size <= _STREAM_BYTES and _has_small_window(body):
        return _decompressed_by_stream(body, size)
    if codec == "snappy" and read_varint(bytes(body[:10]), 0)[0] != size:
        raise ValueError("a page does not decompress to the size in its header")
    data = bytes(_codec(codec).decompress(body, size, asbytes=True))
    if len(data) != size:
        raise ValueError("a page does not decompress to the size in its header")
    return data


OWN_CODECS = frozenset((0, 1, 2, 6, 7))
"""Codecs whose pages this module decompresses: none, snappy, gzip, zstd, lz4 (raw blocks)."""

_of_thread = threading.local()


def _codec(name: str) -> Any:
    """Return this thread's codec: threads must not share decompression contexts."""
    codec = getattr(_of_thread, name, None)
    if codec is None:
        codec = pa.Codec(name)
        setattr(_of_thread, name, codec)
    return codec


_STREAM_BYTES = 256 << 10
"""Pages up to this size are decompressed by a stream. It copies them, so larger ones would lose."""

_WINDOW_EXPONENT_MAX = 11
_ONE_SEGMENT = 0x20
"""A zstd frame in one segment needs a window of its own size; others say theirs: 2 MiB for 11."""


def _has_small_window(frame: memoryview) -> bool:
    """Return whether a stream needs little memory for a zstd frame, by the start of its header."""
    return len(frame) > _FRAME_HEADER_MIN and bool(
        frame[4] & _ONE_SEGMENT or frame[5] >> 3 <= _WINDOW_EXPONENT_MAX
    )


_FRAME_HEADER_MIN = 6


class _OneBody:
    """A file for pyarrow that has one body at a time."""

    closed = False
    body: memoryview | bytes = b""

    def read(self, size: int) -> memoryview | bytes:
        """Return the whole body the first time, then nothing."""
        body, self.body = self.body[:size], self.body[size:]
        return body

    def close(self) -> None:
        """Do nothing: the body is in memory."""


_idle_streams = deque[tuple[Any, _OneBody]](maxlen=64)


def _decompressed_by_stream(body: memoryview, size: int) -> bytes:
    """Decompress zstd frames by a stream that no thread uses now, which keeps its context.

    pyarrow's codec makes a context for each call, which takes as long as 10,000 bytes. A stream is
    no variable of its thread: to delete it takes the interpreter's lock, and where a thread of
    another library ends its use of Python, that ends the process.

    Raises:
        ValueError, OSError: they do not decompress to exactly `size` bytes.
    """
    try:
        stream, file = _idle_streams.pop()  # none is kept after an error, in whatever state it is
    except IndexError:
        file = _OneBody()
        stream = pa.CompressedInputStream(pa.PythonFile(file, mode="r"), "zstd")
    file.body = body
    data = stream.read(size + 1)  # so that the end is seen, too
    if len(data) != size:
        raise ValueError("a page does not decompress to the size in its header")
    _idle_streams.append((stream, file))
    return bytes(data)
