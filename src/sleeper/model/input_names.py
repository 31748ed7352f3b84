"""Names of input files: which kind a file is of, and which files a folder or a pattern means."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, Literal

TEXT_NAME: Final = re.compile(r"\.(csv|jsonl|ndjson|json)(?:\.(gz|zst|bz2|lz4))?$", re.IGNORECASE)
COMPRESSED_NAME: Final = re.compile(r"\.(gz|zst|bz2|lz4)$", re.IGNORECASE)
_SIGNS: Final = re.compile(r"[*?\[]")
_HIDDEN: Final = ("_", ".")

TextKind = Literal["csv", "json"]


def text_kind(path: str) -> TextKind | None:
    """Return the kind of a text file, by the end of its name; None for another file.

    >>> text_kind("a/b.csv"), text_kind("b.JSONL.gz"), text_kind("c.ndjson"), text_kind("x.parquet")
    ('csv', 'json', 'json', None)
    """
    found = TEXT_NAME.search(path)
    if found is None:
        return None
    return "csv" if found[1].lower() == "csv" else "json"


def is_pattern(path: str) -> bool:
    """Return whether a path has signs of a pattern: `*`, `?` or `[`."""
    return _SIGNS.search(path) is not None


def folder_of_pattern(pattern: str) -> str:
    """Return the folder below which all files of a pattern lie, with its slash; "" for any.

    >>> folder_of_pattern("in/2026-*/a.csv"), folder_of_pattern("*.csv")
    ('in/', '')
    """
    return pattern[: _SIGNS.split(pattern, maxsplit=1)[0].rfind("/") + 1]


def pattern_regex(pattern: str) -> re.Pattern[str]:
    """Return what matches the names that a pattern means.

    `*` and `?` mean any characters and one but slashes, `[abc]` one of some, `**/` any folders.
    """
    text = ""
    for part in re.findall(r"\*\*/|\*+|\?|\[!?\]?[^\]]*\]|.", pattern, re.DOTALL):
        if part == "**/":
            text += "(?:[^/]+/)*"
        elif part.startswith("*"):
            text += "[^/]*"
        elif part == "?":
            text += "[^/]"
        elif part.startswith("[") and len(part) > 1:
            inner = part[1:-1].replace("\\", "\\\\").replace("[", "\\[")
            text += f"[^{inner[1:]}]" if inner.startswith("!") else f"[{inner}]"
        else:
            text += re.escape(part)
    return re.compile(text, re.DOTALL)


def is_hidden(name: str) -> bool:
    """Return whether a file or folder of a folder is not read: its name begins with `_` or `.`."""
    return name.startswith(_HIDDEN)


def data_files(names: Iterable[str]) -> list[str]:
    """Return the files of a folder that are read: its Parquet files, or if it has none its text.

    >>> data_files(["b.csv", "a.parquet", "notes.txt"]), data_files(["b.csv", "notes.txt"])
    (['a.parquet'], ['b.csv'])
    """
    parquet, text = [], []
    for name in names:
        if name.endswith(".parquet"):
            parquet.append(name)
        elif text_kind(name):
            text.append(name)
    return parquet or text
