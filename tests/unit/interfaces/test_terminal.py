"""Names that hold what a terminal obeys: shown as escapes, on stdout and stderr."""

from __future__ import annotations

import json

import pytest

from sleeper.interfaces.cli.present import print_json, say
from sleeper.interfaces.cli.stderr import warn

EVIL = "\x1b]0;title\x07\x1b[2J\x9b2J\u202egnp.exe"


@pytest.mark.parametrize("show", [say, warn, lambda text: print_json({"name": text})])
def test_nothing_is_printed_that_a_terminal_obeys(show, capsys):
    """Escape sequences of seven and of eight bits, and what turns text around."""
    show(f"no table {EVIL}")

    out, err = capsys.readouterr()
    printed = (out + err).replace("\n", "")
    assert printed.isprintable()
    assert "2J" in printed


def test_json_still_says_the_same(capsys):
    """Escapes of JSON, so that a program reads the name as it is."""
    print_json({"name": EVIL, "other": "größe"})

    printed = capsys.readouterr().out
    assert json.loads(printed) == {"name": EVIL, "other": "größe"}
    assert "größe" in printed


def test_a_message_keeps_its_lines(capsys):
    """Some errors have several."""
    warn("first\nsecond")

    assert capsys.readouterr().err == "first\nsecond\n"
