"""Rewrites the maps of JSON lines for pyarrow, which reads no maps.

    {"id": 1, "m": {"a": 1, "b": 2}}
    {"id": 1, "m": [{"key":"a","value":1},{"key":"b","value":2}]}

An object becomes a list of its entries: braces, colons and commas are replaced, all other bytes
stay. They are found in many lines at once, by arrays of bytes. Lines that are not as they should be
stay as they are, and pyarrow refuses them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

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
    b'{"n": 1, "m": [{"key": "a","value": 2}]}'
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
