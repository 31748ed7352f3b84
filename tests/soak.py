"""How much a test tries: as much as `make test` has time for, or far more under `make soak`."""

from __future__ import annotations

import os

SOAK = os.environ.get("SLEEPER_SOAK") == "1"


def tries(usual: int, *, soak: int) -> int:
    """Return how many examples a test marked `soak` is to try."""
    return soak if SOAK else usual
