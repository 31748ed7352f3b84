"""Pages say what the code does, because they are written or run by it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from sleeper.interfaces.cli.main import cli

ROOT = Path(__file__).resolve().parents[2]


def command_paths(command: click.Command, context: click.Context) -> list[str]:
    """The command and everything beneath it, as it is typed."""
    beneath: list[str] = []
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            if not child.hidden:
                within = click.Context(child, info_name=name, parent=context)
                beneath += command_paths(child, within)
    return [context.command_path, *beneath]


COMMANDS = command_paths(cli, click.Context(cli, info_name="sleeper"))


def test_generated_pages_and_shown_outputs_are_fresh():
    """`make docs` would change nothing: every shown command runs and prints what the page says."""
    done = subprocess.run(
        [sys.executable, "tools/make_docs.py", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", COMMANDS)
def test_every_command_is_in_the_reference(path):
    """docs/reference/cli.md has a section for every command that can be typed."""
    reference = (ROOT / "docs/reference/cli.md").read_text()

    assert f"\n## {path}\n" in reference


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE"])
def test_a_newcomer_finds_the_pages_every_repository_has(page):
    """The pages that people look for first are there and say something."""
    assert len((ROOT / page).read_text().splitlines()) > 3


LINK = re.compile(r"\]\((?!https?://|#|mailto:)([^)#\s]+)(?:#[^)]*)?\)")
PAGES = sorted(
    path
    for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("changelog.d/*.md"))
)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_leads_to_a_file(page):
    """A link to a page, picture or folder of the repository names one that is there."""
    targets = LINK.findall(page.read_text())

    assert [target for target in targets if not (page.parent / target).exists()] == []


class TestDecisions:
    """docs/decisions: one page each, numbered without a gap."""

    PAGES = sorted((ROOT / "docs/decisions").glob("[0-9]*.md"))

    def test_are_numbered_without_a_gap(self):
        """Pages are named NNNN-title.md, from 0001 on."""
        numbers = [int(page.name[:4]) for page in self.PAGES]

        assert numbers == list(range(1, len(numbers) + 1))

    def test_have_the_same_parts(self):
        """Each page has a status with its date, and says why, what and what follows."""
        parts = ("\nStatus: ", "\nContext. ", "\nDecision. ", "\nConsequences. ")

        missing = {
            page.name: [part.strip() for part in parts if part not in page.read_text()]
            for page in self.PAGES
        }

        assert {name: gaps for name, gaps in missing.items() if gaps} == {}


class TestDesign:
    """docs/design.md describes the packages and files that there are."""

    PAGE = (ROOT / "docs/design.md").read_text()

    def test_names_only_files_that_exist(self):
        """A path in backticks is one of the repository, or of the package `sleeper`."""
        named = {name for name in re.findall(r"`([\w./-]+)`", self.PAGE) if "/" in name}
        named |= set(re.findall(r"`(\w+\.py)`", self.PAGE))

        missing = [
            name
            for name in sorted(named)
            if not (ROOT / name).exists() and not (ROOT / "src/sleeper" / name).exists()
        ]

        assert named
        assert missing == []

    def test_draws_every_package_and_says_what_it_may_do(self):
        """The drawing and the table of packages list those of src/sleeper, and no others."""
        modules = {"errors"}
        packages = {path.parent.name for path in (ROOT / "src/sleeper").glob("*/__init__.py")}
        drawing = self.PAGE.split("```")[1]
        drawn = {
            word for line in drawing.splitlines() for word in re.findall(r"^\w+|(?<=\|  )\w+", line)
        }
        rows = re.findall(r"^\| (`.*?) \|", self.PAGE.split("\nWhere to look")[0], re.MULTILINE)
        described = set(re.findall(r"`(\w+)`", " ".join(rows)))

        assert drawn & (packages | modules) == packages | modules
        assert described == packages
