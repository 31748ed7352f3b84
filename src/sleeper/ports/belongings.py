"""What belongs to an instance, and how it is removed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field

from sleeper.language.value_classes import dataclass


@dataclass(frozen=True, slots=True)
class Belonging:
    """One thing that belongs to an instance: a table, a bucket, a queue.

    Attributes:
        kind: What it is.
        name: Its name where it is.
        count: How much it holds.
        unit: Of what: objects, items or messages.
        remove: Removes it. What is gone already counts as removed.
    """

    kind: str
    name: str
    count: int
    unit: str
    remove: Callable[[], object] = field(repr=False, compare=False)
