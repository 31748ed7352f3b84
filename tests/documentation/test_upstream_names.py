"""Names that upstream's documents use are on a page, and the command line answers its scripts."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from sleeper.interfaces.cli.main import cli
from sleeper.interfaces.cli.upstream_names import OTHER_WAYS, SCRIPTS
from sleeper.model.known_properties.catalogue import INSTANCE_PROPERTIES, TABLE_PROPERTIES
from sleeper.model.known_properties.given import OPEN_FAMILIES
from tests.unit.interfaces.command_line import sleeper as command

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/from-upstream.md").read_text()


def names_in(file):
    """The names in a file beside this one: a line each, comments left out."""
    lines = (Path(__file__).parent / file).read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def test_each_name_of_upstreams_documents_is_on_the_page():
    """Given the names that its documents use, then each is on the page, as code."""
    on_page = {name for code in re.findall(r"`([^`\n]+)`", PAGE) for name in (code, *code.split())}
    assert [name for name in names_in("upstream_names.txt") if name not in on_page] == []


def test_each_property_that_users_of_upstream_set_is_on_a_page():
    """Given the properties of its documents, then each is known here, by a name or a family."""
    known = {each.name for each in (*INSTANCE_PROPERTIES, *TABLE_PROPERTIES)}
    known |= {each.instance_default for each in TABLE_PROPERTIES if each.instance_default}
    unknown = [each for each in names_in("upstream_properties.txt") if each not in known]
    assert [each for each in unknown if not each.startswith(OPEN_FAMILIES)] == []


def test_scripts_are_answered_by_commands_that_exist():
    """Given the command for each script, then its words and options are those of the command."""
    faults = [each for each in SCRIPTS.values() if not is_command(each)]
    assert faults == []


@pytest.mark.parametrize(
    "typed", ["addTable", "renameTable.sh", "REINITIALISETABLE", "deleteTable", "downloadConfig.sh"]
)
def test_the_command_line_answers_the_name_of_a_script(typed):
    """Given upstream's name of a script as a command, then the error says what it is here."""
    result = command(typed)
    name = typed.removesuffix(".sh").lower()
    known = {script.lower(): text for script, text in (SCRIPTS | OTHER_WAYS).items()}
    assert result.exit_code == 2
    assert "script of upstream's" in result.stderr
    assert known[name].split(maxsplit=1)[0] in result.stderr


def test_other_words_are_answered_as_before():
    """Given a word that is no script of upstream's, then a near command is named."""
    assert "Did you mean 'query'?" in command("qeury").stderr


def is_command(text: str) -> bool:
    """Whether `sleeper` has the words of a command line, up to its arguments, and its options."""
    _, *words = shlex.split(text)
    found: click.Command | None = cli
    while isinstance(found, click.Group) and words:
        found = found.get_command(click.Context(found), words.pop(0))
    options = {name for each in found.params for name in each.opts} if found else set()
    return found is not None and {word for word in words if word.startswith("--")} <= options
