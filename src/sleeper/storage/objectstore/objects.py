"""Objects in a bucket, for any number of processes and machines.

The store decides which of several writers creates an object, by conditional requests. There are no
locks. Only parts of uploads of killed processes are left over; a lifecycle rule of the bucket
deletes them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, TypeVar
from urllib.parse import quote

from sleeper.errors import ObjectTooShort, StorageFailed
from sleeper.language.value_classes import dataclass
from sleeper.ports.objects import ObjectInfo
from sleeper.storage.keys import check_key, check_prefix, check_ranges, folder_prefix, is_key
from sleeper.storage.objectstore.beside import at_once
from sleeper.storage.objectstore.client import Client, is_overload, obstore, panics_as_errors
from sleeper.storage.objectstore.failures import (
    is_about_range,
    is_missing_bucket,
    is_past_the_end,
    not_found,
    read_failure,
    vendor_errors,
    write_failure,
)
from sleeper.storage.objectstore.joined_ranges import cut_runs, join_ranges
from sleeper.storage.objectstore.names import key_of, stored_name
from sleeper.storage.objectstore.output import BucketOutput
from sleeper.storage.objectstore.run_requests import get_runs

T = TypeVar("T")

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
        name = self._opened(key)
        try:
            return self.client.call(lambda store: bytes(obstore().get(store, name).bytes()))
        except FileNotFoundError as error:
            if is_missing_bucket(error):
                raise self._read_failure(error, key) from error
            return None
        except vendor_errors() as error:
            raise self._read_failure(error, key) from error

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
        name = self._opened(key)
        try:
            return self._modified(name)
        except FileNotFoundError as error:
            if is_missing_bucket(error):
                raise self._read_failure(error, key) from error
            return None
        except vendor_errors() as error:
            raise self._read_failure(error, key) from error

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
