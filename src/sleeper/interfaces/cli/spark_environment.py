"""`sleeper spark-environment`: packs Sleeper's packages for clusters."""

from __future__ import annotations

from pathlib import Path

import click

from sleeper.interfaces.cli.options import json_option
from sleeper.interfaces.cli.present import print_json, say
from sleeper.spark.submit.environment import (
    PYTHON_VERSION,
    build_environment,
    installed_sources,
    sleeper_requirements,
)


@click.command("spark-environment")
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option("--python", default=PYTHON_VERSION, show_default=True, help="The cluster's Python.")
@click.option(
    "--architecture",
    type=click.Choice(["x86_64", "arm64"]),
    default="x86_64",
    show_default=True,
    help="The cluster's processors.",
)
@click.option(
    "--extra",
    "extras",
    multiple=True,
    default=["objectstore"],
    show_default=True,
    help="An extra of Sleeper to include.",
)
@json_option
def spark_environment(
    folder: Path, python: str, architecture: str, extras: tuple[str, ...], as_json: bool
) -> None:
    """Pack Sleeper's packages for a cluster of Linux machines into FOLDER.

    FOLDER gets three files: environment.tar.gz, with this version of Sleeper
    and the packages it needs; sleeper_bulk_import.py, which a driver runs; and
    sleeper-catalog.jar, for sessions that name tables in SQL. Copy them to
    where the cluster can read them. This needs pip, and the machines of the
    cluster need the same version of Python.

    \b
    Example:
        sleeper spark-environment sleeper-environment
        aws s3 cp --recursive sleeper-environment s3://bucket/sleeper-environment
    """
    made = build_environment(
        folder,
        installed_sources(),
        requirements=sleeper_requirements(extras),
        python=python,
        architecture=architecture,
    )
    if as_json:
        print_json(made)
        return
    say(f"made {made.archive} ({made.size_bytes / 1e6:,.0f} MB), {made.entry} and {made.jar}")
