"""A stand-in for the row engine: data files are short lists of rows as JSON, with ids of columns.

State, operations and plans are what is simulated; they call the engine by a few names, which lead
here while a simulation runs. Every file that is read is one storage call. Conditions are SQLite's.
"""

from __future__ import annotations

import heapq
import json
import sqlite3
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sleeper.engine.arrow_schema import fields_in_files
from sleeper.engine.reading import few_rows
from sleeper.engine.reading.file_rows import FileRows
from sleeper.engine.reading.left_out_keys import LeftOutKeys
from sleeper.engine.reading.merged_scan import FileSlice, Scanner
from sleeper.engine.reading.verified_pages import VerifiedPages
from sleeper.engine.rows import Rows
from sleeper.engine.sketches import leaf_keys
from sleeper.engine.sketches.sketch import Sketches
from sleeper.engine.sketches.stored_sketch import SketchBuilder, read_sketches
from sleeper.engine.writing import compaction_output, data_file, leaf_files
from sleeper.engine.writing.data_file import WrittenFile
from sleeper.errors import DataDamaged, ObjectNotFound, QueryInvalid
from sleeper.lookup.reader import LookupReader
from sleeper.model.files import FileReference
from sleeper.model.schema import Schema
from sleeper.model.schema_changes import with_ids
from sleeper.state.plans import compactions
from sleeper.state.transactions import deletes
from sleeper.tables import push_down, upsert
from sleeper.tables.deletions import keys as deleted_keys
from sleeper.tables.deletions import regions as deleted_regions
from sleeper.tables.deletions import where as deleted_where
from sleeper.tables.purges import search
from sleeper.tables.purges.search import Search
from sleeper.tables.read_rows import query_regions
from sleeper.tables.table_version import TableVersion

REGIONS_MAX = 6
"""So many keys are deleted by an entry; in reality 1,000."""

Row = tuple[Any, ...]


Fields = Sequence[tuple[int, Any]]
"""Ids of columns, and what their rows have in files without them."""


def body_of(rows: Sequence[Row], schema: Schema) -> bytes:
    """Return a data file of the stand-in engine."""
    return json.dumps([[each for each, _ in fields_of(schema)], rows]).encode()


def rows_of(body: bytes, fields: Fields | None = None) -> list[Row]:
    """Return the rows of a data file with some columns; with its own ones without them."""
    ids, rows = json.loads(body)
    if fields is None:
        return [tuple(row) for row in rows]
    found = [(ids.index(each) if each in ids else None, default) for each, default in fields]
    return [tuple(default if at is None else row[at] for at, default in found) for row in rows]


@lru_cache(maxsize=100)
def fields_of(schema: Schema) -> Fields:
    """Return the columns of a schema; the first schema of a table has no ids."""
    known = fields_in_files(with_ids(schema)) or {}
    return [(each.id, each.default.as_py()) for each in known.values()]


def rows_of_table(table: pa.Table | pa.RecordBatch) -> list[Row]:
    return [*zip(*(column.to_pylist() for column in table.columns), strict=True)]


def table_of(rows: Sequence[Row], schema: pa.Schema) -> pa.Table:
    columns = zip(*rows, strict=True) if rows else [()] * len(schema)
    arrays = [pa.array(list(c), of.type) for c, of in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


class StandInWriter:
    """A data file that is written: the rows in key order."""

    def __init__(self, output: Any, schema: Schema, arrow_schema: pa.Schema, settings: Any) -> None:
        self._output = output
        self._rows: list[Row] = []
        self._schema = schema

    def __enter__(self) -> StandInWriter:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def add(self, rows: pa.Table) -> None:
        self._rows += rows_of_table(rows)

    def close(self) -> WrittenFile:
        keys = [row[: len(self._schema.key_names)] for row in self._rows]
        assert keys == sorted(keys)
        body = body_of(self._rows, self._schema)
        self._output.write(body)
        first, last = (self._rows[n][:1] if self._rows else () for n in (0, -1))
        return WrittenFile(
            row_count=len(self._rows),
            first_key=first,
            last_key=last,
            size_bytes=len(body),
        )


def sort_into_groups(
    batches: Any, arrow_schema: pa.Schema, *, key_names: Any, bounds: Sequence[Any], **_: Any
) -> Iterator[tuple[int, Iterator[pa.Table]]]:
    """Sort all rows, and cut them where groups of leaves meet."""
    rows = sorted(row for batch in batches for row in rows_of_table(batch))
    places: dict[int, list[Row]] = {}
    for row in rows:
        places.setdefault(bisect_right(list(bounds), row[0]), []).append(row)
    for place, here in places.items():
        yield place, iter([table_of(here, arrow_schema)])


def read_file(files: Any, filename: str, fields: Fields | None = None) -> list[Row]:
    body = files.read(filename)
    if body is None:
        raise DataDamaged(f"data file {filename!r} is missing")
    return rows_of(body, fields)


def read_stored_sketch(files: Any, reference: FileReference, schema: Schema) -> Sketches:
    """Make a sketch of the rows of a file."""
    builder = SketchBuilder(schema)
    names = schema.row_key_names
    for row in read_file(files, reference.filename):
        builder.add(pa.table({name: [row[place]] for place, name in enumerate(names)}))
    return read_sketches(builder.to_bytes(), schema, reference.filename)


def verify_pages(reader: LookupReader, filename: str) -> Any:
    return SimpleNamespace(row_count=len(read_file(reader._files, filename)))


def merge(
    scanner: Scanner, slices: Sequence[FileSlice], columns: Sequence[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """Merge files in key order, one batch for each key."""
    schema, wide = scanner._arrow_schema, len(scanner._schema.key_names)
    fields = fields_of(scanner._schema)
    places = [schema.names.index(name) for name in columns or schema.names]
    shown = pa.schema([schema.field(place) for place in places])

    def batches() -> Iterator[pa.RecordBatch]:
        files = []
        for part in slices:
            rows = read_file(part.url.objects, part.url.key, fields)
            regions = part.regions
            rows = [r for r in rows if not regions or any((r[0],) in g for g in regions)]
            gone = set() if part.keys_out is None else keys_of(part.keys_out)
            files.append([row for row in rows if row[0] not in gone])
        rows = list(heapq.merge(*files, key=lambda row: row[:wide]))
        if rows:
            picked = [[row[place] for place in places] for row in rows]
            yield from table_of(picked, shown).to_batches()

    return batches()


def keys_of(keys: LeftOutKeys) -> set[Any]:
    """Return the keys of the files whose keys a reader leaves out of others."""
    every = [read_file(keys.lookup._files, name) for name in keys.filenames]
    return {row[0] for rows in every for row in rows}


def check(reader: LookupReader, filenames: Any) -> None:
    """Look at the end of each file, in an order that does not depend on hashes."""
    for filename in sorted(filenames):
        read_file(reader._files, filename)


def look_up(
    reader: LookupReader,
    filenames: Sequence[str],
    keys: pa.RecordBatch,
    schema: pa.Schema,
    columns: Sequence[str] | None = None,
) -> list[pa.Table]:
    asked = set(keys.column(0).to_pylist())
    fields: Fields = [(number, None) for number in range(1, 1 + len(schema))]
    if reader._fields is not None:
        known = [reader._fields[name] for name in schema.names]
        fields = [(each.id, each.default.as_py()) for each in known]
    every = [read_file(reader._files, name, fields) for name in filenames]
    found = [[row for row in rows if row[0] in asked] for rows in every]
    return [table_of(rows, schema).select(list(columns or schema.names)) for rows in found]


def read_files(
    reading: FileRows,
    regions_by_file: Iterable[str],
    columns: Any,
    left_out: list[str],
    keys_out: Any,
) -> Iterator[pa.RecordBatch]:
    """Leave each file to the scanner."""
    left_out += regions_by_file
    return iter(())


def count_files(
    reading: FileRows, regions_by_file: Iterable[str], left_out: list[str], keys_out: Any
) -> int:
    """Leave each file to the scanner."""
    left_out += regions_by_file
    return 0


def query_where(
    version: TableVersion,
    where: str,
    *,
    regions: Sequence[Any],
    columns: Sequence[str],
    ordered: bool = True,
) -> Rows:
    """Return the rows of regions that meet a condition."""
    reading, state = version.reading, version.state
    schema = pa.schema([reading.arrow_schema.field(name) for name in columns])

    def batches() -> Iterator[pa.RecordBatch]:
        every = query_regions(reading, state, regions, None, version.now_ms).to_arrow()
        yield from every.select(columns).take(_places(every, where)).to_batches()

    return Rows(batches(), schema, state.number)


class StandInFile:
    """A data file as a search for purged keys reads it."""

    def __init__(self, files: Any, key: str, schema: Schema, arrow_schema: pa.Schema) -> None:
        rows = read_file(files, key, fields_of(schema))
        self.rows = table_of(rows, arrow_schema)
        self.schema_arrow = arrow_schema


def parquet(search: Search, files: Any, key: str) -> Any:
    """Open a file that a search decodes, by one call; the parts of a state are those of reality."""
    if not key.startswith("data/"):
        if (body := files.read(key)) is None:
            raise ObjectNotFound(f"{key} is missing")
        return pq.ParquetFile(pa.BufferReader(body))
    table = search._table
    try:
        return StandInFile(files, key, table.schema, table.arrow_schema)
    except DataDamaged as gone:
        raise ObjectNotFound(str(gone)) from gone


def rows_in(search: Search, file: Any, columns: list[str] | None, key: str) -> Iterator[pa.Table]:
    if not isinstance(file, StandInFile):
        return ROWS(search, file, columns, key)
    return iter([file.rows if columns is None else file.rows.select(columns)])


def search_table(search: Search, before: int) -> Any:
    """Note when the search begins: what is stored later was not searched."""
    life = search._table.files._life
    life.busy_with.searched_from = life.world.now
    return SEARCH_TABLE(search, before)


ROWS, SEARCH_TABLE = Search._rows, Search.search_table


def _places(rows: pa.Table, where: str) -> pa.Array:
    """Return which rows meet a condition."""
    with closing(sqlite3.connect(":memory:")) as engine:
        engine.execute(f"CREATE TABLE t ({', '.join(rows.column_names)})")
        marks = ", ".join("?" * rows.num_columns)
        engine.executemany(f"INSERT INTO t VALUES ({marks})", rows_of_table(rows))
        try:
            found = engine.execute(f"SELECT rowid - 1 FROM t WHERE {where}\nORDER BY 1")
        except sqlite3.OperationalError as error:
            raise QueryInvalid(str(error)) from error
        return pa.array([place for (place,) in found], pa.int64())


def in_turn(run, items, *_, **__):
    """Calls one after the other, where the engine would use threads."""
    return (run(each) for each in items)


PLACES: tuple[tuple[Any, str, Any], ...] = (
    (leaf_files, "DataFileWriter", StandInWriter),
    (data_file, "DataFileWriter", StandInWriter),
    (compaction_output, "verify_pages", verify_pages),
    (
        compaction_output,
        "verify_region",
        lambda reader, filename, *_: read_file(reader._files, filename),
    ),
    (push_down, "read_stored_sketch", read_stored_sketch),
    (leaf_keys, "read_stored_sketch", read_stored_sketch),
    (leaf_keys, "run_ahead", in_turn),
    (push_down, "run_ahead", in_turn),
    (leaf_files, "sort_into_groups", sort_into_groups),
    (compaction_output, "taken_ahead", lambda items, *_, **__: items),
    (few_rows, "read_few_rows", lambda *_, **__: None),
    (deleted_where, "query_where", query_where),
    *(
        (place, "REGIONS_MAX", REGIONS_MAX)
        for place in (deleted_keys, deleted_regions, deletes, upsert)
    ),
    (compactions, "REGIONS_MAX", 2 * REGIONS_MAX),
    (Search, "_parquet", parquet),
    (Search, "_rows", rows_in),
    (Search, "search_table", search_table),
    (search, "_end_of_pages", lambda _: 1 << 30),
    (search, "read_stored_sketch", lambda *_: None),
    (FileRows, "read_files", read_files),
    (FileRows, "count_files", count_files),
    (Scanner, "merge", merge),
    (VerifiedPages, "unchecked", lambda *_: None),
    (LookupReader, "check", check),
    (LookupReader, "inspect", lambda *_, **__: None),  # where columns lie in a file
    (LookupReader, "look_up", look_up),
)


@contextmanager
def stand_in_engine() -> Iterator[None]:
    """Let the names of the row engine lead here, for a while."""
    before = [(place, name, getattr(place, name)) for place, name, _ in PLACES]
    for place, name, ours in PLACES:
        setattr(place, name, ours)
    try:
        yield
    finally:
        for place, name, theirs in before:
            setattr(place, name, theirs)
