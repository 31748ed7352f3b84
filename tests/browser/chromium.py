"""The browser that tests use: Debian's Chromium, which `make servers` installs where it may."""

from __future__ import annotations

import os
import shutil

import pytest

from tests.contracts.servers.installed import INSTALLER, install_if_needed, wait_while_installed

NAMES = ("chromium", "chromium-browser", "google-chrome")
UNWANTED = "chromium" in os.environ.get("SLEEPER_TEST_WITHOUT", "").split(",")


def find_chromium() -> str | None:
    """Return its path; None without one."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


def require_chromium() -> str:
    """Return its path, once no installer is at work: apt makes it whole last of all.

    Skip the test without it; in CI, fail.
    """
    if UNWANTED:
        pytest.skip("LEFT OUT: chromium: SLEEPER_TEST_WITHOUT names it")
    if find_chromium() is None:
        install_if_needed(INSTALLER)
    wait_while_installed()
    path = find_chromium()
    if path is None:
        leave = pytest.fail if os.environ.get("CI") else pytest.skip
        leave("LEFT OUT: chromium: it is not installed; run as root: make servers")
    return path
