"""`sleeper bulk-import`: adds many rows, in this process, with Spark, or on a cluster."""

from __future__ import annotations

import json
import os
import warnings
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click

from sleeper.instance.instance import Instance, connect
from sleeper.interfaces.cli.clusters import PLATFORMS, cluster_of, cluster_options, refuse_strangers
from sleeper.interfaces.cli.completion import complete_tables
from sleeper.interfaces.cli.options import (
    csv_options,
    instance_option,
    json_option,
    split_pairs,
    text_of,
    unchanged_since_option,
)
from sleeper.interfaces.cli.present import print_json, progress_rows, say, show_imported
from sleeper.model.csv_options import CsvOptions
from sleeper.model.formats.bulk_import_job import (
    BulkImportJob,
    check_bulk_import_job,
    read_bulk_import_job,
    write_bulk_import_job,
)
from sleeper.ports.ids import given_job_id
from sleeper.spark.submit.submitted_jobs import Submission


@click.command("bulk-import")
@click.argument("table", required=False, shell_complete=complete_tables)
@click.argument("files", nargs=-1)
@click.option("--job-id", metavar="ID", help="Id of the job: a repeated job changes nothing.")
@click.option(
    "--engine",
    type=click.Choice(["auto", "local", "spark"]),
    default="auto",
    show_default=True,
    help="This process or Spark; auto chooses the cheaper one that can run the job.",
)
@click.option("--master", metavar="URL", help="Which Spark: local[4], spark://host:7077, ...")
@click.option("--conf", "settings", multiple=True, metavar="K=V", help="A setting of Spark.")
@click.option(
    "--ignore-extra-columns", is_flag=True, help="Ignore columns that the table does not have."
)
@click.option(
    "--set-aside",
    metavar="PATH",
    help="Write rows with a null key there: a Parquet file, or for Spark a folder.",
)
@click.option(
    "--upsert",
    is_flag=True,
    help="Replace rows of the table that have the same row keys.",
)
@unchanged_since_option
@click.option(
    "--job",
    "job_file",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A bulk import job as JSON, instead of TABLE, FILES and --job-id.",
)
@click.option("--submit", "platform", type=click.Choice(PLATFORMS), help="Run it on a cluster.")
@click.option(
    "--explain", is_flag=True, help="Show how Spark would divide the work, and import nothing."
)
@click.option("--cores", type=click.IntRange(1), help="With --explain: tasks that run at once.")
@click.option("--dry-run", is_flag=True, help="With --submit: show the request, send nothing.")
@cluster_options
@csv_options
@instance_option
@json_option
def bulk_import(
    *,
    table: str | None,
    files: tuple[str, ...],
    job_id: str | None,
    job_file: Path | None,
    settings: tuple[str, ...],
    instance: str,
    platform: str | None,
    csv: CsvOptions | None,
    **asked: Any,
) -> None:
    """Add the rows of FILES, as sleeper ingest takes them, to TABLE in one commit.

    A table with too few partitions is split first, by a sample of the rows. Then
    all rows become visible together.

    \b
    Example:
        sleeper bulk-import flights 2013/ --job-id flights-2013
        sleeper bulk-import flights 2013/ --engine spark --master 'local[4]'
        sleeper bulk-import flights s3://bucket/all/ --explain --cores 400
        sleeper bulk-import flights s3://bucket/2013/ --submit emr-serverless \\
            --application-id 00abc --execution-role arn:aws:iam::1:role/jobs \\
            --environment s3://bucket/sleeper-environment/ --dry-run
    """
    conf = dict(split_pairs(settings, "--conf"))
    job = _job(table, files, job_id, job_file)
    if csv is not None:
        job = replace(job, csv={**job.csv, **csv.to_json()})
    job = replace(job, spark_conf={**job.spark_conf, **conf})
    if asked["cores"] is not None and not asked["explain"]:
        raise click.UsageError("--cores goes with --explain")
    how: dict[str, Any] = {"upsert": True} if asked["upsert"] else {}
    if asked["if_unchanged_since"] is not None:
        how["if_unchanged_since"] = asked["if_unchanged_since"]
    if how and asked["explain"]:
        option = min(how).replace("_", "-")
        raise click.UsageError(f"--{option} is for imports: leave out --explain")
    job = replace(job, **how)
    if asked["explain"]:
        _explain(job, connect(instance), asked, checked=job_file is None)
    elif platform is None:
        _run_here(job, connect(instance), asked, checked=job_file is None)
    else:
        _submit(job, connect(instance), platform, asked)


def _job(
    table: str | None, files: tuple[str, ...], job_id: str | None, job_file: Path | None
) -> BulkImportJob:
    if job_file is not None:
        if table or job_id is not None:
            raise click.UsageError("--job has its own table, files and id: leave out the others")
        return read_bulk_import_job(text_of(job_file))
    if not table or not files:
        raise click.UsageError("give TABLE and FILES, or a job by --job")
    return BulkImportJob(id=given_job_id(job_id), table_name=table, files=files)


def _run_here(
    job: BulkImportJob, instance: Instance, asked: dict[str, Any], *, checked: bool
) -> None:
    refuse_strangers(None, asked)
    if asked["dry_run"]:
        raise click.UsageError("--dry-run goes with --submit")
    name = (job.table_name or "") if checked else _checked_name(job, instance)
    opened = instance.table(name)
    with warnings.catch_warnings(), progress_rows(f"bulk import into {name}") as progress:
        # Our code passes no pandas frame to Spark.
        warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas")
        result = opened.bulk_import(
            job.paths,
            job.id,
            engine=asked["engine"],
            master=asked["master"],
            conf=job.spark_conf,
            csv=job.csv_options,
            ignore_extra_columns=asked["ignore_extra_columns"],
            set_aside=asked["set_aside"],
            progress=progress,
            upsert=job.upsert,
            if_unchanged_since=job.if_unchanged_since,
        )
    show_imported(result, name, set_aside=asked["set_aside"], as_json=asked["as_json"])


def _explain(
    job: BulkImportJob, instance: Instance, asked: dict[str, Any], *, checked: bool
) -> None:
    name = (job.table_name or "") if checked else _checked_name(job, instance)
    text = instance.table(name).explain_bulk_import(
        job.paths,
        cores=asked["cores"] or os.cpu_count() or 1,
        csv=job.csv_options,
        ignore_extra_columns=asked["ignore_extra_columns"],
    )
    print_json({"plan": text.splitlines()}) if asked["as_json"] else say(text)


def _checked_name(job: BulkImportJob, instance: Instance) -> str:
    record = instance.submitted_jobs.table_of(job)
    named = replace(job, id=given_job_id(job.id) or "none")
    check_bulk_import_job(named, table_found=record is not None)
    assert record is not None
    return record.name


def _submit(job: BulkImportJob, instance: Instance, platform: str, asked: dict[str, Any]) -> None:
    if asked["engine"] == "local":
        raise click.UsageError("--engine local runs in this process: leave out --submit")
    if asked["set_aside"] and "emr" in platform:
        raise click.UsageError(
            "--set-aside must be a folder that all workers share; machines of EMR have none"
        )
    cluster = cluster_of(platform, asked, asked["master"], instance.properties)
    submitted = instance.submitted_jobs
    planned = submitted.plan(
        job, cluster, environment=asked.get("environment"), options=_options(asked)
    )
    notes = submitted.notes(planned, ask=not asked["dry_run"])
    if asked["dry_run"]:
        print_json(_shown(planned, notes))
        return
    sent = submitted.submit(planned)
    if asked["as_json"]:
        print_json(_shown(sent, notes))
        return
    started = f" as {sent.started}" if sent.started else ""
    say(f"submitted job {sent.job.id} to {platform}{started}; saved as {sent.job_place}")
    for note in notes:
        say(note)


def _options(asked: dict[str, Any]) -> tuple[str, ...]:
    """Return the arguments for the driver's command line."""
    return (
        *(("--ignore-extra-columns",) if asked["ignore_extra_columns"] else ()),
        *(("--set-aside", str(Path(asked["set_aside"]).absolute())) if asked["set_aside"] else ()),
    )


def _shown(submission: Submission, notes: list[str]) -> dict[str, Any]:
    return {
        "platform": submission.platform,
        "job_place": submission.job_place,
        "job": json.loads(write_bulk_import_job(submission.job)),
        "request": asdict(submission.request),
        "started": submission.started,
        "notes": notes,
    }
