"""Filters, aggregations and functions, as the properties of a table say them."""

from __future__ import annotations

import pytest

from sleeper.errors import PropertiesInvalid
from sleeper.model.processing import (
    AgeOff,
    Aggregation,
    Processing,
    TableFunction,
    parse_processing,
)
from sleeper.model.schema import DecimalType, Field, ListType, MapType, Primitive, Schema

FILTERS = "sleeper.table.filters"
AGGREGATIONS = "sleeper.table.aggregations"
FUNCTION = "sleeper.table.function"
COUNTS = MapType(Primitive.STRING, Primitive.LONG)
NAMES = MapType(Primitive.STRING, Primitive.STRING)
NUMBERS = (
    *(Primitive.INT, Primitive.LONG, Primitive.FLOAT, Primitive.DOUBLE),
    DecimalType(9, 2),
)
ORDERED = (
    *(Primitive.STRING, Primitive.BYTES, Primitive.DATE),
    *(Primitive.TIMESTAMP, Primitive.TIMESTAMP_NTZ),
)


def schema_of(**values) -> Schema:
    """Return a schema with row key `id`, sort key `at` and the value fields given."""
    return Schema(
        row_keys=[Field("id", Primitive.STRING)],
        sort_keys=[Field("at", Primitive.LONG)],
        values=[Field(name, kind) for name, kind in values.items()],
    )


AB = schema_of(a=Primitive.LONG, b=Primitive.LONG)


def aggregations(text: str, schema: Schema = AB) -> list[tuple[str, str]]:
    found = parse_processing(None, text, schema).aggregations
    return [(each.operation, each.field) for each in found]


def refusal(text: str, schema: Schema = AB) -> str:
    """Return why an aggregation is refused, without the property's name and value."""
    with pytest.raises(PropertiesInvalid) as refused:
        parse_processing(None, text, schema)
    assert list(refused.value.failures) == [AGGREGATIONS]
    start = f"{AGGREGATIONS} is {text!r}: "
    message = str(refused.value)
    assert message.startswith(start)
    return message.removeprefix(start)


class TestProcessing:
    """All together."""

    @pytest.mark.parametrize("nothing", [None, "", "  "])
    def test_nothing_set_changes_nothing(self, nothing):
        """Rows come out as they went in."""
        processing = parse_processing(nothing, nothing, AB)

        assert processing == Processing()
        assert processing.is_identity
        assert processing.needed_fields == ()

    def test_filters_and_aggregations_are_both_kept(self):
        """They are applied in this order (PRC-1)."""
        processing = parse_processing("ageOff(at,1000)", "sum(a),max(b)", AB)

        assert processing == Processing(
            filters=(AgeOff("at", 1000),),
            aggregations=(Aggregation("sum", "a"), Aggregation("max", "b")),
        )
        assert not processing.is_identity

    def test_only_filters_need_fields_that_nobody_asked_for(self):
        """Keys are read always, an aggregated field only when it is asked for (QRY-6)."""
        assert parse_processing("ageOff(a,1)", None, AB).needed_fields == ("a",)
        assert parse_processing(None, "sum(a),sum(b)", AB).needed_fields == ()

    def test_all_properties_are_checked_before_any_is_refused(self):
        """A user mends all at once (INS-6)."""
        with pytest.raises(PropertiesInvalid, match=r"Failure 1 of 3\.") as refused:
            parse_processing("ageOff(x,1)", "sum(a)", AB, "clean")

        assert list(refused.value.failures) == [FILTERS, AGGREGATIONS, FUNCTION]

    def test_a_function_needs_all_fields(self):
        """It may look at any of them, whichever are asked for."""
        processing = parse_processing(None, None, AB, "rows:clean")

        assert processing.needs_all_fields
        assert not processing.is_identity
        assert not parse_processing("ageOff(a,1)", "sum(a),sum(b)", AB).needs_all_fields

    def test_rows_do_not_age_by_a_field_that_is_counted(self):
        """Where a row counts, there is a number of rows, which says no time."""
        with pytest.raises(PropertiesInvalid) as refused:
            parse_processing("ageOff(a,1)", "count(a),last(b)", AB)

        assert refused.value.failures == {
            FILTERS: f"{FILTERS} is 'ageOff(a,1)': rows cannot age by field 'a', because count(a) "
            "replaces its times by a number of rows."
        }


class TestAgeOff:
    """The only filter by name (PRC-2)."""

    @pytest.mark.parametrize(
        "text", ["ageOff(a,86400000)", "AGEOFF(a,86400000)", "  ageoff ( a , 86400000 ) "]
    )
    def test_case_and_whitespace_do_not_matter(self, text):
        """As upstream reads it."""
        assert parse_processing(text, None, AB).filters == (AgeOff("a", 86_400_000),)

    @pytest.mark.parametrize(
        "kind",
        [Primitive.LONG, Primitive.DATE, Primitive.TIMESTAMP, Primitive.TIMESTAMP_NTZ],
    )
    def test_rows_age_by_what_says_a_time(self, kind):
        """Milliseconds, a date or a timestamp."""
        schema = schema_of(t=kind)

        assert parse_processing("ageOff(t,1)", None, schema).filters == (AgeOff("t", 1),)

    def test_rows_may_age_by_a_key(self):
        """A row key or a sort key, as well as a value."""
        schema = Schema(row_keys=[Field("t", Primitive.TIMESTAMP)])

        assert parse_processing("ageOff(t,1)", None, schema).filters == (AgeOff("t", 1),)

    @pytest.mark.parametrize(
        "text",
        [
            "olderThan(a,1)",
            "ageOff(a)",
            "ageOff(a,1,2)",
            "ageOff(a,soon)",
            "ageOff(a,-1)",
            "ageOff(a,1.5)",
            "ageOff(,1)",
            "ageOff a,1",
            "ageOff(a,1),ageOff(b,1)",
            "ageOff(a,9223372036854775808)",
        ],
    )
    def test_anything_else_is_refused(self, text):
        """With upstream's words: one filter, of one field and one age."""
        with pytest.raises(PropertiesInvalid) as refused:
            parse_processing(text, None, AB)

        assert list(refused.value.failures) == [FILTERS]
        assert str(refused.value) == (
            f"{FILTERS} is {text!r}: "
            f"Sleeper table filter not set to match ageOff(column,age), was: {text}."
        )

    def test_an_unknown_field_is_refused(self):
        """Else no row would ever age, in silence."""
        with pytest.raises(PropertiesInvalid, match="no field 'x'; it has id, at, a, b"):
            parse_processing("ageOff(x,1)", None, AB)

    @pytest.mark.parametrize("kind", [Primitive.STRING, Primitive.INT, Primitive.DOUBLE, COUNTS])
    def test_a_field_that_says_no_time_is_refused(self, kind):
        """32 bits do not hold today's milliseconds."""
        with pytest.raises(PropertiesInvalid, match="cannot age by field 't'"):
            parse_processing("ageOff(t,1)", None, schema_of(t=kind))


class TestAggregations:
    """How rows of equal row and sort keys become one (PRC-3, PRC-4)."""

    @pytest.mark.parametrize(
        "text",
        [
            "sum(a),max(b)",
            "SUM(a),Max(b)",
            " sum ( a ) ,\n max(b) ",
            "sum(a),max(b),",
        ],
    )
    def test_case_and_whitespace_do_not_matter(self, text):
        """The operation is known in any case, the field as the schema has it (PRC-3)."""
        assert aggregations(text) == [("sum", "a"), ("max", "b")]

    def test_field_names_may_have_brackets_and_spaces(self):
        """Any text is a field's name."""
        schema = schema_of(**{"a (m/s)": Primitive.LONG, "b,c": Primitive.LONG})

        assert aggregations("min(a (m/s)),max(b,c)", schema) == [("min", "a (m/s)"), ("max", "b,c")]

    @pytest.mark.parametrize("kind", NUMBERS)
    @pytest.mark.parametrize("operation", ["sum", "min", "max"])
    def test_numbers_know_all_three(self, operation, kind):
        """Decimals too."""
        assert aggregations(f"{operation}(v)", schema_of(v=kind)) == [(operation, "v")]

    @pytest.mark.parametrize("kind", ORDERED)
    @pytest.mark.parametrize("operation", ["min", "max"])
    def test_what_has_an_order_has_a_least_and_a_greatest(self, operation, kind):
        """Strings by code point, bytes unsigned (PRC-5)."""
        assert aggregations(f"{operation}(v)", schema_of(v=kind)) == [(operation, "v")]

    @pytest.mark.parametrize("operation", ["map_sum", "map_min", "map_max"])
    def test_maps_of_numbers_are_united_entry_by_entry(self, operation):
        """Keys of all rows, with the values of each key united (PRC-5)."""
        assert aggregations(f"{operation}(v)", schema_of(v=COUNTS)) == [(operation, "v")]

    @pytest.mark.parametrize(
        ("operation", "kind", "reason"),
        [
            ("sum", Primitive.STRING, "StringType: it wants a number"),
            ("sum", Primitive.TIMESTAMP, "TimestampType: it wants a number"),
            ("sum", COUNTS, "it wants map_sum, map_min or map_max"),
            ("max", COUNTS, "it wants map_sum, map_min or map_max"),
            ("map_sum", NAMES, "numbers as the map's values"),
            ("map_sum", Primitive.LONG, "it wants a map"),
            ("min", Primitive.BOOLEAN, "a type with an order"),
            ("max", ListType(Primitive.LONG), "a type with an order"),
            ("sum", ListType(Primitive.LONG), "it wants a number"),
        ],
    )
    def test_an_operation_fits_its_field(self, operation, kind, reason):
        """Else the message says what it wants."""
        message = refusal(f"{operation}(v)", schema_of(v=kind))

        assert message.startswith(f"{operation} does not work on field 'v' of ")
        assert reason in message

    @pytest.mark.parametrize(
        ("text", "operand"),
        [
            ("avg(a),sum(b)", "avg"),
            ("map_count(a),sum(b)", "map_count"),
            ("a,b", "a,b"),
            ("sum(a", "sum(a"),
            ("sum(a),b", "b"),
        ],
    )
    def test_an_unknown_operation_is_named(self, text, operand):
        """With upstream's words, and the operations there are (PRC-4)."""
        message = refusal(text)

        assert message.startswith(f"Unable to parse operand. Operand: {operand}")

    def test_every_value_field_must_be_listed(self):
        """The missing ones are told (PRC-4)."""
        assert refusal("sum(a)") == (
            "Not all value fields have aggregation declared. Missing columns: b."
        )

    def test_every_listed_field_must_exist(self):
        """The unknown ones are told (PRC-4)."""
        assert refusal("sum(a),sum(b),sum(x),sum(y)") == (
            "Not all aggregated fields are declared in the schema. Missing fields: x, y."
        )

    def test_no_field_is_listed_twice(self):
        """The repeated ones are told (PRC-4)."""
        assert refusal("sum(a),max(a),sum(b)") == (
            "Not allowed duplicate columns for aggregation. Column name: a."
        )

    def test_no_key_is_listed(self):
        """Neither row keys nor sort keys: they are equal in all the rows (PRC-4)."""
        assert refusal("min(id),min(at),sum(a),sum(b)") == (
            "Column for aggregation not allowed to be a Row Key or Sort Key. Column names: id, at."
        )

    def test_no_value_field_may_be_null(self):
        """Anywhere in the schema (SCH-5, PRC-4)."""
        nullable = Schema(
            row_keys=[Field("id", Primitive.STRING)],
            values=[Field("a", Primitive.LONG), Field("b", Primitive.LONG, nullable=True)],
        )

        assert refusal("sum(a),sum(b)", nullable) == (
            "Aggregation is not supported for nullable value fields. Nullable fields: b."
        )


NULLABLE = Schema(
    row_keys=[Field("id", Primitive.STRING)],
    sort_keys=[Field("at", Primitive.LONG)],
    values=[
        Field("a", Primitive.LONG, nullable=True),
        Field("b", Primitive.LONG, nullable=True),
        Field("c", Primitive.LONG),
    ],
)


class TestFirstLastAndCount:
    """Our own aggregations, beside upstream's."""

    @pytest.mark.parametrize(
        "kind",
        [*NUMBERS, *ORDERED, Primitive.BOOLEAN, COUNTS, NAMES, ListType(Primitive.LONG)],
    )
    @pytest.mark.parametrize("operation", ["first", "last"])
    def test_first_and_last_know_every_type(self, operation, kind):
        """They take a value as it is, so it may be anything."""
        processing = parse_processing(None, f"{operation}(v)", schema_of(v=kind))

        assert processing.aggregations == (Aggregation(operation, "v"),)
        assert processing.kept_end == operation

    @pytest.mark.parametrize("kind", [Primitive.INT, Primitive.LONG])
    def test_count_wants_a_field_that_can_hold_a_number_of_rows(self, kind):
        """The number takes the place of the values."""
        processing = parse_processing(None, "Count(v)", schema_of(v=kind))

        assert processing.counted_fields == ("v",)
        assert processing.kept_end is None

    @pytest.mark.parametrize("kind", [Primitive.STRING, Primitive.DOUBLE, Primitive.DATE, COUNTS])
    def test_count_of_another_type_is_refused(self, kind):
        """A string cannot become 3."""
        message = refusal("count(v)", schema_of(v=kind))

        assert message.startswith("count does not work on field 'v' of ")
        assert message.endswith("it wants an IntType or a LongType, which becomes the number.")

    def test_they_go_together_with_all_others(self):
        """Sums then go over the row key too."""
        processing = parse_processing(None, "last(a),sum(b)", AB)

        assert processing.kept_end == "last"

    @pytest.mark.parametrize(
        "text", ["last(a),count(b),sum(c)", "first(a),first(b),max(c)", "count(a),count(b),last(c)"]
    )
    def test_they_alone_take_nulls(self, text):
        """A null is a value like any other for first and last, and counts as none."""
        assert len(aggregations(text, NULLABLE)) == 3

    def test_nullable_fields_of_other_operations_are_refused(self):
        """With upstream's words, which name these fields alone (SCH-5, PRC-4)."""
        assert refusal("sum(a),count(b),sum(c)", NULLABLE) == (
            "Aggregation is not supported for nullable value fields. Nullable fields: a."
        )

    def test_first_and_last_exclude_each_other(self):
        """One row has one sort key."""
        assert refusal("first(a),last(b)") == (
            "first and last cannot both be used in one table: one row is kept for each row "
            "key, and it has either the least or the greatest sort key."
        )

    @pytest.mark.parametrize("operation", ["first", "last"])
    def test_first_and_last_go_by_sort_keys(self, operation):
        """Without any there is no order."""
        schema = Schema(row_keys=[Field("id", Primitive.LONG)], values=[Field("a", Primitive.LONG)])

        assert refusal(f"{operation}(a)", schema) == (
            f"{operation} needs sort keys, which order the rows of a row key, and the schema has "
            "none."
        )


class TestFunction:
    """The name of a function of the user's own (PRC-6)."""

    @pytest.mark.parametrize(
        ("text", "module", "name"),
        [
            ("rows:clean", "rows", "clean"),
            (" my_company.rows.v2:_clean ", "my_company.rows.v2", "_clean"),
            ("länder:größe", "länder", "größe"),
        ],
    )
    def test_is_a_module_and_a_name_in_it(self, text, module, name):
        """Whether there is such a one shows when it is needed."""
        function = parse_processing(None, None, AB, text).function

        assert function == TableFunction(module, name)
        assert str(function) == text.strip()

    @pytest.mark.parametrize(
        "text",
        [
            "rows",
            "rows.clean",
            "rows:",
            ":clean",
            "rows:a.b",
            "a..b:c",
            "rows:f()",
            "a b:c",
            "a:b:c",
        ],
    )
    def test_anything_else_is_refused(self, text):
        """The message shows the form."""
        with pytest.raises(PropertiesInvalid) as refused:
            parse_processing(None, None, AB, text)

        assert str(refused.value) == (
            f"{FUNCTION} is {text!r}: it must be package.module:function, such as "
            "my_rows.cleaning:redact."
        )
