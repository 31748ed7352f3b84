"""What a notebook shows of the commonest mistakes: an error that fits one screen."""

from __future__ import annotations

import subprocess
import sys
import traceback

import pyarrow as pa
import pytest

import sleeper

SCREEN = 40
"""The lines of a screen."""
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("v", pa.float64())])


@pytest.fixture(scope="module")
def table():
    with sleeper.connect("memory://") as instance:
        made = instance.create_table("planes", SCHEMA, row_keys=["id"])
        made.ingest([{"id": 1, "v": 2.0}, {"id": 2, "v": 3.0}])
        made.of = instance
        yield made


def read_twice(table, _):
    rows = table.query(where="v > 0")
    rows.to_arrow()
    rows.to_arrow()


MISTAKES = {
    "wrong key field": (lambda t, _: t.query(key={"idd": 1}), "row keys are id"),
    "wrong type of key": (lambda t, _: t.query(key="one"), "integer"),
    "wrong column": (lambda t, _: t.query(key=1, columns=["w"]), "it has id, v"),
    "wrong column in a condition": (lambda t, _: t.query(where="w > 1"), "no column 'w'"),
    "missing table": (lambda t, _: t.of.table("plane"), "did you mean 'planes'"),
    "wrong type of value": (lambda t, _: t.ingest([{"id": "x", "v": 1.0}]), "does not fit"),
    "misspelt property": (
        lambda t, _: t.set_properties({"sleeper.table.gc.delay.minute": 9}),
        "Did you mean",
    ),
    "server down": (
        lambda *_: sleeper.connect("http://127.0.0.1:1").tables(),
        "the server http://127.0.0.1:1 did not answer: [Errno 111] Connection refused. Is it running",
    ),
    "bad SQL": (lambda t, _: t.of.sql("SELEC id FROM planes"), "only reads and deletes here"),
    "unknown function": (lambda t, _: t.of.sql("SELECT strftime(id) FROM planes"), "to_char("),
    "bad file": (lambda t, folder: t.ingest(folder / "rows.parquet"), "cannot be read as Parquet"),
    "no file": (lambda t, folder: t.ingest(folder / "none.parquet"), "no file"),
    "no instance": (lambda _, folder: sleeper.connect(folder / "none"), "no Sleeper instance"),
    "read twice": (read_twice, "Query again"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_error_of_a_mistake_fits_one_screen(table, tmp_path, mistake):
    """Given a mistake of a newcomer, its traceback has no second error inside and at most 40 lines,
    the last of which say what to do.
    """
    (tmp_path / "rows.parquet").write_text("id,v")
    run, words = MISTAKES[mistake]

    with pytest.raises(sleeper.SleeperError) as caught:
        run(table, tmp_path)

    shown = "".join(traceback.format_exception(caught.value)).splitlines()
    assert words in str(caught.value)
    assert "Traceback" not in "".join(shown[1:])
    assert len(shown) <= SCREEN, "\n".join(shown)


NOTEBOOK = """
import sys
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell()
shell.run_cell("import sleeper\\ninstance = sleeper.connect('memory://')")
shell.run_cell("def look():\\n    # a comment\\n    return instance.table('planes')")
shell.run_cell("rows = look().query()")
"""


def test_a_notebook_shows_the_cell_and_the_message():
    """Given a mistake in a function of a notebook, then IPython shows the lines of the notebook that
    led to it and the message, and no line of this package.
    """
    done = subprocess.run(
        [sys.executable, "-c", NOTEBOOK], check=True, capture_output=True, text=True
    )

    assert done.stdout.splitlines() == [
        "line 1 of the cell",
        "line 3 of the cell, in look()",
        "TableNotFound: no table 'planes'; the instance has no tables yet",
    ]
