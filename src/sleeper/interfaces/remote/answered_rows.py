"""The rows of an answer: an Arrow stream that is read while it comes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from io import BufferedReader, RawIOBase
from typing import Any, Final

import httpx
import pyarrow as pa

from sleeper.engine.rows import Rows
from sleeper.errors import StorageFailed
from sleeper.interfaces.remote.http_client import HttpClient, unreachable

_BUFFER_BYTES: Final = 1 << 20
_END: Final = b"\xff\xff\xff\xff\x00\x00\x00\x00"


def answered_rows(
    client: HttpClient, path: str, body: Any, counter: Callable[[int], int] | None = None
) -> Rows:
    """Ask for rows, and return them: a stream, or in memory if the server has them there.

    Args:
        client: The server.
        path: Where rows are asked for.
        body: What is asked for, as JSON values.
        counter: Returns the number of the rows, of a transaction, without reading them.
    """
    answer = client.open_rows(path, body)
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
            raise unreachable(self._url, error) from error

    def close(self) -> None:
        """Close the connection; rows that were not read are lost."""
        self._answer.close()

    def __del__(self) -> None:
        self._answer.close()
