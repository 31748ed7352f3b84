"""Sorted runs on local disk: one unlinked temp file of Arrow IPC messages.

The file has no name, so it is deleted when the process ends, in whatever way.
"""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa
from pyarrow import ipc

from sleeper.errors import StorageFailed, StorageFull, StorageReadOnly
from sleeper.language.value_classes import dataclass


@dataclass(frozen=True, slots=True)
class Block:
    """Rows of one run, in key order, as one message of the file.

    Attributes:
        offset: The file offset of the message.
        size_bytes: Its length.
        row_count: Rows in it.
        first_key: The key of its first row, as `key_order.key_at` returns it.
    """

    offset: int
    size_bytes: int
    row_count: int
    first_key: tuple[Any, ...]


class SpillFile:
    """Stores blocks of rows on disk until it is closed. The first block creates the file.

    Raises (from `append`): StorageFull, StorageReadOnly, StorageFailed, naming the folder.

    Attributes:
        size_bytes: Number of written bytes.
    """

    def __init__(self, folder: Path | None, schema: pa.Schema) -> None:
        self._folder = Path(tempfile.gettempdir()) if folder is None else folder
        self._schema = schema
        self._descriptor: int | None = None
        self.size_bytes = 0

    def append(self, rows: pa.Table, first_key: tuple[Any, ...]) -> Block:
        """Write rows and return their block."""
        batch = rows.combine_chunks().to_batches()[0]
        message = batch.serialize()
        block = Block(self.size_bytes, message.size, rows.num_rows, first_key)
        try:
            if self._descriptor is None:
                self._descriptor = _open_nameless(self._folder)
            _write_all(self._descriptor, memoryview(message), block.offset)
        except OSError as error:
            _translate(error, self._folder)
        self.size_bytes += message.size
        return block

    def read(self, blocks: Sequence[Block]) -> pa.Table:
        """Return the rows of blocks that are adjacent in the file."""
        assert self._descriptor is not None
        start = blocks[0].offset
        size = blocks[-1].offset + blocks[-1].size_bytes - start
        buffer = pa.allocate_buffer(size)
        _read_all(self._descriptor, memoryview(buffer), start, self._folder)
        batches = [
            ipc.read_record_batch(buffer.slice(b.offset - start, b.size_bytes), self._schema)
            for b in blocks
        ]
        return pa.Table.from_batches(batches, self._schema)

    def close(self) -> None:
        """Release the disk space."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _open_nameless(folder: Path) -> int:
    with tempfile.TemporaryFile(prefix="sleeper-sort-", dir=folder, buffering=0) as file:
        return os.dup(file.fileno())


def _write_all(descriptor: int, data: memoryview, offset: int) -> None:
    while data:
        written = os.pwrite(descriptor, data, offset)
        data, offset = data[written:], offset + written


def _read_all(descriptor: int, into: memoryview, offset: int, folder: Path) -> None:
    while into:
        count = os.preadv(descriptor, [into], offset)
        if not count:
            raise StorageFailed(
                f"the temp file of the sort in {str(folder)!r} was truncated; run it again"
            )
        into, offset = into[count:], offset + count


def _translate(error: OSError, folder: Path) -> NoReturn:
    where = f"the folder for temporary files, {str(folder)!r},"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        raise StorageFull(
            f"{where} is full: sorting needs about as much space there as the rows take in "
            "memory. Free some space, or set another folder by TMPDIR"
        ) from error
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        raise StorageReadOnly(f"{where} is not writable; set another folder by TMPDIR") from error
    raise StorageFailed(f"{where} cannot be used: {error.strerror or error}") from error
