"""Buckets of an instance: made with a tag that names the instance, and deleted."""

from __future__ import annotations

import logging
from collections.abc import Iterator
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
    "s3:CreateBucket, DeleteBucket, ListBucket, DeleteObject, GetBucketTagging and PutBucketTagging"
)
_DEFAULT_REGION: Final = "us-east-1"


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

    def count(self, bucket: str) -> int:
        """Return how many objects a bucket has."""
        return sum(len(page) for page in self._pages(bucket))

    def empty(self, bucket: str, last: str | None = None) -> None:
        """Delete all objects of a bucket, a thousand in a request; `last` after all others."""
        for page in self._pages(bucket):
            self._delete_objects(bucket, [key for key in page if key != last])
        if last is not None:
            self._delete_objects(bucket, [last])

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
                    "to it meanwhile: repeat this. Or it has old versions of objects: delete them "
                    "by a lifecycle rule, then repeat this."
                ) from error
            raise self._failure(error, "delete", bucket) from error
        logger.info("deleted bucket %s", bucket)

    def _pages(self, bucket: str) -> Iterator[list[str]]:
        """Yield the keys of a bucket, a thousand at a time; none where it is missing."""
        try:
            for page in self._client.get_paginator("list_objects_v2").paginate(Bucket=bucket):
                yield [str(each["Key"]) for each in page.get("Contents", ())]
        except vendor_errors() as error:
            if error_code(error) not in _MISSING:
                raise self._failure(error, "list", bucket, writes=False) from error

    def _delete_objects(self, bucket: str, keys: list[str]) -> None:
        if not keys:
            return
        named = {"Objects": [{"Key": key} for key in keys], "Quiet": True}
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
        logger.info("deleted %d objects of bucket %s", len(keys), bucket)

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
