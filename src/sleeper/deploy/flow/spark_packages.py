"""Sleeper's packages for drivers on EMR: made where a deployment runs, kept in its own bucket.

A folder for each version of what is in them, and below it one for each kind of processors. So jobs
that run while an instance is upgraded find those that they began with.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from sleeper.deploy.flow.checks import CheckResult, failure, ok
from sleeper.deploy.settings import DeploymentSettings
from sleeper.errors import StorageFailed
from sleeper.model.jobs.platforms import EMR, EMR_SERVERLESS, PERSISTENT_EMR, PLATFORMS
from sleeper.model.stacks import StackName
from sleeper.spark.submit.environment import (
    Sources,
    build_environment,
    installed_sources,
    sleeper_requirements,
)
from sleeper.spark.submit.request import ARCHITECTURE, ARCHIVE, ENTRY
from sleeper.storage.aws.clients import aws_client, error_code, vendor_errors

logger = logging.getLogger(__name__)

PACKAGES: Final = "sleeper.bulk.import.environment"
"""The property with their folder."""

_FOLDER: Final = "spark-packages"
_EXTRAS: Final = ("aws",)
_NO_BUCKET: Final = ("NoSuchBucket", "404")
_GENERATIONS: Final = 2
"""How many versions are kept: jobs may run that were started before an upgrade."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkPackages:
    """The packages of a deployment.

    Attributes:
        bucket: The instance's bucket of bulk imports, which its drivers may read.
        region: Where it is.
        endpoint: URL of an S3 server that is not Amazon's.
        version: Names what is in them, by Sleeper's release and a digest.
        architectures: The processors of its platforms: `x86_64`, `arm64`.
        sources: What they have of Sleeper's own.
        requirements: What Sleeper needs, as pip names it.
    """

    bucket: str
    region: str
    endpoint: str | None
    version: str
    architectures: tuple[str, ...]
    sources: Sources
    requirements: tuple[str, ...]

    @property
    def url(self) -> str:
        """The folder, as the property has it: platforms put their processors into it."""
        return f"s3://{self.bucket}/{self._prefix}{ARCHITECTURE}"

    @property
    def _prefix(self) -> str:
        return f"{_FOLDER}/{self.version}/"

    def missing(self) -> tuple[str, ...]:
        """Return the processors whose packages are not in the bucket, or not all of them.

        Raises:
            StorageFailed: the bucket cannot be listed.
        """
        there = self._listed(self._prefix)
        wanted = {ARCHIVE, ENTRY, self.sources.jar.name}
        return tuple(
            each
            for each in self.architectures
            if not wanted <= {name.rpartition("/")[2] for name in there if f"/{each}/" in name}
        )

    @contextmanager
    def made(self, report: Callable[[str], object]) -> Iterator[Callable[[], None]]:
        """Make what is missing, before anything is deployed; yield what uploads it afterwards.

        Raises:
            SubmissionFailed: pip cannot fetch a package.
            StorageFailed: the bucket cannot be read, or not be written.
        """
        missing = self.missing()
        with TemporaryDirectory(prefix="sleeper-packages-") as folder:
            for each in missing:
                report(f"making the packages of Sleeper for Spark on {each}, by pip")
                build_environment(
                    Path(folder) / each,
                    self.sources,
                    requirements=self.requirements,
                    architecture=each,
                )
            yield lambda: self._upload(Path(folder), missing, report)

    def delete_old(self) -> None:
        """Delete the packages of earlier versions but the last.

        What cannot be deleted is logged, and tried again by the next deployment.
        """
        try:
            listed = self._listed(f"{_FOLDER}/")
        except StorageFailed as error:
            logger.warning("old packages for Spark are not deleted: %s", error)
            return
        written: dict[str, Any] = {}
        for key, modified in listed.items():
            version = key.split("/")[1]
            written[version] = max(modified, written.get(version, modified))
        others = sorted(written.keys() - {self.version}, key=lambda each: written[each])
        old = others[: 1 - _GENERATIONS]
        for key in listed:
            if key.split("/")[1] in old:
                logger.info("deleting s3://%s/%s, of an earlier version", self.bucket, key)
                self._delete(key)

    def _delete(self, key: str) -> None:
        try:
            self._client().delete_object(Bucket=self.bucket, Key=key)
        except vendor_errors() as error:
            logger.warning("s3://%s/%s cannot be deleted: %s", self.bucket, key, error)

    def _upload(
        self, folder: Path, missing: tuple[str, ...], report: Callable[[str], object]
    ) -> None:
        for architecture in missing:
            for path in sorted((folder / architecture).iterdir()):
                key = f"{self._prefix}{architecture}/{path.name}"
                report(f"uploading s3://{self.bucket}/{key} ({path.stat().st_size / 1e6:,.0f} MB)")
                try:
                    self._client().upload_file(str(path), self.bucket, key)
                except vendor_errors() as error:
                    raise StorageFailed(
                        f"s3://{self.bucket}/{key} cannot be written: {error}. Type the same "
                        "command again: it goes on from here"
                    ) from error

    def _listed(self, start: str) -> dict[str, Any]:
        """Return when each key with a start was written; none where there is no bucket yet."""
        try:
            pages = self._client().get_paginator("list_objects_v2")
            return {
                each["Key"]: each["LastModified"]
                for page in pages.paginate(Bucket=self.bucket, Prefix=start)
                for each in page.get("Contents", ())
            }
        except vendor_errors() as error:
            if error_code(error) in _NO_BUCKET:
                return {}
            raise StorageFailed(f"s3://{self.bucket}/{start} cannot be listed: {error}") from error

    def _client(self) -> Any:
        return aws_client("s3", self.region, self.endpoint)


def packages_of(
    settings: DeploymentSettings, stored: str | None, endpoint: str | None
) -> SparkPackages | None:
    """Return the packages that a deployment makes; None where it needs none, or the user has some.

    Args:
        settings: The settings of the deployment.
        stored: The folder that its properties name so far.
        endpoint: URL of an S3 server that is not Amazon's.

    Raises:
        BadRequest: it is not known which versions of packages are installed here.
    """
    bucket = settings.names.buckets.bulk_import_bucket
    is_ours = not stored or stored.startswith(f"s3://{bucket}/{_FOLDER}/")
    if not is_ours or not _architectures(settings):
        return None
    sources, requirements = installed_sources(), tuple(sleeper_requirements(_EXTRAS))
    return SparkPackages(
        bucket=bucket,
        region=settings.names.region,
        endpoint=endpoint,
        version=f"{sources.release}-{sources.digest(requirements)}",
        architectures=_architectures(settings),
        sources=sources,
        requirements=requirements,
    )


def check_packages(
    settings: DeploymentSettings, packages: SparkPackages | None
) -> list[CheckResult]:
    """Check that bulk imports on EMR will find the packages of Sleeper."""
    if not any(each.takes_packages and settings.has(each.stack) for each in PLATFORMS):
        return []
    if packages is None:
        return ok(f"bulk imports on EMR take packages from {settings.properties.jobs.environment}")
    missing = packages.missing()
    if not missing:
        return ok(f"bulk imports on EMR take packages from {packages.url}")
    if find_spec("pip") is None:
        return failure(
            "bulk imports on EMR need packages that are made by pip, which this Python does not "
            "have: install it (python -m ensurepip), or make them elsewhere by `sleeper "
            "spark-environment --extra aws FOLDER`, copy that folder to a bucket, and deploy with "
            f"--set {PACKAGES}=s3://BUCKET/FOLDER"
        )
    return ok(
        f"packages for bulk imports on EMR ({', '.join(missing)}) will be made by pip, and put "
        f"into {packages.url}: about 220 MB each"
    )


def _architectures(settings: DeploymentSettings) -> tuple[str, ...]:
    """Return the processors that jobs may run on: on clusters of one job, those they ask for."""
    clusters = settings.properties.clusters
    wanted: Mapping[StackName, tuple[str, ...]] = {
        EMR_SERVERLESS.stack: (clusters.serverless_architecture.lower(),),
        PERSISTENT_EMR.stack: (clusters.persistent_architecture.lower(),),
        EMR.stack: ("x86_64", "arm64"),
    }
    chosen = {each for stack, those in wanted.items() if settings.has(stack) for each in those}
    return tuple(sorted(chosen))
