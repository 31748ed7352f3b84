"""Many texts are found among bytes at once, by themselves and not inside of longer ones."""

from __future__ import annotations

import pyarrow as pa
import pytest

from sleeper.engine.byte_search import ByteSearch, count_equal, joined_bytes, texts_of

KEYS = [b"ann@mail.example", "zürich".encode(), b"nul\0inside", b"\xff\xfe\xfd\x01raw"]


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("around", ['"%s"', "[%s, 1]", "%s", "\0%s\0", "é %s é", "say: %s."])
def test_a_text_is_found_where_it_stands_by_itself(key, around):
    """Given quotes, commas and other bytes around it, each text counts once."""
    before, _, after = around.partition("%s")
    data = before.encode("latin-1") + key + after.encode("latin-1").removesuffix(b".")

    assert ByteSearch(KEYS).count(data) == 1


@pytest.mark.parametrize(
    "data", [b"joann@mail.example", b"ann@mail.example.org", b"ann@mail.exampl"]
)
def test_a_text_inside_of_a_longer_one_is_anothers(data):
    """Given letters before or behind it, it is not found."""
    assert ByteSearch(KEYS).count(data) == 0


def test_a_text_with_its_length_before_it_is_found_whatever_follows():
    """Given strings as Parquet has them, the next length may look like a letter."""
    size = len(KEYS[0])

    assert ByteSearch(KEYS).count(size.to_bytes(4, "little") + KEYS[0] + b"A\0\0\0") == 1
    assert ByteSearch(KEYS).count(b"\x18" + bytes([size]) + KEYS[0] + b"A") == 1


def test_without_texts_nothing_is_found():
    """Given no text, or no bytes, the count is 0."""
    assert ByteSearch([]).count(b"anything") == 0
    assert ByteSearch(KEYS).count(b"") == 0


def test_texts_of_nested_values_are_found_by_their_column():
    """Given lists, structs, maps and dictionaries, each text in them is seen."""
    rows = pa.table(
        {
            "plain": ["a", None],
            "list": [["b", "c"], []],
            "struct": [{"x": b"d"}, None],
            "map": pa.array([[("e", "f")], []], pa.map_(pa.string(), pa.string())),
            "number": [1, 2],
            "coded": pa.array(["g", "g"]).dictionary_encode(),
        }
    )

    found = [(name, text) for name, texts in texts_of(rows) for text in texts.to_pylist() if text]

    assert found == [
        ("plain", "a"),
        ("list", "b"),
        ("list", "c"),
        ("struct", b"d"),
        ("map", "e"),
        ("map", "f"),
        ("coded", "g"),
    ]


def test_values_are_compared_and_joined():
    """Given texts with nulls, equal ones are counted, and all are joined with an end each."""
    texts = pa.array(["x", "ab", None, "cd"]).slice(1)

    assert count_equal(texts, pa.array([b"cd", b"x"], pa.large_binary())) == 1
    assert joined_bytes(texts) == b"ab\0\0cd\0"
    assert joined_bytes(texts.slice(0, 0)) == b""


def test_items_are_named_in_order_however_they_were_put_together():
    """Given small and large bytes, then those with a text are told, and no text across two."""
    large = b"." * (1 << 20)
    items = {
        "none": b"nothing",
        "first": b"to " + KEYS[0],
        "large": large + b" " + KEYS[0],
        "half": b"nul",
        "other half": b"inside",
        "last": KEYS[2],
    }

    assert [*ByteSearch(KEYS).named(items.items())] == ["first", "large", "last"]
    assert [*ByteSearch(KEYS).named([])] == []
