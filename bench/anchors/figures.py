"""What runs of the table found, and the files that keep it."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

NOW, BEFORE = "now", "before"


def _by_row_and_subject() -> dict[str, dict[str, list[float]]]:
    return defaultdict(lambda: defaultdict(list))


@dataclass(slots=True, kw_only=True)
class Figures:
    """Each figure of each run, at the same sizes.

    Attributes:
        sizes: How large, by name.
        figures: For each row of the table and each subject what each run found.
        memory: The same for peak MB.
        titles: For each run that was read from a file, what it says of itself.
    """

    sizes: dict[str, int]
    figures: dict[str, dict[str, list[float]]] = field(default_factory=_by_row_and_subject)
    memory: dict[str, dict[str, list[float]]] = field(default_factory=_by_row_and_subject)
    titles: list[str] = field(default_factory=list)

    def add(self, row: str, subject: str, value: float, peak_mb: float | None = None) -> None:
        """Remember a figure."""
        self.figures[row][subject].append(value)
        if peak_mb is not None:
            self.memory[row][subject].append(peak_mb)

    def middle(self, row: str, subject: str) -> float | None:
        """The median of a row's figures, or None."""
        found = self.figures.get(row, {}).get(subject)
        return median(found) if found else None

    def write(self, path: Path, title: str) -> None:
        """Keep all in a file."""
        kept = {
            "title": title,
            "sizes": self.sizes,
            "figures": rounded(self.figures),
            "memory": rounded(self.memory),
        }
        path.write_text(json.dumps(kept, indent=1) + "\n")


def rounded(found: dict[str, dict[str, list[float]]]) -> dict[str, dict[str, list[float]]]:
    """The same in five digits: no clock here is more exact."""
    return {
        row: {name: [float(f"{each:.5g}") for each in values] for name, values in by_name.items()}
        for row, by_name in found.items()
    }


def read(paths: Iterable[Path]) -> list[Figures]:
    """What such files keep; runs of the same sizes are put together."""
    by_sizes: dict[str, Figures] = {}
    for path in paths:
        kept = json.loads(path.read_text())
        same = by_sizes.setdefault(json.dumps(kept["sizes"]), Figures(sizes=kept["sizes"]))
        same.titles.append(kept["title"])
        for kind, found in (("figures", same.figures), ("memory", same.memory)):
            for row, subjects in kept[kind].items():
                for name, values in subjects.items():
                    found[row][name] += values
    return [*by_sizes.values()]
