"""Verification: checks everything that is stored of a table, and changes nothing.

1. the log is replayed, and compared with snapshots and the state (`verify_state`)
2. every data file that the state references is read and checked, here or in tasks of Spark, while
   others write and compact; a file with a fault is compared with the newest state again
3. what is published for other engines is compared with the state that it was made of
4. the table's folder is listed and compared with the state: orphans and garbage are no faults
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from itertools import combinations, islice
from logging import getLogger
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from sleeper.engine.ahead import run_ahead
from sleeper.engine.reading.check_file import (
    CheckedFile,
    FileChecker,
    ReferencedFile,
    same_references,
)
from sleeper.html.values import NotebookHtml
from sleeper.model.schema import Schema
from sleeper.ports.objects import Objects
from sleeper.state.file_references import FileReferences
from sleeper.state.findings import RESTORE_STATE, Finding, FindingKind
from sleeper.state.plans.garbage import orphans_of
from sleeper.state.state_store import StateStore
from sleeper.state.table_state import TableState
from sleeper.tables.history import log_of
from sleeper.tables.on_spark import batches_of, files_for_spark, run_batches
from sleeper.tables.open_table import OpenTable
from sleeper.tables.publications import check_publications, needs_of_readers
from sleeper.tables.purges.records import purged_up_to
from sleeper.tables.state_stores import store_of
from sleeper.tables.verify_chain import ChainCheck, VerifiedChain
from sleeper.tables.verify_state import VerifiedState, verify_state

if TYPE_CHECKING:  # an extra, and slow to import
    from pyspark.sql import SparkSession

_LOG = getLogger(__name__)
_LOOKS_MAX: Final = 5
_THREADS_LOCAL: Final = 2
_THREADS_REMOTE: Final = 8
_BATCH: Final = 1_000
_EXAMPLES_MAX: Final = 20
_BYTES_OF_A_TASK: Final = 256 << 20
_FILE_BYTES: Final = 4 << 20  # that a file counts for at least: its requests take time too

FirstLooks = Callable[[Iterable[ReferencedFile]], Iterable[tuple[ReferencedFile, CheckedFile]]]
"""Checks files somewhere else, in any order; a fault that it finds is looked at here again."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRest:
    """Files in a table's folder that no query reads. They are no faults.

    Attributes:
        orphans: How many data files and sketches no transaction names. Some may be of jobs that
            run now.
        orphan_bytes: Their size.
        orphans_due: How many of them a sweep would delete: those that are old enough.
        orphans_newer: How many of them were stored after the last transaction. If the last entry
            of the log was deleted, its files are among them.
        examples: The names of some orphans.
        garbage: How many files have lost their last reference, and are not yet deleted.
        garbage_due: How many of them the garbage collector would delete now.
    """

    orphans: int
    orphan_bytes: int
    orphans_due: int
    orphans_newer: int
    examples: tuple[str, ...]
    garbage: int
    garbage_due: int


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifySummary(NotebookHtml):
    """The result of the checks of one table.

    Attributes:
        table: The table's name.
        table_id: Its id.
        transaction: The transaction whose state was checked; None if no state can be read.
        quick: Whether only the state and the ends of files were read.
        entries: How many log entries were replayed.
        chained: How many of them name the entry before them by its digest: those of format 2.
        digest: The digest of the last entry, to be noted elsewhere: no entry names it yet. None in
            format 1.
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
    chained: int
    digest: str | None
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


_NOTHING = VerifiedFiles(files=0, rows=0, size_bytes=0, replaced=0, findings=())
_NO_CHAIN = VerifiedChain(last=None, entries=0, chained=0, digest=None, findings=())
_NO_REST = StoredRest(
    orphans=0, orphan_bytes=0, orphans_due=0, orphans_newer=0, examples=(), garbage=0, garbage_due=0
)


def verify(
    table: OpenTable,
    *,
    quick: bool,
    chain: bool,
    spark: SparkSession | None,
    progress: Callable[[int, int | None], None],
) -> VerifySummary:
    """Check everything that is stored of a table; change nothing (`Table.verify`)."""
    first_looks = None if spark is None else _first_looks(table, spark, quick=quick)
    store = store_of(table.record, table.context)  # one that has read nothing yet
    if chain:
        return _verify_chain_alone(table, store)
    chain_check = ChainCheck(table.properties.state_move)
    stated = _stated(table, store, chain_check, progress)
    findings = [*stated.findings]
    checked, rest = _NOTHING, _NO_REST
    chained = _NO_CHAIN
    if store.log is not None:
        chained = chain_check.finish(store.log)
        known = {each.entry for each in findings}
        findings += [each for each in chained.findings if each.entry not in known]
    if stated.state is not None and stated.state.partitions is not None:
        checked = verify_files(
            stated.state,
            store=store,
            checker=FileChecker(
                table.files,
                table.schema,
                table.arrow_schema,
                quick=quick,
                schemas=stated.state.schemas,
            ),
            threads=_threads(table),
            progress=progress,
            first_looks=first_looks,
        )
        findings += checked.findings
        findings += check_publications(table.files, store)
        rest = _rest(table, store)
    if findings:
        table.check_exists()  # the faults may be what a deletion has left
    return VerifySummary(
        table=table.name,
        table_id=table.record.table_id,
        transaction=None if stated.state is None else stated.state.number,
        quick=quick,
        entries=stated.entries,
        chained=chained.chained,
        digest=chained.digest,
        snapshots=stated.snapshots,
        files=checked.files,
        rows=checked.rows,
        size_bytes=checked.size_bytes,
        replaced=checked.replaced,
        rest=rest,
        findings=(*findings,),
    )


def _stated(
    table: OpenTable,
    store: StateStore,
    chain: ChainCheck,
    progress: Callable[[int, int | None], None],
) -> VerifiedState:
    return verify_state(
        store,
        files=table.files,
        schema=table.schema,
        chain=chain,
        purged_up_to=_purged_up_to(table, store),
        progress=progress,
    )


def _purged_up_to(table: OpenTable, store: StateStore) -> int:
    """Return up to which transaction entries may lack keys, as far as its snapshot is there."""
    number = purged_up_to(table.files)
    if not number or store.snapshots is None or number not in store.snapshots.numbers():
        return 0
    return number


def _verify_chain_alone(table: OpenTable, store: StateStore) -> VerifySummary:
    """Check the chain of the log.

    Raises:
        BadRequest: the state store keeps no log.
    """
    found = ChainCheck(table.properties.state_move).finish(log_of(store))
    if found.findings:
        table.check_exists()
    return VerifySummary(
        table=table.name,
        table_id=table.record.table_id,
        transaction=found.last,
        quick=True,
        entries=found.entries,
        chained=found.chained,
        digest=found.digest,
        snapshots=0,
        files=0,
        rows=0,
        size_bytes=0,
        replaced=0,
        rest=_NO_REST,
        findings=found.findings,
    )


def _rest(table: OpenTable, store: StateStore) -> StoredRest:
    gc, now = table.properties.gc, table.context.clock.now()
    kept = max(gc.delay_minutes, gc.versions_kept_minutes)
    return verify_folder(
        store,
        files=table.files,
        orphans_before=now - table.orphan_age(),
        garbage_before=needs_of_readers(table).limited(now - timedelta(minutes=kept)),
    )


def _threads(table: OpenTable) -> int:
    if table.files.is_remote:
        return _THREADS_REMOTE
    return min(_THREADS_LOCAL, os.cpu_count() or 1)


def verify_files(
    state: TableState,
    *,
    store: StateStore,
    checker: FileChecker,
    threads: int,
    progress: Callable[[int, int | None], None] = lambda done, total: None,
    first_looks: FirstLooks | None = None,
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
        first_looks: Checks files instead of threads of this process.

    Raises:
        StorageFailed: the storage did not answer.
    """
    names = sorted({*state.files.needed_besides(FileReferences.empty()), *state.key_files()})
    files = rows = size_bytes = replaced = 0
    findings: list[Finding] = []

    def check(name: str) -> CheckedFile | None:
        return _check(name, state, store, checker)

    progress(0, len(names))
    if first_looks is None:
        results: Iterable[CheckedFile | None] = run_ahead(
            check, names, threads, thread="sleeper-verify"
        )
    else:
        results = _looked_at_again(first_looks, names, state, check)
    for done, checked in enumerate(results, 1):
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
        if not _is_needed(file, state):
            return None  # of partitions that are not in the tree, which is a finding of the state
        checked = checker.check(file)
        if not checked.findings:
            break
        state = store.refresh()
        now = _referenced(name, state)
        if not _is_needed(now, state):
            _LOG.info("%s was compacted and deleted before it was checked", name)
            return None
        if same_references(now.references, file.references):
            break
    return _with_reference_faults(checked, file)


def _with_reference_faults(checked: CheckedFile, file: ReferencedFile) -> CheckedFile:
    return replace(checked, findings=(*checked.findings, *_reference_faults(file)))


def _looked_at_again(
    first_looks: FirstLooks,
    names: Iterable[str],
    state: TableState,
    check: Callable[[str], CheckedFile | None],
) -> Iterator[CheckedFile | None]:
    """Yield the result of each file; a file with a fault is checked here, as any file is."""
    unreferenced = 0

    def referenced() -> Iterator[ReferencedFile]:
        nonlocal unreferenced
        for name in names:
            file = _referenced(name, state)
            if _is_needed(file, state):
                yield file
            else:
                unreferenced += 1

    for file, checked in first_looks(referenced()):
        yield check(file.filename) if checked.findings else _with_reference_faults(checked, file)
    yield from (None for _ in range(unreferenced))


def _first_looks(table: OpenTable, spark: SparkSession, *, quick: bool) -> FirstLooks:
    """Return what checks files in tasks of Spark, a few hundred megabytes in each."""
    run = partial(
        _check_files,
        objects=files_for_spark(table),
        schema=table.schema,
        arrow_schema=table.arrow_schema,
        schemas=table.store.state().schemas,
        quick=quick,
    )

    def first_looks(
        files: Iterable[ReferencedFile],
    ) -> Iterator[tuple[ReferencedFile, CheckedFile]]:
        size_of = partial(_work_of, quick=quick)
        batches = batches_of(files, size_of, _BYTES_OF_A_TASK)
        title = f"sleeper: verify {table.name}, files"
        for batch, results in run_batches(spark, batches, run, title=title):
            yield from zip(batch, results, strict=True)

    return first_looks


def _work_of(file: ReferencedFile, *, quick: bool) -> int:
    return _FILE_BYTES if quick else max(_FILE_BYTES, file.references[0].size_bytes or 0)


def _check_files(
    files: Sequence[ReferencedFile],
    *,
    objects: Objects,
    schema: Schema,
    arrow_schema: pa.Schema,
    schemas: Mapping[int, Schema],
    quick: bool,
) -> list[CheckedFile]:
    checker = FileChecker(objects, schema, arrow_schema, quick=quick, schemas=schemas)
    return [*map(checker.check, files)]


def _referenced(name: str, state: TableState) -> ReferencedFile:
    """Return a file with its references by partitions that are in the tree."""
    references = tuple(
        each for each in state.files.references_to(name) if each.partition_id in state.tree
    )
    regions = tuple(state.partition(each.partition_id).region for each in references)
    return ReferencedFile(filename=name, references=references, regions=regions)


def _is_needed(file: ReferencedFile, state: TableState) -> bool:
    """Return whether a partition of the tree references a file, or others leave its keys out."""
    return bool(file.references) or file.filename in state.key_files()


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


def verify_folder(
    store: StateStore, *, files: Objects, orphans_before: datetime, garbage_before: datetime
) -> StoredRest:
    """List the data files of a table, and count those that its state does not reference.

    Args:
        store: The table's state.
        files: The table's folder.
        orphans_before: Orphans that were stored before this time are due.
        garbage_before: Garbage since before this time is due.

    Raises:
        StorageFailed: the storage cannot be listed.
    """
    orphans = size = due = newer = 0
    examples: list[str] = []
    listing = files.listing("data/")
    while batch := {info.key: info for info in islice(listing, _BATCH)}:
        stored = [(info.key, info.modified) for info in batch.values()]
        last = max(modified for _, modified in stored)
        state = store.refresh()
        for name in orphans_of(state, stored, datetime.max.replace(tzinfo=last.tzinfo)):
            orphans += 1
            size += batch[name].size_bytes
            due += batch[name].modified < orphans_before
            newer += state.at is not None and batch[name].modified > state.at
            if len(examples) < _EXAMPLES_MAX:
                examples.append(name)
    state = store.refresh()
    return StoredRest(
        orphans=orphans,
        orphan_bytes=size,
        orphans_due=due,
        orphans_newer=newer,
        examples=(*examples,),
        garbage=sum(1 for _ in state.files.unreferenced()),
        garbage_due=sum(1 for _ in state.unreferenced_before(garbage_before)),
    )
