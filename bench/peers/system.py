"""What is asked of each system."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any


class System(ABC):
    """One system with one table of (key, ts, value, n).

    Rows come back as Arrow tables, or as lists of Python values where the system knows no columns.

    Args:
        folder: Where it keeps its data; there when it is loaded.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def begin(self) -> None:  # noqa: B027 - some systems make a table with its first rows
        """Make the table."""

    @abstractmethod
    def append(self, path: Path) -> None:
        """Add the rows of one Parquet file, durably if the system can."""

    @abstractmethod
    def maintain(self) -> None:
        """Do the system's own upkeep."""

    @abstractmethod
    def open(self) -> None:
        """Open the table for questions."""

    @abstractmethod
    def one(self, key: str) -> Any:
        """Return the rows of a key."""

    @abstractmethod
    def many(self, keys: Sequence[str]) -> Any:
        """Return the rows of some thousand keys, in one call."""

    @abstractmethod
    def between(self, low: str, high: str) -> Any:
        """Return the rows with low <= key < high, in key order."""

    @abstractmethod
    def count_and_sum(self) -> tuple[int, int]:
        """Return how many rows there are, and the sum of n."""

    def count(self) -> int:
        """Return how many rows there are, by the shortest way."""
        return self.count_and_sum()[0]
