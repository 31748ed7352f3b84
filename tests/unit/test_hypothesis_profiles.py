"""Which examples Hypothesis tries: tests/conftest.py chooses by the environment."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(("ci", "repeats"), [(None, False), ("", False), ("true", True)])
def test_examples_are_new_ones_but_in_ci(ci, repeats):
    """`make soak` would otherwise try what it tried before."""
    environment = {name: value for name, value in os.environ.items() if name != "CI"}
    asked = "import tests.conftest, hypothesis; print(hypothesis.settings.default.derandomize)"

    done = subprocess.run(
        [sys.executable, "-c", asked],
        cwd=ROOT,
        env=environment | ({} if ci is None else {"CI": ci}),
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.strip() == str(repeats)
