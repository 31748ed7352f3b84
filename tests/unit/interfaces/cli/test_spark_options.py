"""Commands that do their work on Spark when they are asked to."""

from __future__ import annotations

import pyarrow as pa
import pytest

import sleeper as library
from sleeper.instance.instance import Instance
from sleeper.tables.table import Table
from tests.unit.interfaces.command_line import sleeper

SESSION = object()
VERBS = {
    "compact": ("compact", ()),
    "split": ("split_partitions", ()),
    "gc": ("collect_garbage", ()),
    "export": ("export", ("out",)),
    "verify": ("verify", ()),
}


class Stopped(Exception):
    """Ends a verb at its beginning."""


@pytest.fixture
def url(tmp_path):
    with library.connect(tmp_path / "instance", create=True) as opened:
        opened.create_table("t", pa.schema([("id", pa.int64())]), row_keys=["id"])
        return opened.url


@pytest.fixture
def started(monkeypatch):
    """The sessions that were asked for."""
    asked = []

    def spark_session(instance, *, master, conf):
        asked.append((instance.url, master, conf))
        return SESSION

    monkeypatch.setattr(Instance, "spark_session", spark_session)
    return asked


@pytest.mark.parametrize("command", VERBS)
@pytest.mark.parametrize(
    ("options", "master", "conf"),
    [
        (("--spark",), None, {}),
        (("--master", "spark://here:7077"), "spark://here:7077", {}),
        (("--spark", "--conf", "a.b=1", "--conf", "c=d=e"), None, {"a.b": "1", "c": "d=e"}),
    ],
)
def test_the_verb_gets_the_session(url, started, monkeypatch, command, options, master, conf):
    """Any of the options starts Spark, with the master and the settings that they name."""
    verb, more = VERBS[command]
    got = []

    def stop(*_, spark, **__):
        got.append(spark)
        raise Stopped

    monkeypatch.setattr(Table, verb, stop)

    sleeper(command, "t", *more, *options, "--instance", url)

    assert got == [SESSION]
    assert started == [(url, master, conf)]


@pytest.mark.parametrize("command", VERBS)
def test_without_the_options_no_spark_is_started(url, started, command, tmp_path):
    """This process does the work."""
    more = (tmp_path / "out",) if command == "export" else ()

    done = sleeper(command, "t", *more, "--instance", url)

    assert done.exit_code == 0, done.output
    assert started == []
