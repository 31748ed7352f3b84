"""`sleeper history`: what the transactions of a table did, on the command line."""

from __future__ import annotations

import pytest

from tests.unit.interfaces.command_line import ROWS, json_of, make_trips, sleeper, write_rows


@pytest.fixture(scope="module")
def history(tmp_path_factory):
    """A function that asks for the history of `trips`, which has 25 transactions."""
    folder = tmp_path_factory.mktemp("trips")
    url = make_trips(folder)
    more = write_rows(folder / "more.parquet", ROWS[:1])
    for n in range(23):
        sleeper("ingest", "trips", more, "--job-id", f"job\t{n}", "--instance", url)
    return lambda *options: sleeper("history", "trips", *options, "--instance", url)


def test_the_last_20_transactions_are_shown(history):
    """The newest first; stderr says how to see more; what does not print is an escape."""
    done = history()
    lines = done.stdout.splitlines()

    assert lines[0].split()[:3] == ["transaction", "time", "what"]
    assert len(lines) == 22
    assert lines[2].split()[0] == "25"
    assert "job\\t22" in lines[2]
    assert "rows added" in lines[2]
    assert done.stderr == "--limit N shows more transactions, --all shows all\n"


@pytest.mark.parametrize(("options", "count"), [(["--limit", 3], 3), (["--all"], 25), ([], 20)])
def test_json_has_every_fact(history, options, count):
    """In one document."""
    found = json_of(history(*options, "--json"))

    assert [each["number"] for each in found] == list(range(25, 25 - count, -1))
    assert found[0]["job_ids"] == ["job\t22"]
    assert found[0]["kinds"] == ["rows added"]
    assert (found[0]["rows_added"], found[0]["files_added"]) == (1, 1)
    assert found[0]["time"].endswith("+00:00")


def test_a_time_of_it_is_a_version(history, tmp_path):
    """Given the time of a transaction, then `--as-of` reads that version, to the microsecond."""
    url = make_trips(tmp_path)
    first = json_of(sleeper("history", "trips", "--json", "--instance", url))[0]["time"]
    more = write_rows(tmp_path / "more.parquet", ROWS[:1])
    sleeper("ingest", "trips", more, "--instance", url)

    counted = sleeper("query", "trips", "--as-of", first, "--count", "--instance", url)

    assert counted.stdout == "4\n"
    shown = sleeper("history", "trips", "--instance", url).stdout.splitlines()[3].split()[1]
    again = sleeper("query", "trips", "--as-of", shown, "--count", "--instance", url)
    assert again.stdout == "4\n"


def test_contradictions_are_wrong_use(history):
    """--all and --limit."""
    done = history("--all", "--limit", 1)

    assert (done.exit_code, done.stdout) == (2, "")
    assert "contradict each other" in done.stderr
