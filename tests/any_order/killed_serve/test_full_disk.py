"""The disk of an instance fills and is freed again while `sleeper serve` runs jobs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.contracts.test_folder_refusals import run_where_mounts_are_private
from tests.soak import tries

ROUNDS = tries(2, soak=20)
SCRIPT = f"""
mount -t tmpfs -o size=24m none "$FOLDER"
exec "$PYTHON" -m tests.any_order.killed_serve.full_disk {ROUNDS}
"""


@pytest.mark.soak
def test_a_disk_that_fills_under_serve_loses_no_job(tmp_path: Path) -> None:
    """
    Given jobs of several kinds under way, when the disk is full for a while, again and again, then
    whatever was accepted is done in the end, each row is there once, serve goes on, and nothing is
    damaged.
    """
    found = json.loads(run_where_mounts_are_private(SCRIPT, tmp_path).splitlines()[-1])

    print(f"{ROUNDS} times a full disk: {found}")  # noqa: T201 - pytest -rP shows how much was tried
    asked = found.pop("asked")
    assert all(asked.values())
    assert found.pop("refused")
    assert found == {"lost": 0, "doubled": 0, "left": 0, "findings": [], "code": 0, "failures": 0}
