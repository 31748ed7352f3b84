"""The connection to one bucket, opened at first use in each process.

obstore is an extra of this package, so it is imported at first use too.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from sleeper.errors import (
    MissingExtra,
    ObjectNotFound,
    StorageFailed,
    StorageReadOnly,
    UrlInvalid,
    is_panic,
)
from sleeper.fork_guard import ForkGuard
from sleeper.model.object_stores import Bucket, ObjectStoreSettings

T = TypeVar("T")

logger = logging.getLogger(__name__)

_OVERLOAD = re.compile(r"\b(?:503|429)\b|SlowDown|ServiceUnavailable|TooManyRequests")
RETRY_S = 6
"""How long requests to a failing server are retried; a silent one gets the 15 s below.

A server that reports overload (503) is then retried for the settings' patience.
"""

_CONNECT_S, _SILENCE_S, _REQUEST_S = 3, 15, 120

_guard = ForkGuard("obstore", use="had already used an object store", instead="open the instance")


def obstore() -> Any:
    """Return the module `obstore`.

    Raises:
        MissingExtra: it is not installed.
    """
    try:
        import obstore as module  # noqa: PLC0415 - see above: an extra
    except ImportError as error:
        raise MissingExtra(
            "object stores need the package obstore, an extra of Sleeper: "
            "pip install 'sleeper-store[objectstore]'"
        ) from error
    return module


@contextmanager
def panics_as_errors() -> Iterator[None]:
    """Raise a panic of obstore as its `GenericError`, which its callers translate like others."""
    try:
        yield
    except BaseException as error:
        if is_panic(error):
            raise obstore().exceptions.GenericError(f"obstore panicked: {error}") from error
        raise


class Client:
    """A client of one bucket, by obstore. Cheap to make, safe in threads, may be pickled.

    A copy in another process opens a connection there, with that process's credentials. Copies of
    one client in one process share a connection.

    Attributes:
        bucket: The bucket.
        settings: How to connect to it.
    """

    def __init__(self, bucket: Bucket, settings: ObjectStoreSettings) -> None:
        self.bucket = bucket
        self.settings = settings
        self._stores: dict[bool, Any] = {}

    @property
    def is_amazon(self) -> bool:
        """Whether the bucket is on Amazon's own S3."""
        return self.bucket.scheme == "s3" and self.settings.is_amazon

    def call(self, request: Callable[[Any], T]) -> T:
        """Send a request; retry it for the settings' patience if the store is overloaded.

        Args:
            request: Sends the request by obstore's store. It may be called twice.

        Raises:
            BadRequest, MissingExtra, StorageFailed, UrlInvalid: as for `store`.
            Exception: any error of obstore.
        """
        with panics_as_errors():
            try:
                return request(self.store())
            except obstore().exceptions.BaseError as error:
                if not is_overload(error):
                    raise
                logger.warning(
                    "%s is overloaded; the request is retried for up to %d s more",
                    self.bucket.named(""),
                    self.settings.patience_s,
                )
                return request(self.patient_store())

    def patient_store(self) -> Any:
        """Return obstore's store that retries for the settings' patience, for uploads in parts."""
        return self._opened(patient=True)

    def store(self) -> Any:
        """Return obstore's store, opened at the first call.

        Raises:
            BadRequest: this process was forked from one that used an object store.
            MissingExtra: obstore is not installed.
            StorageFailed: obstore refuses the settings in the environment.
            UrlInvalid: the endpoint is not an http:// or https:// URL.
        """
        return self._opened(patient=False)

    def _opened(self, *, patient: bool) -> Any:
        _guard.check()
        if patient not in self._stores:
            try:
                with panics_as_errors():
                    self._stores[patient] = _open(self.bucket, self.settings, patient=patient)
            except obstore().exceptions.BaseError as error:
                raise StorageFailed(
                    f"cannot open {self.bucket.named('')}: {str(error).splitlines()[0]}. Correct "
                    "the environment variables of the object store."
                ) from error
        return self._stores[patient]

    def __reduce__(self) -> tuple[Any, ...]:
        return client_of, (self.bucket, self.settings)

    def __repr__(self) -> str:
        return f"Client({self.bucket!r}, {self.settings!r})"


@lru_cache(maxsize=64)
def client_of(bucket: Bucket, settings: ObjectStoreSettings) -> Client:
    """Return this process's client for a client that was unpickled."""
    return Client(bucket, settings)


def is_overload(error: Exception) -> bool:
    """Return whether the store reports overload: it is up, and later requests may succeed."""
    return _OVERLOAD.search(str(error).partition("\n\nDebug source")[0]) is not None


def _open(bucket: Bucket, settings: ObjectStoreSettings, *, patient: bool) -> Any:
    stores = obstore().store
    retries = _retries(settings.patience_s, 1_000, 8) if patient else _retries(RETRY_S, 6, 1)
    options: dict[str, Any] = {
        "connect_timeout": timedelta(seconds=_CONNECT_S),
        "read_timeout": timedelta(seconds=_SILENCE_S),
        "timeout": timedelta(seconds=_REQUEST_S),
    }
    if settings.ca_file:
        options["root_certificate"] = _certificates(settings.ca_file)
        if not settings.has_ssl_cert_file:
            logger.warning(
                "certificates in AWS_CA_BUNDLE are trusted, but reads of key ranges are refused: "
                "set SSL_CERT_FILE to the same file"
            )
    if settings.allow_http:
        options["allow_http"] = True
    if bucket.scheme == "gs":
        return stores.GCSStore(bucket.name, client_options=options, retry_config=retries)
    if settings.had_credentials:
        raise UrlInvalid(
            f"the endpoint of an object store, {settings.endpoint}, was given with a user name or "
            "a password in it, which would appear in messages and logs: remove them from "
            "AWS_ENDPOINT_URL and set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        )
    if settings.endpoint and not settings.endpoint.startswith(("http://", "https://")):
        raise UrlInvalid(
            "the endpoint of an object store must begin with http:// or https://, unlike "
            f"{settings.endpoint!r}: correct AWS_ENDPOINT_URL"
        )
    given = {"endpoint": settings.endpoint, "region": settings.region}
    return stores.S3Store(
        bucket.name,
        client_options=options,
        retry_config=retries,
        **{name: value for name, value in given.items() if value is not None},
    )


def _retries(for_s: int, retries_max: int, wait_max_s: int) -> dict[str, Any]:
    """Return settings of obstore's retries; obstore adds jitter to each wait."""
    return {
        "max_retries": retries_max,
        "retry_timeout": timedelta(seconds=for_s),
        "backoff": {
            "init_backoff": timedelta(milliseconds=100),
            "max_backoff": timedelta(seconds=wait_max_s),
            "base": 2,
        },
    }


def _certificates(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise StorageFailed(
            f"cannot read the certificates in {path}: {error.strerror}. Correct "
            "AWS_CA_BUNDLE, which names it."
        ) from error


# ---------------------------------------------------------------- failures
#
# Translates exceptions of obstore into our errors.

_NO_BUCKET = re.compile("NoSuchBucket|bucket does not exist")
_NO_CREDENTIALS = re.compile(r"169\.254\.|metadata\.google|InvalidAccessKeyId|MissingCredential")
_NO_CONDITIONS = re.compile("501 Not Implemented|NotImplemented")
_ELSEWHERE = re.compile("redirect without LOCATION|PermanentRedirect|AuthorizationHeaderMalformed")
_OTHER_RANGE = re.compile("CONTENT_RANGE|non-partial response|Requested [0-9]+\\.\\.")
_CERTIFICATE = re.compile(r"InvalidCertificate\(\s*(\w+)")
_PANIC = "obstore panicked"
_NO_TLS = re.compile(r"InvalidMessage\(\s*InvalidContentType")
_CREDENTIALS = (
    "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give this machine a role that may use "
    "the bucket"
)
_GOOGLE_CREDENTIALS = (
    "Set GOOGLE_APPLICATION_CREDENTIALS to the file of a service account that may use the bucket"
)


def vendor_errors() -> tuple[type[Exception], ...]:
    """Return the exceptions that obstore raises; an absent object is a `FileNotFoundError`."""
    return obstore().exceptions.BaseError, OSError, ValueError


def is_missing_bucket(error: Exception) -> bool:
    """Return whether the error says that the bucket does not exist."""
    return _NO_BUCKET.search(str(error)) is not None


def is_past_the_end(error: Exception) -> bool:
    """Return whether the requested range begins past the end of its object."""
    return "416 Range Not Satisfiable" in str(error)


def is_about_range(error: Exception) -> bool:
    """Return whether the store did not answer with the range that was requested."""
    return is_past_the_end(error) or _OTHER_RANGE.search(str(error)) is not None


def not_found(bucket: Bucket, key: str) -> ObjectNotFound:
    """Return the error for an object that does not exist."""
    return ObjectNotFound(f"object {bucket.named(key)} does not exist")


def read_failure(error: Exception, bucket: Bucket, key: str) -> StorageFailed:
    """Translate the failure to read or list an object, a folder or a bucket."""
    what = f"cannot read {bucket.named(key)}"
    if _is_denied(error):
        return StorageFailed(
            f"{what}: the store denies it ({_reason(error)}). Use credentials that may get "
            "objects and list the bucket."
        )
    return StorageFailed(f"{what}: {_told(error, bucket)}")


def write_failure(error: Exception, bucket: Bucket, key: str) -> StorageFailed:
    """Translate the failure to write or delete an object."""
    what = f"cannot write {bucket.named(key)}"
    if _is_denied(error):
        return StorageReadOnly(
            f"{what}: the store denies it ({_reason(error)}). Use credentials that may put and "
            "delete objects."
        )
    if _NO_CONDITIONS.search(str(error)):
        found = f"the server refused it ({_reason(error)})"
        return without_conditions(bucket, "create if absent", found)
    return StorageFailed(f"{what}: {_told(error, bucket)}")


def without_conditions(bucket: Bucket, check: str, found: str) -> StorageReadOnly:
    """Return the error for a store that may let two writers create the same object.

    Args:
        bucket: The bucket.
        check: The name of the check that its server failed.
        found: What the check found.
    """
    return StorageReadOnly(
        f"{bucket.scheme}://{bucket.name} cannot hold an instance: its server failed the check "
        f"{check!r}: {found}. Commits need objects that are created only if they are absent "
        "(If-None-Match on PUT). Use Amazon S3, or a server that honours it."
    )


def _is_denied(error: Exception) -> bool:
    kinds = obstore().exceptions
    return isinstance(error, kinds.PermissionDeniedError | kinds.UnauthenticatedError)


def _told(error: Exception, bucket: Bucket) -> str:
    text = str(error)
    if _NO_BUCKET.search(text):
        return f"bucket {bucket.name!r} does not exist. Create it, or correct the URL."
    certificate = _CERTIFICATE.search(text)
    if certificate:
        return (
            f"its server answers, but shows a certificate that is not trusted ({certificate[1]}). "
            "Set SSL_CERT_FILE to a file with the certificate of the authority that issued it "
            "(PEM), or correct the server's certificate or the host name in AWS_ENDPOINT_URL."
        )
    if _NO_TLS.search(text):
        return (
            "its server does not speak TLS. Write http:// in AWS_ENDPOINT_URL, or its port for TLS."
        )
    if is_overload(error):
        return (
            f"the store is overloaded ({_reason(error)}). Requests were retried. Try again later, "
            "or with fewer processes. SLEEPER_STORE_PATIENCE_SECONDS sets how long to retry."
        )
    if _PANIC in text:
        return (
            f"the library obstore has an error here ({_reason(error)}). Try again; if it stays, "
            "report it with this message"
        )
    if _NO_CREDENTIALS.search(text):
        advice = _GOOGLE_CREDENTIALS if bucket.scheme == "gs" else _CREDENTIALS
        return f"no valid credentials ({_reason(error)}). {advice}."
    if _ELSEWHERE.search(text):
        return f"the bucket is in another region ({_reason(error)}). Set AWS_REGION to it."
    return (
        f"{_reason(error)}. Check that the store is up and that the environment names it correctly "
        "(for S3: AWS_ENDPOINT_URL and AWS_REGION), then try again."
    )


def _reason(error: Exception) -> str:
    """Return what happened, without the debug output that obstore adds."""
    shown = str(error).partition("\n\nDebug source")[0]
    found = re.search(r"<Code>(.*?)</Code>", shown)
    head = shown.partition("<?xml")[0]
    return f"{' '.join(head.split())[:400].rstrip(': ')}{f': {found[1]}' if found else ''}"
