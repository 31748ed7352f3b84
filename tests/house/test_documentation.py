"""Pages say what the code does: made of it, or compared with it. None of this runs a program.

tests/documentation has what does: outputs that pages show, and the site.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import date

import click
import pytest

from sleeper.interfaces.cli.main import cli
from tests.house.packages import drawn_packages, packages_and_modules
from tests.house.sources import (
    PACKAGE,
    ROOT,
    Found,
    Source,
    check_finds_marked_lines,
    check_none,
    offenders,
    read,
    sources,
)

sys.path.insert(0, str(ROOT / "tools"))

import make_docs
import python_page
import release
import verify_claims

LINK = re.compile(r"\]\((?!https?://|#|mailto:)([^)#\s]+)(?:#[^)]*)?\)")


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


def broken_links(source: Source) -> Iterator[Found]:
    """Links to a page, picture or folder of the repository that is not there."""
    for line, found in source.matches(LINK):
        if not (ROOT / source.path.parent / found[1]).exists():
            yield line, found[1]


def missing_members(page: str, owner: str, names: list[str]) -> list[str]:
    """The members of a class that have no heading on the page of Python."""
    return [f"{owner}.{name}" for name in names if f"\n### {owner}.{name}\n" not in page]


def faults_of(claim: verify_claims.Claim) -> Iterator[str]:
    """What is wrong with a claim: a suite, an invariant that is not there, or none at all."""
    for path in (*claim.full, *claim.quick):
        if path.startswith("tests/") and not (ROOT / path).exists():
            yield f"{claim.name}: {path} is not there"
    for end in [part for each in claim.invariants.split() for part in each.split("-")]:
        if end not in verify_claims.INVARIANTS:
            yield f"{claim.name}: no invariant {end}"
    if not (claim.full or claim.missing):
        yield f"{claim.name}: neither suites nor a word on why there is none"
    if claim.quick and not claim.full:
        yield f"{claim.name}: quick suites and no full ones"


def test_pages_made_of_code_are_fresh():
    """`make docs` would change none of them: commands, properties, Python, REST, rules."""
    stale = [
        str(path.relative_to(ROOT))
        for path, make in make_docs.pages_of_code()
        if make(path.read_text()) != path.read_text()
    ]

    check_none(stale, "run `make docs` and commit what it writes")


def test_every_command_is_in_the_reference():
    """docs/reference/cli.md has a section for every command that can be typed."""
    reference = (ROOT / "docs/reference/cli.md").read_text()
    commands = command_paths(cli, click.Context(cli, info_name="sleeper"))

    assert "sleeper query" in commands
    check_none((path for path in commands if f"\n## {path}\n" not in reference), "run `make docs`")


def test_every_public_member_is_on_the_page_of_python():
    """Each public method and attribute of the classes that users hold has a section."""
    page = (ROOT / "docs/reference/python.md").read_text()

    check_none(
        (
            name
            for owner in python_page.CLASSES
            for name in missing_members(page, owner.__name__, python_page.public_names(owner))
        ),
        "run `make docs`",
    )
    assert missing_members(page, "Table", ["no_method"]) == ["Table.no_method"]


def test_every_public_name_is_on_the_page_of_python():
    """Given `sleeper.__all__`, then each name is a heading, an error or the package of Spark."""
    page = (ROOT / "docs/reference/python.md").read_text()

    assert [
        name
        for name in python_page.sleeper.__all__
        if not re.search(rf"(?m)^##+ {name}\b|^\| `{name}` \|", page)
        and name not in {"spark", "SleeperError"}
    ] == []


def test_a_newcomer_finds_the_pages_every_repository_has():
    """The pages that people look for first are there and say something."""
    pages = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE")

    assert [page for page in pages if len((ROOT / page).read_text().splitlines()) <= 3] == []


def test_every_link_leads_to_a_file():
    """A link to a page, picture or folder of the repository names one that is there."""
    at_the_top = [read(path.name) for path in sorted(ROOT.glob("*.md"))]
    pages = [*at_the_top, *sources("docs", ".md"), *sources("changelog.d", ".md")]

    assert len(pages) > 100
    check_none(offenders(broken_links, pages), "name a file that is there")


def test_a_link_that_leads_nowhere_is_found():
    """Given links to files, folders, headings and sites, then those that lead nowhere are found."""
    text = """\
[here](design.md), [there](../src/sleeper/errors.py), [a folder](decisions/)
[a heading](#one), [of a page](design.md#packages), [a site](https://example.org/a.md)
![a picture](no_picture.png)  # bad
[one](design.md) and [none](src/sleeper/errors.py#a)  # bad
"""

    check_finds_marked_lines(broken_links, text, "docs/a.md")


def test_the_fragments_that_are_there_can_be_released():
    """Given changelog.d of this repository, then each name has a kind, and the order is of them."""
    fragments = release.found_fragments(ROOT / "changelog.d")

    assert release.section(fragments, "9.9.9", date(2026, 11, 22)).startswith("## 9.9.9")


def test_claims_name_suites_faults_and_invariants_that_exist():
    """`make verify` leaves no suite out because it was renamed."""
    assert verify_claims.CLAIMS
    check_none(
        (fault for claim in verify_claims.CLAIMS for fault in faults_of(claim)),
        "mend the claim in tools/claims.py",
    )


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"full": ("tests/gone", "-x")}, "tests/gone is not there"),
        ({"invariants": "I1 no-thing"}, "no invariant"),
        ({"full": (), "quick": (), "missing": ""}, "neither suites nor"),
        ({"full": (), "missing": "later"}, "quick suites and no full"),
    ],
)
def test_a_claim_that_names_what_is_not_there_is_found(change, fault):
    """Given a claim with a suite or an invariant that is not there, or none, then that is said."""
    claim = next(each for each in verify_claims.CLAIMS if each.full and each.quick)

    assert any(fault in each for each in faults_of(replace(claim, **change)))


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
            if not (ROOT / name).exists() and not (ROOT / PACKAGE / name).exists()
        ]

        assert named
        check_none(missing, "docs/design.md names it: name the file of today")

    def test_draws_every_package_and_says_what_it_may_do(self):
        """The drawing and the table of packages list those of src/sleeper, and no others."""
        packages, modules = packages_and_modules()
        rows = re.findall(r"^\| (`.*?) \|", self.PAGE.split("\nWhere to look")[0], re.MULTILINE)
        described = set(re.findall(r"`(\w+)`", " ".join(rows)))

        assert set(drawn_packages(self.PAGE)) & (packages | modules) == packages | modules
        assert described == packages
