"""The program of a cluster's driver: it runs one bulk import job in the driver's Spark.

    python -m sleeper.interfaces.bulk_import_job JOB --instance URL

JOB is the path in the instance where `sleeper bulk-import --submit` saved it, or the JSON itself.
A worker that takes the job from a queue starts the same program beside itself, with --master.
This file can also be run alone as `sleeper_bulk_import.py`. Its exit codes are those of `sleeper`:
0 done; 1 refused; 2 wrong use; 75 try again later.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import click

from sleeper.instance.instance import Instance, connect
from sleeper.interfaces.cli.options import instance_option, json_option, split_pairs
from sleeper.interfaces.cli.present import show_imported
from sleeper.interfaces.cli.signals import stop_with_parent
from sleeper.interfaces.cli.stderr import run_command
from sleeper.model.formats.bulk_import_job import (
    BulkImportJob,
    check_bulk_import_job,
    read_bulk_import_job,
)
from sleeper.model.jobs.redelivery import may_pass, reasons_of
from sleeper.ports.ids import given_job_id
from sleeper.spark.session import driver_session, running_session
from sleeper.spark.submit.driver_process import driver_report
from sleeper.state.transactions.files import AddFiles
from sleeper.tables.table import Table
from sleeper.workers.driver_run import reported_run, run_id_of
from sleeper.workers.stop_signal import StopSignal

if TYPE_CHECKING:  # an extra, and slow to import
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)


@click.command()
@click.argument("job")
@instance_option
@click.option("--ignore-extra-columns", is_flag=True, help="Leave out unknown columns.")
@click.option("--set-aside", metavar="FOLDER", help="Put rows whose key is null there.")
@click.option("--master", hidden=True, help="Start Spark there, for the worker that is --parent.")
@click.option("--parent", type=int, hidden=True, help="End with this process, the parent.")
@click.option("--conf", "conf", multiple=True, hidden=True, help="A setting of that Spark.")
@json_option
def run_job(
    *,
    job: str,
    instance: str,
    ignore_extra_columns: bool,
    set_aside: str | None,
    master: str | None,
    parent: int | None,
    conf: tuple[str, ...],
    as_json: bool,
) -> None:
    """Run the bulk import job JOB."""
    if parent is not None:
        stop_with_parent(StopSignal(), parent, with_children=True)
    with _told_to_the_worker() if parent is not None else nullcontext():
        opened = connect(instance)
        is_saved = job[:1] != "{"
        given = opened.submitted_jobs.read(job) if is_saved else read_bulk_import_job(job)
        table = opened.table(_table_name(given, opened))
        place = job if is_saved else None
        with (
            _session(given.id, master) as session,
            reported_run(
                opened, table.table_id, given, place, has_worker=parent is not None
            ) as reported,
        ):
            result = table.bulk_import(
                given.paths,
                given.id,
                engine="spark",
                spark=session,
                master=master,
                conf=dict(split_pairs(conf, "--conf")),
                csv=given.csv_options,
                ignore_extra_columns=ignore_extra_columns or parent is not None,
                set_aside=set_aside,
                send_commit=None if parent is None else _sender(opened, table, given, place),
                upsert=given.upsert,
                if_unchanged_since=given.if_unchanged_since,
            )
            reported(result)
        if place is not None:
            opened.submitted_jobs.delete(place)
    if parent is None:
        show_imported(result, table.name, set_aside=set_aside, as_json=as_json)


@contextmanager
def _session(job_id: str | None, master: str | None) -> Iterator[SparkSession | None]:
    """Yield the driver's session; None where it starts after the input's check. Stop it.

    One that cannot be stopped is logged: what the job has done does not depend on it.
    """
    session = driver_session(f"sleeper bulk import {job_id}") if master is None else None
    try:
        yield session
    finally:
        session = session or running_session()
        if session is not None:
            try:
                session.stop()
            except Exception:  # noqa: BLE001 - of py4j: Java has gone, or does not answer
                _log.warning("Spark could not be stopped", exc_info=True)


def _sender(
    instance: Instance, table: Table, job: BulkImportJob, place: str | None
) -> Callable[[AddFiles], None] | None:
    """Return what sends the commit to the committer; None where the driver is to commit.

    A driver on a cluster always commits: the queues that it could reach are its machine's own. So
    does one that replaces rows, or relies on a version (rules ING-18 and DEL-5).
    """
    run_id = run_id_of(job, place)
    is_sent = table.properties.async_commits.bulk_import and not job.is_committed_by_its_worker
    if run_id is None or not is_sent:
        return None
    return partial(instance.jobs.send_commit, table, task_id=run_id, run_id=run_id)


@contextmanager
def _told_to_the_worker() -> Iterator[None]:
    """Print why the driver failed, for the worker that waits for it."""
    try:
        yield
    except Exception as failure:
        click.echo(driver_report(reasons_of(failure), may_pass=may_pass(failure)))
        raise


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
