"""A deletion that is done once by its job id, however often it is asked for (rule DEL-6).

1. a deletion that was committed before is answered from the state
2. the id is committed in the entry of the deletion, as that of an ingest without files: if another
   process has committed it meanwhile, nothing is deleted

Without an id, a deletion that is repeated also deletes rows that were added since.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import replace

from sleeper.errors import CommitUnknown, JobAlreadyCommitted, RowsChanged
from sleeper.ports.ids import given_job_id
from sleeper.state.table_state import CommittedJob, JobRecord
from sleeper.state.transactions.files import AddFiles
from sleeper.tables.deletions.regions import RowDeletion
from sleeper.tables.open_table import OpenTable

Delete = Callable[[AddFiles | None], RowDeletion]
"""Deletes rows, and commits what it is given in the same entry."""


def delete_once(table: OpenTable, job_id: str | None, delete: Delete) -> RowDeletion:
    """Delete rows, unless a deletion or an ingest of this id was committed before.

    Raises:
        BadRequest: the id is blank, too long, or no text.
        CommitUnknown: it may have been committed. The error names the id to run again.
    """
    given = given_job_id(job_id)
    if given is None:
        return delete(None)
    if (done := table.store.refresh().jobs.find(given)) is not None:
        return _done_before(given, done)
    kept_until = table.store.time() + table.job_id_kept()
    job = CommittedJob(job_id=given, keep_until=kept_until, rows_read=0, rows_written=0)
    try:
        return replace(delete(AddFiles(job=job)), job_id=given)
    except (JobAlreadyCommitted, RowsChanged):  # rows may have been changed by the same job
        other = table.store.refresh().jobs.find(given)
        if other is None:
            raise
        return _done_before(given, other)
    except CommitUnknown as error:
        raise type(error)(
            f"{error} Its job id is {given}: run it again with job_id={given!r}, on the command "
            f"line --job-id {shlex.quote(given)}."
        ) from error


def _done_before(job_id: str, done: JobRecord) -> RowDeletion:
    return RowDeletion(transaction=done.number, regions=0, job_id=job_id, already_committed=True)
