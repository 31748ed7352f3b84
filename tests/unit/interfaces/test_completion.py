"""Shells complete commands, names of tables and names of properties, quickly and without a word."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest
from click.shell_completion import ShellComplete, get_completion_class

import sleeper
from sleeper.interfaces.cli.main import cli
from tests.patience import PATIENCE_S

SCHEMA = pa.schema([("id", pa.int64())])
INTERACTIVE = """
eval "$(_SLEEPER_COMPLETE=bash_source sleeper)"
COMP_WORDS=({words}); COMP_CWORD={place}; COMPREPLY=()
compopt() {{ printf 'compopt %s %s\\n' "$@"; }}
_sleeper_completion sleeper
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.fixture
def url(tmp_path):
    """An instance with two tables."""
    instance = sleeper.connect(tmp_path / "instance", create=True)
    for name in ("flights", "trips"):
        instance.create_table(name, SCHEMA, row_keys=["id"])
    return instance.url


@pytest.fixture
def logs_as_before():
    """Logging is off from a look-up that takes too long until the process ends."""
    yield
    logging.disable(logging.NOTSET)


def completions(*words, incomplete=""):
    shell = ShellComplete(cli, {}, "sleeper", "_SLEEPER_COMPLETE")
    return [item.value for item in shell.get_completions([*words], incomplete)]


def test_commands_are_completed():
    """Given the beginning of a command, then those that begin so."""
    assert completions(incomplete="ver") == ["verify"]
    assert "--verbose" in completions(incomplete="--v")
    assert "rename" in completions("table")


@pytest.mark.parametrize(
    "words",
    [
        ("table", "show"),
        ("query",),
        ("ingest",),
        ("compact",),
        ("table", "rename"),
        ("verify",),
        ("jobs", "list", "--table"),
    ],
    ids=" ".join,
)
def test_tables_are_completed(url, monkeypatch, words):
    """Given an instance in the environment, or as the command names it, then its tables."""
    monkeypatch.setenv("SLEEPER_INSTANCE", url)

    assert completions(*words) == ["flights", "trips"]
    assert completions(*words, incomplete="f") == ["flights"]


def test_the_instance_may_be_an_option(url, monkeypatch):
    """Given `--instance` before the name, then the tables of that instance."""
    monkeypatch.delenv("SLEEPER_INSTANCE", raising=False)

    assert completions("query", "--instance", url) == ["flights", "trips"]
    assert completions("query") == []


@pytest.mark.parametrize(
    ("words", "begun", "name"),
    [
        (("table", "set", "flights"), "sleeper.table.gc", "sleeper.table.gc.delay.minutes="),
        (("table", "add", "new", "--set"), "sleeper.table.gc", "sleeper.table.gc.delay.minutes="),
        (("instance", "set"), "sleeper.gc", "sleeper.gc.batch.size="),
        (("instance", "unset"), "sleeper.gc", "sleeper.gc.batch.size"),
        (("init", "/data/new", "--set"), "sleeper.gc", "sleeper.gc.batch.size="),
    ],
)
def test_properties_are_completed(words, begun, name):
    """Given the beginning of a property, then those that have an effect and begin so."""
    found = completions(*words, incomplete=begun)

    assert name in found
    assert all(each.startswith(begun) for each in found)


@pytest.mark.parametrize("trouble", ["/nowhere/at/all", "s3://bucket/x", "ftp://what", ""])
def test_trouble_is_silent_and_short(trouble, monkeypatch, capfd, logs_as_before):
    """Given an instance that is not there, or does not answer, then nothing, soon: no retries."""
    monkeypatch.setenv("SLEEPER_INSTANCE", trouble)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    began = time.monotonic()

    assert completions("table", "show") == []
    assert time.monotonic() - began < PATIENCE_S / 10
    assert capfd.readouterr() == ("", "")


def typed_in_bash(words, url):
    """Return what bash would offer for the last of some words, and the options that it was told."""
    place = len(words) - 1
    script = INTERACTIVE.format(words=" ".join(f"'{word}'" for word in words), place=place)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", script],
        capture_output=True,
        text=True,
        env={**os.environ, "PATH": path, "SLEEPER_INSTANCE": url},
        check=False,
    )
    assert done.stderr == ""
    return done.stdout.split("\n")[:-1]


def test_bash_completes_tables_and_properties(url):
    """Given the lines of the guide in bash, then names; after `NAME=` no space follows."""
    if not shutil.which("bash") or not get_completion_class("bash"):
        pytest.skip("this machine has no bash")

    assert typed_in_bash(["sleeper", "table", "show", ""], url) == ["flights", "trips"]
    assert typed_in_bash(["sleeper", "table", "set", "trips", "sleeper.table.gc.d"], url) == [
        "compopt -o nospace",
        "sleeper.table.gc.delay.minutes=",
    ]
