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

_BEGINNINGS: Final = {
    b"PK\x03\x04": "it is a ZIP archive, as workbooks of Excel are: unpack it, or save it as CSV",
    b"\xd0\xcf\x11\xe0": "it is a workbook of Excel: save it as CSV",
    b"\x1f\x8b": "it is compressed by gzip: its name must end in .gz",
    b"\x28\xb5\x2f\xfd": "it is compressed by zstd: its name must end in .zst",
    b"\x04\x22\x4d\x18": "it is compressed by lz4: its name must end in .lz4",
    b"BZh": "it is compressed by bzip2: its name must end in .bz2",
    b"PAR1": "it is a Parquet file: its name must end in .parquet",
    b"ARROW1": "it is a file of Arrow: read it by pyarrow.feather.read_table, and give the table",
}
"""What a file is whose beginning is no text, and what to do."""


def other_kind(beginning: bytes) -> str | None:
    """Return what a file is by its first bytes, and what to do with it; None for text.

    >>> other_kind(b"PAR1..."), other_kind(b"id,name")
    ('it is a Parquet file: its name must end in .parquet', None)
    """
    found = (what for mark, what in _BEGINNINGS.items() if beginning.startswith(mark))
    return next(found, None)


SEPARATORS: Final = (",", ";", "\t", "|")
"""What may stand between the columns of CSV."""


def separator_of(line: str) -> str | None:
    """Return what most likely separates the columns of a line of CSV; None if nothing does.

    >>> separator_of("id;price, net;day"), separator_of("id")
    (';', None)
    """
    found = max(SEPARATORS, key=line.count)
    return found if found in line else None


def text_advice(beginning: bytes) -> str | None:
    r"""Return what to do with a file that begins as text does, though its name says otherwise.

    >>> text_advice(b'{"id": 1}'), text_advice(b"\0\1")
    ('it is JSON: files of JSON lines have names that end in .jsonl, .ndjson or .json', None)
    """
    try:
        text = beginning.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if error.start < len(beginning) - 3:  # else a letter may be cut off
            return None
        text = beginning[: error.start].decode("utf-8-sig")
    if not text or not all(each.isprintable() or each in "\t\r\n" for each in text):
        return None
    if text.lstrip().startswith(("{", "[")):
        return "it is JSON: files of JSON lines have names that end in .jsonl, .ndjson or .json"
    separator = separator_of(text.splitlines()[0]) or ","
    return (
        "it is text: files of CSV and JSON lines have names that end in .csv, .jsonl, .ndjson or "
        f".json; with an option of CSV, here --separator {separator!r} (in Python "
        f"csv={{'separator': {separator!r}}}), any name is CSV"
    )


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
