"""Each type of column has a whole row in both halves of the table of types."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sleeper.columns.type_traits import (
    ARROW_TRAITS,
    KEY_ITEMS,
    TRAITS_BY_ID,
    arrow_traits,
    arrow_type,
    fitting_kind,
    plain_kind,
)
from sleeper.model.column_types import KEY_TYPES, TYPE_TRAITS, Primitive, key_traits, traits_of
from sleeper.model.schema import DecimalType, ListType, MapType
from tests.unit.key_values import KEY_VALUES

every_type = pytest.mark.parametrize("kind", Primitive)
every_key_type = pytest.mark.parametrize("kind", KEY_TYPES)

PHYSICAL = {
    "BOOLEAN": 0,
    "INT32": 1,
    "INT64": 2,
    "INT96": 3,
    "FLOAT": 4,
    "DOUBLE": 5,
    "BYTE_ARRAY": 6,
    "FIXED_LEN_BYTE_ARRAY": 7,
}


class TestRows:
    """The rows of the table."""

    @every_type
    def test_a_type_has_both_halves_of_a_row(self, kind):
        """One in `model`, one in `columns`, each by the type."""
        assert TYPE_TRAITS[kind].wanted
        assert ARROW_TRAITS[kind].kind is kind
        assert ARROW_TRAITS[kind].key is TYPE_TRAITS[kind].key

    @every_type
    def test_a_type_is_found_by_its_arrow_type(self, kind):
        """And it is the narrowest type for a column of that Arrow type."""
        arrow = arrow_type(kind)

        assert plain_kind(arrow) is kind
        assert fitting_kind(arrow) is kind
        assert arrow_traits(arrow) is ARROW_TRAITS[kind]
        assert ARROW_TRAITS[kind].takes(arrow)

    @every_type
    def test_parquet_stores_it_as_its_row_says(self, kind):
        """The physical type is that of a column that pyarrow writes."""
        file = io.BytesIO()
        pq.write_table(pa.table({"v": pa.nulls(1, arrow_type(kind))}), file)

        written = pq.ParquetFile(file).schema.column(0).physical_type

        assert ARROW_TRAITS[kind].physical == PHYSICAL[written]

    @every_type
    def test_types_with_one_arrow_id_have_the_same_items(self, kind):
        """A row that is found by the id of an Arrow type says the same of keys."""
        found, own = TRAITS_BY_ID[arrow_type(kind).id], ARROW_TRAITS[kind]

        alike = ("numbers", "items", "physical", "mark", "layout", "limits")
        assert [getattr(found, name) for name in alike] == [getattr(own, name) for name in alike]
        if own.key is not None:
            assert found.key.to_item is own.key.to_item
            assert found.key.is_text == own.key.is_text

    def test_lists_and_maps_have_no_row(self):
        """They are made of types that have one."""
        kinds = ListType(Primitive.INT), MapType(Primitive.STRING, Primitive.INT)

        assert [traits_of(kind) for kind in kinds] == [None, None]
        assert [arrow_traits(arrow_type(kind)) for kind in kinds] == [None, None]

    def test_a_decimal_has_a_row_that_says_its_digits(self):
        """Its precision and scale are in what it wants of a value."""
        assert "at most 7 digits, 2 of them" in traits_of(DecimalType(7, 2)).wanted


class TestKeys:
    """Rows of types that keys may have."""

    @every_key_type
    @given(st.data())
    def test_items_have_the_order_of_values(self, kind, data):
        """An item is an integer or bytes, as Parquet stores the value."""
        first, second = data.draw(KEY_VALUES[kind]), data.draw(KEY_VALUES[kind])
        to_item = key_traits(kind).to_item

        assert isinstance(to_item(first), int | bytes)
        assert (to_item(first) < to_item(second)) == (first < second)

    @every_key_type
    @given(st.data())
    def test_items_are_those_that_arrow_holds(self, kind, data):
        """The item of a value is what its array is viewed as."""
        value = data.draw(KEY_VALUES[kind])
        array = pa.array([value], arrow_type(kind))
        items = KEY_ITEMS.get(array.type.id)

        held = array if items is None else array.view(items)

        assert held[0].as_py() == key_traits(kind).to_item(value)

    @every_key_type
    @given(st.data())
    def test_items_and_texts_are_read_back(self, kind, data):
        """Nothing is lost on the way."""
        value = data.draw(KEY_VALUES[kind])
        traits = key_traits(kind)

        assert traits.from_item(traits.to_item(value)) == value
        assert traits.from_text(traits.to_text(value)) == value

    @every_key_type
    @given(st.data())
    def test_nothing_lies_between_a_value_and_the_following(self, kind, data):
        """Nor is anything less than the smallest, or more than the largest."""
        value, other = data.draw(KEY_VALUES[kind]), data.draw(KEY_VALUES[kind])
        traits = key_traits(kind)

        assert traits.smallest <= other
        assert traits.largest is None or other <= traits.largest
        if value != traits.largest:
            assert other <= value or other >= traits.following(value)

    @every_key_type
    def test_an_example_is_one(self, kind):
        """A form shows no example of another type; what is no example says what to write."""
        traits = key_traits(kind)
        if traits.example.startswith("such as "):
            value = traits.from_text(traits.example.removeprefix("such as "))

            assert traits.plain(value) == value
        else:
            assert traits.text_form in (None, traits.example)

    def test_other_types_are_not_for_keys(self):
        """Floats and booleans have no order that all engines agree on; times are values."""
        assert {*Primitive} - {*KEY_TYPES} == {
            Primitive.FLOAT,
            Primitive.DOUBLE,
            Primitive.BOOLEAN,
            Primitive.TIME,
            Primitive.DURATION,
        }
