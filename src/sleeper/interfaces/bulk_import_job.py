"""The program of a cluster's driver: it runs one bulk import job in the driver's Spark.

    python -m sleeper.interfaces.bulk_import_job JOB --instance URL

JOB is the path in the instance where `sleeper bulk-import --submit` saved it, or the JSON itself.
This file can also be run alone as `sleeper_bulk_import.py`. Its exit codes are those of `sleeper`:
0 done; 1 refused; 2 wrong use; 75 try again later.
"""

from __future__ import annotations

import sys
from dataclasses import replace

import click

from sleeper.instance import Instance, connect
from sleeper.interfaces.cli.bulk_imports.imported import show_imported
from sleeper.interfaces.cli.exit_codes import run_command
from sleeper.interfaces.cli.options import instance_option, json_option
from sleeper.model.formats.bulk_import_job import (
    BulkImportJob,
    check_bulk_import_job,
    read_bulk_import_job,
)
from sleeper.ports.ids import given_job_id
from sleeper.services.driver_run import reported_run
from sleeper.spark.session import driver_session


@click.command()
@click.argument("job")
@instance_option
@click.option("--ignore-extra-columns", is_flag=True, help="Leave out unknown columns.")
@click.option("--set-aside", metavar="FOLDER", help="Put rows whose key is null there.")
@json_option
def run_job(
    *, job: str, instance: str, ignore_extra_columns: bool, set_aside: str | None, as_json: bool
) -> None:
    """Run the bulk import job JOB."""
    opened = connect(instance)
    is_saved = job[:1] != "{"
    given = opened.submitted_jobs.read(job) if is_saved else read_bulk_import_job(job)
    table = opened.table(_table_name(given, opened))
    session = driver_session(f"sleeper bulk import {given.id}")
    try:
        with reported_run(opened, table.table_id, given, job if is_saved else None) as reported:
            result = table.bulk_import(
                given.paths,
                given.id,
                engine="spark",
                spark=session,
                ignore_extra_columns=ignore_extra_columns,
                set_aside=set_aside,
            )
            reported(result)
    finally:
        session.stop()
    if is_saved:
        opened.submitted_jobs.delete(job)
    show_imported(result, table.name, set_aside=set_aside, as_json=as_json)


def main(arguments: list[str] | None = None) -> None:
    """Run a job and exit with the code of its result."""
    sys.exit(run_command(run_job, "sleeper_bulk_import", arguments))


def _table_name(job: BulkImportJob, instance: Instance) -> str:
    record = instance.submitted_jobs.table_of(job)
    named = replace(job, id=given_job_id(job.id) or "none")
    check_bulk_import_job(named, table_found=record is not None)
    assert record is not None
    return record.name


if __name__ == "__main__":
    main()
