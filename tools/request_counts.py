"""The table of requests in docs/buckets.md: the numbers that the tests in tests/requests expect."""

from __future__ import annotations

import re
import sys

from shown_runs import ROOT

_BEGIN, _END = "<!-- requests -->\n", "<!-- /requests -->\n"


def buckets_page(text: str) -> str:
    """The page with a fresh table between its two marks."""
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))
    from tests.requests.operations import table_of_requests  # noqa: PLC0415 - found by the line above

    between = re.compile(f"(?<={re.escape(_BEGIN)}).*?(?={re.escape(_END)})", re.DOTALL)
    return between.sub(lambda _: f"{table_of_requests()}\n", text)
