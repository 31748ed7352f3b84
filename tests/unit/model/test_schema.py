"""Schemas: which fields a table may have, and how they are written as JSON."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sleeper.errors import SchemaInvalid
from sleeper.model.schema import (
    KEY_TYPES,
    DecimalType,
    Field,
    ListType,
    MapType,
    Primitive,
    Schema,
    StructType,
    type_from_json,
    type_from_text,
    type_to_json,
    type_to_text,
)

KEY = Field("key", Primitive.STRING)
VALUE_TYPES = (Primitive.FLOAT, Primitive.DOUBLE, Primitive.BOOLEAN)

decimals = st.integers(1, 38).flatmap(
    lambda precision: st.builds(DecimalType, st.just(precision), st.integers(0, precision))
)
elements = st.sampled_from(Primitive) | decimals
types = elements | st.builds(ListType, elements) | st.builds(MapType, elements, elements)
names = st.text(min_size=1).filter(lambda name: "\0" not in name)
key_fields = st.builds(Field, names, st.sampled_from(KEY_TYPES))
value_fields = st.builds(Field, names, types, st.booleans())


@st.composite
def schemas(draw):
    fields = draw(
        st.tuples(
            st.lists(key_fields, min_size=1, max_size=3),
            st.lists(key_fields, max_size=3),
            st.lists(value_fields, max_size=3),
        ).filter(lambda groups: len({f.name for g in groups for f in g}) == sum(map(len, groups)))
    )
    columns = draw(st.permutations([field.name for group in fields for field in group]))
    return Schema(row_keys=fields[0], sort_keys=fields[1], values=fields[2], columns=columns)


class TestSchema:
    """Three ordered groups of fields."""

    def test_fields_are_row_keys_then_sort_keys_then_values(self):
        """The order within a group is the order given (SCH-1)."""
        schema = Schema(
            row_keys=[Field("b", Primitive.LONG), Field("a", Primitive.INT)],
            sort_keys=[Field("d", Primitive.BYTES)],
            values=[Field("c", Primitive.DOUBLE)],
        )

        assert schema.names == ("b", "a", "d", "c")
        assert schema.key_names == ("b", "a", "d")
        assert schema.row_key_names == ("b", "a")

    def test_columns_are_in_the_order_of_fields_unless_it_is_given(self):
        """And a schema with another order of columns is another schema (SCH-10)."""
        fields = {"row_keys": [KEY], "values": [Field("v", Primitive.LONG)]}

        assert Schema(**fields).columns == ("key", "v")
        assert Schema(**fields, columns=["v", "key"]).columns == ("v", "key")
        assert Schema(**fields, columns=["key", "v"]) == Schema(**fields)
        assert Schema(**fields, columns=["v", "key"]) != Schema(**fields)
        assert Schema(**fields, columns=["v", "key"]).as_stored() == Schema(**fields)

    @pytest.mark.parametrize(
        "columns", [["key"], ["key", "w"], ["v", "key", "key"], ["v", "key", "w"], "vkey"]
    )
    def test_columns_are_all_fields_each_once(self, columns):
        """None is left out, repeated or unknown (SCH-10)."""
        with pytest.raises(SchemaInvalid, match="columns"):
            Schema(row_keys=[KEY], values=[Field("v", Primitive.LONG)], columns=columns)

    def test_wants_a_row_key(self):
        """A table without row keys has nothing to be partitioned by (SCH-1, SCH-3)."""
        with pytest.raises(SchemaInvalid, match="Must have at least one row key field"):
            Schema(row_keys=[])

    @pytest.mark.parametrize("kind", KEY_TYPES)
    def test_keys_may_be_of_any_type_with_an_agreed_order(self, kind):
        """Integers, strings, bytes, dates and timestamps (rule SCH-2)."""
        schema = Schema(row_keys=[Field("r", kind)], sort_keys=[Field("s", kind)])

        assert [field.type for field in schema.keys] == [kind, kind]

    @pytest.mark.parametrize("kind", [*VALUE_TYPES, DecimalType(5, 2)])
    def test_keys_may_not_be_of_a_type_without_one(self, kind):
        """Engines disagree about -0.0 and NaN; the message says which types may be keys."""
        with pytest.raises(SchemaInvalid, match=r"Row key field 'x' cannot be.*LongType"):
            Schema(row_keys=[Field("x", kind)])

    @pytest.mark.parametrize("name", ["", "a\ud800", "a\0b", "\0", None, 5])
    def test_a_field_needs_a_name_that_is_text(self, name):
        """Not empty, and of characters that Unicode has, without NUL."""
        with pytest.raises(SchemaInvalid, match=r"field name|needs a name"):
            Field(name, Primitive.LONG)

    @pytest.mark.parametrize(
        "kind", [ListType(Primitive.INT), MapType(Primitive.STRING, Primitive.LONG)]
    )
    def test_keys_may_not_be_lists_or_maps(self, kind):
        """Upstream's words (SCH-3)."""
        with pytest.raises(SchemaInvalid, match="Row key fields must have a primitive type"):
            Schema(row_keys=[Field("x", kind)])
        with pytest.raises(SchemaInvalid, match="Sort key fields must have a primitive type"):
            Schema(row_keys=[KEY], sort_keys=[Field("x", kind)])

    def test_keys_may_not_be_null(self):
        """Upstream's words (SCH-3); values may be (SCH-5)."""
        nullable = Field("x", Primitive.INT, nullable=True)

        with pytest.raises(SchemaInvalid, match="Row key fields cannot be nullable: 'x'"):
            Schema(row_keys=[nullable])
        with pytest.raises(SchemaInvalid, match="Sort key fields cannot be nullable: 'x'"):
            Schema(row_keys=[KEY], sort_keys=[nullable])

        assert Schema(row_keys=[KEY], values=[nullable]).values == (nullable,)

    def test_a_name_is_used_once(self):
        """Across all groups; every repeated name is told, sorted (SCH-4)."""
        with pytest.raises(SchemaInvalid, match=r"\['a', 'b'\]"):
            Schema(
                row_keys=[Field("b", Primitive.INT), Field("a", Primitive.INT)],
                sort_keys=[Field("a", Primitive.INT), Field("c", Primitive.INT)],
                values=[Field("b", Primitive.INT)],
            )

    @pytest.mark.parametrize("name", ["", None, 3])
    def test_a_field_has_a_name(self, name):
        """Any text but the empty one."""
        with pytest.raises(SchemaInvalid, match="needs a name"):
            Field(name, Primitive.INT)

    @pytest.mark.parametrize(("precision", "scale"), [(0, 0), (39, 0), (3, 4), (3, -1)])
    def test_a_decimal_fits_128_bits(self, precision, scale):
        """1 to 38 digits, of which some are behind the point."""
        with pytest.raises(SchemaInvalid, match=f"precision {precision}, scale {scale}"):
            DecimalType(precision, scale)


_LIST = {"ListType": {"elementType": "IntType"}}
_DECIMALS = {"ListType": {"elementType": {"DecimalType": {"precision": 3, "scale": 1}}}}
_MAP = {"keyType": "StringType", "valueType": {"NullableType": _DECIMALS}}


class TestSchemaJson:
    """Upstream's schema.json, with a few types more (rule FMT-3)."""

    def test_reads_what_upstream_writes(self):
        """Every type that upstream has, in upstream's spelling (SCH-2)."""
        text = """{
          "rowKeyFields": [{"name": "a", "type": "StringType"}, {"name": "b", "type": "LongType"}],
          "sortKeyFields": [{"name": "c", "type": "IntType"}, {"name": "d", "type": "ByteArrayType"}],
          "valueFields": [
            {"name": "e", "type": {"MapType": {"keyType": "StringType", "valueType": "LongType"}}},
            {"name": "f", "type": {"ListType": {"elementType": "IntType"}}, "nullable": true}
          ]}"""

        assert Schema.from_json(text) == Schema(
            row_keys=[Field("a", Primitive.STRING), Field("b", Primitive.LONG)],
            sort_keys=[Field("c", Primitive.INT), Field("d", Primitive.BYTES)],
            values=[
                Field("e", MapType(Primitive.STRING, Primitive.LONG)),
                Field("f", ListType(Primitive.INT), nullable=True),
            ],
        )

    def test_missing_groups_are_empty(self):
        """Sort keys and values need not be written (SCH-1)."""
        schema = Schema.from_json('{"rowKeyFields": [{"name": "k", "type": "IntType"}]}')

        assert (schema.sort_keys, schema.values) == ((), ())

    def test_all_groups_are_written(self):
        """And `nullable` only where it is true (SCH-5)."""
        schema = Schema(
            row_keys=[KEY],
            values=[Field("v", Primitive.INT), Field("w", Primitive.INT, nullable=True)],
        )

        assert json.loads(schema.to_json()) == {
            "rowKeyFields": [{"name": "key", "type": "StringType"}],
            "sortKeyFields": [],
            "valueFields": [
                {"name": "v", "type": "IntType"},
                {"name": "w", "type": "IntType", "nullable": True},
            ],
        }

    def test_positions_are_written_where_columns_are_in_another_order(self):
        """In each field, where readers that know no positions ignore them (SCH-10)."""
        schema = Schema(row_keys=[KEY], values=[Field("v", Primitive.INT)], columns=["v", "key"])

        assert json.loads(schema.to_json()) == {
            "rowKeyFields": [{"name": "key", "type": "StringType", "position": 1}],
            "sortKeyFields": [],
            "valueFields": [{"name": "v", "type": "IntType", "position": 0}],
        }
        assert "position" not in schema.as_stored().to_json()

    @pytest.mark.parametrize(
        "places", [(0, None), (1, 1), (1, 2), (0, -1), (0, True), (0, "1"), (0, 1.0), (0, [])]
    )
    def test_positions_are_all_there_or_none_is(self, places):
        """A file that somebody edited in one place is refused, and not half understood (SCH-10)."""
        document = json.loads(Schema(row_keys=[KEY], values=[Field("v", Primitive.INT)]).to_json())
        for group, place in zip(("rowKeyFields", "valueFields"), places, strict=True):
            document[group][0] |= {} if place is None else {"position": place}

        with pytest.raises(SchemaInvalid, match="position of its own, from 0 to 1"):
            Schema.from_json(document)

    @given(schemas())
    def test_reads_back_what_it_writes(self, schema):
        """As text, as bytes, and as the object that JSON parses to."""
        text = schema.to_json()

        assert Schema.from_json(text) == schema
        assert Schema.from_json(json.loads(text)) == schema

    @given(types)
    def test_types_read_back(self, kind):
        """Every type has one JSON form and one name for people."""
        assert type_from_json(type_to_json(kind)) == kind
        assert type_from_json(json.loads(json.dumps(type_to_json(kind)))) == kind

    @pytest.mark.parametrize(
        "kind",
        [
            "UuidType",
            "longtype",
            None,
            7,
            ["IntType"],
            {"ListType": {}},
            {"SetType": {"elementType": "IntType"}},
            {"DecimalType": {"precision": "5", "scale": 2}},
        ],
    )
    def test_an_unknown_type_is_named(self, kind):
        """So that a user finds it in the file (SCH-6)."""
        document = {"rowKeyFields": [{"name": "k", "type": kind}]}

        with pytest.raises(SchemaInvalid) as refused:
            Schema.from_json(document)

        named, _, known = str(refused.value).partition("; plain types are ")
        assert named == f"Unknown type {json.dumps(kind)}"
        assert known.startswith("IntType, LongType, ") == isinstance(kind, str)

    def test_lists_maps_and_structs_hold_others(self):
        """At any depth but in keys of maps; what may be null is told by the type around it."""
        parts = {"fields": [{"name": "of x", "type": {"MapType": _MAP}}]}
        nested = {"ListType": {"elementType": {"NullableType": {"StructType": parts}}}}

        found = type_from_json(nested)

        of_x = MapType(Primitive.STRING, ListType(DecimalType(3, 1)), nullable=True)
        assert found == ListType(StructType((("of x", of_x),)), nullable=True)
        assert type_to_json(found) == nested
        assert type_to_text(found) == (
            "ListType(StructType(of x MapType(StringType, ListType(DecimalType(3, 1)) or null))"
            " or null)"
        )

    @pytest.mark.parametrize(
        ("wrong", "message"),
        [
            ({"NullableType": "IntType"}, "Unknown type"),
            ({"StructType": {"fields": []}}, "a part at least"),
            ({"StructType": {"fields": [{"name": "", "type": "IntType"}]}}, "needs a name"),
            ({"StructType": {"fields": [{"name": "a"}]}}, "needs a name and a type"),
            ({"StructType": {"fields": [{"name": "a", "type": "IntType"}] * 2}}, r"named \['a'\]"),
            ({"MapType": {"keyType": {"MapType": {}}, "valueType": "IntType"}}, "Unknown type"),
            (
                {"MapType": {"keyType": _LIST, "valueType": "IntType"}},
                r"primitive type, not ListType\(IntType\)",
            ),
        ],
        ids=str,
    )
    def test_nested_types_have_a_form(self, wrong, message):
        """Structs have parts with names, and keys of maps are primitive (SCH-2)."""
        with pytest.raises(SchemaInvalid, match=message):
            type_from_json(wrong)

    def test_types_have_sixteen_levels_at_most(self):
        """Libraries go through them by recursion; a hostile schema is refused before."""
        kind, json_of_kind = Primitive.INT, "IntType"
        for _ in range(15):
            kind, json_of_kind = ListType(kind), {"ListType": {"elementType": json_of_kind}}
        deeper = {"ListType": {"elementType": json_of_kind}}

        assert Field("fits", kind).type == type_from_json(json_of_kind)
        with pytest.raises(SchemaInvalid, match="more than 16 levels"):
            Field("deep", ListType(kind))
        with pytest.raises(SchemaInvalid, match="more than 16 levels"):
            type_from_json(deeper)
        endless = (
            '{"rowKeyFields": [{"name": "a", "type": ' + '{"ListType": {"elementType": ' * 99_999
        )
        with pytest.raises(SchemaInvalid):
            Schema.from_json(endless)

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("", "not JSON"),
            ("{", "not JSON"),
            (b"\xff", "not JSON"),
            ("[]", "JSON object"),
            ("{}", "at least one row key"),
            ('{"rowKeys": []}', "rowKeys"),
            ('{"rowKeyFields": {"name": "a"}}', "must be a list"),
            ('{"rowKeyFields": ["a"]}', "needs a name and a type"),
            ('{"rowKeyFields": [{"name": "a"}]}', "needs a name and a type"),
            (
                '{"rowKeyFields": [{"name": "a", "type": "IntType", "nullable": "no"}]}',
                "true or false",
            ),
        ],
    )
    def test_a_wrong_document_is_refused(self, text, message):
        """With the place that is wrong."""
        with pytest.raises(SchemaInvalid, match=message):
            Schema.from_json(text)

    @pytest.mark.parametrize(
        ("kind", "text"),
        [
            (Primitive.TIMESTAMP, "TimestampType"),
            (DecimalType(10, 2), "DecimalType(10, 2)"),
            (ListType(Primitive.INT), "ListType(IntType)"),
            (MapType(Primitive.STRING, Primitive.LONG), "MapType(StringType, LongType)"),
        ],
    )
    def test_types_are_named_for_people(self, kind, text):
        """In messages, a type is one short word or two."""
        assert type_to_text(kind) == text


class TestTypesAsText:
    """What `sleeper table show` prints of a type, and `sleeper table alter` takes."""

    @given(
        st.recursive(
            elements,
            lambda inner: (
                st.builds(ListType, inner, st.booleans())
                | st.builds(MapType, elements, inner, st.booleans())
                | st.dictionaries(st.text("ab c", min_size=1), inner, min_size=1, max_size=3).map(
                    lambda parts: StructType(
                        {f"x{name.strip()}": kind for name, kind in parts.items()}.items()
                    )
                )
            ),
            max_leaves=6,
        )
    )
    def test_are_read_as_they_are_written(self, kind):
        """Whatever is inside of what."""
        assert type_from_text(type_to_text(kind)) == kind

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "int64",
            "longtype",
            "LongType()",
            "DecimalType",
            "DecimalType(1)",
            "DecimalType(a, b)",
            "DecimalType(99, 2)",
            "ListType",
            "ListType()",
            "ListType(LongType",
            "ListType(LongType))",
            "ListType(LongType, LongType)",
            "MapType(LongType)",
            "MapType(ListType(LongType), LongType)",
            "StructType()",
            "StructType(LongType)",
            "StructType(a LongType, a IntType)",
            "LongType or null",
            "ListType(" * 10_000,
            "ListType(" * 40 + "LongType" + ")" * 40,
            "DecimalType(" + "9" * 5_000 + ", 0)",
            "DecimalType(\u0661, 0)",
        ],
    )
    def test_are_refused_if_there_is_none(self, text):
        """Without a long message."""
        with pytest.raises(SchemaInvalid) as refused:
            type_from_text(text)

        assert len(str(refused.value)) < 600
