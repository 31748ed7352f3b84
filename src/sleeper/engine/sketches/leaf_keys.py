"""Reads how the row keys of a leaf are spread, from the sketches of its files; no row is read."""

from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Final

from sleeper.engine.ahead import run_ahead
from sleeper.engine.sketches.sketch import Sketches, union
from sleeper.engine.sketches.stored_sketch import read_stored_sketch
from sleeper.errors import DataDamaged
from sleeper.model.files import FileReference
from sleeper.model.partitions import Partition
from sleeper.model.schema import Schema
from sleeper.ports.objects import Objects

SKETCHES_AT_ONCE: Final = 16
"""Sketches that are read from a bucket at once: each takes two or three requests."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeafFiles:
    """A leaf, and the files whose sketches describe it. Picklable.

    Attributes:
        leaf: The leaf.
        references: References to the files; these may have rows outside of the leaf.
    """

    leaf: Partition
    references: tuple[FileReference, ...]


def leaf_keys(of_leaf: LeafFiles, files: Objects, schema: Schema) -> Sketches | None:
    """Return how the row keys of files are spread; None if no sketch of any rows can be read.

    Args:
        of_leaf: The files.
        files: The table's folder.
        schema: The table's.

    Raises:
        StorageFailed: the storage cannot be read. Damaged sketches are ignored.
    """
    read = partial(_read, files=files, schema=schema)
    each: Generator[Sketches | None] = (
        run_ahead(read, of_leaf.references, SKETCHES_AT_ONCE, thread="sleeper-sketch")
        if files.is_remote
        else (read(reference) for reference in of_leaf.references)
    )
    with closing(each):
        known = [sketches for sketches in each if sketches is not None and sketches.row_count]
    return union(known) if known else None


def _read(reference: FileReference, *, files: Objects, schema: Schema) -> Sketches | None:
    try:
        return read_stored_sketch(files, reference, schema)
    except DataDamaged as damage:
        _log.warning("a sketch is ignored: %s", damage)
        return None
