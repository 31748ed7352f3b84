"""Export by Spark: rows of a table as Parquet files of the user's own, written by the workers.

The parts' names sort in key order. The last thing that is written is `_SUCCESS`, a list of the
parts as JSON: without it, what lies there is half an export. In a folder there is more certainty:
the whole folder appears at once.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import pyarrow as pa

from sleeper.engine.rows import Rows
from sleeper.engine.writing.user_file import stream_rows
from sleeper.errors import AlreadyExists, ObjectNotFound, StorageFailed
from sleeper.model.queries import LeafQuery, checked_columns
from sleeper.model.ranges import Region
from sleeper.planning.leaf_queries import plan_leaf_queries
from sleeper.spark.data_source.leaves_task import LeavesTask, read_task
from sleeper.spark.data_source.open_table import TableFiles, reading_of
from sleeper.spark.separate_jobs import AT_ONCE, run_separately
from sleeper.state.table_state import TableState
from sleeper.storage.local.folder import FolderObjects
from sleeper.storage.ports import Objects

if TYPE_CHECKING:  # an extra, and slow to import
    from pyspark.sql import SparkSession

MANIFEST = "_SUCCESS"
"""What marks an export as whole. Spark and others that read Parquet pass over such names."""

_UNFINISHED = "_unfinished"
"""Lies there while an export runs. Tasks look for it before a part of theirs appears: Spark stops
them late, and what they write when the export has been given up would lie about for ever."""

PART_ROWS = 1_000_000
"""Leaves of fewer rows than this share a part."""

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportRequest:
    """What is to be exported.

    Attributes:
        table: The table's files, and the processing to apply.
        state: The state to export.
        regions: Rows inside any of these, each once.
        columns: What to write, in this order; None for all.
        now_ms: The present, in milliseconds since 1970, for filters by age.
        part_rows: Leaves share a part until it has so many rows, about.
    """

    table: TableFiles
    state: TableState
    regions: Sequence[Region]
    columns: Sequence[str] | None = None
    now_ms: int
    part_rows: int = PART_ROWS


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedPart:
    """One file of an export.

    Attributes:
        name: Its name in the folder.
        row_count: Its rows.
    """

    name: str
    row_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """A finished export.

    Attributes:
        parts: Its files, in key order. There is one without rows where there are no rows at all.
        transaction: The number of the table's state that was exported.
    """

    parts: tuple[ExportedPart, ...]
    transaction: int

    @property
    def row_count(self) -> int:
        """Rows in all parts."""
        return sum(part.row_count for part in self.parts)


def export_to_folder(
    spark: SparkSession,
    request: ExportRequest,
    folder: Path,
    *,
    export_id: str,
    progress: Progress | None = None,
) -> Exported:
    """Export to a folder that all workers reach. It appears when the export is whole.

    Until then the parts lie in a hidden folder beside it, `.NAME.EXPORT_ID.unfinished`. It is
    deleted if anything fails; a process that is killed leaves it.

    Args:
        spark: Any session, classic or Connect.
        request: What to export.
        folder: Where to.
        export_id: A fresh random id: two exports to one folder do not meet before the end.
        progress: Called with how many parts are done, and of how many.

    Raises:
        AlreadyExists: there is something at `folder` that is not an empty folder.
        Others: as `export_to_objects`.
    """
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise AlreadyExists(
            f"{folder} is there already: name a folder for the export that does not exist yet"
        )
    unfinished = folder.absolute().with_name(f".{folder.name}.{export_id}.unfinished")
    try:
        exported = export_to_objects(spark, request, FolderObjects(unfinished), progress=progress)
        for hidden in unfinished.glob(".*"):
            shutil.rmtree(hidden)
        unfinished.rename(folder)
    except OSError as error:
        raise StorageFailed(f"cannot write {folder}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return exported


def export_to_objects(
    spark: SparkSession,
    request: ExportRequest,
    target: Objects,
    *,
    progress: Progress | None = None,
) -> Exported:
    """Export to an empty folder of any storage, such as one in a bucket; `_SUCCESS` comes last.

    Each part is written by one task and appears when it is complete; a task that Spark runs twice
    writes the same part twice. A task's memory is that of a merge of its leaf's files, and 100,000
    rows. Parts are deleted if anything fails, but for those of a process that is killed.

    Args:
        spark: Any session, classic or Connect, whose workers reach table and target.
        request: What to export.
        target: Where to.
        progress: Called with how many parts are done, and of how many.

    Raises:
        AlreadyExists: there is something in the target.
        QueryInvalid: a column is unknown or named twice.
        DataDamaged: a file of the table is missing or wrong.
        StorageFailed: storage failed, or workers write where this process cannot see it.
        Exception: Spark's own, where a task failed as often as it may be tried.
    """
    found = next(iter(target.listing()), None)
    if found is not None:
        raise AlreadyExists(
            f"{target.url(found.key)} is there already: name a place for the export that is empty"
        )
    names = checked_columns(request.table.schema, request.columns)
    parts = _plan_parts(request, names)
    try:
        target.put(_UNFINISHED, b"")
        written = _write_parts(spark, parts, target, progress)
        exported = Exported(parts=written, transaction=request.state.number)
        target.put(MANIFEST, _manifest(exported))
        target.delete([_UNFINISHED])
    except BaseException:
        with suppress(StorageFailed):
            target.delete([MANIFEST, _UNFINISHED])
            target.delete(part.name for part in parts)
        raise
    return exported


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """A part that is to be written."""

    name: str
    leaves: LeavesTask


def _plan_parts(request: ExportRequest, names: Sequence[str]) -> list[_Part]:
    arrow_schema = reading_of(request.table).arrow_schema
    chosen = pa.schema([arrow_schema.field(name) for name in names])
    packed = [*_packed(request)] or [[]]
    digits = max(5, len(str(len(packed) - 1)))
    return [
        _Part(
            name=f"part-{number:0{digits}}.parquet",
            leaves=LeavesTask(
                table=request.table, groups=groups, arrow_schema=chosen, now_ms=request.now_ms
            ),
        )
        for number, groups in enumerate(packed)
    ]


def _packed(request: ExportRequest) -> Iterator[list[Sequence[LeafQuery]]]:
    """Groups of leaves, neighbours together until they have rows enough for a part."""
    together: list[Sequence[LeafQuery]] = []
    row_count = 0
    for group in plan_leaf_queries(request.state, request.regions):
        together.append(group)
        row_count += sum(_rows_of(request.state, leaf) for leaf in group)
        if row_count >= request.part_rows:
            yield together
            together, row_count = [], 0
    if together:
        yield together


def _rows_of(state: TableState, leaf: LeafQuery) -> int:
    """About how many rows a leaf has: of its ancestors' rows, half go to each child."""
    ancestors = [partition.partition_id for partition in state.tree.ancestors(leaf.leaf_id)]
    return sum(
        reference.row_count >> depth
        for depth, partition_id in enumerate([leaf.leaf_id, *ancestors])
        for reference in state.files.references_on(partition_id)
    )


def _write_parts(
    spark: SparkSession, parts: Sequence[_Part], target: Objects, progress: Progress | None
) -> tuple[ExportedPart, ...]:
    written: dict[str, int] = {}
    ended: Any = run_separately(spark, parts, partial(_write_part, target=target), at_once=AT_ONCE)
    try:
        for each in ended:
            if each.failure is not None:
                raise each.failure
            written[each.piece.name] = each.result
            if progress is not None:
                progress(len(written), len(parts))
    finally:
        ended.close()
    _check_there(parts, target)
    return tuple(ExportedPart(name=part.name, row_count=written[part.name]) for part in parts)


def _write_part(part: _Part, target: Objects) -> int:
    _check_wanted(target)
    batches, arrow_schema = read_task(part.leaves), part.leaves.arrow_schema
    with Rows(batches, arrow_schema, transaction=0) as rows, target.open_output(part.name) as file:
        row_count = stream_rows(rows, cast("BinaryIO", file), "parquet")
        _check_wanted(target)
    return row_count


def _check_wanted(target: Objects) -> None:
    if target.read(_UNFINISHED) is None:
        raise StorageFailed(
            f"{target.url(_UNFINISHED)} is gone: the export was given up, or workers and driver "
            "do not reach its place alike. Use an object store, a shared file system, or local mode"
        )


def _check_there(parts: Sequence[_Part], target: Objects) -> None:
    """See that this process finds every part: workers may have written to disks of their own."""
    try:
        for part in parts:
            target.size(part.name)
    except ObjectNotFound as error:
        raise StorageFailed(
            f"Spark's workers wrote files that this process does not find ({error}). Workers and "
            "driver must reach the export's place alike: use an object store, a shared file "
            "system, or local mode"
        ) from None


def _manifest(exported: Exported) -> bytes:
    said = {
        "transaction": exported.transaction,
        "rows": exported.row_count,
        "parts": [{"name": part.name, "rows": part.row_count} for part in exported.parts],
    }
    return json.dumps(said).encode() + b"\n"
