"""Rows that are written to a temp file before a statement reads them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa

from sleeper.engine.rows import Rows
from sleeper.language.value_classes import dataclass


@dataclass(frozen=True, slots=True)
class SpooledRead:
    """A read of rows that are in a temp file; `NarrowedRead` says more.

    Attributes:
        path: The file.
        transaction: The transaction number of the rows.
    """

    path: Path
    transaction: int
    is_exact: bool = False

    def rows(self, columns: Sequence[str] | None) -> Rows:
        """Return the rows of some columns of the file."""
        with pa.memory_map(str(self.path)) as source:
            schema = pa.ipc.open_file(source).schema
        names = schema.names if columns is None else [*columns]
        chosen = pa.schema([schema.field(name) for name in names])
        return Rows(self._batches(names), chosen, self.transaction)

    def _batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        with pa.memory_map(str(self.path)) as source:
            reader = pa.ipc.open_file(source)
            for index in range(reader.num_record_batches):
                yield reader.get_batch(index).select(names)

    def explain(self) -> str:
        """Return what is read."""
        return "a temp file"


@contextmanager
def spooled(read: Callable[[], Rows], temp_folder: Path | None) -> Iterator[SpooledRead]:
    """Write rows to a temp file, which lasts as long as the block."""
    with TemporaryDirectory(prefix="sleeper-sql-", dir=temp_folder) as folder:
        path = Path(folder) / "rows.arrow"
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        with (
            read() as rows,
            pa.OSFile(str(path), "wb") as sink,
            pa.ipc.new_file(sink, rows.schema, options=options) as writer,
        ):
            for batch in rows:
                writer.write_batch(batch)
        yield SpooledRead(path, rows.transaction)
