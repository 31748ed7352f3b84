"""What each benchmark printed in the last run of all: kept for docs/performance.md.

All figures of the page are of one commit. The first that is kept of another one takes the place of
all that were there; so a run that was stopped goes on where it was, and none is left that is older.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
KEPT = ROOT / "docs" / "figures" / "benchmarks.json"
MEASURED = ("src", "bench", "requirements/run.txt", "requirements/peers.txt")
"""What figures are of: a commit that changes nothing here leaves them as they are."""


class NotCommitted(Exception):
    """The files that would be measured differ from their commit."""


def measured_commit(root: Path = ROOT) -> str:
    """Return the newest commit that changed what is measured, in short.

    Raises:
        NotCommitted: There are changes that no commit has.
    """
    changes = _git(root, "status", "--porcelain", "--", *MEASURED)
    if changes:
        raise NotCommitted(
            "figures are kept under the commit that they are of, and there are changes since:\n"
            f"{changes}\nCommit them first, or name benchmarks to run them without keeping."
        )
    return _git(root, "log", "-1", "--format=%h", "--", *MEASURED)


def figures_of(commit: str) -> dict[str, Any]:
    """Return the figures that are kept of a commit, by the command that printed them."""
    found = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    return found["figures"] if found.get("commit") == commit else {}


def keep(commit: str, command: str, seconds: float, load: float, text: str) -> None:
    """Keep what a command printed, in place of what it printed before.

    Args:
        commit: What was measured.
        command: The benchmark and its arguments.
        seconds: How long it took.
        load: The machine's, when it began.
        text: All that it printed.
    """
    figures = figures_of(commit)
    figures[command] = {
        "day": str(datetime.now(UTC).date()),
        "seconds": round(seconds),
        "load": round(load, 1),
        "lines": [line.rstrip() for line in text.strip("\n").splitlines()],
    }
    whole = {"commit": commit, "machine": machine(), "figures": dict(sorted(figures.items()))}
    KEPT.write_text(json.dumps(whole, indent=1, ensure_ascii=False) + "\n")


def machine() -> str:
    """Return what the figures were measured on."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    python = platform.python_version()
    return f"{os.cpu_count()} cores, {memory:.0f} GiB, {platform.system()}, Python {python}"


def _git(root: Path, *command: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(root), *command], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()
