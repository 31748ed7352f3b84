"""`sleeper publish`."""

from __future__ import annotations

import click

from sleeper.html.markup import size_text
from sleeper.interfaces.cli.options import on_table
from sleeper.interfaces.cli.present import counted, print_json, say
from sleeper.interfaces.cli.stderr import warn
from sleeper.tables.publish import PublishResult
from sleeper.tables.table import Table


@click.command()
@click.option(
    "--as", "as_", metavar="FORMAT", help="delta or iceberg; without it, show what is published."
)
@click.option(
    "--make-clean", is_flag=True, help="Compact first the files that stand in the way, no others."
)
@on_table
def publish(opened: Table, *, as_: str | None, make_clean: bool, as_json: bool) -> None:
    """Let other engines read the files of TABLE in place.

    No row is copied. Other engines see one version of the table until the next is
    published; the property sleeper.table.publish.formats does that while `sleeper
    serve` runs. A version is published when each of its files has rows of the table
    alone.

    \b
    Examples:
        sleeper publish flights --as delta
        sleeper publish flights --as iceberg --make-clean
        sleeper publish flights
    """
    if as_ is None:
        if make_clean:
            raise click.UsageError("--make-clean needs --as")
        found = opened.publications()
        if as_json:
            print_json(found)
            return
        if not found:
            say(f"{opened.name} is not published")
        for each in found:
            _say_published(opened.name, each)
        return
    done = opened.publish(as_, make_clean=make_clean)
    if as_json:
        print_json(done)
        return
    _say_published(opened.name, done)


def _say_published(table: str, done: PublishResult) -> None:
    what = "published" if done.is_new else "already published"
    say(
        f"{what} transaction {done.transaction} of {table} as {done.format}, version "
        f"{done.version}: {counted(done.rows, 'row')} in {counted(done.files, 'file')}, "
        f"{size_text(done.size_bytes)}"
    )
    say(f"readers open {done.location}")
    if done.lag:
        behind = f"{counted(done.lag, 'transaction')} later than that: not published"
        warn(f"the table is {behind}" + (f", as {done.obstacles}" if done.obstacles else ""))
