"""The stream that a data file is written through: it adds page sums and a seal."""

from __future__ import annotations

from types import TracebackType
from typing import Protocol, Self
from zlib import crc32

from sleeper.lookup.parquet.footer import TAIL_BYTES, Footer, footer_length, read_footer
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
    last row group if it is not flushed yet). `seal` writes them with sums and seal, and `close`
    closes the stream below as well. The writer must have been closed by then.

    Attributes:
        size_bytes: Bytes that were passed on.
    """

    def __init__(self, output: ByteStream) -> None:
        self._output: ByteStream | None = output
        self._position = 0
        self.size_bytes = 0
        self._checksums = RunningChecksums()
        self._held: bytearray | None = None
        self._held_start = 0
        self.closed = False

    def write(self, data: bytes | memoryview, /) -> int:
        """Write bytes to the underlying stream; after `hold`, keep them in memory."""
        size = memoryview(data).nbytes
        self._position += size
        sums = self._checksums
        sums.value = crc32(data, sums.value)
        sums.positions.append(self._position)
        sums.values.append(sums.value)
        if self._held is not None:
            self._held += data
        elif self._output is not None:
            self.size_bytes += size
            self._output.write(data)
        return size

    def tell(self) -> int:
        """How many bytes were written, without sums and seal."""
        return self._position

    def flush(self) -> None:
        """Flush bytes that are not kept in memory."""
        if self._output is not None:
            self._output.flush()

    def hold(self) -> None:
        """Keep what comes from now on, until `seal` or `close`."""
        if self._held is None:
            self._held, self._held_start = bytearray(), self._position

    def give_up(self) -> None:
        """Pass nothing on any more: pyarrow writes a footer even to a file that was given up."""
        self._output, self._held = None, None

    def close(self) -> None:
        """Write the kept bytes, with sums and seal, and close the underlying stream."""
        if self.closed:
            return
        self.closed = True
        output = self._output
        self.seal()
        if output is not None:
            output.close()

    def seal(self, before_sums: bytes = b"") -> Footer | None:
        """Write what was kept, with sums and seal; the stream below stays open.

        Args:
            before_sums: More bytes, between the page indexes and the page sums.

        Returns:
            The file's footer; None if nothing was kept.
        """
        if self._held is None or self._output is None:
            return None
        tail, self._held = bytes(self._held), None
        start = self._held_start
        footer_start = len(tail) - TAIL_BYTES - footer_length(tail, self._position)
        footer = read_footer(tail[footer_start:-TAIL_BYTES], start + footer_start)
        sums = page_sums_bytes(footer, tail, start, self._checksums)
        seal = seal_bytes(footer, footer_start, tail, start)
        end = tail[:footer_start] + before_sums + sums + seal + tail[footer_start:]
        self.size_bytes += len(end)
        self._output.write(end)
        self._output.flush()
        return footer

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
