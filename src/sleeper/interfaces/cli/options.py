"""Options that several commands share, and how `FIELD=VALUE` is read."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

import click

from sleeper.errors import BadRequest, QueryInvalid
from sleeper.model.keys import value_from_text
from sleeper.model.known_properties.kinds import Property
from sleeper.model.schema import Field, Schema

F = TypeVar("F", bound=Callable[..., Any])

instance_option = click.option(
    "--instance",
    envvar="SLEEPER_INSTANCE",
    required=True,
    metavar="URL",
    help="The instance: a folder or URL.  [env: SLEEPER_INSTANCE]",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
force_option = click.option("--force", is_flag=True, help="Do not ask.")


def split_pairs(
    pairs: Iterable[str], option: str, names: Iterable[str] = ()
) -> list[tuple[str, str]]:
    """Split `NAME=VALUE` arguments at their first `=`, or after one of `names` that has a `=`.

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
    """Return the text of a file that the command line names.

    Raises:
        BadRequest: it is not UTF-8.
    """
    try:
        return path.read_bytes().decode()
    except UnicodeDecodeError as error:
        raise BadRequest(f"{str(path)!r} is not UTF-8 text: {error}") from None


def warn_unknown(names: Iterable[str], known: Iterable[Property]) -> None:
    """Say on stderr which properties nobody knows; they are kept all the same (spec INS-5)."""
    candidates = [each.name for each in known]
    for name in names:
        near = get_close_matches(name, candidates, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        click.echo(
            f"sleeper: {name} is kept, but no property of this name is known{hint}", err=True
        )


def row_key_field(schema: Schema, name: str) -> Field:
    """Return a row key field by its name.

    Raises:
        QueryInvalid: the schema has no row key field of this name.
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
