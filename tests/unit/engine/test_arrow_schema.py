"""A table's schema as Arrow has it, and input columns brought into that form."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import polars as pl
import pyarrow as pa
import pytest

from sleeper.engine.arrow_schema import conform, from_arrow, split_null_keys, to_arrow
from sleeper.errors import InputSchemaMismatch, SchemaInvalid
from sleeper.model.schema import (
    DecimalType,
    Field,
    ListType,
    MapType,
    Primitive,
    Schema,
    StructType,
)

EVERY_TYPE = Schema(
    row_keys=(Field("long", Primitive.LONG), Field("text", Primitive.STRING)),
    sort_keys=(Field("at", Primitive.TIMESTAMP),),
    values=(
        Field("int", Primitive.INT, nullable=True),
        Field("bytes", Primitive.BYTES, nullable=True),
        Field("day", Primitive.DATE, nullable=True),
        Field("clock", Primitive.TIMESTAMP_NTZ, nullable=True),
        Field("float", Primitive.FLOAT, nullable=True),
        Field("double", Primitive.DOUBLE, nullable=True),
        Field("flag", Primitive.BOOLEAN, nullable=True),
        Field("price", DecimalType(10, 2), nullable=True),
        Field("list", ListType(Primitive.STRING), nullable=True),
        Field("map", MapType(Primitive.STRING, Primitive.LONG), nullable=True),
    ),
)


def schema_of(*values: Field, key: Primitive = Primitive.LONG) -> Schema:
    return Schema(row_keys=(Field("k", key),), values=values)


def conformed(columns: dict, schema: Schema, *, ignore: bool = False) -> pa.Table:
    return conform(
        pa.table(columns),
        to_arrow(schema),
        key_names=schema.key_names,
        ignore_extra_columns=ignore,
        origin="'in.parquet'",
    )


def one_value(array: pa.Array, kind) -> pa.ChunkedArray:
    schema = schema_of(Field("v", kind, nullable=True))
    return conformed({"k": list(range(len(array))), "v": array}, schema)["v"]


class TestToArrow:
    """`to_arrow` (rule FMT-2)."""

    def test_has_columns_in_the_order_of_the_schema(self):
        """Row keys, sort keys, values; required fields are not nullable."""
        arrow = to_arrow(EVERY_TYPE)

        assert arrow.names == list(EVERY_TYPE.names)
        assert [field.name for field in arrow if not field.nullable] == ["long", "text", "at"]

    def test_maps_every_type(self):
        """Each type of ours is one Arrow type; what lists and maps hold is never null."""
        arrow = to_arrow(EVERY_TYPE)

        assert {field.name: str(field.type) for field in arrow} == {
            "long": "int64",
            "text": "string",
            "at": "timestamp[us, tz=UTC]",
            "int": "int32",
            "bytes": "binary",
            "day": "date32[day]",
            "clock": "timestamp[us]",
            "float": "float",
            "double": "double",
            "flag": "bool",
            "price": "decimal128(10, 2)",
            "list": "list<element: string not null>",
            "map": "map<string, int64>",
        }
        assert not arrow.field("map").type.item_field.nullable

    def test_comes_back_as_it_was(self):
        """`from_arrow` of `to_arrow` is the schema."""
        back = from_arrow(to_arrow(EVERY_TYPE), row_keys=["long", "text"], sort_keys=["at"])

        assert back == EVERY_TYPE


class TestFromArrow:
    """`from_arrow`: the schema of a table for given columns."""

    @pytest.mark.parametrize(
        ("arrow", "ours"),
        [
            (pa.int8(), Primitive.INT),
            (pa.uint16(), Primitive.INT),
            (pa.uint32(), Primitive.LONG),
            (pa.large_string(), Primitive.STRING),
            (pa.string_view(), Primitive.STRING),
            (pa.dictionary(pa.int32(), pa.string()), Primitive.STRING),
            (pa.large_binary(), Primitive.BYTES),
            (pa.binary_view(), Primitive.BYTES),
            (pa.binary(16), Primitive.BYTES),
            (pa.float16(), Primitive.FLOAT),
            (pa.date64(), Primitive.DATE),
            (pa.timestamp("ns", "Europe/Paris"), Primitive.TIMESTAMP),
            (pa.timestamp("s"), Primitive.TIMESTAMP_NTZ),
            (pa.time32("ms"), Primitive.TIME),
            (pa.time64("ns"), Primitive.TIME),
            (pa.duration("s"), Primitive.DURATION),
            (pa.decimal256(38, 3), DecimalType(38, 3)),
            (pa.large_list(pa.int16()), ListType(Primitive.INT, nullable=True)),
            (pa.list_(pa.field("of", pa.int8(), False)), ListType(Primitive.INT)),
            (pa.list_(pa.float64(), 3), ListType(Primitive.DOUBLE, nullable=True)),
            (
                pa.list_(pa.struct([("x", pa.large_list(pa.date64()))])),
                ListType(
                    StructType((("x", ListType(Primitive.DATE, nullable=True)),)), nullable=True
                ),
            ),
            (pa.map_(pa.large_string(), pa.int8()), MapType(Primitive.STRING, Primitive.INT)),
        ],
        ids=str,
    )
    def test_widens_to_the_narrowest_type_that_holds_all_values(self, arrow, ours):
        """Layouts and widths that are not ours become the nearest type that is."""
        schema = from_arrow(pa.schema([("k", pa.int64()), ("v", arrow)]), row_keys=["k"])

        assert schema.values == (Field("v", ours, nullable=True),)

    @pytest.mark.parametrize(
        ("arrow", "advice"),
        [
            (pa.uint64(), "int64"),
            (pa.struct([]), "without parts"),
            (pa.list_(pa.struct([])), "without parts"),
            (pa.null(), "only nulls"),
            (pa.map_(pa.list_(pa.int32()), pa.int32()), "keys of maps"),
            (pa.decimal256(50, 2), "cast it"),
        ],
        ids=str,
    )
    def test_refuses_what_no_field_can_have(self, arrow, advice):
        """The error names the column, its type, and what to do about it."""
        with pytest.raises(SchemaInvalid, match=advice) as refused:
            from_arrow(pa.schema([("k", pa.int64()), ("odd", arrow)]), row_keys=["k"])

        assert "'odd'" in str(refused.value)

    def test_takes_keys_as_not_null_and_in_the_order_given(self):
        """A key is never nullable, whatever the Arrow field says."""
        arrow = pa.schema([("v", pa.int32()), ("a", pa.string()), ("b", pa.int64())])

        schema = from_arrow(arrow, row_keys=["b"], sort_keys=["a"])

        assert schema.names == ("b", "a", "v")
        assert [field.nullable for field in schema.fields] == [False, False, True]

    def test_refuses_keys_that_are_no_columns(self):
        """The error names them."""
        with pytest.raises(SchemaInvalid, match="'absent'"):
            from_arrow(pa.schema([("k", pa.int64())]), row_keys=["absent"])

    def test_refuses_a_name_that_two_columns_have(self):
        """Which of them would be meant cannot be told."""
        with pytest.raises(SchemaInvalid, match=r"\['k'\]"):
            from_arrow(pa.schema([("k", pa.int64()), ("k", pa.int64())]), row_keys=["k"])


class TestColumns:
    """`conform`: which columns there must be (rule ING-14)."""

    def test_are_taken_by_name(self):
        """Their order in the input does not matter."""
        schema = schema_of(Field("v", Primitive.STRING))

        rows = conformed({"v": ["a"], "k": [1]}, schema)

        assert rows.schema.equals(to_arrow(schema))
        assert rows.to_pylist() == [{"k": 1, "v": "a"}]

    def test_may_come_as_a_batch(self):
        """A RecordBatch is taken as a Table is."""
        schema = schema_of()

        rows = conform(
            pa.record_batch({"k": [1]}),
            to_arrow(schema),
            key_names=["k"],
            ignore_extra_columns=False,
            origin="x",
        )

        assert rows.to_pylist() == [{"k": 1}]

    def test_may_be_missing_where_nullable(self):
        """A nullable value that is not there is null (rule SCH-5)."""
        rows = conformed({"k": [1, 2]}, schema_of(Field("v", Primitive.LONG, nullable=True)))

        assert rows["v"].null_count == 2

    def test_are_refused_where_a_required_one_is_missing(self):
        """The error names the column and where the rows came from."""
        with pytest.raises(InputSchemaMismatch, match=r"'in.parquet' lacks .*\['v'\]"):
            conformed({"k": [1]}, schema_of(Field("v", Primitive.LONG)))

    def test_are_refused_where_the_table_has_none_of_the_name(self):
        """All extra columns are named."""
        with pytest.raises(InputSchemaMismatch, match=r"\['x', 'y'\]"):
            conformed({"k": [1], "x": [1], "y": [2]}, schema_of())

    def test_are_left_out_where_extra_ones_are_to_be_ignored(self):
        """Asked to, `conform` drops what the table has not."""
        rows = conformed({"k": [1], "x": [1]}, schema_of(), ignore=True)

        assert rows.column_names == ["k"]

    def test_are_refused_where_two_have_one_name(self):
        """Even if they are equal."""
        twice = pa.table([[1], [2]], names=["k", "k"])

        with pytest.raises(InputSchemaMismatch, match="more than one column"):
            conform(
                twice,
                to_arrow(schema_of()),
                key_names=["k"],
                ignore_extra_columns=True,
                origin="x",
            )


class TestCasts:
    """`conform`: values arrive unchanged or not at all."""

    @pytest.mark.parametrize(
        ("given", "kind", "value"),
        [
            (pa.array([7], pa.int8()), Primitive.LONG, 7),
            (pa.array([7], pa.uint64()), Primitive.INT, 7),
            (pa.array([7.0]), Primitive.LONG, 7),
            (pa.array([7]), Primitive.DOUBLE, 7.0),
            (pa.array([0.5]), Primitive.FLOAT, 0.5),
            (pa.array([float("inf")]), Primitive.FLOAT, float("inf")),
            (pa.array(["é"], pa.string_view()), Primitive.STRING, "é"),
            (pa.array(["é"]).dictionary_encode(), Primitive.STRING, "é"),
            (pa.array(["é"], pa.string_view()).dictionary_encode(), Primitive.STRING, "é"),
            (pa.compute.run_end_encode(pa.array(["é"])), Primitive.STRING, "é"),
            (pa.array([b"\xc3\xa9"]), Primitive.STRING, "é"),
            (pa.array(["é"]), Primitive.BYTES, b"\xc3\xa9"),
            (pa.array([b"ab"], pa.binary(2)), Primitive.BYTES, b"ab"),
            (pa.array([date(2020, 1, 2)], pa.date64()), Primitive.DATE, date(2020, 1, 2)),
            (
                pa.array([1_000_000_000], pa.timestamp("ns", "Europe/Paris")),
                Primitive.TIMESTAMP,
                datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC),
            ),
            (
                pa.array([5], pa.timestamp("s")),
                Primitive.TIMESTAMP_NTZ,
                datetime(1970, 1, 1, 0, 0, 5),
            ),
            (pa.array([Decimal("1.50")]), DecimalType(10, 1), Decimal("1.5")),
            (pa.array([3]), DecimalType(20, 1), Decimal("3.0")),
            (pa.array([[1, 2]], pa.large_list(pa.int8())), ListType(Primitive.LONG), [1, 2]),
            (
                pa.array([[("a", 1)]], pa.map_(pa.large_string(), pa.int8())),
                MapType(Primitive.STRING, Primitive.LONG),
                [("a", 1)],
            ),
            (
                pa.array([[{"key": "a", "value": 1}]]),
                MapType(Primitive.STRING, Primitive.LONG),
                [("a", 1)],
            ),
            (pa.nulls(1), ListType(Primitive.LONG), None),
            (pa.nulls(1), Primitive.STRING, None),
        ],
    )
    def test_keep_the_value(self, given, kind, value):
        """Other layouts and widths are cast, exactly."""
        assert one_value(given, kind).to_pylist() == [value]

    @pytest.mark.parametrize(
        ("given", "kind", "shown"),
        [
            (pa.array([2**40]), Primitive.INT, "1099511627776"),
            (pa.array([2**63], pa.uint64()), Primitive.LONG, "9223372036854775808"),
            (pa.array([1.5]), Primitive.LONG, "1.5"),
            (pa.array([2**60 + 1]), Primitive.DOUBLE, "1152921504606846977"),
            (pa.array([0.1]), Primitive.FLOAT, "0.1"),
            (pa.array([1e300]), Primitive.FLOAT, "1e"),
            (pa.array([b"\xff"]), Primitive.STRING, "UTF8"),
            (pa.array([1_001], pa.timestamp("ns")), Primitive.TIMESTAMP_NTZ, "1001"),
            (pa.array([2**60], pa.timestamp("s")), Primitive.TIMESTAMP_NTZ, "1152921504606846976"),
            (pa.array([Decimal("1.55")]), DecimalType(10, 1), "data loss"),
            (pa.array([[2**40]]), ListType(Primitive.INT), "1099511627776"),
        ],
    )
    def test_are_refused_where_a_value_would_change(self, given, kind, shown):
        """The error names the column, both types, the origin and, where cheap, the value."""
        with pytest.raises(InputSchemaMismatch, match=shown) as refused:
            one_value(given, kind)

        for part in ("'v'", str(given.type), "'in.parquet'"):
            assert part in str(refused.value)

    @pytest.mark.parametrize(
        ("given", "kind"),
        [
            (pa.array(["1"]), Primitive.LONG),
            (pa.array([1]), Primitive.STRING),
            (pa.array([True]), Primitive.INT),
            (pa.array([datetime(2020, 1, 1)]), Primitive.DATE),
            (pa.array([date(2020, 1, 1)]), Primitive.TIMESTAMP),
            (pa.array([0.5]), DecimalType(10, 2)),
            (pa.array([{"a": 1}]), MapType(Primitive.STRING, Primitive.LONG)),
            (pa.array([1]), ListType(Primitive.LONG)),
        ],
    )
    def test_are_refused_between_types_that_mean_different_things(self, given, kind):
        """A number is no text, a date no instant: nothing is parsed or guessed."""
        with pytest.raises(InputSchemaMismatch, match="the table needs"):
            one_value(given, kind)

    def test_never_take_a_wall_clock_for_an_instant(self):
        """The error says what to do, either way."""
        wall = pa.array([datetime(2020, 1, 1)], pa.timestamp("us"))
        instant = pa.array([datetime(2020, 1, 1, tzinfo=UTC)])

        with pytest.raises(InputSchemaMismatch, match="Add it first"):
            one_value(wall, Primitive.TIMESTAMP)
        with pytest.raises(InputSchemaMismatch, match="Remove its time zone first"):
            one_value(instant, Primitive.TIMESTAMP_NTZ)

    def test_refuse_text_that_is_not_utf_8(self):
        """Bytes that only claim to be text are found, before an engine trusts them."""
        claimed = pa.Array.from_buffers(
            pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\2\0\0\0"), pa.py_buffer(b"\xff\xfe")]
        )

        with pytest.raises(InputSchemaMismatch, match="UTF8"):
            one_value(claimed, Primitive.STRING)

    def test_take_what_polars_has(self):
        """A polars frame comes with views, large lists and maps as lists of structs."""
        frame = pl.DataFrame(
            {"k": [1, 2], "v": [[{"key": "a", "value": 1}], None]},
            schema_overrides={"v": pl.List(pl.Struct({"key": pl.String, "value": pl.Int64}))},
        )
        schema = schema_of(Field("v", MapType(Primitive.STRING, Primitive.LONG), nullable=True))

        rows = conformed({"k": frame["k"].to_arrow(), "v": frame["v"].to_arrow()}, schema)

        assert rows["v"].to_pylist() == [[("a", 1)], None]


class TestNulls:
    """`conform` and `split_null_keys`: where null may not be."""

    def test_are_counted_in_required_values(self):
        """The error tells how many there are."""
        with pytest.raises(InputSchemaMismatch, match="2 nulls among 3 rows"):
            conformed({"k": [1, 2, 3], "v": [None, None, 1]}, schema_of(Field("v", Primitive.LONG)))

    def test_are_left_in_keys_for_others_to_judge(self):
        """`conform` lets them pass; `split_null_keys` parts such rows from the others."""
        schema = Schema(
            row_keys=(Field("a", Primitive.LONG),), sort_keys=(Field("b", Primitive.STRING),)
        )
        rows = conformed({"a": [1, None, 3, None], "b": ["x", "y", None, None]}, schema)

        good, bad = split_null_keys(rows, schema.key_names)

        assert good.to_pylist() == [{"a": 1, "b": "x"}]
        assert bad.num_rows == 3

    def test_absent_leave_the_table_as_it_is(self):
        """Without nulls nothing is copied."""
        rows = conformed({"k": [1, 2]}, schema_of())

        good, bad = split_null_keys(rows, ["k"])

        assert good is rows
        assert (bad.num_rows, bad.schema) == (0, rows.schema)

    @pytest.mark.parametrize(
        ("given", "kind"),
        [
            (pa.array([[1, None]]), ListType(Primitive.LONG)),
            (
                pa.array([[("a", None)]], pa.map_(pa.string(), pa.int64())),
                MapType(Primitive.STRING, Primitive.LONG),
            ),
        ],
    )
    def test_are_refused_inside_lists_and_maps(self, given, kind):
        """Elements are required (rule SCH-2); the error counts them."""
        with pytest.raises(InputSchemaMismatch, match="1 nulls inside"):
            one_value(given, kind)

    def test_are_not_looked_for_beyond_a_slice(self):
        """A null in a list of another row does not count."""
        whole = pa.array([[1], [None]])

        assert one_value(whole.slice(0, 1), ListType(Primitive.LONG)).to_pylist() == [[1]]


class TestYears:
    """`conform`: keys that Python, and so a partition, has no value for."""

    @pytest.mark.parametrize(
        ("kind", "least", "most"),
        [
            (Primitive.DATE, -719_162, 2_932_896),
            (Primitive.TIMESTAMP, -62_135_596_800_000_000, 253_402_300_799_999_999),
            (Primitive.TIMESTAMP_NTZ, -62_135_596_800_000_000, 253_402_300_799_999_999),
        ],
    )
    def test_run_from_1_to_9999_in_keys(self, kind, least, most):
        """The first and last value pass; their neighbours beyond are refused."""
        schema = schema_of(key=kind)
        arrow = to_arrow(schema).field("k").type
        width = pa.int32() if kind is Primitive.DATE else pa.int64()

        def key(value: int) -> dict:
            return {"k": pa.array([value], width).cast(arrow)}

        assert conformed(key(least), schema)["k"][0].as_py().year == 1
        assert conformed(key(most), schema)["k"][0].as_py().year == 9999
        for beyond in (least - 1, most + 1):
            with pytest.raises(InputSchemaMismatch, match="years 1 to 9999"):
                conformed(key(beyond), schema)

    def test_are_free_in_values(self):
        """A value need not have a Python equivalent."""
        far = pa.array([2**62], pa.int64()).cast(pa.timestamp("us"))

        assert one_value(far, Primitive.TIMESTAMP_NTZ).cast(pa.int64()).to_pylist() == [2**62]
