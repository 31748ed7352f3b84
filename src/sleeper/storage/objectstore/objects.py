"""Objects in a bucket, for any number of processes and machines.

The store decides which of several writers creates an object, by conditional requests. There are no
locks. Only parts of uploads of killed processes are left over; a lifecycle rule of the bucket
deletes them.
"""

from __future__ import annotations

import logging
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache, lru_cache, partial
from typing import Any, Final, TypeVar
from urllib.parse import quote

from sleeper.errors import ObjectTooShort, StorageFailed
from sleeper.ports.objects import (
    ObjectInfo,
    check_key,
    check_prefix,
    check_ranges,
    folder_prefix,
    is_key,
)
from sleeper.storage.objectstore.client import (
    Client,
    is_about_range,
    is_missing_bucket,
    is_overload,
    is_past_the_end,
    not_found,
    obstore,
    panics_as_errors,
    read_failure,
    vendor_errors,
    write_failure,
)
from sleeper.storage.objectstore.output import BucketOutput

# ---------------------------------------------------------------- joined ranges
#
# Decides which ranges of one object are read by the same request.
#
# A request takes the time of one round trip and some CPU; bytes that nobody asked for take
# bandwidth. So two ranges share a request only if they are nearer to each other than they are
# large, or very near: of what is read, at most about half was not asked for.

Run = tuple[int, int]
"""The start and the end of what one request reads."""

NEAR_BYTES = 16 << 10
"""Ranges of any size share a request if there are at most so many bytes between them."""

FAR_BYTES = 512 << 10
"""Ranges never share a request if there are more bytes between them."""

RUNS_AT_ONCE = 40
"""Number of requests of one read that are sent at once; others wait for one of them."""

SEVERAL_RUNS = 5
"""If one read would take more requests than these, ranges share one that are farther apart."""

SEVERAL_NEAR_BYTES = 32 << 10
"""Takes the place of `NEAR_BYTES` then, as for the pages of a hundred keys."""

WAITING_NEAR_BYTES = 128 << 10
"""Takes the place of `NEAR_BYTES` if requests would have to wait for each other."""


def join_ranges(ranges: Iterable[tuple[int, int]]) -> list[Run]:
    """Return what to request so that each (offset, length) is in one run: ascending, disjoint."""
    pieces: list[list[int]] = []
    for offset, length in sorted(ranges):
        if pieces and offset <= pieces[-1][1]:
            pieces[-1][1] = max(pieces[-1][1], offset + length)
        else:
            pieces.append([offset, offset + length])
    runs = _bridged(pieces, NEAR_BYTES)
    if len(runs) > SEVERAL_RUNS:
        runs = _bridged(pieces, SEVERAL_NEAR_BYTES)
    return runs if len(runs) <= RUNS_AT_ONCE else _bridged(pieces, WAITING_NEAR_BYTES)


def _bridged(pieces: Sequence[Sequence[int]], near: int) -> list[Run]:
    runs: list[Run] = []
    before = 0  # the size of the piece that ends the last run
    for start, end in pieces:
        size = end - start
        if runs and start - runs[-1][1] <= max(near, min(before, size, FAR_BYTES)):
            runs[-1] = (runs[-1][0], end)
        else:
            runs.append((start, end))
        before = size
    return runs


def cut_runs(
    runs: Sequence[Run], bodies: Sequence[bytes | memoryview], ranges: Iterable[tuple[int, int]]
) -> list[bytes]:
    """Return the bytes of each (offset, length); fewer if the body of its run is too short.

    Args:
        runs: What was requested for the ranges, by `join_ranges`.
        bodies: What was read of each run.
        ranges: The ranges. Empty ones may be anywhere.
    """
    starts = [start for start, _ in runs]
    cut = []
    for offset, length in ranges:
        if length:
            run = bisect_right(starts, offset) - 1
            at = offset - starts[run]
            cut.append(bytes(bodies[run][at : at + length]))
        else:
            cut.append(b"")
    return cut


# ---------------------------------------------------------------- requests side by side
#
# Work beside the caller's: requests that are sent at once, each in a thread of this process.

T = TypeVar("T")

_THREADS_MAX: Final = 64
"""As many requests beside others may be under way in a process."""


def at_once(work: Callable[[], T]) -> Callable[[], T]:
    """Begin `work` in a thread; return what waits for its result or raises its error.

    Work that no thread has begun is done by whoever asks. So work that waits for other work
    never waits for a free thread.
    """
    future = _threads().submit(work)
    by_asker = cache(work)

    def result() -> T:
        return by_asker() if future.cancel() else future.result()

    return result


@lru_cache(maxsize=1)
def _threads() -> ThreadPoolExecutor:
    """Return the threads of this process; each is made when it is needed first."""
    return ThreadPoolExecutor(_THREADS_MAX, thread_name_prefix="sleeper-request")


# ---------------------------------------------------------------- run requests
#
# Requests several parts of one object at once.

_RUNS_A_CALL = 10
"""Number of requests that one call of obstore sends at once."""

_CALLS_AT_ONCE = 4
"""Number of such calls for one read; with the number above, `RUNS_AT_ONCE`."""


def get_runs(client: Client, name: str, runs: Sequence[Run]) -> list[memoryview]:
    """Return the bytes of each run, which are fewer if the object ends before; a request for each.

    Raises:
        Exception: any error of obstore.
    """
    calls = min(_CALLS_AT_ONCE, -(-len(runs) // _RUNS_A_CALL))
    if calls == 1:
        return _get(client, name, runs)
    parts = [runs[len(runs) * n // calls : len(runs) * (n + 1) // calls] for n in range(calls)]
    others = [at_once(partial(_get, client, name, part)) for part in parts[1:]]
    found = _get(client, name, parts[0])
    for other in others:
        found += other()
    return found


def _get(client: Client, name: str, runs: Sequence[Run]) -> list[memoryview]:
    starts, ends = zip(*runs, strict=True)

    def request(store: Any) -> Any:
        return obstore().get_ranges(store, name, starts=starts, ends=ends, coalesce=0)

    return [memoryview(body) for body in client.call(request)]


# ---------------------------------------------------------------- names
#
# Names of objects in a bucket: the key, with characters escaped that the client refuses.

_CONTROL = re.compile(r"[\x01-\x1f\x7f]|%(?=0[1-9A-F]|1[0-9A-F]|7F|25)")
_ESCAPED = re.compile(r"%(0[1-9A-F]|1[0-9A-F]|7F|25)")


def stored_name(key: str) -> str:
    r"""Return the name of the object of `key` in the bucket.

    Control characters become `%` and two digits. A `%` that would read like such an escape
    becomes `%25`. Other characters are unchanged.

    >>> stored_name("a b%20c\n")
    'a b%20c%0A'
    """
    return _CONTROL.sub(lambda found: f"%{ord(found[0]):02X}", key)


def key_of(name: str) -> str:
    r"""Return the key whose name in the bucket is `name`.

    >>> key_of(stored_name("%0A\n"))
    '%0A\n'
    """
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), name)


logger = logging.getLogger(__name__)

_PAGE_KEYS = 1_000  # of one request of a listing
_TIME_KEY = "storage.time"  # written to find out the store's time


@dataclass(frozen=True, slots=True)
class BucketObjects:
    """The objects of a bucket, or of one folder in it. May be pickled.

    Attributes:
        client: The bucket.
        prefix: Prefix of keys inside the bucket: empty, or ends in `/`. `under` sets it.
    """

    client: Client
    prefix: str = ""

    @property
    def is_remote(self) -> bool:
        """Return True: each request takes milliseconds."""
        return True

    def beside(self, work: Callable[[], T]) -> Callable[[], T]:
        """Do it in one of this process's threads for requests."""
        return at_once(work)

    def create(self, key: str, body: bytes) -> bool:
        """Put with `If-None-Match: *`: the store refuses it if the key is taken."""
        name = self._opened(key)
        try:
            self.client.call(lambda store: obstore().put(store, name, body, mode="create"))
        except obstore().exceptions.AlreadyExistsError:
            return False
        except vendor_errors() as error:
            raise self._write_failure(error, key) from error
        return True

    def put(self, key: str, body: bytes) -> None:
        """Put without a condition."""
        name = self._opened(key)
        try:
            self.client.call(lambda store: obstore().put(store, name, body))
        except vendor_errors() as error:
            raise self._write_failure(error, key) from error

    def read(self, key: str) -> bytes | None:
        """Get an object."""

        def get(name: str) -> bytes:
            return self.client.call(lambda store: bytes(obstore().get(store, name).bytes()))

        return self._none_if_absent(key, get)

    def read_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Get parts of an object in parallel; ranges that are near share a request."""
        check_ranges(key, ranges)
        name = self._opened(key)
        runs = join_ranges(each for each in ranges if each[1])
        if not runs:
            self.size(key)
            return [b""] * len(ranges)
        try:
            found = get_runs(self.client, name, runs)
        except FileNotFoundError as error:
            raise self._absence(error, key) from error
        except vendor_errors() as error:
            if is_past_the_end(error):
                raise self._too_short(key, ranges) from error
            raise self._read_failure(error, key) from error
        bodies = cut_runs(runs, found, ranges)
        if any(len(body) < length for body, (_, length) in zip(bodies, ranges, strict=True)):
            raise self._too_short(key, ranges)
        return bodies

    def size(self, key: str) -> int:
        """Return the length from a HEAD request."""
        name = self._opened(key)
        try:
            return self.client.call(lambda store: int(obstore().head(store, name)["size"]))
        except FileNotFoundError as error:
            raise self._absence(error, key) from error
        except vendor_errors() as error:
            raise self._read_failure(error, key) from error

    def read_end(self, key: str, length: int) -> tuple[bytes, int]:
        """Get the end of an object by one request, whose answer has the object's length.

        Some servers do not answer that, of an empty object or at all: then by two.
        """
        name = self._opened(key)

        def get_end(store: Any) -> tuple[bytes, int]:
            found = obstore().get(store, name, options={"range": {"suffix": length}})
            return bytes(found.bytes()), int(found.meta["size"])

        try:
            body, size_bytes = self.client.call(get_end)
        except FileNotFoundError as error:
            raise self._absence(error, key) from error
        except vendor_errors() as error:
            if not is_about_range(error):
                raise self._read_failure(error, key) from error
            size_bytes = self.size(key)
            length = min(length, size_bytes)
            return self.read_ranges(key, [(size_bytes - length, length)])[0], size_bytes
        if len(body) != min(length, size_bytes):
            raise self._too_short(key, [(size_bytes - length, length)])
        return body, size_bytes

    def stored_at(self, key: str) -> datetime | None:
        """Ask for the object's head."""
        return self._none_if_absent(key, self._modified)

    def open_output(self, key: str) -> BucketOutput:
        """Open a stream that is uploaded in parts; the store joins them when it is closed."""
        return BucketOutput(
            self.client, self._name(key), lambda error: self._write_failure(error, key)
        )

    def url(self, key: str) -> str:
        """Return the object's URL, percent-encoded."""
        check_key(key)
        bucket = self.client.bucket
        return f"{bucket.scheme}://{bucket.name}/{quote(stored_name(self.prefix + key))}"

    def listing(self, prefix: str = "", after: str = "") -> Iterator[ObjectInfo]:
        """List page by page while the result is iterated; pages are in the order of keys."""
        check_prefix(prefix)
        return self._listed(self.prefix + prefix, self.prefix + after)

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects, a thousand in each request."""
        names = [*dict.fromkeys(self._name(key) for key in keys)]
        if not names:
            return
        self.client.store()
        try:
            self.client.call(lambda store: _delete(store, names))
        except vendor_errors() as error:
            first = key_of(names[0])
            raise write_failure(error, self.client.bucket, first) from error
        logger.debug("deleted %d objects: %s", len(names), ", ".join(names))

    def storage_time(self) -> datetime:
        """Put an object of one byte and return its modification time."""
        self.put(_TIME_KEY, b".")
        name = self._opened(_TIME_KEY)
        try:
            return self._modified(name)
        except vendor_errors() as error:
            raise self._read_failure(error, _TIME_KEY) from error

    def writer_lock(
        self, key: str, meanwhile: Callable[[], object]
    ) -> AbstractContextManager[None]:
        """Continue at once: buckets have no locks (see the port)."""
        return nullcontext()

    def under(self, prefix: str) -> BucketObjects:
        """Return the objects of one folder. Both share the connection."""
        return replace(self, prefix=self.prefix + folder_prefix(prefix))

    def _modified(self, name: str) -> datetime:
        modified: datetime = self.client.call(
            lambda store: obstore().head(store, name)["last_modified"]
        )
        return modified.astimezone(UTC)

    def _listed(self, start: str, after: str) -> Iterator[ObjectInfo]:
        folder = start[: start.rfind("/") + 1]
        try:
            for page in self._pages(folder, after):
                for found in page:
                    key = key_of(found["path"])
                    name = key.removeprefix(self.prefix)
                    if key.startswith(start) and key > after and is_key(name):
                        modified = found["last_modified"].astimezone(UTC)
                        yield ObjectInfo(name, found["size"], modified)
        except vendor_errors() as error:
            raise read_failure(error, self.client.bucket, folder) from error

    def _pages(self, folder: str, after: str) -> Iterator[Any]:
        """Yield pages; if the store is overloaded, retry from the last page with patience."""
        store, offset = self.client.store(), stored_name(_whole_names(after)) or None
        for patient in (False, True):
            try:
                pages = iter(
                    obstore().list(
                        store,
                        prefix=stored_name(folder[:-1]) or None,
                        offset=offset,
                        chunk_size=_PAGE_KEYS,
                    )
                )
                while (page := _next_page(pages)) is not None:
                    yield page
                    offset = page[-1]["path"] if page else offset
            except obstore().exceptions.BaseError as error:
                if patient or not is_overload(error):
                    raise
                store = self.client.patient_store()
                logger.warning("listing %s is retried with patience: %s", folder, error)
            else:
                return

    def _name(self, key: str) -> str:
        check_key(key)
        return stored_name(self.prefix + key)

    def _opened(self, key: str) -> str:
        """Return an object's name, after opening the store, which may raise our own errors."""
        self.client.store()
        return self._name(key)

    def _none_if_absent(self, key: str, ask: Callable[[str], T]) -> T | None:
        """Return what the store says of an object, given its name; None if there is no object."""
        name = self._opened(key)
        try:
            return ask(name)
        except FileNotFoundError as error:
            if is_missing_bucket(error):
                raise self._read_failure(error, key) from error
            return None
        except vendor_errors() as error:
            raise self._read_failure(error, key) from error

    def _absence(self, error: Exception, key: str) -> StorageFailed:
        if is_missing_bucket(error):
            return self._read_failure(error, key)
        return not_found(self.client.bucket, self.prefix + key)

    def _read_failure(self, error: Exception, key: str) -> StorageFailed:
        return read_failure(error, self.client.bucket, self.prefix + key)

    def _write_failure(self, error: Exception, key: str) -> StorageFailed:
        return write_failure(error, self.client.bucket, self.prefix + key)

    def _too_short(self, key: str, ranges: Sequence[tuple[int, int]]) -> StorageFailed:
        """Return the error of bytes that are missing: of the object, or of an answer alone."""
        is_object = self.size(key) < _end(ranges)
        return (ObjectTooShort if is_object else StorageFailed)(
            f"{self.client.bucket.named(self.prefix + key)} ends before byte {_end(ranges)}, up to "
            "which it should be read. It is shorter than expected: truncated, or replaced."
        )


def _next_page(pages: Iterator[Any]) -> Any:
    with panics_as_errors():
        return next(pages, None)


def _end(ranges: Sequence[tuple[int, int]]) -> int:
    return max(offset + length for offset, length in ranges)


def _whole_names(after: str) -> str:
    """Return the longest prefix of `after` that is a valid key of complete names.

    A listing may begin there; keys up to `after` are skipped.
    """
    while after and not is_key(after):
        after = after.rpartition("/")[0]
    return after


def _delete(store: Any, names: list[str]) -> None:
    try:
        obstore().delete(store, names)
    except FileNotFoundError as error:  # some stores report an absent object as an error
        if is_missing_bucket(error) or len(names) == 1:
            return
        for name in names:
            _delete(store, [name])
