"""What strangers send makes no line of a log, and no label of a figure, that is not ours."""

from __future__ import annotations

import json
import logging
import re
from urllib.parse import quote

import pyarrow as pa
import pytest
from starlette.testclient import TestClient

import sleeper
from sleeper.errors import SleeperError
from sleeper.interfaces.cli.stderr import LogOutput
from sleeper.interfaces.rest.app import make_app

FORGED = "2026-01-01T00:00:00.000Z ERROR   forged"
BREAKS = ("\n", "\r", "\r\n", "\x0b", "\x85", "\u2028", "\x1b[2J\n", "\x00\n")
_BEGIN = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z (?:DEBUG|INFO|WARNING|ERROR|CRITICAL) +")
_SAMPLE = re.compile(r'[a-z_]+(?:\{[a-z_]+="(?:[^"\\\n]|\\["\\n])*"(?:,[a-z_]+="[^"\n]*")*\})? \S+')


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize("mark", BREAKS, ids=ascii)
def test_a_text_of_others_begins_no_line_of_a_log(capsys, form, mark):
    """In a message, and in the text of an error that is logged with its trace."""
    # given a service that logs
    log, hostile = logging.getLogger("sleeper.hostile"), f"a{mark}{FORGED}"
    output = LogOutput(0, form)
    output.serve()

    # when it logs such a text by itself, and an error that has it
    with output.open():
        log.warning("the table %s has a name", hostile)
        try:
            raise SleeperError(hostile)
        except SleeperError:
            log.exception("it failed")

    # then each line that looks like the beginning of one is one of the two
    lines = capsys.readouterr().err.splitlines()
    if form == "json":
        assert [json.loads(line)["level"] for line in lines] == ["WARNING", "ERROR"]
    else:
        assert len([line for line in lines if _BEGIN.match(line)]) == 2
        assert all(_BEGIN.match(line) or line.startswith("  ") for line in lines)
        assert all(line.isprintable() for line in lines)


@pytest.mark.parametrize("mark", BREAKS, ids=ascii)
def test_requests_make_one_line_each(capsys, mark):
    """Whatever their path, their headers and their job's id are."""
    hostile = f"x{mark}{FORGED}"
    output = LogOutput(0, "text")
    output.serve()
    with sleeper.connect("memory://") as instance, output.open():
        instance.create_table("t", pa.schema([("id", pa.int64())]), row_keys=["id"])
        client = TestClient(
            make_app(instance), base_url="http://localhost", raise_server_exceptions=False
        )
        client.get(f"/sleeper/tables/{quote(hostile, safe='')}")
        client.get(f"/sleeper/jobs/{quote(hostile, safe='')}")
        client.get("/sleeper/tables", headers={"Host": quote(hostile), "Origin": quote(hostile)})
        headers = {"Content-Type": "text/csv", "Sleeper-Job-Id": quote(hostile)}
        client.post("/sleeper/tables/t/rows", content=b"id\n1\n", headers=headers)
        client.post("/sleeper/tables/t/query", json={"where": hostile, "key": hostile})

    lines = capsys.readouterr().err.splitlines()

    assert all(_BEGIN.match(line) or line.startswith("  ") for line in lines)
    assert not [line for line in lines if line.startswith(FORGED)]


def test_a_table_name_makes_one_label(tmp_path):
    """Prometheus reads every line of the figures, and each name comes back as it is."""
    names = ["plain", 'a"} 1\nsleeper_workers{kind="x"} 9', "back\\", 'q"', "\u2028", "a\rb", "\\n"]
    with sleeper.create_instance(tmp_path / "instance") as instance:
        made = []
        for name in names:
            try:
                instance.create_table(name, pa.schema([("id", pa.int64())]), row_keys=["id"])
            except SleeperError:
                continue
            made.append(name)
        client = TestClient(make_app(instance), base_url="http://localhost")

        answer = client.get("/sleeper/metrics")

    samples = [line for line in answer.text.split("\n") if line and not line.startswith("#")]
    assert made
    assert [line for line in samples if not _SAMPLE.fullmatch(line)] == []
    assert sum(line.startswith("sleeper_workers{") for line in samples) <= 20
    assert 'sleeper_workers{kind="x"} 9' not in samples
