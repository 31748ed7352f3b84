"""Runs a test of Spark again if the machine was too busy to start a Python worker in time."""

from __future__ import annotations

import pytest
from _pytest.runner import runtestprotocol

TOO_BUSY = "Python worker failed to connect back"
"""Spark gives a Python worker 10 s to start, which no setting changes: a busy machine takes longer."""


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item, nextitem):
    """Run a test once more, with new fixtures, if a Python worker of Spark did not start in time."""
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    reports = runtestprotocol(item, log=False, nextitem=nextitem)
    if any(each.failed and TOO_BUSY in each.longreprtext for each in reports):
        item.config.get_terminal_writer().line(f"\n{item.nodeid} is run again: {TOO_BUSY}")
        item._initrequest()
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
    for each in reports:
        item.ihook.pytest_runtest_logreport(report=each)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True
