"""`sleeper publish` and `unpublish`."""

from __future__ import annotations

from pathlib import Path

import deltalake
import pytest

import sleeper as sleeper_package
from sleeper.workers.maintenance import OnlineTable
from tests.unit.interfaces.command_line import ROWS, json_of, make_trips, sleeper, write_rows


@pytest.fixture
def url(tmp_path):
    """The table `trips`, with two leaves."""
    return make_trips(tmp_path)


def test_a_table_is_published_and_no_longer(url):
    """Given a table, then the line says what to give to readers, and what became of it."""
    done = sleeper("publish", "trips", "--as", "delta", "--instance", url)
    shown = json_of(sleeper("publish", "trips", "--json", "--instance", url))
    gone = sleeper("unpublish", "trips", "--as", "delta", "--instance", url)
    after = sleeper("publish", "trips", "--instance", url)

    assert done.exit_code == 0, done.output
    first, second = done.stdout.splitlines()
    assert first.startswith("published transaction 2 of trips as delta, version 0: ")
    assert second == f"readers open {shown[0]['location']}"
    assert (shown[0]["rows"], shown[0]["lag"]) == (len(ROWS), 0)
    assert gone.stdout == "trips is no longer published as delta: 1 object deleted\n"
    assert after.stdout == "trips is not published\n"


def test_a_lag_is_told_on_stderr(url, tmp_path):
    """Given a later version that cannot be read in place, then a warning says why."""
    table = sleeper_package.connect(url).table("trips")
    table.set_properties({"sleeper.table.aggregations": "last(fare)"})
    more = write_rows(tmp_path / "more.parquet", ROWS)
    assert sleeper("ingest", "trips", more, "--instance", url).exit_code == 0

    done = sleeper("publish", "trips", "--as", "iceberg", "--instance", url)
    refused = sleeper("publish", "trips", "--make-clean", "--instance", url)

    assert done.stdout.startswith("published transaction 2 of trips as iceberg, version 0: ")
    assert "the table is 1 transaction later than that: not published, as 2 leaves" in done.stderr
    assert "--make-clean needs --as" in refused.stderr


def test_a_round_of_maintenance_publishes(url):
    """Given the property, then the worker publishes once for each commit, and says so."""
    table = sleeper_package.connect(url).table("trips")
    table.set_properties({"sleeper.table.publish.formats": "delta,iceberg"})
    maintained = OnlineTable(table, stop=None)

    first, second = (maintained.maintain("publish") for _ in range(2))

    assert first.done == "published transaction 2 as delta, published transaction 2 as iceberg"
    assert second is None
    location = Path(table.publications()[0].location)
    assert deltalake.DeltaTable(location).version() == 0
