"""Makes a release of what is in the folder: gathers changelog.d and sets the version.

    python tools/release.py 0.2.0

CHANGELOG.md gets a section with the fragments of changelog.d, grouped by kind. Within a kind, those
that changelog.d/order.txt names come first and in its order, then the others by name. Then the
fragments and the list are deleted, and the version in pyproject.toml, and in file names that pages
show, is replaced. Nothing is committed: look at it first.
"""

from __future__ import annotations

import re
import sys
import textwrap
from datetime import UTC, date, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
KINDS = ("added", "changed", "deprecated", "removed", "fixed", "security")
VERSION = re.compile(r"\d+\.\d+\.\d+")
DECLARED = re.compile(r'(?m)^version = "([^"]+)"$')
UNRELEASED = "## Unreleased\n\nSee `changelog.d`.\n"
WIDTH = 100
AS_IT_IS = re.compile(r"(?m)^(?:```|    |[-*|] |\d+\. )")


def main(arguments: list[str]) -> int:
    """Make the release and say what was done; return the exit code."""
    if len(arguments) != 1:
        print("name the version: make release VERSION=0.2.0", file=sys.stderr)
        return 2
    try:
        count = release(ROOT, arguments[0], datetime.now(UTC).date())
    except ValueError as refusal:
        print(f"no release was made: {refusal}", file=sys.stderr)
        return 1
    print(f"{count} changes are in CHANGELOG.md as {arguments[0]}; look at `git diff` and commit")
    return 0


def release(root: Path, version: str, day: date) -> int:
    """Gather the fragments and set the version; return how many fragments there were.

    Raises:
        ValueError: the version is none, or not a later one; or there is nothing to release.
    """
    settings = root / "pyproject.toml"
    declared = DECLARED.search(settings.read_text())
    if declared is None:
        raise ValueError("pyproject.toml has no version")
    before = declared[1]
    if not VERSION.fullmatch(version) or _numbers(version) <= _numbers(before):
        raise ValueError(f"the version must be three numbers above {before}, not {version!r}")
    fragments = found_fragments(root / "changelog.d")
    if not fragments:
        raise ValueError("changelog.d has no fragments")
    changelog = root / "CHANGELOG.md"
    text = changelog.read_text()
    if UNRELEASED not in text:
        raise ValueError("CHANGELOG.md has no section 'Unreleased' that points to changelog.d")
    gathered = section(fragments, version, day)
    changelog.write_text(text.replace(UNRELEASED, f"{UNRELEASED}\n{gathered}"))
    for page in (settings, root / "README.md", *sorted((root / "docs").rglob("*.md"))):
        _replace_version(page, before, version)
    for path in (*fragments, root / "changelog.d/order.txt"):
        path.unlink(missing_ok=True)
    return len(fragments)


def found_fragments(folder: Path) -> list[Path]:
    """Return the fragments by importance.

    Raises:
        ValueError: a file has another kind of name, or the order names one that is not there.
    """
    found = {path.name: path for path in sorted(folder.glob("*.md")) if path.name != "README.md"}
    wrong = [name for name in found if name.split(".")[-2] not in KINDS or name.count(".") != 2]
    if wrong:
        raise ValueError(f"not NAME.KIND.md, with one of {', '.join(KINDS)}: {', '.join(wrong)}")
    order = folder / "order.txt"
    lines = order.read_text().splitlines() if order.exists() else []
    first = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    missing = [name for name in first if name not in found]
    if missing:
        raise ValueError(f"changelog.d/order.txt names what is not there: {', '.join(missing)}")
    return [found[name] for name in dict.fromkeys([*first, *found])]


def section(fragments: list[Path], version: str, day: date) -> str:
    """Return the section of a version."""
    text = f"## {version} ({day.isoformat()})\n"
    for kind in KINDS:
        chosen = [path for path in fragments if path.name.endswith(f".{kind}.md")]
        if chosen:
            text += f"\n### {kind.capitalize()}\n\n" + "".join(entry(path) for path in chosen)
    return text


def entry(path: Path) -> str:
    """Return a fragment as an entry of a list."""
    text = path.read_text().strip().replace("](../", "](")  # it moves up by one folder
    if AS_IT_IS.search(text):
        return f"- {textwrap.indent(text, '  ').lstrip()}\n"
    paragraphs = (" ".join(part.split()) for part in re.split(r"\n\s*\n", text))
    filled = (
        textwrap.fill(
            part,
            WIDTH,
            initial_indent="  ",
            subsequent_indent="  ",
            break_long_words=False,
            break_on_hyphens=False,
        )
        for part in paragraphs
    )
    return "- " + "\n\n".join(filled).lstrip() + "\n"


def _numbers(version: str) -> list[int]:
    return [int(each) for each in re.findall(r"\d+", version)]


def _replace_version(page: Path, before: str, version: str) -> None:
    text = page.read_text()
    new = text.replace(f"sleeper_store-{before}-", f"sleeper_store-{version}-")
    new = DECLARED.sub(f'version = "{version}"', new) if page.name == "pyproject.toml" else new
    if new != text:
        page.write_text(new)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
