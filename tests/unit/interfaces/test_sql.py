"""`sleeper sql` and `sleeper query --where`, on the command line and at the prompt."""

from __future__ import annotations

import os
import pty
import stat
import subprocess
import sys
import time

import pyarrow.parquet as pq
import pytest

import sleeper as library
from sleeper.interfaces.cli import sql as sql_prompt
from tests.patience import PATIENCE_S
from tests.unit.interfaces.command_line import ROWS, make_trips, rows_of, sleeper

BY_TAXI = "SELECT taxi, count(*) AS n FROM trips GROUP BY taxi ORDER BY taxi"


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    """An instance with the table `trips`."""
    return make_trips(tmp_path_factory.mktemp("trips"))


@pytest.fixture(scope="module")
def sql(url):
    """A function that runs `sleeper sql` on it."""
    return lambda *options, **more: sleeper("sql", *options, "--instance", url, **more)


def test_a_statement_is_an_argument_a_file_or_stdin(sql, tmp_path):
    """All print the same rows."""
    file = tmp_path / "by_taxi.sql"
    file.write_text(BY_TAXI)

    done = sql(BY_TAXI)

    assert [line.split() for line in done.stdout.splitlines()[2:4]] == [["a", "2"], ["m", "1"]]
    assert done.stdout.endswith("3 rows\n")
    for other in (sql("--file", file), sql("-f", "-", answer=BY_TAXI), sql(answer=BY_TAXI)):
        assert other.stdout == done.stdout


def test_rows_are_written_in_every_format(sql, tmp_path):
    """As by `sleeper query`: JSON lines, CSV, and files."""
    path = tmp_path / "found.parquet"

    assert [row["n"] for row in rows_of(sql(BY_TAXI, "--json"))] == [2, 1, 1]
    assert sql(BY_TAXI, "--format", "csv").stdout.startswith('"taxi","n"\n"a",2\n')
    assert sql(BY_TAXI, "--output", path).stderr == f"wrote 3 rows to {path}\n"
    assert pq.read_table(path).num_rows == 3
    assert len(rows_of(sql(BY_TAXI, "--json", "--limit", 1))) == 1


def test_of_many_rows_the_first_are_shown(sql):
    """And stderr says how to get all."""
    done = sql("SELECT value FROM generate_series(1, 500)")

    assert done.stdout.endswith("more rows, the first 100 shown\n")
    assert "--output FILE" in done.stderr


def test_the_plan_says_what_is_read(sql):
    """Leaves, files and pages; other output is refused beside it."""
    done = sql("--explain", "SELECT * FROM trips WHERE taxi = 'a'")

    assert "trips: 1 of 2 leaves" in done.stdout
    assert sql("--explain", BY_TAXI, "--json").exit_code == 2


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["DROP TABLE trips"], 1, "delete_table()"),
        (["SELECT fair FROM trips"], 1, "did you mean 'fare'"),
        (["SELECT * FROM trip"], 1, "did you mean 'trips'"),
        (["SELECT 1", "-f", __file__], 2, "not both"),
        (["-f", "absent.sql"], 2, "absent.sql"),
        (["SELECT 1", "--output", "x.unknown"], 2, "give --format"),
        ([""], 1, "empty"),
    ],
)
def test_wrong_use_is_refused(sql, options, code, message):
    """With the exit code of its kind."""
    done = sql(*options)

    assert (done.exit_code, message in done.stderr) == (code, True), done.stderr


def test_rows_are_queried_by_a_condition(url):
    """`--where`, alone and with a range; counted too."""

    def query(*options):
        return sleeper("query", "trips", *options, "--instance", url)

    late = [row for row in ROWS if (row["fare"] or 0) > 2]

    assert rows_of(query("--where", "fare > 2", "--json")) == late
    assert query("--where", "fare > 2", "--count").stdout == f"{len(late)}\n"
    assert query("--where", "fare > 2", "--range", "taxi=,n", "--count").stdout == "1\n"
    assert "no column 'fair'" in query("--where", "fair > 2").stderr
    assert "2 rows" in query("--where", "fare > 2").stdout


def test_rows_are_read_where_no_temp_folder_can_be_written_to(url, sql, monkeypatch):
    """Given a system without any folder for temp files, as in a container that is read-only, then
    rows are found by key and by SQL: these reads spill nothing.
    """

    def fail(*_, **__):
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setattr("tempfile.mkdtemp", fail)

    found = sleeper("query", "trips", "--key", "taxi=m", "--json", "--instance", url)

    assert rows_of(found) == [row for row in ROWS if row["taxi"] == "m"]
    assert sql(BY_TAXI).stdout.endswith("3 rows\n")


def test_the_prompt_runs_statements_until_it_is_left(url, tmp_path):
    """On a terminal: several lines, commands, mistakes; the history is this user's alone."""
    shown = typed(
        url,
        tmp_path,
        "SELECT taxi,\n count(*) AS n\nFROM trips GROUP BY taxi;\n\\d\n\\d trips\n\\?\n"
        "SELECT nothing FROM trips;\n\\d nothing\n\\e SELECT * FROM trips;\n\\q\n",
    )

    assert "sql> " in shown
    assert "...> " in shown
    assert "3 rows" in shown
    assert "row key" in shown
    assert "Ctrl-C drops it" in shown
    assert "no column 'nothing'" in shown
    assert "no table 'nothing'" in shown
    assert "2 of 2 leaves" in shown
    history = tmp_path / "sleeper" / "sql_history"
    assert "FROM trips GROUP BY taxi;" in history.read_text()
    assert stat.S_IMODE(history.stat().st_mode) == 0o600


def typed(url, folder, text):
    """What a terminal shows when this is typed at the prompt."""
    ours, theirs = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-m", "sleeper", "sql", "--instance", url],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "XDG_STATE_HOME": str(folder), "TERM": "dumb"},
    )
    os.close(theirs)
    os.write(ours, text.encode())
    shown, end = b"", time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        try:
            part = os.read(ours, 65_536)
        except OSError:  # the child has ended
            break
        if not part:
            break
        shown += part
    os.close(ours)
    assert child.wait(timeout=PATIENCE_S) == 0, shown.decode()
    return shown.decode()


def test_names_are_completed(url, tmp_path):
    """Key words, tables and columns, in either case; names with signs are quoted."""
    with library.connect(url) as instance:
        prompt = sql_prompt.SqlPrompt(instance, tmp_path, run=instance.sql, show=lambda _: None)

        assert [prompt.complete("TA", n) for n in range(2)] == ["taxi", None]
        assert prompt.complete("tri", 0) == "trips"
        assert prompt.complete("sel", 0) == "SELECT"
        assert prompt.complete("zzz", 0) is None


def test_a_prompt_without_readline_or_a_home_still_works(url, tmp_path, monkeypatch, capsys):
    """No history then, and no error; a history that cannot be written is logged."""
    lines = iter(["SELECT 1 AS one;", KeyboardInterrupt, "SELECT", KeyboardInterrupt])

    def read(_):
        line = next(lines, EOFError)
        if isinstance(line, str):
            return line
        raise line

    monkeypatch.setattr("builtins.input", read)
    shown = []
    blocked = tmp_path / "file"
    blocked.write_text("")
    with library.connect(url) as instance:
        for module in (None, sql_prompt.readline):
            monkeypatch.setattr(sql_prompt, "readline", module)
            prompt = sql_prompt.SqlPrompt(
                instance,
                blocked,
                run=instance.sql,
                show=lambda rows: shown.append(rows.to_pylist()),
            )
            prompt.run()

    assert shown == [[{"one": 1}]]
    assert "q quits" in capsys.readouterr().out
