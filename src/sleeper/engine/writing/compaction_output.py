"""Merges data files of one partition into one: the work of a compaction job.

All pages that are read are checked, then rows are merged, filtered, aggregated and written, batch
by batch: one thread merges, while another processes and writes what was merged before. Memory, in
addition to DataFusion's and pyarrow's: for each input a compressed row group and some batches of
8,192 rows; two chunks of 32,768 merged rows; one row group that is being written; the output's
Bloom filters. Most memory is what DataFusion's allocator keeps (docs/performance.md, "Compaction").
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa

from sleeper.engine.ahead import taken_ahead
from sleeper.engine.memory_limit import check_room, shortages_as_errors
from sleeper.engine.processing.aggregations import Overflow
from sleeper.engine.processing.process import process
from sleeper.engine.reading.page_checksums import verify_pages
from sleeper.engine.reading.read_leaves import TableReader
from sleeper.engine.reading.regions import row_groups
from sleeper.engine.reading.verified_pages import verify_region
from sleeper.engine.writing.data_file import write_data_file
from sleeper.engine.writing.write_settings import WriteSettings
from sleeper.errors import DataDamaged
from sleeper.model.files import FileReference
from sleeper.model.formats.compaction_job import CompactionJob
from sleeper.ports.objects import Objects
from sleeper.state.plans.claims import ClaimedJob

_CHUNK_ROWS = 32_768  # passed from the merge, and to the writer, at a time
_CHUNKS_AHEAD = 2
_LEAST_BYTES: Final = 112 << 20
"""The least memory with which a merge and the writer of its output work, beside what is loaded."""
_INPUT_BYTES: Final = 4 << 20
"""What each input needs in addition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionOutput:
    """The output of a compaction job, before its commit.

    Attributes:
        reference: The new file, with its exact number of rows; it may have none (rule CMP-14).
        rows_read: Rows of the inputs in the partition, before filters and aggregations.
        size_bytes: The new file's length.
    """

    reference: FileReference
    rows_read: int
    size_bytes: int


def compact_files(
    reading: TableReader,
    files: Objects,
    claimed: ClaimedJob,
    settings: WriteSettings,
    check: Callable[[], None] = lambda: None,
    *,
    output: str | None = None,
) -> CompactionOutput:
    """Write the rows of a job's inputs in its partition to one file, named by the job.

    The same arguments give a file with the same bytes. The file becomes
    visible when it is complete; on failure there is none.

    Args:
        reading: The table, with the processing to apply.
        files: The table's folder.
        claimed: The inputs, the rows to read of them, and the name of the output.
        settings: Settings of the data file.
        check: Called before each input file and for each 32,768 rows; what it raises ends the
            job, and no file is left.
        output: Another name for the file.

    Raises:
        DataDamaged: an input is missing or damaged; the message names it.
        StorageFailed: memory or disk is full, or the storage failed.

    Source: rule CMP-14.
    """
    least = _LEAST_BYTES + _INPUT_BYTES * len(claimed.job.inputs)
    check_room("a compaction of these files", least, "merge fewer files at once")
    with shortages_as_errors(f"compaction job {claimed.job.job_id!r}"):
        return _compact(reading, files, claimed, settings, check, output or claimed.job.output)


def _compact(
    reading: TableReader,
    files: Objects,
    claimed: ClaimedJob,
    settings: WriteSettings,
    check: Callable[[], None],
    name: str,
) -> CompactionOutput:
    job = claimed.job
    rows_by_file = _verified(reading, claimed, check)
    regions_by_file = {}
    for each in job.inputs:
        regions = () if claimed.is_read_whole(each) else claimed.regions_of(each)
        if regions or claimed.is_read_whole(each):
            regions_by_file[each] = regions
    batches: Any = reading.scanner.merge(reading.slices(regions_by_file))
    chunks = taken_ahead(row_groups(batches, _CHUNK_ROWS), _CHUNKS_AHEAD, thread="sleeper-merge")
    merged = _CountedChunks(chunks, check)
    processed = process(
        merged,
        reading.processing,
        reading.schema,
        now_ms=claimed.claimed_ms,
        # A user's function gets aggregated rows only.
        overflow=Overflow.LIMIT if reading.processing.function else Overflow.KEEP_APART,
    )
    with closing(batches), closing(chunks), files.open_output(name) as output:
        groups = row_groups(processed, _CHUNK_ROWS)
        written = write_data_file(output, groups, reading.schema, reading.arrow_schema, settings)
        if len(rows_by_file) == len(job.inputs):
            _check_all_read(job, sum(rows_by_file.values()), merged.row_count)
    reference = replace(
        written.reference(name, job.partition_id, reading.schema),
        sequence=claimed.sequence,
    )
    return CompactionOutput(
        reference=reference, rows_read=merged.row_count, size_bytes=written.size_bytes
    )


def _verified(
    reading: TableReader, claimed: ClaimedJob, check: Callable[[], None]
) -> dict[str, int]:
    """Verify the pages that are read; return how many rows each file has that is read whole.

    Many leaves may share a file, so of a part only its own pages are read.
    """
    rows_by_file = {}
    for name in claimed.job.inputs:
        check()
        if claimed.is_read_whole(name):
            rows_by_file[name] = verify_pages(reading.lookup, name).row_count
        else:
            verify_region(reading.lookup, name, claimed.partition.region, reading.arrow_schema)
    return rows_by_file


class _CountedChunks:
    """Counts the rows of chunks that pass, and calls `check` for each."""

    def __init__(self, chunks: Iterator[pa.Table], check: Callable[[], None]) -> None:
        self._chunks = chunks
        self._check = check
        self.row_count = 0

    def __iter__(self) -> Iterator[pa.Table]:
        for chunk in self._chunks:
            self._check()
            self.row_count += chunk.num_rows
            yield chunk


def _check_all_read(job: CompactionJob, expected: int, found: int) -> None:
    if expected != found:
        raise DataDamaged(
            f"the inputs of compaction job {job.job_id!r} have {expected:,} rows by their footers, "
            f"but {found:,} were read: {', '.join(job.inputs)}. Nothing was written. Try again; if "
            "it fails again, restore the files from a copy."
        )
