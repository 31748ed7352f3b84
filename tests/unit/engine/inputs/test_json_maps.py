"""Maps of JSON lines become lists of entries, and all else stays."""

from __future__ import annotations

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sleeper.engine.inputs import text_values
from sleeper.engine.inputs.text_values import MapsAsLists, maps_as_lists

NAMES = ["m", 'ü"', "a"]
TEXTS = st.one_of(
    st.sampled_from([*NAMES, "", "\\", '\\"', "{", "}", ":", ","]), st.text(max_size=5)
)
PLAIN = st.one_of(st.none(), st.booleans(), st.integers(-9, 9), TEXTS)
VALUES = st.recursive(
    PLAIN,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3)),
    max_leaves=8,
)
LINES = st.lists(st.dictionaries(TEXTS, VALUES, max_size=4), max_size=5)


def wanted(line):
    """A line with its maps as lists of entries."""
    return {
        name: [{"key": key, "value": each} for key, each in value.items()]
        if name in NAMES and isinstance(value, dict)
        else value
        for name, value in line.items()
    }


@given(LINES, st.booleans(), st.booleans(), st.integers(1, 50))
def test_whatever_is_in_the_lines(lines, is_ascii, is_dense, size):
    """Names and texts with signs of JSON, with escapes or without, and read in pieces."""
    signs = (",", ":") if is_dense else (" , ", " : ")
    written = [json.dumps(line, ensure_ascii=is_ascii, separators=signs) for line in lines]
    text = "\n".join(written).encode()

    found = maps_as_lists(text, NAMES)
    source, pieces = MapsAsLists(io.BytesIO(text), NAMES), []
    while piece := source.read(size):
        assert len(piece) <= size
        pieces.append(piece)

    assert [json.loads(line) for line in found.splitlines()] == [wanted(line) for line in lines]
    assert b"".join(pieces) == found


@pytest.mark.parametrize(
    "line",
    [
        b'{"m": {"a"}}',
        b'{"m": {"a": 1,}}',
        b'{"m": {"a": 1 "b": 2}}',
        b'{"m": {"a": 1]}',
        b'{"m": {"a": 1}',
        b'{"m": {"a: 1}}',
        b'{"m": {,}}',
        b'"m": {"a": 1}}',
        b"{",
        b"}",
        b'"',
        b'\\"',
        b"",
        b"\xff\x00",
    ],
)
def test_what_is_no_json_stays_none(line):
    """It must not become rows: pyarrow refuses it, as it is or as it becomes."""
    with pytest.raises(ValueError, match=r"\w"):
        json.loads(maps_as_lists(line, NAMES))


def test_a_very_long_line_is_given_on(monkeypatch):
    """Memory is bounded: it is refused as too long."""
    monkeypatch.setattr(text_values, "_PIECE_BYTES", 4)
    monkeypatch.setattr(text_values, "_LINE_BYTES_MAX", 16)
    source = MapsAsLists(io.BytesIO(b'{"m": {"a": 1, "b": 2, "c": 3}}\n'), ["m"])

    assert b"".join(iter(lambda: source.read(8), b"")) == b'{"m": {"a": 1, "b": 2, "c": 3}}\n'
