"""`sleeper table alter`: what it takes, prints, asks and refuses."""

from __future__ import annotations

import pyarrow as pa
import pytest

import sleeper as library
from tests.unit.interfaces.command_line import json_of, sleeper

ODD = "a:b=c"
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        pa.field("n", pa.int32(), nullable=False),
        ("note", pa.string()),
        (ODD, pa.string()),
    ]
)


@pytest.fixture
def table(tmp_path, monkeypatch):
    """One row, in the table `t` of an instance that the environment names."""
    monkeypatch.setenv("SLEEPER_INSTANCE", str(tmp_path / "i"))
    with library.connect(tmp_path / "i", create=True) as instance:
        table = instance.create_table("t", SCHEMA, row_keys=["id"])
        table.ingest([{"id": "a", "n": 1, "note": "z", ODD: "q"}])
        yield table


CHANGES = (
    "renamed note to remark, renamed a:b=c to d=e, widened n to LongType, n may be null, added x, "
    "added l"
)


def alter(*options, **more):
    return sleeper("table", "alter", "t", *options, **more)


def test_columns_change_and_are_shown(table):
    """What changed is in one line, then come the fields; the history has the reason."""
    done = sleeper(
        *("--reason", "ticket 12", "table", "alter", "t", "--add", "x:LongType"),
        *("--default", "x=7", "--add", "l:ListType(StringType or null):null"),
        *("--rename", "note=remark", "--rename", f"{ODD}=d=e", "--widen", "n:LongType"),
        *("--nullable", "n"),
    )

    assert done.exit_code == 0, done.stderr
    assert done.stdout.splitlines()[:4] == [
        f"changed table t (transaction 3): {CHANGES}",
        "",
        "field    type                                   kind   ",
        "─" * 55,
    ]
    assert table.query().to_pylist() == [
        {"id": "a", "n": 1, "remark": "z", "d=e": "q", "x": 7, "l": None}
    ]
    assert table.history(1)[0].reasons == ("ticket 12",)
    assert "columns changed" in sleeper("history", "t").stdout


def test_a_change_to_what_is_there_says_so(table):
    """Given a command that is run again, then no transaction follows."""
    first, again = (alter("--nullable", "n") for _ in range(2))

    assert first.stdout.splitlines()[0] == "changed table t (transaction 3): n may be null"
    assert again.exit_code == 0
    assert again.stdout.splitlines()[0] == "table t has these columns already (transaction 3)"


def test_a_program_reads_the_schema(table):
    """With --json, as `sleeper table show --json` has it."""
    done = json_of(alter("--add", "x:DecimalType(5, 2):null", "--json"))

    assert done == {
        "transaction": 3,
        "schema": json_of(sleeper("table", "show", "t", "--json"))["schema"],
    }


def test_to_drop_asks(table):
    """The values are lost, so somebody says yes, or --force does."""
    refused = alter("--drop", "note")
    agreed = alter("--drop", "note", answer="y\n")
    forced = alter("--drop", "n", "--force")

    assert (refused.exit_code, agreed.exit_code, forced.exit_code) == (1, 0, 0)
    assert "--force does not ask" in refused.stderr
    assert library.connect(table._context.url).table("t").columns == ["id", ODD]


def test_properties_are_set_in_the_same_step(table):
    """An empty value takes one away."""
    codec = "sleeper.table.parquet.compression.codec"
    table.set_properties({codec: "snappy", "sleeper.table.parquet.page.rows": 500})

    done = alter(
        *("--add", "x:LongType:null", "--set", f"{codec}="),
        *("--set", "sleeper.table.gc.delay.minutes=7"),
    )

    assert done.exit_code == 0, done.stderr
    values = library.connect(table._context.url).table("t").properties.values
    assert codec not in values
    assert values["sleeper.table.gc.delay.minutes"] == "7"
    assert values["sleeper.table.parquet.page.rows"] == "500"


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        ([], 1, "something to add, drop, rename"),
        (["--add", "x:LongType"], 1, "give it a default"),
        (["--add", "x"], 2, "must be FIELD:TYPE, such as x:StringType"),
        (["--add", ":LongType:null"], 1, "a field needs a name"),
        (["--add", "x:int64:null"], 1, "for int64 of Arrow write LongType"),
        (["--add", "x:Longtype:null"], 1, "is LongType meant?"),
        (["--add", "x:nonsense"], 1, "Types are IntType"),
        (["--add", "x:LongType:null", "--add", "x:IntType:null"], 2, "'x' is there twice"),
        (["--add", "x:LongType", "--default", "y=1"], 2, "'y' is not added"),
        (["--add", "x:LongType", "--default", "x"], 2, "--default"),
        (["--add", "x:LongType", "--default", "x=1.5"], 1, "default '1.5' of field 'x'"),
        (["--add", "x:ListType(LongType)", "--default", "x=[1]"], 1, "of field 'x'"),
        (["--drop", "notes", "--force"], 1, "is 'note' meant?"),
        (["--widen", "n:IntType"], 1, "cannot become IntType"),
        (["--widen", "n:int64"], 1, "write LongType"),
        (["--rename", "note"], 2, "--rename"),
        (["--rename", "id=key"], 1, "'id' is a key"),
        (["--nullable", "m"], 1, "none of this name"),
        (
            ["--nullable", "n", "--set", "sleeper.table.parquet.compression.codecs=x"],
            1,
            "Did you mean",
        ),
    ],
)
def test_what_is_wrong_is_refused(table, options, code, words):
    """By the words that tell what to write; nothing is changed."""
    done = alter(*options)

    assert done.exit_code == code
    assert words in done.stderr
    assert table.refresh() == 2


def test_a_table_of_format_1_says_how_to_upgrade(table):
    """The command is in the message."""
    table.downgrade()

    assert "sleeper table upgrade t" in alter("--nullable", "n").stderr


@pytest.mark.parametrize("statement", ["ALTER TABLE t ADD COLUMN x int", "alter table t drop n"])
def test_sql_names_the_command(table, statement):
    """As it only reads."""
    done = sleeper("sql", statement)

    assert done.exit_code == 1
    assert "`sleeper table alter`" in done.stderr
