"""Input files in buckets: finds and opens Parquet objects by their URLs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sleeper.errors import InputNotFound, InputUnreadable, StorageFailed
from sleeper.model.input_names import (
    data_files,
    folder_of_pattern,
    is_hidden,
    is_pattern,
    pattern_regex,
)
from sleeper.model.object_stores import Bucket, ObjectStoreSettings, split_url
from sleeper.storage.objectstore.client import (
    Client,
    client_of,
    is_about_range,
    is_missing_bucket,
    obstore,
    read_failure,
    vendor_errors,
)

_PAGE_KEYS = 1_000
_END_BYTES = 64 << 10
"""Bytes that are read when an object is opened. They have the footer of most Parquet files."""


class BucketInputs:
    """Reads input from any bucket that this process may read. May be pickled.

    Attributes:
        settings: How to connect to the buckets.
    """

    def __init__(self, settings: ObjectStoreSettings) -> None:
        self.settings = settings
        self._clients: dict[Bucket, Client] = {}

    def find(self, url: str) -> list[str]:
        """Return the URL of an object, or of those below a folder or of a pattern, in key order.

        A URL that ends in `/` is a folder: its `*.parquet`, or if there are none its files of CSV
        and JSON lines. Names beginning with `_` or `.` are left out below a folder. A pattern has
        `*`, `?` or `[abc]`, or `**/` for any folders, and is not the name of an object.

        Raises:
            InputNotFound: the object or folder does not exist, or has no such file below it.
            UrlInvalid: the URL does not name a bucket.
            StorageFailed: the store cannot be read.
        """
        return [*self.sizes(url)]

    def sizes(self, url: str) -> dict[str, int]:
        """Return the files that `find` returns, in its order, with the bytes of each.

        Raises:
            InputNotFound, UrlInvalid, StorageFailed: as for `find`.
        """
        bucket, key = split_url(url)
        client = self._client(bucket)
        client.store()
        try:
            found = client.call(lambda store: _sizes_of(store, key))
        except vendor_errors() as error:
            raise _failure(error, bucket, key) from error
        if not found:
            raise InputNotFound(
                f"there is no object {url!r}, and no object of Parquet, CSV or JSON lines in a "
                "folder of that name"
            )
        return {bucket.named(name): size_bytes for name, size_bytes in found.items()}

    @contextmanager
    def open(self, url: str) -> Iterator[BucketFile]:
        """Open an object for reading, with random access, by a request for its last bytes.

        Raises:
            InputNotFound: the object does not exist.
            StorageFailed: the store cannot be read.
        """
        bucket, key = split_url(url)
        client = self._client(bucket)
        client.store()
        try:
            head, end = client.call(lambda store: _end_of(store, key))
        except FileNotFoundError:
            raise InputNotFound(f"object {url!r} no longer exists") from None
        except vendor_errors() as error:
            raise _failure(error, bucket, key) from error
        file = BucketFile(client, key, size_bytes=head["size"], e_tag=head["e_tag"], end=end)
        yield file
        file.close()

    def _client(self, bucket: Bucket) -> Client:
        if bucket not in self._clients:
            self._clients[bucket] = Client(bucket, self.settings)
        return self._clients[bucket]

    def __reduce__(self) -> tuple[Any, ...]:
        return _inputs_of, (self.settings,)


class _CopiedInputs(BucketInputs):
    """Inputs that were unpickled: they use connections that this process has open."""

    def _client(self, bucket: Bucket) -> Client:
        return client_of(bucket, self.settings)


def _inputs_of(settings: ObjectStoreSettings) -> BucketInputs:
    return _CopiedInputs(settings)


class BucketFile:
    """An object as a file: each `read` is one request, but for the last bytes, which are in memory.

    All reads are of the version that was opened; the store checks that.

    Args:
        client: The bucket.
        key: The object.
        size_bytes: Its length.
        e_tag: Its version; None if the store names none.
        end: Its last bytes.
    """

    def __init__(
        self, client: Client, key: str, *, size_bytes: int, e_tag: str | None, end: bytes = b""
    ) -> None:
        self._client, self._bucket, self._key = client, client.bucket, key
        self._size_bytes, self._e_tag = size_bytes, e_tag
        self._end, self._end_at = end, size_bytes - len(end)
        self._position = 0
        self.closed = False

    def read(self, size: int | None = None, /) -> bytes:
        """Return the next `size` bytes, fewer at the end; all remaining bytes without a size."""
        left = max(0, self._size_bytes - self._position)
        wanted = left if size is None or size < 0 else min(size, left)
        if not wanted:
            return b""
        if self._position >= self._end_at:
            at = self._position - self._end_at
            self._position += wanted
            return self._end[at : at + wanted]
        options: Any = {"range": (self._position, self._position + wanted)}
        if self._e_tag is not None:
            options["if_match"] = self._e_tag
        try:
            body = self._client.call(
                lambda store: bytes(obstore().get(store, self._key, options=options).bytes())
            )
        except obstore().exceptions.PreconditionError:
            raise InputUnreadable(
                f"{self._bucket.named(self._key)!r} was replaced while it was read. Nothing was "
                "ingested; run the ingest again when no process writes to its input"
            ) from None
        except vendor_errors() as error:
            raise _failure(error, self._bucket, self._key) from error
        self._position += len(body)
        return body

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """Set the position, from the start, from the current position (1) or from the end (2)."""
        start = (0, self._position, self._size_bytes)[whence]
        self._position = start + offset
        return self._position

    def tell(self) -> int:
        """Return the position of the next `read`."""
        return self._position

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def writable(self) -> bool:
        """Return False."""
        return False

    def flush(self) -> None:
        """Do nothing: the file is read-only."""

    def close(self) -> None:
        """Do nothing: no connection is open."""
        self.closed = True


def _end_of(store: Any, key: str) -> tuple[Any, bytes]:
    """Return the properties of an object, and its last bytes, or none where the store has none."""
    try:
        found = obstore().get(store, key, options={"range": {"suffix": _END_BYTES}})
        end = bytes(found.bytes())
    except FileNotFoundError:
        raise
    except vendor_errors() as error:
        if not is_about_range(error):
            raise
        return obstore().head(store, key), b""
    return found.meta, end if len(end) == min(_END_BYTES, found.meta["size"]) else b""


def _sizes_of(store: Any, key: str) -> dict[str, int]:
    if key and not key.endswith("/"):
        size_bytes = _object_size(store, key)
        if size_bytes is not None:
            return {key: size_bytes}
    if is_pattern(key):
        wanted = pattern_regex(key)
        below = _visible_below(store, folder_of_pattern(key).strip("/"))
        return {name: size_bytes for name, size_bytes in below if wanted.fullmatch(name)}
    sizes = dict(_visible_below(store, key.strip("/")))
    return {name: sizes[name] for name in data_files(sizes)}


def _object_size(store: Any, key: str) -> int | None:
    """Return the bytes of an object; None if there is none, or a folder of its name."""
    try:
        size_bytes = int(obstore().head(store, key)["size"])
    except FileNotFoundError:
        return None
    # Some programs create an empty object with the name of a folder.
    is_object = size_bytes or next(_sizes_below(store, key), None) is None
    return size_bytes if is_object else None


def _visible_below(store: Any, folder: str) -> Iterator[tuple[str, int]]:
    start = f"{folder}/" if folder else ""
    for name, size_bytes in _sizes_below(store, folder):
        below = name.removeprefix(start).split("/")
        if not any(map(is_hidden, below)):
            yield name, size_bytes


def _sizes_below(store: Any, folder: str) -> Iterator[tuple[str, int]]:
    """Yield names and bytes of all objects in a folder, without empty ones that are folders."""
    empty: str | None = None
    for page in obstore().list(store, prefix=folder or None, chunk_size=_PAGE_KEYS):
        for found in page:
            name = found["path"]
            if empty is not None and not name.startswith(f"{empty}/"):
                yield empty, 0
            empty = None if found["size"] else name
            if found["size"]:
                yield name, int(found["size"])
    if empty is not None:
        yield empty, 0


def _failure(error: Exception, bucket: Bucket, key: str) -> InputNotFound | StorageFailed:
    if is_missing_bucket(error):
        return InputNotFound(
            f"bucket {bucket.name!r} does not exist, so {bucket.named(key)!r} cannot be read"
        )
    if isinstance(error, FileNotFoundError):
        return InputNotFound(f"object {bucket.named(key)!r} no longer exists")
    return read_failure(error, bucket, key)
