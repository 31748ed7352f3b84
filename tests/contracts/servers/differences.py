"""What a server of the tests does otherwise than Amazon, and the tests that show it."""

from __future__ import annotations

import pytest

DIFFERENCES = {
    ("versitygw", "test_a_listing_is_in_the_order_of_whole_keys"): (
        "it lists U+FFFF, which XML cannot hold, as U+FFFD"
    ),
}
"""Reasons by server and test. The test is run there, and has to fail: if it passes, its line goes."""


def expect_differences(request: pytest.FixtureRequest, server: str) -> None:
    """Expect the test that asks for a server to fail if the server is known to do otherwise."""
    reason = DIFFERENCES.get((server, request.node.originalname))
    if reason is not None:
        request.applymarker(pytest.mark.xfail(reason=f"{server}: {reason}", strict=True))
