"""A table as a Delta table: its log in `_delta_log/` of the table's folder.

Paths of data files are relative to that folder, so the log moves with the table. Version n is
`_delta_log/<n>.json`: it says which files came and went since the version before, and is created
only if it is absent. Now and then a checkpoint lists all files, so that readers need not read all
versions. Whoever writes by Delta's protocol refuses this table: its writer features have one that
no writer knows.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from hashlib import sha256
from io import BytesIO
from typing import Any, Final
from urllib.parse import quote, unquote
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sleeper.columns.joined import bytes_of, joined_texts, one_array
from sleeper.engine.published.key_bounds import KeyBounds, key_bounds
from sleeper.engine.published.versions import (
    FileTotals,
    NewVersion,
    PublishedTable,
    PublishedVersion,
    StoredVersion,
    stored_body,
)
from sleeper.errors import DataDamaged, SleeperError
from sleeper.model.column_types import traits_of
from sleeper.model.schema import (
    FieldType,
    ListType,
    MapType,
    Schema,
    StructType,
    plain_kinds,
    type_to_text,
)
from sleeper.ports.objects import Objects

FOLDER: Final = "_delta_log/"
READ_ONLY_FEATURE: Final = "publishedBySleeperReadOnly"
"""A writer feature that no writer knows, so that all of them refuse to write."""

_VERSION: Final = re.compile(r"_delta_log/(\d{20})\.json")
_CHECKPOINT: Final = re.compile(r"_delta_log/(\d{20})\.checkpoint\.parquet")
_LAST_CHECKPOINT: Final = f"{FOLDER}_last_checkpoint"
_NOT_QUOTED: Final = r"^[A-Za-z0-9_./-]*$"
_ROWS_AT_ONCE: Final = 50_000
_VERSIONS_MAX: Final = 50
_CHANGES_MIN: Final = 2_000
_CHANGES_SHARE: Final = 5
_FOR_EVER: Final = "interval 36500 days"
_log = logging.getLogger(__name__)


def unpublishable_fields(schema: Schema) -> list[str]:
    """Return the fields that Delta has no type or no name for, each with the reason."""
    found = [
        f"{field.name!r} is {type_to_text(field.type)}, which Delta does not have"
        for field in schema.fields
        if _delta_type(field.type) is None
    ]
    for names in (schema.columns, *_names_of_parts(schema)):
        seen: dict[str, str] = {}
        for name in names:
            other = seen.setdefault(name.casefold(), name)
            if other != name:
                found.append(f"{other!r} and {name!r} are one name in Delta, which ignores case")
    return found


def _names_of_parts(schema: Schema) -> Iterator[list[str]]:
    """Yield the names of the parts of each struct, however deep it lies."""
    waiting = [field.type for field in schema.fields]
    while waiting:
        match waiting.pop():
            case ListType(element):
                waiting.append(element)
            case MapType(_, value):
                waiting.append(value)
            case StructType(parts):
                yield [name for name, _ in parts]
                waiting += [part for _, part in parts]


def _delta_type(kind: FieldType) -> Any:
    """Return a type as in Delta's schema; None if it is one, or has one, that Delta lacks."""
    match kind:
        case ListType(element, nullable):
            known = _delta_type(element)
            return known and {"type": "array", "elementType": known, "containsNull": nullable}
        case MapType(key, value, nullable):
            keys, values = _delta_type(key), _delta_type(value)
            if not keys or not values:
                return None
            return {
                "type": "map",
                "keyType": keys,
                "valueType": values,
                "valueContainsNull": nullable,
            }
        case StructType(parts):
            types = {name: _delta_type(part) for name, part in parts}
            if not all(types.values()):
                return None
            fields = [_delta_field(name, known, nullable=True) for name, known in types.items()]
            return {"type": "struct", "fields": fields}
    traits = traits_of(kind)
    return None if traits is None else traits.published.delta


def _delta_field(name: str, kind: Any, *, nullable: bool) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": nullable, "metadata": {}}


def schema_text(schema: Schema) -> str:
    """Return Delta's text of a schema: the columns in the order that users see."""
    by_name = {field.name: field for field in schema.fields}
    columns = [
        _delta_field(name, _delta_type(by_name[name].type), nullable=by_name[name].nullable)
        for name in schema.columns
    ]
    return json.dumps({"type": "struct", "fields": columns})


def _protocol(schema: Schema) -> dict[str, Any]:
    """Return the least protocol that the columns need: a column without nulls is an invariant."""
    plain = (traits_of(kind) for field in schema.fields for kind in plain_kinds(field.type))
    kinds = {traits.published.delta for traits in plain if traits is not None}
    features = ["timestampNtz"] if "timestamp_ntz" in kinds else []
    writers = [*features, "appendOnly", "invariants", READ_ONLY_FEATURE]
    if not features:
        return {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": writers}
    return {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": features,
        "writerFeatures": writers,
    }


def _meta_data(table: PublishedTable, created_ms: int) -> dict[str, Any]:
    digest = sha256(f"sleeper table {table.table_id}".encode()).digest()
    return {
        "id": str(UUID(bytes=digest[:16], version=4)),
        "name": table.name,
        "description": "Published by Sleeper. Do not write to it, and do not vacuum it.",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": schema_text(table.schema),
        "partitionColumns": [],
        "configuration": {
            "delta.appendOnly": "true",
            "delta.deletedFileRetentionDuration": _FOR_EVER,
            "delta.logRetentionDuration": _FOR_EVER,
        },
        "createdTime": created_ms,
    }


@dataclass(frozen=True, slots=True)
class _FileTexts:
    """What an action tells of files, as Arrow texts and numbers in their order."""

    paths: pa.Array
    sizes: pa.Array
    times_ms: pa.Array
    stats: pa.Array


def _file_texts(files: pa.Table, schema: Schema) -> _FileTexts:
    sizes, times, rows = (
        one_array(files[name]).cast(pa.int64()) for name in ("size_bytes", "updated", "row_count")
    )
    return _FileTexts(
        paths=_quoted(one_array(files["filename"])),
        sizes=sizes,
        times_ms=pc.divide(times, 1000),
        stats=_stats(rows, key_bounds(files["keys"], schema), schema),
    )


def _quoted(names: pa.Array) -> pa.Array:
    """Return names as Delta writes paths: percent-encoded, which almost all are already."""
    good = pc.match_substring_regex(names, _NOT_QUOTED)
    if pc.all(good).as_py() is not False:
        return names
    others = [quote(name) for name in names.filter(pc.invert(good)).to_pylist()]
    return pc.replace_with_mask(names, pc.invert(good), pa.array(others, pa.large_string()))


def _unquoted(paths: pa.Array) -> pa.Array:
    """Return the names that Delta's paths mean."""
    quoted = pc.match_substring(paths, "%")
    if not pc.any(quoted).as_py():
        return paths
    names = [unquote(path) for path in paths.filter(quoted).to_pylist()]
    return pc.replace_with_mask(paths, quoted, pa.array(names, pa.large_string()))


def _stats(rows: pa.Array, bounds: KeyBounds | None, schema: Schema) -> pa.Array:
    """Return the JSON of statistics: rows, bounds of the first key, and that keys are not null."""
    no_nulls = json.dumps({field.name: 0 for field in schema.keys}, ensure_ascii=True)
    end = f',"nullCount":{no_nulls}}}'
    counted = joined_texts(['{"numRecords":', rows])
    if bounds is None:
        return joined_texts([counted, end])
    name = json.dumps(bounds.field.name)
    least, greatest = _bound_texts(bounds)
    told = joined_texts(
        [f',"minValues":{{{name}:', least, f'}},"maxValues":{{{name}:', greatest, "}"]
    )
    return joined_texts([counted, pc.fill_null(told, ""), end])


def _bound_texts(bounds: KeyBounds) -> tuple[pa.Array, pa.Array]:
    """Return bounds as JSON. Readers take times in milliseconds: rounded down, and up."""
    if bounds.kind != "time":
        return bounds.least, bounds.greatest
    least, greatest = bounds.values()
    zone = "Z" if least.type.tz else ""
    down = pc.floor_temporal(least, unit="millisecond").cast(pa.timestamp("ms"))
    up = pc.ceil_temporal(greatest, unit="millisecond").cast(pa.timestamp("ms"))
    texts = (pc.strftime(each, format="%Y-%m-%dT%H:%M:%S") for each in (down, up))
    one, other = (joined_texts(['"', text.cast(pa.large_string()), f'{zone}"']) for text in texts)
    return one, other


def _in_text(texts: pa.Array) -> pa.Array:
    """Return JSON texts as they are inside a JSON string; they are ASCII."""
    return pc.replace_substring(pc.replace_substring(texts, "\\", "\\\\"), '"', '\\"')


def _body(first: list[dict[str, Any]], new: NewVersion, schema: Schema, at_ms: int) -> bytes:
    """Return the actions of a version: a line for each."""
    written = BytesIO()
    for action in first:
        written.write(json.dumps(action).encode() + b"\n")
    is_change = "false" if len(new.removed) else "true"
    for start in range(0, len(new.removed), _ROWS_AT_ONCE):
        paths = _quoted(new.removed.slice(start, _ROWS_AT_ONCE).cast(pa.large_string()))
        tail = f'","deletionTimestamp":{at_ms},"dataChange":false}}}}\n'
        written.write(bytes_of(joined_texts(['{"remove":{"path":"', paths, tail])))
    for start in range(0, new.added.num_rows, _ROWS_AT_ONCE):
        texts = _file_texts(new.added.slice(start, _ROWS_AT_ONCE), schema)
        lines = joined_texts(
            [
                '{"add":{"path":"',
                texts.paths,
                '","partitionValues":{},"size":',
                texts.sizes,
                ',"modificationTime":',
                texts.times_ms,
                f',"dataChange":{is_change},"stats":"',
                _in_text(texts.stats),
                '"}}\n',
            ]
        )
        written.write(bytes_of(lines))
    return written.getvalue()


class DeltaLog:
    """The Delta log of one table (`PublishedLog`).

    Args:
        files: The table's folder.
    """

    def __init__(self, files: Objects) -> None:
        self._files = files

    def newest(self) -> PublishedVersion | None:
        """Return the newest version; None before the first."""
        base = self._last_checkpoint()
        infos = list(self._files.listing(FOLDER, after=f"{FOLDER}{max(base, 0):020}"))
        versions = [_number(_VERSION, info.key) for info in infos]
        found = max((each for each in versions if each is not None), default=None)
        if found is None:
            return None
        size = next(info.size_bytes for info in infos if info.key == _key(found))
        first = self._files.read_ranges(_key(found), [(0, min(size, 4096))])[0]
        try:
            told = json.loads(first.split(b"\n", 1)[0])["commitInfo"]["sleeper"]
            return PublishedVersion(
                version=found,
                transaction=int(told["transaction"]),
                described=str(told["described"]),
                since_base=int(told["changedSinceCheckpoint"]),
                base=int(told["checkpoint"]),
                totals=FileTotals(
                    files=int(told["files"]),
                    size_bytes=int(told["bytes"]),
                    rows=int(told["rows"]),
                ),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise DataDamaged(
                f"{_key(found)} is not an entry that Sleeper wrote ({error!r}): something else "
                "wrote to the published table. Unpublish it, and publish it again."
            ) from None

    def names(self, version: PublishedVersion) -> pa.Array:
        """Return the names of the data files of a version, in any order."""
        base = self._checkpoint_before(version.version)
        is_there: dict[str, bool] = {}
        for number in range(base + 1, version.version + 1):
            for line in stored_body(self._files, _key(number)).splitlines():
                action = json.loads(line)
                for kind in ("add", "remove"):
                    if kind in action:
                        is_there[action[kind]["path"]] = kind == "add"
        later = pa.array([path for path, added in is_there.items() if added], pa.large_string())
        if base < 0:
            return _unquoted(later)
        stored = pq.ParquetFile(pa.BufferReader(stored_body(self._files, _checkpoint_key(base))))
        adds = stored.read(columns=["add.path"])["add"].combine_chunks()
        paths = pc.drop_null(pc.struct_field(adds, "path")).cast(pa.large_string())
        touched = pa.array(is_there, pa.large_string())
        paths = paths.filter(pc.invert(pc.is_in(paths, value_set=touched)))
        return _unquoted(pa.concat_arrays([paths, later]))

    def publish(
        self, table: PublishedTable, before: PublishedVersion | None, new: NewVersion
    ) -> PublishedVersion | None:
        """Publish the version after `before`; None if another publisher was faster.

        A checkpoint that cannot be written is left to the next version.
        """
        at_ms = int(new.at.timestamp() * 1000)
        described = self.described_by(table)
        changed = new.added.num_rows + len(new.removed)
        version = PublishedVersion(
            version=PublishedVersion.number_after(before),
            transaction=new.transaction,
            described=described,
            since_base=changed + (0 if before is None else before.since_base),
            base=-1 if before is None else before.base,
            totals=new.totals,
        )
        is_described = before is not None and before.described == described
        heads = _heads(table, new.transaction, at_ms)
        first = [_commit_info(version, at_ms), *(heads[-1:] if is_described else heads)]
        if not self._files.create(_key(version.version), _body(first, new, table.schema, at_ms)):
            return None
        return self._with_checkpoint(table, version, new, at_ms)

    def described_by(self, table: PublishedTable) -> str:
        """Return a digest of what a version tells of its table besides files."""
        text = json.dumps([_protocol(table.schema), _meta_data(table, 0)], sort_keys=True)
        return sha256(text.encode()).hexdigest()[:16]

    def location(self, table: PublishedTable) -> str:
        """Return the table's folder, which readers of Delta open."""
        return table.url

    def is_there(self, version: PublishedVersion) -> bool:
        """Return whether a version is stored."""
        return self._files.stored_at(_key(version.version)) is not None

    def complete(self, version: PublishedVersion) -> None:
        """Do nothing: the entry is all that a version needs."""

    def versions(self) -> list[StoredVersion]:
        """Return the versions that can be opened, the oldest first."""
        infos = self._files.listing(FOLDER)
        numbers = ((_number(_VERSION, info.key), info.modified) for info in infos)
        return [StoredVersion(number, at) for number, at in numbers if number is not None]

    def forget(self, before: int) -> int:
        """Delete versions that come before the last checkpoint up to version `before`."""
        infos = [info.key for info in self._files.listing(FOLDER)]
        bases = [n for key in infos if (n := _number(_CHECKPOINT, key)) is not None and n <= before]
        if not bases:
            return 0
        old = []
        for key in infos:
            number = _number(_VERSION, key)
            if number is None:
                number = _number(_CHECKPOINT, key)
            if number is not None and number < max(bases):
                old.append(key)
        self._files.delete(old)
        return len(old)

    def remove(self) -> int:
        """Delete the log, the newest version first; return how many objects that were."""
        keys = sorted((info.key for info in self._files.listing(FOLDER)), reverse=True)
        self._files.delete(keys)
        return len(keys)

    def _with_checkpoint(
        self, table: PublishedTable, version: PublishedVersion, new: NewVersion, at_ms: int
    ) -> PublishedVersion:
        """Write a checkpoint if one is due: its cost is shared by the changes since the last."""
        many = max(_CHANGES_MIN, version.totals.files // _CHANGES_SHARE)
        if version.version - version.base < _VERSIONS_MAX and version.since_base < many:
            return version
        try:
            self._write_checkpoint(table, version.version, new, at_ms)
        except SleeperError as failure:
            _log.warning("no checkpoint of the Delta table was written: %s", failure)
            return version
        return replace(version, since_base=0, base=version.version)

    def _write_checkpoint(
        self, table: PublishedTable, version: int, new: NewVersion, at_ms: int
    ) -> None:
        files = new.files()
        heads = _heads(table, new.transaction, at_ms)
        with (
            self._files.open_output(_checkpoint_key(version)) as output,
            pq.ParquetWriter(output, _CHECKPOINT_SCHEMA, compression="zstd") as writer,
        ):
            writer.write_table(pa.Table.from_pylist(heads, _CHECKPOINT_SCHEMA))
            for start in range(0, files.num_rows, _ROWS_AT_ONCE):
                texts = _file_texts(files.slice(start, _ROWS_AT_ONCE), table.schema)
                writer.write_table(_checkpoint_rows(texts))
        told = {"version": version, "size": files.num_rows + len(heads)}
        self._files.put(_LAST_CHECKPOINT, json.dumps(told).encode())

    def _last_checkpoint(self) -> int:
        body = self._files.read(_LAST_CHECKPOINT)
        try:
            return -1 if body is None else int(json.loads(body)["version"])
        except (ValueError, KeyError, TypeError):
            return -1  # it is a hint: without it the whole log is listed

    def _checkpoint_before(self, version: int) -> int:
        infos = self._files.listing(FOLDER)
        numbers = (_number(_CHECKPOINT, info.key) for info in infos)
        return max((each for each in numbers if each is not None and each <= version), default=-1)


def _heads(table: PublishedTable, transaction: int, at_ms: int) -> list[dict[str, Any]]:
    """Return the actions that describe the table; the last is what each version has."""
    return [
        {"protocol": _protocol(table.schema)},
        {"metaData": _meta_data(table, at_ms)},
        {
            "txn": {
                "appId": f"sleeper-{table.table_id}",
                "version": transaction,
                "lastUpdated": at_ms,
            }
        },
    ]


def _commit_info(version: PublishedVersion, at_ms: int) -> dict[str, Any]:
    return {
        "commitInfo": {
            "timestamp": at_ms,
            "operation": "PUBLISH",
            "operationParameters": {},
            "engineInfo": "Sleeper",
            "isBlindAppend": False,
            "sleeper": {
                "transaction": version.transaction,
                "described": version.described,
                "files": version.totals.files,
                "bytes": version.totals.size_bytes,
                "rows": version.totals.rows,
                "changedSinceCheckpoint": version.since_base,
                "checkpoint": version.base,
            },
        }
    }


def _checkpoint_rows(texts: _FileTexts) -> pa.Table:
    count = len(texts.paths)
    add = _CHECKPOINT_SCHEMA.field("add").type
    empty = pa.MapArray.from_arrays(
        pa.repeat(pa.scalar(0, pa.int32()), count + 1),
        pa.nulls(0, pa.string()),
        pa.nulls(0, pa.string()),
    )
    told = {
        "path": texts.paths,
        "partitionValues": empty,
        "size": texts.sizes,
        "modificationTime": texts.times_ms,
        "dataChange": pa.repeat(pa.scalar(value=False), count),
        "stats": texts.stats,
    }
    columns = [told[field.name].cast(field.type) for field in add]
    rows = {"add": pa.StructArray.from_arrays(columns, fields=list(add))}
    return pa.table(
        [rows.get(field.name, pa.nulls(count, field.type)) for field in _CHECKPOINT_SCHEMA],
        schema=_CHECKPOINT_SCHEMA,
    )


_TEXTS: Final = pa.map_(pa.string(), pa.string())
_CHECKPOINT_SCHEMA: Final = pa.schema(
    [
        (
            "txn",
            pa.struct(
                [("appId", pa.string()), ("version", pa.int64()), ("lastUpdated", pa.int64())]
            ),
        ),
        (
            "add",
            pa.struct(
                [
                    ("path", pa.string()),
                    ("partitionValues", _TEXTS),
                    ("size", pa.int64()),
                    ("modificationTime", pa.int64()),
                    ("dataChange", pa.bool_()),
                    ("stats", pa.string()),
                ]
            ),
        ),
        (
            "remove",
            pa.struct(
                [
                    ("path", pa.string()),
                    ("deletionTimestamp", pa.int64()),
                    ("dataChange", pa.bool_()),
                ]
            ),
        ),
        (
            "metaData",
            pa.struct(
                [
                    ("id", pa.string()),
                    ("name", pa.string()),
                    ("description", pa.string()),
                    (
                        "format",
                        pa.struct([("provider", pa.string()), ("options", _TEXTS)]),
                    ),
                    ("schemaString", pa.string()),
                    ("partitionColumns", pa.list_(pa.string())),
                    ("configuration", _TEXTS),
                    ("createdTime", pa.int64()),
                ]
            ),
        ),
        (
            "protocol",
            pa.struct(
                [
                    ("minReaderVersion", pa.int32()),
                    ("minWriterVersion", pa.int32()),
                    ("readerFeatures", pa.list_(pa.string())),
                    ("writerFeatures", pa.list_(pa.string())),
                ]
            ),
        ),
    ]
)


def _key(version: int) -> str:
    return f"{FOLDER}{version:020}.json"


def _checkpoint_key(version: int) -> str:
    return f"{FOLDER}{version:020}.checkpoint.parquet"


def _number(pattern: re.Pattern[str], key: str) -> int | None:
    found = pattern.fullmatch(key)
    return None if found is None else int(found[1])
