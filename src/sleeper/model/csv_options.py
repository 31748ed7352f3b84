"""How files of CSV are written: separator, quotes, encoding, header and nulls."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final

from sleeper.errors import BadRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvOptions:
    r"""How files of CSV are written.

    Attributes:
        separator: The character between values; a tab is "\t".
        quote: The character around values that have separators, line ends or quotes; a quote in
            such a value is doubled. None if no character has this meaning.
        encoding: The name of the encoding, as Python knows it, such as "latin-1" or "utf-16".
        header: Whether the first row has the names of columns.
        column_names: The names of the columns, instead of those in the header. Without a header
            and without names, columns are those of the table, in its order.
        null_texts: What stands for null, where it is not in quotes. Other texts are values.
        decimal_point: The character before the fraction of a number: "." or ",".

    Raises:
        BadRequest: a value is not allowed.
    """

    separator: str = ","
    quote: str | None = '"'
    encoding: str = "utf-8"
    header: bool = True
    column_names: Sequence[str] | None = None
    null_texts: Sequence[str] = ("",)
    decimal_point: str = "."

    def __post_init__(self) -> None:
        names = self.column_names
        for name, value in (("column_names", names), ("null_texts", self.null_texts)):
            if value is not None and not _is_texts(value):
                raise BadRequest(f"{name} of CSV must be a list of texts, not {value!r}")
        object.__setattr__(self, "column_names", None if names is None else tuple(names))
        object.__setattr__(self, "null_texts", tuple(self.null_texts))
        for name, (is_allowed, wanted) in _ALLOWED.items():
            value = getattr(self, name)
            if not is_allowed(value):
                raise BadRequest(f"{name} of CSV must be {wanted}, not {value!r}")
        if names is not None and not names:
            raise BadRequest("column_names of CSV must have a name at least; leave it out for none")
        if self.separator in (self.quote, self.decimal_point):
            raise BadRequest(
                f"separator {self.separator!r} of CSV must differ from quote {self.quote!r} and "
                f"decimal_point {self.decimal_point!r}"
            )

    @classmethod
    def of(cls, given: CsvOptions | Mapping[str, Any] | None) -> CsvOptions | None:
        """Return options that may be given as a dict of their names.

        Raises:
            BadRequest: a name is unknown, or a value is not allowed.
        """
        if given is None or isinstance(given, CsvOptions):
            return given
        if not isinstance(given, Mapping):
            raise BadRequest(f"csv must be CsvOptions or a dict of them, not {given!r}")
        known = [each.name for each in fields(cls)]
        if unknown := [name for name in given if name not in known]:
            raise BadRequest(f"unknown options of CSV: {unknown}; known are {known}")
        return cls(**given)

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> CsvOptions:
        """Return the options in a job's message, where names are written as `columnNames`.

        Raises:
            BadRequest: a name is unknown, or a value is not allowed.
        """
        if unknown := [name for name in given if name not in _NAMES]:
            raise BadRequest(f"unknown options of CSV: {unknown}; known are {[*_NAMES]}")
        return cls(**{_NAMES[name]: value for name, value in given.items()})

    def to_json(self) -> dict[str, Any]:
        """Return the separator, and what differs from the defaults, as `from_json` reads it."""
        found = {theirs: getattr(self, ours) for theirs, ours in _NAMES.items()}
        default = CsvOptions()
        return {
            theirs: [*value] if isinstance(value, tuple) else value
            for theirs, value in found.items()
            if theirs == "separator" or value != getattr(default, _NAMES[theirs])
        }

    @classmethod
    def from_text(cls, text: str) -> CsvOptions | None:
        """Return what `text_of_csv` wrote."""
        return cls.from_json(json.loads(text)) if text else None

    def for_columns(self, columns: Sequence[str]) -> CsvOptions:
        """Return options that name the columns of a table, if nothing else does."""
        if self.header or self.column_names is not None:
            return self
        return replace(self, column_names=columns)


def text_of_csv(options: CsvOptions | None) -> str:
    """Return options as a text, which is the same for those that are equal; empty for none."""
    return "" if options is None else json.dumps(options.to_json(), sort_keys=True)


def _is_texts(value: object) -> bool:
    return (
        isinstance(value, Sequence)
        and not isinstance(value, str)
        and all(isinstance(each, str) for each in value)
    )


def _is_sign(value: object) -> bool:
    return isinstance(value, str) and len(value) == 1 and value.isascii() and value not in "\r\n\0"


def _is_encoding(value: object) -> bool:
    try:
        return isinstance(value, str) and "".encode(value) is not None
    except (LookupError, ValueError):  # unknown, no encoding of text, or NUL in its name
        return False


_ALLOWED: Final[Mapping[str, tuple[Callable[[object], bool], str]]] = {
    "separator": (_is_sign, 'one ASCII character, such as ";" or a tab'),
    "quote": (lambda value: value is None or _is_sign(value), "one ASCII character or None"),
    "encoding": (_is_encoding, 'the name of an encoding, such as "utf-8" or "latin-1"'),
    "header": (lambda value: isinstance(value, bool), "True or False"),
    "decimal_point": (lambda value: value in (".", ","), '"." or ","'),
}

_NAMES: Final[Mapping[str, str]] = {
    "separator": "separator",
    "quote": "quote",
    "encoding": "encoding",
    "header": "header",
    "columnNames": "column_names",
    "nullTexts": "null_texts",
    "decimalPoint": "decimal_point",
}
"""The names of options in messages, and here."""
