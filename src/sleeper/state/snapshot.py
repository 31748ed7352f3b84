"""Encodes a state as three Parquet files, and decodes it.

Every page has a checksum, so a damaged snapshot is detected, and an older one or the log is used
instead.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from sleeper.errors import DataDamaged, FormatTooNew
from sleeper.model.files import ClaimRecord
from sleeper.model.partitions import PartitionTree
from sleeper.model.paths import IN_TABLE
from sleeper.model.schema import Schema
from sleeper.state.file_references import FileReferences
from sleeper.state.reference_rows import times_of
from sleeper.state.stored_partitions import StoredPartitions, partitions_to_arrow
from sleeper.state.table_state import FORMATS, CommittedJobs, JobRecord, TableState
from sleeper.state.value_json import (
    claims_from_json,
    claims_to_json,
    deletes_from_json,
    deletes_to_json,
    move_from_json,
    move_to_json,
    schemas_from_json,
    schemas_to_json,
    time_from_json,
    time_to_json,
)

JOBS = "jobs.parquet"
PARTITIONS = "partitions.parquet"
FILES = "files.parquet"  # the last part, which completes a snapshot
PARTS = (JOBS, PARTITIONS, FILES)

_FORMAT_KEY = b"sleeper.format"
_NUMBER_KEY = b"sleeper.transaction"
_AT_KEY = b"sleeper.transaction.at"  # missing in snapshots of older versions
_CLAIMS_KEY = b"sleeper.claims"  # JSON; missing if no job with a known owner has claims
_SWEPT_KEY = b"sleeper.swept.before"  # missing if no sweep of orphans has run
_SCHEMAS_KEY = b"sleeper.schemas"  # JSON, by id; missing in snapshots of older versions
_MOVED_KEY = b"sleeper.moved"  # JSON; missing if the state was never moved to another store
_DIGEST_KEY = b"sleeper.entry.digest"  # of the last entry; missing in format 1
_DELETES_KEY = b"sleeper.deletes"  # JSON; missing where no file has deleted rows
_MERGED_KEY = b"sleeper.partitions.merged"  # JSON; missing if no leaves were merged

T = TypeVar("T")

_INFLATED_BYTES_MIN, _INFLATED_SHARE_MAX = 64 << 20, 1_000

_TIME = pa.timestamp("us", "UTC")
_JOBS_SCHEMA = pa.schema(
    [
        ("job_id", pa.string()),
        ("number", pa.int64()),
        ("at", _TIME),
        ("keep_until", _TIME),
        ("rows_read", pa.int64()),
        ("rows_written", pa.int64()),
        ("files", pa.int64()),
    ]
)


@dataclass(frozen=True, slots=True)
class PartSource:
    """Where a part comes from.

    Attributes:
        number: The transaction number of the state that it was written for.
        where: What it is, for errors.
        advice: What to do if it is damaged.
    """

    number: int
    where: str
    advice: str


def snapshot_parts(state: TableState, schema: Schema) -> dict[str, bytes]:
    """Return a state as Parquet files, in the order in which the parts must be stored."""
    return {name: encode_part(name, state, schema) for name in PARTS}


def encode_part(name: str, state: TableState, schema: Schema) -> bytes:
    """Return one of `PARTS` of a state as a Parquet file."""
    if name == JOBS:
        times = {_AT_KEY: state.at, _SWEPT_KEY: state.swept_before}
        at = {key: time_to_json(time).encode() for key, time in times.items() if time is not None}
        if state.moved is not None:
            at[_MOVED_KEY] = json.dumps(move_to_json(state.moved)).encode()
        if state.digest is not None:
            at[_DIGEST_KEY] = state.digest.encode()
        return _to_parquet(_jobs_table(state.jobs), state, at)
    if name == PARTITIONS:
        merged_into = dict(state.partitions.merged) if state.partitions else {}
        about_tree = {_MERGED_KEY: json.dumps(merged_into).encode()} if merged_into else {}
        if state.deletes:
            deletes = deletes_to_json(state.deletes, schema)
            about_tree[_DELETES_KEY] = json.dumps(deletes).encode()
        if state.schemas:
            about_tree[_SCHEMAS_KEY] = schemas_to_json(state.schemas).encode()
        tree = state.partitions
        table = partitions_to_arrow(tree.partitions.values() if tree else (), schema)
        return _to_parquet(table, state, about_tree, format_number=state.format)
    claimed_by = claims_to_json(state.claims)
    claims = {_CLAIMS_KEY: json.dumps(claimed_by).encode()} if claimed_by else {}
    return _to_parquet(state.files.to_arrow(), state, claims)


def unchanged_parts(before: TableState, after: TableState) -> frozenset[str]:
    """Return which of `PARTS` hold the same, but for times, numbers and the last move."""
    unchanged = {
        JOBS: after.jobs is before.jobs,
        PARTITIONS: after.partitions is before.partitions
        and after.schemas == before.schemas
        and after.deletes == before.deletes
        and after.format == before.format,
        FILES: after.files is before.files and after.claims == before.claims,
    }
    return frozenset(name for name, same in unchanged.items() if same)


def state_from_parts(number: int, load: Callable[[str], bytes], schema: Schema) -> TableState:
    """Decode the state of snapshot `number`.

    Args:
        number: The snapshot's transaction number.
        load: Returns the part with a name.
        schema: The table's.

    Raises:
        DataDamaged: a part cannot be decoded; the message names it.
        FormatTooNew: a newer Sleeper wrote it.
    """
    state = replace(TableState.empty(), number=number)
    for name in PARTS:
        source = PartSource(
            number,
            f"part {name!r} of snapshot {number}",
            "Delete that snapshot: an older one, or the transaction log, has the same state.",
        )
        state = with_part(state, name, load(name), schema, source)
    return state


def with_part(
    state: TableState, name: str, body: bytes, schema: Schema, source: PartSource
) -> TableState:
    """Return a state with one of `PARTS` as `encode_part` has written it.

    Raises:
        DataDamaged: it cannot be decoded.
        FormatTooNew: a newer Sleeper wrote it.
    """
    if name == JOBS:
        return _from_parquet(body, source, lambda table: _with_jobs(state, table))
    if name == PARTITIONS:
        return _from_parquet(
            body, source, lambda table: _with_partitions(state, table, schema, source)
        )
    files, claims = _from_parquet(body, source, _files_of)
    return replace(state, files=files, claims=claims)


def _to_parquet(
    table: pa.Table, state: TableState, more: dict[bytes, bytes], *, format_number: int = 1
) -> bytes:
    """Return a part as a Parquet file. The partitions alone have the state's format.

    So a store that keeps parts as they were need not write them anew when the format changes.
    """
    metadata = {
        **(table.schema.metadata or {}),
        _FORMAT_KEY: str(format_number).encode(),
        _NUMBER_KEY: str(state.number).encode(),
        **more,
    }
    import pyarrow.parquet as pq  # noqa: PLC0415 - slow to import, and small states need none

    sink = pa.BufferOutputStream()
    pq.write_table(
        table.replace_schema_metadata(metadata),
        sink,
        compression="zstd",
        write_page_checksum=True,
    )
    body: bytes = sink.getvalue().to_pybytes()
    return body


class _Columns:
    """The columns of a part, each decoded at its use, so that not all are in memory twice."""

    def __init__(self, parquet: Any) -> None:
        self._parquet = parquet
        self.schema: pa.Schema = parquet.schema_arrow
        self.column_names: list[str] = self.schema.names
        self.num_rows: int = parquet.metadata.num_rows

    def column(self, name: str) -> pa.ChunkedArray:
        """Decode one column."""
        if name not in self.column_names:
            raise KeyError(f"it has no column {name!r}")
        # One column is one thread's work: to hand it to a pool costs more than it takes.
        return self._parquet.read([name], use_threads=False).column(0)


def _from_parquet(body: bytes, source: PartSource, read: Callable[[Any], T]) -> T:
    import pyarrow.parquet as pq  # noqa: PLC0415 - as above

    try:
        # Not read_table, which imports pandas and reads in chunks that would have to be joined.
        parquet = pq.ParquetFile(
            pa.BufferReader(body), pre_buffer=False, page_checksum_verification=True
        )
        _check_size(parquet, len(body))
        table = _Columns(parquet)
        metadata = table.schema.metadata
        found = int(metadata[_FORMAT_KEY])
        if found > max(FORMATS):
            raise FormatTooNew(
                f"{source.where} has format {found}; this Sleeper reads formats up to "
                f"{max(FORMATS)}. "
                "Upgrade Sleeper to read this table."
            )
        if int(metadata[_NUMBER_KEY]) != source.number:
            raise ValueError(f"it was written for transaction {metadata[_NUMBER_KEY].decode()}")
        return read(table)
    except (
        pa.ArrowException,
        ArithmeticError,
        OSError,
        ValueError,
        TypeError,
        LookupError,
    ) as error:
        raise DataDamaged(f"{source.where} is damaged: {error}. {source.advice}") from error


def _check_size(parquet: Any, size_bytes: int) -> None:
    """Check that decompressed pages are not larger than plausible for a snapshot.

    Real snapshots are compressed to about a tenth, and to a hundredth if all names are similar.
    """
    groups = [parquet.metadata.row_group(n) for n in range(parquet.metadata.num_row_groups)]
    inflated = sum(group.total_byte_size for group in groups)
    if inflated > max(_INFLATED_BYTES_MIN, _INFLATED_SHARE_MAX * size_bytes):
        raise ValueError(f"{size_bytes:,} bytes would become {inflated:,}")


def _jobs_table(jobs: CommittedJobs) -> pa.Table:
    records = list(jobs.records())
    columns = [[job_id for job_id, _ in records]]
    columns += [[getattr(each, name) for _, each in records] for name in _JOBS_SCHEMA.names[1:]]
    return pa.Table.from_arrays(
        [pa.array(values, kind) for values, kind in zip(columns, _JOBS_SCHEMA.types, strict=True)],
        schema=_JOBS_SCHEMA,
    )


def _with_jobs(state: TableState, table: Any) -> TableState:
    at, swept, moved, digest = (
        table.schema.metadata.get(key) for key in (_AT_KEY, _SWEPT_KEY, _MOVED_KEY, _DIGEST_KEY)
    )
    job_ids, names = table.column("job_id").to_pylist(), _JOBS_SCHEMA.names[1:]
    columns = [
        times_of(table.column(name).combine_chunks())
        if _JOBS_SCHEMA.field(name).type == _TIME
        else table.column(name).to_pylist()
        for name in names
    ]
    records = (
        JobRecord(**dict(zip(names, values, strict=True))) for values in zip(*columns, strict=True)
    )
    return replace(
        state,
        jobs=CommittedJobs.of(zip(job_ids, records, strict=True)),
        at=time_from_json(at.decode()) if at else None,
        swept_before=time_from_json(swept.decode()) if swept else None,
        moved=move_from_json(json.loads(moved)) if moved else None,
        digest=digest.decode() if digest else None,
    )


def _with_partitions(
    state: TableState, table: Any, schema: Schema, source: PartSource
) -> TableState:
    return replace(
        state,
        partitions=_tree_of(table, schema, source),
        schemas=schemas_from_json(table.schema.metadata.get(_SCHEMAS_KEY, b"{}")),
        deletes=deletes_from_json(
            json.loads(table.schema.metadata.get(_DELETES_KEY, b"[]")), schema
        ),
        format=int(table.schema.metadata[_FORMAT_KEY]),
    )


def _files_of(table: pa.Table) -> tuple[FileReferences, dict[str, ClaimRecord]]:
    files = FileReferences.from_arrow(table)
    names = files.to_arrow().column("filename")  # decoding it twice would cost twice the memory
    if not pc.all(pc.match_substring_regex(names, rf"\A{IN_TABLE}\z"), min_count=0).as_py():
        raise ValueError("it names data files outside the table's folder")
    claims = dict(json.loads(table.schema.metadata.get(_CLAIMS_KEY, b"{}")))
    return files, claims_from_json(claims)


def _tree_of(table: Any, schema: Schema, source: PartSource) -> PartitionTree | None:
    partitions = StoredPartitions(table.column, schema, source.where, source.advice)
    if not partitions:
        return None
    merged = json.loads(table.schema.metadata.get(_MERGED_KEY, b"{}"))
    return PartitionTree(partitions, partitions.root_id, merged)
