"""References to data files, and claims of compaction jobs on them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sleeper.html.values import NotebookHtml
from sleeper.model.keys import Key, key_type, value_from_json, value_to_json
from sleeper.model.schema import Schema

KEY_BYTES_MAX = 1024
"""A row key whose JSON is longer is not kept in a reference."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileReference(NotebookHtml):
    """The rows of one data file that belong to one partition.

    Partitions that reference the same file must have disjoint regions, or the
    rows in the overlap would be read twice (rule FRF-3).

    Attributes:
        filename: Path of the Parquet file inside the table's folder (`model.paths`).
        partition_id: The partition whose region selects the rows.
        row_count: Rows selected; an estimate when `row_count_estimated`.
        row_count_estimated: True after a push-down, until a compaction counts again.
        whole_file: True when this is the only reference to the file, so that every row of
            it belongs here; False when readers must select by the partition's region.
        job_id: The compaction job that has claimed this reference, if any.
        updated: When the state last changed this reference; set by the state (rule STS-5).
        size_bytes: Length of the file. This and all attributes below are None if an older version
            made the reference.
        schema_id: The schema that the file was written with; a key of `TableState.schemas`.
        first_key: The row key of the file's first row, as `key_to_text` writes it; None also for
            a file without rows, and if the text is too long.
        last_key: The same for its last row.
        sequence: The number of the transaction up to which deletions of rows are applied to the
            file: later deletions apply to its rows. For a file with new rows this is the
            transaction that adds it; the state sets it.

    Raises:
        ValueError: `row_count` is negative, or no file can have as many rows.

    Source: rules FRF-1, FRF-2.
    """

    filename: str
    partition_id: str
    row_count: int
    row_count_estimated: bool = False
    whole_file: bool = True
    job_id: str | None = None
    updated: datetime | None = None
    size_bytes: int | None = None
    schema_id: int | None = None
    first_key: str | None = None
    last_key: str | None = None
    sequence: int | None = None

    def __post_init__(self) -> None:
        if self.row_count < 0:
            raise ValueError(f"row_count must be 0 or more, not {self.row_count}")
        if self.row_count >= 2**63:
            raise ValueError("row_count must be below 2**63: no file can have as many rows")

    @property
    def schema_number(self) -> int:
        """The number of the schema that the file was written by: the first, where none is noted."""
        return self.schema_id or 1

    def about_file(self, other: FileReference) -> FileReference:
        """Return a copy with the attributes of the file (not of the partition) from `other`."""
        return replace(
            self,
            size_bytes=other.size_bytes,
            schema_id=other.schema_id,
            first_key=other.first_key,
            last_key=other.last_key,
            sequence=other.sequence,
        )


def key_to_text(key: Sequence[Any], schema: Schema) -> str | None:
    """Return a row key as a JSON list; None for no key, or if the text is longer than 1 KiB."""
    if not key:
        return None
    values = [
        value_to_json(key_type(field), value)
        for field, value in zip(schema.row_keys, key, strict=True)
    ]
    text = json.dumps(values, separators=(",", ":"))
    return text if len(text) <= KEY_BYTES_MAX else None


def key_from_text(text: str, schema: Schema) -> Key:
    """Parse a row key that `key_to_text` wrote.

    Raises:
        QueryInvalid, ValueError: it is not a row key of the schema.
    """
    return tuple(
        value_from_json(field, value)
        for field, value in zip(schema.row_keys, json.loads(text), strict=True)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimOwner(NotebookHtml):
    """The process that runs a compaction job, as reports show it. It holds no secret.

    Attributes:
        host: The name of its machine.
        pid: Its process id there.
        worker_id: A random id of the run.
    """

    host: str
    pid: int
    worker_id: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRecord:
    """A compaction job that has claimed files: its owner, and since when.

    Attributes:
        owner: Who runs it.
        since: When it claimed them.
        renewed: When it last renewed its claims; the lease counts from here.
    """

    owner: ClaimOwner
    since: datetime
    renewed: datetime
