"""A systematic sample (every n-th row) of a stream of unknown length, in bounded memory."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

_FIRST = pa.arange(0, 1)  # not pa.array, which imports pandas


class SystematicSample:
    """Every `stride`-th row, beginning with the first; all rows while there are few.

    When there are too many, every second one is dropped and the stride doubles. So the sample has
    between half the maximum and the maximum number of rows, each representing equally many.

    Attributes:
        rows_seen: Number of added rows.
        stride: Distance between sampled rows.
    """

    def __init__(self, rows_max: int, bytes_max: int) -> None:
        self._rows_max = rows_max
        self._bytes_max = bytes_max
        self._parts: list[pa.Table] = []
        self._parts_bytes = 0
        self._last: pa.Table | None = None
        self._sampled = 0
        self.rows_seen = 0
        self.stride = 1

    def add(self, rows: pa.Table) -> None:
        """Add more rows, which follow those before."""
        if not rows.num_rows:
            return
        while self._sampled + len(self._wanted(rows)) > self._rows_max:
            self._halve()
        wanted = self._wanted(rows)
        if len(wanted):
            # A copy, also of all rows, so that the caller's memory can be released.
            part = rows.take(pa.array(np.arange(wanted.start, wanted.stop, wanted.step)))
            self._parts.append(part)
            self._parts_bytes += part.nbytes
            self._sampled += len(wanted)
        self.rows_seen += rows.num_rows
        self._last = rows.slice(rows.num_rows - 1).take(_FIRST)
        while self._sampled > 1 and self._parts_bytes > self._bytes_max:
            self._halve()

    def rows(self) -> pa.Table | None:
        """Return the sampled rows, None if there are none."""
        return pa.concat_tables(self._parts) if self._parts else None

    def rows_with_last(self) -> pa.Table | None:
        """Return the sampled rows and the last added row, once."""
        if not self.rows_seen or (self.rows_seen - 1) % self.stride == 0:
            return self.rows()
        return pa.concat_tables([*self._parts, self._last])

    def _wanted(self, rows: pa.Table) -> range:
        return range(-self.rows_seen % self.stride, rows.num_rows, self.stride)

    def _halve(self) -> None:
        self.stride *= 2
        if self._parts:
            together = pa.concat_tables(self._parts)
            kept = together.take(pa.array(np.arange(0, self._sampled, 2)))
            self._parts, self._parts_bytes, self._sampled = [kept], kept.nbytes, kept.num_rows
