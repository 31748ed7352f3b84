"""`sleeper export`: what is written, what is said, and how it goes wrong."""

from __future__ import annotations

import json

import pyarrow.parquet as pq
import pytest

from tests.unit.interfaces.command_line import (
    ROWS,
    json_of,
    make_trips,
    rows_of,
    sleeper,
    write_rows,
)


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    """An instance with the table `trips`."""
    return make_trips(tmp_path_factory.mktemp("trips"))


@pytest.fixture
def export(url, tmp_path):
    """A function that exports `trips` to the folder `out`."""
    return lambda *options: sleeper(
        "export", "trips", tmp_path / "out", *options, "--instance", url
    )


def written(folder):
    return pq.read_table(folder / "part-00000.parquet").to_pylist()


def test_all_rows_are_written(export, tmp_path):
    """In key order; one line says how many, and where."""
    done = export()

    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.startswith(f"exported 4 rows of trips to {tmp_path / 'out'}: 1 file, ")
    assert done.stdout.endswith(" s, transaction 2\n")
    assert written(tmp_path / "out") == ROWS


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        (["--range", "taxi=m,"], [2, 3]),
        (["--range", "taxi=,m", "--range", "day=2,"], [1]),
        (["--range", "day=,0", "--range", "day=1000,2000"], [1, 3]),
        (["--prefix", "taxi=m"], [2]),
        (["--range", "day=2,", "--prefix", "taxi="], [1]),
        (["--as-of", "1"], []),
    ],
)
def test_questions_are_those_of_query(export, tmp_path, options, wanted):
    """--range and --as-of are read by the same code."""
    assert export(*options).exit_code == 0

    assert written(tmp_path / "out") == [ROWS[place] for place in wanted]


def test_columns_come_in_the_order_asked(export, tmp_path):
    """--columns, between commas or repeated."""
    assert export("--columns", "fare,taxi", "--columns", "day").exit_code == 0

    assert [*written(tmp_path / "out")[0]] == ["fare", "taxi", "day"]


def test_json_tells_the_files(export):
    """What a script wants to know."""
    told = json_of(export("--json"))

    assert told.pop("took_s") >= 0
    assert told == {"files": ["part-00000.parquet"], "rows": 4, "transaction": 2}


def test_an_export_goes_into_another_table(export, url, tmp_path):
    """As its help says: by `sleeper ingest`, with the folder as it is."""
    assert export().exit_code == 0
    schema = tmp_path / "schema.json"
    shown = json_of(sleeper("table", "show", "trips", "--json", "--instance", url))
    schema.write_text(json.dumps(shown["schema"]))
    added = sleeper("table", "add", "copy", "--schema", schema, "--instance", url)
    assert added.exit_code == 0, added.stderr

    done = sleeper("ingest", "copy", tmp_path / "out", "--instance", url)

    assert done.exit_code == 0, done.stderr
    assert rows_of(sleeper("query", "copy", "--json", "--instance", url)) == ROWS


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--range", "taxi"], 2, "should be NAME=VALUE"),
        (["--range", "taxi=a,b,c"], 2, "more than one comma"),
        (["--range", "fare=1,2"], 1, 'Key "fare" was not a row key field'),
        (["--columns", "none"], 1, "no column 'none'"),
        (["--as-of", "99"], 1, "99"),
    ],
)
def test_wrong_questions_write_nothing(export, tmp_path, options, code, message):
    """The message is that of `sleeper query`."""
    done = export(*options)

    assert done.exit_code == code
    assert message in done.stderr
    assert [*tmp_path.iterdir()] == []


def test_a_folder_with_something_in_it_is_left_alone(export, tmp_path):
    """Another name is to be given; nothing is replaced."""
    (tmp_path / "out").mkdir()
    write_rows(tmp_path / "out" / "mine.parquet", ROWS)

    done = export()

    assert done.exit_code == 1
    assert "is there already: name a folder that does not exist yet" in done.stderr
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mine.parquet"]
