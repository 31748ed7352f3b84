"""Checkov, a scanner that platform teams use, finds nothing in templates but what is listed here."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

import pytest

from sleeper.model.stacks import OPTIONAL_STACKS
from tests.contracts.servers.installed import left_out
from tests.deploy.stacks.conftest import ACCOUNT, REGION

ROOT = Path(__file__).resolve().parents[3]
CHECKOV = ROOT / ".venv-checkov/bin/checkov"
VPC = ROOT / "deploy/aws/vpc.yaml"
TIMEOUT_S = 300

DEFAULT = "default"
GUARDED = "guarded"
DEPLOYMENTS = {
    DEFAULT: {},
    GUARDED: {
        "sleeper.optional.stacks": ",".join(OPTIONAL_STACKS),
        "sleeper.kms.key.arn": f"arn:aws:kms:{REGION}:{ACCOUNT}:key/0a1b2c3d-1111-2222-3333-444455556666",
        "sleeper.access.logs.bucket": "logs-of-the-account",
        "sleeper.deploy.in.vpc": "true",
        "sleeper.default.lambda.concurrency.reserved": "3",
    },
}
"""What most people have; and all there is, with each property that a platform team would set."""


class Exemption(NamedTuple):
    """What the scanner finds and we keep.

    Attributes:
        check: The scanner's name of it.
        where: The deployments in which it is found.
        resources: Names of resources, without the instance's prefix; each is found everywhere there.
        reason: Why we keep it.
    """

    check: str
    where: tuple[str, ...]
    resources: tuple[str, ...]
    reason: str


BOTH = (DEFAULT, GUARDED)
EXCEPTIONS = (
    Exemption(
        "CKV_AWS_18",  # access logging of a bucket
        (DEFAULT,),
        ("*",),
        "They are paid for, and need a bucket of the user's: sleeper.access.logs.bucket.",
    ),
    Exemption(
        "CKV_AWS_21",  # versions of a bucket
        BOTH,
        ("query-results-*", "bulk-import-*", "bulk-export-results-*"),
        "What lies there is made again by its job.",
    ),
    Exemption(
        "CKV_AWS_26",  # encryption of a topic
        (DEFAULT,),
        ("Sleeper *",),
        "Alarms may not use Amazon's key of SNS; sleeper.kms.key.arn names one that they may.",
    ),
    Exemption(
        "CKV_AWS_27",  # encryption of a queue
        (DEFAULT,),
        ("*",),
        "SQS encrypts them itself (SqsManagedSseEnabled), which the check does not know.",
    ),
    Exemption(
        "CKV_AWS_28",  # history of a table in DynamoDB
        BOTH,
        ("*-job-lookup", "*-job-updates", "*-task-status", "ingest-batcher-*", "query-tracking-*"),
        "Reports of jobs expire, and no row depends on them.",
    ),
    Exemption(
        "CKV_AWS_65",  # Container Insights
        BOTH,
        ("*",),
        "Each metric is paid for by the month; alarms have what they need from events.",
    ),
    Exemption(
        "CKV_AWS_111",  # writes of a role without a resource that they are for
        (GUARDED,),
        ("*",),
        "AWS lets the interfaces that functions have in a VPC be limited to no VPC or subnet.",
    ),
    Exemption(
        "CKV_AWS_115",  # concurrency of a function
        BOTH,
        (
            *("query", "queue-watch", "properties-writer"),
            *("batcher-submit", "*-trigger", "bulk-import-*-starter"),
        ),
        "It would be taken from the rest of the account, which has 10 in all where it is new.",
    ),
    Exemption(
        "CKV_AWS_115",
        (DEFAULT,),
        ("garbage-collector", "partition-splitter", "table-metrics"),
        "The same; sleeper.default.lambda.concurrency.reserved sets it.",
    ),
    Exemption(
        "CKV_AWS_116",  # dead letters of a function
        BOTH,
        ("*",),
        "Their queues have them; what a schedule calls is called again by the next one.",
    ),
    Exemption(
        "CKV_AWS_117",  # functions in a VPC
        (DEFAULT,),
        ("*",),
        "It needs a NAT or endpoints, paid by the hour: sleeper.deploy.in.vpc.",
    ),
    Exemption(
        "CKV_AWS_119",  # the user's key for tables in DynamoDB
        (DEFAULT,),
        ("*",),
        "A key costs a dollar a month: sleeper.kms.key.arn.",
    ),
    Exemption(
        "CKV_AWS_158",  # the user's key for logs
        (DEFAULT,),
        ("*",),
        "The same.",
    ),
    Exemption(
        "CKV_AWS_173",  # the user's key for variables of functions
        (DEFAULT,),
        ("*",),
        "They have names, and no secrets; Lambda encrypts them by a key of its own.",
    ),
)


class Finding(NamedTuple):
    """What the scanner found: in which deployment, which check, at which resource."""

    deployment: str
    check: str
    resource: str


@pytest.fixture(scope="module")
def findings(synthesised, tmp_path_factory) -> set[Finding]:
    """All findings in both deployments and in the template of a VPC, by one run."""
    if not CHECKOV.exists():
        left_out("checkov", "it is not installed; `make test-deploy` installs it")
    folder, names = tmp_path_factory.mktemp("templates"), {}
    for deployment, properties in DEPLOYMENTS.items():
        deployed = synthesised(properties)
        prefix = deployed.settings.names.prefix
        for stack in deployed.made.stacks:
            target = folder / deployment / stack.template.name
            target.parent.mkdir(exist_ok=True)
            shutil.copyfile(stack.template, target)
            for each in deployed.resources(stack=stack.kind):
                name = each.name.removeprefix(prefix)
                names[f"/{deployment}/{target.name}", f"{each.type}.{each.id}"] = name
    shutil.copyfile(VPC, folder / VPC.name)

    report = run_checkov(folder)

    assert report["results"]["parsing_errors"] == []
    scanned = {each["file_path"] for each in report["results"]["passed_checks"]}
    assert {path.split("/")[1] for path in scanned} >= DEPLOYMENTS.keys()
    return {
        Finding(
            each["file_path"].split("/")[1],
            each["check_id"],
            names.get((each["file_path"], each["resource"]), each["resource"]),
        )
        for each in report["results"]["failed_checks"]
    }


def run_checkov(folder):
    """Its report on a folder of templates. It asks no platform, and loads nothing from elsewhere."""
    options = ("--framework", "cloudformation", "--skip-download", "--compact")
    command = [CHECKOV, "--directory", folder, *options, "--soft-fail", "--output", "json"]
    environment = os.environ | {"PYTHONPATH": "", "LOG_LEVEL": "ERROR"}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=TIMEOUT_S, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def allows(exception: Exemption, pattern: str, finding: Finding) -> bool:
    """Whether an exception is for a finding, by one of its patterns."""
    return (
        finding.deployment in exception.where
        and finding.check == exception.check
        and fnmatchcase(finding.resource, pattern)
    )


def test_the_scanner_finds_nothing_without_an_exception(findings):
    """Given all templates, then each finding is one that is kept for a reason."""
    new = [
        each
        for each in findings
        if not any(allows(kept, pattern, each) for kept in EXCEPTIONS for pattern in kept.resources)
    ]

    assert sorted(new) == [], "mend the stack, or add an exception with its reason"


def test_each_exception_is_still_needed(findings):
    """Given all templates, then each pattern of each exception is found in each of its deployments."""
    idle = [
        (where, kept.check, pattern)
        for kept in EXCEPTIONS
        for where in kept.where
        for pattern in kept.resources
        if not any(allows(kept, pattern, each) for each in findings if each.deployment == where)
    ]

    assert idle == [], "take it out of the list"
