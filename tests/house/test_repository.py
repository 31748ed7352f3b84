"""What is committed: fit for any machine, pinned, and nothing left over."""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "sleeper"
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


def tracked_texts() -> dict[str, str]:
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
    texts = {}
    for path in files:
        if path.is_file() and path != Path(__file__).resolve():
            content = path.read_bytes()
            name = str(path.relative_to(ROOT))
            if b"\0" not in content and name not in UNCHANGED:
                texts[name] = content.decode()
    return texts


TEXTS = tracked_texts()


def lines_with(pattern: re.Pattern[str]) -> list[str]:
    return [
        f"{name}:{number}: {line.strip()[:120]}"
        for name, text in TEXTS.items()
        for number, line in enumerate(text.splitlines(), 1)
        if pattern.search(line)
    ]


class TestEveryFile:
    """What each committed file keeps to."""

    def test_names_no_place_of_one_machine(self):
        """No file holds a path of a developer's machine."""
        assert lines_with(MACHINE_PATHS) == []

    def test_names_no_package_registry(self):
        """No file says where packages are fetched from: that is each machine's own setting."""
        assert lines_with(REGISTRY_HOSTS) == []

    def test_never_installs_the_package_of_somebody_else(self):
        """The distribution is `sleeper-store`: `sleeper` on the public index is another project."""
        assert lines_with(OTHERS_PACKAGE) == []

    def test_ends_with_a_newline(self):
        """Every file that is not empty ends with one newline."""
        unended = [name for name, text in TEXTS.items() if text and not text.endswith("\n")]

        assert unended == []


class TestPins:
    """requirements/*.txt."""

    @pytest.mark.parametrize("path", PINS, ids=lambda path: path.name)
    def test_fix_version_and_content(self, path):
        """Every requirement has one version and at least one hash, and no address."""
        entries = re.split(
            r"\n(?=[a-z])", re.sub(r"^ *#.*\n", "", path.read_text(), flags=re.MULTILINE)
        )

        loose = [
            entry.splitlines()[0]
            for entry in entries
            if not re.match(r"[\w.-]+==[\w.]+( ;[^\n]+)? \\\n", entry)
            or "--hash=sha256:" not in entry
        ]

        assert entries
        assert loose == []
        assert "://" not in path.read_text()

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


class TestErrors:
    """Each class of errors.py is used, and somebody has seen it."""

    CLASSES = tuple(
        node.name
        for node in ast.parse((SOURCE / "errors.py").read_text()).body
        if isinstance(node, ast.ClassDef)
    )
    PARENTS = frozenset(
        base.id
        for node in ast.parse((SOURCE / "errors.py").read_text()).body
        if isinstance(node, ast.ClassDef)
        for base in node.bases
        if isinstance(base, ast.Name)
    )

    @pytest.mark.parametrize("name", sorted(set(CLASSES) - PARENTS))
    def test_are_raised_somewhere(self, name):
        """Every error that is not a mere family is built by some line of the package."""
        built = re.compile(rf"\b{name}\(")

        users = [
            path
            for path in SOURCE.rglob("*.py")
            if path.name != "errors.py" and built.search(path.read_text())
        ]

        assert users, f"nothing raises {name}: raise it or remove it"

    @pytest.mark.parametrize("name", sorted(set(CLASSES) - PARENTS))
    def test_are_seen_by_some_test(self, name):
        """Every error is named by a test."""
        word = re.compile(rf"\b{name}\b")

        assert any(word.search(path.read_text()) for path in (ROOT / "tests").rglob("*.py"))
