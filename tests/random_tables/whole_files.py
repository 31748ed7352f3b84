"""Statements over small tables whose files DataFusion reads by itself, as it does those of large ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from sleeper.engine.sql import session


@contextmanager
def as_whole_files(seed: int) -> Iterator[None]:
    """Let every second seed read so, in one part or in several."""
    with pytest.MonkeyPatch.context() as patch:
        if seed % 2:
            patch.setattr(session, "ROWS_MIN", 0)
            patch.setattr(session, "PARTITIONS_OF_FILES", (1, 2, 4)[seed % 3])
        yield
