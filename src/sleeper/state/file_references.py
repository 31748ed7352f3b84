"""The files of a table and the references of partitions to them: an immutable value.

It is a base of Arrow columns, shared by many versions, and a small overlay of later changes. A
change copies the overlay. When the overlay exceeds a fixed share of the base, it is folded into a
new base. So the cost of a change depends on the change, not on the number of files, and Python
objects are made only for references that a caller requests.

Every tracked file is either referenced by at least one partition, or unreferenced since some time
and garbage. Never both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from heapq import merge
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from sleeper.model.files import FileReference
from sleeper.state.reference_rows import (
    SUMS,
    ReferenceRows,
    file_rows_batch,
    negated,
    no_file_rows,
    summed,
)

# ---------------------------------------------------------------- file changes
#
# Finds the rows in which two tables of files differ, when they share no memory.


def differing_rows(
    before: ReferenceRows, after: ReferenceRows
) -> tuple[set[tuple[str, str]], set[str]]:
    """Return which references, and which unreferenced files, are not the same in both.

    Arrow compares all rows, so this costs about as much as folding an overlay.

    Returns:
        Pairs (filename, partition id) of references, and names of files.
    """
    old, new = _keys(before.batch), _keys(after.batch)
    stayed, kept = pc.is_in(old, value_set=new), pc.is_in(new, value_set=old)
    # Both are in one order, so the rows that both have come in one order, too.
    here, there = before.batch.filter(stayed), after.batch.filter(kept)
    others = _others(here, there)
    pairs: set[tuple[str, str]] = set()
    names: set[str] = set()
    for rows in (
        before.batch.filter(pc.invert(stayed)),
        after.batch.filter(pc.invert(kept)),
        here.filter(others),
    ):
        for name, partition_id in zip(
            rows.column("filename").to_pylist(),
            rows.column("partition_id").cast(pa.string()).to_pylist(),
            strict=True,
        ):
            if partition_id is None:
                names.add(name)
            else:
                pairs.add((name, partition_id))
    return pairs, names


def _keys(rows: pa.RecordBatch) -> pa.Array:
    """Return a text for each row that no other row has: an unreferenced file begins with 0."""
    partitions = rows.column("partition_id").cast(pa.string()).cast(pa.large_string())
    marked = pc.binary_join_element_wise(_text("1"), partitions, _text(""))
    joined = pc.binary_join_element_wise(marked, rows.column("filename"), _text("\0"))
    waiting = pc.binary_join_element_wise(_text("0"), rows.column("filename"), _text(""))
    return pc.if_else(partitions.is_valid(), joined, waiting)


def _text(value: str) -> pa.Scalar:
    return pa.array([value], pa.large_string())[0]


def _others(here: pa.RecordBatch, there: pa.RecordBatch) -> pa.Array:
    """Return for each row whether one of its values is another one there."""
    found = pa.repeat(pa.scalar(value=False), len(here))
    for name in here.schema.names:
        if name in ("filename", "partition_id"):
            continue
        old, new = here.column(name), there.column(name)
        one_null = pc.xor(old.is_valid(), new.is_valid())
        found = pc.or_(found, pc.coalesce(pc.not_equal(old, new), one_null))
    return found


# Whoever reads a state from the start begins with it, so it is made once.
_NO_ROWS = ReferenceRows(no_file_rows())
_Changes = Mapping[str, Mapping[str, FileReference | None]]
_Pair = tuple[str, str]
_ABSENT = object()
_OF_FILES = ("filename", "size_bytes", "keys", "row_count", "sequence", "updated")


def _united(parts: pa.Table) -> pa.Table:
    """Return a row for each file of which several references have parts."""
    once = ("filename", "row_count")
    sums = [("row_count", "sum"), *((name, "max") for name in _OF_FILES if name not in once)]
    grouped = parts.group_by("filename").aggregate(sums)
    named = {f"{name}_max": name for name in _OF_FILES} | {"row_count_sum": "row_count"}
    plain = [named.get(name, name) for name in grouped.column_names]
    return grouped.rename_columns(plain).select(_OF_FILES).cast(parts.schema)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionTotals:
    """Totals over all references of one partition.

    Attributes:
        references: Number of references.
        rows: Their rows; includes estimates if `estimated`.
        rows_exact_whole: The rows of references to whole files with exact counts.
        references_on_jobs: Number of references that a compaction job has claimed.
        estimated: True if at least one row count is an estimate.
    """

    references: int
    rows: int
    rows_exact_whole: int
    references_on_jobs: int
    estimated: bool


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class FileReferences:
    """All references and unreferenced files of a table. Every change makes a new value.

    Attributes:
        reference_count: Number of references of all partitions.
        overlay_size: References and files changed since the last fold.

    Source: rules FRF-1 to FRF-6; the queries are those of STS-10.
    """

    # With an overlay of at most a fiftieth, folds cost less than the changes themselves. The
    # minimum avoids that small tables fold on every change.
    _fold_share: ClassVar[int] = 50
    _fold_min: ClassVar[int] = 4096

    _base: ReferenceRows
    reference_count: int
    overlay_size: int = 0
    # Differences from the base, as {partition id: {filename: reference}} and by filename.
    # None hides a reference of the base, or the time of a file there.
    _on_partition: _Changes = field(default_factory=dict)
    _to_file: _Changes = field(default_factory=dict)
    _since: Mapping[str, datetime | None] = field(default_factory=dict)

    @classmethod
    def empty(cls) -> FileReferences:
        """Return the value of a table without files."""
        return cls._of(_NO_ROWS)

    @classmethod
    def from_arrow(cls, table: pa.Table) -> FileReferences:
        """Convert the table that `to_arrow` returned. Shares the memory of columns in one chunk.

        Raises:
            ValueError: the rows are not in the order of `to_arrow`.
        """
        return cls._of(ReferenceRows.from_table(table))

    @classmethod
    def _of(cls, base: ReferenceRows) -> FileReferences:
        return cls(base, len(base) - len(base.unreferenced))

    def to_arrow(self) -> pa.Table:
        """Return all rows as a table of `file_rows.SCHEMA`, by partition, then filename.

        An unreferenced file is a row with a null partition, and its `updated` is when it lost
        its last reference. Such rows come first.
        """
        return self._folded_base().to_table()

    @property
    def file_count(self) -> int:
        """The number of files, referenced or not."""
        touched = {*self._to_file, *self._since}
        now = sum(self.is_tracked(filename) for filename in touched)
        before = sum(any(True for _ in self._base.rows_of_file(name)) for name in touched)
        return self._base.file_count - before + now

    def referenced_bytes(self) -> tuple[int, bool]:
        """Return the bytes of all referenced files, and whether that is all of them.

        Files of versions of Sleeper that noted no size are left out. It reads every reference.
        """
        rows = self.to_arrow().select(["partition_id", "filename", "size_bytes", "whole_file"])
        referenced = rows.filter(pc.is_valid(rows["partition_id"]))
        whole = referenced.filter(referenced["whole_file"])["size_bytes"]
        shared = referenced.filter(pc.invert(referenced["whole_file"]))  # by several references
        sizes = shared.group_by("filename").aggregate([("size_bytes", "max")])["size_bytes_max"]
        total = sum(pc.sum(each).as_py() or 0 for each in (whole, sizes))
        return total, whole.null_count + sizes.null_count == 0

    def data_files(self, names: Iterable[str] | None = None) -> pa.Table:
        """Return the referenced files, each once, in the order of their sequence.

        Columns: `filename`, `size_bytes` and `keys` as in `to_arrow`; `row_count`, of all its
        references together; `sequence`, 0 where an older version noted none; and `updated`, when a
        reference of it last changed.

        Args:
            names: The files; all of them without it, which reads every reference.
        """
        if names is None:
            rows = self.to_arrow()
        else:
            asked = (each for name in names for each in self.references_to(name))
            rows = pa.Table.from_batches([file_rows_batch(asked, {})])
        is_whole = pc.and_(pc.is_valid(rows["partition_id"]), rows["whole_file"])
        is_part = pc.and_not(pc.is_valid(rows["partition_id"]), rows["whole_file"])
        rows = rows.select(_OF_FILES)
        parts = [rows if pc.all(is_whole).as_py() else rows.filter(is_whole)]
        if pc.any(is_part).as_py():
            parts.append(_united(rows.filter(is_part)))
        files = pa.concat_tables(parts)
        del rows, parts  # a table of a million files is large
        place = files.schema.get_field_index("sequence")
        files = files.set_column(place, "sequence", pc.coalesce(files["sequence"], 0))
        return files.take(pc.sort_indices(files["sequence"]))

    def partly_referenced(self) -> list[str]:
        """Return the files that no reference has as a whole, by name. It reads every reference."""
        rows = self.to_arrow().select(["partition_id", "filename", "whole_file"])
        parts = pc.and_not(pc.is_valid(rows["partition_id"]), rows["whole_file"])
        return sorted(pc.unique(rows.filter(parts)["filename"]).to_pylist())

    def of_older_schemas(self, schema_id: int) -> list[str]:
        """Return the referenced files that were written by a schema of a lower number, by name.

        It reads every reference.
        """
        rows = self.to_arrow().select(["partition_id", "filename", "schema_id"])
        older = pc.less(pc.coalesce(rows["schema_id"], 1), schema_id)
        found = rows.filter(pc.and_(pc.is_valid(rows["partition_id"]), older))
        return sorted(pc.unique(found["filename"]).to_pylist())

    def references_on(self, partition_id: str) -> tuple[FileReference, ...]:
        """Return the references of one partition, by filename."""
        kept = self._base.references_on(partition_id)
        changes = self._on_partition.get(partition_id)
        if not changes:
            return tuple(kept)
        held = [each for each in kept if each.filename not in changes]
        held += filter(None, changes.values())
        return tuple(sorted(held, key=lambda each: each.filename))

    def filenames_on(self, partition_id: str) -> list[str]:
        """Return the names of the files that one partition references, ordered.

        This is enough for a query, and much cheaper than `references_on`.
        """
        kept = self._base.filenames_on(partition_id)
        changes = self._on_partition.get(partition_id)
        if not changes:
            return kept
        held = [name for name in kept if name not in changes]
        return sorted([*held, *(name for name, now in changes.items() if now is not None)])

    def references_to(self, filename: str) -> tuple[FileReference, ...]:
        """Return the references to one file, by partition id."""
        changes = self._to_file.get(filename, {})
        held = [self._base.reference(row) for row in self._kept_rows(filename, changes)]
        held += filter(None, changes.values())
        return tuple(sorted(held, key=lambda each: each.partition_id))

    def reference(self, filename: str, partition_id: str) -> FileReference | None:
        """Return the reference of one partition to one file, or None."""
        changes = self._on_partition.get(partition_id, {})
        if filename in changes:
            return changes[filename]
        row = self._base.row_of(filename, partition_id)
        return None if row is None else self._base.reference(row)

    def size_bytes(self, filename: str, partition_ids: Iterable[str]) -> int | None:
        """Return the size of a file, as the first of some partitions that references it records it.

        None if none does. This is much cheaper than to ask for the reference.
        """
        for partition_id in partition_ids:
            changes = self._on_partition.get(partition_id, {})
            if filename in changes:
                changed = changes[filename]
                if changed is not None:
                    return changed.size_bytes
            elif (row := self._base.row_of(filename, partition_id)) is not None:
                return self._base.size_bytes(row)
        return None

    def references_named(
        self, filenames: Sequence[str], partition_id: str
    ) -> list[FileReference | None]:
        """Return the references of one partition to some files, in their order; None for no one.

        This is much cheaper than to ask for one after the other.
        """
        changes = self._on_partition.get(partition_id, {})
        unchanged = [name for name in filenames if name not in changes]
        held = self._base.references_named(unchanged, partition_id) if unchanged else {}
        return [changes[name] if name in changes else held.get(name) for name in filenames]

    def references_count(self, filename: str) -> int:
        """Return how many partitions reference a file."""
        changes = self._to_file.get(filename, {})
        kept = sum(1 for _ in self._kept_rows(filename, changes))
        return kept + sum(new is not None for new in changes.values())

    def touched_since(self, before: FileReferences) -> tuple[set[_Pair], set[str]]:
        """Return what may be another than in an older value, and may be the same.

        The cost is proportional to the changes since the last fold, or to both values if one was
        folded since the other.

        Returns:
            Pairs (filename, partition id) of references, and names of unreferenced files.
        """
        if self._base is not before._base:
            return differing_rows(before._folded_base(), self._folded_base())
        pairs = {
            (filename, partition_id)
            for partition_id in _different(before._on_partition, self._on_partition)
            for filename in _different(
                before._on_partition.get(partition_id, {}), self._on_partition.get(partition_id, {})
            )
        }
        return pairs, _different(before._since, self._since)

    def is_tracked(self, filename: str) -> bool:
        """True if the file is referenced, or is garbage that is not yet deleted (rule FRF-6)."""
        if self.unreferenced_since(filename) is not None:
            return True
        return self._is_referenced(filename, self._to_file.get(filename, {}))

    def unreferenced_since(self, filename: str) -> datetime | None:
        """Return when the file lost its last reference; None if referenced or not tracked."""
        if filename in self._since:
            return self._since[filename]
        row = self._base.row_of(filename, None)
        return None if row is None else self._base.updated(row)

    def unreferenced(self, before: datetime | None = None) -> Iterator[tuple[str, datetime]]:
        """Yield (filename, since) of files without references, by filename.

        Iteration is safe while newer values are made: this one does not change.

        Args:
            before: Only files unreferenced since strictly before this time (rule STS-10).
        """
        kept = self._base.unreferenced_files(before)
        changed = sorted(
            (name, since)
            for name, since in self._since.items()
            if since is not None and (before is None or since < before)
        )
        return merge((each for each in kept if each[0] not in self._since), changed)

    def needs_more_than(self, newer: FileReferences) -> bool:
        """Return whether a file is referenced here that `newer` does not track: it was deleted.

        The cost is proportional to both.
        """
        needed = self._referenced_names()
        kept = newer._folded_base().batch.column("filename")
        return len(needed) > 0 and not pc.all(pc.is_in(needed, value_set=kept)).as_py()

    def needed_besides(self, newer: FileReferences) -> list[str]:
        """Return the files that are referenced here and not in `newer`, by name.

        The cost is proportional to both.
        """
        needed, kept = self._referenced_names(), newer._referenced_names()
        return sorted(
            pc.unique(needed.filter(pc.invert(pc.is_in(needed, value_set=kept)))).to_pylist()
        )

    def partition_ids(self) -> frozenset[str]:
        """Return the partitions with at least one reference."""
        emptied = {each for each in self._on_partition if not self._has_references(each)}
        return frozenset((self._base.slices.keys() | self._on_partition.keys()) - emptied)

    def totals(self) -> dict[str, PartitionTotals]:
        """Return the totals of each partition that has references.

        The cost is proportional to partitions and overlay; totals of the base are cached.
        """
        hidden = self._base.measures_of(self._hidden_references())
        added = ReferenceRows.measures(file_rows_batch(self._added(), {}))
        sums = summed([self._base.sums, negated(hidden), added])
        return {
            partition_id: PartitionTotals(
                references=references,
                rows=rows,
                rows_exact_whole=exact,
                references_on_jobs=on_jobs,
                estimated=estimated > 0,
            )
            for partition_id, references, rows, exact, on_jobs, estimated in zip(
                sums.column("partition_id").cast(pa.string()).to_pylist(),
                *(sums.column(name).to_pylist() for name in SUMS),
                strict=True,
            )
            if references
        }

    def changed(
        self,
        *,
        removed: Iterable[_Pair] = (),
        added: Iterable[FileReference] = (),
        unreferenced: Iterable[str] = (),
        forgotten: Iterable[str] = (),
        at: datetime,
    ) -> FileReferences:
        """Return the value after a change. A file without references is garbage from `at` on.

        Args:
            removed: (filename, partition id) of references to remove.
            added: References to add; their `updated` becomes `at`. One that replaces another of
                the same file and partition may be in `removed` as well.
            unreferenced: New files without references to track.
            forgotten: Unreferenced files to remove.
            at: The time of the change.

        Raises:
            KeyError: a reference to remove, or a file to forget, does not exist.
        """
        changes: dict[_Pair, FileReference | None] = dict.fromkeys(removed)
        for pair in changes:
            if not self._has(pair):
                raise KeyError(f"partition {pair[1]!r} does not reference file {pair[0]!r}")
        for each in added:
            changed = each if each.updated == at else replace(each, updated=at)
            changes[each.filename, each.partition_id] = changed
        since = self._waits_ended(changes, forgotten)
        since.update(dict.fromkeys(unreferenced, at))

        come = sum(new is not None for new in changes.values())
        gone = sum(self._has(pair) for pair in changes)
        to_file = _overlaid(self._to_file, changes, outer=0)
        touched = {filename for filename, _ in changes}
        freed = (name for name in touched if not self._is_referenced(name, to_file.get(name, {})))
        since.update(dict.fromkeys(freed, at))
        newer = replace(
            self,
            reference_count=self.reference_count + come - gone,
            overlay_size=self.overlay_size + len(changes) + len(since),
            _on_partition=_overlaid(self._on_partition, changes, outer=1),
            _to_file=to_file,
            _since={**self._since, **since},
        )
        limit = max(self._fold_min, newer.reference_count // self._fold_share)
        return newer.folded() if newer.overlay_size > limit else newer

    def folded(self) -> FileReferences:
        """Return a value with the same content and an empty overlay."""
        return self._of(self._folded_base()) if self.overlay_size else self

    def _referenced_names(self) -> pa.Array:
        rows = self._folded_base().batch
        return rows.column("filename").filter(rows.column("partition_id").is_valid())

    def _folded_base(self) -> ReferenceRows:
        if not self.overlay_size:
            return self._base
        waiting = {name: since for name, since in self._since.items() if since is not None}
        ended = (self._base.row_of(name, None) for name in self._since)
        dropped = [*self._hidden_references(), *(row for row in ended if row is not None)]
        return self._base.replaced(dropped, file_rows_batch(self._added(), waiting))

    def _waits_ended(
        self, changes: Mapping[_Pair, FileReference | None], forgotten: Iterable[str]
    ) -> dict[str, datetime | None]:
        """Return the files that are no longer garbage: forgotten, or referenced again."""
        ended: dict[str, datetime | None] = dict.fromkeys(forgotten)
        for filename in ended:
            if self.unreferenced_since(filename) is None:
                raise KeyError(f"file {filename!r} does not wait for garbage collection")
        for (filename, _), new in changes.items():
            if new is not None and self.unreferenced_since(filename) is not None:
                ended[filename] = None
        return ended

    def _has(self, pair: _Pair) -> bool:
        filename, partition_id = pair
        changes = self._on_partition.get(partition_id, {})
        if filename in changes:
            return changes[filename] is not None
        return self._base.row_of(filename, partition_id) is not None

    def _is_referenced(self, filename: str, changes: Mapping[str, FileReference | None]) -> bool:
        """Return whether a file has references, with the overlay's changes of it."""
        return any(changes.values()) or any(True for _ in self._kept_rows(filename, changes))

    def _kept_rows(
        self, filename: str, changes: Mapping[str, FileReference | None]
    ) -> Iterator[int]:
        """Yield the base's rows of references to a file that the overlay does not change."""
        for row in self._base.rows_of_file(filename):
            partition_id = self._base.partition_of(row)
            if partition_id is not None and partition_id not in changes:
                yield row

    def _has_references(self, partition_id: str) -> bool:
        changes = self._on_partition[partition_id]
        if any(changes.values()):
            return True
        hidden = sum(self._base.row_of(name, partition_id) is not None for name in changes)
        return hidden < len(self._base.slice_of(partition_id))

    def _hidden_references(self) -> list[int]:
        """Return the base's rows of references that the overlay has changed."""
        rows = (
            self._base.row_of(filename, partition_id)
            for partition_id, changes in self._on_partition.items()
            for filename in changes
        )
        return [row for row in rows if row is not None]

    def _added(self) -> Iterator[FileReference]:
        for changes in self._on_partition.values():
            yield from filter(None, changes.values())


def _overlaid(
    overlay: _Changes, changes: Mapping[_Pair, FileReference | None], *, outer: int
) -> _Changes:
    """Return an overlay with more changes; only inner mappings that change are copied."""
    grouped: dict[str, dict[str, FileReference | None]] = {}
    for pair, new in changes.items():
        grouped.setdefault(pair[outer], {})[pair[1 - outer]] = new
    inner = {key: {**overlay.get(key, {}), **each} for key, each in grouped.items()}
    return {**overlay, **inner}


def _different(before: Mapping[str, object], after: Mapping[str, object]) -> set[str]:
    """Return the keys whose values are not the same objects."""
    return {
        key
        for key in before.keys() | after.keys()
        if before.get(key, _ABSENT) is not after.get(key, _ABSENT)
    }
