"""`Table.verify`: checks everything that is stored of a table."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from sleeper.engine.file_rows.check_file import FileChecker
from sleeper.notebook_html import NotebookHtml
from sleeper.state.findings import Finding
from sleeper.state.state_store import StateStore
from sleeper.tables.handle import OpenedTable, TableHandle
from sleeper.tables.state_stores import store_of
from sleeper.tables.verify import VerifiedFiles, verify_files
from sleeper.tables.verify_folder import StoredRest, verify_folder
from sleeper.tables.verify_state import verify_state

_THREADS_LOCAL: Final = 2
_THREADS_REMOTE: Final = 8
_NOTHING = VerifiedFiles(files=0, rows=0, size_bytes=0, replaced=0, findings=())
_NO_REST = StoredRest(
    orphans=0, orphan_bytes=0, orphans_due=0, orphans_newer=0, examples=(), garbage=0, garbage_due=0
)


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifySummary(NotebookHtml):
    """The result of the checks of one table.

    Attributes:
        table: The table's name.
        table_id: Its id.
        transaction: The transaction whose state was checked; None if no state can be read.
        quick: Whether only the state and the ends of files were read.
        entries: How many log entries were replayed.
        snapshots: How many snapshots and copies of the state were compared with the log.
        files: How many data files were checked.
        rows: Their rows, by their footers.
        size_bytes: Their length.
        replaced: How many files others compacted and deleted before they could be checked.
        rest: Orphans and garbage, which are no faults.
        findings: What is wrong.
    """

    table: str
    table_id: str
    transaction: int | None
    quick: bool
    entries: int
    snapshots: int
    files: int
    rows: int
    size_bytes: int
    replaced: int
    rest: StoredRest
    findings: tuple[Finding, ...]

    @property
    def clean(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings


def verify(
    self: TableHandle,
    *,
    quick: bool = False,
    progress: Callable[[int, int | None], None] = lambda done, total: None,
) -> VerifySummary:
    """Check everything that is stored of the table; change nothing.

    The state is read anew, the log replayed and compared with snapshots. Of every referenced data
    file all pages are compared with their checksums, and keys with their order, their partition,
    counts, limits and the sketch. Others may write, compact and collect garbage meanwhile.

    Args:
        quick: Read the state and the ends of data files only.
        progress: Called with the number of checked log entries, and later files, and of all.

    Returns:
        What was checked and what is wrong. Faults do not raise.

    Raises:
        TableNotFound: the table was deleted.
        StorageFailed: the storage did not answer.

    Source: ours; upstream has no such check.
    """
    opened = self._current()
    store = store_of(opened.record, self._context)  # one that has read nothing yet
    files = opened.files
    stated = verify_state(store, files=files, schema=self.schema, progress=progress)
    findings = [*stated.findings]
    checked, rest = _NOTHING, _NO_REST
    if stated.state is not None and stated.state.partitions is not None:
        checked = verify_files(
            stated.state,
            store=store,
            checker=FileChecker(files, self.schema, self._arrow_schema, quick=quick),
            threads=_threads(opened),
            progress=progress,
        )
        findings += checked.findings
        rest = _rest(opened, store, self._context.now())
    if findings:
        self._current()  # raises if the table was deleted meanwhile
    return VerifySummary(
        table=opened.record.name,
        table_id=opened.record.table_id,
        transaction=None if stated.state is None else stated.state.number,
        quick=quick,
        entries=stated.entries,
        snapshots=stated.snapshots,
        files=checked.files,
        rows=checked.rows,
        size_bytes=checked.size_bytes,
        replaced=checked.replaced,
        rest=rest,
        findings=(*findings,),
    )


def _rest(opened: OpenedTable, store: StateStore, now: datetime) -> StoredRest:
    gc = opened.properties.gc
    kept = max(gc.delay_minutes, gc.versions_kept_minutes)
    return verify_folder(
        store,
        files=opened.files,
        orphans_before=now - timedelta(minutes=gc.orphan_age_minutes),
        garbage_before=now - timedelta(minutes=kept),
    )


def _threads(opened: OpenedTable) -> int:
    if opened.files.is_remote:
        return _THREADS_REMOTE
    return min(_THREADS_LOCAL, os.cpu_count() or 1)
