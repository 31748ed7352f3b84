"""What people read on stderr: names in it come from tables and files, and may hold anything."""

from __future__ import annotations

import click


def warn(text: str) -> None:
    """Print a message on stderr; what could move a terminal's cursor is written as escapes."""
    click.echo("\n".join(map(visible, text.split("\n"))), err=True)


def visible(text: str) -> str:
    """Write what would move the cursor, break the line or not print at all as an escape."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )
