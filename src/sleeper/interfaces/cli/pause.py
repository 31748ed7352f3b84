"""`sleeper pause`."""

from __future__ import annotations

import click

from sleeper.instance.instance import connect
from sleeper.interfaces.cli.options import instance_option
from sleeper.interfaces.cli.present import say


@click.command()
@instance_option
def pause(instance: str) -> None:
    """Stop all services and workers of the instance from beginning anything.

    No job is begun and no table is maintained, on any machine, until sleeper
    resume. Running jobs are finished. Queries go on, and so do commands
    such as sleeper ingest. sleeper report shows a pause.

    \b
    Example:
        sleeper pause
    """
    with connect(instance) as opened:
        opened.pause_switch.pause()
        say(f"paused since {opened.pause_switch.paused_since()}")
