"""Properties through every door: Python, files and the command line check them alike."""

from __future__ import annotations

import logging

import pyarrow as pa
import pytest

import sleeper
from sleeper.errors import PropertiesInvalid
from sleeper.instance.instance import create_instance

SCHEMA = pa.schema([("id", pa.string())])
MISSPELT = "sleeper.table.gc.delay.minuts"
UNKNOWN = "sleeper.table.colour"


@pytest.fixture
def instance(tmp_path):
    return sleeper.connect(tmp_path / "instance", create=True)


def made(instance, properties):
    return instance.create_table("t", SCHEMA, row_keys=["id"], properties=properties)


def test_numbers_and_truth_are_taken_as_they_are(instance):
    """
    Given properties as Python has them
    When a table is created, and changed
    Then they are set
    """
    table = made(instance, {"sleeper.table.parquet.page.rows": 7, "sleeper.table.online": False})

    assert table.properties.parquet.page_rows == 7
    assert not table.online
    table.set_properties({"sleeper.table.online": True, "sleeper.table.parquet.page.rows": 8})
    assert table.online
    assert table.properties.parquet.page_rows == 8


@pytest.mark.parametrize("wrong", [5.5, b"true", ["true"]])
def test_a_value_of_another_type_is_refused_with_its_property(instance, tmp_path, wrong):
    """
    Given a value that is neither str, int nor bool
    When a table or an instance is made with it, or a table is changed
    Then the error names the property, and nothing is made
    """
    table = made(instance, {})

    with pytest.raises(PropertiesInvalid, match=r"^sleeper\.table\.online is "):
        table.set_properties({"sleeper.table.online": wrong})
    with pytest.raises(PropertiesInvalid, match=r"^sleeper\.table\.online is "):
        instance.create_table(
            "u", SCHEMA, row_keys=["id"], properties={"sleeper.table.online": wrong}
        )
    with pytest.raises(PropertiesInvalid, match=r"^sleeper\.gc\.batch\.size is "):
        create_instance(tmp_path / "other", {"sleeper.gc.batch.size": wrong})

    assert [record.name for record in instance.tables()] == ["t"]
    assert not (tmp_path / "other").exists()


def test_an_online_flag_that_is_neither_true_nor_false_makes_no_table(instance):
    """
    Given sleeper.table.online=maybe
    When a table is created
    Then it is refused, where once an offline table was made
    """
    with pytest.raises(PropertiesInvalid, match="'maybe', but it must be true or false"):
        made(instance, {"sleeper.table.online": "maybe"})

    assert instance.tables() == ()


def test_a_misspelt_name_is_refused_in_every_door(instance, tmp_path):
    """
    Given a name that differs from a property's in one letter
    When a table or an instance is made with it, or a table is changed
    Then the error gives the right name, and nothing was changed
    """
    table = made(instance, {})

    with pytest.raises(PropertiesInvalid, match=r"Did you mean sleeper\.table\.gc\.delay\.min"):
        instance.create_table("u", SCHEMA, row_keys=["id"], properties={MISSPELT: 5})
    with pytest.raises(PropertiesInvalid, match="Did you mean"):
        table.set_properties({MISSPELT: 5})
    with pytest.raises(PropertiesInvalid, match="Did you mean"):
        table.set_properties({MISSPELT: None})
    with pytest.raises(PropertiesInvalid, match="Did you mean"):
        create_instance(tmp_path / "other", {"sleeper.gc.batch.sizes": 5})

    assert set(table.properties.values) == {"sleeper.table.schema"}


def test_a_misspelt_name_that_is_stored_can_be_removed(instance):
    """
    Given a table that an earlier version stored a misspelt name for
    When another property is set, and then that name is taken away
    Then both succeed
    """
    table = made(instance, {})
    index = instance._context.index
    record = index.by_id(table.table_id)
    changed = type(record)(
        record.table_id, record.name, record.online, {**record.properties, MISSPELT: "5"}
    )
    index.replace(record, changed)

    table.set_properties({"sleeper.table.gc.delay.minutes": 5})
    assert MISSPELT in table.properties.values
    table.set_properties({MISSPELT: None})

    assert MISSPELT not in table.properties.values


def test_an_unknown_name_is_stored_with_a_warning(instance, tmp_path, caplog):
    """
    Given a name that is near to no property's
    When it is set
    Then it is stored, and the log says that it has no effect
    """
    made(instance, {UNKNOWN: "red"}).set_properties({f"{UNKNOWN}.two": 2})
    create_instance(tmp_path / "other", {"sleeper.colour": "red"})

    warned = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert [text.split()[0] for text in warned] == [UNKNOWN, f"{UNKNOWN}.two", "sleeper.colour"]
    assert instance.table("t").properties.text(UNKNOWN) == "red"


def test_compaction_that_never_merges_is_told_where_it_is_set(instance, tmp_path, caplog):
    """
    Given a batch of three files, which cannot meet the default size ratio of 3
    When it is set for a table, a new table or an instance
    Then each time a warning says so, and what to set
    """
    batch = "table.compaction.files.batch.size"
    table = made(instance, {})
    table.set_properties({f"sleeper.{batch}": 3})
    table.set_properties({f"sleeper.{batch}": 4})
    other = create_instance(tmp_path / "other", {f"sleeper.default.{batch}": 2})
    other.set_properties({f"sleeper.default.{batch}": 12})
    made(other, {f"sleeper.{batch}": 1})

    warned = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    ends = [text.partition(".")[0].rpartition("and ")[2] for text in warned]
    assert ends == ["may have 3", "may have 2", "may have 1"]


def test_mistakes_in_a_file_that_was_edited_by_hand_are_logged(tmp_path, caplog):
    """
    Given an instance whose properties file has a misspelt name and a wrong value
    When it is opened
    Then it opens, and the log names both
    """
    create_instance(tmp_path / "i")
    file = tmp_path / "i" / "instance.properties"
    with file.open("a") as text:
        text.write("sleeper.gc.batch.sizes=5\nsleeper.gc.files.maximum=many\n")

    sleeper.connect(tmp_path / "i").tables()

    warned = " ".join(each.getMessage() for each in caplog.records)
    assert "sleeper.gc.batch.sizes is not a property. Did you mean sleeper.gc.batch.size?" in warned
    assert "sleeper.gc.files.maximum is 'many'" in warned
    assert str(tmp_path) in warned
