"""The configuration of an instance goes to files by one command, and back by others."""

from __future__ import annotations

import pyarrow as pa
import pytest

import sleeper
from tests.unit.interfaces.command_line import sleeper as command

SCHEMA = pa.schema([("note", pa.string()), ("id", pa.string()), ("n", pa.int64())])


@pytest.fixture
def instance(tmp_path):
    opened = sleeper.connect(tmp_path / "first", create=True)
    opened.set_properties({"sleeper.gc.batch.size": 77})
    opened.create_table(
        "flights",
        SCHEMA,
        row_keys=["id"],
        split_points=["f", "m"],
        properties={"sleeper.table.gc.delay.minutes": 5},
    )
    opened.create_table("plain", SCHEMA, row_keys=["id"])
    return opened


def test_an_instance_is_made_from_what_another_one_wrote(instance, tmp_path):
    """
    Given an instance with properties and tables, when its configuration is downloaded, then the
    files make an instance and a table with the same properties, schema, order of columns and
    split points, but no id.
    """
    folder, other = tmp_path / "config", tmp_path / "other"
    wrote = command("instance", "download", folder, "--instance", instance.url)
    assert wrote.exit_code == 0, wrote.output
    assert wrote.output.count("wrote ") == 6

    made = command("init", other, "--properties", folder / "instance.properties")
    assert made.exit_code == 0, made.output
    table = folder / "tables" / "flights"
    added = command(
        *("table", "add", "trips", "--instance", other, "--schema", table / "schema.json"),
        *("--properties", table / "table.properties", "--splits-file", table / "splits.txt"),
    )
    assert added.exit_code == 0, added.output

    again = sleeper.connect(other)
    assert again.instance_id == "other"
    assert again.properties.text("sleeper.gc.batch.size") == "77"
    trips, flights = again.table("trips"), instance.table("flights")
    assert trips.split_points() == ["f", "m"]
    assert trips.arrow_schema == flights.arrow_schema
    assert trips.properties.gc.delay_minutes == 5
    assert trips.table_id != flights.table_id
    assert not (folder / "tables" / "plain" / "splits.txt").exists()


def test_leaves_that_split_points_cannot_say_are_told(instance, tmp_path):
    """Given leaves by the second row key, then the files do not have them, and the command says it."""
    table = instance.create_table(
        "deep",
        SCHEMA,
        row_keys=["id", "n"],
        properties={"sleeper.table.partition.splitting.threshold": 3},
    )
    table.ingest([{"id": "same", "n": n, "note": ""} for n in range(9)])
    table.split_partitions()
    leaves = len([*table.state().tree.leaves()])

    wrote = command("instance", "download", tmp_path / "config", "--instance", instance.url)

    assert wrote.exit_code == 0, wrote.output
    assert f"table deep has {leaves} leaves, some of them by other row keys" in wrote.stderr
    assert "begins with 1" in wrote.stderr
    assert "flights has" not in wrote.stderr
    assert not (tmp_path / "config" / "tables" / "deep" / "splits.txt").exists()


def test_a_setting_overrides_the_file_of_init(instance, tmp_path):
    """Given a file of properties and --set, then --set counts."""
    file = tmp_path / "instance.properties"
    file.write_text("sleeper.gc.batch.size=5\nsleeper.id=named\n")

    command("init", tmp_path / "i", "--properties", file, "--set", "sleeper.gc.batch.size=6")

    made = sleeper.connect(tmp_path / "i")
    assert made.properties.text("sleeper.gc.batch.size") == "6"
    assert made.instance_id == "named"


def test_a_misspelt_name_in_the_file_of_init_is_refused(tmp_path):
    """Given a file with a misspelt property, then it is named, and no instance is made."""
    file = tmp_path / "instance.properties"
    file.write_text("sleeper.gc.batch.sise=5\n")

    refused = command("init", tmp_path / "i", "--properties", file)

    assert refused.exit_code == 1
    assert "sleeper.gc.batch.size" in refused.stderr
    assert not (tmp_path / "i" / "instance.properties").exists()


def test_a_folder_with_files_is_left_alone(instance, tmp_path):
    """Given a folder with a file of the user's, then nothing is written into it."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep")

    refused = command("instance", "download", tmp_path / "mine", "--instance", instance.url)

    assert refused.exit_code == 1
    assert "not empty" in refused.stderr
    assert [each.name for each in (tmp_path / "mine").iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("name", ["..", "a/b", ".hidden"])
def test_a_table_whose_name_no_folder_can_have_is_written_under_its_id(instance, tmp_path, name):
    """Given a table named like another folder, then its files stay inside the new folder."""
    table = instance.create_table(name, SCHEMA, row_keys=["id"])

    command("instance", "download", tmp_path / "config", "--instance", instance.url)

    folders = {each.name for each in (tmp_path / "config" / "tables").iterdir()}
    assert folders == {"flights", "plain", table.table_id}
    assert {each.name for each in (tmp_path / "config").iterdir()} == {
        "instance.properties",
        "tables",
    }


def test_split_points_with_line_breaks_are_written_in_base64(instance, tmp_path):
    """Given a split point that no line can hold, then the file is base64, and can be read back."""
    instance.create_table("lines", SCHEMA, row_keys=["id"], split_points=["a\nb"])
    command("instance", "download", tmp_path / "config", "--instance", instance.url)
    table = tmp_path / "config" / "tables" / "lines"

    added = command(
        *("table", "add", "again", "--instance", instance.url, "--splits-base64"),
        *("--schema", table / "schema.json", "--splits-file", table / "splits.base64.txt"),
    )

    assert added.exit_code == 0, added.output
    assert instance.table("again").split_points() == ["a\nb"]


def test_tables_whose_names_are_alike_do_not_share_a_folder(instance, tmp_path):
    """
    Given a name in other letters, and one that is the id of a table whose name no folder can have,
    then each table has a folder of its own, on systems that tell letters apart and on others.
    """
    odd = instance.create_table("a/b", SCHEMA, row_keys=["id"])
    like_it = instance.create_table(odd.table_id, SCHEMA, row_keys=["id"])
    upper = instance.create_table("PLAIN", SCHEMA, row_keys=["id"])
    plain = instance.table("plain")

    command("instance", "download", tmp_path / "config", "--instance", instance.url)

    folders = {each.name for each in (tmp_path / "config" / "tables").iterdir()}
    of_ids = {each.table_id for each in (odd, like_it, upper, plain)}
    assert folders == {"flights", *of_ids}
