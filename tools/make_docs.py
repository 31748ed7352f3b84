"""Writes the generated pages, and the outputs that pages show, anew.

    python tools/make_docs.py            writes what has changed
    python tools/make_docs.py --check    writes nothing; shows what is stale and exits with 1
    python tools/make_docs.py README.md  only these pages

The CLI's page comes from its commands, that of REST from its routes (rest_page.py), those of
properties and Spark's options from their definitions, that of Python from docstrings
(python_page.py), the contracts and servers from what pytest collects (contract_runs.py), the tests
named in docs/rules from the tests (rules.py), the costs of a deployment, its rights and the
policies in docs/deploy/aws.md from templates (cost_page.py, rights_page.py, policy_page.py), the
requests in docs/buckets.md from what their tests expect (request_counts.py), that of scripts in
docs/from-upstream.md from the answers of the command line, the tables in docs/performance.md from
figures that were kept (speed_tables.py), the test runs from figures that were kept
(run_figures.py), and the outputs in README.md and docs/guide from running what stands above them
(shown_runs.py).
"""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import click
import rules
from contract_runs import contracts_page
from cost_page import costs_page
from policy_page import policies_page
from python_page import python_page
from request_counts import buckets_page
from rest_page import rest_page
from rights_page import rights_page
from run_figures import test_runs_page
from shown_runs import ROOT, RunFailed, run_page
from speed_tables import performance_page

from sleeper.interfaces.cli.main import cli
from sleeper.interfaces.cli.upstream_names import scripts_table
from sleeper.interfaces.spark_source import OPTIONS
from sleeper.model.known_properties.catalogue import INSTANCE_PROPERTIES, TABLE_PROPERTIES
from sleeper.model.known_properties.given import OPEN_FAMILIES
from sleeper.model.known_properties.value_kinds import Property

GENERATED = "<!-- Generated: run `make docs`. -->\n\n"
HELP_WIDTH = 90
PROPERTIES_INTRODUCTION = """\
# Properties

Names are those of `instance.properties` and `table.properties`. Where the default names a second
property, that is the instance's property with the default of all tables. *Fixed* means that it
cannot change once its table or instance exists. *Ours* means that upstream Sleeper does not have
it.

Values are checked wherever they are set. From Python they may be `str`, `int` or `bool`. A name
that differs from a known one in a single character, or belongs to the other of table and
instance, is refused. Any other unknown name is stored, with a warning in the log. Why:
[0039](../decisions/0039-misspelt-properties-are-refused.md). Properties of upstream that
have no effect here are on [a page of their own](properties-without-effect.md).
"""


def main() -> int:
    """Bring every page up to date, or only say which are not. Return the exit code."""
    arguments = sys.argv[1:]
    check = "--check" in arguments
    known = {str(path.relative_to(ROOT)): path for path, _ in pages()}
    named = [name for name in arguments if name != "--check"]
    if unknown := [name for name in named if name not in known]:
        print(
            f"no page {', '.join(unknown)} is written by this tool; these are: {', '.join(known)}"
        )
        return 2
    stale = 0
    for path, old, new in made_anew([known[name] for name in named or known]):
        if isinstance(new, RunFailed):
            print(f"{path.relative_to(ROOT)}: what it shows does not run\n{new}")
            return 1
        if new == old:
            continue
        stale += 1
        if check:
            print(difference(path, old, new))
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(new)
            print(f"wrote {path.relative_to(ROOT)}")
    if check and stale:
        print("These pages are stale. Run 'make docs' and commit what it writes.")
    return 1 if check and stale else 0


def made_anew(paths: list[Path]) -> Iterator[tuple[Path, str, str | RunFailed]]:
    """Make pages; each with its old text, and the new one or why there is none.

    Pages that show runs wait for programs most of the time: other processes make them, the longest
    first, while this one makes the rest. Each of them takes seconds to be there, so there are no
    more than the other processors.
    """
    runs = [path for path, make in pages() if make is run_page and path in paths]
    runs.sort(key=lambda path: -path.read_text().count("\n$ "))
    others = max(1, (os.cpu_count() or 1) - 1)
    with ProcessPoolExecutor(others, mp_context=get_context("spawn")) as processes:
        waiting = {path: processes.submit(made, path) for path in runs}
        for path in paths:
            yield path, *(waiting[path].result() if path in waiting else made(path))


def made(path: Path) -> tuple[str, str | RunFailed]:
    """Make one page: its old text, and the new one or why there is none."""
    old = path.read_text() if path.exists() else ""
    try:
        return old, dict(pages())[path](old)
    except RunFailed as failure:
        return old, failure


def pages() -> Iterator[tuple[Path, Callable[[str], str]]]:
    """Each page that this tool writes, with the function that makes it from the old one."""
    yield from pages_of_code()
    yield ROOT / "docs/reference/contracts.md", lambda _: contracts_page()
    yield ROOT / "docs/deploy/costs.md", lambda _: f"{GENERATED}{costs_page()}"
    yield ROOT / "docs/deploy/aws.md", policies_page
    yield ROOT / "docs/deploy/rights.md", lambda _: f"{GENERATED}{rights_page()}"
    yield ROOT / "README.md", run_page
    yield ROOT / "docs/operating/verify.md", run_page
    for path in sorted((ROOT / "docs/guide").rglob("*.md")):
        yield path, run_page


def pages_of_code() -> Iterator[tuple[Path, Callable[[str], str]]]:
    """The pages that are made of code alone: no program is run for them. Each takes a moment."""
    yield ROOT / "docs/reference/cli.md", lambda _: cli_page()
    yield ROOT / "docs/reference/properties.md", lambda _: properties_page()
    yield ROOT / "docs/reference/properties-without-effect.md", lambda _: unused_properties_page()
    yield ROOT / "docs/reference/python.md", lambda _: python_page()
    yield ROOT / "docs/reference/spark-options.md", lambda _: spark_options_page()
    yield ROOT / "docs/reference/rest.md", lambda _: f"{GENERATED}{rest_page()}"
    yield ROOT / "docs/reference/test-runs.md", lambda _: test_runs_page()
    yield ROOT / "docs/buckets.md", buckets_page
    yield ROOT / "docs/from-upstream.md", scripts_page
    yield ROOT / "docs/performance.md", performance_page
    for path in rules.pages():
        yield path, rules.rules_page


def difference(path: Path, old: str, new: str) -> str:
    """What would change in a page."""
    name = str(path.relative_to(ROOT))
    lines = difflib.unified_diff(
        old.splitlines(), new.splitlines(), name, f"{name} (fresh)", lineterm=""
    )
    return "\n".join(lines)


def cli_page() -> str:
    """Every command: one line in the list, then its help as the terminal shows it."""
    commands = list(commands_of(click.Context(cli, info_name="sleeper")))
    text = f"{GENERATED}# Command line\n\n| command | does |\n|---|---|\n"
    for context in commands:
        anchor = context.command_path.replace(" ", "-")
        summary = context.command.get_short_help_str(limit=120)
        text += f"| [`{context.command_path}`](#{anchor}) | {cell(summary)} |\n"
    for context in commands:
        text += f"\n## {context.command_path}\n\n```text\n{help_of(context)}\n```\n"
    return text


def commands_of(context: click.Context) -> Iterator[click.Context]:
    """The command of a context, and all commands beneath it, by name."""
    yield context
    group = context.command
    if isinstance(group, click.Group):
        for name in sorted(group.list_commands(context)):
            command = group.get_command(context, name)
            if command is not None and not command.hidden:
                yield from commands_of(click.Context(command, info_name=name, parent=context))


def help_of(context: click.Context) -> str:
    """A command's help, laid out for a page and not for this terminal."""
    context.terminal_width = context.max_content_width = HELP_WIDTH
    return "\n".join(line.rstrip() for line in context.get_help().splitlines())


def properties_page() -> str:
    """Every property that has an effect: name, default and meaning, in its group."""
    listed = {"instance": INSTANCE_PROPERTIES, "table": TABLE_PROPERTIES}
    families = "".join(f"- `{family}*`\n" for family in OPEN_FAMILIES)
    text = f"{GENERATED}{PROPERTIES_INTRODUCTION}"
    for owner, properties in listed.items():
        text += f"\n## Properties of {a_or_an(owner)}\n"
        text += groups([known for known in properties if known.used])
        if owner == "instance":
            text += (
                f"\n### Settings of Spark\n\nAny name in these families is passed on:\n\n{families}"
            )
    return text


def unused_properties_page() -> str:
    """Every property that is known and has no effect, in its group."""
    listed = {"instance": INSTANCE_PROPERTIES, "table": TABLE_PROPERTIES}
    text = (
        f"{GENERATED}# Properties without effect\n\n"
        "Upstream Sleeper has these properties. They are checked and stored, so that its files\n"
        "can be used as they are, but nothing here reads them.\n"
        "[Properties](properties.md) has those that do something.\n"
    )
    for owner, properties in listed.items():
        text += groups([known for known in properties if not known.used], f"Of {a_or_an(owner)}: ")
    return text


def scripts_page(text: str) -> str:
    """The page of upstream's names, with a fresh table of its scripts between its two marks."""
    begin, end = "<!-- scripts -->\n", "<!-- /scripts -->\n"
    before, _, rest = text.partition(begin)
    return f"{before}{begin}{scripts_table()}{end}{rest.partition(end)[2]}"


def groups(properties: list[Property], prefix: str = "") -> str:
    """Properties under the headings of their groups."""
    text = ""
    for group in dict.fromkeys(known.group for known in properties):
        text += f"\n### {prefix}{group}\n\n| property | default | meaning |\n|---|---|---|\n"
        text += "".join(property_row(known) for known in properties if known.group == group)
    return text


def a_or_an(noun: str) -> str:
    """A noun with its article."""
    return f"an {noun}" if noun[0] in "aeiou" else f"a {noun}"


def property_row(known: Property) -> str:
    """One property as a row of its group's table."""
    default = "" if known.default is None else f"`{cell(known.default)}`"
    if known.instance_default:
        default += f"<br>or `{known.instance_default}`"
    marks = ["*Fixed.*"] * (not known.editable) + ["*Ours.*"] * (known.since == "ours")
    return f"| `{known.name}` | {default} | {' '.join([cell(known.description), *marks])} |\n"


def spark_options_page() -> str:
    """Every option of Spark's `format("sleeper")`: where it may be given, and its meaning."""
    text = (
        f"{GENERATED}# Options of the Spark data source\n\n"
        'Of `spark.read.format("sleeper")` and its kind: see [tables in Spark](../spark/tables.md).'
        "\n\n| option | for | meaning |\n|---|---|---|\n"
    )
    for option in OPTIONS:
        text += f"| `{option.name}` | {', '.join(option.uses)} | {cell(option.text)} |\n"
    return text


def cell(text: str) -> str:
    """Text that fits into one cell of a Markdown table."""
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    sys.exit(main())
