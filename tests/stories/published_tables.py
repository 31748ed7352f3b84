"""What tests of published tables share: the table, its rows, keys of each type, killed publishers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from pyiceberg.table import StaticTable

from sleeper.instance.instance import Instance
from sleeper.storage.local.folder import FolderObjects
from sleeper.tables.table import Table

PEOPLE: Final = pa.schema([pa.field("n", pa.int64(), nullable=False), ("key", pa.string())])

KEYS: Final = [
    (pa.int64(), [-(2**63), -1, 0, 2**53 + 1, 2**63 - 1]),
    (pa.int32(), [-(2**31), 7, 2**31 - 1]),
    (
        pa.string(),
        ["", "\x01", 'a"b\\', "é", "\ud7ff", "\ue000", "\uffff", "\U00010000", "z" * 300],
    ),
    (pa.binary(), [b"", b"\x00", b"\x7f", b"\x80", b"\xff"]),
    (
        pa.date32(),
        [date(1, 1, 1), date(1582, 10, 14), date(1970, 1, 1), date(9999, 12, 31)],
    ),
    (
        pa.timestamp("us", "UTC"),
        [
            datetime(1, 1, 1, tzinfo=UTC),
            datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
            datetime(2026, 1, 1, 0, 0, 0, 1, tzinfo=UTC),
            datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
        ],
    ),
    (pa.timestamp("us"), [datetime(1582, 10, 15), datetime(2026, 1, 1, 0, 0, 0, 999)]),
]
"""Types of row keys, with the values at which readers of other formats may differ."""


def people(instance: Instance, **properties: str) -> Table:
    """Make a table of people; properties are named without `sleeper.table`."""
    named = {f"sleeper.table.{name.replace('_', '.')}": value for name, value in properties.items()}
    return instance.create_table("people", PEOPLE, row_keys=["key"], properties=named)


def rows(first: int, last: int) -> list[dict[str, Any]]:
    """Return people with the numbers from `first`, without `last`."""
    return [{"key": f"k{number:05}", "n": number} for number in range(first, last)]


def table_of_keys(instance: Instance, kind: pa.DataType, values: list[Any]) -> Table:
    """Make a table with each value in a file of its own, and in a file with all others."""
    schema = pa.schema([("key", kind), ("n", pa.int64())])
    table = instance.create_table("t", schema, row_keys=["key"])
    for value in values:
        table.ingest(pa.table({"key": [value], "n": [1]}, schema=schema))
    table.ingest(pa.table({"key": values, "n": [1] * len(values)}, schema=schema))
    return table


class Killed(Exception):
    """Stands for a process that is killed."""


@contextmanager
def killed_after(writes: int, *names: str) -> Iterator[None]:
    """Kill what runs inside, instead of the write after so many; `names` are the kinds of writes."""
    left = [writes]

    def killing(write: Any) -> Any:
        def killed(*args: Any, **named: Any) -> Any:
            if not left[0]:
                raise Killed
            left[0] -= 1
            return write(*args, **named)

        return killed

    with pytest.MonkeyPatch.context() as patch:
        for name in names:
            patch.setattr(FolderObjects, name, killing(getattr(FolderObjects, name)))
        with pytest.raises(Killed):
            yield


def opened_iceberg(location: str, version: str | None = None) -> StaticTable:
    """The table, by pyiceberg: its newest version, as `version-hint.text` says."""
    folder = Path(location.removeprefix("file://"), "metadata")
    number = version or (folder / "version-hint.text").read_text()
    return StaticTable.from_metadata(str(folder / f"v{number}.metadata.json"))
