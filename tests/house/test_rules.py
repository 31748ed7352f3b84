"""docs/rules: every citation leads to a rule, and every rule is proved by a test."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from tools import rules

ROOT = Path(__file__).resolve().parents[2]
HEADINGS = Counter(
    heading["id"] for page in rules.pages() for heading in rules.HEADING.finditer(page.read_text())
)
CITATIONS = rules.citations()
PROOFS = rules.proofs()
STRANGE = re.compile(r"\bspec [A-Z]{2,4}-\d|\bspec \d|\bdesign sections? \d", re.IGNORECASE)


@pytest.mark.parametrize("rule", sorted(CITATIONS))
def test_every_citation_leads_to_a_rule(rule):
    """A rule that code, tests or pages cite has its heading, once, in docs/rules."""
    assert HEADINGS[rule] == 1, f"cited in {sorted(CITATIONS[rule])}"


@pytest.mark.parametrize("rule", sorted(HEADINGS))
def test_every_rule_is_proved_by_a_test(rule):
    """Some test cites it: the page names that test."""
    assert PROOFS.get(rule), "cite it in the docstring of the test that proves it"


def test_nothing_cites_a_page_that_is_not_here():
    """Specifications and designs that lie elsewhere help nobody who reads this repository."""
    strange = [
        f"{path.relative_to(ROOT)}: {found[0]}"
        for folder in ("src", "tests", "tools", "bench", "docs")
        for path in sorted((ROOT / folder).rglob("*"))
        if path.suffix in (".py", ".md") and path != Path(__file__).resolve()
        for found in STRANGE.finditer(path.read_text())
    ]

    assert strange == [], "cite a rule of docs/rules, as in `rule STS-5`, or a page of ours"


def test_citations_of_a_range_cite_each_rule_in_it():
    """`STS-5 to STS-7` is three rules."""
    text = "rules STS-5 to STS-7, PRT-1"

    assert rules.cited_in(text) == {"STS-5", "STS-6", "STS-7", "PRT-1"}
