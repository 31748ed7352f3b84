"""`sleeper resume`."""

from __future__ import annotations

import click

from sleeper.instance.instance import connect
from sleeper.interfaces.cli.options import instance_option
from sleeper.interfaces.cli.present import say


@click.command()
@instance_option
def resume(instance: str) -> None:
    """Let services and workers continue after sleeper pause.

    \b
    Example:
        sleeper resume
    """
    with connect(instance) as opened:
        opened.pause_switch.resume()
    say("services and workers continue")
