"""The walls between the packages hold: .importlinter says what they are."""

from __future__ import annotations

import re
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path

from tests.house.packages import drawn_packages, packages_and_modules
from tests.house.sources import ROOT


def test_no_package_reaches_past_its_walls():
    """Every contract of .importlinter is kept: layers, strangers, vendors."""
    lint = Path(sys.executable).parent / "lint-imports"

    done = subprocess.run(
        [lint, "--no-logo"], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stdout + done.stderr


def test_the_drawing_has_the_order_of_the_layers():
    """docs/design.md draws the packages from top to bottom as .importlinter has them."""
    contracts = ConfigParser()
    contracts.read(ROOT / ".importlinter")
    layers = re.findall(r"\w+", contracts["importlinter:contract:layers"]["layers"])
    packages, _ = packages_and_modules()
    drawn = drawn_packages((ROOT / "docs/design.md").read_text())

    assert [name for name in drawn if name in {*layers}] == layers
    assert {*layers} <= packages
