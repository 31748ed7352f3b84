"""The command `sleeper`: its list of subcommands.

Each subcommand is in the module of its name, which is imported when it is called, so that it starts
without the imports of others.

`stderr` defines exit codes and writes log lines.
"""

from __future__ import annotations

import atexit
import importlib
import os
import sys
import threading
from difflib import get_close_matches
from typing import Any

import click
from click.shell_completion import BashComplete, CompletionItem, add_completion_class

from sleeper.interfaces.cli.stderr import EXIT_REFUSED, LogFormat, LogOutput, run_command
from sleeper.interfaces.cli.upstream_names import answer_to
from sleeper.model.authors import committing

_COMMANDS = {
    "init": "Create an instance.",
    "instance": "Show and change the properties of an instance.",
    "table": "Add, list, show, change and delete tables.",
    "ingest": "Add the rows of files to a table.",
    "bulk-import": "Add many rows at once, here or on a Spark cluster.",
    "spark-environment": "Pack Sleeper for a Spark cluster.",
    "query": "Read rows by key or key range.",
    "delete": "Delete rows by key, key range or prefix.",
    "purge": "Remove row keys from everything, with a proof.",
    "history": "Show what the transactions of a table did.",
    "sql": "Run SQL that reads tables.",
    "export": "Write rows to Parquet files, in key order.",
    "publish": "Let other engines read a table in place, as Delta or Iceberg.",
    "unpublish": "Remove what other engines read a table by.",
    "compact": "Merge files, so that queries read fewer.",
    "split": "Split large leaf partitions.",
    "merge": "Merge small leaf partitions.",
    "gc": "Delete files that are no longer referenced.",
    "verify": "Check that everything stored is as it was written.",
    "sweep": "Delete files that killed jobs left.",
    "jobs": "Submit jobs, and see what became of them.",
    "batcher": "Submit files to be ingested in jobs of a sensible size.",
    "queue": "See queues and dead letters.",
    "worker": "Run the jobs of one kind, until it is stopped.",
    "pause": "Stop services from beginning anything.",
    "resume": "Let services go on.",
    "backup": "Copy an instance while it is written to.",
    "deploy": "Deploy an instance to AWS.",
    "destroy": "Remove an instance with all its data.",
    "serve": "Maintain all tables and run jobs, until it is stopped.",
    "server": "Serve an instance by REST, and make tokens for it.",
    "report": "Show tables, partitions and files.",
}
"""What each command does. A command is in the module of its name."""


_ELSEWHERE = {
    **dict.fromkeys(("list", "ls", "tables"), "table list"),
    **dict.fromkeys(("add", "create", "new"), "table add"),
    **dict.fromkeys(("show", "describe", "schema", "info"), "table show"),
    **dict.fromkeys(("drop", "rm", "remove"), "table delete"),
    **dict.fromkeys(("load", "insert", "import", "put", "copy"), "ingest"),
    **dict.fromkeys(("select", "execute"), "sql"),
    **dict.fromkeys(("get", "find", "scan", "cat", "head"), "query"),
    "count": "query TABLE --count",
    "alter": "table alter",
    "set": "table set",
    "rename": "table rename",
    "upgrade": "table upgrade",
    "help": "--help",
    "version": "--version",
    **dict.fromkeys(("status", "stats"), "report tables"),
    **dict.fromkeys(("vacuum", "optimize"), "compact"),
}
"""The commands for what others, and tools like this one, are called by."""

_OPTIONS_ELSEWHERE = {
    **dict.fromkeys(("--port", "--host", "--bind", "--address", "-p"), "--listen"),
    **dict.fromkeys(("--delimiter", "--delim", "--sep", "-d"), "--separator"),
    **dict.fromkeys(("--filter", "--condition", "--predicate"), "--where"),
    **dict.fromkeys(("--head", "--top", "--max", "-n"), "--limit"),
    **dict.fromkeys(("--out", "--file", "--to", "-o"), "--output"),
    **dict.fromkeys(("--from", "--data", "--sample"), "--like"),
    **dict.fromkeys(("--key", "--keys", "--primary-key", "--row-keys"), "--row-key"),
    **dict.fromkeys(("--select", "--fields", "-c"), "--columns"),
    **dict.fromkeys(("--na", "--null", "--null-value"), "--null-text"),
    **dict.fromkeys(("--decimal",), "--decimal-point"),
    **dict.fromkeys(("--yes", "-y", "-f"), "--force"),
    **dict.fromkeys(("--job", "--id"), "--job-id"),
}
"""The options for what others call theirs, where a command has them."""


def _with_option_meant(error: click.NoSuchOption) -> click.NoSuchOption:
    """Return an error that names the option that was meant, if it is a well-known one of others."""
    meant = _OPTIONS_ELSEWHERE.get(error.option_name)
    known = error.ctx.command.params if error.ctx is not None else ()
    if meant is None or not any(meant in each.opts for each in known):
        return error
    message = f"No such option {error.option_name!r}. Did you mean {meant!r}?"
    return click.NoSuchOption(error.option_name, message, ctx=error.ctx)


class LazyCommands(click.Group):
    """A group that imports a command when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands in the order in which a new user needs them."""
        return [*_COMMANDS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; return None if there is none with this name."""
        if cmd_name not in _COMMANDS:
            return None
        name = cmd_name.replace("-", "_")
        command = getattr(importlib.import_module(f"sleeper.interfaces.cli.{name}"), name)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that was typed, or name a similar one, or that for upstream's script."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:
            if (answer := answer_to(args[0])) is not None:
                raise click.UsageError(answer, ctx) from None
            if args[0] in _ELSEWHERE:
                raise click.UsageError(
                    f"No such command {args[0]!r}. Did you mean 'sleeper {_ELSEWHERE[args[0]]}'?",
                    ctx,
                ) from None
            near = get_close_matches(args[0], _COMMANDS, n=1)
            if not near:
                raise
            raise click.UsageError(
                f"No such command {args[0]!r}. Did you mean {near[0]!r}?", ctx
            ) from None

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the commands whose names begin so, without importing them, and options."""
        names = [
            CompletionItem(name, help=about)
            for name, about in _COMMANDS.items()
            if name.startswith(incomplete)
        ]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command, and exit without an error if the reader of stdout closes the pipe."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return None
        except click.NoSuchOption as error:
            raise _with_option_meant(error) from None
        return result

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([*_COMMANDS.items()])


class _Bash(BashComplete):
    """Completion for bash that adds no space after `NAME=`."""

    source_template = BashComplete.source_template.replace(
        "    return 0\n", "    [[ ${COMPREPLY-} == *= ]] && compopt -o nospace\n    return 0\n"
    )


add_completion_class(_Bash)


def _print_version(ctx: click.Context, _: click.Parameter, asked: bool) -> None:
    if not asked:
        return
    from importlib import metadata  # noqa: PLC0415 - slow to import, and no other command needs it

    try:
        click.echo(f"sleeper {metadata.version('sleeper-store')}")
    except metadata.PackageNotFoundError:
        click.echo("sleeper, run from its sources without being installed")
    ctx.exit()


@click.group(cls=LazyCommands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show the version and exit.",
)
@click.option(
    "-v", "--verbose", count=True, help="Log what is done to stderr; -vv logs every step."
)
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Format of log lines: text, or one JSON object a line.",
)
@click.option("--reason", metavar="TEXT", help="Why: the history of a table shows it.")
@click.pass_context
def cli(ctx: click.Context, verbose: int, log_format: LogFormat, reason: str | None) -> None:
    """Sleeper: a key-value table store for billions of rows, with no cost of servers when idle.

    \b
    Example:
        sleeper init /data/demo
        export SLEEPER_INSTANCE=/data/demo
        sleeper table add flights --schema schema.json
        sleeper ingest flights flights.parquet
        sleeper query flights --limit 5
        sleeper query flights --key tailnum=N14228

    SLEEPER_ALLOW_FUNCTIONS lists the modules whose functions tables may run here,
    separated by commas, such as my_package.*; without it none may run.
    SLEEPER_USER says who commits, instead of the user of this machine.

    Exit codes: 0 done; 1 refused or failed, the message says why; 2 wrong use;
    75 try again later; 130 Ctrl-C; 143 SIGTERM.
    """
    ctx.obj = LogOutput(verbose, log_format)
    ctx.with_resource(ctx.obj.open())
    if reason is not None:
        ctx.with_resource(committing(reason=reason))


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit with its exit code.

    A process of its own, which gives no arguments here, leaves its end to the system where a
    command was refused: a thread of Arrow may still have to let go of what it read of a refused
    file, and one that meets the end of the interpreter aborts the process.
    """
    code = run_command(cli, "sleeper", arguments)
    if arguments is not None or code != EXIT_REFUSED:
        sys.exit(code)
    # What the interpreter does at its end.
    threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001
    atexit._run_exitfuncs()  # noqa: SLF001
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)
