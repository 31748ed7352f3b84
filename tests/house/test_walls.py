"""The walls between the rooms hold: .importlinter says what they are."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_no_room_reaches_past_its_walls():
    """Every contract of .importlinter is kept: layers, strangers, vendors."""
    lint = Path(sys.executable).parent / "lint-imports"

    done = subprocess.run(
        [lint, "--no-logo"], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stdout + done.stderr
