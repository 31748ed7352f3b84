"""What every test shares. Builders live beside the tests that use them."""

from __future__ import annotations

import atexit
import gc
import os
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.database import DirectoryBasedExampleDatabase

# Machines differ in speed, so no deadline; in CI the same examples every time, so that a
# red build is the change's fault. Locally Hypothesis keeps looking for new ones, also where CI is
# set to nothing, which Hypothesis takes for CI.
settings.register_profile(
    "local",
    deadline=None,
    derandomize=False,
    database=DirectoryBasedExampleDatabase(Path(__file__).parents[1] / ".hypothesis" / "examples"),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("ci", settings.get_profile("local"), derandomize=True, database=None)
# tools/mutants asks whether a test fails at all: the first failure will do, however long it is.
settings.register_profile("mutants", settings.get_profile("ci"), phases=[Phase.generate])
settings.load_profile("ci" if os.environ.get("CI") else "local")


def pytest_addoption(parser):
    """Let a run keep to the tests of a folder, whatever files it is given."""
    parser.addoption("--under", type=Path, help="run only tests below this folder")


def pytest_ignore_collect(collection_path, config):
    """Look into no folder that is neither below that of --under nor above it."""
    folder = folder_of_run(config)
    if folder is None or collection_path in folder.parents:
        return None
    return None if collection_path.is_relative_to(folder) else True


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection(session):
    """Look for no garbage among modules and tests, which stay until the end: while they are listed
    that takes a third of the time, and each later look at all objects takes a second."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        atexit.register(gc.unfreeze)  # libraries tell of objects that are left at the end
        gc.enable()


def pytest_collection_modifyitems(config, items):
    """Leave out tests of files that were named and are not below the folder of --under."""
    folder = folder_of_run(config)
    if folder is not None:
        outside = [item for item in items if not item.path.is_relative_to(folder)]
        config.hook.pytest_deselected(items=outside)
        items[:] = [item for item in items if item not in outside]


def folder_of_run(config):
    """The folder to which --under keeps a run; None if it may be any."""
    under = config.getoption("--under")
    return None if under is None else (config.rootpath / under).resolve()


def pytest_terminal_summary(terminalreporter):
    """Say which servers were not there, and how many tests that left out."""
    skipped = terminalreporter.stats.get("skipped", ())
    reasons = [str(report.longrepr[2]) for report in skipped if isinstance(report.longrepr, tuple)]
    left_out = Counter(
        reason.split("LEFT OUT: ")[1] for reason in reasons if "LEFT OUT: " in reason
    )
    if left_out:
        terminalreporter.section("SERVERS WERE LEFT OUT", red=True, bold=True)
    for reason, tests in left_out.items():
        terminalreporter.line(f"{tests} tests were skipped: {reason}", red=True)
