"""One table of any schema, written to and changed by chance, beside a plain model of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sleeper
from sleeper.engine.arrow_schema import to_arrow
from sleeper.engine.reading import few_rows, small_files, verified_pages
from sleeper.engine.sql import session
from sleeper.errors import BadRequest, QueryInvalid, SchemaInvalid
from sleeper.lookup.parquet import mini_file
from sleeper.model.processing import Processing, parse_processing
from sleeper.model.schema import DecimalType, Field, MapType, Primitive, Schema
from sleeper.tables import upsert
from sleeper.tables.deletions import keys as deleted_keys
from tests.random_tables.questions import check_answers, inside, random_request
from tests.random_tables.random_values import ValueSource, random_schema
from tests.random_tables.table_model import (
    Row,
    SumTooLarge,
    TableModel,
    comparable_rows,
)

FUNCTIONS = "tests.random_tables.functions"
YEAR_MS = 365 * 86_400_000
_NUMBERS = (Primitive.INT, Primitive.LONG, Primitive.FLOAT, Primitive.DOUBLE)
_UNORDERED = (Primitive.BOOLEAN,)


@dataclass(kw_only=True)
class RandomTable:
    """A table and its model.

    Attributes:
        pick: Where chance comes from.
        folder: The instance's, and of files beside it.
        schema, processing: The table's.
        source: Where values come from.
        model: What should be in it.
        log: What was done, to be shown when it goes wrong.
        versions: Rows of some transactions.
        in_folder: Whether the instance must be in a folder; else chance decides.
    """

    pick: Random
    folder: Path
    schema: Schema
    properties: dict[str, str]
    processing: Processing
    source: ValueSource
    model: TableModel
    log: list[str] = field(default_factory=list)
    versions: dict[int, list[Row]] = field(default_factory=dict)
    serial: int = 0
    in_folder: bool = False

    def __post_init__(self) -> None:
        in_folder = self.pick.random() < 0.3 or self.in_folder
        url = str(self.folder / "instance") if in_folder else "memory://"
        self.instance = sleeper.connect(url, create=True, allow_functions=[FUNCTIONS])
        self.table = self.instance.create_table(
            "t", self.schema, properties=self.properties, split_points=self._split_points()
        )

    def _split_points(self) -> list[Any]:
        points = {
            self.source.key(self.schema.row_keys[0].type)
            for _ in range(self.pick.choice((0, 0, 3)))
        }
        least = sleeper.model.keys.smallest_value(self.schema.row_keys[0].type)
        return sorted(points - {least})

    def step(self) -> None:
        """Do one thing at random."""
        do: Callable[[], None] = self.pick.choices(
            (
                *(self._ingest, self._upsert, self._delete, self._delete_where),
                *(self._compact, self._split, self._merge, self._reopen, self._again),
            ),
            (6, 2, 2, 1, 2, 2, 1, 1, 1),
        )[0]
        self.log.append(do.__name__)
        do()

    def check(self) -> None:
        """Compare what the table answers with the model."""
        self.versions[self.table.refresh()] = self.model.shown()
        check_answers(self.pick, self.table, self.source, self.model.shown())
        number = self.pick.choice([*self.versions])
        found = self.table.query(as_of=number).to_pylist()
        assert Counter(comparable_rows(found)) == Counter(comparable_rows(self.versions[number]))

    def verify(self) -> None:
        """Find nothing wrong with what is stored."""
        assert self.table.verify().findings == ()

    def check_export(self) -> None:
        """Export the table, and ingest that into another one."""
        target = self.folder / "exported"
        rows = self.model.shown()
        exported = self.table.export(target)
        assert exported.rows == len(rows)
        other = self.instance.create_table("other", self.schema)
        other.ingest(target)
        check_answers(self.pick, other, self.source, rows)

    def _rows(self) -> list[Row]:
        pick, rows = self.pick, []
        for _ in range(pick.choice((0, 1, 30, 200))):
            row = {each.name: self.source.key(each.type) for each in self.schema.keys}
            for each in self.schema.values:
                is_null = each.nullable and pick.random() < 0.3
                row[each.name] = None if is_null else self.source.value(each.type)
            if self.processing.kept_end:
                self.serial += 1  # no two rows come at the same place in their group
                row[self.schema.sort_keys[0].name] = self.serial * pick.choice((-1, 1))
            rows.append(row)
        return rows

    def _ingest(self) -> None:
        rows = self._rows()
        pick = self.pick.randrange(3)
        data: Any = rows
        if pick:
            data = arrow_table(rows, self.schema)
        if pick == 2:
            self.serial += 1
            data = self.folder / f"input-{self.serial}.parquet"
            pq.write_table(arrow_table(rows, self.schema), data)
        self.log.append(f"{len(rows)} rows")
        try:
            self.model.ingest(rows)
        except SumTooLarge:
            self._refuse(data)
            return
        self.table.ingest(data)

    def _refuse(self, data: Any) -> None:
        try:
            self.table.ingest(data)
        except SchemaInvalid:
            return
        raise AssertionError("a sum that is too large was not refused")

    def _again(self) -> None:
        """A job that is run again changes nothing."""
        try:
            rows = self._rows()
            self.model.ingest(rows)
        except SumTooLarge:
            return
        data = arrow_table(rows, self.schema)
        self.serial += 1
        self.table.ingest(data, job_id=f"job {self.serial}")
        self.table.ingest(data, job_id=f"job {self.serial}")

    def _upsert(self) -> None:
        """Rows of new keys and of old ones, each once; as few keys, or as many."""
        rows = self._rows()
        known = self.model.shown()
        for row in self.pick.sample(rows, len(rows) // 2) if known else []:
            old = self.pick.choice(known)
            row |= {name: old[name] for name in self.schema.row_key_names}
        rows = [*{self._key(row, self.schema.key_names): row for row in rows}.values()]
        data = arrow_table(rows, self.schema)
        self.log.append(f"{len(rows)} rows")
        if self.processing.aggregations or self.processing.function:
            with pytest.raises(BadRequest):
                self.table.upsert(data)
            return
        self.model.upsert(rows)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(upsert, "REGIONS_MAX", self.pick.choice((0, 1_000)))
            self.table.upsert(data)

    def _delete(self) -> None:
        """Rows of some keys, as few or as many, or of ranges."""
        known, names = self.model.shown(), self.schema.row_key_names
        if self.pick.random() < 0.5:
            requests = [
                random_request(self.pick, self.schema, self.source, known)
                for _ in range(self.pick.choice((1, 3)))
            ]
            self.log.append(f"{requests}")
            try:
                self.table.delete(regions=requests)
            except QueryInvalid as error:
                if "reinitialise" in str(error):  # one has every key
                    return
                raise
            self.model.remove(lambda row: any(inside(row, request) for request in requests))
            return
        absent = {each.name: self.source.key(each.type) for each in self.schema.row_keys}
        some = self.pick.sample(known, min(len(known), self.pick.choice((1, 20, 200))))
        keys = {self._key(row, names) for row in [*some, absent]}
        given = [key if len(names) > 1 else key[0] for key in sorted(keys)]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(deleted_keys, "REGIONS_MAX", self.pick.choice((0, 1_000)))
            self.table.delete(keys=given)
        self.model.remove(lambda row: self._key(row, names) in keys)

    def _delete_where(self) -> None:
        """Rows that have a value, or have none."""
        if not self.schema.values:
            return
        name = self.pick.choice(self.schema.values).name
        nulls = self.pick.random() < 0.8
        self.log.append(f"{name}, {nulls}")
        self.table.delete(where=f'"{name}" IS {"" if nulls else "NOT "}NULL')
        self.model.remove_shown(lambda row: (row[name] is None) == nulls)

    @staticmethod
    def _key(row: Row, names: Sequence[str]) -> tuple[Any, ...]:
        return tuple(row[name] for name in names)

    def _compact(self) -> None:
        summary = self.table.compact(all_files=self.pick.random() < 0.6)
        failures = [job.failure for job in summary.jobs if job.failure is not None]
        assert failures == []

    def _split(self) -> None:
        self.table.split_partitions()

    def _merge(self) -> None:
        self.table.merge_partitions(rows_below=self.pick.choice((10, 40)))

    def _reopen(self) -> None:
        if self.instance.url.startswith("memory"):
            self.table.close()
        else:
            self.instance.close()
            self.instance = sleeper.connect(self.folder / "instance", allow_functions=[FUNCTIONS])
        self.table = self.instance.table("t")


def arrow_table(rows: list[Row], schema: Schema) -> pa.Table:
    """Rows as an Arrow table; maps from dicts."""
    maps = {each.name for each in schema.values if isinstance(each.type, MapType)}
    listed = [
        {
            name: [*value.items()] if name in maps and value is not None else value
            for name, value in row.items()
        }
        for row in rows
    ]
    return pa.Table.from_pylist(listed, to_arrow(schema))


def random_table(seed: int, folder: Path, *, in_folder: bool = False) -> RandomTable:
    """Return the table of a seed, which has no rows yet; within `bounds_as_they_were` alone."""
    pick = Random(seed)
    schema = random_schema(pick)
    schema, properties = _with_processing(pick, schema)
    schema = replace(schema, columns=pick.sample(schema.names, len(schema.names)))
    processing = parse_processing(
        *(properties.get(f"sleeper.table.{name}") for name in ("filters", "aggregations")),
        schema,
        properties.get("sleeper.table.function"),
    )
    source = ValueSource(
        pick,
        exact_numbers=bool(processing.aggregations),
        small_decimals=processing.function is not None,
    )
    verified_pages.FIRST_BYTES = pick.choice((1_000, 16 << 20))
    few_rows.FEW_ROWS = pick.choice((-1, 8_192))
    mini_file.MANY_ROWS = Random(seed).choice((1, 10_000))
    small_files.SMALL_JOB_BYTES = Random(seed + 1).choice((0, 32 << 20))
    return RandomTable(
        pick=pick,
        folder=folder,
        in_folder=in_folder,
        schema=schema,
        properties={**properties, **_layout(pick)},
        processing=processing,
        source=source,
        model=TableModel(schema, processing, datetime.now(UTC)),
    )


_BOUNDS = (
    (verified_pages, "FIRST_BYTES"),
    (few_rows, "FEW_ROWS"),
    (mini_file, "MANY_ROWS"),
    (small_files, "SMALL_JOB_BYTES"),
    (session, "PARTITIONS"),
)


@contextmanager
def bounds_as_they_were() -> Iterator[None]:
    """Leave no bound of a random table to the tests after it."""
    with pytest.MonkeyPatch.context() as patch:
        for module, name in _BOUNDS:
            patch.setattr(module, name, getattr(module, name))
        yield


def _layout(pick: Random) -> dict[str, str]:
    chosen = {
        "parquet.page.rows": pick.choice(("3", "20", "1000")),
        "parquet.rowgroup.rows.max": pick.choice(("10", "64", "32768")),
        "parquet.compression.codec": pick.choice(("zstd", "snappy", "uncompressed", "gzip")),
        "parquet.writer.version": pick.choice(("v1", "v2")),
        "parquet.bloom.filter": pick.choice(("true", "false")),
        "partition.splitting.threshold": pick.choice(("50", "120")),
        "ingest.file.writing.strategy": pick.choice(
            ("by_size", "one_file_per_leaf", "one_reference_per_leaf")
        ),
    }
    for kind in ("rowkey", "sortkey", "value"):
        chosen[f"parquet.dictionary.encoding.{kind}.fields"] = pick.choice(("true", "false"))
    return {f"sleeper.table.{name}": value for name, value in chosen.items()}


def _with_processing(pick: Random, schema: Schema) -> tuple[Schema, dict[str, str]]:
    """Choose filters, aggregations and a function that fit a schema, or a schema that fits them."""
    properties = {}
    aggregates = bool(schema.values) and pick.random() < 0.45
    operations: dict[str, str] = {}
    if aggregates:
        schema, operations = _with_aggregations(pick, schema)
        properties["sleeper.table.aggregations"] = ",".join(
            f"{operation}({name})" for name, operation in operations.items()
        )
    if pick.random() < 0.25:
        ageing = (Primitive.LONG, Primitive.DATE, Primitive.TIMESTAMP, Primitive.TIMESTAMP_NTZ)
        fields = [
            each.name
            for each in schema.fields
            if each.type in ageing and operations.get(each.name, "max") in ("min", "max")
        ]
        if fields:
            name, years = pick.choice(fields), pick.choice((3, 500))
            properties["sleeper.table.filters"] = f"ageOff({name},{years * YEAR_MS})"
    if pick.random() < 0.2:
        properties["sleeper.table.function"] = f"{FUNCTIONS}:keep_all"
    return schema, properties


def _with_aggregations(pick: Random, schema: Schema) -> tuple[Schema, dict[str, str]]:
    end = pick.choice(("first", "last")) if schema.sort_keys and pick.random() < 0.4 else None
    operations = {each.name: _operation(pick, each, end) for each in schema.values}
    values = tuple(
        each if operations[each.name] in ("first", "last", "count") else Field(each.name, each.type)
        for each in schema.values
        if operations[each.name]
    )
    sort_keys = schema.sort_keys
    if end is not None:
        sort_keys = (Field(sort_keys[0].name, Primitive.LONG), *sort_keys[1:])
    kept = Schema(row_keys=schema.row_keys, sort_keys=sort_keys, values=values)
    return kept, {name: operation for name, operation in operations.items() if operation}


def _operation(pick: Random, each: Field, end: str | None) -> str:
    """An operation for a field; empty where there is none."""
    kind = each.type
    choices = [end] if end else []
    if isinstance(kind, MapType):
        if isinstance(kind.value, DecimalType) or kind.value in _NUMBERS:
            choices += ["map_sum", "map_min", "map_max"]
    elif isinstance(kind, DecimalType) or kind in _NUMBERS:
        choices += ["sum", "min", "max"]
        choices += ["count"] if kind in (Primitive.INT, Primitive.LONG) else []
    elif isinstance(kind, Primitive) and kind not in _UNORDERED:
        choices += ["min", "max"]
    return pick.choice(choices) if choices else ""
