"""Buckets of an instance: made with a tag that names the instance, and deleted."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any, Final

from sleeper.errors import AlreadyExists, StorageFailed
from sleeper.storage.aws.clients import (
    OWNER_TAG,
    aws_failure,
    error_code,
    owner_tag_value,
    vendor_errors,
)

logger = logging.getLogger(__name__)

_MISSING: Final = ("NoSuchBucket", "404")
_OF_OTHERS: Final = ("BucketAlreadyExists",)
_DENIED: Final = ("AccessDenied", "AllAccessDisabled", "403")
_PERMISSION: Final = (
    "s3:CreateBucket, DeleteBucket, ListBucket, ListBucketVersions, DeleteObject, "
    "DeleteObjectVersion, GetBucketTagging, PutBucketTagging, GetBucketVersioning, "
    "PutBucketVersioning and PutLifecycleConfiguration"
)
_DEFAULT_REGION: Final = "us-east-1"
_LACKING: Final = ("NotImplemented", "MethodNotAllowed", "VersioningNotConfigured", "501", "405")
_PAGE: Final = 1_000
_UPLOAD_DAYS: Final = 7
"""How long the parts of an upload that nobody ends are kept; as in stacks."""


class InstanceBuckets:
    """Makes and deletes the buckets of one instance.

    Args:
        client: boto3's client of S3.
        owner: The URL of the instance, which a bucket has as a tag.
    """

    def __init__(self, client: Any, owner: str) -> None:
        self._client, self._owner = client, owner
        self._tag = owner_tag_value(owner)

    def exists(self, bucket: str) -> bool:
        """Return whether there is a bucket with this name, whoever has it."""
        try:
            self._client.head_bucket(Bucket=bucket)
        except vendor_errors() as error:
            if error_code(error) in _MISSING:
                return False
            if error_code(error) in _DENIED:
                return True
            raise self._failure(error, "look for", bucket, writes=False) from error
        return True

    def region(self, bucket: str) -> str | None:
        """Return the region that a bucket is in; None if there is none, or it is not known."""
        try:
            answer = self._client.head_bucket(Bucket=bucket)
        except vendor_errors() as error:
            logger.info("the region of bucket %s is not known: %s", bucket, error)
            return None
        found: str | None = answer.get("BucketRegion")
        return found

    def check(self, bucket: str) -> None:
        """Check that a bucket can be made, or is the instance's.

        Raises:
            AlreadyExists: somebody else has a bucket with this name; or one of this account has
                it that was not made for this instance, and is not empty.
            StorageFailed: there is no answer.
        """
        owner = self.owner_tag(bucket)
        if owner in (None, self._tag) or (owner == "" and self._is_empty(bucket)):
            return
        of = f"belongs to {owner}" if owner else "has objects, and no tag of an instance"
        raise AlreadyExists(
            f"bucket {bucket} exists already and is not the bucket of {self._owner}: it {of}. "
            f"Choose another id; or, if the bucket is this instance's, set its tag {OWNER_TAG} "
            f"to {self._tag}."
        )

    def make(self, bucket: str) -> None:
        """Make a bucket that was checked, unless the instance has it already.

        Raises:
            AlreadyExists: somebody else made it meanwhile.
            StorageFailed: it cannot be made.
        """
        owner = self.owner_tag(bucket)
        if owner == self._tag:
            return
        if owner is None:
            self._create(bucket)
        try:
            self._client.put_bucket_tagging(
                Bucket=bucket, Tagging={"TagSet": [{"Key": OWNER_TAG, "Value": self._tag}]}
            )
        except vendor_errors() as error:
            raise self._failure(error, "tag", bucket) from error

    def keep_old_versions(self, bucket: str, days: int) -> None:
        """Have a bucket keep objects that are replaced or deleted, for some days.

        One that does already stays as it is.

        A server that cannot do that is told in the log.

        Raises:
            StorageFailed: it is refused, or there is no answer.
        """
        rules = [
            {
                "ID": "parts of uploads",
                "Filter": {"Prefix": ""},
                "Status": "Enabled",
                "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": _UPLOAD_DAYS},
            },
            {
                "ID": "old versions",
                "Filter": {"Prefix": ""},
                "Status": "Enabled",
                "NoncurrentVersionExpiration": {"NoncurrentDays": days},
                "Expiration": {"ExpiredObjectDeleteMarker": True},
            },
        ]
        try:
            if self._client.get_bucket_versioning(Bucket=bucket).get("Status") == "Enabled":
                return
            self._client.put_bucket_lifecycle_configuration(
                Bucket=bucket, LifecycleConfiguration={"Rules": rules}
            )
            self._client.put_bucket_versioning(
                Bucket=bucket, VersioningConfiguration={"Status": "Enabled"}
            )
        except vendor_errors() as error:
            if error_code(error) not in _LACKING:
                raise self._failure(error, "keep old versions in", bucket) from error
            logger.warning(
                "bucket %s keeps nothing that is replaced or deleted: this server cannot do that",
                bucket,
            )

    def count(self, bucket: str) -> int:
        """Return how many objects a bucket has, without old versions."""
        return sum(len(page) for page in self._pages(bucket, "list_objects_v2", "Contents"))

    def empty(self, bucket: str, last: str | None = None) -> None:
        """Delete all versions of all objects, a thousand in a request; `last` after all others."""
        of_last: list[Mapping[str, str]] = []
        for page in self._all_versions(bucket):
            of_last += [each for each in page if each["Key"] == last]
            self._delete_objects(bucket, [each for each in page if each["Key"] != last])
        for start in range(0, len(of_last), _PAGE):
            self._delete_objects(bucket, of_last[start : start + _PAGE])

    def delete(self, bucket: str) -> None:
        """Delete an empty bucket. One that does not exist counts as deleted."""
        try:
            self._client.delete_bucket(Bucket=bucket)
        except vendor_errors() as error:
            if error_code(error) in _MISSING:
                return
            if error_code(error) == "BucketNotEmpty":
                raise StorageFailed(
                    f"cannot delete bucket {bucket}: it has objects still. Either somebody wrote "
                    "to it meanwhile: repeat this. Or these credentials see no old versions of "
                    "objects (s3:ListBucketVersions): delete them by a lifecycle rule, then repeat "
                    "this."
                ) from error
            raise self._failure(error, "delete", bucket) from error
        logger.info("deleted bucket %s", bucket)

    def _all_versions(self, bucket: str) -> Iterator[list[Mapping[str, str]]]:
        """Yield what names the versions of all objects, and the marks of deleted ones.

        A server without versions has objects alone.
        """
        kinds = ("Versions", "DeleteMarkers")
        try:
            for page in self._pages(bucket, "list_object_versions", *kinds):
                yield [{name: each[name] for name in ("Key", "VersionId")} for each in page]
        except _LackingError:
            for page in self._pages(bucket, "list_objects_v2", "Contents"):
                yield [{"Key": each["Key"]} for each in page]

    def _pages(self, bucket: str, operation: str, *kinds: str) -> Iterator[list[Mapping[str, str]]]:
        """Yield what a bucket has, a thousand at a time; nothing where it is missing.

        Raises:
            _LackingError: the server does not know the operation.
        """
        try:
            for page in self._client.get_paginator(operation).paginate(Bucket=bucket):
                yield [each for kind in kinds for each in page.get(kind, ())]
        except vendor_errors() as error:
            if error_code(error) in _LACKING:
                raise _LackingError from error
            if error_code(error) not in _MISSING:
                raise self._failure(error, "list", bucket, writes=False) from error

    def _delete_objects(self, bucket: str, objects: list[Mapping[str, str]]) -> None:
        if not objects:
            return
        named = {"Objects": objects, "Quiet": True}
        try:
            failed = self._client.delete_objects(Bucket=bucket, Delete=named).get("Errors", ())
        except vendor_errors() as error:
            if error_code(error) in _MISSING:
                return
            raise self._failure(error, "delete objects of", bucket) from error
        if failed:
            raise StorageFailed(
                f"cannot delete {len(failed)} objects of bucket {bucket}, such as "
                f"{failed[0]['Key']} ({failed[0]['Code']}). Correct that, and repeat this."
            )
        logger.info("deleted %d objects of bucket %s", len(objects), bucket)

    def _create(self, bucket: str) -> None:
        region = self._client.meta.region_name
        where = (
            {}
            if region == _DEFAULT_REGION
            else {"CreateBucketConfiguration": {"LocationConstraint": region}}
        )
        try:
            self._client.create_bucket(Bucket=bucket, **where)
        except vendor_errors() as error:
            code = error_code(error)
            if code == "BucketAlreadyOwnedByYou":  # another process makes the same instance
                return
            if code in _OF_OTHERS:
                raise self._of_another_account(bucket) from error
            raise self._failure(error, "make", bucket) from error
        logger.info("made bucket %s", bucket)

    def owner_tag(self, bucket: str) -> str | None:
        """Return the tag that names an instance, or an empty text; None without a bucket.

        Raises:
            AlreadyExists: the bucket belongs to another account.
            StorageFailed: it cannot be asked.
        """
        try:
            tags = self._client.get_bucket_tagging(Bucket=bucket)["TagSet"]
        except vendor_errors() as error:
            code = error_code(error)
            if code == "NoSuchTagSet":
                return ""
            if code in _MISSING:
                return None
            if code in _DENIED:
                raise self._of_another_account(bucket) from error
            raise self._failure(error, "read the tags of", bucket, writes=False) from error
        return next((str(each["Value"]) for each in tags if each["Key"] == OWNER_TAG), "")

    def _is_empty(self, bucket: str) -> bool:
        try:
            return not self._client.list_objects_v2(Bucket=bucket, MaxKeys=1).get("KeyCount")
        except vendor_errors() as error:
            raise self._failure(error, "list", bucket, writes=False) from error

    def _of_another_account(self, bucket: str) -> AlreadyExists:
        return AlreadyExists(
            f"bucket {bucket} of {self._owner} belongs to somebody else, or these credentials may "
            f"not use it. Choose another id, or use credentials with {_PERMISSION}."
        )

    def _failure(
        self, error: Exception, verb: str, bucket: str, *, writes: bool = True
    ) -> StorageFailed:
        return aws_failure(error, verb, f"bucket {bucket}", writes=writes, permission=_PERMISSION)


class _LackingError(Exception):
    """The server does not know an operation."""
