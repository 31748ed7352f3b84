"""The page of costs: what the default set of stacks costs while nobody uses it."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import costs
from shown_runs import ROOT

from sleeper.deploy.settings import DeploymentSettings
from sleeper.deploy.stacks.app import synthesise

SETTINGS = {
    "sleeper.id": "demo",
    "sleeper.vpc": "vpc-0a1b2c3d",
    "sleeper.subnets": "subnet-0a1b2c3d",
}


DAY = costs.Day(files=100, file_gb=1, keys=10_000)
"""The day that the page counts."""


def costs_page() -> str:
    """The page, from templates of an instance with default properties."""
    templates = default_templates()
    resources = costs.resource_costs(templates)
    schedules = costs.schedule_costs(templates)
    polling = costs.polling_costs(templates)
    paid = [each for each in resources if each.dollars]
    total = sum(each.dollars for each in (*resources, *schedules, *polling))
    dashboard = costs.MONTHLY["AWS::CloudWatch::Dashboard"]
    day = costs.day_costs(templates, DAY, dollars_of_a_million())
    whole_gb = DAY.files * DAY.file_gb
    spent = sum(each.dollars for each in day)
    stored = whole_gb * costs.GIGABYTE_MONTH["S3"]
    kinds = ("ingest", "compaction")
    numbers = {each: costs.tasks_most(templates, each) for each in kinds}
    most = sum(numbers[each] * costs.task_hour(templates, each) for each in kinds)
    caps = " and ".join(f"{n} tasks of {each}" for each, n in numbers.items())
    query = 1000 * 4 * costs.LAMBDA_GB_SECOND["x86_64"]
    x86 = costs.FARGATE_VCPU_HOUR["x86_64"], costs.FARGATE_GB_HOUR["x86_64"]
    arm = costs.FARGATE_VCPU_HOUR["arm64"], costs.FARGATE_GB_HOUR["arm64"]
    return f"""# Costs

What an instance costs that [`sleeper deploy aws`](aws.md) made with default properties, by
Amazon's list prices for {costs.REGION} ({costs.LOOKED_UP}, on demand, without free tiers).
Counted from its templates.

## While nobody uses it

**${total:.2f} a month**, whatever it stores. Nothing is paid by the hour: there is no NAT, no
endpoint of a VPC, no provisioned capacity, and no task while there is no work. No queue is asked
for messages while it is empty: a schedule counts them, and who sends what somebody waits for calls
the function that takes it. What is paid are alarms, and schedules that look for work.

| | number | paid by | $ a month |
|---|---|---|---|
{lines([*polling, *schedules, *paid])}

Numbers of schedules are calls a month. A call that finds nothing is taken to last {costs.RUN_S} s
and to log {costs.LOG_BYTES} bytes; these two are assumptions. Tables that do not change add no
more than a look a day.

To pay less, leave stacks that you do not use out of `sleeper.optional.stacks`, each with its
queue, or make schedules rarer (`sleeper.ingest.task.creation.period.minutes` and its like).
`DashboardStack` is not in the default: it costs ${dashboard:.2f} a month more. Metrics of tables
are paid for the hours in which a table changes, and an hour a day besides: up to
${costs.CUSTOM_METRIC:.2f} a month for each of five metrics of a table that changes all the time.

What lies there: ${costs.GIGABYTE_MONTH["S3"] * 1000:.0f} a month for a terabyte in S3, and
${costs.GIGABYTE_MONTH["DynamoDB"] * 1000:.0f} in DynamoDB.

## A working day

{DAY.files} files of {DAY.file_gb:g} GB are ingested by jobs of the queue, each its own job, their
rows are compacted, and {DAY.keys:,} keys are looked up: **${spent:.2f} for the day**, beside what
idles, and ${stored:.2f} a month for as long as the {whole_gb:,.0f} GB lie in S3.

| | number | of | $ a day |
|---|---|---|---|
{lines(day)}

Assumed: a worker takes {costs.SECONDS_A_GB} s to read, sort or merge, and write a gigabyte, and is
paid for {costs.START_S} s before and {costs.IDLE_S} s after its jobs; a request reads or writes
8 MB. Compactions write {costs.REWRITTEN} times what was ingested, as
[measured](../performance.md). Rows of few bytes, or many leaves, take longer.

The most that workers can cost is ${most:.2f} an hour: {caps}.
`sleeper.ingest.max.concurrent.tasks` and its like change that. With
`sleeper.budget.usd.per.month` a budget tells you of costs, and with
`sleeper.alarms.running.tasks` an alarm of many tasks ([alarms](../operating/alarms.md)); neither
stops anything.

## In use

Dollars for a million of each operation, and the requests of one
([how they were counted](../aws.md#costs)):

{operations()}

Workers on Fargate are paid by the second: ${x86[0]:.4f} an hour for a vCPU and ${x86[1]:.4f} for a
gigabyte on x86_64, ${arm[0]:.4f} and ${arm[1]:.4f} on ARM64; with `sleeper.fargate.spot=true`
about a third of it. A worker ends a minute after its last job. A query from the queue takes a
function with 4 GB for as long as it reads: ${query:.3f} for a thousand that take a second each.

## All resources

| type | number | paid by |
|---|---|---|
{chr(10).join(f"| `{each.what}` | {each.count} | {each.paid_by} |" for each in resources)}
"""


def default_templates(region: str = costs.REGION) -> list[dict[str, Any]]:
    """The templates of an instance with default properties."""
    os.environ.setdefault("JSII_SILENCE_WARNING_UNTESTED_NODE_VERSION", "1")
    settings = DeploymentSettings.of(SETTINGS, account="123456789012", region=region)
    with TemporaryDirectory(prefix="sleeper-costs-") as folder:
        made = synthesise(settings, Path(folder))
        return [json.loads(each.template.read_text()) for each in made.stacks]


def lines(found: list[costs.CostLine]) -> str:
    """Rows of a table."""
    return "\n".join(
        f"| {each.what.removeprefix('AWS::')} | {each.count:,} | {each.paid_by} "
        f"| {each.dollars:.2f} |"
        for each in found
    )


def operations() -> str:
    """The table of operations on the page of an instance in AWS, which is their one source."""
    text = (ROOT / "docs" / "aws.md").read_text()
    found = re.search(r"^\| operation \|.*?(?=\n\n)", text, re.MULTILINE | re.DOTALL)
    assert found is not None, "docs/aws.md has no table of operations"
    return found[0]


def dollars_of_a_million() -> dict[str, float]:
    """What a million of each operation costs, with a log in DynamoDB, which is the default."""
    rows = [line.strip("| ").split(" | ") for line in operations().splitlines()]
    head = [each.strip("`") for each in rows[0]]
    column = head.index("DynamoDBTransactionLog")
    return {row[0]: float(row[column]) for row in rows[2:]}
