"""Runs `sleeper` commands inside the test's process, exit code and all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from click.testing import CliRunner, Result

from sleeper.interfaces.cli.main import main

TRIPS = {
    "rowKeyFields": [{"name": "taxi", "type": "StringType"}, {"name": "day", "type": "LongType"}],
    "sortKeyFields": [{"name": "at", "type": "LongType"}],
    "valueFields": [{"name": "fare", "type": "DoubleType", "nullable": True}],
}
ROWS = [
    {"taxi": "a", "day": 1, "at": 10, "fare": 1.5},
    {"taxi": "a", "day": 1234, "at": 20, "fare": None},
    {"taxi": "m", "day": 1, "at": 30, "fare": 3.0},
    {"taxi": "z, \u2028=", "day": -5, "at": 40, "fare": 4.25},
]


class _Main:
    """What CliRunner calls: the whole command line, with our own exit codes."""

    name = "sleeper"

    @staticmethod
    def main(args, **_):
        main([*args])


def sleeper(*arguments: object, answer: str | None = None, env: dict[str, str] | None = None):
    """Run one command; `answer` is typed at its questions."""
    return CliRunner().invoke(_Main, [*map(str, arguments)], input=answer, env=env)


def json_of(result: Result) -> Any:
    """The one JSON document that a command printed."""
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def rows_of(result: Result) -> list[dict[str, Any]]:
    """The rows that `query --json` printed, one object a line."""
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.split("\n") if line]


def write_schema(folder: Path, document: dict[str, Any]) -> Path:
    """A schema file."""
    path = folder / "schema.json"
    path.write_text(json.dumps(document))
    return path


def write_rows(path: Path, rows: list[dict[str, Any]]) -> Path:
    """A Parquet file."""
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def make_trips(folder: Path) -> str:
    """An instance whose table `trips` holds ROWS in two leaf partitions; returns its URL."""
    url = str(folder / "instance")
    splits = folder / "splits.txt"
    splits.write_text("m\n")
    schema = write_schema(folder, TRIPS)
    for command in (
        ("init", url),
        ("table", "add", "trips", "--schema", schema, "--splits-file", splits, "--instance", url),
        ("ingest", "trips", write_rows(folder / "trips.parquet", ROWS), "--instance", url),
    ):
        done = sleeper(*command)
        assert done.exit_code == 0, done.output
    return url
