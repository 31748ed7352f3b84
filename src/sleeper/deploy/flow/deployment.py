"""Carries out a deployment: stacks, then the instance's properties, then a smoke job."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Final

from sleeper.deploy.flow.difference import NewTemplate, differences
from sleeper.deploy.flow.preparation import Machine, Preparation
from sleeper.deploy.flow.removal import stop_tasks
from sleeper.deploy.flow.service_roles import make_ecs_role
from sleeper.deploy.flow.smoke_job import SmokeJob
from sleeper.deploy.flow.stack_changes import ResourceChange, StackChange
from sleeper.deploy.platforms import changed_platforms
from sleeper.errors import BadRequest, DeploymentFailed, InstanceAlreadyExists, InstanceNotFound
from sleeper.instance.instance import Instance, connect, create_instance
from sleeper.model.stacks import StackName

logger = logging.getLogger(__name__)

_BUCKET: Final = "AWS::S3::Bucket"
_CLUSTER: Final = "AWS::ECS::Cluster"
_LOG_GROUP: Final = "AWS::Logs::LogGroup"


@dataclass(frozen=True, slots=True)
class DeploymentPlan:
    """What a deployment would do.

    Attributes:
        preparation: What was found out.
        changes: What changes, stack by stack, in the order in which it is done.
    """

    preparation: Preparation
    changes: tuple[StackChange, ...]

    @property
    def losses(self) -> tuple[ResourceChange, ...]:
        """The resources whose data may be lost."""
        return tuple(loss for each in self.changes for loss in each.losses)

    @property
    def is_empty(self) -> bool:
        """Whether neither a stack nor a property changes."""
        properties = self.preparation.changes if self.preparation.stored is not None else {"": ""}
        return not properties and all(each.is_empty for each in self.changes)


def plan_deployment(
    preparation: Preparation, machine: Machine, report: Callable[[str], object]
) -> DeploymentPlan:
    """Compare the new templates with what is deployed; nothing is changed.

    Raises:
        BadRequest: a stack with data would be removed.
        DeploymentFailed: CloudFormation refuses a template.
        StorageFailed: it cannot be asked.
    """
    for each in preparation.deployed.values():
        preparation.stacks.settle(each.name, report)  # an interrupted deployment goes on by itself
    templates = [NewTemplate(each.name, each.template) for each in preparation.assembly.stacks]
    deployed = preparation.stacks.all() if preparation.deployed else preparation.deployed
    changes = differences(preparation.stacks, deployed, templates, rest=machine.rest)
    _check_removed(changes)
    return DeploymentPlan(preparation, tuple(changes))


def carry_out(
    plan: DeploymentPlan, machine: Machine, report: Callable[[str], object], *, smoke_test: bool
) -> Instance:
    """Deploy all stacks, write the properties, and run the smoke job. Return the instance.

    After an interruption the same command goes on: stacks that are deployed are not changed
    again, and properties are what makes an instance, so they come after all stacks.

    Raises:
        DeploymentFailed: a stack could not be deployed, or the smoke job failed.
        StorageFailed: something else cannot be written.
    """
    preparation = plan.preparation
    with packages_made(preparation, report) as upload:
        if any(not each.is_empty and not each.is_removed for each in plan.changes):
            _make_roles(plan, machine, report)
            _deploy(plan, report)
        for each in plan.changes:
            if each.is_removed:
                report(f"removing stack {each.name}, which is not chosen any more")
                stop_tasks(preparation.stacks, each.name)
                preparation.stacks.delete(each.name, report)
        upload()
    instance = write_properties(preparation)
    write_platforms(preparation, instance)
    if preparation.packages is not None:
        preparation.packages.delete_old()
    report(f"properties of {instance.url} are written")
    if smoke_test:
        _smoke_job(plan, instance, machine, report).run()
    return instance


def packages_made(
    preparation: Preparation, report: Callable[[str], object]
) -> AbstractContextManager[Callable[[], None]]:
    """Make the packages for drivers on EMR that are missing; the block uploads them."""
    if preparation.packages is None:
        return nullcontext(lambda: None)
    return preparation.packages.made(report)


def _make_roles(plan: DeploymentPlan, machine: Machine, report: Callable[[str], object]) -> None:
    """Make what an account needs once, before its first cluster."""
    if _makes(plan, _CLUSTER):
        make_ecs_role(plan.preparation.settings.names.region, machine.rest, report)


def _makes(plan: DeploymentPlan, kind: str) -> bool:
    return any(
        each.is_new and any(made.type == kind for made in each.resources) for each in plan.changes
    )


def _deploy(plan: DeploymentPlan, report: Callable[[str], object]) -> None:
    preparation = plan.preparation
    makes_buckets = _makes(plan, _BUCKET)
    region = preparation.settings.names.region
    try:
        preparation.cdk.deploy(
            preparation.assembly.folder, region, report, takes_over=makes_buckets
        )
    except DeploymentFailed as error:
        found = preparation.stacks.all().values()
        reasons = [preparation.stacks.failed_events(each.name) for each in found if each.has_failed]
        raise DeploymentFailed(" ".join([str(error), *filter(None, reasons)])) from error


def write_properties(preparation: Preparation) -> Instance:
    """Write the instance's properties as `sleeper init` does, and return the instance.

    What `sleeper init` makes is there already: the stacks have made it.
    """
    if preparation.stored is None:
        given = {name: text for name, text in preparation.values.items() if name != "sleeper.id"}
        try:
            return create_instance(preparation.url, given)
        except InstanceAlreadyExists:
            logger.info("%s has properties already: they are changed", preparation.url)
    instance = connect(preparation.url)
    if preparation.changes:
        instance.set_properties(preparation.changes)
    return instance


def write_platforms(preparation: Preparation, instance: Instance) -> None:
    """Tell an instance which Spark platforms its stacks have made, and which are gone."""
    settings = preparation.settings
    changes = changed_platforms(
        settings.names, settings.stacks, preparation.stacks.resources, instance.properties
    )
    if changes:
        instance.set_properties(changes)


def finish(plan: DeploymentPlan, report: Callable[[str], object]) -> None:
    """Write what an interrupted deployment may have left out, where nothing else is to be done."""
    with packages_made(plan.preparation, report) as upload:
        upload()
    with connect(plan.preparation.url) as instance:
        write_platforms(plan.preparation, instance)


def stored_properties(instance_id: str) -> dict[str, str] | None:
    """Return the properties of an instance; None if there is none."""
    try:
        with connect(f"aws://{instance_id}") as opened:
            return dict(opened.properties.values)
    except InstanceNotFound:
        return None


def _smoke_job(
    plan: DeploymentPlan, instance: Instance, machine: Machine, report: Callable[[str], object]
) -> SmokeJob:
    settings, stacks = plan.preparation.settings, plan.preparation.stacks
    names = [each.name for each in plan.preparation.assembly.stacks]
    groups = {
        name: [place for kind, _, place in stacks.resources(name) if kind == _LOG_GROUP]
        for name in names
    }

    def of(stack: StackName, words: Sequence[str]) -> tuple[str, ...]:
        found = [place for each in groups.values() for place in each if _has(place, words)]
        return tuple(dict.fromkeys([*groups.get(settings.names.stack(stack), ()), *found]))

    return SmokeJob(
        instance=instance,
        has_ingest=settings.has(StackName.INGEST),
        has_query=settings.has(StackName.QUERY),
        log_groups={
            "ingest": of(StackName.INGEST, ("ingest", "start")),
            "query": of(StackName.QUERY, ("query",)),
        },
        rest=machine.rest,
        report=report,
    )


def _has(place: str, words: Iterable[str]) -> bool:
    return any(word in place.lower() for word in words)


def _check_removed(changes: Iterable[StackChange]) -> None:
    removed = [each for each in changes if each.is_removed]
    lost = [loss.line() for each in removed for loss in each.losses]
    if lost:
        raise BadRequest(
            "nothing was deployed: stacks that are not chosen any more hold data, which a "
            f"deployment never removes: {'; '.join(lost)}"
        )
