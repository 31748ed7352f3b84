"""The page of rights: what each function, task and policy of a deployment may do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from sleeper.deploy.names import DeployedNames
from sleeper.deploy.settings import DeploymentSettings
from sleeper.deploy.stacks.app import synthesise
from sleeper.model.stacks import OPTIONAL_STACKS

SOURCE = "input-files"
SETTINGS = {
    "sleeper.id": "demo",
    "sleeper.vpc": "vpc-0a1b2c3d",
    "sleeper.subnets": "subnet-0a1b2c3d,subnet-1a2b3c4d",
    "sleeper.optional.stacks": ",".join(OPTIONAL_STACKS),
    "sleeper.ingest.source.bucket": SOURCE,
}
INTRODUCTION = """# Rights

What each function, each worker and each policy for users may do, read from the templates of all
stacks. `r` is to read, `w` to write and delete. Nobody here may make, change or delete buckets,
tables in DynamoDB, queues, functions or roles; who deploys needs
[policies of their own](aws.md#permissions).

- *properties*: the instance's properties; *notes*: what a function saw when it last looked
- *states*: logs and states of tables: files, counts of rows, and the keys that tables are split at
- *rows*: data files of tables
- *input*: the buckets of `sleeper.ingest.source.bucket`
- *results*: the buckets of answers to queries and of exports
- *trackers*: what became of jobs, and files of the batcher

"""
FOR_USERS = ", for users"
COLUMNS = ("properties", "notes", "states", "rows", "input", "results", "trackers")


class Rule(NamedTuple):
    """What a statement says of one action on one resource."""

    effect: str
    action: str
    resource: str


def rights_page() -> str:
    """The page."""
    settings = DeploymentSettings.of(SETTINGS, account="123456789012", region="eu-west-2")
    with TemporaryDirectory(prefix="sleeper-rights-") as folder:
        made = synthesise(settings, Path(folder))
        templates = [json.loads(each.template.read_text()) for each in made.stacks]
    head = ("", *COLUMNS, "takes from", "sends to", "else")
    text = f"{INTRODUCTION}| {' | '.join(head)} |\n{'|---' * len(head)}|\n"
    for name, rules in sorted(owners(templates).items()):
        if cells := row(settings.names, rules):
            short = name.removeprefix(settings.names.prefix)
            of_users = FOR_USERS if short.endswith(FOR_USERS) else ""
            text += f"| `{short.removesuffix(of_users)}`{of_users} | {' | '.join(cells)} |\n"
    return text


def owners(templates: list[dict[str, Any]]) -> dict[str, list[Rule]]:
    """The rules of each role and each policy for users, by its name."""
    found: dict[str, list[Rule]] = {}
    for template in templates:
        for resource in template["Resources"].values():
            properties = resource.get("Properties", {})
            if resource["Type"] == "AWS::IAM::Role":
                documents = [each["PolicyDocument"] for each in properties.get("Policies", ())]
                name = properties["RoleName"]
            elif resource["Type"] == "AWS::IAM::ManagedPolicy":
                documents = [properties["PolicyDocument"]]
                name = properties["ManagedPolicyName"] + FOR_USERS
            else:
                continue
            rules = [rule for each in documents for rule in rules_of(each)]
            found.setdefault(name, []).extend(rules)
    return found


def rules_of(document: dict[str, Any]) -> Iterator[Rule]:
    """The rules of a policy; of references in templates, with `*` for what they refer to."""
    for statement in document["Statement"]:
        for action in listed(statement["Action"]):
            for resource in listed(statement["Resource"]):
                named = resource if isinstance(resource, str) else "reference"
                yield Rule(statement["Effect"], action, named)


def listed(value: Any) -> list[Any]:
    """A list, of one thing too."""
    return value if isinstance(value, list) else [value]


def row(names: DeployedNames, rules: list[Rule]) -> list[str]:
    """The cells of an owner."""
    buckets = names.buckets
    config, data = (
        names.bucket_arns(each)[0] for each in (buckets.config_bucket, buckets.data_bucket)
    )
    results = [
        names.bucket_arns(each)[0]
        for each in (buckets.query_results_bucket, buckets.bulk_export_bucket)
    ]

    def may(action: str, arn: str) -> bool:
        found = {
            each.effect
            for each in rules
            if fnmatchcase(action, each.action) and fnmatchcase(arn, each.resource)
        }
        return found == {"Allow"}

    def of(*keys: str) -> str:
        reads = any(may("s3:GetObject", key) for key in keys)
        writes = any(may("s3:PutObject", key) or may("s3:DeleteObject", key) for key in keys)
        return "r" * reads + "w" * writes

    def of_items(table: str) -> str:
        arn = names.arn("dynamodb", f"table/{names.prefix}{table}")
        reads, writes = may("dynamodb:Query", arn), may("dynamodb:PutItem", arn)
        return "r" * reads + "w" * writes

    tracked = ("ingest-job-updates", "compaction-job-updates", "query-job-updates")
    others = ("export-job-updates", "ingest-batcher-store")
    queues = sorted(
        {each.resource.rpartition(":")[2] for each in rules if ":sqs:" in each.resource}
    )
    known = ("s3:", "dynamodb:", "sqs:", "logs:CreateLogStream", "logs:PutLogEvents")
    rest = sorted({each.action for each in rules if not each.action.startswith(known)})
    cells = [
        of(f"{config}/instance.properties"),
        of(f"{config}/services/notes/split.json"),
        of(f"{data}/0a1b2c3d/statestore/snapshots/newest") and of_items("transaction-log"),
        of(f"{data}/0a1b2c3d/data/partition_root/a.parquet"),
        of(f"{names.bucket_arns(SOURCE)[0]}/a.parquet"),
        of(*(f"{each}/a.parquet" for each in results)),
        max((of_items(each) for each in (*tracked, *others)), key=len),
        named(names, (each for each in queues if may("sqs:ReceiveMessage", names.queue_arn(each)))),
        named(names, (each for each in queues if may("sqs:SendMessage", names.queue_arn(each)))),
        ", ".join(f"`{each}`" for each in rest),
    ]
    return cells if any(cells) else []


def named(names: DeployedNames, queues: Iterator[str]) -> str:
    """Queues by their short names; dead letters are left out."""
    short = [each.removeprefix(names.prefix) for each in queues]
    return ", ".join(
        f"`{each}`" for each in short if "DLQ" not in each and "DeadLetter" not in each
    )
