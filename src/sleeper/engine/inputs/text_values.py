"""Converts text of CSV and JSON files to the types of a table, without changing a value.

Dates and timestamps are ISO 8601, with a zone exactly if the field has one. So are lengths of time,
which may be days and a time as well. Bytes are base64.
Floats may be `inf` and `nan`; a number that is too large for its type is refused.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import json
import logging
import re
import weakref
from collections.abc import Iterator, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sleeper.columns.type_traits import arrow_traits, is_text
from sleeper.engine.panics import translated_panics


def csv_type(want: pa.DataType) -> pa.DataType:
    """Return the type to read a column of CSV as: text, where pyarrow's own parser is not exact.

    It makes floats infinite that are too large, and keeps decimals with too many digits.
    """
    is_ = pa.types
    if is_.is_binary(want) or is_.is_temporal(want) or is_.is_floating(want):
        return pa.string()
    return pa.string() if is_.is_decimal(want) else want


def json_type(want: pa.DataType) -> pa.DataType:
    """Return the type to read a field of JSON as: text or a wider number, as for `csv_type`."""
    is_ = pa.types
    if is_.is_list(want):
        return pa.list_(want.value_field.with_type(json_type(want.value_type)))
    if is_.is_struct(want):
        return pa.struct([part.with_type(json_type(part.type)) for part in want.fields])
    if is_.is_map(want):  # as `json_maps` rewrites them
        return pa.list_(pa.struct([("key", pa.string()), ("value", json_type(want.item_type))]))
    if is_.is_binary(want) or is_.is_temporal(want):
        return pa.string()
    if is_.is_decimal(want):
        return pa.decimal128(38, want.scale)
    return pa.float64() if is_.is_floating(want) else want


def has_point(want: pa.DataType) -> bool:
    """Return whether texts of a type may have a decimal point."""
    return bool(pa.types.is_decimal(want) or pa.types.is_floating(want))


def with_points(column: pa.Array, decimal_point: str) -> pa.Array:
    """Return texts of numbers with a point where `decimal_point` is, and the other way round.

    So a point in a number with a decimal comma is refused, and does not change its value.
    """
    found = pc.replace_substring(column, ".", "'")
    return pc.replace_substring(found, decimal_point, ".")


def exact_values(column: pa.Array, want: pa.DataType, written: pa.Array | None = None) -> pa.Array:
    """Return a column that was read as `csv_type` or `json_type` says, as type `want`.

    Args:
        column: The column.
        want: Its type in the table.
        written: The column as it is in the file, for errors, if `with_points` has changed it.

    Raises:
        MisfitText: a value does not fit.
    """
    if pa.types.is_nested(want) and column.type != want:
        return _nested(pa.concat_arrays([column]) if column.offset else column, want)
    try:
        return _converted(column, want)
    except (pa.ArrowInvalid, ValueError) as error:
        raise _first_misfit(column, want, error, column if written is None else written) from None


class MisfitText(Exception):
    """A text is not a value of a type.

    Attributes:
        place: Its place in the column.
        reason: What it is, and why it does not fit.
    """

    def __init__(self, place: int, reason: str) -> None:
        super().__init__(reason)
        self.place, self.reason = place, reason


def _nested(column: pa.Array, want: pa.DataType) -> pa.Array:
    """Return structs, lists, or maps that were read as lists of entries, as type `want`."""
    mask = column.is_null() if column.null_count else None
    if pa.types.is_struct(want):
        given = zip(column.flatten(), want.fields, strict=True)
        parts = [exact_values(values, part.type) for values, part in given]
        return pa.StructArray.from_arrays(parts, fields=want.fields, mask=mask)
    try:
        if pa.types.is_list(want):
            values = exact_values(column.values, want.value_type)
            return pa.ListArray.from_arrays(column.offsets, values, type=want, mask=mask)
        keys, values = column.values.field("key"), column.values.field("value")
        for part, allowed in ((keys, False), (values, want.item_field.nullable)):
            if part.null_count and not allowed:
                raise MisfitText(pc.index(part.is_null(), True).as_py(), "a map has a null")
        entries = exact_values(keys, want.key_type), exact_values(values, want.item_type)
        return pa.MapArray.from_arrays(column.offsets, *entries, type=want, mask=mask)
    except MisfitText as misfit:  # its place is among the values
        row = int(np.searchsorted(column.offsets.to_numpy(), misfit.place, "right")) - 1
        raise MisfitText(row, misfit.reason) from None


def _converted(column: pa.Array, want: pa.DataType) -> pa.Array:
    if pa.types.is_decimal(want):
        found = column.cast(want)
        found.validate(full=True)
        return found
    if column.type == want:
        return column
    if pa.types.is_binary(want):
        return _bytes(column)
    row = arrow_traits(want)
    if row is not None and row.from_text is not None:
        return row.from_text(column)
    return _floats(column, want) if pa.types.is_floating(want) else column.cast(want)


@translated_panics("polars")
def _bytes(column: pa.Array) -> pa.Array:
    import polars as pl  # noqa: PLC0415 - slow to import, and few inputs have bytes

    try:
        decoded = pl.Series(column).str.decode("base64", strict=True)
    except pl.exceptions.PolarsError as error:
        raise ValueError(str(error)) from None
    return decoded.to_arrow().cast(pa.binary())


def _floats(column: pa.Array, want: pa.DataType) -> pa.Array:
    """Convert text or doubles to floats, rounded to the nearest number of their type."""
    if is_text(column.type):
        text = pc.utf8_trim_whitespace(column)
        double = text.cast(pa.float64())
        is_infinite = pc.match_substring(text, "inf", ignore_case=True)
    else:
        double = column
        is_infinite = pc.is_inf(double)
    found = double.cast(want)
    too_large = pc.and_(pc.is_inf(found), pc.invert(is_infinite))
    too_small = pc.and_(pc.equal(found, 0), pc.not_equal(double, 0))
    if pc.any(pc.or_(too_large, too_small)).as_py():
        raise ValueError("it is out of the range of the type")
    return found


def _first_misfit(
    column: pa.Array, want: pa.DataType, error: Exception, written: pa.Array
) -> MisfitText:
    """Find the first value that cannot be converted, by halving."""
    low, high = 0, len(column)
    reason = str(error)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            _converted(column.slice(low, middle - low), want)
            low = middle
        except (pa.ArrowInvalid, ValueError) as earlier:
            high, reason = middle, str(earlier)
    value: Any = written[low].as_py()
    shown = str(value) if pa.types.is_decimal(column.type) else repr(value)
    point = "." if column[low].as_py() == value else ","
    why = _why(value, want, reason, point)
    return MisfitText(low, f"{shown:.100} is not a value of {want}: {why}")


def _why(value: Any, want: pa.DataType, reason: str, decimal_point: str) -> str:
    if pa.types.is_binary(want):
        try:
            base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError) as error:
            return f"it is not base64 ({error})"
    if "no zone offset" in reason:
        return "it has a time zone, and the field has none"
    if "zone offset" in reason:
        return "it has no time zone, and the field needs one: write it with Z or an offset"
    if pa.types.is_duration(want):
        return (
            "lengths of time are ISO 8601 without years and months, such as P1DT2H3.5S, or days "
            "and a time, such as 1 days 02:00:03.5, to the microsecond"
        )
    if pa.types.is_temporal(want):
        return (
            "dates and times are ISO 8601, such as 2026-01-31, 2026-01-31T12:00:00Z or 12:00:00.5"
        )
    plain = reason.splitlines()[0].rpartition(": ")[2]
    if not has_point(want) or not isinstance(value, str):
        return plain
    if "as a scalar of type" in plain:
        plain = "it is no number"
    return number_advice(value, decimal_point) or plain


_DECIMAL_COMMA: Final = re.compile(r"[-+]?\d+,\d+")
_POINTS_AND_COMMA: Final = re.compile(r"[-+]?\d{1,3}(?:\.\d{3})+,\d*")
_DECIMAL_POINT: Final = re.compile(r"[-+]?\d+\.\d+")
_THOUSANDS: Final = re.compile(r"[-+]?\d{1,3}([,.' \u00a0\u202f])\d{3}(?:\1\d{3})*(?:[.,]\d*)?")


def number_advice(text: str, decimal_point: str = ".") -> str | None:
    """Return how a text may be meant that is no number; None if nothing is known.

    >>> number_advice("n/a")
    "it is no number: if it stands for null, give it in csv=CsvOptions(null_texts=[...]), on the \
command line --null-text 'n/a'"

    Args:
        text: A value of CSV in a column of numbers.
        decimal_point: The character before the fraction of a number.
    """
    bare = text.strip()
    thousands = _THOUSANDS.fullmatch(bare)
    if thousands and thousands[1] == decimal_point:
        thousands = None
    if decimal_point == "," and _DECIMAL_POINT.fullmatch(bare):
        found = "it has a point, and csv says that a comma is the decimal point (--decimal-point ,)"
        return f"{found}; if it separates thousands, {THOUSANDS_ADVICE}" if thousands else found
    if decimal_point == "." and _DECIMAL_COMMA.fullmatch(bare):
        found = (
            "it has a comma: if that is a decimal point, give csv=CsvOptions(decimal_point=','), "
            "on the command line --decimal-point ,"
        )
        return f"{found}; if it separates thousands, {THOUSANDS_ADVICE}" if thousands else found
    if thousands:
        return f"it has {thousands[1]!r} between thousands: {THOUSANDS_ADVICE}"
    if decimal_point == "." and _POINTS_AND_COMMA.fullmatch(bare):
        return f"it has points between thousands and a decimal comma: {THOUSANDS_ADVICE}"
    if bare and not any(map(str.isdigit, bare)):
        return (
            "it is no number: if it stands for null, give it in csv=CsvOptions(null_texts=[...]), "
            f"on the command line --null-text {text[:20]!r}"
        )
    return None


THOUSANDS_ADVICE: Final = (
    "write the numbers without, or read the file with pandas, which has thousands=, and give the "
    "frame"
)
"""What to do where numbers have a sign between thousands, which no option of CSV names."""


# ---------------------------------------------------------------- text source
#
# A file of text that is lent to readers of pyarrow, and given back by their threads.
#
# Readers of CSV and JSON read ahead in a thread of Arrow, which goes on for a moment when a reader
# is given up because of an error. A thread that then lets go of a Python file, or of bytes that it
# read, while Python ends aborts the process. So whoever opens a file waits until no reader has any.

_log = logging.getLogger(__name__)

_WAIT_S: Final = 60.0


class DecodedFile:
    """A file of text in some encoding, as UTF-8.

    Raises:
        UnicodeError: while it is read: a byte is no text of the encoding, or UTF-8 has none for it.
    """

    def __init__(self, file: Any, encoding: str) -> None:
        self._file = file
        self._decoder = codecs.getincrementaldecoder(encoding)()
        self.bytes_read = 0

    def read(self, size: int | None = None) -> bytes:
        """Read some bytes; none at the end. They may be more than `size`, as UTF-8 is longer."""
        while body := bytes(self._file.read(size)):
            text = self._decoder.decode(body)
            self.bytes_read += len(body)
            if text:
                return text.encode()
        return self._decoder.decode(b"", final=True).encode()


class TextSource:
    """A file that counts the quotes in what is read of it.

    Attributes:
        quotes: How many quotes were read.
    """

    def __init__(self, file: Any, quote: str | None = '"') -> None:
        self._file = file
        self._quote = b"" if quote is None else quote.encode()
        self._lent: dict[int, weakref.ref[Any]] = {}
        self._given_back: SimpleQueue[object] = SimpleQueue()
        self._waiting = b""
        self.quotes = 0

    def read(self, size: int | None = None) -> bytes:
        """Read some bytes; none at the end."""
        body = self._waiting or bytes(self._file.read(size))
        self._waiting = b""
        if size is not None and 0 <= size < len(body):  # a decoded file gives more
            body, self._waiting = body[:size], body[size:]
        if self._quote:
            self.quotes += body.count(self._quote)
        return body

    def lend(self) -> LentSource:
        """Return a file for one reader. Only the reader may hold it."""
        lent = LentSource(self)
        self._keep_watch(lent)
        return lent

    def read_lent(self, size: int | None = None) -> Any:
        """Read some bytes for a reader: as an array, of which is known when nobody has it."""
        body = self.read(size)
        if not body:
            return body
        piece = np.frombuffer(body, np.uint8)
        self._keep_watch(piece)
        with suppress(Empty):  # so that the list does not grow with the file
            while True:
                self._lent.pop(id(self._given_back.get_nowait()))
        return piece

    def _keep_watch(self, lent: object) -> None:
        watch = weakref.ref(lent, self._given_back.put)
        self._lent[id(watch)] = watch

    def wait_for_readers(self) -> None:
        """Wait until no reader has the file or what it read of it, nor a thread of one.

        A thread of Arrow gives it back. What that calls, `SimpleQueue.put`, is no function of
        Python, so the thread keeps the interpreter from there to its end. If it could lose it, this
        process might have ended before the thread has it again, which aborts the process.
        """
        while self._lent:
            try:
                self._lent.pop(id(self._given_back.get(timeout=_WAIT_S)))
            except Empty:
                _log.warning("a reader of text still has its file after %.0f s", _WAIT_S)
                return


class LentSource:
    """A source in the hands of a reader: the part of a Python file that pyarrow uses.

    Attributes:
        read: Reads some bytes. It is the source's, so that no traceback of it holds this value.
        closed: Whether the reader needs it no more. The source stays open.
    """

    def __init__(self, source: TextSource) -> None:
        self.read = source.read_lent
        self.closed = False

    def readable(self) -> bool:
        """Return whether it can be read."""
        return True

    def seekable(self) -> bool:
        """Return whether it has places to go to."""
        return False

    def writable(self) -> bool:
        """Return whether it can be written."""
        return False

    def close(self) -> None:
        """End the use of it. The file stays open."""
        self.closed = True


# ---------------------------------------------------------------- json maps
#
# Rewrites the maps of JSON lines for pyarrow, which reads no maps.
#
#     from {"id": 1, "m": {"a": 1, "b": 2}}
#     to {"id": 1, "m": [{"key":"a","value":1},{"key":"b","value":2}]}
#
# An object becomes a list of its entries: braces, colons and commas are replaced, all other bytes
# stay. They are found in many lines at once, by arrays of bytes. Lines that are not as they should
# be stay as they are, and pyarrow refuses them.

_PIECE_BYTES: Final = 1 << 20
"""Bytes that are rewritten at once; several times as many are needed for it."""

_LINE_BYTES_MAX: Final = 16 << 20
"""A longer line stays as it is: pyarrow refuses it."""

_NEWLINE, _SPACE, _QUOTE, _COMMA, _COLON, _BACKSLASH = b'\n ",:\\'
_OPEN, _CLOSE, _OPEN_LIST, _CLOSE_LIST = b"{}[]"
_Places = npt.NDArray[np.int64]
_Bytes = npt.NDArray[np.uint8]


class MapsAsLists:
    """A file of JSON lines whose maps are lists of entries.

    Args:
        file: The file.
        names: The fields that are maps.
    """

    def __init__(self, file: Any, names: Sequence[str]) -> None:
        self._file = file
        self._names = names
        self._lines = b""  # the beginning of a line, whose end was not read yet
        self._rewritten = memoryview(b"")

    def read(self, size: int) -> bytes:
        """Return up to so many bytes; none at the end."""
        while not self._rewritten:
            piece = bytes(self._file.read(_PIECE_BYTES))
            whole, newline, rest = (self._lines + piece).rpartition(b"\n")
            if piece and not newline and len(rest) <= _LINE_BYTES_MAX:
                self._lines = rest
                continue
            if not piece or not newline:
                whole, rest = whole + newline + rest, b""
            else:
                whole += newline
            self._lines = rest
            self._rewritten = memoryview(maps_as_lists(whole, self._names))
            if not piece:
                break
        found, self._rewritten = self._rewritten[:size], self._rewritten[size:]
        return bytes(found)


def maps_as_lists(lines: bytes, names: Sequence[str]) -> bytes:
    r"""Return lines of JSON whose maps are lists of entries.

    >>> maps_as_lists(b'{"n": 1, "m": {"a": 2}}', ["m"])
    b'{"n": 1, "m": [{"key":"a","value": 2}]}'
    """
    found = _places(np.frombuffer(lines, np.uint8), names)
    return lines if found is None else _replaced(lines, found)


def _places(text: _Bytes, names: Sequence[str]) -> dict[bytes, _Places] | None:
    """Return the places of signs to replace, by what comes there; None if there is nothing."""
    quotes = _quotes(text)
    if len(quotes) % 2:
        return None  # a text does not end
    inside = np.zeros(len(text) + 1, np.int8)
    inside[quotes[::2]], inside[quotes[1::2]] = 1, -1
    plain = np.cumsum(inside[:-1], dtype=np.int8) == 0
    opened = plain & ((text == _OPEN) | (text == _OPEN_LIST))
    closed = plain & ((text == _CLOSE) | (text == _CLOSE_LIST))
    depth = np.cumsum(opened.astype(np.int8) - closed.astype(np.int8), dtype=np.int32)
    if depth[text == _NEWLINE].any():
        return None  # a line does not end
    at_two = np.flatnonzero(opened & (depth == 2))
    ends = np.flatnonzero(closed & (depth == 1))
    if not len(at_two) or len(at_two) != len(ends):
        return None
    is_map = (text[at_two] == _OPEN) & (text[ends] == _CLOSE)
    is_map &= _is_named(text, at_two, quotes, names)
    return _entries(text, at_two, ends, is_map, plain & (depth == 2), quotes)


def _entries(
    text: _Bytes,
    starts: _Places,
    ends: _Places,
    is_map: npt.NDArray[np.bool_],
    in_entry: npt.NDArray[np.bool_],
    quotes: _Places,
) -> dict[bytes, _Places] | None:
    """Return the places of signs to replace in the objects that are maps; None if one is wrong."""
    commas = np.flatnonzero(in_entry & (text == _COMMA))
    colons = np.flatnonzero(in_entry & (text == _COLON))
    of_comma = np.searchsorted(starts, commas) - 1
    of_colon = np.searchsorted(starts, colons) - 1
    count = len(starts)
    entry_count = np.bincount(of_colon, minlength=count)
    has_text = np.searchsorted(quotes, ends) > np.searchsorted(quotes, starts)
    wanted = np.where(has_text, np.bincount(of_comma, minlength=count) + 1, 0)
    if (is_map & (entry_count != wanted)).any() or not is_map.any():
        return None
    filled = is_map & has_text
    empty = is_map & ~has_text
    return {
        b'[{"key":': starts[filled],
        b"}]": ends[filled],
        b"[": starts[empty],
        b"]": ends[empty],
        b',"value":': colons[is_map[of_colon]],
        b'},{"key":': commas[is_map[of_comma]],
    }


def _quotes(text: _Bytes) -> _Places:
    """Return the places of quotes that begin or end a text."""
    quotes = np.flatnonzero(text == _QUOTE)
    if not len(quotes) or not (text == _BACKSLASH).any():
        return quotes
    others = np.flatnonzero(text != _BACKSLASH)
    before = others[np.searchsorted(others, quotes) - 1]
    before[quotes == others[0]] = -1  # the first of all has nothing before it
    ends: _Places = quotes[(quotes - before) % 2 == 1]
    return ends


def _is_named(
    text: _Bytes, starts: _Places, quotes: _Places, names: Sequence[str]
) -> npt.NDArray[np.bool_]:
    """Return whether each object or list is the value of one of some fields."""
    found = np.zeros(len(starts), np.bool_)
    last = np.searchsorted(quotes, starts) - 1
    has_name = last >= 1
    end = quotes[np.where(has_name, last, 1)]
    begin = quotes[np.where(has_name, last - 1, 0)] + 1
    for name in names:
        for form in {json.dumps(name, ensure_ascii=is_ascii)[1:-1] for is_ascii in (True, False)}:
            body = np.frombuffer(form.encode(), np.uint8)
            near = np.flatnonzero(has_name & (end - begin == len(body)))
            same = text[begin[near][:, None] + np.arange(len(body))] == body
            found[near[same.all(axis=1)]] = True
    return found


def _replaced(lines: bytes, found: dict[bytes, _Places]) -> bytes:
    text = np.frombuffer(lines, np.uint8)
    lengths = np.ones(len(text), np.int64)
    for new, places in found.items():
        lengths[places] = len(new)
    ends = np.cumsum(lengths)
    rewritten = np.empty(int(ends[-1]), np.uint8)
    rewritten[ends - lengths] = text
    for new, places in found.items():
        begin = ends[places] - len(new)
        rewritten[begin[:, None] + np.arange(len(new))] = np.frombuffer(new, np.uint8)
    return rewritten.tobytes()


# ---------------------------------------------------------------- batch sizes
#
# Divides batches of rows into parts of bounded size.

BATCH_ROWS_MAX: Final = 131_072
_BATCH_BYTES_MAX: Final = 32 << 20


def small_batches(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Divide a batch into parts of at most 131,072 rows or about 32 MiB, without copying."""
    by_bytes = _BATCH_BYTES_MAX * batch.num_rows // max(1, batch.nbytes)
    step = max(1, min(BATCH_ROWS_MAX, by_bytes))
    for start in range(0, batch.num_rows, step):
        yield batch.slice(start, step)
