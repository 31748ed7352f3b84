"""Rows of a table: into it, and out of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from sleeper.engine.rows import Rows
from sleeper.engine.sort import SortSettings
from sleeper.engine.writing.data_file import write_settings
from sleeper.errors import BadRequest
from sleeper.model.known_properties.typed import TableProperties
from sleeper.model.queries import (
    NOT_GIVEN,
    NotGiven,
    RegionRequest,
    asked_by,
    asked_regions,
    checked_as_of,
)
from sleeper.model.schema import Schema
from sleeper.operations import ingest as standard_ingest
from sleeper.operations.ingest import IngestRequest, IngestResult, IngestSettings
from sleeper.operations.old_versions import read_version
from sleeper.operations.query import query_key, query_keys, query_regions
from sleeper.state.transactions.files import AddFiles
from sleeper.table.handle import TableHandle
from sleeper.table.instance_context import InstanceContext


def ingest(
    self: TableHandle,
    data: object,
    job_id: str | None = None,
    *,
    ignore_extra_columns: bool = False,
    set_aside: str | os.PathLike[str] | None = None,
    progress: Callable[[int, int | None], None] = lambda done, total: None,
    send_commit: Callable[[AddFiles], None] | None = None,
) -> IngestResult:
    """Add rows, all of them in one commit, or none.

    Args:
        data: A path or URL, or a list of such (Parquet files, or folders of them), an Arrow
            table or reader, anything with the Arrow C stream (polars, DuckDB), a pandas
            DataFrame, or an iterable of dicts. It is read once, in batches; memory is
            bounded by `sleeper.table.ingest.memory`.
        job_id: Names this work. Repeating a job that was committed changes nothing. Where it
            is None or blank, one is made; the result has it, and so has CommitUnknown.
        ignore_extra_columns: Leave out columns that the table does not have. One whose name is
            nearly that of a missing column is refused all the same: it may be misspelt.
        set_aside: A Parquet file to make for rows whose key is null; without it such input
            is refused.
        progress: Called after each batch with the rows read so far, and their total if known.
        send_commit: Sends the transaction to a committer, as workers do; the rows are visible
            when it has committed. Without it this call commits.

    Raises:
        InputRefused: the input does not fit the table; nothing was changed.
        CommitContended: others kept committing; try again.
        CommitUnknown: storage gave no answer; run again with the job id that it names.
        StorageFailed: the storage did not do its part; nothing was changed.
        TableNotFound: the table was deleted.

    Source: rules ING-1, ING-2, ING-5, ING-6 and ING-8.
    """
    opened = self._current()
    request = IngestRequest(
        job_id=job_id,
        ignore_extra_columns=ignore_extra_columns,
        set_aside=path_aside(set_aside),
        progress=progress,
        send_commit=send_commit,
    )
    result = standard_ingest.ingest(
        data,
        request,
        _ingest_settings(opened.properties, self.schema, self._context),
        store=opened.store,
        files=opened.files,
        schema=self.schema,
        now=self._context.now,
        new_id=self._context.new_id,
        remote=self._context.inputs,
    )
    self._undo_commit_if_deleted()
    return result


def query(
    self: TableHandle,
    *,
    key: object = NOT_GIVEN,
    keys: Any = NOT_GIVEN,
    range: RegionRequest | NotGiven = NOT_GIVEN,  # noqa: A002 - the field's own word
    regions: Iterable[RegionRequest] | NotGiven = NOT_GIVEN,
    columns: Sequence[str] | None = None,
    as_of: int | None = None,
) -> Rows:
    """Read rows by key or key range, in key order; everything without either.

    None for key, keys, range or regions is refused; an empty list asks for no rows.

    Args:
        key: One row key: a value, a tuple for composite keys, or {field: value}. A prefix
            of a composite key finds all rows that start with it.
        keys: Many whole row keys: a list, or an Arrow or NumPy array.
        range: {field: (min, max)}, meaning [min, max), or {field: (min, min_inclusive, max,
            max_inclusive)}; None is no limit. Any of the row key fields.
        regions: Several such ranges at once; a row in two of them comes once.
        columns: The columns to return, in this order; all without it.
        as_of: A transaction number: the table as it was then.

    Returns:
        Rows with exactly the columns asked for; iterate it, or `.to_arrow()`,
        `.to_pandas()`, `.to_polars()`, `.to_pylist()`. Ranges are read as you iterate.

    Raises:
        QueryInvalid: a field, value, range or column does not fit the schema.
        VersionNotFound: there is no transaction `as_of`, or its files were deleted.
        DataDamaged: a file of the table is missing or wrong.
        TableNotFound: the table was deleted.

    Source: rules QRY-1 to QRY-6.
    """
    asked = asked_by(key=key, keys=keys, range=range, regions=regions)
    number = checked_as_of(as_of)
    opened = self._current()
    state = opened.store.refresh() if number is None else opened.store.at(number)
    now_ms = int(self._context.now().timestamp() * 1000)
    reader = opened.reader
    if asked == "key":
        answer = partial(query_key, reader, state, key, columns, now_ms)
    elif asked == "keys":
        answer = partial(query_keys, reader, state, keys, columns, now_ms)
    else:
        found = asked_regions(self.schema, range, regions)
        answer = partial(query_regions, reader, state, found, columns, now_ms)
    if number is None:
        return answer()
    return read_version(answer, state, store=opened.store, files=opened.files)


def path_aside(set_aside: object) -> Path | None:
    """Return where rows without a key go; None where such rows are refused.

    Raises:
        BadRequest: it is no path.
    """
    if set_aside is None:
        return None
    if not isinstance(set_aside, str | os.PathLike) or not os.fspath(set_aside):
        raise BadRequest(f"set_aside must be the path of a new file, not {set_aside!r}")
    return Path(set_aside)


def _ingest_settings(
    properties: TableProperties, schema: Schema, context: InstanceContext
) -> IngestSettings:
    return IngestSettings(
        one_file_per_leaf=properties.ingest.file_writing_strategy == "one_file_per_leaf",
        sort=SortSettings(
            memory_bytes=properties.ingest.memory_bytes, temp_folder=context.temp_folder
        ),
        write=write_settings(properties.parquet),
        processing=properties.processing(schema).allowing(context.allow_functions),
        job_id_kept=timedelta(days=properties.statestore.job_id_retention_days),
        orphan_age=timedelta(minutes=properties.gc.orphan_age_minutes),
    )
