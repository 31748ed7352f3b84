"""Where a bucket is, and how it is reached: values that travel to other processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sleeper.errors import UrlInvalid

_SCHEMES = {"s3": "s3", "s3a": "s3", "s3n": "s3", "gs": "gs"}
"""What a URL may begin with, and what that is called here: Hadoop has two more words for S3."""


@dataclass(frozen=True, slots=True)
class ObjectStoreSettings:
    """How object stores are reached. They hold no secret, so they may be pickled and logged.

    Credentials come from the environment of the process that uses them, in the order of
    obstore: variables, web identity, the container's role, the machine's.

    Attributes:
        endpoint: URL of an S3 server that is not Amazon's; None for Amazon's own. A user name
            and a password in it are taken out, and the settings are refused when they are used.
        region: The region of the buckets; None for `us-east-1`.
        had_credentials: Whether there was a user name or password in the endpoint.
    """

    endpoint: str | None = None
    region: str | None = None
    had_credentials: bool = False

    def __post_init__(self) -> None:
        scheme, separator, rest = (self.endpoint or "").partition("://")
        authority, slash, path = (rest if separator else scheme).partition("/")
        _, credentials, host = authority.rpartition("@")
        if credentials:
            before = scheme + separator if separator else ""
            object.__setattr__(self, "endpoint", f"{before}{host}{slash}{path}")
            object.__setattr__(self, "had_credentials", True)

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> ObjectStoreSettings:
        """Read the variables that Amazon's own tools read; an empty one counts as missing."""
        return cls(
            endpoint=environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL"),
            region=environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION"),
        )

    @property
    def is_amazon(self) -> bool:
        """Whether S3 requests go to Amazon's own servers."""
        host = (self.endpoint or "").partition("://")[2].partition("/")[0].partition(":")[0]
        return not self.endpoint or host.endswith((".amazonaws.com", ".amazonaws.com.cn"))

    @property
    def allow_http(self) -> bool:
        """Whether requests may go unencrypted: only where the endpoint says so."""
        return self.endpoint is not None and self.endpoint.startswith("http://")


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
        """Return what a message calls an object: its URL, with nothing escaped."""
        return f"{self.scheme}://{self.name}/{key}"


def is_bucket_url(url: str) -> bool:
    """Say whether `url` begins like the URL of an object."""
    scheme, separator, _ = url.partition("://")
    return bool(separator) and scheme.lower() in _SCHEMES


def split_url(url: str) -> tuple[Bucket, str]:
    """Return bucket and key of an object's URL; the key is taken as it is, nothing unescaped.

    >>> split_url("s3a://trades/2026/a b%20.parquet")
    (Bucket(scheme='s3', name='trades'), '2026/a b%20.parquet')

    Raises:
        UrlInvalid: the scheme is not known, or no bucket is named.
    """
    scheme, _, rest = url.partition("://")
    name, _, key = rest.partition("/")
    if not is_bucket_url(url) or not name:
        raise UrlInvalid(f"{url!r} names no object store; write s3://bucket/folder")
    return Bucket(_SCHEMES[scheme.lower()], name), key
