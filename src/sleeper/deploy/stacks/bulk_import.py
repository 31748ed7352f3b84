"""What all platforms of bulk imports have: grants of drivers, and the function that starts them."""

from __future__ import annotations

from typing import Final

from aws_cdk import Stack

from sleeper.deploy.grants import (
    Grant,
    consume,
    read_files_beside_tables,
    read_sources,
    read_states,
    track,
    write_bucket,
    write_tables,
)
from sleeper.deploy.names import service_principals
from sleeper.deploy.settings import DeploymentSettings
from sleeper.deploy.stacks.parts import FunctionSpec, add_function
from sleeper.model.jobs.kinds import JobKind
from sleeper.model.jobs.platforms import Platform
from sleeper.model.object_stores import is_bucket_url

_TIMEOUT_S: Final = 120


def job_grants(settings: DeploymentSettings) -> tuple[Grant, ...]:
    """Allow what a driver and its workers do: read input and packages, and write tables."""
    names = settings.names
    return (
        *write_tables(names),
        *track(names, JobKind.INGEST),
        *write_bucket(names, names.buckets.bulk_import_bucket),
        *_read_input(settings, _packages(settings)),
    )


def add_starter(
    stack: Stack,
    settings: DeploymentSettings,
    platform: Platform,
    grants: tuple[Grant, ...],
) -> None:
    """Add the function that starts a driver for each message of a queue.

    Args:
        stack: Where.
        settings: The settings of the deployment.
        platform: Where drivers run, and whose queue it is.
        grants: What it may ask of the platform.
    """
    names, lambdas, queue = settings.names, settings.properties.lambdas, platform.queue
    add_function(
        stack,
        settings,
        FunctionSpec(
            name=platform.starter,
            handler="start_bulk_imports",
            description=f"Starts a driver for each message of the {queue} queue",
            memory_mb=settings.memory_mb(lambdas.import_memory_mb),
            timeout_s=_TIMEOUT_S,
            grants=(
                *read_states(names),
                *read_files_beside_tables(names),
                *track(names, JobKind.INGEST),
                *consume(names, queue),
                *write_bucket(names, names.buckets.bulk_import_bucket),
                *_read_input(settings),
                *grants,
            ),
            environment={"SLEEPER_QUEUE": queue},
        ),
    )


def pass_roles(settings: DeploymentSettings, *roles: str, service: str) -> Grant:
    """Allow to give roles to a service of AWS, and to no other."""
    to = service_principals(service, settings.names.domain)
    return Grant(
        ("iam:PassRole",),
        tuple(map(settings.names.role_arn, roles)),
        {"StringEquals": {"iam:PassedToService": [*to] if len(to) > 1 else to[0]}},
    )


def _read_input(settings: DeploymentSettings, packages: str | None = None) -> tuple[Grant, ...]:
    sources = settings.properties.cloud.source_buckets or ()
    buckets = dict.fromkeys((*sources, *((packages,) if packages else ())))
    return read_sources(settings.names, tuple(buckets))


def _packages(settings: DeploymentSettings) -> str | None:
    """Return the bucket that has Sleeper's packages for clusters, if it is one of the user's."""
    url = settings.properties.jobs.environment
    bucket = url.partition("://")[2].partition("/")[0] if url and is_bucket_url(url) else None
    return None if bucket in settings.names.buckets.buckets else bucket
