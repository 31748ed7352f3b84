"""What is committed: fit for any machine, pinned, and nothing left over."""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
from collections.abc import Collection, Iterable, Iterator
from functools import cache

import pytest

from tests.house.sources import (
    PACKAGE,
    ROOT,
    Found,
    Rule,
    Source,
    all_tests,
    check_finds_marked_lines,
    check_none,
    offenders,
    package,
    read,
)

HOUSE = "tests/house/"
THIS = f"{HOUSE}test_repository.py"
ERRORS = f"{PACKAGE}/errors.py"
PINS = sorted((ROOT / "requirements").glob("*.txt"))
OF_TOOLS = re.compile(r"(^|/)(build|dist|data|__pycache__|\.(?!ci/)[^/]+)/")
UNCHANGED = ("src/sleeper/interfaces/page/static/htmx.min.js",)
"""Files of others, as these published them: what is asked of our texts does not hold for them."""
# Spark's images have Spark and Java in folders of these names.
MACHINE_PATHS = re.compile(
    r"(?<![\w.~/:{}$-])/(?!opt/(?:spark|java|entrypoint))(work|root|Users|opt|mnt|home|tmp)/\w"
)
REGISTRY_HOSTS = re.compile(
    r"(?:pypi|pythonhosted|test\.pypi)\.org|repo1?\.maven|registry\.npmjs|--(?:extra-)?index-url"
    r"|--find-links|--trusted-host"
)
OTHERS_PACKAGE = re.compile(
    r"""pip3?\ install\ (?:--?\S+\ )*['"]?sleeper(?![\w-])   # installed under the import's name
    |(?<![\w-])sleeper\\?\[[a-z]+\]                          # an extra of it
    """,
    re.VERBOSE,
)


@cache
def tracked() -> tuple[Source, ...]:
    """Every text file that git tracks or would track; where there is no git, all of ours."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    names = listed.stdout.split("\0") if listed.returncode == 0 else []
    files = [ROOT / name for name in names if name] or [
        path for path in ROOT.rglob("*") if not OF_TOOLS.search(str(path.relative_to(ROOT)))
    ]
    texts = []
    for path in files:
        name = path.relative_to(ROOT).as_posix()
        if path.is_file() and name not in (THIS, *UNCHANGED):
            content = path.read_bytes()
            if b"\0" not in content:
                texts.append(Source(name, content.decode()))
    return tuple(texts)


def with_pattern(pattern: re.Pattern[str]) -> Rule:
    """A rule that finds each line in which a pattern is."""

    def lines(source: Source) -> Iterator[Found]:
        for line, _ in source.matches(pattern):
            yield line, source.lines[line - 1].strip()[:120]

    return lines


places_of_one_machine = with_pattern(MACHINE_PATHS)
package_registries = with_pattern(REGISTRY_HOSTS)
package_of_somebody_else = with_pattern(OTHERS_PACKAGE)


def wrong_ends(source: Source) -> Iterator[Found]:
    if source.text and not source.text.endswith("\n"):
        yield len(source.lines), "no newline at the end"


class TestEveryFile:
    """What each committed file keeps to."""

    def test_is_looked_at(self):
        """Sources, pages and recipes are among the files."""
        names = {each.name for each in tracked()}

        assert {"Makefile", "README.md", "src/sleeper/errors.py", "pyproject.toml"} <= names

    def test_names_no_place_of_one_machine(self):
        """No file holds a path of a developer's machine."""
        check_none(offenders(places_of_one_machine, tracked()), "write a path of the repository")

    def test_names_no_package_registry(self):
        """No file says where packages are fetched from: that is each machine's own setting."""
        check_none(offenders(package_registries, tracked()), "leave it to the machine's settings")

    def test_never_installs_the_package_of_somebody_else(self):
        """The distribution is `sleeper-store`: `sleeper` on the public index is another project."""
        check_none(offenders(package_of_somebody_else, tracked()), "write sleeper-store")

    def test_ends_with_a_newline(self):
        """Every file that is not empty ends with one newline."""
        check_none(offenders(wrong_ends, tracked()), "add a newline")


MARKED = {
    places_of_one_machine: """\
cd /home/me/sleeper  # bad
open("/tmp/instance")  # bad
s3://bucket/tmp/a, ~/tmp/a, $HOME/work/a, src/work/a, /tmp
path = "/opt/spark/work-dir"
path = "/opt/other/folder"  # bad
""",
    package_registries: """\
https://pypi.org/simple  # bad
pip install --index-url=there sleeper-store  # bad
go install example.org/a, npm install aws-cdk
https://registry.npmjs.org/aws-cdk  # bad
""",
    package_of_somebody_else: """\
pip install sleeper-store, pip install 'sleeper-store[aws]'
pip install sleeper  # bad
pip3 install --upgrade 'sleeper'  # bad
use sleeper[aws]  # bad
sleeper query
""",
}


@pytest.mark.parametrize(
    ("rule", "text"),
    MARKED.items(),
    ids=["places_of_one_machine", "package_registries", "package_of_somebody_else"],
)
def test_a_line_that_fits_one_machine_alone_is_found(rule, text):
    """Given lines of settings and pages, then those that name a machine or a registry are found."""
    check_finds_marked_lines(rule, text, "docs/a.md")


def test_a_file_without_a_newline_at_its_end_is_found():
    """Given files that are empty, ended, and not ended, then the last is found, by its last line."""
    texts = ("", "one\n", "one\ntwo")

    assert [[*wrong_ends(Source("a.md", text))] for text in texts] == [
        [],
        [],
        [(2, "no newline at the end")],
    ]


def loose_pins(text: str) -> Iterator[str]:
    """Requirements without one version or a hash, and addresses."""
    entries = re.split(r"\n(?=[a-z])", re.sub(r"^ *#.*\n", "", text, flags=re.MULTILINE))
    for entry in entries:
        pinned = re.match(r"[\w.-]+==[\w.]+( ;[^\n]+)? \\\n", entry)
        if not pinned or "--hash=sha256:" not in entry or "://" in entry:
            yield entry.partition("\n")[0]


class TestPins:
    """requirements/*.txt."""

    def test_fix_version_and_content(self):
        """Every requirement has one version and at least one hash, and no address."""
        loose = [f"{path.name}: {each}" for path in PINS for each in loose_pins(path.read_text())]

        assert len(PINS) > 3
        check_none(loose, "run `make lock`")
        assert [path.name for path in PINS if "://" in path.read_text()] == []

    @pytest.mark.parametrize(
        ("text", "loose"),
        [
            ("click==8.5 \\\n    --hash=sha256:ab\nrich==15 ; a \\\n    --hash=sha256:cd\n", []),
            (
                "click==8.5 \\\n    --hash=sha256:ab\nrich>=15 \\\n    --hash=sha256:cd\n",
                ["rich>=15 \\"],
            ),
            ("click==8.5\n", ["click==8.5"]),
            ("click==8.5 \\\n    --hash=md5:ab\n", ["click==8.5 \\"]),
            ("", [""]),
        ],
    )
    def test_that_are_loose_are_found(self, text, loose):
        """Given requirements, then those without a version or a hash are found."""
        assert [*loose_pins(text)] == loose

    def test_cover_the_dependencies_of_the_package(self):
        """requirements/run.in names exactly what pyproject.toml depends on."""
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        declared = {re.split(r"[<>=\[]", item)[0] for item in project["dependencies"]}
        lines = (ROOT / "requirements/run.in").read_text().splitlines()

        assert {line for line in lines if line and not line.startswith("#")} == declared

    def test_are_not_below_what_the_package_asks_for(self):
        """The lower bounds of pyproject.toml are versions that the tests have run with."""
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        pinned = dict(re.findall(r"^([\w.-]+)==([\w.]+)", PIN_TEXT, flags=re.MULTILINE))

        for item in project["dependencies"]:
            name, bound = item.split(">=")
            asked = [int(part) for part in bound.split(".")]
            installed = [int(part) for part in pinned[name].split(".")]
            assert installed >= asked, item


PIN_TEXT = (ROOT / "requirements" / "run.txt").read_text()


def classes_of_errors() -> set[str]:
    """The errors that are no mere family of others."""
    classes = read(ERRORS).classes
    parents = {base.id for each in classes for base in each.bases if isinstance(base, ast.Name)}
    return {each.name for each in classes} - parents


def never_raised(names: Collection[str], texts: Iterable[str]) -> list[str]:
    """The errors that no text builds."""
    built = {name for text in texts for name in re.findall(r"\b(\w+)\(", text)}
    return sorted({*names} - built)


def never_seen(names: Collection[str], texts: Iterable[str]) -> list[str]:
    """The errors that no text names."""
    return sorted({*names} - {word for text in texts for word in re.findall(r"\w+", text)})


class TestErrors:
    """Each class of errors.py is used, and somebody has seen it."""

    def test_are_raised_somewhere(self):
        """Every error that is not a mere family is built by some line of the package."""
        texts = [each.text for each in package() if each.path.name != "errors.py"]

        assert len(classes_of_errors()) > 20
        check_none(never_raised(classes_of_errors(), texts), "raise it or remove it")

    def test_are_seen_by_some_test(self):
        """Every error is named by a test, and not by a house rule alone."""
        texts = [each.text for each in all_tests() if not each.name.startswith(HOUSE)]

        check_none(never_seen(classes_of_errors(), texts), "test what leads to it")

    def test_that_nothing_raises_or_sees_are_found(self):
        """Given texts, then a name in one is no call, and a part of a name is not the name."""
        names = {"CommitRefused", "CommitUnknown"}

        assert never_raised(names, ["raise CommitRefused(1)", "except CommitUnknown:"]) == [
            "CommitUnknown"
        ]
        assert never_seen(names, ["CommitRefusedToday", "raises(CommitUnknown)"]) == [
            "CommitRefused"
        ]
