"""A table as an Iceberg table of format 2: metadata in `iceberg/metadata/` of the table's folder.

Paths are absolute, as Iceberg wants them: a table that is moved must be published anew. Version n
is `v<n + 1>.metadata.json`, which is created only if it is absent, and names a list of manifests,
which name the data files; `version-hint.text` says which version is the newest, for readers of
folders.

Files are cut into manifests by their names, so that a change of few files is a change of few
manifests; the others are named again. A manifest is known by a digest of what it lists.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator, Mapping
from hashlib import sha256
from io import BytesIO
from typing import Any, Final
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sleeper.columns.joined import bytes_of, joined_bytes, joined_texts, one_array
from sleeper.engine.published.avro import (
    Encoded,
    avro_file,
    file_metadata,
    long_bytes,
    longs,
    sized,
    sized_bytes,
)
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

FOLDER: Final = "iceberg/metadata/"
_HINT: Final = f"{FOLDER}version-hint.text"
_VERSION: Final = re.compile(r"iceberg/metadata/v(\d{1,19})\.metadata\.json")
_CUT_MASK: Final = np.uint64(8191)
"""A manifest ends after one in so many files, on average."""
_MIX: Final = np.uint64(0x9E3779B97F4A7C15)
_NAME_BYTES: Final = 8
_NO_LETTERS: Final = " " * _NAME_BYTES
_log = logging.getLogger(__name__)


# ---------------------------------------------------------------- schema


def unpublishable_fields(schema: Schema) -> list[str]:
    """Return the fields that Iceberg has no type for, each with the reason."""
    return [
        f"{field.name!r} is {type_to_text(field.type)}, which Iceberg does not have"
        for field in schema.fields
        if any(_has_no_name(kind) for kind in plain_kinds(field.type))
    ]


def _has_no_name(kind: object) -> bool:
    traits = traits_of(kind)
    return traits is not None and traits.published.iceberg is None


class _Ids:
    """Gives ids to the columns of a schema, and to what is inside of them, in Iceberg's order.

    Args:
        last: An id below all others.
    """

    def __init__(self, last: int = 0) -> None:
        self.last = last

    def next(self) -> int:
        self.last += 1
        return self.last

    def type_of(self, kind: FieldType) -> tuple[Any, list[dict[str, Any]]]:
        """Return a type as in Iceberg's schema, and the mapping of names inside it."""
        match kind:
            case ListType(element, nullable):
                number = self.next()
                known, inside = self.type_of(element)
                return {
                    "type": "list",
                    "element-id": number,
                    "element": known,
                    "element-required": not nullable,
                }, [_mapped("element", number, inside)]
            case MapType(key, value, nullable):
                key_id, value_id = self.next(), self.next()
                (keys, _), (values, inside) = self.type_of(key), self.type_of(value)
                return {
                    "type": "map",
                    "key-id": key_id,
                    "key": keys,
                    "value-id": value_id,
                    "value": values,
                    "value-required": not nullable,
                }, [_mapped("key", key_id, []), _mapped("value", value_id, inside)]
            case StructType(parts):
                ids = [self.next() for _ in parts]
                types = [self.type_of(part) for _, part in parts]
                return {
                    "type": "struct",
                    "fields": [
                        {"id": number, "name": name, "required": False, "type": known}
                        for number, (name, _), (known, _) in zip(ids, parts, types, strict=True)
                    ],
                }, [
                    _mapped(name, number, inside)
                    for number, (name, _), (_, inside) in zip(ids, parts, types, strict=True)
                ]
        traits = traits_of(kind)
        assert traits is not None
        return traits.published.iceberg, []


def _mapped(name: str, number: int, inside: list[dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {"field-id": number, "names": [name]}
    return {**found, "fields": inside} if inside else found


def _schema(schema: Schema) -> tuple[dict[str, Any], list[dict[str, Any]], int]:
    """Return Iceberg's schema in the order that users see, the mapping of names, the last id."""
    by_name = {field.name: field for field in schema.fields}
    fields, mapping, last = [], [], max(_id_of(schema, name) for name in schema.columns)
    ids = _Ids(last)
    for name in schema.columns:
        number = _id_of(schema, name)
        if schema.last_id:  # the same inside of a field, whatever others come and go
            ids = _Ids(number * _IDS_OF_A_FIELD)
        known, inside = ids.type_of(by_name[name].type)
        required = not by_name[name].nullable
        fields.append({"id": number, "name": name, "required": required, "type": known})
        mapping.append(_mapped(name, number, inside))
        last = max(last, ids.last)
    number = schema.number - 1
    return {"type": "struct", "schema-id": number, "fields": fields}, mapping, last


_IDS_OF_A_FIELD: Final = 10_000
"""So many ids are left for what is inside of a field, in tables whose fields have ids."""


def _id_of(schema: Schema, name: str) -> int:
    """Return the id of a column: the one that files have, or its place."""
    known = next(field.id for field in schema.fields if field.name == name)
    return schema.columns.index(name) + 1 if known is None else known


def _path(url: str) -> str:
    """Return a path or URL with its scheme, as Iceberg wants it."""
    return url if "://" in url else f"file://{url}"


# ---------------------------------------------------------------- manifests


def _manifest(table: PublishedTable, files: pa.Table) -> bytes:
    """Return a manifest that lists data files. The same files give the same bytes."""
    schema, _, _ = _schema(table.schema)
    metadata = {
        "schema": json.dumps(schema),
        "schema-id": str(table.schema.number - 1),
        "partition-spec": "[]",
        "partition-spec-id": "0",
        "format-version": "2",
        "content": "data",
    }
    return avro_file(_ENTRY, metadata, joined_bytes(_entry_fields(table, files)))


def _entry_fields(table: PublishedTable, files: pa.Table) -> list[Encoded]:
    """Return the encoded fields of entries, in the order of `_ENTRY`.

    Each file is told as one that was there before: readers of snapshots see no difference.
    """
    sequence = longs(one_array(files["sequence"]))
    rows = longs(one_array(files["row_count"]))
    paths = joined_texts([f"{_path(table.url)}/", one_array(files["filename"])])
    keys = [_id_of(table.schema, field.name) for field in table.schema.keys]
    counts = b"\x02" + long_bytes(len(keys))
    value_counts: list[Encoded] = [counts]
    for number in keys:
        value_counts += [long_bytes(number), rows]
    no_nulls = b"".join(long_bytes(number) + long_bytes(0) for number in keys)
    lower, upper = _bounds(key_bounds(files["keys"], table.schema), table.schema, len(files))
    return [
        long_bytes(0),  # status: existing
        *(b"\x02", sequence),  # snapshot_id
        *(b"\x02", sequence),  # sequence_number
        *(b"\x02", sequence),  # file_sequence_number
        long_bytes(0),  # content: data
        sized(paths),
        sized_bytes(b"PARQUET"),
        rows,
        longs(one_array(files["size_bytes"])),
        *value_counts,
        b"\0",
        counts + no_nulls + b"\0",
        lower,
        upper,
        b"\x02" + long_bytes(1),  # sort_order_id
    ]


def _bounds(bounds: KeyBounds | None, schema: Schema, count: int) -> tuple[Encoded, Encoded]:
    """Return lower and upper bounds of the first key, encoded: null where they are left out."""
    if bounds is None:
        return b"\0", b"\0"
    number = _id_of(schema, bounds.field.name)
    one, other = (_bound(values, number) for values in bounds.values())
    return one, other


def _bound(values: pa.Array, number: int) -> pa.Array:
    if pa.types.is_large_string(values.type) or pa.types.is_string(values.type):
        bodies = values.cast(pa.large_binary())
    else:
        bodies = _little_endian(values)
    known = values.is_valid()
    none = pa.scalar(b"", pa.large_binary())
    encoded = joined_bytes(
        [b"\x02" + long_bytes(1) + long_bytes(number), sized(pc.coalesce(bodies, none)), b"\0"]
    )
    return pc.if_else(known, encoded, pa.scalar(b"\0", pa.large_binary()))


def _little_endian(values: pa.Array) -> pa.Array:
    """Return the bytes of numbers, days and microseconds; of nulls any."""
    size = values.type.bit_width // 8
    plain = values.view(pa.int32() if size == 4 else pa.int64()).fill_null(0)
    body = np.ascontiguousarray(plain.to_numpy(zero_copy_only=False)).tobytes()
    fixed = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(size), len(values), [None, pa.py_buffer(body)]
    )
    return fixed.cast(pa.binary()).cast(pa.large_binary())


def _parts(files: pa.Table) -> Iterator[pa.Table]:
    """Cut files into parts by their names alone, so that a change of a file changes its part."""
    names = one_array(files["filename"])
    ends = pc.utf8_slice_codeunits(names, -16, -8)  # random, for names that end with .parquet
    padded = pc.utf8_lpad(ends, _NAME_BYTES, " ").cast(pa.large_binary())
    cut = pc.binary_length(padded)
    if not pc.all(pc.equal(cut, _NAME_BYTES)).as_py():  # letters of several bytes
        other = pa.scalar(_NO_LETTERS.encode(), pa.large_binary())
        padded = pc.if_else(pc.equal(cut, _NAME_BYTES), padded, other)
    numbers = np.frombuffer(bytes_of(padded), np.uint64) * _MIX
    last = np.flatnonzero((numbers >> np.uint64(40)) & _CUT_MASK == 0) + 1
    start = 0
    for end in [*last.tolist(), files.num_rows]:
        if end > start:
            yield files.slice(start, end - start)
        start = end


def _digest(table: PublishedTable, files: pa.Table) -> str:
    """Return a digest of what a manifest would list."""
    found = sha256(json.dumps([table.url, table.schema.to_json()]).encode())
    for name in ("filename", "keys"):
        column = one_array(files[name]).cast(pa.large_string())
        found.update(bytes_of(pc.fill_null(column, "")))
    for name in ("row_count", "size_bytes", "sequence"):
        found.update(one_array(files[name]).to_numpy(zero_copy_only=False).tobytes())
    return found.hexdigest()[:32]


# ---------------------------------------------------------------- versions


class IcebergLog:
    """The Iceberg metadata of one table (`PublishedLog`).

    Args:
        files: The table's folder.
    """

    def __init__(self, files: Objects) -> None:
        self._files = files

    def newest(self) -> PublishedVersion | None:
        """Return the newest version; None before the first."""
        version = max((each.version for each in self.versions()), default=None)
        if version is None:
            return None
        body = self._files.read(_key(version))
        try:
            summary = json.loads(body or b"")["snapshots"][0]["summary"]
            return PublishedVersion(
                version=version,
                transaction=int(summary["sleeper.transaction"]),
                described=str(summary["sleeper.described"]),
                since_base=0,
                base=version,
                totals=FileTotals(
                    files=int(summary["total-data-files"]),
                    size_bytes=int(summary["total-files-size"]),
                    rows=int(summary["total-records"]),
                ),
            )
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise DataDamaged(
                f"{_key(version)} is not what Sleeper wrote ({error!r}): something else wrote to "
                "the published table. Unpublish it, and publish it again."
            ) from None

    def names(self, version: PublishedVersion) -> pa.Array:
        """Return the names of the data files of a version, in any order."""
        import polars as pl  # noqa: PLC0415 - slow to import, and only this needs it

        found = [pa.array([], pa.large_string())]
        for key, _ in self._manifests(_list_key(version)).values():
            paths = pl.read_avro(
                BytesIO(stored_body(self._files, key)), columns=["data_file"]
            ).to_series()
            texts = paths.struct.field("file_path").to_arrow().cast(pa.large_string())
            inside = pc.extract_regex(texts, r"(?P<name>data/[^/]+/[^/]+)$")
            found.append(pc.struct_field(inside, "name").cast(pa.large_string()))
        return pa.concat_arrays(found)

    def publish(
        self, table: PublishedTable, before: PublishedVersion | None, new: NewVersion
    ) -> PublishedVersion | None:
        """Publish the version after `before`; None if another publisher was faster."""
        version = PublishedVersion(
            version=PublishedVersion.number_after(before),
            transaction=new.transaction,
            described=self.described_by(table),
            since_base=0,
            base=PublishedVersion.number_after(before),
            totals=new.totals,
        )
        try:
            known = {} if before is None else self._manifests(_list_key(before))
        except DataDamaged:
            return None  # it was removed meanwhile
        listed, records = {}, []
        for part in _parts(new.files()):
            digest = _digest(table, part)
            if (manifest := known.get(digest)) is None:
                body = _manifest(table, part)
                manifest = (f"{FOLDER}{version.version + 1:09}-{digest}.avro", len(body))
                self._files.put(manifest[0], body)
            listed[digest] = manifest
            records.append(_listed(table, manifest, part, version))
        key = _list_key(version)
        metadata = {"format-version": "2", "sleeper.manifests": json.dumps(listed)}
        encoded = pa.array(records, pa.large_binary())
        self._files.put(key, avro_file(_MANIFEST_FILE, metadata, encoded))
        told = json.dumps(_metadata(table, version, new, f"{_path(table.url)}/{key}"))
        if not self._files.create(_key(version.version), told.encode()):
            return None
        try:
            self._files.put(_HINT, str(version.version + 1).encode())
        except SleeperError as failure:
            _log.warning("readers of the folder see the version before: %s", failure)
        return version

    def described_by(self, table: PublishedTable) -> str:
        """Return a digest of what a version tells of its table besides files."""
        told = [_path(table.url), _schema(table.schema), _sort_order(table.schema)]
        return sha256(json.dumps(told).encode()).hexdigest()[:16]

    def location(self, table: PublishedTable) -> str:
        """Return the folder that readers of folders open; others take its newest metadata."""
        return f"{_path(table.url)}/iceberg"

    def is_there(self, version: PublishedVersion) -> bool:
        """Return true: `publish` finds out."""
        return True

    def complete(self, version: PublishedVersion) -> None:
        """Let the hint say which version is the newest, if it does not."""
        hint = str(version.version + 1).encode()
        if self._files.read(_HINT) != hint:
            self._files.put(_HINT, hint)

    def versions(self) -> list[StoredVersion]:
        """Return the versions that can be opened, the oldest first."""
        infos = self._files.listing(f"{FOLDER}v")
        matches = ((_VERSION.fullmatch(info.key), info.modified) for info in infos)
        found = [StoredVersion(int(match[1]) - 1, at) for match, at in matches if match is not None]
        return sorted(found, key=lambda each: each.version)

    def forget(self, before: int) -> int:
        """Delete versions before one, with lists and manifests that no later version names."""
        versions = [each.version for each in self.versions()]
        old = [each for each in versions if each < before]
        needed = {key for each in versions if each >= before for key in self._objects_of(each)}
        gone = {key for each in old for key in self._objects_of(each)} - needed
        keys = [*map(_key, old), *gone]
        self._files.delete(keys)
        return len(keys)

    def remove(self) -> int:
        """Delete all metadata; return how many objects that were."""
        keys = [info.key for info in self._files.listing(FOLDER)]
        self._files.delete(sorted(keys, key=lambda key: not key.startswith(f"{FOLDER}v")))
        return len(keys)

    def _objects_of(self, version: int) -> list[str]:
        """Return the list and the manifests of a version; none if it cannot be read any more."""
        try:
            listed = self._list_of(version)
            return [listed, *(key for key, _ in self._manifests(listed).values())]
        except DataDamaged:
            return []

    def _list_of(self, version: int) -> str:
        try:
            path = json.loads(stored_body(self._files, _key(version)))["snapshots"][0][
                "manifest-list"
            ]
            return FOLDER + str(path).rpartition("/")[2]
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise DataDamaged(f"{_key(version)} is not what Sleeper wrote ({error!r})") from None

    def _manifests(self, key: str) -> dict[str, tuple[str, int]]:
        """Return the keys and lengths of the manifests in a list, by their digests."""
        try:
            listed = json.loads(file_metadata(stored_body(self._files, key))["sleeper.manifests"])
            return {str(digest): (str(name), int(size)) for digest, (name, size) in listed.items()}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataDamaged(f"{key} is not what Sleeper wrote ({error!r})") from None


def _listed(
    table: PublishedTable, manifest: tuple[str, int], part: pa.Table, version: PublishedVersion
) -> bytes:
    """Return a record of a list of manifests, in the order of `_MANIFEST_FILE`."""
    key, size = manifest
    rows = pc.sum(part["row_count"]).as_py()
    last, first = pc.max(part["sequence"]).as_py(), pc.min(part["sequence"]).as_py()
    numbers = [size, 0, 0, last, first, version.transaction, 0, part.num_rows, 0, 0, rows, 0]
    path = sized_bytes(f"{_path(table.url)}/{key}".encode())
    return path + b"".join(map(long_bytes, numbers)) + b"\x02\0"


def _sort_order(schema: Schema) -> dict[str, Any]:
    return {
        "order-id": 1,
        "fields": [
            {
                "transform": "identity",
                "source-id": _id_of(schema, field.name),
                "direction": "asc",
                "null-order": "nulls-first",
            }
            for field in schema.keys
        ],
    }


def _metadata(
    table: PublishedTable, version: PublishedVersion, new: NewVersion, manifest_list: str
) -> dict[str, Any]:
    at_ms = int(new.at.timestamp() * 1000)
    schema, mapping, last_id = _schema(table.schema)
    digest = sha256(f"sleeper table {table.table_id}".encode()).digest()
    snapshot = {
        "snapshot-id": new.transaction,
        "sequence-number": new.transaction,
        "timestamp-ms": at_ms,
        "manifest-list": manifest_list,
        "schema-id": table.schema.number - 1,
        "summary": {
            "operation": "overwrite",
            "total-data-files": str(version.totals.files),
            "total-files-size": str(version.totals.size_bytes),
            "total-records": str(version.totals.rows),
            "total-delete-files": "0",
            "sleeper.transaction": str(version.transaction),
            "sleeper.described": version.described,
        },
    }
    return {
        "format-version": 2,
        "table-uuid": str(UUID(bytes=digest[:16], version=4)),
        "location": f"{_path(table.url)}/iceberg",
        "last-sequence-number": new.transaction,
        "last-updated-ms": at_ms,
        "last-column-id": last_id,
        "current-schema-id": table.schema.number - 1,
        "schemas": [schema],
        "default-spec-id": 0,
        "partition-specs": [{"spec-id": 0, "fields": []}],
        "last-partition-id": 999,
        "default-sort-order-id": 1,
        "sort-orders": [{"order-id": 0, "fields": []}, _sort_order(table.schema)],
        "properties": {
            "comment": "Published by Sleeper. Do not write to it, and expire nothing.",
            "schema.name-mapping.default": json.dumps(mapping),
            "gc.enabled": "false",
        },
        "current-snapshot-id": new.transaction,
        "refs": {"main": {"snapshot-id": new.transaction, "type": "branch"}},
        "snapshots": [snapshot],
        "snapshot-log": [{"snapshot-id": new.transaction, "timestamp-ms": at_ms}],
        "metadata-log": [],
    }


def _key(version: int) -> str:
    return f"{FOLDER}v{version + 1}.metadata.json"


def _list_key(version: PublishedVersion) -> str:
    return f"{FOLDER}snap-{version.version + 1:09}-{version.transaction}.avro"


# ---------------------------------------------------------------- schemas of Avro


def _field(name: str, number: int, kind: Any) -> dict[str, Any]:
    return {"name": name, "field-id": number, "type": kind}


def _optional(name: str, number: int, kind: Any) -> dict[str, Any]:
    return {"name": name, "field-id": number, "type": ["null", kind], "default": None}


def _map(name: str, number: int, key: int, value: int, kind: str) -> dict[str, Any]:
    entry = {
        "type": "record",
        "name": f"k{key}_v{value}",
        "fields": [_field("key", key, "int"), _field("value", value, kind)],
    }
    return _optional(name, number, {"type": "array", "logicalType": "map", "items": entry})


_ENTRY: Final[Mapping[str, Any]] = {
    "type": "record",
    "name": "manifest_entry",
    "fields": [
        _field("status", 0, "int"),
        _optional("snapshot_id", 1, "long"),
        _optional("sequence_number", 3, "long"),
        _optional("file_sequence_number", 4, "long"),
        _field(
            "data_file",
            2,
            {
                "type": "record",
                "name": "r2",
                "fields": [
                    _field("content", 134, "int"),
                    _field("file_path", 100, "string"),
                    _field("file_format", 101, "string"),
                    _field("partition", 102, {"type": "record", "name": "r102", "fields": []}),
                    _field("record_count", 103, "long"),
                    _field("file_size_in_bytes", 104, "long"),
                    _map("value_counts", 109, 119, 120, "long"),
                    _map("null_value_counts", 110, 121, 122, "long"),
                    _map("lower_bounds", 125, 126, 127, "bytes"),
                    _map("upper_bounds", 128, 129, 130, "bytes"),
                    _optional("sort_order_id", 140, "int"),
                ],
            },
        ),
    ],
}

_MANIFEST_FILE: Final[Mapping[str, Any]] = {
    "type": "record",
    "name": "manifest_file",
    "fields": [
        _field("manifest_path", 500, "string"),
        _field("manifest_length", 501, "long"),
        _field("partition_spec_id", 502, "int"),
        _field("content", 517, "int"),
        _field("sequence_number", 515, "long"),
        _field("min_sequence_number", 516, "long"),
        _field("added_snapshot_id", 503, "long"),
        _field("added_files_count", 504, "int"),
        _field("existing_files_count", 505, "int"),
        _field("deleted_files_count", 506, "int"),
        _field("added_rows_count", 512, "long"),
        _field("existing_rows_count", 513, "long"),
        _field("deleted_rows_count", 514, "long"),
        _optional(
            "partitions",
            507,
            {
                "type": "array",
                "element-id": 508,
                "items": {
                    "type": "record",
                    "name": "r508",
                    "fields": [
                        _field("contains_null", 509, "boolean"),
                        _optional("contains_nan", 518, "boolean"),
                        _optional("lower_bound", 510, "bytes"),
                        _optional("upper_bound", 511, "bytes"),
                    ],
                },
            },
        ),
    ],
}
