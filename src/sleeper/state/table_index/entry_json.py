"""JSON of the table index: an entry has one change, a checkpoint has all tables."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, Literal, TypeVar

from sleeper.errors import DataDamaged, FormatTooNew
from sleeper.language.value_classes import dataclass
from sleeper.model.tables import TableRecord

FORMAT = 1
"""The newest format of entries and checkpoints that this Sleeper reads; it writes this one."""

ChangeType = Literal["add", "replace", "remove"]
_Decoded = TypeVar("_Decoded")


@dataclass(frozen=True, slots=True)
class Change:
    """The change of one entry, which was checked before.

    Attributes:
        type: The kind of change, for people who read the entry.
        table_id: The changed table.
        record: The table's new record; None if the table was deleted.
    """

    type: ChangeType
    table_id: str
    record: TableRecord | None


class _UnknownChange(ValueError):
    """A type of change that only a newer Sleeper knows."""


def encode_entry(entry_id: str, change: Change) -> bytes:
    """Return the body of one entry. Each entry has a unique id."""
    body: dict[str, Any] = {"type": change.type, "tableId": change.table_id}
    if change.record is not None:
        body["table"] = _record_to_json(change.record)
    return _to_bytes({"entryId": entry_id, "format": FORMAT, "change": body})


def decode_entry(key: str, body: bytes) -> Change:
    """Decode one entry.

    Raises:
        FormatTooNew: a newer Sleeper wrote it.
        DataDamaged: it is not an entry. Both messages name `key`.
    """
    return _decode(key, body, _change_from_json)


def encode_checkpoint(number: int, tables: Iterable[TableRecord]) -> bytes:
    """Return the body of a checkpoint: all tables after entry `number`."""
    records = [_record_to_json(record) for record in tables]
    return _to_bytes({"format": FORMAT, "number": number, "tables": records})


def decode_checkpoint(key: str, body: bytes) -> tuple[int, list[TableRecord]]:
    """Decode a checkpoint: the number of its last entry, and the tables.

    Raises:
        FormatTooNew: a newer Sleeper wrote it.
        DataDamaged: it is not a checkpoint. Both messages name `key`.
    """
    return _decode(key, body, _checkpoint_from_json)


def _decode(key: str, body: bytes, read: Callable[[Any], _Decoded]) -> _Decoded:
    try:
        value = json.loads(body)
        written_format = int(value["format"])
        if written_format <= FORMAT:
            return read(value)
    except _UnknownChange as unknown:
        raise FormatTooNew(
            f"{key} of the table index has a change of type {unknown}, which this Sleeper does not "
            "know. Upgrade Sleeper."
        ) from unknown
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DataDamaged(
            f"{key} of the table index cannot be read ({type(error).__name__}: {error}). Restore "
            "it from a copy; a checkpoint may also be deleted, as entries have its content."
        ) from error
    raise FormatTooNew(
        f"{key} of the table index has format {written_format}; this Sleeper reads up to {FORMAT}. "
        "Upgrade Sleeper."
    )


def _change_from_json(value: Any) -> Change:
    change = value["change"]
    if change["type"] == "remove":
        return Change("remove", str(change["tableId"]), None)
    if change["type"] not in ("add", "replace"):
        raise _UnknownChange(f"{change['type']!r:.100}")
    return Change(change["type"], str(change["tableId"]), _record_from_json(change["table"]))


def _checkpoint_from_json(value: Any) -> tuple[int, list[TableRecord]]:
    return int(value["number"]), [_record_from_json(record) for record in value["tables"]]


def _record_to_json(record: TableRecord) -> dict[str, Any]:
    return {
        "tableId": record.table_id,
        "name": record.name,
        "online": record.online,
        "properties": dict(record.properties),
    }


def _record_from_json(value: Any) -> TableRecord:
    return TableRecord(
        table_id=_checked_id(str(value["tableId"])),
        name=str(value["name"]),
        online=bool(value["online"]),
        properties={str(name): str(text) for name, text in value["properties"].items()},
    )


def _checked_id(table_id: str) -> str:
    """Check that a table's id is a valid folder name, because the table's data is stored there."""
    if not table_id or table_id in (".", "..") or "/" in table_id or "\0" in table_id:
        raise ValueError(f"{table_id!r:.100} cannot be the id of a table")
    return table_id


def _to_bytes(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
