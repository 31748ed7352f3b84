"""Rows as answers: one JSON document, or a stream of JSON lines, Arrow, Parquet or CSV.

A stream that fails after it began is broken off without its end, so that no client takes it for a
whole answer: the last chunk of HTTP is missing, and the end of the Arrow stream too.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Literal

import pyarrow as pa
from anyio import to_thread
from fastapi.responses import Response, StreamingResponse

from sleeper.engine.rows import Rows
from sleeper.engine.writing.user_file import json_lines, stream_rows
from sleeper.errors import QueryInvalid
from sleeper.interfaces.rest.request_limits import RequestLimits

_log = logging.getLogger(__name__)

AnswerFormat = Literal["json", "jsonl", "arrow", "parquet", "csv"]
MEDIA_TYPES: Final[dict[str, AnswerFormat]] = {
    "application/json": "json",
    "application/jsonl": "jsonl",
    "application/x-ndjson": "jsonl",
    "application/vnd.apache.arrow.stream": "arrow",
    "application/vnd.apache.parquet": "parquet",
    "text/csv": "csv",
}
"""Media types of requests and answers. The first one of a format is that of answers."""

TRANSACTION: Final = "Sleeper-Transaction"
IN_MEMORY: Final = "Sleeper-In-Memory"
_CHUNK_BYTES: Final = 1 << 20
_CHUNKS_AHEAD: Final = 4
_ANY: Final = ("*/*", "application/*")


def answer_format(given: str | None, accept: str | None) -> AnswerFormat:
    """Return the format of an answer: the given one, or the first known one of `Accept`.

    Raises:
        QueryInvalid: the client accepts none that there is.
    """
    for known in MEDIA_TYPES.values():
        if known == given:
            return known
    for part in (accept or "*/*").lower().split(","):
        media_type = part.partition(";")[0].strip()
        if media_type in _ANY:
            return "json"
        if media_type in MEDIA_TYPES:
            return MEDIA_TYPES[media_type]
    raise QueryInvalid(
        f"rows cannot be answered as {accept!r:.200}: accept one of {', '.join(MEDIA_TYPES)}"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a request is answered with: bytes that are there, or rows that are written as a stream.

    Attributes:
        media_type: The media type.
        headers: Other headers.
        body: All bytes; None for a stream.
        rows: The rows of a stream.
        write_rows: Writes them to a file.
    """

    media_type: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    rows: Rows | None = None
    write_rows: Callable[[Rows, Any], object] | None = None

    def write(self, file: Any) -> None:
        """Write all bytes to a file, and close the rows."""
        if self.rows is None or self.write_rows is None:
            file.write(self.body or b"")
            return
        with self.rows:
            self.write_rows(self.rows, file)

    def response(self) -> Response:
        """Return the answer of HTTP; a thread of its own writes a stream."""
        if self.rows is None:
            return Response(self.body, headers=dict(self.headers), media_type=self.media_type)
        content = _streamed(self)
        return StreamingResponse(content, headers=dict(self.headers), media_type=self.media_type)


def rows_answer(rows: Rows, form: AnswerFormat, limits: RequestLimits) -> Answer:
    """Return the answer that has all rows.

    Raises:
        QueryInvalid: they are too many for one JSON document.
        DataDamaged: a file of the table is missing or wrong.
    """
    headers = {TRANSACTION: str(rows.transaction)}
    media_type = next(name for name, known in MEDIA_TYPES.items() if known == form)
    write_rows = partial(_write, form=form)
    try:
        if form == "json":
            document = _document(rows, limits)
            return Answer(media_type=media_type, headers=headers, body=document)
        if form == "csv":
            _check_flat(rows)
        headers[IN_MEMORY] = "true" if rows.in_memory else "false"
        if rows.in_memory and rows.to_arrow().nbytes < _CHUNK_BYTES:
            held = Chunks()
            write_rows(rows, held)
            return Answer(media_type=media_type, headers=headers, body=b"".join(held.taken()))
        # The first batch is read now, so that most errors are answered by their status.
        rows.begun()
    except BaseException:
        rows.close()
        raise
    return Answer(media_type=media_type, headers=headers, rows=rows, write_rows=write_rows)


def _document(rows: Rows, limits: RequestLimits) -> bytes:
    """Return rows as one JSON document of bounded size."""
    lines: list[bytes] = []
    row_count = size = 0
    with rows:
        for batch in rows:
            row_count += batch.num_rows
            too_many = row_count > limits.answer_rows
            if not too_many and batch.num_rows:
                lines.append(json_lines(batch).rstrip(b"\n").replace(b"\n", b","))
                size += len(lines[-1])
            if too_many or size > limits.answer_bytes:
                raise QueryInvalid(
                    f"the answer has more than {limits.answer_rows:,} rows or "
                    f"{limits.answer_bytes:,} bytes, which is too much for one JSON document: give "
                    "a limit, or accept application/jsonl or application/vnd.apache.arrow.stream"
                )
    return b'{"transaction": %d, "rows": [%s]}' % (rows.transaction, b",".join(lines))


def _check_flat(rows: Rows) -> None:
    """Refuse lists, maps and structs for CSV, before the answer begins.

    Raises:
        QueryInvalid: there are some.
    """
    if any(pa.types.is_nested(field.type) for field in rows.schema):
        raise QueryInvalid("CSV cannot contain lists, maps and structs: leave these columns out")


def _write(rows: Rows, file: Any, form: AnswerFormat) -> None:
    """Write rows to a file in a format."""
    if form == "arrow":
        writer = pa.ipc.new_stream(file, rows.schema)
        for batch in rows:
            writer.write_batch(batch)
        writer.close()  # writes the end of the stream; not after an error
    elif form != "json":
        stream_rows(rows, file, "json" if form == "jsonl" else form)


class Chunks:
    """A file whose bytes are collected in chunks, each passed on when it is large enough.

    Args:
        pass_on: Takes a chunk; without it chunks are kept.
    """

    closed = False

    def __init__(self, pass_on: Callable[[bytes], None] | None = None) -> None:
        self._parts: list[bytes] = []
        self._size = self._place = 0
        self._pass_on = pass_on

    def write(self, data: Any) -> int:
        """Add bytes."""
        part = data if isinstance(data, bytes) else bytes(data)
        self._parts.append(part)
        self._size += len(part)
        self._place += len(part)
        if self._pass_on is not None and self._size >= _CHUNK_BYTES:
            self._pass_on(b"".join(self.taken()))
        return len(part)

    def tell(self) -> int:
        """Return how many bytes were written."""
        return self._place

    def flush(self) -> None:
        """Do nothing: chunks are passed on when they are large enough."""

    def close(self) -> None:
        """Do nothing: whoever reads the chunks decides when they end."""

    def writable(self) -> bool:
        """Return True: it is a file to write to."""
        return True

    def readable(self) -> bool:
        """Return False."""
        return False

    def seekable(self) -> bool:
        """Return False."""
        return False

    def taken(self) -> list[bytes]:
        """Return what is not passed on yet."""
        parts, self._parts, self._size = self._parts, [], 0
        return parts


class _NobodyReads(Exception):
    """Nobody reads the chunks any more."""


class _ChunkQueue:
    """Passes chunks from the thread that writes rows to who sends them, a few ahead."""

    def __init__(self) -> None:
        self._chunks: queue.Queue[bytes | BaseException | None] = queue.Queue(_CHUNKS_AHEAD)
        self._ended = threading.Event()
        self.take = self._chunks.get
        self.end = self._ended.set

    def put(self, item: bytes | BaseException | None) -> None:
        """Pass on a chunk, an error, or None at the end.

        Raises:
            _NobodyReads: nobody reads any more.
        """
        while not self._ended.is_set():
            try:
                self._chunks.put(item, timeout=0.2)
            except queue.Full:
                continue
            return
        raise _NobodyReads

    def write_all(self, answer: Answer) -> None:
        """Write an answer to the queue, in a thread of its own."""
        try:
            file = Chunks(self.put)
            answer.write(file)
            self.put(b"".join(file.taken()))
            self.put(None)
        except _NobodyReads:
            _log.info("an answer was broken off by its client")
        except BaseException as error:  # noqa: BLE001 - it is raised where the chunks are read
            with suppress(_NobodyReads):
                self.put(error)


async def _streamed(answer: Answer) -> AsyncIterator[bytes]:
    """Yield the bytes of rows."""
    chunks = _ChunkQueue()
    threading.Thread(target=chunks.write_all, args=(answer,), name="answer", daemon=True).start()
    try:
        while (item := await to_thread.run_sync(chunks.take)) is not None:
            if isinstance(item, BaseException):
                raise item
            if item:
                yield item
    finally:
        chunks.end()
