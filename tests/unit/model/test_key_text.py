"""Row keys as references keep them."""

from __future__ import annotations

import pytest
from hypothesis import given

from sleeper.model.files import FileReference, key_from_text, key_to_text
from sleeper.model.schema import Field, Primitive, Schema
from tests.unit.state.any_transactions import KEY_VALUES

EVERY_TYPE = Schema(
    row_keys=tuple(Field(f"k{n}", kind) for n, kind in enumerate(KEY_VALUES)),
)
WORDS = Schema(row_keys=(Field("word", Primitive.STRING),))


class TestKeyText:
    """`key_to_text` and `key_from_text`."""

    @pytest.mark.parametrize("kind", list(KEY_VALUES), ids=lambda kind: kind.value)
    def test_every_type_of_key_comes_back(self, kind):
        """Exactly, and in one line: two of them are kept in one column."""
        schema = Schema(row_keys=(Field("k", kind),))

        @given(KEY_VALUES[kind])
        def check(value):
            text = key_to_text((value,), schema)
            assert "\n" not in text
            assert key_from_text(text, schema) == (value,)

        check()

    def test_a_long_key_is_not_kept(self):
        """More than 1 KiB of text would make states large."""
        assert len(key_to_text(("x" * 1020,), WORDS)) == 1024
        assert key_to_text(("x" * 1021,), WORDS) is None

    def test_a_file_without_rows_has_no_keys(self):
        """Its first and last key are None."""
        assert key_to_text((), WORDS) is None


def test_what_is_known_of_a_file_goes_from_reference_to_reference():
    """A push-down and a merge of leaves keep it."""
    old = FileReference(
        filename="a",
        partition_id="root",
        row_count=9,
        size_bytes=7,
        schema_id=1,
        first_key='["a"]',
        last_key='["b"]',
        sequence=3,
    )
    new = FileReference(filename="a", partition_id="L", row_count=4)

    assert new.about_file(old) == FileReference(
        filename="a",
        partition_id="L",
        row_count=4,
        size_bytes=7,
        schema_id=1,
        first_key='["a"]',
        last_key='["b"]',
        sequence=3,
    )
