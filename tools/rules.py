"""Which rules are cited where, and which tests prove each.

A rule is a heading `### STS-5. Adding files` on a page of docs/rules. Code cites it as
`rule STS-5`, or `rules STS-5 to STS-8`; a test cites it by its id in a docstring or a comment.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GROUPS = (
    *("ADM", "BLK", "CMP", "EXP", "FMT", "FRF", "GC", "ING", "INS"),
    *("BAT", "COL", "DEL", "INT", "PRC", "PRT", "PUB", "QRY", "SCH", "SPL", "STS", "TBL", "TRK"),
)
ID = re.compile(rf"\b(?P<group>{'|'.join(GROUPS)})-(?P<number>\d+)\b")
RANGE = re.compile(rf"\b({'|'.join(GROUPS)})-(\d+)\s+to\s+\1-(\d+)\b")
HEADING = re.compile(r"^### (?P<id>[A-Z]+-\d+)\. .+$", re.MULTILINE)
PROOF = re.compile(r"^Proved by .*\n(?:\n|\Z)", re.MULTILINE)
PAGES = ROOT / "docs" / "rules"
PROOFS_SHOWN = 4


def cited_in(text: str) -> set[str]:
    """The ids in a text; `STS-5 to STS-8` cites four."""
    ids = {found[0] for found in ID.finditer(text)}
    for group, first, last in RANGE.findall(text):
        ids |= {f"{group}-{number}" for number in range(int(first), int(last) + 1)}
    return ids


def citations() -> dict[str, set[str]]:
    """Every rule that code, tools, benchmarks or pages cite, with the files that do."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in _files():
        for rule in cited_in(path.read_text()):
            found[rule].add(str(path.relative_to(ROOT)))
    return found


@cache
def proofs() -> dict[str, list[str]]:
    """The tests that cite each rule, by the names that pytest gives them."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted((ROOT / "tests").rglob("*.py")):
        if "house" in path.relative_to(ROOT).parts:
            continue
        name = str(path.relative_to(ROOT))
        source = path.read_text()
        if not ID.search(source):
            continue  # most cite none, and to parse a file takes far longer than to search it
        tree = ast.parse(source)
        for rule in cited_in(ast.get_docstring(tree) or ""):
            found[rule].append(name)
        lines = source.splitlines()
        for test, node in _tests(tree):
            for rule in _ids_of(node, lines):
                found[rule].append(f"{name}::{test}")
    return found


def rules_page(old: str) -> str:
    """A page of docs/rules with the tests under each rule written anew."""
    known = proofs()
    parts = re.split(r"(?m)^(?=### )", old)
    return "".join(_with_proofs(part, known) for part in parts).rstrip("\n") + "\n"


def pages() -> list[Path]:
    """The pages of rules."""
    return sorted(PAGES.glob("*.md"))


def _with_proofs(part: str, known: dict[str, list[str]]) -> str:
    heading = HEADING.match(part)
    if heading is None:
        return part
    body, following = part, ""
    if "\n## " in body:  # the heading of the next group of rules
        at = body.index("\n## ")
        body, following = body[:at], body[at:]
    text = PROOF.sub("", body).rstrip("\n")
    tests = [f"`{test}`" for test in dict.fromkeys(known.get(heading["id"], []))]
    more = len(tests) - PROOFS_SHOWN
    shown = ", ".join(tests[:PROOFS_SHOWN]) + (f" and {more} more" if more > 0 else "")
    return f"{text}\n\nProved by {shown}.\n\n{following.lstrip()}"


def _files() -> Iterator[Path]:
    for folder in ("src", "tests", "tools", "bench", "docs"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".py", ".md") and PAGES not in path.parents:
                yield path
    yield ROOT / "README.md"


def _tests(tree: ast.Module) -> Iterator[tuple[str, ast.AST]]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield node.name, node
        elif isinstance(node, ast.ClassDef):
            yield node.name, node
            for method in node.body:
                if isinstance(method, ast.FunctionDef):
                    yield f"{node.name}::{method.name}", method


def _ids_of(node: ast.AST, lines: list[str]) -> set[str]:
    """The ids in a class's docstring, or anywhere in a function."""
    if isinstance(node, ast.ClassDef):
        return cited_in(ast.get_docstring(node) or "")
    if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
        return cited_in("\n".join(lines[node.lineno - 1 : node.end_lineno]))
    return set()
