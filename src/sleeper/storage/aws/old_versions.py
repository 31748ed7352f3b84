"""Old versions of objects, which a bucket of S3 keeps where it was told to: deleted for good.

boto3 does it: obstore can neither list nor name versions.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

from sleeper.ports.old_versions import OldVersions
from sleeper.storage.aws.clients import aws_failure, error_code, vendor_errors

logger = logging.getLogger(__name__)

_PERMISSION = "s3:GetBucketVersioning, ListBucketVersions and DeleteObjectVersion"


def delete_old_versions(client: Any, bucket: str, prefix: str) -> OldVersions:
    """Delete the versions of objects that are not current, whether the object is there or not.

    Requests: one for a bucket that never kept any; else one more for each thousand versions,
    current ones too, and one where some of these are deleted. A thousand are in memory.

    Args:
        client: boto3's client of S3.
        bucket: The bucket.
        prefix: How the names of objects begin.

    Raises:
        StorageFailed: there was no answer.
    """
    where = f"s3://{bucket}/{prefix}"
    deleted, size_bytes, failed = 0, 0, dict[str, str]()
    try:
        if client.get_bucket_versioning(Bucket=bucket).get("Status") is None:
            return OldVersions()
        for page in _old(client, bucket, prefix):
            done = client.delete_objects(Bucket=bucket, Delete=_named(page))
            refused = {
                (each["Key"], each.get("VersionId")): f"{each['Code']} {each.get('Message', '')}"
                for each in done.get("Errors", ())
            }
            for each in page:
                name = each["Key"], each["VersionId"]
                if name in refused:
                    failed.setdefault(f"s3://{bucket}/{name[0]}", refused[name].strip())
                else:
                    deleted += 1
                    size_bytes += each["Size"]
    except vendor_errors() as error:
        failure = aws_failure(
            error, "delete old versions in", where, writes=True, permission=_PERMISSION
        )
        if error_code(error) is None:
            raise failure from error
        return OldVersions(deleted=deleted, size_bytes=size_bytes, unknown=str(failure))
    logger.info("deleted %d old versions of objects in %s", deleted, where)
    return OldVersions(deleted=deleted, size_bytes=size_bytes, failures=(*failed.items(),))


def _old(client: Any, bucket: str, prefix: str) -> Iterator[list[dict[str, Any]]]:
    pages = client.get_paginator("list_object_versions").paginate(Bucket=bucket, Prefix=prefix)
    for page in pages:
        old = [each for each in page.get("Versions", ()) if not each["IsLatest"]]
        if old:
            yield old


def _named(versions: list[dict[str, Any]]) -> dict[str, Any]:
    named = [{"Key": each["Key"], "VersionId": each["VersionId"]} for each in versions]
    return {"Objects": named, "Quiet": True}
