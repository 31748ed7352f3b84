"""The options that say which rows of a table are asked for."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import wraps
from itertools import product
from pathlib import Path
from typing import Any

import click

from sleeper.errors import BadRequest, QueryInvalid
from sleeper.interfaces.cli.options import (
    ranges_option,
    read_key_value,
    read_ranges,
    row_key_field,
    split_pairs,
    text_of,
)
from sleeper.language.value_classes import dataclass
from sleeper.model.ranges import Range, exact_range, prefix_range
from sleeper.model.schema import Schema

prefixes_option = click.option(
    "--prefix", "prefixes", multiple=True, metavar="F=V", help="How its values begin."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Which rows are asked for, as it was typed.

    Attributes:
        keys: `FIELD=VALUE`, any number of them.
        ranges: `FIELD=MIN,MAX`, any number of them.
        prefixes: `FIELD=START`, any number of them.
        keys_file: The file with one key on each line.
        where: A condition in SQL.
    """

    keys: tuple[str, ...]
    ranges: tuple[str, ...]
    prefixes: tuple[str, ...]
    keys_file: str | None
    where: str | None

    @property
    def is_all(self) -> bool:
        """True if all rows are asked for."""
        conditions = (self.keys, self.ranges, self.prefixes, self.keys_file, self.where)
        return not any(conditions)

    def arguments(self, schema: Schema) -> dict[str, Any]:
        """Return the arguments for `Table.query`.

        Raises:
            click.UsageError: options contradict each other.
            QueryInvalid: a field or value does not fit the schema.
        """
        asked = self._by_key(schema)
        return asked if self.where is None else {**asked, "where": self.where}

    def _by_key(self, schema: Schema) -> dict[str, Any]:
        if sum(map(bool, (self.keys, self.ranges, self.keys_file))) > 1:
            raise click.UsageError("give only one of --key, --range and --keys-file")
        if self.keys_file:
            if self.prefixes:
                raise click.UsageError("--keys-file has complete keys: leave out --prefix")
            return {"keys": _keys_from_file(schema, Path(self.keys_file))}
        if self.prefixes:
            return {"regions": self._regions(schema)}
        if self.ranges:
            return {"regions": _combined(read_ranges(schema, self.ranges))}
        if not self.keys:
            return {}
        values = self._values(schema)
        found = _combined(values)
        if len(found) == 1:
            return {"key": found[0]}
        if len(values) == len(schema.row_keys):
            return {"keys": found}
        return {"regions": [{n: (v, True, v, True) for n, v in key.items()} for key in found]}

    def _values(self, schema: Schema) -> dict[str, list[Any]]:
        values: dict[str, list[Any]] = {}
        for name, text in split_pairs(self.keys, "--key", schema.row_key_names):
            values.setdefault(name, []).append(read_key_value(schema, name, text))
        return values

    def _regions(self, schema: Schema) -> list[dict[str, Range]]:
        """Return the regions of prefixes, with keys or ranges of other fields."""
        conditions: dict[str, list[Any]] = {**read_ranges(schema, self.ranges)}
        for name, values in self._values(schema).items():
            field = row_key_field(schema, name)
            conditions[name] = [exact_range(field, value) for value in values]
        starts: dict[str, list[Range]] = {}
        for name, text in split_pairs(self.prefixes, "--prefix", schema.row_key_names):
            if name in conditions:
                raise click.UsageError(
                    f"--prefix and --key or --range are both given for {name!r}: leave one out"
                )
            field = row_key_field(schema, name)
            starts.setdefault(name, []).append(
                prefix_range(field, read_key_value(schema, name, text))
            )
        return _combined({**conditions, **starts})


def question_options(run: Callable[..., None]) -> Callable[..., None]:
    """Give a command --key, --range, --prefix, --keys-file and --where, as one `question`."""

    @wraps(run)
    def asked(
        keys: tuple[str, ...],
        ranges: tuple[str, ...],
        prefixes: tuple[str, ...],
        keys_file: str | None,
        where: str | None,
        **others: Any,
    ) -> None:
        question = Question(
            keys=keys, ranges=ranges, prefixes=prefixes, keys_file=keys_file, where=where
        )
        run(question=question, **others)

    in_order = (
        click.option(
            "--key", "keys", multiple=True, metavar="F=V", help="A row key field's value."
        ),
        ranges_option,
        prefixes_option,
        click.option(
            "--keys-file", type=click.Path(exists=True, dir_okay=False), help="One key a line."
        ),
        click.option("--where", metavar="CONDITION", help="A condition in SQL over any fields."),
    )
    for option in reversed(in_order):
        asked = option(asked)
    return asked


def _combined(conditions: Mapping[str, list[Any]]) -> list[dict[str, Any]]:
    """Return every combination of the values of several fields."""
    return [dict(zip(conditions, chosen, strict=True)) for chosen in product(*conditions.values())]


def _keys_from_file(schema: Schema, path: Path) -> list[Any]:
    """Read one key from each line; values of a composite key are separated by tabs."""
    content = text_of(path).removeprefix("\ufeff").rstrip("\r\n")
    lines = re.split(r"\r\n|\n|\r", content) if content else []
    names = schema.row_key_names
    keys = []
    for number, line in enumerate(lines, 1):
        values = line.split("\t") if len(names) > 1 else [line]
        if len(values) != len(names):
            raise QueryInvalid(
                f"line {number} of {str(path)!r} has {len(values)} values; a key has "
                f"{len(names)}, separated by tabs: {', '.join(names)}"
            )
        read = zip(names, values, strict=True)
        try:
            keys.append(tuple(read_key_value(schema, name, value) for name, value in read))
        except BadRequest as error:
            raise QueryInvalid(f"line {number} of {str(path)!r}: {error}") from error
    return keys
