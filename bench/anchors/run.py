"""One run of the table: who is measured, how large, and what was found."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.anchors.figures import Figures
from bench.anchors.processes import Checkout, ProcessFailed


@dataclass(slots=True, kw_only=True)
class Run(Figures):
    """What is asked of a run, and its figures.

    Attributes:
        folder: For inputs and tables.
        checkouts: Ours; `before` comes first where there is one.
        peers_python: The interpreter that has the peers installed.
        peers: Names of bench.peers that are asked.
        upstream: The driver of upstream's engine, or None.
        rows: Rows of the table that is asked.
        files: Files that it is loaded from.
        runs: How often each of ours is measured.
        peer_runs: How often each of the others is, at most.
        failures: What could not be measured, and why.
    """

    folder: Path
    checkouts: list[Checkout]
    peers_python: str
    peers: list[str]
    upstream: Path | None
    rows: int
    files: int
    runs: int
    peer_runs: int
    failures: list[str] = field(default_factory=list)

    def turns(self, subjects: Sequence[str]) -> Iterator[tuple[int, str]]:
        """Each subject once a run, beginning with another each time: other load hits all alike."""
        for number in range(self.runs):
            start = number % max(1, len(subjects))
            for name in (*subjects[start:], *subjects[:start]):
                if name in self.ours or number < self.peer_runs:
                    yield number, name

    def each(self, subjects: Sequence[str], measure: Callable[[str, int], None]) -> None:
        """Measure all in turn; what fails is reported once, and left out from then on."""
        failed: set[str] = set()
        for number, name in self.turns(subjects):
            if name in failed:
                continue
            try:
                measure(name, number)
            except ProcessFailed as error:
                failed.add(name)
                self.failures.append(f"{name}: {error}")
                print(f"FAILED {name}: {error}", file=sys.stderr, flush=True)

    def checkout(self, name: str) -> Checkout:
        """The checkout of that name."""
        return next(each for each in self.checkouts if each.name == name)

    @property
    def ours(self) -> list[str]:
        """`before`, if there is one, and `now`."""
        return [each.name for each in self.checkouts]

    def python(self, name: str) -> str:
        """The interpreter of a checkout, or of a peer."""
        return self.checkout(name).python if name in self.ours else self.peers_python
