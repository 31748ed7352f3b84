"""Writes an export's parts to its target: each part is atomic, and the manifest is written last.

The manifest, `_SUCCESS`, is a list of the parts as JSON; without it the export is incomplete. Every
engine that writes parts uses this module to begin, check and abort an export.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from errno import EEXIST, ENOTDIR, ENOTEMPTY
from glob import escape
from pathlib import Path

import pyarrow as pa

from sleeper.engine.rows import Rows
from sleeper.engine.writing.user_file import stream_rows
from sleeper.errors import AlreadyExists, StorageFailed
from sleeper.ports.objects import Objects
from sleeper.state.plans.exports import ExportPlan

MANIFEST = "_SUCCESS"
"""Marks an export as complete. Spark and other readers of Parquet ignore such names."""

_UNFINISHED = "_unfinished"
"""Exists while an export runs, and contains its id. Writers check it before a part becomes visible:
Spark stops its tasks late, and parts that they write after the export was aborted would never
be deleted."""

Progress = Callable[[int, int], None]

_log = logging.getLogger(__name__)


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
class ExportedFiles:
    """A finished export.

    Attributes:
        parts: Its files, in key order. If there are no rows, there is one file without rows.
        transaction: The transaction number of the exported state.
    """

    parts: tuple[ExportedPart, ...]
    transaction: int

    @property
    def row_count(self) -> int:
        """Rows in all parts."""
        return sum(part.row_count for part in self.parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportTarget:
    """The target of one export. Picklable if the place is.

    Attributes:
        place: The folder of the parts; empty when the export begins.
        export_id: A random id, by which an export detects another one to the same place.
    """

    place: Objects
    export_id: str

    def write_all(
        self,
        plan: ExportPlan,
        written: Generator[ExportedPart],
        progress: Progress = lambda done, total: None,
    ) -> ExportedFiles:
        """Run an export: begin in an empty place, write its parts, then `_SUCCESS`.

        Parts are deleted on failure, except those of a killed process.

        Args:
            plan: The plan of the export.
            written: Calls `write_part`, here or elsewhere, while it is iterated, in any order of
                the parts. It is closed before parts are deleted.
            progress: Called with the number of parts that are done, and of all parts.

        Raises:
            AlreadyExists: the place is not empty.
            StorageFailed: storage failed, or the place was taken by another export.
            Others: those of `written`.
        """
        self._begin()
        try:
            row_counts: dict[str, int] = {}
            with closing(written):
                for part in written:
                    row_counts[part.name] = part.row_count
                    progress(len(row_counts), len(plan.parts))
            names = (part.name for part in plan.parts)
            parts = tuple(ExportedPart(name=name, row_count=row_counts[name]) for name in names)
            exported = ExportedFiles(parts=parts, transaction=plan.transaction)
            self._end(exported)
        except BaseException:
            try:
                self._give_up(plan)
            except StorageFailed as failure:
                _log.warning("files of an export that failed are left behind: %s", failure)
            raise
        return exported

    def write_part(
        self, name: str, batches: Iterator[pa.RecordBatch], arrow_schema: pa.Schema
    ) -> int:
        """Write one part, which becomes visible when it is complete; return its number of rows.

        Needs memory for 100,000 rows, and the memory of `batches`.

        Raises:
            StorageFailed: the place cannot be written, or the export was aborted.
            Others: those of `batches`.
        """
        self._check_wanted()
        with (
            Rows(batches, arrow_schema, transaction=0) as rows,
            self.place.open_output(name) as file,
        ):
            row_count = stream_rows(rows, file, "parquet")
            self._check_wanted()
        return row_count

    def _begin(self) -> None:
        self._check_empty()
        if not self.place.create(_UNFINISHED, self.export_id.encode()):
            raise self._taken(_UNFINISHED)
        try:
            self._check_empty()  # files of an export that ended after the first check
        except BaseException:
            self.place.delete([_UNFINISHED])
            raise

    def _check_empty(self) -> None:
        for found in self.place.listing():
            if found.key != _UNFINISHED or self.place.read(found.key) != self.export_id.encode():
                raise self._taken(found.key)

    def _taken(self, key: str) -> AlreadyExists:
        return AlreadyExists(
            f"{self.place.url(key)} is there already: name a place for the export that is empty, "
            "and that no other export is writing to"
        )

    def _end(self, exported: ExportedFiles) -> None:
        self._check_wanted()
        self.place.put(MANIFEST, _manifest(exported))
        self.place.delete([_UNFINISHED])

    def _give_up(self, plan: ExportPlan) -> None:
        """Delete written parts, unless another export has taken the place."""
        if self.place.read(_UNFINISHED) not in (None, self.export_id.encode()):
            return
        self.place.delete([MANIFEST, _UNFINISHED])
        self.place.delete(part.name for part in plan.parts)

    def _check_wanted(self) -> None:
        if self.place.read(_UNFINISHED) != self.export_id.encode():
            raise StorageFailed(
                f"{self.place.url(_UNFINISHED)} is missing or another export's: this export was "
                "aborted, or another one writes to the same place, or Spark's workers do not share "
                "it with the driver (then use an object store, a shared folder, or local mode)"
            )


def read_manifest(body: bytes) -> ExportedFiles:
    """Return the export that a manifest is about."""
    said = json.loads(body)
    parts = (ExportedPart(name=part["name"], row_count=part["rows"]) for part in said["parts"])
    return ExportedFiles(parts=tuple(parts), transaction=said["transaction"])


def _manifest(exported: ExportedFiles) -> bytes:
    said = {
        "transaction": exported.transaction,
        "rows": exported.row_count,
        "parts": [{"name": part.name, "rows": part.row_count} for part in exported.parts],
    }
    return json.dumps(said).encode() + b"\n"


# ---------------------------------------------------------------- atomic directory
#
# Writes a folder of a user that becomes visible atomically when it is complete.

_TAKEN = {EEXIST, ENOTDIR, ENOTEMPTY}
_HIDDEN_END = ".unfinished"


@contextmanager
def atomic_directory(folder: Path, mark: str) -> Iterator[Path]:
    """Yield a temp folder, not made yet, that is renamed to `folder` if the block succeeds.

    It is beside `folder`, with the hidden name `.NAME.MARK.unfinished`. If the block fails, it is
    deleted, with parent folders that were made for it; a killed process leaves it. Hidden files
    in it do not become part of `folder`.

    Args:
        folder: The folder to make, or an empty one, which is replaced.
        mark: A random id, so that two writers of one folder use different temp folders.

    Raises:
        AlreadyExists: `folder` exists and is not an empty folder, or is an empty one that
            cannot be replaced.
        StorageFailed: the folder cannot be made.
    """
    folder = Path(os.path.realpath(folder))
    _check_free(folder)
    unfinished = folder.with_name(f".{folder.name}.{mark}{_HIDDEN_END}")
    above = [parent for parent in folder.parents if not os.path.lexists(parent)]
    try:
        yield unfinished
        _rename(unfinished, folder)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        _remove_empty(above)
        raise


def delete_unfinished(folder: Path) -> None:
    """Delete the temp folders that killed processes left beside `folder`.

    A process that is still writing one fails.
    """
    folder = Path(os.path.realpath(folder))
    for left in folder.parent.glob(f".{escape(folder.name)}.*{_HIDDEN_END}"):
        _log.info("deleting %s, which a writer that died has left", left)
        shutil.rmtree(left, ignore_errors=True)


def _check_free(folder: Path) -> None:
    try:
        if not os.path.lexists(folder):
            return
        if not folder.is_dir() or any(folder.iterdir()):
            raise _taken(folder)
        if folder.is_mount() or folder == Path(os.path.realpath(".")):
            raise AlreadyExists(
                f"{folder} is in use, as a mounted or the working folder, so it cannot be "
                "replaced: name a folder inside it that does not exist yet"
            )
    except OSError as error:
        raise _failed(folder, error) from error


def _rename(unfinished: Path, folder: Path) -> None:
    try:
        for hidden in unfinished.glob(".*"):
            shutil.rmtree(hidden)
        _sync(unfinished)
        unfinished.rename(folder)
        _sync(folder.parent)
    except OSError as error:
        raise (_taken(folder) if error.errno in _TAKEN else _failed(folder, error)) from error


def _sync(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove_empty(folders: Sequence[Path]) -> None:
    """Delete folders, the innermost first, as long as they are empty."""
    with suppress(OSError):
        for folder in folders:
            folder.rmdir()


def _taken(folder: Path) -> AlreadyExists:
    return AlreadyExists(f"{folder} is there already: name a folder that does not exist yet")


def _failed(folder: Path, error: OSError) -> StorageFailed:
    return StorageFailed(f"cannot write {folder}: {error.strerror or error}")
