"""Which properties of an instance its stacks in AWS are made from: a change needs a deployment."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields
from typing import Final

from sleeper.model.jobs.kinds import QUEUES, TASK_KINDS
from sleeper.model.known_properties.cloud import (
    CloudProperties,
    LambdaProperties,
    TaskProperties,
)
from sleeper.model.known_properties.clusters import ClusterProperties
from sleeper.model.known_properties.value_kinds import PREFIX

_GROUPS: Final = (CloudProperties, LambdaProperties, TaskProperties, ClusterProperties)
_OTHERS: Final = (
    "sleeper.bulk.export.results.bucket.expiry.days",
    "sleeper.bulk.import.eks.k8s.namespace",
    "sleeper.bulk.import.emr.ebs.volume.size.gb",
    "sleeper.bulk.import.emr.ebs.volume.type",
    "sleeper.bulk.import.emr.ebs.volumes.per.instance",
    "sleeper.bulk.import.emr.keypair.name",
    "sleeper.bulk.import.emr.master.additional.security.group",
    "sleeper.bulk.import.environment",
    "sleeper.gc.period.minutes",
    "sleeper.ingest.batcher.job.creation.period.minutes",
    "sleeper.ingest.batcher.submitter.timeout.seconds",
    "sleeper.jobs.receives.max",
    "sleeper.partition.splitting.period.minutes",
    "sleeper.query.results.bucket.expiry.days",
    "sleeper.statestore.committer.batch.size",
)
_OF_REMOVALS: Final = ("sleeper.retain.infra.after.destroy",)
"""Read by `sleeper destroy` too, which needs no deployment before."""


def _all() -> Iterator[str]:
    for group in _GROUPS:
        for each in fields(group):
            yield each.metadata["property"].name
    yield from _OTHERS
    yield from (f"{PREFIX}{each.lease}" for each in QUEUES.values())
    for kind in TASK_KINDS:
        if kind.task is None:
            continue
        sizes = [each for processor in ("ARM64", "X86_64") for each in kind.task.size(processor)]
        for name in (*sizes, kind.task.architecture, kind.task.period, kind.workers_max):
            if name is not None:
                yield f"{PREFIX}{name}"


STACK_PROPERTIES: Final = frozenset(_all()) - {*_OF_REMOVALS}
"""Their full names."""


def needs_deployment(names: Iterable[str]) -> tuple[str, ...]:
    """Return those of some properties that stacks are made from.

    >>> needs_deployment(["sleeper.log.retention.days", "sleeper.gc.batch.size"])
    ('sleeper.log.retention.days',)
    """
    return tuple(name for name in names if name in STACK_PROPERTIES)
