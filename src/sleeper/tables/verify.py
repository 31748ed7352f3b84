"""Checks every data file that a table's state references, while others write and compact."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import combinations, islice
from logging import getLogger
from typing import Final

from sleeper.engine.file_rows.check_file import (
    CheckedFile,
    FileChecker,
    ReferencedFile,
    same_references,
)
from sleeper.state.file_references import FileReferences
from sleeper.state.findings import RESTORE_STATE, Finding, FindingKind
from sleeper.state.state_store import StateStore
from sleeper.state.table_state import TableState

_LOG = getLogger(__name__)
_LOOKS_MAX: Final = 5
_AHEAD: Final = 4
"""Files that wait for a thread, for each thread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedFiles:
    """The result of the checks of all data files of a state.

    Attributes:
        files: How many were checked.
        rows: Their rows, by their footers.
        size_bytes: Their length.
        replaced: How many were compacted and deleted by others before they could be checked.
        findings: What is wrong.
    """

    files: int
    rows: int
    size_bytes: int
    replaced: int
    findings: tuple[Finding, ...]


def verify_files(
    state: TableState,
    *,
    store: StateStore,
    checker: FileChecker,
    threads: int,
    progress: Callable[[int, int | None], None] = lambda done, total: None,
) -> VerifiedFiles:
    """Check every data file that a state references.

    A file with a fault is compared with the newest state again: others may have compacted and
    deleted it meanwhile, or may have changed its references.

    Args:
        state: The state.
        store: The table's state store, for newer states.
        checker: Checks one file.
        threads: How many files are checked at once.
        progress: Called with the number of checked files, and of all.

    Raises:
        StorageFailed: the storage did not answer.
    """
    names = state.files.needed_besides(FileReferences.empty())
    files = rows = size_bytes = replaced = 0
    findings: list[Finding] = []

    def check(name: str) -> CheckedFile | None:
        return _check(name, state, store, checker)

    progress(0, len(names))
    for done, checked in enumerate(_at_once(check, names, threads), 1):
        progress(done, len(names))
        if checked is None:
            replaced += 1
            continue
        files += 1
        rows += checked.row_count
        size_bytes += checked.size_bytes
        findings += checked.findings
    return VerifiedFiles(
        files=files, rows=rows, size_bytes=size_bytes, replaced=replaced, findings=(*findings,)
    )


def _check(
    name: str, state: TableState, store: StateStore, checker: FileChecker
) -> CheckedFile | None:
    """Check one file; None if the newest state does not reference it."""
    for _ in range(_LOOKS_MAX):
        file = _referenced(name, state)
        if not file.references:
            return None  # of partitions that are not in the tree, which is a finding of the state
        checked = checker.check(file)
        if not checked.findings:
            break
        state = store.refresh()
        now = _referenced(name, state)
        if not now.references:
            _LOG.info("%s was compacted and deleted before it was checked", name)
            return None
        if same_references(now.references, file.references):
            break
    faults = (*checked.findings, *_reference_faults(file))
    return CheckedFile(
        filename=name,
        row_count=checked.row_count,
        size_bytes=checked.size_bytes,
        findings=faults,
    )


def _referenced(name: str, state: TableState) -> ReferencedFile:
    """Return a file with its references by partitions that are in the tree."""
    references = tuple(
        each for each in state.files.references_to(name) if each.partition_id in state.tree
    )
    regions = tuple(state.partition(each.partition_id).region for each in references)
    return ReferencedFile(filename=name, references=references, regions=regions)


def _reference_faults(file: ReferencedFile) -> Iterator[Finding]:
    """Check that no row is read twice: that regions of one file's references are disjoint."""
    parts = zip(file.references, file.regions, strict=True)
    whole = [each for each in file.references if each.whole_file]
    if whole and len(file.references) > 1:
        yield _overlap(file, whole[0].partition_id, "references all of it, and others do as well")
        return
    for (one, region), (other, its_region) in combinations(parts, 2):
        if region.overlaps(its_region):
            what = f"and partition {other.partition_id} overlap, and both reference it"
            yield _overlap(file, one.partition_id, what)
            return


def _overlap(file: ReferencedFile, partition_id: str, what: str) -> Finding:
    return Finding(
        kind=FindingKind.REFERENCE,
        what=f"data file {file.filename!r}: partition {partition_id} {what}, so that queries "
        "return rows twice",
        next_step=RESTORE_STATE,
        filename=file.filename,
        partition_id=partition_id,
    )


def _at_once(
    check: Callable[[str], CheckedFile | None], names: Iterable[str], threads: int
) -> Iterator[CheckedFile | None]:
    """Yield results in order; only a few files wait for a thread."""
    remaining = iter(names)
    with ThreadPoolExecutor(threads, thread_name_prefix="sleeper-verify") as pool:
        running: deque[Future[CheckedFile | None]] = deque()
        try:
            running += (pool.submit(check, name) for name in islice(remaining, _AHEAD * threads))
            while running:
                yield running.popleft().result()
                running += (pool.submit(check, name) for name in islice(remaining, 1))
        finally:
            for each in running:
                each.cancel()
