"""The row keys of a look-up as Arrow."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sleeper.engine.arrow_schema import to_arrow
from sleeper.errors import QueryInvalid
from sleeper.lookup.keys import key_batch, key_rows, one_key_batch
from sleeper.model.schema import Field, Primitive, Schema
from tests.unit.key_values import KEY_VALUES


def one_field(kind: Primitive) -> Schema:
    return Schema(row_keys=(Field("k", kind),))


PAIR = Schema(row_keys=(Field("a", Primitive.STRING), Field("b", Primitive.LONG)))


class TestOneKey:
    """A batch of one row."""

    @given(st.data())
    def test_holds_the_value_as_arrow_would(self, data):
        """Made from bytes, it equals what pyarrow makes of the value, for every key type."""
        kind = data.draw(st.sampled_from([*KEY_VALUES]))
        value = data.draw(KEY_VALUES[kind])
        arrow_schema = to_arrow(one_field(kind))

        batch = one_key_batch((value,), arrow_schema)

        assert batch.column(0).equals(pa.array([value], arrow_schema.field(0).type))


class TestManyKeys:
    """A batch of many."""

    @given(st.lists(st.text()))
    def test_is_sorted_and_has_no_repeats(self, keys):
        """In the order of UTF-8 bytes, which is Python's of strings."""
        schema = one_field(Primitive.STRING)

        batch = key_batch(keys, schema, to_arrow(schema))

        assert key_rows(batch) == [(key,) for key in sorted(set(keys))]

    def test_takes_arrow_and_numpy_arrays(self):
        """Keys from another table need no detour through Python."""
        schema = one_field(Primitive.LONG)
        arrow_schema = to_arrow(schema)

        for keys in (pa.array([3, 1]), np.array([3, 1]), pa.chunked_array([[3], [1]])):
            assert key_rows(key_batch(keys, schema, arrow_schema)) == [(1,), (3,)]

    def test_takes_composite_keys_in_either_form(self):
        """Tuples in the schema's order, or mappings."""
        keys = [("b", 1), {"b": 2, "a": "a"}]

        assert key_rows(key_batch(keys, PAIR, to_arrow(PAIR))) == [("a", 2), ("b", 1)]

    @pytest.mark.parametrize(
        ("schema", "keys", "says"),
        [
            (one_field(Primitive.LONG), ["1"], "integer of 64 bits"),
            (one_field(Primitive.STRING), ["a", None], "no value for 'k'"),
            (one_field(Primitive.STRING), "abc", "did you mean key='abc'. keys= is a list"),
            (one_field(Primitive.LONG), 7, "Give a list of complete row keys, or for one key key="),
            (PAIR, {"a": "x", "b": 1}, "a dict is none. Give a list of complete row keys"),
            (PAIR, ["a"], "whole row keys"),
            (PAIR, [("a", 1), ("a",)], "give a prefix by key="),
        ],
    )
    def test_refuses_what_is_no_key(self, schema, keys, says):
        """With the field, the value and what is wanted."""
        with pytest.raises(QueryInvalid, match=says):
            key_batch(keys, schema, to_arrow(schema))
