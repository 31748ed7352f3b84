"""Buckets of S3."""

from __future__ import annotations

from typing import Final

from aws_cdk import Duration, RemovalPolicy, Stack
from aws_cdk import aws_s3 as s3

_UPLOAD_DAYS: Final = 7
"""How long the parts of an upload that nobody ends are kept."""


def add_bucket(stack: Stack, bucket: str, *, retain: bool, expiry_days: int | None) -> None:
    """Add a bucket: encrypted, reached over TLS only, and closed to the public.

    Args:
        stack: Where.
        bucket: Its name.
        retain: Whether it stays when the stack is deleted.
        expiry_days: How long objects are kept; None for ever.
    """
    rules = [s3.LifecycleRule(abort_incomplete_multipart_upload_after=Duration.days(_UPLOAD_DAYS))]
    if expiry_days is not None:
        rules.append(s3.LifecycleRule(expiration=Duration.days(expiry_days)))
    s3.Bucket(
        stack,
        bucket,
        bucket_name=bucket,
        encryption=s3.BucketEncryption.S3_MANAGED,
        block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
        object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
        enforce_ssl=True,
        lifecycle_rules=rules,
        removal_policy=RemovalPolicy.RETAIN if retain else RemovalPolicy.DESTROY,
    )
