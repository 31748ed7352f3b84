"""Settings of object stores: where a bucket is and how to connect to it. They can be pickled."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from sleeper.errors import BadRequest, UrlInvalid

PATIENCE_S = 90
"""Default number of seconds for which requests to an overloaded object store are retried."""

CACHE_BYTES = 1 << 30
"""Default number of bytes that a disk cache may take."""

CACHE_BYTES_MIN = 16 << 20
"""A disk cache of fewer bytes would be swept all the time."""

_NO_BUCKET_NAME = re.compile(r"[^0-9A-Za-z._:-]")
"""What no bucket has in its name: obstore panics at spaces, and `?` and `#` would end the path.

A colon is in the names of access points of S3.
"""

_SHOWN_MAX = 200

_SCHEMES = {"s3": "s3", "s3a": "s3", "s3n": "s3", "gs": "gs"}
"""Schemes of URLs, and the scheme that each one means: Hadoop has two other names for S3."""


_AZURE = frozenset({"az", "azure", "adl", "abfs", "abfss", "wasb", "wasbs"})


@dataclass(frozen=True, slots=True)
class ObjectStoreSettings:
    """How to connect to object stores. Contains no secret, so it may be pickled and logged.

    Credentials come from the environment of the process that uses them, in the order of
    obstore: variables, web identity, the container's role, the machine's.

    Attributes:
        endpoint: URL of an S3 server that is not Amazon's; None for Amazon's own. A user name and
            a password are removed from it; settings that had them are refused at first use.
        region: The region of the buckets; None for `us-east-1`.
        had_credentials: Whether there was a user name or password in the endpoint.
        patience_s: For how long requests are retried when a store is overloaded (503), or fails
            while a data file is written.
        ca_file: A PEM file of additional certificate authorities to trust: AWS_CA_BUNDLE. The
            HTTP clients read SSL_CERT_FILE themselves.
        has_ssl_cert_file: Whether SSL_CERT_FILE is set. Range reads know no other file.
        cache_folder: The absolute path of a folder of this machine's disk that keeps what
            look-ups read of files in buckets; None to keep nothing.
        cache_bytes: How many bytes it may take.
    """

    endpoint: str | None = None
    region: str | None = None
    had_credentials: bool = False
    patience_s: int = PATIENCE_S
    ca_file: str | None = None
    has_ssl_cert_file: bool = False
    cache_folder: str | None = None
    cache_bytes: int = CACHE_BYTES

    def __post_init__(self) -> None:
        if self.endpoint is None:
            return
        shown = without_credentials(self.endpoint)
        if "//" not in shown:  # no scheme, which is refused when it is used
            shown = shown.rpartition("@")[2]
        if shown != self.endpoint:
            object.__setattr__(self, "endpoint", shown)
            object.__setattr__(self, "had_credentials", True)

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> ObjectStoreSettings:
        """Read the variables that Amazon's own tools read; an empty one counts as missing.

        Raises:
            BadRequest: SLEEPER_STORE_PATIENCE_SECONDS is not a whole number, or
                SLEEPER_CACHE_BYTES is none or too small.
        """
        patience = environment.get("SLEEPER_STORE_PATIENCE_SECONDS") or str(PATIENCE_S)
        if not patience.isascii() or not patience.isdigit():
            raise BadRequest(
                f"SLEEPER_STORE_PATIENCE_SECONDS is {patience!r}, but it must be a whole number "
                "of seconds: how long to wait for an object store that is overloaded"
            )
        settings = cls(
            endpoint=environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL"),
            region=environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION"),
            patience_s=int(patience),
            ca_file=_ca_bundle(environment),
            has_ssl_cert_file=bool(environment.get("SSL_CERT_FILE")),
        )
        folder, size = (environment.get(f"SLEEPER_CACHE_{each}") for each in ("FOLDER", "BYTES"))
        return settings.with_cache(folder or None, size or None, "SLEEPER_CACHE_BYTES")

    def with_cache(
        self, folder: object, size_bytes: object, named: str = "cache_bytes"
    ) -> ObjectStoreSettings:
        """Return the settings with a disk cache; what is None stays.

        Args:
            folder: The path of a folder.
            size_bytes: How many bytes it may take; a whole number, or its digits.
            named: What the caller knows the number by.

        Raises:
            BadRequest: the folder is no path, or the number is none or too small.
        """
        changed = self
        if folder is not None:
            if not isinstance(folder, str | os.PathLike) or not os.fspath(folder):
                raise BadRequest(f"cache_folder is {folder!r}, but it must be the path of a folder")
            path = os.path.abspath(os.path.expanduser(os.fsdecode(folder)))  # noqa: PTH100, PTH111
            changed = replace(changed, cache_folder=path)
        if size_bytes is not None:
            text = str(size_bytes)
            is_number = text.isascii() and text.isdigit() and not isinstance(size_bytes, bool)
            if not is_number or int(text) < CACHE_BYTES_MIN:
                raise BadRequest(
                    f"{named} is {size_bytes!r}, but it must be a whole number of bytes, at least "
                    f"{CACHE_BYTES_MIN}: how much of the disk the cache may take"
                )
            changed = replace(changed, cache_bytes=int(text))
        return changed

    @property
    def is_amazon(self) -> bool:
        """Whether S3 requests go to Amazon's own servers."""
        from sleeper.model.aws_partitions import DOMAINS

        host = (self.endpoint or "").partition("://")[2].partition("/")[0].partition(":")[0]
        return not self.endpoint or host.endswith(tuple(f".{each}" for each in DOMAINS))

    @property
    def allow_http(self) -> bool:
        """Whether requests may go unencrypted: only where the endpoint says so."""
        return self.endpoint is not None and self.endpoint.startswith("http://")


def _ca_bundle(environment: Mapping[str, str]) -> str | None:
    """Return AWS_CA_BUNDLE, unless SSL_CERT_FILE names the same file."""
    given = environment.get("AWS_CA_BUNDLE") or None
    return None if given == environment.get("SSL_CERT_FILE") else given


@dataclass(frozen=True, slots=True)
class Bucket:
    """A bucket.

    Attributes:
        scheme: The kind of store: `s3`, or `gs` for Google's.
        name: The bucket's name.
    """

    scheme: str
    name: str

    def named(self, key: str) -> str:
        """Return an object's URL for messages, with nothing escaped."""
        return f"{self.scheme}://{self.name}/{key}"


def is_bucket_url(url: str) -> bool:
    """Return whether `url` begins with the scheme of an object store."""
    scheme, separator, _ = url.partition("://")
    return bool(separator) and scheme.lower() in _SCHEMES


def unknown_store(url: str) -> str:
    """Return the end of a sentence about a kind of object store that is not known; "" if it is.

    >>> unknown_store("abfss://rows@account/trades")
    ". Azure's storage is not supported: copy the files to one of these"
    """
    is_azure = url.partition("://")[0].lower() in _AZURE and "://" in url
    return ". Azure's storage is not supported: copy the files to one of these" if is_azure else ""


def without_credentials(url: str) -> str:
    """Return `url` for messages: without a user name and a password before the host."""
    return re.sub(r"//[^/@\s]*@", "//", url)


def split_url(url: str) -> tuple[Bucket, str]:
    """Return bucket and key of an object's URL; escapes in the key are not decoded.

    >>> split_url("s3a://trades/2026/a b%20.parquet")
    (Bucket(scheme='s3', name='trades'), '2026/a b%20.parquet')

    Raises:
        UrlInvalid: the scheme is not known, or no bucket is named, or none can have such a name.
    """
    scheme, _, rest = url.partition("://")
    name, _, key = rest.partition("/")
    if not is_bucket_url(url) or not name:
        shown = without_credentials(url)
        raise UrlInvalid(
            f"{shown!r} does not name a bucket: write s3://bucket/folder, or gs://bucket/folder "
            f"for Google's storage{unknown_store(url)}"
        )
    if "@" in name:
        raise UrlInvalid(
            f"{without_credentials(url)!r} was given with a user name or password before the "
            "bucket, which would appear in messages: remove them, and set AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY"
        )
    if _NO_BUCKET_NAME.search(name):
        raise UrlInvalid(
            f"{url[:_SHOWN_MAX]!r} cannot be opened: {name[:_SHOWN_MAX]!r} is no bucket's name, "
            "which has letters, digits, dots, dashes and underscores. Correct the URL"
        )
    return Bucket(_SCHEMES[scheme.lower()], name), key
