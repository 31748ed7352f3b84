"""What a caller sets: types of values, misspelt names, state stores that are not built."""

from __future__ import annotations

import json

import pytest

from sleeper.errors import BadRequest, PropertiesInvalid
from sleeper.model.known_properties.checks import (
    instance_property_warnings,
    table_property_warnings,
    validate_instance_properties,
    validate_table_properties,
)
from sleeper.model.known_properties.given import property_texts
from sleeper.model.known_properties.typed import InstanceProperties, TableProperties
from sleeper.model.schema import Field, Primitive, Schema

SCHEMA = Schema(row_keys=[Field("id", Primitive.STRING)], values=[Field("n", Primitive.LONG)])
TABLE = {"sleeper.table.name": "t", "sleeper.table.id": "1"}
INSTANCE = {"sleeper.id": "i"}
STORE = "sleeper.table.statestore.classname"


def refused_by_a_table(name: str, text: str = "1") -> str:
    with pytest.raises(PropertiesInvalid) as refused:
        validate_table_properties({**TABLE, name: text}, SCHEMA, given={name: text})
    return refused.value.failures[name]


def refused_by_an_instance(name: str, text: str = "1") -> str:
    with pytest.raises(PropertiesInvalid) as refused:
        validate_instance_properties({**INSTANCE, name: text}, given={name: text})
    return refused.value.failures[name]


class TestValues:
    """What Python may give as a value."""

    @pytest.mark.parametrize(
        ("value", "text"),
        [
            ("x", "x"),
            ("", ""),
            (5, "5"),
            (-1, "-1"),
            (2**70, str(2**70)),
            (True, "true"),
            (False, "false"),
            (None, None),
        ],
    )
    def test_text_numbers_and_truth_are_taken(self, value, text):
        """They become the text that a properties file would have."""
        assert property_texts({"name": value}) == {"name": text}

    @pytest.mark.parametrize("value", [1.5, b"x", ["x"], {"x": 1}, object, float("nan")])
    def test_a_value_of_another_type_is_refused_by_name(self, value):
        """The property, the value and its type are named."""
        with pytest.raises(PropertiesInvalid, match=r"^sleeper\.id is .* a value is a str"):
            property_texts({"sleeper.id": value})

    @pytest.mark.parametrize(
        "name", [5, None, b"sleeper.id", "", " ", "\ud800", "x\n", "x\ny", " x"]
    )
    def test_a_name_that_is_no_text_is_refused(self, name):
        """Also an empty one, and one that would be two lines of a properties file."""
        with pytest.raises(PropertiesInvalid, match="is not a property name"):
            property_texts({name: "x"})

    def test_text_that_no_file_can_hold_is_refused(self):
        """Half of a surrogate pair is no Unicode text."""
        with pytest.raises(PropertiesInvalid, match="not valid Unicode"):
            property_texts({"sleeper.id": "\ud800"})

    def test_every_wrong_value_is_reported(self):
        """All are in `failures`; the message counts them."""
        with pytest.raises(PropertiesInvalid, match=r"Failure 1 of 2\.") as refused:
            property_texts({"a": 1.5, "b": "x", "c": b""})

        assert list(refused.value.failures) == ["a", "c"]

    @pytest.mark.parametrize("given", [["sleeper.id=x"], "sleeper.id=x", 5])
    def test_properties_are_a_mapping(self, given):
        """A list of texts is refused with what is wanted."""
        with pytest.raises(BadRequest, match="such as a dict"):
            property_texts(given)


class TestMisspeltNames:
    """A name that differs in one character from a known one would be stored without effect."""

    @pytest.mark.parametrize(
        "name",
        [
            "sleeper.table.gc.delay.minuts",
            "sleeper.table.gc.delay.minute",
            "sleeper.table.gc.delay.minutess",
            "sleeper.table.gc.dellay.minutes",
            "sleeper.table.gc.delay.minuten",
            "sleeper.table.gc.dealy.minutes",
            "sleeper.table.gc_delay_minutes",
            "sleeper.table.gc.delay-minutes",
            "Sleeper.Table.Gc.Delay.Minutes",
            "table.gc.delay.minutes",
            "gc.delay.minutes",
            " sleeper.table.gc.delay.minutes",
        ],
    )
    def test_are_refused_with_the_right_name(self, name):
        """One letter missing, added, wrong or swapped; other separators; no prefix."""
        assert refused_by_a_table(name) == (
            f"{name} is not a property. Did you mean sleeper.table.gc.delay.minutes?"
        )

    def test_are_refused_by_an_instance_too(self):
        """Among its own properties and its defaults for tables."""
        assert "sleeper.gc.batch.size?" in refused_by_an_instance("sleeper.gc.batch.sizes")
        assert "sleeper.default.table.gc.delay.minutes?" in refused_by_an_instance(
            "sleeper.default.table.gc.delay.minuts"
        )

    def test_that_were_stored_before_do_not_stop_another_change(self):
        """Only what a caller sets now is judged by its name."""
        stored = {**TABLE, "sleeper.table.onlin": "false"}

        assert validate_table_properties(stored, SCHEMA) is None

    def test_come_together_with_wrong_values(self):
        """One error names both."""
        given = {"sleeper.table.onlin": "true", "sleeper.table.gc.delay.minutes": "soon"}

        with pytest.raises(PropertiesInvalid) as refused:
            validate_table_properties({**TABLE, **given}, SCHEMA, given=given)

        assert set(refused.value.failures) == set(given)


class TestNamesOfAnotherPlace:
    """Properties of an instance on a table, and the other way round."""

    def test_a_property_of_the_instance_is_refused_by_a_table(self):
        """Nothing would read it there."""
        for name in ("sleeper.gc.batch.size", "sleeper.default.table.gc.delay.minutes"):
            assert refused_by_a_table(name) == (
                f"{name} is a property of the instance, not of a table."
            )

    def test_a_property_of_a_table_is_refused_by_an_instance(self):
        """With the name of the default of all tables, where there is one."""
        name = "sleeper.table.gc.delay.minutes"

        assert refused_by_an_instance(name) == (
            f"{name} is a property of a table, not of the instance. "
            "The default of all tables is sleeper.default.table.gc.delay.minutes."
        )
        assert refused_by_an_instance("sleeper.table.filters") == (
            "sleeper.table.filters is a property of a table, not of the instance."
        )


class TestCompactionThatNeverMerges:
    """A job of few files cannot meet a large size ratio."""

    BATCH = "sleeper.table.compaction.files.batch.size"
    RATIO = "sleeper.table.compaction.strategy.sizeratio.ratio"

    @pytest.mark.parametrize(
        ("batch", "ratio", "needed"), [("3", "3", 4), ("4", "6", 7), ("1", "1", 2)]
    )
    def test_has_a_warning_where_it_is_set(self, batch, ratio, needed):
        """For a table, and for the instance's defaults of all tables; both properties are named."""
        own = {self.BATCH: batch, self.RATIO: ratio}
        shared = {name.replace("sleeper.", "sleeper.default."): own[name] for name in own}

        (warning,) = table_property_warnings(own, TableProperties(own))
        assert instance_property_warnings(shared, shared) == [warning]
        assert f"a job needs at least {needed} files with a size ratio of {ratio}" in warning
        assert self.BATCH in warning
        assert self.RATIO in warning

    def test_is_judged_by_all_that_is_in_force(self):
        """A batch of a table beside the ratio of its instance; and a batch beside the default."""
        instance = InstanceProperties({self.RATIO.replace("sleeper.", "sleeper.default."): "5"})
        given = {self.BATCH: "5"}

        assert table_property_warnings(given, TableProperties(given)) == []
        assert len(table_property_warnings(given, TableProperties(given, instance))) == 1

    def test_is_not_told_when_something_else_is_set(self):
        """Whoever set it was warned."""
        stored = {self.BATCH: "2", "sleeper.table.gc.delay.minutes": "5"}

        given = {"sleeper.table.gc.delay.minutes": "5"}
        assert table_property_warnings(given, TableProperties(stored)) == []

    def test_is_not_told_of_the_basic_strategy(self):
        """It merges full batches, of whatever sizes."""
        own = {
            self.BATCH: "2",
            "sleeper.table.compaction.strategy.class": "BasicCompactionStrategy",
        }
        single = {**own, self.BATCH: "1"}

        assert table_property_warnings(own, TableProperties(own)) == []
        assert len(table_property_warnings(single, TableProperties(single))) == 1


class TestUnknownNames:
    """They are stored, because upstream or a later version may know them (INS-5)."""

    @pytest.mark.parametrize("name", ["sleeper.table.from.the.future", "my.own.note", "x"])
    def test_are_no_failure(self, name):
        """Where no known name is near."""
        given = {name: "1"}

        assert validate_table_properties({**TABLE, **given}, SCHEMA, given=given) is None
        assert validate_instance_properties({**INSTANCE, **given}, given=given) is None

    def test_have_a_warning_with_the_nearest_name(self):
        """For a person who reads the log."""
        (warning,) = table_property_warnings({"sleeper.table.compression.codec": "zstd"})

        assert warning == (
            "sleeper.table.compression.codec is stored, but no property has this name. "
            "Did you mean sleeper.table.parquet.compression.codec?"
        )
        assert instance_property_warnings({"zzz": "1"}) == [
            "zzz is stored, but no property has this name."
        ]

    def test_any_setting_of_spark_is_known(self):
        """It is passed on to Spark, whatever its name."""
        name = "sleeper.bulk.import.emr.spark.executor.coresPerSomething"

        assert instance_property_warnings({name: "1"}) == []
        assert "is a property of the instance" in refused_by_a_table(name)

    def test_known_names_that_nothing_uses_have_a_warning_too(self):
        """Whoever sets one learns that it has no effect."""
        unused = "sleeper.table.statestore.transactionlog.snapshot.expiry.days"

        assert table_property_warnings({unused: "5", "sleeper.table.online": "true"}) == [
            f"{unused} is stored, but nothing here uses it."
        ]

    def test_what_goes_back_to_its_default_has_no_warning(self):
        """None takes a value away."""
        assert table_property_warnings({"zzz": None}) == []


class TestStateStores:
    """`sleeper.table.statestore.classname`."""

    @pytest.mark.parametrize(
        "text",
        [
            "TransactionLogStateStore",
            "sleeper.statestore.TransactionLogStateStore",
            "sleeper.statestore.transactionlog.DynamoDBTransactionLogStateStore",
            "DynamoDBTransactionLogStateStoreNoSnapshots",
            "sleeper.statestore.dynamodb.DynamoDBStateStore",
            "sleeper.statestore.s3.S3StateStore",
            "",
        ],
    )
    def test_what_is_built_is_accepted(self, text):
        """By its simple or its qualified name."""
        given = {STORE: text}

        assert validate_table_properties({**TABLE, **given}, SCHEMA, given=given) is None

    def test_an_unknown_store_is_refused_with_the_list(self):
        """As any value that is not allowed."""
        assert "it must be one of TransactionLogStateStore" in refused_by_a_table(
            STORE, "MyStateStore"
        )

    def test_a_table_that_names_one_already_can_still_be_changed(self):
        """Earlier versions stored such a name and ignored it."""
        stored = {**TABLE, STORE: "DynamoDBTransactionLogStateStore"}

        assert validate_table_properties(stored, SCHEMA, given={}) is None


def test_values_can_be_stored_as_json():
    """What comes out of any accepted value is text."""
    texts = property_texts({"a": True, "b": 7, "c": "é"})

    assert json.loads(json.dumps(texts)) == {"a": "true", "b": "7", "c": "é"}
