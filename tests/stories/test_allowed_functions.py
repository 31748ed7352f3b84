"""Code that a table names runs only where whoever opens the instance allows it."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys

import pyarrow as pa
import pytest

import sleeper
from sleeper.errors import BadRequest, TableFunctionFailed
from tests.unit.interfaces.command_line import sleeper as command

SCHEMA = pa.schema([("k", pa.int64())])
ROWS = [{"k": n} for n in range(5)]
MODULE = '''
import pathlib
import sys

pathlib.Path(__file__).with_suffix(".imported").touch()


def keep(batches):
    """Change nothing."""
    yield from batches


def leave(batches):
    """End the process, if that were possible."""
    yield next(batches)
    sys.exit(7)
'''


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Where somebody's modules lie, on Python's path."""
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "__init__.py").touch()
    (tmp_path / "theirs" / "rows.py").write_text(MODULE)
    (tmp_path / "theirs" / "leaves.py").write_text("raise SystemExit(7)\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delenv("SLEEPER_ALLOW_FUNCTIONS", raising=False)
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] == "theirs"]:
        del sys.modules[name]


@pytest.fixture
def url(folder):
    """An instance with a table whose function somebody else has chosen."""
    table = sleeper.connect(folder / "i", create=True).create_table("t", SCHEMA, row_keys=["k"])
    table.ingest(ROWS)
    table.set_properties({"sleeper.table.function": "theirs.rows:keep"})
    return str(folder / "i")


def test_nothing_is_imported_without_being_allowed(url, folder):
    """Wherever rows are read or written; the error says how to allow it, in both ways."""
    table = sleeper.connect(url).table("t")
    calls = [
        lambda: table.query(key=1),
        lambda: table.query(keys=[1, 2]).count(),
        lambda: table.query().count(),
        lambda: table.ingest(ROWS),
        lambda: table.bulk_import(ROWS),
        lambda: table.export(folder / "out"),
    ]

    for call in calls:
        with pytest.raises(TableFunctionFailed) as refused:
            call()
        assert "connect(..., allow_functions=['theirs.rows'])" in str(refused.value)
        assert "SLEEPER_ALLOW_FUNCTIONS=theirs.rows" in str(refused.value)
    run = table.compact(all_files=True)

    assert [job for job in run.jobs if "not allowed here" not in str(job.failure)] == []
    assert not (folder / "theirs" / "rows.imported").exists()


@pytest.mark.parametrize(
    ("allowed", "runs"),
    [
        (["theirs.rows"], True),
        (["theirs.*"], True),
        (["others", "theirs.ro?s"], True),
        (["*"], True),
        ([], False),
        (["theirs"], False),
        (["rows"], False),
        (["theirs.rows.*"], False),
        (["Theirs.rows"], False),
    ],
)
def test_a_pattern_names_modules(url, folder, monkeypatch, allowed, runs):
    """As an argument, or in the environment; the argument wins, an empty one too."""
    by_argument = sleeper.connect(url, allow_functions=allowed).table("t")
    monkeypatch.setenv("SLEEPER_ALLOW_FUNCTIONS", " , ".join(allowed))
    by_environment = sleeper.connect(url).table("t")
    monkeypatch.setenv("SLEEPER_ALLOW_FUNCTIONS", "*")
    none = sleeper.connect(url, allow_functions=[]).table("t")

    for table in (by_argument, by_environment):
        if runs:
            assert table.query().to_pylist() == ROWS
        else:
            with pytest.raises(TableFunctionFailed, match="not allowed here"):
                table.query().count()
    with pytest.raises(TableFunctionFailed, match="not allowed here"):
        none.query().count()


def test_what_is_allowed_goes_along_into_other_processes(url):
    """Pickled tables and instances carry it, as Spark's workers and those of compactions need."""
    allowed = sleeper.connect(url, allow_functions=["theirs.*"])

    for copy in (pickle.loads(pickle.dumps(allowed)).table("t"), allowed.table("t")):
        assert pickle.loads(pickle.dumps(copy)).query().to_pylist() == ROWS
        assert copy.compact(all_files=True, workers=2).failed == ()
    with pytest.raises(TableFunctionFailed, match="not allowed here"):
        pickle.loads(pickle.dumps(sleeper.connect(url).table("t"))).query().count()


def test_the_command_line_reads_the_variable(url):
    """Without it, it ends with 1 and says what to set."""
    refused = command("query", "t", "--instance", url)
    done = command(
        *("query", "t", "--json", "--instance", url), env={"SLEEPER_ALLOW_FUNCTIONS": "theirs.*"}
    )

    assert refused.exit_code == 1
    assert "SLEEPER_ALLOW_FUNCTIONS=theirs.rows" in refused.stderr
    assert done.exit_code == 0


@pytest.mark.parametrize("function", ["theirs.rows:leave", "theirs.leaves:keep"])
def test_a_function_cannot_end_the_process(url, folder, function):
    """Neither when it is called, nor when its module is imported."""
    program = (
        "import sleeper\n"
        "from sleeper.errors import TableFunctionFailed\n"
        f"table = sleeper.connect({url!r}, allow_functions=['theirs.*']).table('t')\n"
        f"table.set_properties({{'sleeper.table.function': {function!r}}})\n"
        "try: table.query().count()\n"
        "except TableFunctionFailed as error: print(error)\n"
        "print('goes on')\n"
    )
    path = os.pathsep.join([str(folder), *filter(None, sys.path)])

    done = subprocess.run(
        [sys.executable, "-c", program],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert "SystemExit: 7" in done.stdout
    assert done.stdout.endswith("goes on\n")


@pytest.mark.parametrize("wrong", ["theirs.*", ["a b"], ["theirs:keep"], [5], 5, [""]])
def test_a_list_that_cannot_be_meant_is_refused(url, wrong):
    """A text is no list of modules; no module's name has such characters."""
    with pytest.raises(BadRequest, match="allow_functions"):
        sleeper.connect(url, allow_functions=wrong)
