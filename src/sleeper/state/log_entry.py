"""Encodes the entries of a table's log, and decodes them.

An entry of format 1 is one JSON object. One of format 2 has two lines:

    {"format": 2, "entryId": ..., "at": ..., "prev": ..., "transactions": [...], "keys": ...}
    {"salts": ..., "keys": [...]}

- The first line names keys of rows (first and last keys of files, limits of partitions) by their
  places in the list of the second, and has a salted digest of each. It is never changed.
- The second line has the keys and their salts. Both of a key may be removed (`without_keys`),
  and then its digest tells nobody what it was.
- `prev` is the digest of the first line of the entry before, so nobody changes an entry unnoticed.

An entry of format 1 that named keys of purged rows is replaced by one that has its id, its time and
`PURGED` in place of its transactions (`emptied`), so that its number stays taken.

Entries are decoded again before they are written: an invalid value fails its writer, not readers.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Final

from sleeper.errors import (
    BadRequest,
    CommitRefused,
    DataDamaged,
    FormatTooNew,
    SleeperError,
    VersionNotFound,
)
from sleeper.model.authors import Author
from sleeper.model.collector_pause import making_many_objects
from sleeper.model.schema import Schema
from sleeper.ports.ids import NewId
from sleeper.state.table_state import FORMATS, Transaction
from sleeper.state.transaction_json import (
    author_from_json,
    is_known_type,
    transaction_from_json,
    transaction_to_json,
)
from sleeper.state.value_json import (
    Document,
    read,
    read_list,
    read_optional_text,
    time_from_json,
    time_to_json,
)

_ANY_TIME = datetime(2000, 1, 1, tzinfo=UTC)
_DIGEST_BYTES: Final = 16
_NO_SALT: Final = bytes(_DIGEST_BYTES)
_PURGED: Final = "PURGED"
_ROW_KEYS: Final = frozenset({"firstKey", "lastKey"})
_LIMITS: Final = "region"
_NESTED: Final = (dict, list)
_DIGEST = re.compile("[0-9a-f]{64}")
_TYPE_NAME = re.compile("[A-Z][A-Z_]+")
_NO_ENTRY = (
    TypeError,
    ValueError,
    LookupError,
    AttributeError,
    RecursionError,
    CommitRefused,
    BadRequest,
)

KeyValue = int | float | str | bool
"""One value of a row key, as JSON has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEntry:
    """One entry of a table's log.

    Attributes:
        entry_id: New in every attempt to append, so that a writer recognises its own entry.
        at: When it was written, by the storage's clock (aware, UTC): after the previous entry.
        transactions: In the order in which they are applied; each was checked by its writer.
        format: The format that it is written in.
        prev: The digest of the entry before; None in format 1, and where the chain begins.
    """

    entry_id: str
    at: datetime
    transactions: tuple[Transaction, ...]
    format: int = 1
    prev: str | None = None


def entry_digest(body: bytes) -> str:
    """Return the digest of an entry of format 2, without its keys: SHA-256 in hexadecimal."""
    return sha256(body.partition(b"\n")[0]).hexdigest()


@making_many_objects()
def encode_entry(entry: LogEntry, schema: Schema, *, new_id: NewId | None = None) -> bytes:
    """Encode an entry as UTF-8 JSON.

    Args:
        entry: The entry.
        schema: The table's.
        new_id: Makes random ids, for the salts of format 2, which needs it.

    Raises:
        BadRequest: a transaction has a value that cannot be decoded again.
    """
    try:
        document: dict[str, Any] = {
            "format": entry.format,
            "entryId": entry.entry_id,
            "at": time_to_json(entry.at),
        }
        transactions = [transaction_to_json(t, schema) for t in entry.transactions]
        if entry.format == 1:
            body = _line(document | {"transactions": transactions})
        else:
            assert new_id is not None
            body = _in_two_lines(document, transactions, entry.prev, new_id)
        equal = decode_entry(body, schema, "this entry") == entry
    except (TypeError, ValueError, LookupError, AttributeError, DataDamaged) as error:
        raise BadRequest(f"a transaction cannot be written to the log: {error}") from error
    if not equal:
        raise BadRequest("a transaction cannot be written to the log: it decodes differently")
    return body


def check_storable(transactions: Sequence[Transaction], schema: Schema) -> None:
    """Check that a store which keeps no entries could keep what transactions have changed.

    Raises:
        BadRequest: a transaction has a value that cannot be decoded again.
    """
    encode_entry(LogEntry(entry_id="", at=_ANY_TIME, transactions=tuple(transactions)), schema)


@making_many_objects()
def decode_entry(body: bytes, schema: Schema, where: str) -> LogEntry:
    """Decode an entry that `encode_entry` encoded.

    Args:
        body: The entry.
        schema: The table's.
        where: Names the entry in an error.

    Raises:
        FormatTooNew: a newer Sleeper wrote it.
        VersionNotFound: keys of purged rows were removed from it, and it is nothing without them.
        DataDamaged: it is not an entry.
    """
    try:
        first, _, second = body.partition(b"\n")
        document = json.loads(first)
        number = document["format"]
        if type(number) is not int or number not in FORMATS:
            raise _unknown_format(number, where)
        transactions = read_list(document, "transactions", dict)
        if any(each.get("type") == _PURGED for each in transactions):
            raise _purged(where, "named keys")
        _check_types(transactions, where)
        if number > 1:
            _put_keys(transactions, _Keys.read(document, second).values, where)
        elif second:
            raise ValueError("it has a second line")
        return LogEntry(
            entry_id=read(document, "entryId", str),
            at=time_from_json(read(document, "at", str)),
            transactions=tuple(transaction_from_json(t, schema) for t in transactions),
            format=number,
            prev=_checked_digest(read_optional_text(document, "prev")),
        )
    except (FormatTooNew, VersionNotFound):
        raise
    except _NO_ENTRY as error:
        raise DataDamaged(
            f"{where} is not a log entry: {error}. Restore it from a copy of the table's state."
        ) from error


def _check_types(transactions: list[dict[str, Any]], where: str) -> None:
    """Raise FormatTooNew for a type of transaction that only a newer Sleeper knows.

    It must not be reported as damage: a reader would continue from a later snapshot and ignore it.
    """
    for document in transactions:
        name = read(document, "type", str)
        if not is_known_type(name) and _TYPE_NAME.fullmatch(name):
            raise FormatTooNew(
                f"{where} has a transaction of type {name!r:.100}, which this Sleeper does not "
                "know. Upgrade Sleeper to read this table."
            )


def _unknown_format(found: object, where: str) -> SleeperError:
    if isinstance(found, int) and found > max(FORMATS):
        return FormatTooNew(
            f"{where} has format {found}; this Sleeper reads formats up to {max(FORMATS)}. "
            "Upgrade Sleeper to read this table."
        )
    return BadRequest(f"its format is {found!r}")


def without_keys(body: bytes, values: Collection[KeyValue]) -> bytes:
    """Return an entry of format 2 without some values of row keys; its digest is the same.

    Args:
        body: The entry.
        values: The values, as JSON has them.
    """
    first, _, second = body.partition(b"\n")
    document = json.loads(first)
    keys, removed = _Keys.read(document, second), {json.dumps(value) for value in values}
    for place, value in enumerate(keys.values):
        if value is not None and json.dumps(value) in removed:
            keys.values[place], keys.salts[place] = None, _NO_SALT
    return first if not keys.values else first + b"\n" + keys.second_line()


def emptied(body: bytes) -> bytes:
    """Return what stands in the place of an entry of format 1 whose keys have to go.

    Earlier versions do not know its type of transaction, and so refuse it.
    """
    document = json.loads(body)
    kept = {name: document[name] for name in ("format", "entryId", "at") if name in document}
    by = {each["by"] for each in document["transactions"] if "by" in each}
    left = [{"type": _PURGED, "by": each} for each in sorted(by)] or [{"type": _PURGED}]
    return _line({**kept, "transactions": left})


def keys_of(body: bytes) -> set[KeyValue]:
    """Return the values of row keys that an entry has: of first and last rows, and limits.

    Raises:
        ValueError, TypeError, LookupError: it is not an entry.
    """
    first, _, second = body.partition(b"\n")
    document = json.loads(first)
    if document["format"] > 1:
        return {value for value in _Keys.read(document, second).values if value is not None}
    found = set[KeyValue]()

    def note(value: KeyValue) -> KeyValue:
        found.add(value)
        return value

    _change_keys(document["transactions"], note, note)
    return found


def format_of(body: bytes) -> int:
    """Return the format of an entry, which may lack keys.

    Raises:
        ValueError, TypeError, LookupError: it is not an entry.
    """
    return read(json.loads(body.partition(b"\n")[0]), "format", int)


def entry_time(body: bytes, where: str) -> datetime:
    """Return when an entry was written, which it says even where keys were removed from it.

    Raises:
        DataDamaged: it is not an entry.
    """
    try:
        return time_from_json(read(json.loads(body.partition(b"\n")[0]), "at", str))
    except _NO_ENTRY as error:
        raise DataDamaged(
            f"{where} is not a log entry: {error}. Restore it from a copy of the table's state."
        ) from error


def authors_of(body: bytes) -> list[Author | None]:
    """Return who committed each transaction of an entry, as it says even without keys.

    Raises:
        DataDamaged: it is not an entry.
    """
    try:
        transactions = read_list(json.loads(body.partition(b"\n")[0]), "transactions", dict)
        return [author_from_json(each) for each in transactions]
    except _NO_ENTRY as error:
        raise DataDamaged(f"this is not a log entry: {error}") from error


def _purged(where: str, what: str) -> VersionNotFound:
    return VersionNotFound(
        f"{where} {what} of purged rows, so the table's state at that time is not kept. Request a "
        "later one."
    )


def changed_keys(body: bytes) -> int:
    """Return how many keys of an entry of format 2 are not those that its digests were made of.

    Raises:
        ValueError, TypeError, LookupError: it is not an entry of format 2.
    """
    first, _, second = body.partition(b"\n")
    keys = _Keys.read(json.loads(first), second)
    return sum(
        value is not None and _key_digest(salt, value) != digest
        for value, salt, digest in zip(keys.values, keys.salts, keys.digests, strict=True)
    )


def _checked_digest(text: str | None) -> str | None:
    if text is not None and not _DIGEST.fullmatch(text):
        raise ValueError(f"prev is a SHA-256 in hexadecimal, not {text!r:.100}")
    return text


def _line(document: Document) -> bytes:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


# ---------------------------------------------------------------- keys of format 2
#
# Each value of a row key stands once in the second line, and a salted digest of it in the first.


@dataclass(slots=True)
class _Keys:
    """The values of row keys in an entry, by their places.

    Attributes:
        values: The values; None for one that was removed.
        salts: As many bytes for each as a digest has; zeros for one that was removed.
        digests: A digest of each.
    """

    values: list[KeyValue | None] = field(default_factory=list)
    salts: list[bytes] = field(default_factory=list)
    digests: list[bytes] = field(default_factory=list)

    @classmethod
    def read(cls, first: Document, second: bytes) -> _Keys:
        """Read the keys of an entry from its two lines.

        Raises:
            ValueError, TypeError, LookupError: they are not those of an entry.
        """
        digests = _pieces(read(first, "keys", str, ""))
        if not second:
            kept: Document = {"salts": "", "keys": []}
        else:
            kept = json.loads(second)
        values, salts = read(kept, "keys", list), _pieces(read(kept, "salts", str))
        if not len(values) == len(salts) == len(digests):
            raise ValueError(
                f"it has {len(digests)} digests of keys, {len(values)} keys, {len(salts)} salts"
            )
        return cls(values, salts, digests)

    def lines(self, document: Document) -> bytes:
        """Return an entry's two lines; one where it has no keys."""
        if not self.values:
            return _line(document)
        return _line({**document, "keys": _joined(self.digests)}) + b"\n" + self.second_line()

    def second_line(self) -> bytes:
        """Return the line that has the keys."""
        return _line({"salts": _joined(self.salts), "keys": self.values})


def _in_two_lines(
    document: Document, transactions: list[dict[str, Any]], prev: str | None, new_id: NewId
) -> bytes:
    places: dict[object, int] = {}
    keys = _Keys()
    seed = new_id()

    def place(value: KeyValue) -> int:
        known = value if type(value) is str else (json.dumps(value),)  # 1, 1.0 and true differ
        if known not in places:
            places[known] = len(places)
            salt = sha256(f"{seed}{len(places)}".encode()).digest()[:_DIGEST_BYTES]
            keys.values.append(value)
            keys.salts.append(salt)
            keys.digests.append(_key_digest(salt, value))
        return places[known]

    _change_keys(transactions, place, place)
    chained = {} if prev is None else {"prev": prev}
    return keys.lines({**document, **chained, "transactions": transactions})


def _put_keys(
    transactions: list[dict[str, Any]], values: Sequence[KeyValue | None], where: str
) -> None:
    """Put the keys in their places.

    Raises:
        VersionNotFound: a limit of a partition was removed.
    """

    def value_at(place: object) -> KeyValue | None:
        if type(place) is not int or place < 0:
            raise ValueError(f"the place of a key is a number, not {place!r:.100}")
        return values[place]

    def limit_at(place: object) -> KeyValue:
        value = value_at(place)
        if value is None:
            raise _purged(where, "had limits of partitions that were keys")
        return value

    _change_keys(transactions, value_at, limit_at)


def _change_keys(node: Any, key: Callable[[Any], Any], limit: Callable[[Any], Any]) -> None:
    """Change each value of a row key inside of some JSON, in its place.

    Args:
        node: The JSON, a list or an object.
        key: Changes a value of a first or last row key; a row key with None is left out.
        limit: Changes a limit of a partition; no limit stays none.
    """
    if type(node) is list:
        for each in node:
            if type(each) in _NESTED:
                _change_keys(each, key, limit)
        return
    for name, value in [*node.items()]:
        if name in _ROW_KEYS:
            values = [key(each) for each in value]
            if None in values:
                del node[name]
            else:
                node[name] = values
        elif name == _LIMITS:
            node[name] = [
                [None if each is None else limit(each) for each in limits] for limits in value
            ]
        elif type(value) in _NESTED:
            _change_keys(value, key, limit)


def _key_digest(salt: bytes, value: KeyValue) -> bytes:
    return sha256(salt + json.dumps(value).encode()).digest()[:_DIGEST_BYTES]


def _joined(pieces: Sequence[bytes]) -> str:
    return b64encode(b"".join(pieces)).decode()


def _pieces(text: str) -> list[bytes]:
    data = b64decode(text, validate=True)
    if len(data) % _DIGEST_BYTES:
        raise ValueError("digests or salts of its keys are cut off")
    return [data[n : n + _DIGEST_BYTES] for n in range(0, len(data), _DIGEST_BYTES)]
