"""A table as the SQL engine reads it: by columns, and by a condition that narrows what is read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import pyarrow as pa

from sleeper.engine.rows import Rows
from sleeper.language.value_classes import dataclass
from sleeper.state.plans.key_conditions import Condition


class NarrowedRead(Protocol):
    """A read of the rows that can meet a condition. Nothing is read before `rows` is called."""

    @property
    def is_exact(self) -> bool:
        """True if every row that is read meets the condition."""

    @property
    def transaction(self) -> int:
        """The transaction number of the state that is read."""

    def rows(self, columns: Sequence[str] | None) -> Rows:
        """Return the rows with these columns; with all of them without any."""

    def explain(self) -> str:
        """Return what is read, in a line: leaves, files and pages of those that there are."""


@dataclass(frozen=True, slots=True)
class ScannedTable:
    """One state of a table, for one statement.

    Attributes:
        name: The table's name.
        arrow_schema: Its columns, in the order in which they are returned.
        key: The first row key, which is read where rows are counted and no column is needed.
        narrowed: Returns the read of the rows that can meet a condition.
        may_merge: True if a read may wait for tasks of DataFusion's threads: where rows of several
            files are merged, or files are in a bucket.
    """

    name: str
    arrow_schema: pa.Schema
    key: str
    narrowed: Callable[[Condition], NarrowedRead]
    may_merge: bool
