"""A table of a REST server.

Words: a question is the body of a request for rows; a part is a question with some of the keys or
regions of one that is too long for a request.

1. arguments are checked here as `Table` checks them, and become a question (`question`)
2. a long question is sent in parts, one after the other; all of them read the version that the
   first one read (`parts_of`, `RemoteTable._joined`)
3. rows of an answer are an Arrow stream, read while it comes; one without the end of its stream is
   an error (`answered_rows`)
4. rows to ingest are checked here, and sent as a stream under a job id, so that a lost answer can
   be asked for again (`RemoteTable.ingest`)
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from io import BufferedReader, BytesIO, RawIOBase
from typing import Any, Final, Never, Self
from urllib.parse import quote

import httpx
import pyarrow as pa

from sleeper.engine.arrow_schema import shown_schema, to_arrow
from sleeper.engine.inputs.sources import open_source
from sleeper.engine.inputs.validated_input import SetAside, ValidatedInput
from sleeper.engine.rows import Rows, WholeTable
from sleeper.errors import BadRequest, CommitUnknown, QueryInvalid, StorageFailed
from sleeper.html.values import NotebookTuple
from sleeper.instance.instance import environment_token, input_store, new_secret
from sleeper.interfaces.remote.http_client import HttpClient, result_of, unreachable
from sleeper.jobs.arguments import checked_since
from sleeper.model.authors import committing
from sleeper.model.csv_options import CsvOptions
from sleeper.model.files import FileReference
from sleeper.model.known_properties.given import PropertyValue, property_texts
from sleeper.model.known_properties.typed import InstanceProperties, TableProperties
from sleeper.model.other_names import OF_INSTANCE, OF_TABLE, no_such_attribute
from sleeper.model.queries import (
    NOT_GIVEN,
    checked_as_of,
    checked_columns,
    checked_limit,
    checked_max_age,
    checked_transaction,
    unknown_arguments,
)
from sleeper.model.schema import Field, Schema, type_to_json
from sleeper.model.tables import SCHEMA
from sleeper.ports.ids import given_job_id
from sleeper.state.kept_versions import KeptVersions
from sleeper.tables.alter import ColumnChange, NewFields, NewType, asked_change
from sleeper.tables.asked_json import asked_to_json
from sleeper.tables.deletions.regions import RowDeletion
from sleeper.tables.history import HistoryEntry
from sleeper.tables.ingest import IngestResult, csv_for, path_aside
from sleeper.tables.purges.records import Purge
from sleeper.tables.report import FilesReport, PartitionReport
from sleeper.tables.table import Table

# ---------------------------------------------------------------- questions
#
# Turns the arguments of `Table.query` into the body of a request, checked as `Table` does.


_ASKED_BY: Final = frozenset(("keys", "range", "regions", "prefix", "where", "as_of"))
_PART_BYTES: Final = 900 << 10
"""Keys or regions of one question, as JSON: less than the least that a server may allow."""


def question(
    schema: Schema,
    *,
    key: object = NOT_GIVEN,
    keys: Any = NOT_GIVEN,
    range: Any = NOT_GIVEN,  # noqa: A002 - the field's own word
    regions: Any = NOT_GIVEN,
    prefix: Any = NOT_GIVEN,
    where: Any = None,
    as_of: Any = None,
) -> dict[str, Any]:
    """Return the body that asks for rows.

    Raises:
        QueryInvalid: as `Table.query`.
    """
    body = asked_to_json(schema, key=key, keys=keys, range=range, regions=regions, prefix=prefix)
    if where is not None:
        body["where"] = text_of(where, "where")
    if as_of is not None:
        body["as_of"] = version_document(as_of)
    return body


def job_named(job_id: str | None) -> dict[str, str]:
    """Return the part of a body that names a job, if one was given.

    Raises:
        BadRequest: it is blank, too long, or no text.
    """
    given = given_job_id(job_id)
    return {} if given is None else {"job_id": given}


def parts_of(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the questions that a long one is sent as: their rows, one after the other, are its.

    Keys are sorted. Regions are sent in parts if the table has one row key, where they are disjoint
    and sorted; no region of several row keys has all its rows before those of another one.
    """
    name = "keys" if "keys" in body else "regions"
    if any(len(region) > 1 for region in body.get("regions", ())[:1]):
        return [dict(body)]
    parts: list[dict[str, Any]] = []
    size = _PART_BYTES
    for each in body.get(name, ()):
        length = len(json.dumps(each, ensure_ascii=False).encode(errors="surrogatepass")) + 1
        if size + length > _PART_BYTES:
            parts.append({**body, name: []})
            size = 0
        parts[-1][name].append(each)
        size += length
    return parts or [dict(body)]


def _asked_of(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a query's body that a count has too."""
    return {k: v for k, v in body.items() if k in ("key", "keys", "regions", "where")}


def version_document(as_of: Any, name: str = "as_of") -> int | str | None:
    """Return a version as a JSON value.

    Raises:
        QueryInvalid: it is neither a transaction number nor an aware time.
    """
    checked = checked_as_of(as_of, name)
    return checked.isoformat() if isinstance(checked, datetime) else checked


def text_of(value: Any, name: str) -> str:
    """Check that a condition or a statement is text, and return it.

    Raises:
        QueryInvalid: it is not.
    """
    if not isinstance(value, str):
        raise QueryInvalid(f"{name} must be text in SQL, not {value!r}")
    return value


# ---------------------------------------------------------------- rows of an answer
#
# The rows of an answer: an Arrow stream that is read while it comes.

_BUFFER_BYTES: Final = 1 << 20
_END: Final = b"\xff\xff\xff\xff\x00\x00\x00\x00"


def answered_rows(
    client: HttpClient,
    path: str,
    body: Any = None,
    counter: Callable[[int], int] | None = None,
    **params: Any,
) -> Rows:
    """Ask for rows, and return them: a stream, or in memory if the server has them there.

    Args:
        client: The server.
        path: Where rows are asked for.
        body: What is asked for, as JSON values; None for rows that are there.
        counter: Returns the number of the rows, of a transaction, without reading them.
        params: Of the query string; those that are None are left out.
    """
    answer = client.open_rows(path, body, **params)
    try:
        transaction = int(answer.headers["Sleeper-Transaction"])
        batches = _Batches(client.url, answer)
    except BaseException:
        answer.close()
        raise
    if answer.headers.get("Sleeper-In-Memory") == "true":
        table = pa.Table.from_batches(batches, batches.schema)
        return Rows.from_table(table, transaction=transaction)
    count = None if counter is None else lambda: counter(transaction)
    return Rows(batches, batches.schema, transaction, counter=count)


class _Body(RawIOBase):
    """The body of an answer as a file; it remembers its last bytes."""

    def __init__(self, answer: httpx.Response) -> None:
        self._chunks = answer.iter_raw()
        self._chunk = memoryview(b"")
        self.end = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._chunk:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._chunk = memoryview(chunk)
            self.end = (self.end + chunk[-len(_END) :])[-len(_END) :]
        size = min(len(buffer), len(self._chunk))
        buffer[:size] = self._chunk[:size]
        self._chunk = self._chunk[size:]
        return size


class _Batches(Iterator[pa.RecordBatch]):
    """The batches of an answer.

    Raises:
        StorageFailed: the answer is broken off.
    """

    def __init__(self, url: str, answer: httpx.Response) -> None:
        self._url = url
        self._answer = answer
        self._body = _Body(answer)
        self._file = BufferedReader(self._body, _BUFFER_BYTES)
        self._reader = self._read(lambda: pa.ipc.open_stream(self._file))
        self.schema: pa.Schema = self._reader.schema

    def __next__(self) -> pa.RecordBatch:
        return self._read(self._next)

    def _next(self) -> pa.RecordBatch:
        try:
            return self._reader.read_next_batch()
        except StopIteration:
            self._file.read()
            if self._body.end != _END:
                raise StorageFailed(
                    f"the rows of {self._url} end without the end of their stream"
                ) from None
            self.close()
            raise

    def _read(self, read: Callable[[], Any]) -> Any:
        try:
            return read()
        except (httpx.HTTPError, httpx.StreamError, pa.ArrowException, OSError) as error:
            self.close()
            raise unreachable(self._url, error) from None

    def close(self) -> None:
        """Close the connection; rows that were not read are lost."""
        self._answer.close()

    def __del__(self) -> None:
        self._answer.close()


_CHUNK_BYTES: Final = 1 << 20


class RemoteTable(WholeTable):
    """A table of a REST server: its rows, properties and reports, by the methods of `Table`.

    Everything else of `Table` raises BadRequest, which names what to use.
    """

    def __init__(self, client: HttpClient, name: str) -> None:
        self._client = client
        self._name = name
        self._read()

    def _read(self) -> None:
        """Read what the server knows of the table: its schema and properties."""
        document = self._client.get(f"{path_of_table(self._name)}/properties")
        self.schema = Schema.from_json(document["properties"][SCHEMA])
        self._arrow_schema = to_arrow(self.schema)
        self._shown_schema = shown_schema(self.schema, self._arrow_schema)
        self._document = document

    @property
    def name(self) -> str:
        """The table's name."""
        return self._name

    @property
    def table_id(self) -> str:
        """The table's id."""
        return str(self._document["id"])

    @property
    def online(self) -> bool:
        """False if background operations skip the table."""
        return bool(self._document["online"])

    @property
    def properties(self) -> TableProperties:
        """The table's properties, as this handle last read them."""
        instance = InstanceProperties({"sleeper.id": "remote", **self._document["defaults"]})
        return TableProperties(self._document["properties"], instance)

    @property
    def arrow_schema(self) -> pa.Schema:
        """The Arrow schema of rows, with the columns in the order that the table was made with."""
        return self._shown_schema

    def query(
        self,
        key: object = NOT_GIVEN,
        *,
        columns: Sequence[str] | None = None,
        limit: int | None = None,
        ordered: bool = True,
        max_age: Any = None,
        **asked: Any,
    ) -> Rows:
        """Read rows, as `Table.query`; they come from the server while they are read."""
        if unknown := {name: value for name, value in asked.items() if name not in _ASKED_BY}:
            raise unknown_arguments(self.schema, unknown)
        asked["key"] = key
        if not isinstance(ordered, bool):
            raise QueryInvalid(f"ordered must be True or False, not {ordered!r}")
        body = question(self.schema, **asked)
        if columns is not None:
            body["columns"] = self._checked_columns(columns)
        if (rows_max := checked_limit(limit)) is not None:
            body["limit"] = rows_max
        if (age_s := checked_max_age(max_age)) is not None:
            body["max_age"] = age_s
        if not ordered:
            body["ordered"] = False

        parts = parts_of(body)

        def counter(transaction: int) -> int:
            found = sum(self._count({**_asked_of(part), "as_of": transaction}) for part in parts)
            return found if rows_max is None else min(found, rows_max)

        path = f"{path_of_table(self._name)}/query"
        rows = answered_rows(self._client, path, parts[0], counter)
        if columns is None and rows.schema != self._shown_schema and "as_of" not in body:
            self._read()
        return rows if len(parts) == 1 else self._joined(rows, path, parts[1:], rows_max, counter)

    def _checked_columns(self, columns: Sequence[str]) -> list[str]:
        """Return the names of columns. Those that this handle does not know may be new.

        Raises:
            QueryInvalid: the table does not have one of them.
        """
        try:
            return [*checked_columns(self.schema, columns)]
        except QueryInvalid:
            self._read()
            return [*checked_columns(self.schema, columns)]

    def _joined(
        self,
        first: Rows,
        path: str,
        others: Sequence[Mapping[str, Any]],
        rows_max: int | None,
        counter: Callable[[int], int],
    ) -> Rows:
        """Return the rows of a question that is sent in parts; all of them read one version."""
        number = first.transaction

        def batches() -> Iterator[pa.RecordBatch]:
            yield from first
            for part in others:
                body = {**part, "as_of": number}
                body.pop("max_age", None)
                with answered_rows(self._client, path, body) as rows:
                    yield from rows

        rows = Rows(batches(), first.schema, number, counter=lambda: counter(number))
        return rows if rows_max is None else rows.limited(rows_max)

    def head(self, n: int = 5) -> Rows:
        """Return the first rows in key order, `n` of them."""
        if n is None:
            raise QueryInvalid("n must be a number of rows, not None; query() returns all rows")
        return self.query(limit=n)

    def count(self, **asked: Any) -> int:
        """Return the exact number of rows, as `Table.count`."""
        parts = parts_of(question(self.schema, **asked))
        if len(parts) > 1 and "as_of" not in parts[0]:
            number = self.kept_versions().newest
            parts = [{**part, "as_of": number} for part in parts]
        return sum(map(self._count, parts))

    def delete(
        self,
        *,
        job_id: str | None = None,
        reason: str | None = None,
        if_unchanged_since: int | None = None,
        **asked: Any,
    ) -> RowDeletion:
        """Delete rows by key, keys, range, regions, prefix or where, as `Table.delete`."""
        body = question(self.schema, **asked) | job_named(job_id)
        path = f"{path_of_table(self._name)}/delete"
        with committing(reason=reason):
            told = self._client.send("POST", path, body, **relied_on(if_unchanged_since))
        return result_of(RowDeletion, told)

    def purge(self, *, keys: Any, reason: str | None = None) -> Purge:
        """Remove row keys from all that is stored of the table, as `Table.purge`."""
        body = question(self.schema, keys=keys)
        with committing(reason=reason):
            told = self._client.send("POST", f"{path_of_table(self._name)}/purge", body)
        return Purge.from_json(told)

    def purges(self) -> tuple[Purge, ...]:
        """Return the purges of the table, the newest first, each with how far it is."""
        found = self._client.get(f"{path_of_table(self._name)}/purges")["purges"]
        return tuple(map(Purge.from_json, found))

    def _count(self, body: Mapping[str, Any]) -> int:
        return int(self._client.send("POST", f"{path_of_table(self._name)}/count", body)["rows"])

    def sql(
        self, statement: str, *, as_of: Any = None, if_unchanged_since: int | None = None
    ) -> Rows:
        """Run one SQL statement that reads this table, by its name, as `Table.sql`."""
        body: dict[str, Any] = {"statement": text_of(statement, "a statement")}
        if (version := version_document(as_of)) is not None:
            body["as_of"] = version
        path, since = f"{path_of_table(self._name)}/sql", checked_since(if_unchanged_since)
        return answered_rows(self._client, path, body, if_unchanged_since=since)

    def explain_sql(self, statement: str) -> str:
        """Return what a statement would do, and what it would read."""
        body = {"statement": text_of(statement, "a statement"), "explain": True}
        path = f"{path_of_table(self._name)}/sql"
        return str(self._client.send("POST", path, body)["plan"])

    def history(self, limit: int | None = None) -> tuple[HistoryEntry, ...]:
        """Return what the table's transactions did, the newest first."""
        found = self._history(checked_limit(limit))["history"]
        return NotebookTuple(result_of(HistoryEntry, each) for each in found)

    def kept_versions(self) -> KeptVersions:
        """Return which versions of the table can be read: the first and the newest."""
        return result_of(KeptVersions, self._history(1)["kept"])

    def _history(self, limit: int | None) -> Any:
        path = f"{path_of_table(self._name)}/history"
        return self._client.get(path, limit=1_000_000_000 if limit is None else limit)

    def diff(self, before: Any, after: Any = None, *, columns: Sequence[str] | None = None) -> Rows:
        """Return the rows that ingests added between two versions, in key order."""
        body: dict[str, Any] = {"before": version_document(before, "before")}
        if body["before"] is None:
            raise QueryInvalid("before must be a transaction number or an aware datetime, not None")
        if (last := version_document(after, "after")) is not None:
            body["after"] = last
        if columns is not None:
            body["columns"] = self._checked_columns(columns)
        return answered_rows(self._client, f"{path_of_table(self._name)}/diff", body)

    def ingest(
        self,
        data: object,
        job_id: str | None = None,
        *,
        csv: CsvOptions | Mapping[str, Any] | None = None,
        ignore_extra_columns: bool = False,
        set_aside: str | os.PathLike[str] | None = None,
        progress: Callable[[int, int | None], None] = lambda done, total: None,
        if_unchanged_since: int | None = None,
    ) -> IngestResult:
        """Add rows, all in one commit, as `Table.ingest`; they are checked here, and sent.

        Files are read on this machine. For files in buckets that the server should read,
        `instance.jobs.submit_ingest` asks for a job.
        """
        return self._add(
            data,
            job_id,
            csv=csv,
            ignore_extra_columns=ignore_extra_columns,
            set_aside=set_aside,
            progress=progress,
            if_unchanged_since=if_unchanged_since,
        )

    def upsert(
        self,
        data: object,
        job_id: str | None = None,
        *,
        csv: CsvOptions | Mapping[str, Any] | None = None,
        ignore_extra_columns: bool = False,
        set_aside: str | os.PathLike[str] | None = None,
        progress: Callable[[int, int | None], None] = lambda done, total: None,
        reason: str | None = None,
        if_unchanged_since: int | None = None,
    ) -> IngestResult:
        """Add rows in place of those that have the same row keys, as `Table.upsert`."""
        with committing(reason=reason):
            return self._add(
                data,
                job_id,
                upsert=True,
                csv=csv,
                ignore_extra_columns=ignore_extra_columns,
                set_aside=set_aside,
                progress=progress,
                if_unchanged_since=if_unchanged_since,
            )

    def _add(
        self,
        data: object,
        job_id: str | None,
        *,
        upsert: bool = False,
        csv: CsvOptions | Mapping[str, Any] | None,
        ignore_extra_columns: bool,
        set_aside: str | os.PathLike[str] | None,
        progress: Callable[[int, int | None], None],
        if_unchanged_since: int | None,
    ) -> IngestResult:
        since = relied_on(if_unchanged_since)
        self._read()
        given = given_job_id(job_id) or new_secret()[:32]
        aside = path_aside(set_aside)
        options = csv_for(csv, self.schema)
        source = open_source(data, self._arrow_schema, input_store(), options)
        source.check(ignore_extra_columns=ignore_extra_columns)
        rows = ValidatedInput(
            source,
            self.schema,
            self._arrow_schema,
            ignore_extra_columns=ignore_extra_columns,
            set_aside=None if aside is None else SetAside(aside),
            progress=progress,
        )
        try:
            headers = {"Sleeper-Job-Id": quote(given, safe="")}
            path = f"{path_of_table(self._name)}/rows"
            content = _arrow_stream(rows, self._arrow_schema)
            how = {"upsert": "true"} if upsert else {}
            answer = self._client.upload(path, content, headers, **how, **since)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            rows.abandon()
            raise unreachable(self._client.url, error) from None
        except httpx.HTTPError as error:
            raise CommitUnknown(
                f"whether the rows were committed is not known, for {self._client.url} did not "
                f"answer ({error}): run it again with job_id={given!r}, which adds them once"
            ) from error
        except BaseException:
            rows.abandon()
            raise
        result = result_of(IngestResult, answer)
        if result.already_committed:
            return result
        return replace(result, rows_read=rows.rows_read, rows_set_aside=rows.rows_set_aside)

    def refresh(self) -> int:
        """Read new properties, and return the table's number after every commit so far."""
        self._read()
        return self.report_files().transaction

    def report_partitions(self) -> list[PartitionReport]:
        """Describe every partition, leaves in key order first."""
        found = self._client.get(f"{path_of_table(self._name)}/partitions")["partitions"]
        return [result_of(PartitionReport, each) for each in found]

    def report_files(self) -> FilesReport:
        """Count the table's files, references and rows."""
        return result_of(
            FilesReport, self._client.get(f"{path_of_table(self._name)}/files")["files"]
        )

    def references(self) -> list[FileReference]:
        """Return every file reference, by partition in key order."""
        found = self._client.get(f"{path_of_table(self._name)}/files", verbose=True)["references"]
        return [result_of(FileReference, each) for each in found]

    def set_properties(self, changes: Mapping[str, PropertyValue | None]) -> None:
        """Set properties by their full names; None takes a value away."""
        path = f"{path_of_table(self._name)}/properties"
        self._client.send("PATCH", path, {"properties": dict(changes)})
        self._read()

    def alter(
        self,
        *,
        add: NewFields = (),
        drop: Iterable[str] = (),
        rename: Mapping[str, str] | None = None,
        widen: Mapping[str, NewType] | None = None,
        nullable: Iterable[str] = (),
        defaults: Mapping[str, Any] | None = None,
        properties: Mapping[str, PropertyValue | None] | None = None,
        reason: str | None = None,
    ) -> ColumnChange:
        """Change value columns, as `Table.alter`."""
        change = asked_change(
            add=add,
            drop=drop,
            rename=rename or {},
            widen=widen or {},
            nullable=nullable,
            defaults=defaults or {},
        )
        body = {
            "add": [_field_document(each) for each in change.add],
            "drop": change.drop,
            "rename": change.rename,
            "widen": {name: type_to_json(kind) for name, kind in change.widen.items()},
            "nullable": change.nullable,
            "properties": property_texts(properties or {}),
        }
        with committing(reason=reason):
            told = self._client.send("POST", f"{path_of_table(self._name)}/alter", body)
        self._read()
        return ColumnChange(
            schema=Schema.from_json(told["schema"]), transaction=told["transaction"]
        )

    def rename(self, name: str) -> None:
        """Rename the table."""
        self._client.send("PATCH", path_of_table(self._name), {"name": name})
        self._name = name

    def set_online(self, *, online: bool) -> None:
        """Turn background operations on the table on or off."""
        self._client.send("PATCH", path_of_table(self._name), {"online": online})
        self._document = {**self._document, "online": online}

    def close(self) -> None:
        """Do nothing: the instance has the connections."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopened, (self._client.url, self._name)

    def __getattr__(self, name: str) -> Never:
        raise not_offered(self, Table, "a table", name)

    def __repr__(self) -> str:
        return f"<RemoteTable {self._name!r} ({self.table_id}) of {self._client.url}>"


def _reopened(url: str, name: str) -> RemoteTable:
    """Open an unpickled table, with the token of this process."""
    return RemoteTable(HttpClient(url, environment_token()), name)


def not_offered(remote: object, local: type, what: str, name: str) -> Exception:
    """Return the error for an attribute that a client of a server does not have.

    Args:
        remote: The client.
        local: The class that it stands for; what that has, a server may not offer.
        what: What it is, for the message.
        name: The attribute.
    """
    if not name.startswith("_") and hasattr(local, name):
        return BadRequest(
            f"{what} of a server has no {name!r}: open the instance itself, by its folder or "
            "bucket, as in sleeper.connect('/data/my-instance')"
        )
    return no_such_attribute(remote, name, OF_TABLE if local is Table else OF_INSTANCE)


def path_of_table(name: str) -> str:
    """Return the path of a table. Dots are escaped: `..` would be another path."""
    if not isinstance(name, str):
        raise BadRequest(f"a table's name must be a string, not {name!r}")
    return f"/sleeper/tables/{quote(name, safe='').replace('.', '%2E')}"


def relied_on(number: object) -> dict[str, int]:
    """Return the parameter that names the version which a request relies on.

    Raises:
        BadRequest: it is no transaction number.
    """
    if number is None:
        return {}
    return {"if_unchanged_since": checked_transaction(number)}


def _field_document(field: Field) -> dict[str, Any]:
    """Return a column to add as the server takes it."""
    return {
        "name": field.name,
        "type": type_to_json(field.type),
        "nullable": field.nullable,
        "default": field.default,
    }


def _arrow_stream(rows: ValidatedInput, schema: pa.Schema) -> Iterator[bytes]:
    """Yield checked rows as an Arrow stream, in chunks."""
    written = BytesIO()

    def taken() -> bytes:
        chunk = written.getvalue()
        written.seek(0)
        written.truncate()
        return chunk

    writer = pa.ipc.new_stream(pa.PythonFile(written, "w"), schema)
    for table in rows.batches():
        writer.write_table(table)
        if written.tell() >= _CHUNK_BYTES:
            yield taken()
    rows.finish()
    writer.close()
    yield taken()
