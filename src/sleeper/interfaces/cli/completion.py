"""Completion of table names and of names of properties, for shells.

A shell calls it while somebody types, so it says nothing, never fails, and gives up after two
seconds.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from threading import Thread
from typing import Final

import click
from click.shell_completion import CompletionItem

from sleeper.interfaces.connection import connect
from sleeper.model.known_properties.value_kinds import Property

_WAIT_S: Final = 2.0
Items = list[CompletionItem]


def complete_tables(ctx: click.Context, _: click.Parameter, incomplete: str) -> Items:
    """Return the tables of the instance whose names begin so."""
    url = ctx.params.get("instance")
    if not url:
        return []
    names = _quietly(lambda: [record.name for record in connect(url).tables()])
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def complete_table_settings(ctx: click.Context, _: click.Parameter, incomplete: str) -> Items:
    """Return the properties of tables whose names begin so, each with `=`."""
    from sleeper.model.known_properties import catalogue

    return _settings(catalogue.TABLE_PROPERTIES, incomplete)


def complete_instance_settings(ctx: click.Context, _: click.Parameter, incomplete: str) -> Items:
    """Return the properties of an instance whose names begin so, each with `=`."""
    from sleeper.model.known_properties import catalogue

    return _settings(catalogue.INSTANCE_PROPERTIES, incomplete)


def complete_instance_properties(ctx: click.Context, _: click.Parameter, incomplete: str) -> Items:
    """Return the properties of an instance whose names begin so."""
    from sleeper.model.known_properties import catalogue

    return _named(catalogue.INSTANCE_PROPERTIES, incomplete, "")


def _settings(known: Iterable[Property], incomplete: str) -> Items:
    return _named(known, incomplete, "=")


def _named(known: Iterable[Property], incomplete: str, end: str) -> Items:
    """Return the properties that have an effect and whose names begin so."""
    return [
        CompletionItem(f"{each.name}{end}", help=each.description)
        for each in known
        if each.used and each.name.startswith(incomplete)
    ]


def _quietly(work: Callable[[], list[str]]) -> list[str]:
    """Return the result of work, or nothing if it fails or takes too long; log nothing."""
    found: list[str] = []

    def run() -> None:
        try:
            found.extend(work())
        except Exception:  # noqa: BLE001 - nobody could read it: a shell is completing a word
            found.clear()

    before = logging.root.manager.disable
    logging.disable()
    worker = Thread(target=run, name="sleeper-completion", daemon=True)
    worker.start()
    worker.join(_WAIT_S)
    if worker.is_alive():
        return []
    logging.disable(before)
    return found
