"""Bounds of keys for readers of other formats (PUB-5)."""

from __future__ import annotations

import pyarrow as pa
import pytest

from sleeper.engine.published.key_bounds import key_bounds
from sleeper.model.files import key_to_text
from sleeper.model.schema import Field, Primitive, Schema


def bounds(kind, *pairs):
    """The bounds of files with these first and last keys."""
    schema = Schema(row_keys=(Field("a", kind), Field("b", Primitive.LONG)))
    texts = ["\n".join(key_to_text((value, 1), schema) or "" for value in pair) for pair in pairs]
    found = key_bounds(pa.chunked_array([pa.array(texts, pa.large_string())]), schema)
    return (
        None
        if found is None
        else [*zip(*(each.to_pylist() for each in found.values()), strict=True)]
    )


@pytest.mark.parametrize("text", ["", "a", 'a,"]\\b', "é", "\ud7ff", "z" * 250])
def test_text_that_all_readers_order_alike_is_a_bound(text):
    """Given such keys, then both bounds are told as they are."""
    assert bounds(Primitive.STRING, (text, text)) == [(text, text)]


@pytest.mark.parametrize(
    "text", ["\ue000", "\uffff", "\U00010000", "a\U0001f600", "\x1f", "z" * 300, "z" * 2000]
)
def test_text_that_readers_order_otherwise_is_no_bound(text):
    """Given such a key at either end, then the file has no bounds at all."""
    assert bounds(Primitive.STRING, ("", text), (text, "z")) == [(None, None)] * 2


def test_bytes_have_no_bounds():
    """Some readers order bytes with a sign."""
    assert bounds(Primitive.BYTES, (b"a", b"b")) is None


def test_files_without_known_keys_have_no_bounds():
    """Given a file of an older version, then the others keep theirs."""
    schema = Schema(row_keys=(Field("a", Primitive.LONG),))
    texts = pa.chunked_array([pa.array([None, "[-3]\n[7]", "\n[7]"], pa.large_string())])

    found = key_bounds(texts, schema)

    assert [each.to_pylist() for each in found.values()] == [[None, -3, None], [None, 7, None]]
