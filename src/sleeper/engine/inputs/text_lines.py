"""Finds where a row of a text file begins, and which values make a column of CSV text.

Readers of pyarrow count rows: a value with a line end in quotes, and lines that are empty, make the
number of a row another one than that of its line. So lines are counted where an error names a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sleeper.model.csv_options import CsvOptions

_BLOCK_BYTES: Final = 8 << 20
_ROW_BYTES_MAX: Final = 16 << 20
_NEWLINE, _RETURN = b"\n\r"
_MARK: Final = b"\xef\xbb\xbf"


class ByteSource(Protocol):
    """A file that is read from its beginning to its end."""

    def read(self, size: int | None = None) -> bytes:
        """Return some bytes; none at the end."""
        ...


def line_of_row(file: ByteSource, row: int, csv: CsvOptions) -> int | None:
    r"""Return the line, from 1, in which a row begins; None where that is not certain.

    >>> from io import BytesIO
    >>> line_of_row(BytesIO(b'a\n"x\ny"\n\n7\n'), 3, CsvOptions())
    5

    Args:
        file: The file, in UTF-8.
        row: The number of the row among those that are not empty, from 1; a header is one.
        csv: How the file is written.
    """
    places = _Places(csv)
    while body := file.read(_BLOCK_BYTES):
        found = places.add(body, row)
        if found is not None:
            return found or None
    return places.end(row)


class _Places:
    """Counts rows and lines of a file, block by block."""

    def __init__(self, csv: CsvOptions) -> None:
        self._quote = None if csv.quote is None else ord(csv.quote)
        self._may_begin = {_NEWLINE, _RETURN, ord(csv.separator), self._quote}
        self._rows = self._lines = 0
        self._in_quotes = False
        self._is_first = True
        self._waiting = b""  # of a row whose end was not read yet

    def add(self, body: bytes, row: int) -> int | None:
        """Count a block. Return the line of the row, 0 if none is certain, None to go on."""
        body = self._waiting + body
        cut = body.rfind(b"\n") + 1
        if not cut and len(body) > _ROW_BYTES_MAX:
            return 0
        whole, rest = body[:cut], body[cut:]
        found = self._count(whole, row)
        self._waiting = rest
        return found

    def end(self, row: int) -> int | None:
        """Return the line of a row that has no line end behind it."""
        return self._count(self._waiting + b"\n", row) or None if self._waiting else None

    def _count(self, body: bytes, row: int) -> int | None:
        if not body:
            return None
        if self._is_first and body.startswith(_MARK):
            body = body[len(_MARK) :]
        self._is_first = False
        text = np.frombuffer(body, np.uint8)
        newlines = np.flatnonzero(text == _NEWLINE)
        inside = self._inside(text)
        if inside is None or ((text[:-1] == _RETURN) & (text[1:] != _NEWLINE)).any():
            return 0
        ends = newlines[~inside[newlines]]
        begun_inside = self._in_quotes
        self._in_quotes = bool(len(inside) and inside[-1])
        starts = np.concatenate(([0], ends[:-1] + 1)) if len(ends) else np.zeros(0, np.int64)
        lengths = ends - starts
        lengths -= (lengths > 0) & (text[ends - 1] == _RETURN)
        filled = lengths > 0
        if begun_inside and len(filled):
            filled[0] = False  # it was counted where it began
        wanted = row - self._rows
        begun = starts[filled]
        if self._in_quotes and len(text):  # a row goes on behind this block
            last = ends[-1] + 1 if len(ends) else 0
            if not (begun_inside and not len(ends)):
                begun = np.append(begun, last)
        if 0 < wanted <= len(begun):
            return self._lines + 1 + int(np.searchsorted(newlines, begun[wanted - 1]))
        self._rows += len(begun)
        self._lines += len(newlines)
        return None

    def _inside(self, text: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_] | None:
        """Return which bytes are in quotes; None where a quote is no beginning of a value."""
        if self._quote is None:
            return np.zeros(len(text), np.bool_)
        is_quote = text == self._quote
        inside = (np.cumsum(is_quote) + self._in_quotes) % 2 == 1
        opening = np.flatnonzero(is_quote & inside)
        before = text[opening[opening > 0] - 1]
        return inside if np.isin(before, [*filter(None, self._may_begin)]).all() else None


# ---------------------------------------------------------------- columns of text


@dataclass(frozen=True, slots=True)
class OddText:
    """Why a column is text, though most of its values are something else.

    Attributes:
        column: The column.
        kind: What most values are.
        value: The first that is not.
        place: Its place among the rows, from 0.
        count: How many values are not.
        total: How many values there are.
    """

    column: str
    kind: str
    value: str
    place: int
    count: int
    total: int


_DATE: Final = r"\d{4}-\d\d-\d\d"
_KINDS: Final = {
    "whole numbers": r"^\s*[-+]?\d{1,18}\s*$",
    "numbers": r"^\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*$",
    "dates": rf"^{_DATE}$",
    "timestamps": rf"^{_DATE}([ T]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[-+]\d\d(:?\d\d)?)?)?$",
    "true or false": r"^(?i:true|false)$",
}
_MOST: Final = 0.5
_DECIMAL_COMMA: Final = r"^\s*[-+]?\d+,\d+\s*$"
_THOUSANDS: Final = r"\d{1,3}([%s' \x{a0}\x{202f}]\d{3})+"
_OTHER_DATE: Final = (
    r"^\s*(\d{1,2}[./-]\d{1,2}[./-]\d{4}|\d{4}[./]\d{1,2}[./]\d{1,2})"
    r"([ T]\d{1,2}:\d\d(:\d\d)?)?\s*$"
)
_LEADING_ZERO: Final = r"^\s*[-+]?0\d"
_MANY_DIGITS: Final = r"^\s*[-+]?(0*[1-9]\d{15,}[1-9]0*\s*$|[0.]*[1-9](\.?\d){16,}\.?[1-9]0*)"
"""Whole numbers of more than 16 digits, and others of more than 17, without zeros at the end."""


def odd_texts(rows: pa.RecordBatch) -> list[OddText]:
    """Return columns of text whose values are mostly of one other kind, with the first that is not.

    Args:
        rows: Columns as they were read: text, or what was found for them.
    """
    found = [_odd(*each) for each in zip(rows.schema.names, rows.columns, strict=True)]
    return [each for each in found if each is not None]


def decimal_commas(rows: pa.RecordBatch) -> dict[str, str]:
    """Return columns of text whose values all seem to be numbers with a comma, with the first.

    >>> decimal_commas(pa.record_batch({"a": ["3,20", None, "-1,5"], "b": ["3,20", "1", "x,5"]}))
    {'a': '3,20'}

    Args:
        rows: Columns as they were read: text, or what was found for them.
    """
    return _texts_like(_DECIMAL_COMMA, rows)


def separated_thousands(rows: pa.RecordBatch, decimal_point: str = ".") -> dict[str, str]:
    """Return columns of text whose values all seem to be numbers, some with separated thousands.

    >>> rows = pa.record_batch({"a": ["1,234.50", "7"], "b": ["7.5", "x"], "c": ["12,50", "1"]})
    >>> separated_thousands(rows)
    {'a': '1,234.50'}

    Args:
        rows: Columns as they were read: text, or what was found for them.
        decimal_point: The character before the fraction of a number.

    Returns:
        The first such value of each.
    """
    grouped = _THOUSANDS % ("." if decimal_point == "," else ",")
    fraction = rf"(\{decimal_point}\d*)?\s*$"
    found = {}
    for name in _texts_like(rf"^\s*[-+]?(\d+|{grouped}){fraction}", rows):
        values = rows.column(name)
        has_groups = pc.match_substring_regex(values, rf"^\s*[-+]?{grouped}{fraction}")
        if has_groups.true_count:
            found[name] = values[pc.index(has_groups, True).as_py()].as_py()
    return found


def other_dates(rows: pa.RecordBatch) -> dict[str, str]:
    """Return columns of text whose values all seem to be dates, but not as in ISO 8601.

    >>> other_dates(pa.record_batch({"a": ["31.12.2025", None], "b": ["1/2/2025 10:00", "x"]}))
    {'a': '31.12.2025'}

    Args:
        rows: Columns as they were read: text, or what was found for them.

    Returns:
        The first value of each.
    """
    return _texts_like(_OTHER_DATE, rows)


def _texts_like(pattern: str, rows: pa.RecordBatch) -> dict[str, str]:
    found = {}
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        values = column.drop_null()
        if values.type == pa.string() and len(values):
            fits = pc.match_substring_regex(values, pattern)
            if fits.false_count == 0:
                found[name] = values[0].as_py()
    return found


def leading_zeros(texts: pa.RecordBatch) -> dict[str, tuple[str, int]]:
    """Return columns with values that begin with a zero and another digit: the first, and how many.

    >>> leading_zeros(pa.record_batch({"a": ["10", "007", "01"], "b": ["0", "-0.5", None]}))
    {'a': ('007', 2)}

    Args:
        texts: Columns of text.
    """
    return _first_like(_LEADING_ZERO, texts)


def lost_digits(texts: pa.RecordBatch) -> dict[str, tuple[str, int]]:
    """Return columns with numbers that lose digits as floats of 64 bits: the first, and how many.

    >>> longs = ["9223372036854775808", "12", "10000000000000000000"]
    >>> lost_digits(pa.record_batch({"a": longs, "b": ["0.12345678901234568", "1e300", None]}))
    {'a': ('9223372036854775808', 1)}

    Args:
        texts: Columns of text.
    """
    return _first_like(_MANY_DIGITS, texts)


def _first_like(pattern: str, texts: pa.RecordBatch) -> dict[str, tuple[str, int]]:
    """Return columns with texts like a pattern, with the first and their number."""
    found = {}
    for name, column in zip(texts.schema.names, texts.columns, strict=True):
        alike = pc.fill_null(pc.match_substring_regex(column, pattern), False)
        if alike.true_count:
            found[name] = column[pc.index(alike, True).as_py()].as_py(), alike.true_count
    return found


def _odd(name: str, column: pa.Array) -> OddText | None:
    total = len(column) - column.null_count
    if column.type != pa.string() or not total:
        return None
    for kind, pattern in _KINDS.items():
        fits = pc.fill_null(pc.match_substring_regex(column, pattern), True)
        odd = len(column) - fits.true_count
        if 0 < odd < total * _MOST:
            place = pc.index(fits, False).as_py()
            return OddText(name, kind, column[place].as_py(), place, odd, total)
    return None
