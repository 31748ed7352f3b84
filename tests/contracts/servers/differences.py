"""What a server of the tests does otherwise than Amazon, and the tests that show it."""

from __future__ import annotations

import pytest

DIFFERENCES = {
    ("elasticmq", "test_a_group_keeps_its_order_when_messages_come_back"): (
        "it delivers a message of a group again while a later one of the group is with a receiver"
    ),
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
