"""`Table.ingest`: adds rows to a table."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from sleeper.engine.sorting import sort
from sleeper.engine.writing import data_file
from sleeper.errors import BadRequest
from sleeper.model.known_properties.typed import TableProperties
from sleeper.model.schema import Schema
from sleeper.state.transactions import files
from sleeper.tables import ingest as standard_ingest
from sleeper.tables.handle import TableHandle
from sleeper.tables.instance_context import InstanceContext


def ingest(
    self: TableHandle,
    data: object,
    job_id: str | None = None,
    *,
    ignore_extra_columns: bool = False,
    set_aside: str | os.PathLike[str] | None = None,
    progress: Callable[[int, int | None], None] = lambda done, total: None,
    send_commit: Callable[[files.AddFiles], None] | None = None,
) -> standard_ingest.IngestResult:
    """Add rows, all in one commit.

    Args:
        data: A path or URL, or a list of them (Parquet files or folders of them; or CSV or JSON
            lines, by the ends of their names), an Arrow table, reader or Dataset, anything
            with the Arrow C stream (polars, DuckDB), a polars LazyFrame, a pandas DataFrame,
            an iterable of dicts, or a dict of columns. It is read once, in batches; memory
            is bounded by `sleeper.table.ingest.memory` (docs/guide/adding-rows.md).
        job_id: Identifies this job. Repeating a committed job changes nothing. If it is None or
            blank, an id is made; the result and the error CommitUnknown contain it.
        ignore_extra_columns: True to drop columns that the table does not have. A column whose
            name is similar to a missing column is refused anyway: it may be misspelt.
        set_aside: A new Parquet file for rows whose key is null; without it such input is
            refused.
        progress: Called after each batch with the rows read so far, and their total if known.
        send_commit: Sends the transaction to a committer, as workers do; the rows are visible
            when it has committed. Without it this call commits.

    Raises:
        InputRefused: the input does not fit the table; nothing was changed.
        CommitContended: other writers committed first each time; try again.
        CommitUnknown: storage gave no answer; run again with the job id that it names.
        StorageFailed: storage failed; nothing was changed.
        TableNotFound: the table was deleted.

    Source: rules ING-1, ING-2, ING-5, ING-6 and ING-8.
    """
    opened, state = self._newest()
    request = standard_ingest.IngestRequest(
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
        state=state,
    )
    self._undo_commit_if_deleted()
    return result


def path_aside(set_aside: object) -> Path | None:
    """Check `set_aside` and return it as a path; None if such rows are refused.

    Raises:
        BadRequest: it is not a path.
    """
    if set_aside is None:
        return None
    if not isinstance(set_aside, str | os.PathLike) or not os.fspath(set_aside):
        raise BadRequest(f"set_aside must be the path of a new file, not {set_aside!r}")
    return Path(set_aside)


def _ingest_settings(
    properties: TableProperties, schema: Schema, context: InstanceContext
) -> standard_ingest.IngestSettings:
    return standard_ingest.IngestSettings(
        file_writing=properties.ingest.file_writing_strategy,
        sort=sort.SortSettings(
            memory_bytes=properties.ingest.memory_bytes, temp_folder=context.temp_folder
        ),
        write=data_file.write_settings(properties.parquet),
        processing=properties.processing(schema).allowing(context.allow_functions),
        job_id_kept=timedelta(days=properties.statestore.job_id_retention_days),
        orphan_age=timedelta(minutes=properties.gc.orphan_age_minutes),
    )
