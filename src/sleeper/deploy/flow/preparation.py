"""All that is found out before a deployment: settings, checks, stacks, and what would change."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from sleeper.deploy.deployer_policy import deployer_policies
from sleeper.deploy.flow.cdk_command import CdkCommand, find_cdk
from sleeper.deploy.flow.checks import (
    Check,
    CheckResult,
    Level,
    check_account,
    check_concurrency,
    check_hearers,
    check_network,
    check_resources,
    check_stacks,
    check_topic,
    check_vcpus,
    ok,
    raise_failures,
    run_checks,
)
from sleeper.deploy.flow.deployed_stacks import DeployedStack, DeployedStacks
from sleeper.deploy.flow.images import check_image, resolve_images
from sleeper.deploy.flow.spark_packages import PACKAGES, SparkPackages, check_packages, packages_of
from sleeper.deploy.flow.template_needs import (
    most_vcpus,
    needed_images,
    reserved_concurrency,
)
from sleeper.deploy.names import RETAIN
from sleeper.deploy.settings import VERSION, DeploymentSettings, deployed_values
from sleeper.deploy.stacks.app import Assembly, synthesise
from sleeper.errors import BadRequest, PropertiesInvalid, SleeperError
from sleeper.model.known_properties.catalogue import INSTANCE_PROPERTIES_BY_NAME
from sleeper.model.known_properties.checks import check_editable
from sleeper.model.known_properties.deployment import DEPLOYMENT_PROPERTIES, REGION
from sleeper.model.known_properties.given import unknown_names
from sleeper.storage.aws.clients import aws_client
from sleeper.storage.aws.deployment.buckets import InstanceBuckets
from sleeper.storage.aws.deployment.identity import AwsIdentity, aws_identity, configured_region
from sleeper.storage.aws.deployment.names import InstanceNames, is_instance_id

logger = logging.getLogger(__name__)

_NO_REGION: Final = (
    "no region is set: say which, as `export AWS_REGION=eu-west-2`, or a region in the profile"
)
_ANY_NETWORK: Final = {
    "sleeper.vpc": "vpc-00000000",
    "sleeper.subnets": "subnet-00000000,subnet-00000001",
}
"""Stands for the network where permissions are asked for, which are the same for all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What a deployment needs of the machine and the process that it is started in.

    Attributes:
        environment: The environment, for the CDK.
        region: The region; None for the one that boto3 finds.
        endpoint: URL of an S3 server that is not Amazon's.
        rest: Waits for so many seconds.
        pause: Waits before another attempt, given how many there were.
    """

    environment: Mapping[str, str]
    region: str | None
    endpoint: str | None
    rest: Callable[[float], object]
    pause: Callable[[int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparation:
    """A deployment that can be carried out.

    Attributes:
        settings: What it is made from.
        assembly: Its templates.
        values: The instance's properties as they will be set, but for those that follow from its
            id.
        changes: Those of them that differ from what is stored; None takes one away.
        stored: The properties that are stored; None for a new instance.
        cdk: The CDK's command line.
        stacks: The instance's stacks.
        deployed: Those that there are.
        findings: What the checks found.
        packages: The packages for drivers on EMR; None where there are none, or the user's own.
    """

    settings: DeploymentSettings
    assembly: Assembly
    values: Mapping[str, str]
    changes: Mapping[str, str | None]
    stored: Mapping[str, str] | None
    cdk: CdkCommand
    stacks: DeployedStacks
    deployed: Mapping[str, DeployedStack]
    findings: tuple[CheckResult, ...]
    packages: SparkPackages | None

    @property
    def url(self) -> str:
        """The URL of the instance."""
        return f"aws://{self.settings.names.instance_id}"


def prepare(
    instance_id: str,
    given: Mapping[str, str | None],
    stored: Callable[[], Mapping[str, str] | None],
    machine: Machine,
    folder: Path,
) -> Preparation:
    """Run all checks, and return what can be deployed.

    Args:
        instance_id: The instance.
        given: Properties to be set; None resets one.
        stored: Reads the properties of the instance; None without one.
        machine: Where this runs.
        folder: Where templates are written.

    Raises:
        BadRequest: something stands in the way; lists all of it. Nothing was made.
    """
    parts = _Parts(instance_id, given, stored, machine, folder)
    findings = run_checks(
        {
            "the CDK": parts.check_cdk,
            "the account": parts.check_identity,
            "the properties": parts.check_properties,
        }
    )
    findings += run_checks(parts.checks_in_aws())
    findings += run_checks(parts.checks_of_templates())
    raise_failures(findings)
    assert parts.settings is not None
    assert parts.assembly is not None
    assert parts.cdk is not None
    assert parts.stacks is not None
    return Preparation(
        settings=parts.settings,
        assembly=parts.assembly,
        values=parts.values,
        changes=parts.changes,
        stored=parts.stored,
        cdk=parts.cdk,
        stacks=parts.stacks,
        deployed=parts.deployed,
        findings=tuple(findings),
        packages=parts.packages,
    )


class _Parts:
    """What the checks find out, one after the other."""

    def __init__(
        self,
        instance_id: str,
        given: Mapping[str, str | None],
        read_stored: Callable[[], Mapping[str, str] | None],
        machine: Machine,
        folder: Path,
    ) -> None:
        self._id, self._given, self._machine = instance_id, given, machine
        self._folder = folder
        self._read_stored = read_stored
        self.stored: Mapping[str, str] | None = None
        self.values: Mapping[str, str] = {}
        self.changes: Mapping[str, str | None] = {}
        self.identity: AwsIdentity | None = None
        self.is_elsewhere = False
        self.settings: DeploymentSettings | None = None
        self.packages: SparkPackages | None = None
        self.assembly: Assembly | None = None
        self.cdk: CdkCommand | None = None
        self.stacks: DeployedStacks | None = None
        self.deployed: Mapping[str, DeployedStack] = {}

    def check_cdk(self) -> list[CheckResult]:
        cdk = find_cdk(self._machine.environment)
        found = cdk.version()
        self.cdk = cdk
        return ok(f"the CDK's command line {found}")

    def check_identity(self) -> list[CheckResult]:
        region = self._machine.region or configured_region()
        if region is None:
            return [CheckResult(Level.FAILURE, _NO_REGION)]
        try:
            self.identity = aws_identity(region)
        except SleeperError as error:  # without an account there is nothing to go on with
            logger.info("no account: %s", error)
            return [CheckResult(Level.FAILURE, str(error))]
        return check_account(self.identity.account, self.identity.region)

    def check_properties(self) -> list[CheckResult]:
        if self.identity is not None and is_instance_id(self._id):
            self._refuse_elsewhere(self._bucket_region())  # whose properties cannot be read here
            self.stored = self._read_stored()
            self._refuse_elsewhere((self.stored or {}).get(REGION))
        self.values = deployed_values(self._id, self.stored or {}, self._given)
        failures: dict[str, str] = unknown_names(self._given, INSTANCE_PROPERTIES_BY_NAME)
        for check in (self._check_fixed, self._check_settings):
            try:
                check()
            except PropertiesInvalid as error:
                failures |= error.failures
        if failures:
            raise PropertiesInvalid(failures)
        before = self.stored or {}
        names = {*self._given, VERSION, RETAIN, PACKAGES}
        self.changes = {
            name: self.values.get(name)
            for name in sorted(names)
            if self.values.get(name) != before.get(name)
        }
        return [] if self.settings is None else check_hearers(self.settings)

    def _refuse_elsewhere(self, there: str | None) -> None:
        """Refuse an instance that is in another region: names of buckets have no region."""
        assert self.identity is not None
        here = self.identity.region
        if there in (None, "", here):
            return
        self.is_elsewhere = True
        told = (
            f"aws://{self._id} is there already, in {there}, and a second one in {here} would need "
            f"the same buckets: set AWS_REGION={there} to change that one, or choose another id "
            "for the new one."
        )
        raise PropertiesInvalid({REGION: told})

    def _bucket_region(self) -> str | None:
        assert self.identity is not None
        client = aws_client("s3", self.identity.region, self._machine.endpoint)
        names = InstanceNames(self._id, self.identity.account)
        return InstanceBuckets(client, f"aws://{self._id}").region(names.config_bucket)

    def _check_fixed(self) -> None:
        if self.stored is not None:
            check_editable(self.stored, {**self.stored, **self.values})
            return
        fixed = {each.name for each in DEPLOYMENT_PROPERTIES} & {*self._given}
        if fixed:
            raise PropertiesInvalid(
                {name: f"{name} cannot be set: it follows from the id." for name in sorted(fixed)}
            )

    def _check_settings(self) -> None:
        found = self.identity
        account, region = (
            ("0" * 12, "us-east-1") if found is None else (found.account, found.region)
        )
        self.settings = DeploymentSettings.of(self.values, account=account, region=region)
        if found is None:
            return
        folder = self.values.get(PACKAGES)
        self.packages = packages_of(self.settings, folder, self._machine.endpoint)
        if self.packages is not None:
            self.values = {**self.values, PACKAGES: self.packages.url}
            settings = DeploymentSettings.of(self.values, account=account, region=region)
            # Jobs look there as soon as it is set, so it is set when the packages are there.
            self.settings = replace(settings, written_later=frozenset({PACKAGES}))

    def checks_in_aws(self) -> Mapping[str, Check]:
        """Return the checks that ask AWS, as far as it is known what to ask."""
        if self.identity is None or self.is_elsewhere or not is_instance_id(self._id):
            return {}
        checks: dict[str, Check] = {"the stacks": self._check_stacks}
        settings, region = self.settings, self.identity.region
        if settings is None:
            return checks
        cloud = settings.properties.cloud
        if cloud.alarms_topic is not None:
            checks["the topic of alarms"] = partial(
                check_topic,
                cloud.alarms_topic,
                region,
                has_budget=cloud.budget_dollars is not None,
            )
        vpc = cloud.vpc
        if vpc is not None:
            inside = cloud.in_vpc
            checks["the network"] = partial(
                check_network, vpc, settings.subnets, region, for_functions=inside
            )
        checks["packages for Spark"] = partial(check_packages, settings, self.packages)
        checks["the digests of images"] = self._resolve_images
        checks["the templates"] = self._synthesise
        return checks

    def checks_of_templates(self) -> Mapping[str, Check]:
        """Return the checks of what the templates need."""
        if self.assembly is None or self.settings is None or self.identity is None:
            return {}
        templates = [json.loads(each.template.read_text()) for each in self.assembly.stacks]
        tags = {digest: tag for tag, digest in self.settings.digests.items()}
        checks: dict[str, Check] = {
            f"the image {address}": partial(check_image, address, needs, tags.get(address))
            for address, needs in needed_images(templates).items()
        }
        if reserved := reserved_concurrency(templates):
            checks["the concurrency of functions"] = partial(
                check_concurrency, reserved, self.identity.region
            )
        if wanted := most_vcpus(templates):
            spot = self.settings.properties.tasks.spot
            checks["the quota of Fargate"] = partial(
                check_vcpus, wanted, self.identity.region, is_spot=spot
            )
        return checks

    def _resolve_images(self) -> list[CheckResult]:
        assert self.settings is not None
        digests, findings = resolve_images(self.settings.images)
        self.settings = replace(self.settings, digests=digests)
        return findings

    def _synthesise(self) -> list[CheckResult]:
        assert self.settings is not None
        self.assembly = synthesise(self.settings, self._folder)
        names = ", ".join(each.kind for each in self.assembly.stacks)
        return ok(f"templates in {self._folder}: {names}")

    def _check_stacks(self) -> list[CheckResult]:
        assert self.identity is not None
        self.stacks = DeployedStacks(self._id, self.identity.region, rest=self._machine.rest)
        self.deployed = self.stacks.all()
        findings = check_stacks(self.stacks, self.deployed)
        if any(each.is_made for each in self.deployed.values()):
            return findings
        names = InstanceNames(self._id, self.identity.account)
        keeps = self.values.get(RETAIN) == "true"
        return findings + check_resources(
            names, self.identity.region, self._machine.endpoint, self._machine.pause, keeps=keeps
        )


def account_and_region(account: str | None, region: str | None) -> tuple[str, str]:
    """Return account and region, those of the environment where they are not given.

    Raises:
        BadRequest: no region is given, and none is in the environment.
        StorageFailed: there are no credentials, and no account is given.
    """
    region = region or configured_region()
    if region is None:
        raise BadRequest(f"{_NO_REGION}; or give --region")
    return account or aws_identity(region).account, region


def policies_for(
    instance_id: str,
    given: Mapping[str, str | None],
    account: str | None,
    region: str | None,
    *,
    nested_in: str | None = None,
) -> dict[str, dict[str, Any]]:
    """Return the policies of who deploys an instance, by their names.

    AWS is asked only for the account, if it is not given.

    Args:
        instance_id: The instance.
        given: Properties that it is deployed with; without a network, that of any.
        account: The account; None for that of the credentials.
        region: The region; None for the one that boto3 finds.
        nested_in: The stack that a construct of the CDK nests its stacks in; None for none.

    Raises:
        BadRequest: no region is given, and none is in the environment.
        PropertiesInvalid: a property is not allowed.
        MissingExtra: the CDK is not installed.
        StorageFailed: there are no credentials, and no account is given.
    """
    account, region = account_and_region(account, region)
    if failures := unknown_names(given, INSTANCE_PROPERTIES_BY_NAME):
        raise PropertiesInvalid(failures)
    values = _ANY_NETWORK | {name: text for name, text in given.items() if text is not None}
    settings = DeploymentSettings.of(
        {**values, "sleeper.id": instance_id}, account=account, region=region
    )
    with TemporaryDirectory(prefix="sleeper-policy-") as folder:
        assembly = synthesise(settings, Path(folder).resolve())
        templates = [json.loads(each.template.read_text()) for each in assembly.stacks]
    return deployer_policies(templates, settings.names, nested_in=nested_in)
