"""`make verify`: what did not run proves nothing."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tools"))

import verify_claims  # noqa: E402 - a tool is no package

RESULTS = """<testsuites><testsuite>
<testcase classname="a" name="holds"><system-out>12 worlds tried</system-out></testcase>
<testcase classname="a" name="left_out"><skipped/></testcase>{more}
</testsuite></testsuites>"""


def outcome(tmp_path, text, code):
    written = tmp_path / "results.xml"
    written.write_text(text)
    return verify_claims.parse(written, code, 1.0)


def test_a_run_is_counted(tmp_path):
    """Given a test that passed and one that was skipped, then both are counted apart."""
    found = outcome(tmp_path, RESULTS.format(more=""), 0)

    assert (found.result, found.failed, found.tests, found.skipped) == ("holds", False, 1, 1)
    assert found.counted == ("12 worlds tried",)


def test_a_failure_is_a_violation(tmp_path):
    """Given a test that failed, then the claim does not hold, and the table names the test."""
    more = '<testcase classname="a" name="lost_row"><failure/></testcase>'
    found = outcome(tmp_path, RESULTS.format(more=more), 1)
    table = verify_claims.report("full", [(verify_claims.CLAIMS[0], found)])

    assert found.failed
    assert "violations: 1" in table
    assert "a::lost_row" in table


def test_a_run_without_tests_is_a_failure(tmp_path):
    """Given no test that ran, or a run that was broken off, then nothing is proven."""
    none = outcome(tmp_path, "<testsuites><testsuite/></testsuites>", 5)
    broken = outcome(tmp_path, RESULTS.format(more=""), 2)

    assert none.failed
    assert broken.failed


def test_a_claim_without_a_suite_says_so():
    """Given a claim that nothing proves, then the table has it among what is not proven."""
    claim = next(each for each in verify_claims.CLAIMS if not each.full)
    table = verify_claims.report("full", [(claim, verify_claims.outcome_of(claim, "full"))])

    assert "no suite" in table
    assert f"{claim.name}: {claim.missing}" in table.split("not proven")[1]
