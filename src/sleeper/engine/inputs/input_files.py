"""Input from Parquet files and folders: finds them, checks their footers, then reads them.

A path or URL is a file or a folder, never a prefix: `b/a` does not match `b/ab.parquet`. Up to 4
MiB a column are read ahead from a file by URL, 1 MiB from a local file.
"""

from __future__ import annotations

import errno
import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from glob import glob
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

from sleeper.engine.arrow_schema import check_columns
from sleeper.errors import BadRequest, InputNotFound, InputUnreadable, UrlInvalid
from sleeper.lookup.parquet.pages import is_bomb
from sleeper.model.input_names import (
    data_files,
    folder_of_pattern,
    is_hidden,
    is_pattern,
    other_kind,
    text_advice,
)
from sleeper.ports.objects import InputStore

_BATCH_ROWS_MAX = 131_072
_BATCH_BYTES_MAX = 32 << 20
_READ_BYTES = 1 << 20  # read ahead in each column; without it complete column chunks are in memory
_REMOTE_READ_BYTES = 4 << 20  # the same for files by URL, where each read is a request
_FOOTERS_AT_ONCE = 32  # of files by URL: reading one is mostly latency
_BEGINNING_BYTES = 1 << 12
_NAMES_LOGGED = 5
_NO_PATH = (errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL)
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")

_log = logging.getLogger(__name__)

AnyPath = str | bytes | os.PathLike[Any]


def find_files(
    paths: Iterable[AnyPath],
    remote: InputStore | None = None,
    *,
    left_out: Callable[[str, set[str]], object] = lambda folder, names: None,
) -> tuple[str, ...]:
    """Return the files of paths, in the given order; those of folders and patterns are sorted.

    Args:
        paths: Files, folders and patterns such as `in/*.csv`, of this machine or by URL. A folder
            means the Parquet files below it, or if there are none, its files of CSV and JSON
            lines. A path that exists is no pattern.
        remote: Finds files by URLs with a scheme other than `file`.
        left_out: Called with a folder of this machine and the names of files below it that are
            not read, if there are any.

    Raises:
        InputNotFound: a path does not exist or cannot be one, a folder has no such file below
            it, a pattern matches none, a URL cannot be read here, or a file is given twice, which
            would double its rows.
        UrlInvalid: `remote` does not support such URLs, or it is none.
    """
    files: list[str] = []
    for path in map(_local_path, paths):
        if is_remote(path):
            files += _find_remote(path, remote)
        else:
            files += _find_local(path, left_out)
    _refuse_repeats(files)
    return tuple(files)


def file_sizes(paths: Iterable[AnyPath], remote: InputStore | None = None) -> dict[str, int]:
    """Return the files of paths, each once, with the bytes of each, without opening any.

    Args:
        paths: As for `find_files`.
        remote: Finds files by URLs with a scheme other than `file`.

    Raises:
        InputNotFound, UrlInvalid, StorageFailed: as for `find_files`.
    """
    sizes: dict[str, int] = {}
    for path in map(_local_path, paths):
        if is_remote(path) and remote is not None:
            sizes |= remote.sizes(path)
        else:
            sizes |= {file: Path(file).stat().st_size for file in find_files([path], remote)}
    return sizes


def _find_local(path: str, left_out: Callable[[str, set[str]], object]) -> list[str]:
    """Return a file itself, or the files below a folder or of a pattern, sorted."""
    try:
        if Path(path).is_dir():
            every = sorted(_files_below(path, set()))
            below = data_files(every)
            if not below:
                others = f"; it has {_names(path, every)}" if every else ""
                raise InputNotFound(
                    f"the folder {shown(path)} has no *.parquet file below it, and no file of CSV "
                    f"or JSON lines{others}"
                )
            if len(below) < len(every):
                left_out(path, set(every) - set(below))
            return below
        if Path(path).exists():
            return [path]
        if is_pattern(path):
            return _find_by_pattern(path, left_out)
    except ValueError as error:  # NUL
        raise InputNotFound(f"{shown(path)} cannot be a path: {error}") from None
    except OSError as error:
        if error.errno in _NO_PATH:
            raise InputNotFound(f"{shown(path)} cannot be a path here: {error.strerror}") from None
        raise
    where = "" if Path(path).is_absolute() else f"; relative paths begin at {Path.cwd()}"
    if path.startswith("~"):
        where = "; for a folder of a user give Path(...).expanduser()"
    raise InputNotFound(f"there is no file or folder {shown(path)}{where}")


def log_left_out(folder: str, names: set[str]) -> None:
    """Say which files of a folder are not read: of a folder with Parquet files, CSV is not."""
    _log.warning("files of %s that are not read: %s", shown(folder), _names(folder, sorted(names)))


def _names(folder: str, paths: Sequence[str]) -> str:
    """Return the first of some files of a folder, and how many more there are."""
    first = ", ".join(os.path.relpath(path, folder) for path in paths[:_NAMES_LOGGED])
    more = len(paths) - _NAMES_LOGGED
    return f"{first} and {more:,} more" if more > 0 else first


def _find_by_pattern(pattern: str, left_out: Callable[[str, set[str]], object]) -> list[str]:
    """Return the files of a pattern of this machine, and those below its folders."""
    named = glob(pattern, recursive=True)  # noqa: PTH207 - a pattern may be absolute
    start = len(folder_of_pattern(pattern))  # hidden names there were given
    found = sorted(path for path in named if not any(map(is_hidden, Path(path[start:]).parts)))
    if not found:
        raise InputNotFound(f"no file matches {shown(pattern)}")
    files = [path for path in found if not Path(path).is_dir()]
    return files or [file for folder in found for file in _find_local(folder, left_out)]


def shown(path: str) -> str:
    """Return a path for a message, in quotes; bytes that are not UTF-8 are escaped."""
    return repr(os.fsencode(path).decode("utf-8", "backslashreplace"))


@dataclass(frozen=True, slots=True)
class RowGroup:
    """A row group of an input file: the smallest unit that a task of a cluster reads.

    Attributes:
        path: The file, or its URL.
        index: Its place in the file.
        row_count: Rows in it.
        size_bytes: Bytes of the table's columns in it, before compression.
        key_min: The least value of the first row key, from the file's statistics; None if
            there are none.
        key_max: The greatest.
    """

    path: str
    index: int
    row_count: int
    size_bytes: int
    key_min: Any
    key_max: Any


@dataclass(frozen=True, slots=True)
class _Footer:
    """The content of a file's footer."""

    schema: pa.Schema
    row_count: int
    row_groups: tuple[RowGroup, ...]


class InputFiles:
    """The rows of Parquet files, file after file.

    Attributes:
        files: Their paths.
        name: Their name in messages.
        origin: The file that is being read.
        schema: None: each file has its own schema, which is checked against the table's.
    """

    def __init__(
        self, files: tuple[str, ...], arrow_schema: pa.Schema, remote: InputStore | None = None
    ) -> None:
        self.files = files
        self.name = shown(files[0]) if len(files) == 1 else f"{len(files)} files"
        self.origin = self.name
        self.schema: pa.Schema | None = None
        self._arrow_schema = arrow_schema
        self._remote = remote
        self._footers: list[_Footer] | None = None
        self._row_groups: list[RowGroup] | None = None
        self._checked = False

    @property
    def row_count(self) -> int | None:
        """Rows of all files, from their footers."""
        if self._row_groups is not None:
            return sum(group.row_count for group in self._row_groups)
        return sum(footer.row_count for footer in self._read_footers())

    def accept(self, row_groups: Iterable[RowGroup]) -> None:
        """Take row groups that others have read and checked: no footer is read here any more.

        Args:
            row_groups: Those of all files, file after file.
        """
        self._row_groups = [*row_groups]
        self._checked = True

    def check(self, *, ignore_extra_columns: bool) -> None:
        """Open every file, and compare its columns with the table's."""
        if self._row_groups is not None:
            return
        for path, footer in zip(self.files, self._read_footers(), strict=True):
            check_columns(
                footer.schema,
                self._arrow_schema,
                ignore_extra_columns=ignore_extra_columns,
                origin=shown(path),
            )
        self._checked = True

    def batches(
        self, columns: Sequence[str] | None = None, rows_per_file_max: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows, with only the columns that the table has."""
        if not self._checked:
            self.check(ignore_extra_columns=False)
        wanted = self._arrow_schema.names if columns is None else columns
        for path in self.files:
            self.origin = shown(path)
            yield from _rows_of(path, wanted, rows_per_file_max, remote=self._remote)

    def row_groups(self) -> list[RowGroup]:
        """Return the row groups of all files that have rows, file after file."""
        if self._row_groups is not None:
            return self._row_groups
        return [group for footer in self._read_footers() for group in footer.row_groups]

    def _read_footers(self) -> list[_Footer]:
        if self._footers is None:
            read = partial(_read_footer, columns=self._arrow_schema.names, remote=self._remote)
            if any(map(is_remote, self.files)):
                with ThreadPoolExecutor(_FOOTERS_AT_ONCE) as threads:
                    self._footers = list(threads.map(read, self.files))
            else:
                self._footers = [read(path) for path in self.files]
        return self._footers


def checked_row_groups(
    path: str, arrow_schema: pa.Schema, remote: InputStore | None, *, ignore_extra_columns: bool
) -> tuple[RowGroup, ...]:
    """Read one file's footer, compare its columns with the table's, and return its row groups.

    Raises:
        InputSchemaMismatch: columns do not fit the table; the message names the file.
        InputNotFound, InputUnreadable: the file no longer exists, or cannot be read.
    """
    footer = _read_footer(path, arrow_schema.names, remote)
    check_columns(
        footer.schema, arrow_schema, ignore_extra_columns=ignore_extra_columns, origin=shown(path)
    )
    return footer.row_groups


def file_schema(path: str, remote: InputStore | None) -> pa.Schema:
    """Return the columns of a Parquet file.

    Raises:
        InputUnreadable: it is no Parquet file.
    """
    try:
        with _open(path, remote) as file:
            found: pa.Schema = file.schema_arrow
    except (OSError, pa.ArrowException) as error:
        _translate(error, path)
    return found


def read_row_groups(
    path: str,
    indexes: Sequence[int],
    columns: Sequence[str],
    rows_max: int | None = None,
    *,
    remote: InputStore | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of some row groups of one file, with those of `columns` that it has.

    Args:
        path: The file, or its URL.
        indexes: Places of row groups in the file.
        columns: Names of columns, in this order.
        rows_max: Maximum number of rows to read from the start; little more of the file is read.
        remote: Opens the file if it is a URL.

    Raises:
        InputNotFound: the file no longer exists.
        InputUnreadable: the file is damaged; the message names it.
    """
    return _rows_of(path, columns, rows_max, indexes, remote)


def _local_path(path: AnyPath) -> str:
    """Return the path of a `file://` URL; any other path or URL unchanged."""
    local = os.fsdecode(path)
    if not local:
        raise BadRequest(f"{path!r} is not a file: give the path or URL of a file or a folder")
    if not _URL.match(local):
        return local
    try:
        url = urlsplit(local)
    except ValueError as error:
        raise UrlInvalid(f"{shown(local)} is not a URL: {error}") from None
    if url.scheme.lower() != "file" or url.netloc not in ("", "localhost"):
        return local
    return unquote(url.path, errors="surrogateescape")


def is_remote(path: str) -> bool:
    """Return whether a path is a URL of another machine's file."""
    return _URL.match(path) is not None


def _find_remote(url: str, remote: InputStore | None) -> list[str]:
    if url.lower().startswith(("http://", "https://")):
        raise UrlInvalid(
            f"{shown(url)} is a page of the web, and files are read from this machine and from "
            "buckets (s3://bucket/file): download it first"
        )
    if remote is None or url.lower().startswith("file:"):
        raise InputNotFound(
            f"{shown(url)} is not on this machine: input is read from local files and folders, "
            "file:// URLs, and object stores that this instance can reach. Download it first"
        )
    return remote.find(url)


def _files_below(folder: str, entered: set[tuple[int, int]]) -> Iterator[str]:
    """Yield the files below a folder. Links are followed, each folder once."""
    status = Path(folder).stat()
    if (status.st_dev, status.st_ino) in entered:
        return
    entered.add((status.st_dev, status.st_ino))
    with os.scandir(folder) as entries:
        for entry in entries:
            if is_hidden(entry.name):
                continue
            if entry.is_dir():
                yield from _files_below(entry.path, entered)
            else:
                yield entry.path


def _refuse_repeats(files: Sequence[str]) -> None:
    seen: dict[object, str] = {}
    for path in files:
        identity = path if is_remote(path) else _identity(path)
        if identity in seen:
            raise InputNotFound(
                f"{shown(path)} is given twice (also as {shown(seen[identity])}), which would "
                "double its rows; give each file once"
            )
        seen[identity] = path


def _identity(path: str) -> tuple[int, int]:
    try:
        status = Path(path).stat()
    except FileNotFoundError:
        raise InputNotFound(f"{shown(path)} is a link to a file that does not exist") from None
    return status.st_dev, status.st_ino


def _read_footer(path: str, columns: Sequence[str], remote: InputStore | None) -> _Footer:
    try:
        if not is_remote(path) and Path(path).stat().st_size == 0:
            raise InputUnreadable(f"{shown(path)} is empty: it has no bytes, not even a footer")
        with _open(path, remote) as file:
            groups = tuple(_row_groups(path, file.metadata, columns))
            return _Footer(file.schema_arrow, file.metadata.num_rows, groups)
    except (OSError, pa.ArrowException) as error:
        _translate(error, path)


def _row_groups(path: str, metadata: Any, columns: Sequence[str]) -> Iterator[RowGroup]:
    for index in range(metadata.num_row_groups):
        group = metadata.row_group(index)
        if not group.num_rows:
            continue
        chunks = [group.column(place) for place in range(group.num_columns)]
        _check_sizes(path, index, chunks)
        wanted = [
            chunk
            for chunk in chunks
            if {chunk.path_in_schema, chunk.path_in_schema.partition(".")[0]} & {*columns}
        ]
        keys = [c.statistics for c in wanted if c.path_in_schema == columns[0]]
        known = bool(keys) and keys[0] is not None and keys[0].has_min_max
        yield RowGroup(
            path=path,
            index=index,
            row_count=group.num_rows,
            size_bytes=sum(chunk.total_uncompressed_size for chunk in wanted),
            key_min=keys[0].min if known else None,
            key_max=keys[0].max if known else None,
        )


def _check_sizes(path: str, row_group: int, chunks: Sequence[Any]) -> None:
    """Refuse a file whose footer announces more than any memory holds, from next to no bytes."""
    for chunk in chunks:
        size, inflated = chunk.total_compressed_size, chunk.total_uncompressed_size
        if size < 0 or inflated < 0 or is_bomb(inflated, size):
            raise InputUnreadable(
                f"{shown(path)} is refused: column {chunk.path_in_schema!r} of row group "
                f"{row_group} has {size:,} bytes and would take {inflated:,} in memory. More than "
                "256 MiB and a thousand times the bytes is not accepted. Nothing was ingested; "
                "write the file with smaller row groups or with dictionaries, or leave it out"
            )


def _rows_of(
    path: str,
    columns: Sequence[str],
    rows_max: int | None,
    row_groups: Sequence[int] | None = None,
    remote: InputStore | None = None,
) -> Iterator[pa.RecordBatch]:
    left = rows_max
    try:
        with _open(path, remote) as file:
            present = [name for name in columns if name in file.schema_arrow.names]
            rows = _batch_rows(file.metadata)
            if rows_max is not None:
                rows = min(rows, rows_max)
            for batch in file.iter_batches(rows, row_groups=row_groups, columns=present):
                if left is None:
                    yield batch.select(present)
                    continue
                yield batch.select(present).slice(0, left)
                left -= min(left, batch.num_rows)
                if not left:
                    return
    except (OSError, pa.ArrowException) as error:
        _translate(error, path)


@contextmanager
def _open(path: str, remote: InputStore | None) -> Iterator[Any]:
    with (
        _opened(path, remote) as opened,
        pq.ParquetFile(
            opened,
            pre_buffer=False,
            buffer_size=_REMOTE_READ_BYTES if is_remote(path) else _READ_BYTES,
            page_checksum_verification=True,
        ) as file,
    ):
        yield file


def _opened(path: str, remote: InputStore | None) -> AbstractContextManager[Any]:
    """What pyarrow reads a file from."""
    if is_remote(path):
        if remote is None:
            raise InputNotFound(f"{shown(path)} is not on this machine, and no store was given")
        return remote.open(path)
    # pyarrow opens no file whose name is not UTF-8, so Python does; a little slower.
    return nullcontext(path) if _is_utf8(path) else Path(path).open("rb")


def _is_utf8(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def _batch_rows(metadata: Any) -> int:
    """Return how many rows may be read at once, by their mean size."""
    groups = [metadata.row_group(place) for place in range(metadata.num_row_groups)]
    widest = max((group.total_byte_size // max(1, group.num_rows) for group in groups), default=1)
    return int(max(1, min(_BATCH_ROWS_MAX, _BATCH_BYTES_MAX // max(1, widest))))


def _translate(error: Exception, path: str) -> NoReturn:
    if isinstance(error, FileNotFoundError):
        raise InputNotFound(f"file {shown(path)} no longer exists") from None
    if (what := _what_else(path)) is not None:
        raise InputUnreadable(
            f"{shown(path)} cannot be read as Parquet: {what}. Nothing was ingested."
        ) from None
    reason = str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__
    raise InputUnreadable(
        f"{shown(path)} cannot be read as Parquet: {reason}. Nothing was ingested; replace the "
        "file, or leave it out. Files of CSV and JSON lines are known by names that end in .csv, "
        ".jsonl, .ndjson or .json, and one of .gz, .zst, .bz2 and .lz4 if they are compressed; "
        "with an option of CSV, such as --separator '\\t', any name is CSV"
    ) from None


def _what_else(path: str) -> str | None:
    """Return what a file on this machine is, if it begins as text, a workbook or the like."""
    if is_remote(path):
        return None
    with suppress(OSError), Path(path).open("rb") as file:
        beginning = file.read(_BEGINNING_BYTES)
        if not beginning.startswith(b"PAR1"):
            return other_kind(beginning) or text_advice(beginning)
    return None
