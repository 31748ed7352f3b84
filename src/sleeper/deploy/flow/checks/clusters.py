"""Checks of what bulk imports on clusters need beside their stacks."""

from __future__ import annotations

from typing import Final

from sleeper.deploy.flow.checks.findings import Finding, ok, warning
from sleeper.deploy.settings import DeploymentSettings

_NEED_PACKAGES: Final = (
    "EmrServerlessBulkImportStack",
    "EmrBulkImportStack",
    "PersistentEmrBulkImportStack",
)
_PACKAGES: Final = "sleeper.bulk.import.environment"


def check_packages(settings: DeploymentSettings) -> list[Finding]:
    """Check that bulk imports on EMR find the packages of Sleeper."""
    needing = [each for each in _NEED_PACKAGES if settings.has(each)]
    if not needing:
        return []
    if settings.properties.jobs.environment:
        return ok(f"bulk imports on EMR take packages from {settings.properties.jobs.environment}")
    return warning(
        f"{_PACKAGES} is not set, so jobs for {' and '.join(needing)} will be rejected: make the "
        "packages by `sleeper spark-environment --extra aws FOLDER`, copy that folder to a bucket, "
        f"and deploy with --set {_PACKAGES}=s3://BUCKET/FOLDER"
    )
