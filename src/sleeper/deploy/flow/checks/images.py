"""Checks that an image is in ECR, with its tag and for the right processor."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from sleeper.deploy.flow.checks.findings import Finding, failure, ok, warning
from sleeper.storage.aws.clients import aws_client
from sleeper.storage.aws.failures import error_code, vendor_errors

_URI: Final = re.compile(
    r"(?P<account>\d{12})\.dkr\.ecr\.(?P<region>[a-z0-9-]+)\.amazonaws\.com(?:\.cn)?/"
    r"(?P<repository>[^:@]+):(?P<tag>[^:@]+)"
)
_MISSING: Final = ("RepositoryNotFoundException", "ImageNotFoundException")
_INDEXES: Final = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
_ACCEPTED: Final = [
    *_INDEXES,
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
]
_DOCKER: Final = {"x86_64": "amd64"}
PUSH: Final = "docs/deploy/images.md says how to build and push it"


def check_image(uri: str, architectures: Iterable[str]) -> list[Finding]:
    """Check that an image is in ECR.

    Args:
        uri: Its address, such as `123456789012.dkr.ecr.eu-west-2.amazonaws.com/sleeper:1.0`.
        architectures: The processors that it runs on: `x86_64`, `arm64`.
    """
    named = _URI.fullmatch(uri)
    if named is None:
        return warning(f"image {uri} is not in ECR: whether it is there was not checked")
    client = aws_client("ecr", named["region"])
    try:
        answer = client.batch_get_image(
            registryId=named["account"],
            repositoryName=named["repository"],
            imageIds=[{"imageTag": named["tag"]}],
            acceptedMediaTypes=_ACCEPTED,
        )
    except vendor_errors() as error:
        if error_code(error) not in _MISSING:
            raise
        answer = {}
    images = answer.get("images") or ()
    if not images:
        return failure(f"image {uri} is not in ECR: {PUSH}")
    wanted = {_DOCKER.get(each, each) for each in architectures}
    found = architectures_of(images)
    missing = wanted - found
    if found and missing:
        platforms = ",".join(f"linux/{each}" for each in sorted(wanted))
        return failure(
            f"image {uri} is for {', '.join(sorted(found))}, but {' and '.join(sorted(wanted))} "
            f"{'are' if len(wanted) > 1 else 'is'} needed: build it with --platform {platforms}"
        )
    if not found and len(wanted) > 1:
        return warning(
            f"image {uri} is in ECR for one processor, but {' and '.join(sorted(wanted))} are "
            "needed: tasks on the other will fail. Build it for both, or set the same "
            "*.cpu.architecture everywhere"
        )
    return ok(f"image {uri} is in ECR")


def architectures_of(images: Iterable[Mapping[str, Any]]) -> set[str]:
    """Return the processors that images are for; none where only the image itself says so."""
    found: set[str] = set()
    for each in images:
        try:
            manifest = json.loads(each.get("imageManifest") or "{}")
        except ValueError:
            continue
        listed = manifest.get("manifests") or ()
        found |= {str(one.get("platform", {}).get("architecture")) for one in listed}
    return found - {"None", "unknown"}
