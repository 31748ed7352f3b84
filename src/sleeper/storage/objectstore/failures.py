"""Translates exceptions of obstore into our errors."""

from __future__ import annotations

import re

from sleeper.errors import ObjectNotFound, StorageFailed, StorageReadOnly
from sleeper.model.object_stores import Bucket
from sleeper.storage.objectstore.client import is_overload, obstore

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
