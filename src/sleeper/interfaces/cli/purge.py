"""`sleeper purge`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from sleeper.interfaces.cli.options import ask, force_option, on_table
from sleeper.interfaces.cli.present import counted, print_grid, print_json, say
from sleeper.interfaces.cli.query import Question
from sleeper.interfaces.cli.stderr import EXIT_REFUSED
from sleeper.tables.purges.records import Purge
from sleeper.tables.table import Table

_COUNTS = {
    "rowsRemoved": "rows removed",
    "filesRewritten": "files written anew",
    "filesDeleted": "files deleted",
    "orphansDeleted": "files of killed jobs deleted",
    "limitsReplaced": "split points replaced",
    "entriesRedacted": "entries of the log without keys",
    "entriesRemoved": "entries of the log emptied",
    "stateObjectsDeleted": "objects of older states deleted",
    "resultsDeleted": "results and exports deleted",
    "deadLettersDeleted": "dead letters deleted",
    "oldVersionsDeleted": "old versions of objects deleted",
}


@click.command()
@click.option("--key", "keys", multiple=True, metavar="F=V", help="A row key field's value.")
@click.option(
    "--keys-file", type=click.Path(exists=True, dir_okay=False), help="One whole row key a line."
)
@click.option(
    "--proof",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the proof to this file, as JSON.",
)
@click.option("--list", "only_list", is_flag=True, help="List the purges of TABLE, and no more.")
@force_option
@on_table
def purge(
    opened: Table,
    *,
    keys: tuple[str, ...],
    keys_file: str | None,
    proof: Path | None,
    only_list: bool,
    force: bool,
    as_json: bool,
) -> None:
    """Remove row keys from all that the instance stores of TABLE, and prove it.

    Files with rows of these keys are written anew and deleted, split points and the
    log lose the keys, versions from before end, and results of queries and exports
    with such rows are deleted. Then all of it is searched. Give the same keys again
    after a failure: it goes on. The exit code is 1 while something still has a key.
    The proof has no key, so keep the list of keys yourself if you have to.

    \b
    Examples:
        sleeper --reason "ticket 4711" purge people --keys-file gone.txt --proof 4711.json
        sleeper purge people --key email=bob@example.org
        sleeper purge people --list
    """
    if only_list:
        _print_list(opened.purges(), as_json=as_json)
        return
    asked = _keys(opened, keys, keys_file)
    if not force:
        ask(f"Purge {counted(len(asked), 'row key')} of table {opened.name}? It cannot be undone.")
    done = opened.purge(keys=asked)
    if proof is not None:
        proof.write_text(json.dumps(done.to_json(), indent=2, ensure_ascii=False) + "\n")
    if as_json:
        print_json(done.to_json())
    else:
        _print(done)
    if not done.finished:
        raise click.exceptions.Exit(EXIT_REFUSED)


def _keys(opened: Table, keys: tuple[str, ...], keys_file: str | None) -> list[Any]:
    question = Question(keys=keys, ranges=(), prefixes=(), keys_file=keys_file, where=None)
    asked = question.arguments(opened.schema)
    if "regions" in asked or not asked:
        raise click.UsageError("say which rows: give whole row keys by --key or --keys-file")
    return asked["keys"] if "keys" in asked else [asked["key"]]


def _print(done: Purge) -> None:
    say(f"purge {done.purge_id} of {counted(done.keys, 'row key')} of table {done.table}")
    for name, number in done.counts.items():
        say(f"  {_COUNTS.get(name, name)}: {number:,}")
    for each in done.searched:
        say(f"  searched {each.kind}: {counted(each.objects, 'object')}")
    for mention in done.mentions:
        say(
            f"  {mention.where}: {counted(mention.rows, 'value')} of {mention.column} is such a key"
        )
    for finding in done.findings:
        say(f"  {finding.where}: {finding.what}. {finding.next_step}")
    say("out of reach:")
    for text in done.out_of_reach:
        say(f"  {text}")
    found = counted(len(done.findings), "trace")
    say("finished: no key was found" if done.finished else f"not finished: {found} left")


def _print_list(found: tuple[Purge, ...], *, as_json: bool) -> None:
    if as_json:
        print_json([each.to_json() for each in found])
        return
    rows = [
        [
            each.purge_id,
            each.started_at.isoformat(sep=" ", timespec="seconds"),
            each.keys,
            _how_far(each),
            each.by or "",
            each.reason or "",
        ]
        for each in found
    ]
    print_grid(["purge", "began", "keys", "how far", "by", "reason"], rows)


def _how_far(each: Purge) -> str:
    if each.finished:
        return "finished"
    if each.finished_at is not None:
        return f"{counted(len(each.findings), 'trace')} left"
    return each.steps[-1] if each.steps else "begun"
