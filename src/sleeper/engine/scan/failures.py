"""Translates errors of DataFusion, which usually do not name the file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from errno import EACCES, EIO, EMFILE, ENFILE, ENOENT, ENOMEM, EPERM
from typing import Any

from sleeper.engine.scan.session import FileMissing
from sleeper.errors import DataDamaged, SleeperError, StorageFailed
from sleeper.language.failures import is_panic

_OS_ERROR = re.compile(r"\(os error (\d+)\)")
_STORAGE_FAULTS = {EACCES, EIO, EMFILE, ENFILE, ENOMEM, EPERM}


def translate_read_errors(
    batches: Iterator[Any], explain: Callable[[BaseException], SleeperError]
) -> Iterator[Any]:
    """Yield `batches`; an error of reading them is raised as the error that `explain` returns."""
    try:
        yield from batches
    except BaseException as error:
        if is_read_failure(error):
            raise explain(error) from error
        raise


def is_read_failure(error: BaseException) -> bool:
    """Return whether DataFusion raised this error, or a Rust panic, which is no `Exception`."""
    if isinstance(error, SleeperError | AssertionError):
        return False
    return isinstance(error, Exception) or is_panic(error)


def is_shortage(error: BaseException) -> bool:
    """Return whether no file caused the error: memory is short, or the storage refuses."""
    text = str(error)
    os_error = _OS_ERROR.search(text)
    return (
        "Resources exhausted" in text
        or "No suitable object store" in text
        or "Generic " in text  # object stores: no connection, no permission, a server's fault
        or (os_error is not None and int(os_error[1]) in _STORAGE_FAULTS)
    )


def resource_error(error: BaseException, file_count: int) -> StorageFailed:
    """Return the error for a read that failed although its files may be intact."""
    if "Resources exhausted" in str(error):
        return StorageFailed(
            f"merging {file_count} data files needs more memory than the reader may use: compact "
            f"the table, request fewer columns, or give the reader more memory ({_short(error)})"
        )
    return StorageFailed(f"reading {file_count} data files failed: {_short(error)}. Try again.")


def file_failure(url: str, error: BaseException) -> SleeperError:
    """Return the error for a file that cannot be read."""
    os_error = _OS_ERROR.search(str(error))
    gone = os_error is not None and int(os_error[1]) == ENOENT
    if isinstance(error, FileMissing) or gone or "not found" in str(error).lower():
        return DataDamaged(
            f"data file {url} is missing or empty. If this reader is older than the garbage "
            "collector's delay, the file was replaced: refresh the table and query again. "
            "If it fails again, the file must be restored."
        )
    return DataDamaged(f"data file {url} is damaged and must be restored: {_short(error)}")


def _short(error: BaseException) -> str:
    return str(error).removeprefix("DataFusion error: ").strip()[:500]
