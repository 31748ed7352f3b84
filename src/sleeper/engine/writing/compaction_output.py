"""Merges data files of one partition into one: the work of a compaction job.

All pages that are read are checked, then rows are merged, filtered, aggregated and written, batch
by batch: one thread merges, while another processes and writes what was merged before. Memory, in
addition to DataFusion's and pyarrow's: for each input a compressed row group and some batches of
8,192 rows; two chunks of 32,768 merged rows; one row group that is being written; the output's
Bloom filters. Most memory is what DataFusion's allocator keeps (docs/performance.md, "Compaction").
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa

from sleeper.engine.ahead import taken_ahead
from sleeper.engine.memory_limit import check_room, shortages_as_errors
from sleeper.engine.processing.aggregations import Overflow
from sleeper.engine.processing.process import process
from sleeper.engine.reading.few_rows import rows_inside
from sleeper.engine.reading.merged_scan import FAN_IN_MAX
from sleeper.engine.reading.page_checksums import verify_pages
from sleeper.engine.reading.read_leaves import TableReader
from sleeper.engine.reading.regions import row_groups
from sleeper.engine.reading.small_files import SmallFiles, are_small
from sleeper.engine.reading.verified_pages import verify_region
from sleeper.engine.writing.data_file import write_data_file
from sleeper.engine.writing.write_settings import WriteSettings
from sleeper.errors import DataDamaged
from sleeper.lookup.sorted_rows import merge_small, sort_small
from sleeper.model.files import FileReference
from sleeper.model.formats.compaction_job import CompactionJob
from sleeper.model.ranges import Region
from sleeper.ports.objects import Objects
from sleeper.state.plans.claims import ClaimedJob

_CHUNK_ROWS = 32_768  # passed from the merge, and to the writer, at a time
_CHUNKS_AHEAD = 2
_LEAST_BYTES: Final = 112 << 20
"""The least memory with which a merge and the writer of its output work, beside what is loaded."""
_INPUT_BYTES: Final = 4 << 20
"""What each input needs in addition, if it is merged."""
_SMALL_TIMES: Final = 4
"""How many times their bytes small files need in addition: decoded, and their rows sorted."""
_REGIONS_MAX: Final = 64
"""Regions with which all rows of a file are compared; DataFusion reads a file with more."""


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
    small: SmallFiles | None = None,
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
        small: Reads small files, and has those that other jobs read; None for one of this job.

    Raises:
        DataDamaged: an input is missing or damaged; the message names it.
        StorageFailed: memory or disk is full, or the storage failed.

    Source: rule CMP-14.
    """
    with shortages_as_errors(f"compaction job {claimed.job.job_id!r}"):
        chunks = _small_chunks(
            claimed, reading, small or SmallFiles(reading.lookup, reading.arrow_schema), check
        ) or _merged_chunks(claimed, reading, check)
        return _compact(reading, files, claimed, settings, chunks, output or claimed.job.output)


def _check_room(least_bytes: int) -> None:
    check_room("a compaction of these files", least_bytes, "merge fewer files at once")


def _compact(
    reading: TableReader,
    files: Objects,
    claimed: ClaimedJob,
    settings: WriteSettings,
    chunks: Generator[pa.Table, None, None],
    name: str,
) -> CompactionOutput:
    """Process and write the rows of a job."""
    rows_read = 0

    def counted() -> Iterator[pa.Table]:
        nonlocal rows_read
        for chunk in chunks:
            rows_read += chunk.num_rows
            yield chunk

    processed = process(
        counted(),
        reading.processing,
        reading.schema,
        now_ms=claimed.claimed_ms,
        # A user's function gets aggregated rows only.
        overflow=Overflow.LIMIT if reading.processing.function else Overflow.KEEP_APART,
    )
    with closing(chunks), files.open_output(name) as output:
        groups = row_groups(processed, _CHUNK_ROWS)
        written = write_data_file(output, groups, reading.schema, reading.arrow_schema, settings)
    reference = replace(
        written.reference(name, claimed.job.partition_id, reading.schema),
        sequence=claimed.sequence,
    )
    return CompactionOutput(reference=reference, rows_read=rows_read, size_bytes=written.size_bytes)


def _merged_chunks(
    claimed: ClaimedJob, reading: TableReader, check: Callable[[], None]
) -> Generator[pa.Table, None, None]:
    """Verify the inputs, and return their rows as DataFusion merges them."""
    job = claimed.job
    _check_room(_LEAST_BYTES + _INPUT_BYTES * min(len(job.inputs), FAN_IN_MAX))
    rows_by_file = _verified(reading, claimed, check)
    regions_by_file = {}
    for each in job.inputs:
        regions = () if claimed.is_read_whole(each) else claimed.regions_of(each)
        if regions or claimed.is_read_whole(each):
            regions_by_file[each] = regions
    slices = reading.slices(regions_by_file, reading.keys_out(claimed.key_files))
    batches: Any = reading.scanner.merge(slices)
    chunks = taken_ahead(row_groups(batches, _CHUNK_ROWS), _CHUNKS_AHEAD, thread="sleeper-merge")

    def merged() -> Generator[pa.Table, None, None]:
        row_count = 0
        with closing(batches), closing(chunks):
            for chunk in chunks:
                check()
                row_count += chunk.num_rows
                yield chunk
        if len(rows_by_file) == len(job.inputs):
            _check_all_read(job, sum(rows_by_file.values()), row_count)

    return merged()


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


def _check_all_read(job: CompactionJob, expected: int, found: int) -> None:
    if expected != found:
        raise DataDamaged(
            f"the inputs of compaction job {job.job_id!r} have {expected:,} rows by their footers, "
            f"but {found:,} were read: {', '.join(job.inputs)}. Nothing was written. Try again; if "
            "it fails again, restore the files from a copy."
        )


def _small_chunks(
    claimed: ClaimedJob, reading: TableReader, small: SmallFiles, check: Callable[[], None]
) -> Generator[pa.Table, None, None] | None:
    """Return the rows of inputs that are small together, sorted in memory; None if they are not."""
    inputs, size = claimed.job.inputs, claimed.size_bytes
    if not size or not are_small(size, len(inputs)):
        return None
    regions_by_file = {
        each: () if claimed.is_read_whole(each) else claimed.regions_of(each) for each in inputs
    }
    every = {regions for regions in regions_by_file.values() if regions}
    if any(len(regions) > _REGIONS_MAX for regions in every):
        return None
    _check_room(_LEAST_BYTES + _SMALL_TIMES * size)
    names = [each for each in inputs if claimed.is_read_whole(each) or regions_by_file[each]]
    try:
        tables = small.read(names, check)
    except DataDamaged:
        if not every:
            raise
        tables = None  # of a part only its own pages must be whole, which a merge checks
    if tables is None:
        return None
    keys_out = reading.keys_out(claimed.key_files)
    tables = [
        rows.filter(keys_out[each].stay(rows)) if each in keys_out else rows
        for each, rows in zip(names, tables, strict=True)
    ]
    key_names = reading.schema.key_names
    if len(every) == 1 and all(regions_by_file[each] for each in names):
        own = _inside(pa.concat_tables(tables), every.pop(), reading)
        return _in_chunks(sort_small(own, key_names), check)
    cut = [
        _inside(rows, regions_by_file[each], reading)
        for each, rows in zip(names, tables, strict=True)
    ]
    return _in_chunks(merge_small(cut, key_names, reading.arrow_schema), check)


def _inside(rows: pa.Table, regions: Sequence[Region], reading: TableReader) -> pa.Table:
    """Return the rows inside any of the regions; all rows if there are none."""
    return rows_inside(rows, regions, reading.schema) if regions else rows


def _in_chunks(rows: pa.Table, check: Callable[[], None]) -> Generator[pa.Table, None, None]:
    for start in range(0, rows.num_rows, _CHUNK_ROWS):
        check()
        yield rows.slice(start, _CHUNK_ROWS)
