"""What a check of stored tables found: one value for each fault."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from sleeper.html.values import NotebookHtml


class FindingKind(StrEnum):
    """What is wrong."""

    FILE_MISSING = "file-missing"
    FILE_SIZE = "file-size"
    FILE_DAMAGED = "file-damaged"
    SCHEMA = "schema"
    ROW_COUNT = "row-count"
    ROW_ORDER = "row-order"
    ROW_PLACE = "row-place"
    KEY_LIMITS = "key-limits"
    PAGE_INDEX = "page-index"
    SKETCH = "sketch"
    TREE = "tree"
    REFERENCE = "reference"
    LOG = "log"
    CHAIN = "chain"
    SNAPSHOT = "snapshot"
    STATE = "state"
    INDEX = "index"
    PUBLICATION = "publication"


RESTORE_FILE = (
    "Restore the file from a copy; or, without one, ingest its rows again into a new table."
)
"""What to do about a data file that cannot be read as it was written."""

RESTORE_STATE = (
    "Stop writers, and restore the table's state from a copy (docs/operating/backup.md)."
)
"""What to do about a state that is not what was committed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding(NotebookHtml):
    """One fault of a table.

    Attributes:
        kind: What is wrong.
        what: A sentence about it.
        next_step: What to do about it.
        filename: The data file, if the fault is in one.
        partition_id: The partition whose reference or region it concerns, if it is one.
        entry: The transaction that it concerns, if it is one.
    """

    kind: FindingKind
    what: str
    next_step: str
    filename: str | None = None
    partition_id: str | None = None
    entry: int | None = None
