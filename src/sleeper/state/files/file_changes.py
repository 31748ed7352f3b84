"""Finds the rows in which two tables of files differ, when they share no memory."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from sleeper.state.files.file_rows import FileRows


def differing_rows(before: FileRows, after: FileRows) -> tuple[set[tuple[str, str]], set[str]]:
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
