"""Upstream's own Python client is tried where SLEEPER_UPSTREAM_CLIENT names its folder."""

from __future__ import annotations

import os

FOLDER = os.environ.get("SLEEPER_UPSTREAM_CLIENT")

if not FOLDER:
    collect_ignore = ["test_upstream_client.py"]


def pytest_terminal_summary(terminalreporter):
    """Say what was left out, where nobody can overlook it."""
    if not FOLDER:
        terminalreporter.section("UPSTREAM'S CLIENT WAS NOT TRIED", red=True, bold=True)
        terminalreporter.line(
            "SLEEPER_UPSTREAM_CLIENT does not name the folder `python` of its repository: "
            "docs/operating/upstream-client.md says how.",
            red=True,
        )
