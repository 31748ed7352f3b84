"""Options that several commands share, and the parser of `FIELD=VALUE`."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable
from datetime import datetime
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar, cast

import click

from sleeper.errors import BadRequest, QueryInvalid
from sleeper.instance.instance import Instance
from sleeper.interfaces.cli.completion import complete_tables
from sleeper.interfaces.connection import connect
from sleeper.model.csv_options import CsvOptions
from sleeper.model.formats.properties_file import read_properties
from sleeper.model.keys import value_from_text
from sleeper.model.schema import Field, Schema

F = TypeVar("F", bound=Callable[..., Any])
_VALUE = r'("(?:[^"]|"")*"|(?!")[^,]*)'  # a value that begins with a quote is quoted
_MIN_MAX = re.compile(f"{_VALUE},{_VALUE}")


class _InstanceOption(click.Option):
    def get_error_hint(self, ctx: click.Context | None) -> str:
        """Name the option, and the variable of the environment that stands for it."""
        return f"{super().get_error_hint(ctx)} (or the environment variable SLEEPER_INSTANCE)"


instance_option = click.option(
    "--instance",
    cls=_InstanceOption,
    envvar="SLEEPER_INSTANCE",
    required=True,
    metavar="URL",
    help="The instance: a folder or URL.  [env: SLEEPER_INSTANCE]",
)
_CSV_OPTIONS = (
    click.option("--separator", metavar="C", help=r"CSV: between values, such as ';' or '\t'."),
    click.option("--quote", metavar="C", help="CSV: around values that need it; '' for none."),
    click.option("--encoding", metavar="NAME", help="CSV: the encoding, such as latin-1."),
    click.option("--no-header", is_flag=True, help="CSV: the first row is a row of values."),
    click.option(
        "--column-names", metavar="A,B", help="CSV: the columns, instead of those in a header."
    ),
    click.option(
        "--null-text", "null_texts", multiple=True, metavar="TEXT", help="CSV: a text for null."
    ),
    click.option("--decimal-point", metavar="C", help="CSV: before fractions, such as ','."),
)


def csv_options(command: F) -> F:
    """Add options that say how CSV is written; the command is called with them as `csv`."""

    @wraps(command)
    def called(
        *args: Any,
        separator: str | None,
        quote: str | None,
        encoding: str | None,
        no_header: bool,
        column_names: str | None,
        null_texts: tuple[str, ...],
        decimal_point: str | None,
        **options: Any,
    ) -> Any:
        given = {
            "separator": _SEPARATORS.get(separator or "", separator),
            "encoding": encoding,
            "header": False if no_header else None,
            "column_names": None if column_names is None else column_names.split(","),
            "null_texts": null_texts or None,
            "decimal_point": decimal_point,
        }
        values: dict[str, Any] = {k: v for k, v in given.items() if v is not None}
        if quote is not None:
            values["quote"] = quote or None
        return command(*args, csv=CsvOptions(**values) if values else None, **options)

    for option in reversed(_CSV_OPTIONS):
        called = option(called)
    return cast("F", called)


_SEPARATORS = {r"\t": "\t", "tab": "\t"}

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
unchanged_since_option = click.option(
    "--if-unchanged-since",
    type=click.IntRange(0),
    metavar="N",
    help="Change nothing if these leaves have changed since transaction N.",
)
ranges_option = click.option(
    "--range", "ranges", multiple=True, metavar="F=MIN,MAX", help="Values from MIN up to MAX."
)
columns_option = click.option(
    "--columns", multiple=True, metavar="A,B", help="Only these columns, in this order."
)


class _Version(click.ParamType[int | datetime]):
    """A transaction number, or a time with a zone."""

    name = "version"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | datetime:
        """Parse what was typed."""
        if isinstance(value, str) and not re.fullmatch(r"[+-]?\d+", value):
            try:
                time = datetime.fromisoformat(value)
            except ValueError:
                self.fail(f"{value!r} is neither a transaction number nor a time in ISO 8601")
            if time.utcoffset() is None:
                self.fail(f"{value!r} has no time zone: add Z for UTC, or an offset such as +01:00")
            return time
        return click.IntRange(0).convert(value, param, ctx)


as_of_option = click.option(
    "--as-of", type=_Version(), metavar="N|TIME", help="The table at transaction N, or at a time."
)
properties_file_option = click.option(
    "--properties",
    "properties_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="A file of instance properties; --set overrides it.",
)
force_option = click.option("--force", is_flag=True, help="Do not ask.")


def on_table(run: Callable[..., None]) -> Callable[..., None]:
    """Give a command the argument TABLE and the options --instance and --json.

    The command is called with the open table first, and with `as_json`.
    """

    @wraps(run)
    def opened(table: str, instance: str, **asked: Any) -> None:
        run(connect(instance).table(table), **asked)

    return click.argument("table", shell_complete=complete_tables)(
        instance_option(json_option(opened))
    )


_SPARK_OPTIONS = (
    click.option("--spark", "on_spark", is_flag=True, help="Do the work over files on Spark."),
    click.option("--master", metavar="URL", help="Which Spark: local[4], spark://host:7077, ..."),
    click.option("--conf", "settings", multiple=True, metavar="K=V", help="A setting of Spark."),
)


def spark_options(run: F) -> F:
    """Give a command the options --spark, --master and --conf: it is called with `session`.

    That is a function that returns a session for an instance by its URL, or None if none of the
    options is given.
    """

    @wraps(run)
    def called(
        *args: Any, on_spark: bool, master: str | None, settings: tuple[str, ...], **asked: Any
    ) -> Any:
        def session(instance: str) -> Any:
            if not (on_spark or master or settings):
                return None
            opened = connect(instance)
            if not isinstance(opened, Instance):
                raise click.UsageError(
                    "--spark does the work in this process: name the instance itself, not a server"
                )
            # Our code passes no pandas frame to Spark.
            warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas")
            return opened.spark_session(master=master, conf=dict(split_pairs(settings, "--conf")))

        return run(*args, session=session, **asked)

    for option in reversed(_SPARK_OPTIONS):
        called = option(called)
    return cast("F", called)


def on_table_with_spark(run: Callable[..., None]) -> Callable[..., None]:
    """Give a command what `on_table` gives it and `spark_options`; it is called with `spark`."""

    @wraps(run)
    def opened(table: str, instance: str, session: Callable[[str], Any], **asked: Any) -> None:
        found = connect(instance).table(table)
        run(found, spark=session(instance), **asked)

    return click.argument("table", shell_complete=complete_tables)(
        spark_options(instance_option(json_option(opened)))
    )


def one_of(*values: StrEnum) -> click.Choice[str]:
    """Return the type of a parameter that takes one of these, by its text in any case.

    `click.Choice` of enum members would take their names in Python instead.
    """
    return click.Choice([each.value for each in values], case_sensitive=False)


def split_pairs(
    pairs: Iterable[str], option: str, names: Iterable[str] = ()
) -> list[tuple[str, str]]:
    """Split `NAME=VALUE` arguments at their first `=`, or after one of `names` that contains `=`.

    Raises:
        click.BadParameter: one has no `=`.
    """
    split = []
    longest_first = sorted(names, key=len, reverse=True)
    for pair in pairs:
        known = next((name for name in longest_first if pair.startswith(f"{name}=")), None)
        if known is not None:
            split.append((known, pair[len(known) + 1 :]))
            continue
        name, separator, value = pair.partition("=")
        if not separator or not name:
            raise click.BadParameter(f"{pair!r} should be NAME=VALUE", param_hint=option)
        split.append((name, value))
    return split


def text_of(path: Path) -> str:
    """Return the text of a file on the command line.

    Raises:
        BadRequest: it is not UTF-8.
    """
    try:
        return path.read_bytes().decode()
    except UnicodeDecodeError as error:
        raise BadRequest(f"{str(path)!r} is not UTF-8 text: {error}") from None


def given_properties(file: Path | None, settings: Iterable[str]) -> dict[str, str | None]:
    """Return the properties of a file, and those of `--set` over them; an empty value is None.

    Raises:
        BadRequest, PropertiesInvalid: the file cannot be read.
        click.BadParameter: a setting has no `=`.
    """
    given: dict[str, str | None] = {}
    if file is not None:
        given |= read_properties(text_of(file))
    return given | {name: text or None for name, text in split_pairs(settings, "--set")}


def row_key_field(schema: Schema, name: str) -> Field:
    """Return a row key field by its name.

    Raises:
        QueryInvalid: the schema has no row key field with this name.
    """
    for field in schema.row_keys:
        if field.name == name:
            return field
    raise QueryInvalid(
        f'Key "{name}" was not a row key field in the table schema; '
        f"row keys are {', '.join(schema.row_key_names)}"
    )


def read_key_value(schema: Schema, name: str, text: str) -> Any:
    """Read the value of a row key field from the command line."""
    return value_from_text(row_key_field(schema, name), text)


def read_ranges(schema: Schema, ranges: Iterable[str]) -> dict[str, list[tuple[Any, Any]]]:
    """Parse `FIELD=MIN,MAX` arguments to the ranges of each field.

    A value that contains a comma is quoted, as in CSV: `FIELD="Smith, J","Smith, K"`.

    Raises:
        click.BadParameter: one does not have this form.
        QueryInvalid: a field is not a row key, or a value does not have its type.
    """
    limits: dict[str, list[tuple[Any, Any]]] = {}
    for name, text in split_pairs(ranges, "--range", schema.row_key_names):
        limits.setdefault(name, []).append(_limits(schema, name, text))
    return limits


def _limits(schema: Schema, name: str, text: str) -> tuple[Any, Any]:
    row_key_field(schema, name)
    found = _MIN_MAX.fullmatch(text)
    if found is None:
        quoting = "quote a value that contains a comma or begins with a quote, as in CSV"
        wrong = "has more than one comma" if text.count(",") > 1 else "should be MIN,MAX"
        raise click.BadParameter(f"{text!r} {wrong}; {quoting}", param_hint="--range")
    low, high = map(_unquoted, found.groups())
    return (
        None if low is None else read_key_value(schema, name, low),
        None if high is None else read_key_value(schema, name, high),
    )


def _unquoted(text: str) -> str | None:
    """Return a value that may be quoted; None, which is no limit, if it is empty."""
    if text.startswith('"'):
        return text[1:-1].replace('""', '"')
    return text or None


def column_names(schema: Schema, given: Iterable[str]) -> list[str] | None:
    """Return names separated by commas, or None if none is given.

    A name that contains a comma must be an argument of its own.
    """
    names = [
        name for names in given for name in ([names] if names in schema.names else names.split(","))
    ]
    return names or None


def ask(question: str, option: str = "--force") -> None:
    """Go on if somebody says yes.

    Args:
        question: What is asked.
        option: The option that spares the question.

    Raises:
        BadRequest: the answer is no, or nobody can answer.
    """
    try:
        confirmed = click.confirm(question, err=True)
    except click.Abort as error:
        if not isinstance(error.__context__, EOFError):
            raise
        click.echo(err=True)
        confirmed = False
    if not confirmed:
        raise BadRequest(
            f"nothing was changed, because the answer was not yes; {option} does not ask"
        )


def ask_for_name(name: str, what: str, option: str | None = None) -> None:
    """Go on if somebody types a name.

    Args:
        name: What must be typed.
        what: What is done then.
        option: The option that spares the question; None without one.

    Raises:
        BadRequest: something else was typed, or nobody can answer.
    """
    try:
        typed = click.prompt(f"Type {name} to {what}", default="", show_default=False, err=True)
    except click.Abort as error:
        if not isinstance(error.__context__, EOFError):
            raise
        click.echo(err=True)
        typed = ""
    if typed != name:
        spared = "" if option is None else f"; {option} does not ask"
        raise BadRequest(f"nothing was changed, because {name} was not typed{spared}")


def host_and_port(text: str, option: str) -> tuple[str, int]:
    """Read HOST:PORT, the value of an option.

    Raises:
        click.BadParameter: it is none.
    """
    host, separator, port = text.rpartition(":")
    if not separator or not host or not port.isdecimal() or int(port) > 65_535:
        raise click.BadParameter(f"{text!r} should be HOST:PORT", param_hint=option)
    return host.strip("[]"), int(port)
