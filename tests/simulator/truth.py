"""What is true of a simulated table, said once more in plain lists and sets.

It sees each entry of the log and of the table index at the moment that it comes into being, and what
every party is told. A version of the table is the set of attempts whose rows it holds, without the
rows that were deleted, and the columns of then.

Where rows were written out of leaves, the files of the entry tell which ones went: rows that were
added while others were read may stay. No other row may go, and none that was there before may stay.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from hashlib import sha256
from math import inf
from typing import Any

from tests.simulator.stand_in_engine import rows_of

Row = tuple[int, int, str]
_ENTRY = re.compile(r"\w+/statestore/transactions/(\d{20})\.json")
_INDEX_ENTRY = re.compile(r"tables/index/\d{20}\.json")
_REGIONS = re.compile(r'"region":\[\[(\w+),(\w+)\]\]')
"""Limits of a partition, in an entry of format 1."""
_DATA_FILE = re.compile(r"data/partition_[^\"/]+/[^\"/]+\.parquet")


@dataclass
class Change:
    """One try to change the table by one call, and what was told of it.

    Attributes:
        denied: The error that said to somebody that nothing was changed; else "".
    """

    label: str
    denied: str = ""

    def opened(self, key: str) -> None:
        """See that a data file was begun."""


@dataclass
class Attempt(Change):
    """One try of a job: its rows, the files that it wrote, and what was told of it.

    Attributes:
        job: The job's id; None for work without one.
        rows: Each names the attempt.
        fills: What its rows have in added columns, by the names that the party knew.
        schema_min: The number of the newest schema when it began.
        values: Once it is committed, what its rows have in each column that the table had for it,
            by the column's id.
    """

    job: str | None = None
    rows: list[Row] = field(default_factory=list)
    fills: dict[str, str] = field(default_factory=dict)
    schema_min: int = 1
    files: set[str] = field(default_factory=set)
    values: dict[int, str | None] = field(default_factory=dict)

    def opened(self, key: str) -> None:
        self.files.add(key)


@dataclass
class Upsert(Attempt):
    """One try of a job whose rows come in place of those that have their keys."""

    def meets(self, values: Mapping[str, Any]) -> bool:
        return any(values["k"] == key for key, _, _ in self.rows)


@dataclass
class Deletion(Change):
    """One try to delete rows.

    Attributes:
        meets: Whether a row is to be deleted, by its values.
        after: The version that was the newest one when it began.
        number: The transaction that did it; 0 before.
        schema: The number of the schema whose names `meets` is asked with; 0 before.
    """

    meets: Callable[[Mapping[str, Any]], bool] = lambda values: False
    after: int = 0
    number: int = 0
    schema: int = 0


@dataclass
class Purging(Change):
    """One try to purge keys.

    Attributes:
        keys: The keys.
        searched_from: When it began to search all that is stored; None before.
    """

    keys: tuple[int, ...] = ()
    searched_from: datetime | None = None

    def meets(self, values: Mapping[str, Any]) -> bool:
        return values["k"] in self.keys


@dataclass(frozen=True)
class Column:
    """A column of the table, which its id names for ever.

    Attributes:
        default: What rows have that were written before it was there.
    """

    id: int
    name: str
    default: str | None = None


Columns = tuple[Column, ...]
BASE: Columns = (Column(1, "k"), Column(2, "n"), Column(3, "attempt"))


@dataclass
class Alteration(Change):
    """One try to change columns: some are dropped, then renamed, then added.

    Attributes:
        drop: Names.
        rename: New names by old ones.
        add: Defaults by name; None for none.
        schema: The number of the schema that came of it; 0 before.
    """

    drop: tuple[str, ...] = ()
    rename: dict[str, str] = field(default_factory=dict)
    add: dict[str, str | None] = field(default_factory=dict)
    schema: int = 0

    def after(self, columns: Columns, last_id: int) -> Columns:
        """The columns that it makes of some, if ids up to the last one were given before."""
        kept = [each for each in columns if each.name not in self.drop]
        renamed = [replace(each, name=self.rename.get(each.name, each.name)) for each in kept]
        added = [Column(last_id + n, *each) for n, each in enumerate(self.add.items(), 1)]
        return (*renamed, *added)


@dataclass(frozen=True)
class Version:
    """What the table is after one transaction.

    Attributes:
        attempts: Those whose rows were added.
        gone: Rows of theirs that were deleted.
        schema: The number of the newest schema in the log.
        format: That of the entry, and of those to come.
        digest: What the next entry must name; None where it names nothing.
    """

    attempts: frozenset[str] = frozenset()
    gone: frozenset[Row] = frozenset()
    schema: int = 0
    format: int = 1
    digest: str | None = None


@dataclass
class Truth:
    """One table: its versions, the attempts of all jobs, and when each version was replaced.

    Attributes:
        versions: What the table is after each transaction number.
        schemas: The columns of each schema, by its number; the newest is that of the table index.
        ended: When each version was replaced by the next one; none for the newest.
        keys_of: The least key of each partition, and the key that is above all of its keys.
        purging: The purges that run.
        purged: Versions before this one may have ended by a purge.
    """

    gc_delay: timedelta
    attempts: dict[str, Attempt] = field(default_factory=dict)
    versions: list[Version] = field(default_factory=lambda: [Version()])
    schemas: dict[int, Columns] = field(default_factory=lambda: {1: BASE})
    ended: list[datetime] = field(default_factory=list)
    committed_jobs: dict[str, int] = field(default_factory=dict)
    keys_of: dict[str, tuple[float, float]] = field(default_factory=dict)
    changes: int = 0
    purging: int = 0
    purged: int = 0

    def copy(self) -> Truth:
        """The same again; attempts that have ended are shared."""
        return replace(
            self,
            attempts={**self.attempts},
            versions=[*self.versions],
            schemas={**self.schemas},
            ended=[*self.ended],
            committed_jobs={**self.committed_jobs},
            keys_of={**self.keys_of},
        )

    @property
    def number(self) -> int:
        return len(self.versions) - 1

    @property
    def newest_schema(self) -> int:
        return max(self.schemas)

    def begin(
        self,
        job: str | None,
        keys: list[int],
        filled: Sequence[str] = (),
        kind: type[Attempt] = Attempt,
    ) -> Attempt:
        """Return a new attempt with a row for each key, and a value for each filled column."""
        label = f"{job or 'nameless'}/{len(self.attempts)}"
        rows = [(key, place, label) for place, key in enumerate(keys)]
        fills = {name: f"{name} of {label}" for name in filled}
        self.attempts[label] = attempt = kind(
            label, job=job, rows=rows, fills=fills, schema_min=self.newest_schema
        )
        return attempt

    def new_label(self, what: str) -> str:
        """Return a name for a change other than an attempt."""
        self.changes += 1
        return f"{what}/{self.changes}"

    # ------------------------------------------------------------ what happens

    def created(
        self,
        key: str,
        body: bytes,
        now: datetime,
        doing: Change | None,
        read: Callable[[str], bytes | None],
    ) -> None:
        """See an object come into being; entries of the table's log and of the index count.

        Args:
            key: The object's.
            body: The object's.
            now: When it is there.
            doing: What its writer was busy with.
            read: Returns the body of another object.
        """
        if _INDEX_ENTRY.fullmatch(key):
            self._see_record(json.loads(body)["change"]["table"], doing)
        found = _ENTRY.fullmatch(key)
        if found is None:
            return
        assert int(found[1]) == self.number + 1, f"{key} follows on {self.number}"
        first, _, second = body.partition(b"\n")
        document = json.loads(first)
        keys = json.loads(second)["keys"] if second else None
        version = self.versions[-1]
        assert document.get("prev") == version.digest, f"{key} is not chained to the one before"
        for transaction in document["transactions"]:
            self._see_partitions(transaction, keys)
            folder = key.partition("/")[0]
            entry = _Entry(doing, keys, lambda name: rows_of(read(f"{folder}/{name}") or b""))  # noqa: B023
            version = self._after(version, transaction, entry)
        assert document["format"] == max(version.format, self.versions[-1].format)
        digest = sha256(first).hexdigest() if version.format > 1 else None
        self.versions.append(replace(version, digest=digest))
        self.ended.append(now)
        for label in version.attempts - self.versions[-2].attempts:
            if isinstance(attempt := self.attempts[label], Upsert):
                left = {*self._met(attempt, self.rows(), version.schema)} - {*attempt.rows}
                assert not left, f"{attempt} has left {left}"
                gone = version.gone - self.versions[-2].gone
                others = gone - self._met(attempt, gone, version.schema)
                assert not others, f"{attempt} took {others} away"
        if isinstance(doing, Deletion) and doing.number == self.number:
            left = self._left_of(doing, doing.schema or version.schema, self.number)
            assert not left, f"{doing} has left {left}"

    def _after(self, version: Version, transaction: Any, entry: _Entry) -> Version:
        """Return what a table is after one transaction of an entry."""
        match transaction["type"]:
            case "ADD_FILES":
                added = self._added(transaction, entry)
                return replace(version, attempts=version.attempts | added)
            case "DELETE_KEYS":
                keys = self._keys_deleted(transaction, entry)
                gone = {row for row in self._rows_of(version) if row[0] in keys}
                return replace(version, gone=version.gone | gone)
            case "UPSERT_FILES":
                assert isinstance(entry.doing, Upsert), f"{entry.doing} has replaced rows"
                replaced = self._met(entry.doing, self._rows_of(version), version.schema)
                added = self._added(transaction, entry)
                attempts = version.attempts | added
                return replace(version, attempts=attempts, gone=version.gone | replaced)
            case "DELETE_ROWS":
                inside = self._deleted(transaction, entry)
                gone = {row for row in self._rows_of(version) if inside(row[0])}
                return replace(version, gone=version.gone | gone)
            case "REPLACE_FILE_REFERENCES":
                gone = self._left_out(version, transaction, entry)
                return replace(version, gone=version.gone | gone)
            case "SET_SCHEMA":
                number, columns = _columns_of(transaction["schema"])
                assert number == transaction["schemaId"] == version.schema + 1
                assert columns == self.schemas[number], f"schema {number} is another in the log"
                return replace(version, schema=number)
            case "SET_FORMAT":
                return replace(version, format=transaction["tableFormat"])
        return version

    def _see_partitions(self, transaction: Any, keys: list[int] | None) -> None:
        """Note the keys of partitions; a partition has the same ones for ever."""
        for group in ("partitions", "updatedPartitions", "newPartitions"):
            for each in transaction.get(group, ()):
                low, high = (_key(limit, keys) for limit in each["region"][0])
                known = self.keys_of.setdefault(each["partitionId"], (low, high))
                assert known == (low, high), f"{each} had other keys"

    def _see_record(self, record: Any, doing: Change | None) -> None:
        """See the table's record in the index, which has its newest schema."""
        number, columns = _columns_of(json.loads(record["properties"]["sleeper.table.schema"]))
        newest = self.newest_schema
        if number == newest:
            assert columns == self.schemas[number], f"schema {number} was changed"
            return
        assert number == newest + 1, f"schema {number} follows on {newest}"
        assert isinstance(doing, Alteration), f"{doing} has changed columns"
        assert not doing.schema, f"{doing} was made twice"
        assert not doing.denied, f"{doing} was made, and {doing.denied} denied it"
        last_id = max(each.id for known in self.schemas.values() for each in known)
        assert columns == doing.after(self.schemas[newest], last_id), f"{doing} made {columns}"
        self.schemas[number], doing.schema = columns, number

    def _added(self, transaction: Any, entry: _Entry) -> set[str]:
        """The attempt whose files an entry adds: all of them, once, and of a job once."""
        names = set(_DATA_FILE.findall(json.dumps(transaction)))
        if not names:
            return set()
        owners = [each for each in self.attempts.values() if each.files & names]
        assert len(owners) == 1, f"{names} were written by {owners}"
        (attempt,) = owners
        if isinstance(attempt, Upsert):  # it opened files for rows that stay as well
            there = sorted(row[:3] for name in names for row in entry.rows_in(name))
            assert there == sorted(attempt.rows), f"{attempt} is committed with rows {there}"
        else:
            assert names == attempt.files, f"{attempt} is committed in part: {names}"
        assert attempt.label not in self.versions[-1].attempts, f"{attempt} is committed twice"
        assert not attempt.denied, f"{attempt} is committed, and {attempt.denied} denied it"
        if attempt.job is not None:
            assert attempt.job not in self.committed_jobs, f"{attempt.job} is committed twice"
            self.committed_jobs[attempt.job] = self.number + 1
        (schema,) = {each["schemaId"] for each in transaction["references"]}
        assert schema >= attempt.schema_min, f"{attempt} has columns of before it began"
        attempt.values = {each.id: attempt.fills.get(each.name) for each in self.schemas[schema]}
        return {attempt.label}

    def _deleted(self, transaction: Any, entry: _Entry) -> Callable[[int], bool]:
        """The keys that an entry deletes: those that a deletion asked for, once."""
        doing = entry.doing
        assert isinstance(doing, Deletion | Upsert), f"{doing} has deleted rows"
        if isinstance(doing, Deletion):
            assert transaction["reason"] == doing.label
            self._see_deletion(doing)
        limits = [each["region"][0] for each in transaction["regions"]]
        ranges = [[_key(limit, entry.keys) for limit in each] for each in limits]

        def inside(key: int) -> bool:
            return any(low <= key < high for low, high in ranges)

        if isinstance(doing, Upsert):
            return inside
        wrong = [key for key in range(-1, 100) if inside(key) != doing.meets({"k": key})]
        assert not wrong, f"{doing} deletes {ranges}, which is wrong for {wrong}"
        return inside

    def _keys_deleted(self, transaction: Any, entry: _Entry) -> set[int]:
        """The keys of the files by which an entry deletes: those that a deletion asked for, once."""
        doing = entry.doing
        assert isinstance(doing, Deletion), f"{doing} has deleted rows"
        assert transaction["reason"] == doing.label
        self._see_deletion(doing)
        names = set(_DATA_FILE.findall(json.dumps(transaction)))
        keys = {row[0] for name in names for row in entry.rows_in(name)}
        wrong = [key for key in keys if not doing.meets({"k": key})]
        assert not wrong, f"{doing} deletes {wrong}"
        return keys

    def _left_out(self, version: Version, transaction: Any, entry: _Entry) -> set[Row]:
        """The rows of a leaf that new files do not have: of a compaction, none that was there."""
        output = transaction["newReference"]
        low, high = self.keys_of[output["partitionId"]]
        read = {row[:3] for name in transaction["inputFiles"] for row in entry.rows_in(name)}
        here = {row for row in self._rows_of(version) if low <= row[0] < high and row in read}
        kept = here & {row[:3] for row in entry.rows_in(output["filename"])}
        gone = here - kept
        doing = entry.doing
        if gone and isinstance(doing, Deletion) and doing.number != self.number + 1:
            self._see_deletion(doing)
            doing.schema = output["schemaId"]
        others = gone - self._met(doing, gone, output["schemaId"])
        assert not others, f"{doing} took {others} away"
        return gone

    def _see_deletion(self, doing: Deletion) -> None:
        assert not doing.number, f"{doing} is committed twice"
        assert not doing.denied, f"{doing} is committed, and {doing.denied} denied it"
        doing.number = self.number + 1

    def _met(self, doing: Change | None, rows: Iterable[Row], schema: int) -> set[Row]:
        """The rows that a change is to delete, if columns have the names of a schema."""
        if not isinstance(doing, Deletion | Upsert | Purging):
            return set()
        columns = self.schemas[schema]
        return {row for row in rows if doing.meets({c.name: self._value(row, c) for c in columns})}

    def _left_of(self, deletion: Deletion, schema: int, number: int) -> set[Row]:
        """The rows of a version that a deletion was to delete, and that were there before it."""
        return self._met(deletion, {*self.rows(deletion.after)} & {*self.rows(number)}, schema)

    def rows(self, number: int | None = None) -> list[Row]:
        """The rows of a version, without added columns; of the newest one without a number."""
        return self._rows_of(self.versions[-1 if number is None else number])

    def _rows_of(self, version: Version) -> list[Row]:
        every = (row for label in version.attempts for row in self.attempts[label].rows)
        return [row for row in every if row not in version.gone]

    # ------------------------------------------------------------ what is told

    def acknowledged(self, attempt: Attempt, result: Any) -> None:
        """Check what an ingest said that came to its end."""
        assert 0 < result.transaction <= self.number, f"{attempt}: {result}, of {self.number}"
        if result.already_committed:
            assert attempt.job is not None
            assert self.committed_jobs[attempt.job] == result.transaction
            assert attempt.label not in self.versions[-1].attempts
            attempt.denied = "a result"
            return
        now, before = self.versions[result.transaction], self.versions[result.transaction - 1]
        assert attempt.label in now.attempts, "an acknowledged job is lost"
        assert attempt.label not in before.attempts
        assert attempt.label in self.versions[-1].attempts

    def denies(self, change: Change, error: Exception) -> None:
        """Check an error that says the table is as it was."""
        change.denied = repr(error)
        match change:
            case Attempt():
                assert change.label not in self.versions[-1].attempts, f"{change} is there"
            case Deletion():
                assert not change.number, f"{change} is there"
            case Alteration():
                assert not change.schema, f"{change} is there"

    def deleted(self, deletion: Deletion, result: Any) -> None:
        """Check what a deletion said that came to its end."""
        number = result.transaction
        assert 0 < number <= self.number
        if deletion.number:
            assert deletion.number == number
            if result.rows is not None:  # as it read them: others may have deleted some since
                others = self.gone_between(deletion.after, number - 1)
                assert 0 <= result.rows - self.gone_between(number - 1, number) <= others
            return
        if result.rows:  # all of them were deleted by others since it read them
            assert result.rows <= self.gone_between(deletion.after, number)
            deletion.denied = "a result"
            return
        deletion.denied = "a result"
        if result.rows is None:  # one entry, had there been a file
            left = self._met(deletion, self.rows(number), self.versions[number].schema)
            assert not left, f"{deletion} deleted nothing, and there was {left}"
            return
        schemas = range(self.versions[deletion.after].schema, self.newest_schema + 1)
        assert not all(self._may_have_left(deletion, each, number) for each in schemas), (
            f"{deletion} deleted nothing, and there were rows"
        )

    def _may_have_left(self, deletion: Deletion, schema: int, number: int) -> bool:
        """Whether it left rows, if it knew the columns of a schema: it did not if one is missing."""
        try:
            return bool(self._left_of(deletion, schema, number))
        except KeyError:
            return True

    def gone_between(self, before: int, number: int) -> int:
        """How many rows were deleted by the transactions after a version, up to another."""
        return len(self.versions[number].gone) - len(self.versions[before].gone)

    def altered(self, alteration: Alteration, result: Any) -> None:
        """Check what a change of columns said that came to its end."""
        assert alteration.schema, f"an acknowledged change is lost: {alteration}"
        assert result.schema.number == alteration.schema
        assert 0 < result.transaction <= self.number
        assert self.versions[result.transaction].schema >= alteration.schema

    def check_rows(
        self,
        number: int,
        rows: list[tuple[Any, ...]],
        wanted: Callable[[Row], bool],
        columns: Columns = BASE,
    ) -> None:
        """Check an answer: exactly the rows of one version that were asked for, in order."""
        if columns[:2] == BASE[:2]:
            keys = [row[:2] for row in rows]
            assert keys == sorted(keys), "rows are out of order"
        expected = [
            tuple(self._value(row, each) for each in columns)
            for row in self.rows(number)
            if wanted(row)
        ]
        assert sorted(rows, key=repr) == sorted(expected, key=repr), (
            f"version {number} is read wrong"
        )

    def _value(self, row: Row, column: Column) -> Any:
        if column.id <= len(BASE):
            return row[column.id - 1]
        return self.attempts[row[2]].values.get(column.id, column.default)

    def must_be_readable(self, number: int, now: datetime) -> bool:
        """Whether the files of a version may not be deleted yet."""
        if number >= self.number:
            return True
        if self.purging or number < self.purged:
            return False
        return now - self.ended[number] < self.gc_delay

    def begin_purge(self) -> None:
        self.purging += 1

    def end_purge(self) -> None:
        """Note that a purge ended in any way: files of versions before now may be gone."""
        self.purging -= 1
        self.purged = max(self.purged, self.number)

    def check_purged(
        self,
        purging: Purging,
        before: int,
        files: Iterable[tuple[str, datetime, bytes]],
        entries: Iterable[tuple[int, bytes]],
    ) -> None:
        """Check what is stored when a purge has said that no key is left.

        Args:
            purging: The purge.
            before: Versions before this one have ended.
            files: The key of each data file, when it was stored, and its body.
            entries: The number of each entry of the log, and the entry.
        """
        assert purging.searched_from is not None
        for key, stored_at, body in files:
            left = [row for row in rows_of(body) if row[0] in purging.keys]
            assert not left or stored_at > purging.searched_from, (
                f"{purging} has left {key}: {left}"
            )
        for number, body in entries:
            first, _, second = body.partition(b"\n")
            known = json.loads(second)["keys"] if second else first.decode()
            if second and number <= before:
                assert not {*known} & {*purging.keys}, f"entry {number} has {known} of {purging}"
            if not second and number <= before and b'"region"' in first:
                limits = {limit for each in _REGIONS.findall(known) for limit in each}
                assert not limits & {str(key) for key in purging.keys}, f"{purging}: entry {number}"


@dataclass(frozen=True)
class _Entry:
    """What an entry of the log comes with.

    Attributes:
        doing: What its writer was busy with.
        keys: Those that stand apart; None if none do.
        rows_in: Returns the rows of a data file.
    """

    doing: Change | None
    keys: list[int] | None
    rows_in: Callable[[str], list[tuple[Any, ...]]]


def _key(limit: int | None, keys: list[int] | None) -> float:
    """The limit of a range, which stands apart from some entries; infinity where there is none."""
    if limit is None:
        return inf
    return limit if keys is None else keys[limit]


def _columns_of(document: Any) -> tuple[int, Columns]:
    """Return the number of a schema, and its columns. The first one has no ids."""
    groups = ("rowKeyFields", "sortKeyFields", "valueFields")
    fields = [each for group in groups for each in document.get(group, ())]
    return document.get("schemaId", 1), tuple(
        Column(each.get("id", place), each["name"], each.get("default"))
        for place, each in enumerate(fields, 1)
    )
