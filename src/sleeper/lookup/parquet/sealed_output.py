"""The stream that a data file is written through: it adds page sums and a seal."""

from __future__ import annotations

from types import TracebackType
from typing import Protocol, Self

from sleeper.lookup.parquet.footer import TAIL_BYTES, footer_length, read_footer
from sleeper.lookup.parquet.page_sums import RunningChecksums, page_sums_bytes
from sleeper.lookup.parquet.seal import seal_bytes


class ByteStream(Protocol):
    """A binary stream to write to."""

    def write(self, data: bytes | memoryview, /) -> int:
        """Write all of `data` and return its length in bytes."""

    def flush(self) -> None:
        """Pass on what is buffered."""

    def close(self) -> None:
        """End the stream."""


class SealedOutput:
    """A stream for `pyarrow.parquet.ParquetWriter` that puts page sums and a seal into the file.

    Each page must be written by itself, as pyarrow does. Call `hold` just before the writer is
    closed: from then on bytes are kept in memory (the filters, the indexes, the footer, and the
    last row group if it is not flushed yet). `close` writes them with sums and seal and closes the
    stream below. The writer must have been closed by then.
    """

    def __init__(self, output: ByteStream) -> None:
        self._output = output
        self._position = 0
        self._checksums = RunningChecksums()
        self._held: bytearray | None = None
        self._held_start = 0
        self.closed = False

    def write(self, data: bytes | memoryview, /) -> int:
        """Pass bytes on, or keep them after `hold`."""
        size = memoryview(data).nbytes
        self._position += size
        self._checksums.add(data, size)
        if self._held is None:
            self._output.write(data)
        else:
            self._held += data
        return size

    def tell(self) -> int:
        """How many bytes were written, without sums and seal."""
        return self._position

    def flush(self) -> None:
        """Pass on what is not kept."""
        self._output.flush()

    def hold(self) -> None:
        """Keep what comes from now on, until `close`."""
        if self._held is None:
            self._held, self._held_start = bytearray(), self._position

    def close(self) -> None:
        """Write what was kept, with sums and seal, and close the stream below."""
        if self.closed:
            return
        self.closed = True
        if self._held is not None:
            tail, self._held = bytes(self._held), None
            self._write_sealed(tail)
        self._output.close()

    def _write_sealed(self, tail: bytes) -> None:
        start = self._held_start
        footer_start = len(tail) - TAIL_BYTES - footer_length(tail, self._position)
        footer = read_footer(tail[footer_start:-TAIL_BYTES], start + footer_start)
        seal = seal_bytes(footer, footer_start, tail, start)
        self._output.write(tail[:footer_start])
        self._output.write(page_sums_bytes(footer, tail, start, self._checksums))
        self._output.write(seal)
        self._output.write(tail[footer_start:])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
