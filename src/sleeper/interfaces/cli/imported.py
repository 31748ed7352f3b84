"""Prints the result of a bulk import, for the command and for a cluster's driver."""

from __future__ import annotations

from sleeper.interfaces.cli.present import counted, print_json, say
from sleeper.tables.bulk_import_result import BulkImportResult


def show_imported(
    result: BulkImportResult, table: str, *, set_aside: str | None, as_json: bool
) -> None:
    """Print the result of a bulk import: the engine and why, rows added, rows set aside."""
    if as_json:
        print_json(result)
        return
    if result.already_committed:
        say(f"job {result.job_id} was committed by transaction {result.transaction}: nothing to do")
        return
    say(f"engine {result.engine}: {result.reason}")
    if result.leaves_after > result.leaves_before:
        say(f"split partitions: {result.leaves_before:,} leaves are now {result.leaves_after:,}")
    partitions = len({ref.partition_id for ref in result.files})
    file_count = len({ref.filename for ref in result.files})
    say(
        f"imported {counted(result.rows_written, 'row')} into {table}: "
        f"{counted(file_count, 'file')}, {counted(partitions, 'partition')}, "
        f"{result.took_s:.1f} s, transaction {result.transaction}"
    )
    if result.rows_set_aside:
        say(f"set aside {counted(result.rows_set_aside, 'row')} without a key in {set_aside}")
