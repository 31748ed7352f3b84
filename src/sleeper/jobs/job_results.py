"""What queries and exports wrote for whoever asked: files in the instance's own place, messages.

    query_results/query-<query id>/<uuid>.parquet     rows of a query (rule QRY-10)
    bulk_export/<table id>/<export id>/...            an export, with a manifest (rule EXP-3)

A query's file has a name that follows from the query's id and its table's: a query that is run
twice replaces it, and never takes the rows of another table for its own. Results are deleted some
days later, by the instance's properties.
"""

from __future__ import annotations

import logging
import re
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from sleeper.engine.rows import Rows
from sleeper.engine.writing.export import MANIFEST, ExportedFiles, delete_unfinished, read_manifest
from sleeper.engine.writing.json_parts import json_parts
from sleeper.engine.writing.user_file import ParquetLayout, stream_parquet
from sleeper.errors import BadRequest, DataDamaged, JobInvalid, ResultsIncomplete, SleeperError
from sleeper.lookup.parquet.file_end import FileOfRanges, range_reader, read_file_end
from sleeper.model.formats.results import ResultsPublishing, results_batch
from sleeper.model.known_properties.typed import InstanceProperties
from sleeper.model.schema import Schema
from sleeper.ports.jobs import ResultsQueue
from sleeper.ports.objects import ObjectInfo, Objects

_log = logging.getLogger(__name__)

_QUERIES: Final = "query_results/"
_QUERY_KEY: Final = re.compile(
    rf"{_QUERIES}query-[^/]+/[0-9a-f]{{8}}-[0-9a-f]{{4}}-5[0-9a-f]{{3}}-[0-9a-f]{{4}}"
    r"-[0-9a-f]{12}\.parquet",
)
_EXPORTS: Final = "bulk_export/"
_NAMES_IN_EXPORTS: Final = 3  # the table's id, the export's, the file
_NAMES: Final = uuid.UUID("6f0f3ed0-0f7e-4d53-9d0c-1b7a5a3c8e11")  # of the files of results

_TRANSACTION: Final = b"sleeper.transaction"
_ROWS_TOGETHER: Final = 10_000
_NO_PARQUET: Final = (pa.ArrowException, OSError, ValueError)


class JobResults:
    """Files that queries and exports wrote.

    Args:
        objects: Everything the instance stores.
        properties: The instance's: how long results are kept, and how files are laid out where a
            query does not say it.
        time: The clock of the storage (aware, UTC).
        queue: Sends rows of queries that ask for messages; None where none does.
    """

    def __init__(
        self,
        objects: Objects,
        properties: InstanceProperties,
        time: Callable[[], datetime],
        *,
        queue: ResultsQueue | None = None,
    ) -> None:
        self._objects = objects
        self._time = time
        self._properties = properties
        self._queue = queue

    def query_location(self, query_id: str, table_id: str) -> str:
        """Return the URL of a query's file, which may not be there yet."""
        return self._objects.url(_query_key(query_id, table_id))

    def query_file(self, query_id: str, table_id: str) -> str | None:
        """Return the key of a query's file; None if there is none.

        A file that earlier versions wrote has a name without its table: it counts as this query's.

        Raises:
            JobInvalid: a query of another table has files under this id.
        """
        keys = {
            info.key
            for info in self._objects.listing(_query_folder(query_id))
            if _is_query_key(info.key)
        }
        for key in (_query_key(query_id, table_id), _query_key_before(query_id)):
            if key in keys:
                return key
        if keys:
            raise JobInvalid((used_for_other_table(query_id),))
        return None

    def rows_of_query(self, query_id: str, key: str) -> int:
        """Return how many rows a query wrote to the file that `query_file` returned.

        Raises:
            ObjectNotFound: it was deleted.
            DataDamaged: it is no Parquet file.
        """
        read = range_reader(self._objects.read_ranges, key)
        try:
            return read_file_end(self._objects.size(key), read).footer.row_count
        except ValueError as damage:
            raise self._damaged(query_id, key, damage) from damage

    def read_query(self, query_id: str, key: str) -> Rows:
        """Return the rows that a query wrote to the file that `query_file` returned, as a stream.

        Raises:
            ObjectNotFound: it was deleted.
            DataDamaged: it is no Parquet file.
        """
        read = range_reader(self._objects.read_ranges, key)
        source = pa.PythonFile(FileOfRanges(read, self._objects.size(key)), mode="r")
        try:
            file = pq.ParquetFile(source, pre_buffer=False)
        except _NO_PARQUET as damage:
            raise self._damaged(query_id, key, damage) from damage
        schema = file.schema_arrow
        number = (schema.metadata or {}).get(_TRANSACTION, b"0")
        plain = schema.remove_metadata()
        return Rows(self._batches(query_id, key, file, plain), plain, int(number))

    def _batches(
        self, query_id: str, key: str, file: pq.ParquetFile, schema: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        try:
            for batch in file.iter_batches(batch_size=_ROWS_TOGETHER):
                yield batch.replace_schema_metadata(schema.metadata)
        except _NO_PARQUET as damage:
            raise self._damaged(query_id, key, damage) from damage

    def _damaged(self, query_id: str, key: str, damage: Exception) -> DataDamaged:
        return DataDamaged(
            f"the rows of query {query_id!r} cannot be read from {self._objects.url(key)}: "
            f"{str(damage).rstrip('.')}. Delete the file, and submit the query again."
        )

    def url(self, key: str) -> str:
        """Return the URL of a file."""
        return self._objects.url(key)

    def write_query(
        self, query_id: str, table_id: str, rows: Rows, publishing: ResultsPublishing
    ) -> int:
        """Write a query's rows, which are visible when all are; return how many there were.

        Args:
            query_id: The query.
            table_id: Its table.
            rows: They are read to the end.
            publishing: What the query says of its results (rule QRY-10).

        Raises:
            StorageFailed: the file cannot be written.
            DataDamaged: a file of the table is missing or damaged.
        """
        with rows, self._objects.open_output(_query_key(query_id, table_id)) as file:
            return stream_parquet(_with_transaction(rows), file, self._layout(publishing))

    def send_query(
        self, query_id: str, rows: Rows, schema: Schema, publishing: ResultsPublishing
    ) -> int:
        """Send a query's rows as messages to the queue that it names; return how many there were.

        A query without rows is one message without rows.

        Args:
            query_id: The query.
            rows: They are read to the end.
            schema: The table's.
            publishing: What the query says of its results (rule QRY-11).

        Raises:
            ResultsIncomplete: some rows were sent, and the others were not.
            QueryInvalid: a row does not fit into a message; none was sent.
            StorageFailed: the queue cannot be used; none was sent.
            DataDamaged: a file of the table is missing or damaged; none was sent.
        """
        if self._queue is None or publishing.queue_url is None:
            raise BadRequest(f"query {query_id!r} names no queue for its rows")
        batch = results_batch(query_id, schema, rows.schema.names)
        rows_max = publishing.batch_rows or self._properties.query_queue.batch_rows
        sent = 0
        try:
            with rows:
                for part in json_parts(rows, rows_max=rows_max, bytes_max=batch.rows_bytes_max):
                    self._queue.send(publishing.queue_url, batch.message(part.rows))
                    sent += part.row_count
        except SleeperError as failure:
            if not sent:
                raise
            raise ResultsIncomplete(
                f"{sent} rows of query {query_id!r} were sent to {publishing.queue_url}, and the "
                "others were not. Ask again, under another query id.",
                sent,
            ) from failure
        return sent

    def _layout(self, publishing: ResultsPublishing) -> ParquetLayout:
        defaults = self._properties.query_queue
        return ParquetLayout(
            compression=publishing.compression or ParquetLayout().compression,
            row_group_bytes=publishing.row_group_bytes or defaults.row_group_bytes,
            page_bytes=publishing.page_bytes or defaults.page_bytes,
        )

    def export_location(self, table_id: str, export_id: str) -> str:
        """Return the URL of the folder of an export, which may not be there yet."""
        return self._objects.url(_export_prefix(table_id, export_id).rstrip("/"))

    def exported(self, table_id: str, export_id: str) -> ExportedFiles | None:
        """Return what an export wrote; None where it is not complete."""
        manifest = self._objects.read(_export_prefix(table_id, export_id) + MANIFEST)
        if manifest is None:  # what is in memory is exported to a temp folder
            manifest = _read_file(self.export_location(table_id, export_id))
        return None if manifest is None else read_manifest(manifest)

    def delete_unfinished_export(self, table_id: str, export_id: str) -> None:
        """Delete what a killed run of an export left, so that it can be run again.

        A run that is still alive notices, and fails.
        """
        prefix = _export_prefix(table_id, export_id)
        self._objects.delete([info.key for info in self._objects.listing(prefix)])
        location = self.export_location(table_id, export_id)
        if "://" not in location:
            delete_unfinished(Path(location))

    def delete_expired(self) -> int:
        """Delete results that are older than the instance keeps them; return how many there were.

        Only what this class wrote: other files, and exports to places that users name, stay. An
        export goes as a whole, by the age of its newest file, so none is deleted under way.

        Raises:
            ClockTooFarAhead: this machine's clock is wrong; nothing was deleted.
            StorageFailed: they cannot be listed or deleted now; some may be deleted.
        """
        queries = [
            (info.modified, [info.key])
            for info in self._objects.listing(_QUERIES)
            if _is_query_key(info.key)
        ]
        exports = self._exports()
        if not queries and not exports:
            return 0
        now = self._time()
        kept = (
            (queries, self._properties.query_queue.results_days),
            (exports, self._properties.export_queue.results_days),
        )
        old = [
            keys
            for results, days in kept
            for modified, keys in results
            if modified < now - timedelta(days=days)
        ]
        for keys in old:
            _log.info("deleting the results %s, which have expired", keys[0])
        # An export without its manifest is incomplete: what is left of it is deleted later.
        self._objects.delete([key for keys in old for key in keys if key.endswith(f"/{MANIFEST}")])
        self._objects.delete([key for keys in old for key in keys])
        return len(old)

    def _exports(self) -> list[tuple[datetime, list[str]]]:
        """Return each export's files, and when the newest one was written."""
        found: dict[str, list[ObjectInfo]] = defaultdict(list)
        for info in self._objects.listing(_EXPORTS):
            names = info.key.removeprefix(_EXPORTS).split("/")
            if len(names) == _NAMES_IN_EXPORTS:
                found[_export_prefix(names[0], names[1])].append(info)
        return [
            (max(info.modified for info in infos), [info.key for info in infos])
            for infos in found.values()
        ]


def _read_file(folder: str) -> bytes | None:
    """Return the manifest of an export in a folder of this machine, if it is there."""
    path = Path(folder) / MANIFEST
    return path.read_bytes() if "://" not in folder and path.is_file() else None


def _with_transaction(rows: Rows) -> Rows:
    """Return rows whose file says which transaction they were read at."""
    schema = rows.schema.with_metadata({_TRANSACTION: str(rows.transaction)})
    batches = (batch.replace_schema_metadata(schema.metadata) for batch in rows)
    return Rows(batches, schema, rows.transaction)


def used_for_other_table(query_id: str) -> str:
    """Return why a query's id is refused that a query of another table had."""
    return (
        f"queryId {query_id!r} was used for a query of another table, and names its results: "
        "submit this query again with another queryId"
    )


def _query_folder(query_id: str) -> str:
    return f"{_QUERIES}query-{query_id}/"


def _query_key(query_id: str, table_id: str) -> str:
    name = uuid.uuid5(_NAMES, f"{table_id}/{query_id}")
    return f"{_query_folder(query_id)}{name}.parquet"


def _query_key_before(query_id: str) -> str:
    """Return the key that earlier versions gave the file of a query."""
    return f"{_query_folder(query_id)}{uuid.uuid5(_NAMES, query_id)}.parquet"


def _is_query_key(key: str) -> bool:
    """Return whether this class gives such keys: its UUIDs are of version 5."""
    return _QUERY_KEY.fullmatch(key) is not None


def _export_prefix(table_id: str, export_id: str) -> str:
    return f"{_EXPORTS}{table_id}/{export_id}/"
