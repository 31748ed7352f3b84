"""`sleeper report`: shows tables, partitions, files and claims."""

from __future__ import annotations

from typing import Any

import click

from sleeper.interfaces.cli.job_reports import dead_letters, full, tasks
from sleeper.interfaces.cli.options import instance_option, json_option, on_table
from sleeper.interfaces.cli.present import claim_line, print_facts, print_grid, print_json, say
from sleeper.interfaces.cli.stderr import warn
from sleeper.interfaces.connection import connect
from sleeper.tables.table import Table


class _TablesFirst(click.Group):
    """A group that runs its command `tables` if none is given."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse arguments, including those of `tables`."""
        named = args and (not args[0].startswith("-") or args[0] in ctx.help_option_names)
        return super().parse_args(ctx, args if named else ["tables", *args])


@click.group(cls=_TablesFirst)
def report() -> None:
    """Show tables, partitions, files, claims and workers; without a command, the tables.

    \b
    Examples:
        sleeper report
        sleeper report partitions flights
        sleeper report full
    """


for _command in (tasks, dead_letters, full):
    report.add_command(_command)


@report.command()
@instance_option
@json_option
def tables(instance: str, as_json: bool) -> None:
    """Show every table with its rows, files and partitions.

    \b
    Example:
        sleeper report tables
    """
    opened = connect(instance)
    shown = []
    for record in opened.tables():
        files = opened.table(record.name).report_files()
        shown.append(
            {
                "name": record.name,
                "id": record.table_id,
                "online": record.online,
                "rows": files.rows,
                "files": files.files,
                "leaf_partitions": files.leaf_partitions,
                "transaction": files.transaction,
            }
        )
    if as_json:
        print_json(shown)
        return
    if (since := opened.pause_switch.paused_since()) is not None:
        warn(f"services are paused since {since.isoformat(sep=' ', timespec='seconds')}")
    columns = ["name", "id", "online", "rows", "files", "leaf_partitions", "transaction"]
    print_grid(columns, [[table[column] for column in columns] for table in shown])


@report.command()
@on_table
def partitions(opened: Table, as_json: bool) -> None:
    """Show the partition tree of TABLE, leaves in key order first.

    \b
    Example:
        sleeper report partitions flights
    """
    found = opened.report_partitions()
    if as_json:
        print_json(found)
        return
    rows: list[list[Any]] = [
        [
            p.partition_id[:8],
            p.is_leaf,
            (p.parent_id or "")[:8],
            p.region,
            p.files,
            p.files_on_jobs,
            f"{'~' if p.rows_estimated else ''}{p.rows:,}",
            p.will_be_split,
        ]
        for p in found
    ]
    print_grid(
        ["partition", "leaf", "parent", "region", "files", "on jobs", "rows", "will be split"], rows
    )


@report.command()
@on_table
def claims(opened: Table, as_json: bool) -> None:
    """Show the claims of compaction jobs on files of TABLE: owner and age.

    \b
    Example:
        sleeper report claims flights
    """
    found = opened.claims()
    if as_json:
        print_json(found)
        return
    for claim in found:
        say(claim_line(claim))
    if not found:
        say(f"no compaction job has claimed files of {opened.name}")


@report.command()
@click.option("--verbose", is_flag=True, help="List every file reference.")
@on_table
def files(opened: Table, verbose: bool, as_json: bool) -> None:
    """Show counts of the files of TABLE.

    \b
    Example:
        sleeper report files flights --verbose
    """
    found = opened.report_files()
    references = opened.references() if verbose else []
    if as_json:
        print_json({"files": found, "references": references} if verbose else found)
        return
    spread = ", ".join(f"{name} {count}" for name, count in found.references_per_leaf.items())
    print_facts(
        [
            ("transaction", found.transaction),
            ("leaf partitions", found.leaf_partitions),
            ("other partitions", found.non_leaf_partitions),
            ("files", found.files),
            ("files without references", found.files_unreferenced),
            ("file references", found.references),
            ("references per leaf", spread),
            ("rows", f"{'~' if found.rows_estimated else ''}{found.rows:,}"),
            ("rows in leaf partitions", found.rows_in_leaves),
        ]
    )
    if verbose:
        print_grid(
            ["partition", "file", "rows", "whole file"],
            [[r.partition_id[:8], r.filename, r.row_count, r.whole_file] for r in references],
        )
