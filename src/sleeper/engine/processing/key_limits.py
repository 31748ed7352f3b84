"""The least and greatest values of row keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


class KeyLimits:
    """The least and the greatest value of each row key field so far.

    The region of a leaf has a range for each field. So a key that is between these values in every
    field is in every region that contains all the keys.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._limits: dict[str, tuple[Any, Any] | None] = dict.fromkeys(names)

    def widen(self, rows: pa.RecordBatch) -> None:
        """Add the keys of some rows."""
        if not rows.num_rows:
            return
        for name, limits in self._limits.items():
            low, high = _ends(rows.column(name))
            if limits is not None:
                low, high = min(low, limits[0]), max(high, limits[1])
            self._limits[name] = (low, high)

    def first_outside(self, rows: pa.RecordBatch) -> int | None:
        """Return the index of the first row that is outside, or None."""
        outside = [
            place
            for name, limits in self._limits.items()
            if (place := _first_outside(rows.column(name), limits)) is not None
        ]
        return min(outside, default=None)

    def __str__(self) -> str:
        known = {name: limits for name, limits in self._limits.items() if limits is not None}
        between = (f"between {low!r} and {high!r} ({name})" for name, (low, high) in known.items())
        return ", ".join(between) or "none, because it had read no row"


def _first_outside(column: pa.Array, limits: tuple[Any, Any] | None) -> int | None:
    if limits is None:
        return 0
    low, high = _ends(column)
    if limits[0] <= low and high <= limits[1]:
        return None
    least, greatest = (pa.scalar(limit, column.type) for limit in limits)
    outside = pc.or_(pc.less(column, least), pc.greater(column, greatest))
    return _first(_flags(outside), 0)


def _ends(column: pa.Array) -> tuple[Any, Any]:
    """Return the least and the greatest value as Python values, whose order is that of keys."""
    ends = pc.min_max(column)
    return ends["min"].as_py(), ends["max"].as_py()


def _flags(answers: pa.Array) -> Any:
    return answers.to_numpy(zero_copy_only=False)


def _first(flags: Any, offset: int) -> int | None:
    places = np.flatnonzero(flags)
    return int(places[0]) + offset if len(places) else None
