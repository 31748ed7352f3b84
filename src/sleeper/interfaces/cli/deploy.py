"""`sleeper deploy`: deploys an instance to AWS."""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event
from typing import Any

import click

from sleeper.deploy.deployer_policy import POLICIES_MAX
from sleeper.deploy.flow.checks import CheckResult, Level
from sleeper.deploy.flow.deployment import (
    DeploymentPlan,
    carry_out,
    finish,
    plan_deployment,
    stored_properties,
)
from sleeper.deploy.flow.preparation import Machine, policies_for, prepare
from sleeper.deploy.flow.templates import STACKS_FILE, write_templates
from sleeper.errors import BadRequest
from sleeper.instance.instance import between_attempts, process_environment
from sleeper.interfaces.cli.completion import complete_instance_settings
from sleeper.interfaces.cli.options import (
    ask,
    ask_for_name,
    given_properties,
    json_option,
    properties_file_option,
)
from sleeper.interfaces.cli.present import print_json, say
from sleeper.interfaces.cli.stderr import warn
from sleeper.model.object_stores import ObjectStoreSettings

_set_option = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    shell_complete=complete_instance_settings,
    help="An instance property; an empty value resets it.",
)
_account_option = click.option(
    "--account", metavar="NUMBER", help="The AWS account; else that of the credentials."
)
_region_option = click.option(
    "--region", metavar="REGION", help="The region; else that of the environment."
)


@click.group()
def deploy() -> None:
    """Deploy an instance with all that runs its jobs.

    \b
    Example:
        sleeper deploy aws demo --dry-run
    """


@deploy.command()
@click.argument("instance_id", metavar="ID")
@_set_option
@properties_file_option
@click.option("--dry-run", is_flag=True, help="Only show what would change.")
@click.option("--yes", is_flag=True, help="Do not ask, unless data would be lost.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Write the templates there, and keep them.",
)
@click.option("--no-smoke-test", is_flag=True, help="Do not run a job in the end.")
@json_option
def aws(
    instance_id: str,
    *,
    settings: tuple[str, ...],
    properties_file: Path | None,
    dry_run: bool,
    yes: bool,
    out: Path | None,
    no_smoke_test: bool,
    as_json: bool,
) -> None:
    """Deploy the instance aws://ID, or change one that is deployed.

    Account, region and credentials are those of the environment. All that can be
    checked is checked first, and all that is wrong is reported at once. Then the
    stacks are compared with those in CloudFormation, and what would change is shown.
    After a yes they are deployed by the CDK's command line (npm install --global
    aws-cdk@2), packages for bulk imports on EMR are made by pip and uploaded, the
    properties are written, and a job shows that it works.

    The same command changes what is deployed and upgrades it: properties that are not
    given stay as they are, and stacks that are not in sleeper.optional.stacks any more
    are removed. After an interruption it goes on where it stopped. Where data could be
    lost, the id must be typed; --yes does not do that.

    \b
    Examples:
        sleeper deploy aws demo --set sleeper.vpc=vpc-0a1b2c3d4e5f60718 \\
            --set sleeper.subnets=subnet-0a1b2c3d4e5f60718
        sleeper deploy aws demo --properties instance.properties --dry-run
    """
    given = given_properties(properties_file, settings)
    given.pop("sleeper.id", None)
    with ExitStack() as stack:
        folder = out or Path(stack.enter_context(TemporaryDirectory(prefix="sleeper-deploy-")))
        folder.mkdir(parents=True, exist_ok=True)
        machine = _machine()
        stored = partial(stored_properties, instance_id)
        preparation = prepare(instance_id, given, stored, machine, folder.resolve())
        plan = plan_deployment(preparation, machine, warn)
        if not as_json:
            _show(plan)
        if plan.is_empty and not dry_run:
            finish(plan, warn)
        if dry_run or plan.is_empty:
            _end(plan, as_json=as_json, text=None if as_json else _nothing_done(plan))
            return
        _agree(plan, yes=yes)
        instance = carry_out(plan, machine, warn, smoke_test=not no_smoke_test)
        _end(plan, as_json=as_json, text=f"deployed {instance.url}", deployed=True)


@deploy.command()
@click.argument("instance_id", metavar="ID")
@_set_option
@properties_file_option
@_account_option
@_region_option
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Write each policy there, as NAME.json.",
)
@click.option(
    "--nested-in",
    metavar="STACK",
    help="The stack in which a construct of the CDK nests those of the instance.",
)
def policy(
    instance_id: str,
    *,
    settings: tuple[str, ...],
    properties_file: Path | None,
    account: str | None,
    region: str | None,
    out: Path | None,
    nested_in: str | None,
) -> None:
    """Print the IAM policies that let somebody deploy the instance aws://ID.

    They have what `sleeper deploy aws` with the same properties calls, what
    CloudFormation calls for it, and what `sleeper destroy` calls. There are several
    where one would be longer than IAM allows; attach them all. With --account and
    --region nothing is asked of AWS.

    \b
    Examples:
        sleeper deploy policy demo --account 123456789012 --region eu-west-2 --out policies
        sleeper deploy policy demo --set sleeper.optional.stacks=IngestStack,QueryStack
    """
    given = given_properties(properties_file, settings)
    region = region or ObjectStoreSettings.of(process_environment()).region
    policies = policies_for(instance_id, given, account, region, nested_in=nested_in)
    if len(policies) > POLICIES_MAX:
        warn(f"these are {len(policies)} policies; a role has at most {POLICIES_MAX} by default")
    if out is None:
        print_json(policies)
        return
    out.mkdir(parents=True, exist_ok=True)
    for name, document in policies.items():
        (out / f"{name}.json").write_text(json.dumps(document, indent=2) + "\n")
        say(f"wrote {out / name}.json")


@deploy.command()
@click.argument("instance_id", metavar="ID")
@_set_option
@properties_file_option
@_account_option
@_region_option
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="FOLDER",
    required=True,
    help="Where the templates are written.",
)
def templates(
    instance_id: str,
    *,
    settings: tuple[str, ...],
    properties_file: Path | None,
    account: str | None,
    region: str | None,
    out: Path,
) -> None:
    """Write the templates of the instance aws://ID, for other programs to deploy.

    CloudFormation and Terraform make an instance of them; stacks.json lists them in
    their order. Nothing is deployed or checked in AWS; with --account and --region
    nothing is asked of it.

    \b
    Example:
        sleeper deploy templates demo --account 123456789012 --region eu-west-2 \\
            --properties instance.properties --out templates
    """
    given = given_properties(properties_file, settings)
    given.pop("sleeper.id", None)
    region = region or ObjectStoreSettings.of(process_environment()).region
    assembly = write_templates(instance_id, given, account, region, out)
    say(f"wrote {len(assembly.stacks)} templates and {out / STACKS_FILE}")


def _machine() -> Machine:
    environment = process_environment()
    stores = ObjectStoreSettings.of(environment)
    return Machine(
        environment=environment,
        region=stores.region,
        endpoint=stores.endpoint,
        rest=Event().wait,
        pause=between_attempts,
    )


def _show(plan: DeploymentPlan) -> None:
    for finding in plan.preparation.findings:
        say(_finding_line(finding))
    say("")
    for change in plan.changes:
        for line in change.lines():
            say(line)
    if plan.preparation.stored is not None:
        for name, text in plan.preparation.changes.items():
            say(
                f"property {name}: {plan.preparation.stored.get(name, '')!r} becomes {text or ''!r}"
            )


def _finding_line(finding: CheckResult) -> str:
    mark = "" if finding.level is Level.OK else f"{finding.level.value.upper()}: "
    return f"{mark}{finding.text}"


def _nothing_done(plan: DeploymentPlan) -> str:
    return "nothing to do" if plan.is_empty else "nothing was changed: this was a dry run"


def _agree(plan: DeploymentPlan, *, yes: bool) -> None:
    """Ask whether to go on.

    Raises:
        BadRequest: the answer is no, or nobody can answer.
    """
    name = plan.preparation.settings.names.instance_id
    if not plan.losses:
        if not yes:
            ask(f"Deploy {plan.preparation.url}?", "--yes")
        return
    warn("DATA COULD BE LOST:")
    for loss in plan.losses:
        warn(f"  {loss.line()}")
    if yes:
        raise BadRequest(
            "nothing was changed: --yes does not agree to a loss of data. Run the command without "
            "it, and type the id."
        )
    ask_for_name(name, "deploy it all the same")


def _end(plan: DeploymentPlan, *, as_json: bool, text: str | None, deployed: bool = False) -> None:
    if not as_json:
        say(text or "")
        return
    names = plan.preparation.settings.names
    document: dict[str, Any] = {
        "id": names.instance_id,
        "url": plan.preparation.url,
        "account": names.account,
        "region": names.region,
        "deployed": deployed,
        "findings": [asdict(each) for each in plan.preparation.findings],
        "stacks": [
            {**asdict(each), "losses": [loss.line() for loss in each.losses]}
            for each in plan.changes
        ],
        "properties": dict(plan.preparation.changes),
    }
    print_json(document)
