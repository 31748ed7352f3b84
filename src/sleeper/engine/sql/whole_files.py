"""Files of a table that a statement needs whole, which DataFusion reads in place of our reader.

DataFusion decodes a file in half of the time that our reader takes, and gives no batch to Python.
It checks no page, so all pages of the columns are compared with their checksums before, once in a
process; and it knows neither regions nor deleted rows. So it reads a table only where a statement
needs all rows of all its files, where they are in a folder, and where they are not too large to be
read twice: from the disk to be checked, and then from the page cache.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pyarrow as pa

from sleeper.engine.reading.session import (
    AS_STORED,
    FileMissing,
    column,
    datafusion,
    file_failure,
    node_names,
)
from sleeper.engine.rows import Rows
from sleeper.engine.temp_folder import temp_folder

_log = logging.getLogger(__name__)

ROWS_MIN: Final = 200_000
"""Tables of fewer rows are read by our reader: to plan a statement again costs as much."""

BYTES_MAX: Final = 2 << 30
"""The files of a statement's tables that are read so, where it returns nothing before it has read
all: where it groups, sorts or joins."""

BYTES_MAX_OF_STREAMS: Final = 256 << 20
"""The same for other statements, whose first rows wait until all pages are checked."""

FILES_MAX: Final = 1_000
"""The files of a table that is read so; each is looked at while a statement is planned."""

SETTINGS_OF_FILES: Final = {
    **AS_STORED,
    "datafusion.execution.parquet.pruning": "false",
    "datafusion.execution.parquet.enable_page_index": "false",
}
"""Of a context that reads such files. No condition reaches them (`plans`), so their indexes are not
needed."""

_LINK: Final = ".parquet"

_BATCH_ROWS: Final = 32_768
"""Joins take a third less CPU by batches of so many rows than by DataFusion's 8,192."""

_BATCH_ROW_BYTES_MAX: Final = 256
"""Of rows with more bytes, a batch of so many is too much for sorts that spill."""

_SAMPLED_ROWS: Final = 1_000
_HOLD_ALL: Final = ("Aggregate", "Sort", "Join", "Window")


@dataclass(frozen=True, slots=True)
class WholeFiles:
    """Files in a folder, of which all rows are those of a table.

    Attributes:
        paths: Their absolute paths.
        arrow_schema: Their columns.
        size_bytes: Their size.
        check: Compares all pages of some columns with their checksums, and returns how many rows
            there are; raises DataDamaged.
        comparable: Columns of floating-point numbers, which a statement gets as SQL compares them
            (`comparable_floats`).
        changed: Columns that a statement gets otherwise than the files have them.
    """

    paths: tuple[str, ...]
    arrow_schema: pa.Schema
    size_bytes: int
    check: Callable[[Sequence[str]], int]
    comparable: frozenset[str] = frozenset()
    changed: frozenset[str] = frozenset()


def bytes_max(physical: Any, *, has_limit: bool) -> int:
    """Return how many bytes of files DataFusion may read by itself for a statement.

    Args:
        physical: The statement's physical plan.
        has_limit: Whether it has a LIMIT of its own.
    """
    if any(word in name for name in node_names(physical) for word in _HOLD_ALL):
        return BYTES_MAX
    return 0 if has_limit else BYTES_MAX_OF_STREAMS


def batch_settings(reads: Iterable[Callable[..., Rows]]) -> dict[str, str]:
    """Return DataFusion's settings for rows of some size.

    Args:
        reads: What returns the rows that are needed, for each table; the first are measured.
    """
    for rows in reads:
        with rows(rows_max=_SAMPLED_ROWS) as found:
            first = next(iter(found), None)
        if first is not None and first.nbytes > _BATCH_ROW_BYTES_MAX * max(1, first.num_rows):
            return {}
    return {"datafusion.execution.batch_size": str(_BATCH_ROWS)}


def frame_of(
    context: Any,
    files: WholeFiles,
    names: Sequence[str],
    stack: ExitStack,
    folder: Path | None,
) -> Any | None:
    """Return a frame of DataFusion with the rows of files; None if our reader must read them.

    Args:
        context: The context of DataFusion.
        files: The files.
        names: The columns, in their order.
        stack: Gets what must last while rows are read.
        folder: Where links to several files are kept; None for the system's temp folder.
    """
    place, extension = Path(files.paths[0]).as_uri(), ""
    if len(files.paths) > 1:  # DataFusion takes one path
        linked = _folder_of_links(files.paths, stack, folder)
        if linked is None:
            return None
        place, extension = f"{linked.as_uri()}/", _LINK
    read = context.read_parquet(place, file_extension=extension, schema=files.arrow_schema)
    return read.select(
        *[
            _comparable(files.arrow_schema.field(name), is_changed=name in files.comparable)
            for name in names
        ]
    )


def _comparable(field: pa.Field, *, is_changed: bool) -> Any:
    """Return a column, of floating-point numbers those that SQL compares."""
    value = column(field.name)
    if not is_changed:
        return value
    functions, literal = datafusion().functions, datafusion().lit
    zero, nan = (literal(pa.scalar(each, field.type)) for each in (0.0, math.nan))
    without_sign = value + zero  # -0.0 + 0.0 is 0.0
    return functions.when(functions.isnan(value), nan).otherwise(without_sign).alias(field.name)


def _folder_of_links(paths: Sequence[str], stack: ExitStack, folder: Path | None) -> Path | None:
    try:
        opened = TemporaryDirectory(
            prefix="sleeper-sql-", dir=temp_folder(folder), ignore_cleanup_errors=True
        )
        made = Path(stack.enter_context(opened)).absolute()  # TMPDIR may be a relative path
        for number, path in enumerate(paths):
            (made / f"{number:06}{_LINK}").symlink_to(path)
    except OSError as error:
        _log.info("no links to data files can be made for SQL, which is slower so: %s", error)
        return None
    return made


def check_are_there(every: Mapping[str, WholeFiles]) -> None:
    """Check that no file is gone.

    DataFusion looks for files when it plans, and takes one that is not there for one without rows.
    A file that is there after it planned was there before, for no file comes back.

    Raises:
        DataDamaged: a file is gone.
    """
    for files in every.values():
        for path in files.paths:
            if not Path(path).exists():
                raise file_failure(path, FileMissing())
