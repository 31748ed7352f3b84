"""docs/rules: every citation leads to a rule, and every rule is proved by a test."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping

from tests.house.sources import (
    Found,
    Source,
    check_finds_marked_lines,
    check_none,
    offenders,
    sources,
)
from tools import rules

STRANGE = re.compile(r"\bspec [A-Z]{2,4}-\d|\bspec \d|\bdesign sections? \d", re.IGNORECASE)
FOLDERS = ("src", "tests", "tools", "bench", "docs")
THIS = "tests/house/test_rules.py"


def headings() -> Counter[str]:
    """The rules on all pages, each with how many headings it has."""
    return Counter(
        heading["id"]
        for page in rules.pages()
        for heading in rules.HEADING.finditer(page.read_text())
    )


def lost_citations(
    citations: Mapping[str, Collection[str]], known: Mapping[str, int]
) -> Iterator[str]:
    """Rules that are cited and do not have one heading."""
    for rule in sorted(citations):
        if known.get(rule, 0) != 1:
            places = ", ".join(sorted(citations[rule]))
            yield f"{rule} has {known.get(rule, 0)} headings, and is cited in {places}"


def unproved_rules(known: Collection[str], proofs: Mapping[str, list[str]]) -> Iterator[str]:
    """Rules that no test cites."""
    for rule in sorted(known):
        if not proofs.get(rule):
            yield rule


def citations_of_others(source: Source) -> Iterator[Found]:
    for line, found in source.matches(STRANGE):
        yield line, found[0]


def test_every_citation_leads_to_a_rule():
    """A rule that code, tests or pages cite has its heading, once, in docs/rules."""
    citations = rules.citations()

    assert len(citations) > 100
    check_none(lost_citations(citations, headings()), "give it a heading, or cite another")


def test_every_rule_is_proved_by_a_test():
    """Some test cites it: the page names that test."""
    known = headings()

    assert len(known) > 100
    check_none(
        unproved_rules(known, rules.proofs()),
        "cite it in the docstring of the test that proves it",
    )


def test_nothing_cites_a_page_that_is_not_here():
    """Specifications and designs that lie elsewhere help nobody who reads this repository."""
    pages = [
        each
        for folder in FOLDERS
        for suffix in (".py", ".md")
        for each in sources(folder, suffix)
        if each.name != THIS
    ]

    check_none(
        offenders(citations_of_others, pages),
        "cite a rule of docs/rules, as in `rule STS-5`, or a page of ours",
    )


def test_rules_without_a_heading_or_a_test_are_found():
    """Given citations, headings and proofs, then what does not fit is named."""
    citations = {"STS-1": {"a.py"}, "STS-2": {"b.py", "a.py"}, "STS-3": {"a.py"}}
    known = Counter({"STS-1": 1, "STS-2": 2, "STS-4": 1})

    assert [*lost_citations(citations, known)] == [
        "STS-2 has 2 headings, and is cited in a.py, b.py",
        "STS-3 has 0 headings, and is cited in a.py",
    ]
    assert [*unproved_rules(known, {"STS-1": ["test_a"], "STS-4": []})] == ["STS-2", "STS-4"]


def test_a_citation_of_a_page_that_is_not_here_is_found():
    """Given citations of rules, specifications and designs, then the last two are found."""
    text = """\
# rule STS-5, and the specification of Parquet
# spec STS-5  # bad
# Design section 3  # bad
# design sections 3 and 4  # bad
# spec 7  # bad
"""

    check_finds_marked_lines(citations_of_others, text)


def test_citations_of_a_range_cite_each_rule_in_it():
    """`STS-5 to STS-7` is three rules."""
    text = "rules STS-5 to STS-7, PRT-1"

    assert rules.cited_in(text) == {"STS-5", "STS-6", "STS-7", "PRT-1"}
