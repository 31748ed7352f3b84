"""The DataFusion context that one scanner reuses, and the files it has open.

DataFusion is imported at first use, because that takes a quarter of a second and look-ups by key
do not need it. Its threads do not survive a fork, so using it in a child of a process that used it
raises an error; otherwise the child would hang.
"""

from __future__ import annotations

import os
import re
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from errno import EACCES, EIO, EMFILE, ENFILE, ENOENT, ENOMEM, EPERM
from pathlib import Path
from threading import Lock
from typing import Any

import pyarrow as pa

from sleeper.errors import DataDamaged, SleeperError, StorageFailed, is_panic
from sleeper.fork_guard import ForkGuard
from sleeper.lookup.columns import BoundColumn
from sleeper.model.object_stores import ObjectStoreSettings

AS_STORED = {
    # Bloom filters are read again for every query; statistics of pages are cheaper.
    "datafusion.execution.parquet.bloom_filter_on_read": "false",
    # With statistics, a column whose least value equals its greatest is not read but treated as a
    # constant. Both leave out NaN, so NaN would become another row's value.
    "datafusion.execution.collect_statistics": "false",
    # Strings have the types of the schema.
    "datafusion.execution.parquet.schema_force_view_types": "false",
}
"""The settings of every context that reads data files."""

_SETTINGS = {
    **AS_STORED,
    # Predicates select pages to read.
    "datafusion.execution.parquet.pushdown_filters": "true",
    # A cache of predicate columns would also fetch neighbouring pages.
    "datafusion.execution.parquet.max_predicate_cache_size": "0",
    "datafusion.optimizer.repartition_file_scans": "false",
}

_HUGE_PAGES = "MIMALLOC_ALLOW_THP"

_guard = ForkGuard("DataFusion", use="has read a range of a table", instead="read ranges")


def datafusion() -> Any:
    """Return the DataFusion module.

    Raises:
        BadRequest: this process was forked from one that used DataFusion.
    """
    with _small_pages():
        import datafusion as module  # noqa: PLC0415 - see above: a quarter of a second

    _guard.check()
    return module


@contextmanager
def _small_pages() -> Iterator[None]:
    """Let DataFusion's allocator use no huge pages, unless the environment says otherwise.

    Row groups are freed by other threads than those that read them, long after, so memory is used
    in small pieces. Huge pages made a merge of 345 MB take 100 MB more, and half as much CPU time
    again. The allocator reads its environment once, when it is loaded.
    """
    environment = os.environ  # noqa: TID251 - the allocator reads nothing else
    if "datafusion" in sys.modules or _HUGE_PAGES in environment:
        yield
        return
    environment[_HUGE_PAGES] = "0"
    try:
        yield
    finally:
        environment.pop(_HUGE_PAGES, None)


def column(name: str) -> Any:
    """Return the column of exactly this name; DataFusion parses names as SQL identifiers."""
    return datafusion().col('"' + name.replace('"', '""') + '"')


def new_context(
    settings: Mapping[str, str], *, partitions: int, memory_bytes: int, temp_folder: Path | None
) -> Any:
    """Return a context of DataFusion.

    Args:
        settings: What differs from DataFusion's defaults.
        partitions: How many parts of the rows are computed at once.
        memory_bytes: Memory for merging, sorting and grouping; more is spilled.
        temp_folder: Where it is spilled; None for the system's temp folder.
    """
    module = datafusion()
    config = module.SessionConfig().with_target_partitions(partitions)
    for name, value in settings.items():
        config = config.set(name, value)
    runtime = module.RuntimeEnvBuilder().with_fair_spill_pool(memory_bytes)
    if temp_folder is None:
        runtime = runtime.with_disk_manager_os()
    else:
        runtime = runtime.with_disk_manager_specified(str(temp_folder))
    return module.SessionContext(config, runtime)


class FileMissing(Exception):
    """A file of a plan is missing or empty; the plan does not say which."""


class Session:
    """One DataFusion context and a bounded number of open files, for any number of threads.

    An open file is a leaf of a plan: its path, schema and order. The context caches footers and
    page indexes, up to 50 MB.

    Args:
        arrow_schema: The schema of all files.
        key_names: The order of each file: row keys, then sort keys. They have no nulls.
        memory_bytes: Memory for merging.
        batch_rows: Maximum number of rows of a batch.
        temp_folder: Folder for DataFusion's temp files; None for the system's temp folder.
        files_max: Maximum number of open files.
        stores: How to connect to buckets; None if there are none.

    Attributes:
        order: `key_names` as sort expressions.
    """

    def __init__(
        self,
        arrow_schema: pa.Schema,
        key_names: Sequence[str],
        *,
        memory_bytes: int = 1 << 30,
        batch_rows: int = 8192,
        temp_folder: Path | None = None,
        files_max: int = 1000,
        stores: ObjectStoreSettings | None = None,
    ) -> None:
        self._context = new_context(
            {**_SETTINGS, "datafusion.execution.batch_size": str(batch_rows)},
            partitions=1,
            memory_bytes=memory_bytes,
            temp_folder=temp_folder,
        )
        self._arrow_schema = arrow_schema
        self.order = [column(name).sort(ascending=True, nulls_first=False) for name in key_names]
        self._files_max = files_max
        self._stores = stores
        self._buckets: set[str] = set()
        self._frames: OrderedDict[str, Any] = OrderedDict()
        self._lock = Lock()

    def frame(self, url: str, columns: Sequence[BoundColumn] | None = None) -> Any:
        """Return the DataFrame of one file; open files are reused.

        Args:
            url: The file.
            columns: The table's columns as the file has them; None if they are as in the schema.
        """
        with self._lock:
            known = self._frames.get(url)
            if known is not None:
                self._frames.move_to_end(url)
                return known
        self._cache_page_index(url)
        opened = (
            self.open(url, self._arrow_schema)
            if columns is None
            else self._open_changed(url, columns)
        )
        with self._lock:
            self._frames[url] = opened
            while len(self._frames) > self._files_max:
                self._frames.popitem(last=False)
        return opened

    def forget(self, urls: Iterable[str]) -> None:
        """Close files, if they are open."""
        with self._lock:
            for url in urls:
                self._frames.pop(url, None)

    def _cache_page_index(self, url: str) -> None:
        """Load footer and page index of a file into DataFusion's cache, by requesting its schema.

        A query whose file is not cached caches only the footer, and later queries read the index
        again.
        """
        try:
            self._context.read_parquet(self._location(url), file_extension="")
        except Exception as error:
            if "No files found" in str(error):
                raise FileMissing from error
            raise

    def open(self, url: str, arrow_schema: pa.Schema) -> Any:
        """Return the DataFrame of a file that has only these columns, without keeping it open."""
        return self._context.read_parquet(
            self._location(url),
            file_extension="",
            schema=arrow_schema,
            file_sort_order=[self.order],
        )

    def _open_changed(self, url: str, columns: Sequence[BoundColumn]) -> Any:
        """Return the DataFrame of a file that has columns otherwise than the table, or lacks some.

        Keys are in it as in the table, so that it has the same order.
        """
        of_file = pa.schema(
            [
                pa.field(each.column.name, each.arrow_type, self._arrow_schema.field(n).nullable)
                for n, each in enumerate(columns)
                if each.default is None
            ]
        )
        return self.open(url, of_file).select(*[_as_in_table(each) for each in columns])

    def _location(self, url: str) -> str:
        """Return the URL of a file for DataFusion, and register its bucket."""
        if "://" not in url:
            return Path(url).as_uri()  # a bare path would be a pattern
        self._make_known(url)
        return url

    def _make_known(self, url: str) -> None:
        """Register the bucket of `url` in DataFusion, once."""
        scheme, _, rest = url.partition("://")
        bucket = rest.partition("/")[0]
        place = f"{scheme}://{bucket}"
        with self._lock:
            if scheme == "file" or place in self._buckets or self._stores is None:
                return
            store = _object_store(scheme, bucket, self._stores)
            self._context.register_object_store(f"{scheme}://", store, bucket)
            self._buckets.add(place)

    def run(self, plan: Any) -> Any:
        """Return the stream of a physical plan's only partition."""
        return self._context.execute(plan, 0)


def _as_in_table(found: BoundColumn) -> Any:
    """Return what makes a column of the table of a file that has it otherwise, or lacks it."""
    if found.default is not None:
        literal = datafusion().lit
        if found.default.is_valid:
            value = literal(found.default)
        else:  # it makes no literal of a null that is a list
            value = literal(None).cast(found.arrow_type)
    else:
        value = column(found.column.name)
        value = value if found.wider is None else value.cast(found.wider)
    return value.alias(found.name)


def _object_store(scheme: str, bucket: str, settings: ObjectStoreSettings) -> Any:
    from datafusion import object_store  # noqa: PLC0415 - as in `datafusion`

    if settings.ca_file and not settings.has_ssl_cert_file and not settings.allow_http:
        raise StorageFailed(
            f"key ranges of {scheme}://{bucket} are read by DataFusion, which does not read "
            "AWS_CA_BUNDLE and would not trust the store: set SSL_CERT_FILE to the file that "
            f"AWS_CA_BUNDLE names, {settings.ca_file}"
        )
    if scheme == "gs":
        return object_store.GoogleCloud(bucket)
    return object_store.AmazonS3(
        bucket,
        region=settings.region,
        endpoint=settings.endpoint,
        allow_http=settings.allow_http,
    )


# ---------------------------------------------------------------- failures
#
# Translates errors of DataFusion, which usually do not name the file.

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


# ---------------------------------------------------------------- merge
#
# Plans the merge of sorted files as a merge of streams, never a sort.
#
# DataFusion trusts the declared order of a file and then only merges. If it sorted anyway, memory
# and time would grow silently, so every plan is checked before it runs. The check also finds
# missing files, which DataFusion silently treats as empty tables.


def merge_plan(frames: Sequence[Any], order: Sequence[Any], columns: Sequence[str]) -> Any:
    """Return the physical plan that merges `frames`, all in `order`, and keeps `columns`.

    Raises:
        FileMissing: a file does not exist.
    """
    merged = list(frames)
    while len(merged) > 1:  # a balanced tree: the planner recurses over it
        pairs = zip(merged[::2], merged[1::2], strict=False)
        odd_one = merged[-1:] if len(merged) % 2 else []
        merged = [left.union(right) for left, right in pairs] + odd_one
    rows = merged[0].sort(*order) if len(frames) > 1 else merged[0]
    plan = rows.select(*[column(name) for name in columns]).execution_plan()
    _check_plan(plan)
    return plan


def node_names(plan: Any) -> list[str]:
    """Return the names of a physical plan's nodes, from the top."""
    names, nodes = [], [plan]
    while nodes:
        node = nodes.pop()
        names.append(node.display().split(":", 1)[0].split(None, 1)[0])
        nodes += reversed(node.children())
    return names


def _check_plan(plan: Any) -> None:
    names = node_names(plan)
    if "EmptyExec" in names:
        raise FileMissing
    if "SortExec" in names or plan.partition_count != 1:
        raise AssertionError(f"a merge must not sort its rows:\n{plan.display_indent()}")
