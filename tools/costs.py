"""What the resources of templates cost a month while nobody uses them, by Amazon's list prices."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from sleeper.errors import BadRequest
from sleeper.model.jobs.kinds import QUEUES, TASK_KINDS

# ---------------------------------------------------------------- prices
#
# Amazon's list prices, on demand and without free tiers.

REGION: Final = "us-east-1"
"""The region that the prices are for."""

LOOKED_UP: Final = "November 2026"
"""When they were looked up."""

DOLLARS: Final = {
    "S3 write": 5.00e-6,  # PUT, COPY, POST, LIST
    "S3 read": 0.40e-6,  # GET and all others; DELETE is free
    "DynamoDB write unit": 0.625e-6,
    "DynamoDB read unit": 0.125e-6,
    "SQS request": 0.40e-6,
    "SQS FIFO request": 0.50e-6,
    "Lambda call": 0.20e-6,
}
"""For one request."""

LAMBDA_GB_SECOND: Final = {"x86_64": 16.6667e-6, "arm64": 13.3334e-6}
"""For a gigabyte of a function's memory, for a second, by processor."""

MONTHLY: Final = {
    "AWS::Budgets::Budget": 0.60,  # two in an account are free
    "AWS::CloudWatch::Alarm": 0.10,
    "AWS::CloudWatch::Dashboard": 3.00,
}
"""For a resource that is there, a month."""

CUSTOM_METRIC: Final = 0.30
"""For a metric of one's own in CloudWatch, a month, by the hours in which it has data."""

GIGABYTE_MONTH: Final = {"S3": 0.023, "DynamoDB": 0.25, "CloudWatch Logs": 0.03}
"""For a gigabyte that is kept, a month."""

LOG_GIGABYTE: Final = 0.50
"""For a gigabyte that is written to logs."""

FARGATE_VCPU_HOUR: Final = {"x86_64": 0.04048, "arm64": 0.03238}
FARGATE_GB_HOUR: Final = {"x86_64": 0.004445, "arm64": 0.00356}
"""For an hour of a task, by processor: only while it runs."""

# ---------------------------------------------------------------- idle resources

MONTH_MINUTES: Final = 730 * 60
RUN_S: Final = 0.3
"""How long a function runs that finds nothing to do: assumed, for a few requests, warm."""
LOG_BYTES: Final = 600
"""What Lambda itself logs of a call: assumed."""
POLLS_A_MINUTE: Final = 15
"""Requests by which Lambda waits for messages of an empty queue: five, each for 20 seconds."""

_FREE: Final = {
    "AWS::DynamoDB::Table": "on demand: by the request, and by what it holds",
    "AWS::S3::Bucket": "by the request, and by what it holds",
    "AWS::SQS::Queue": "by the request",
    "AWS::SNS::Topic": "by the message",
    "AWS::Lambda::Function": "by the call",
    "Custom::SleeperProperties": "a call of its function, when a stack is made or changed",
    "AWS::Logs::LogGroup": "by what is written and kept",
    "AWS::Logs::MetricFilter": "its metric, while there are errors",
    "AWS::ECS::Cluster": "nothing; its tasks by the second, while they run",
    "AWS::ECS::TaskDefinition": "nothing",
    "AWS::EMRServerless::Application": "by the second, while a job runs; nothing is kept warm",
    "AWS::EC2::SecurityGroup": "nothing",
    "AWS::Events::Rule": "the calls of its function; nothing where it waits for events of AWS",
    "AWS::IAM::ManagedPolicy": "nothing",
    "AWS::IAM::Policy": "nothing",
    "AWS::IAM::Role": "nothing",
    "AWS::IAM::InstanceProfile": "nothing",
    "AWS::Lambda::EventSourceMapping": "its requests to SQS",
    "AWS::Lambda::Permission": "nothing",
    "AWS::S3::BucketPolicy": "nothing",
    "AWS::SNS::Subscription": "nothing",
    "AWS::SNS::TopicPolicy": "nothing",
    "AWS::SQS::QueuePolicy": "nothing",
    "AWS::StepFunctions::StateMachine": "by the step",
}
"""Types of resources that cost nothing by being there, and what they are paid by."""

_CHANGES: Final = {"DynamoDB read unit": 1.0, "S3 read": 1.0}
REQUESTS: Final[Mapping[str, Mapping[str, float]]] = {
    "create_batches": {"DynamoDB read unit": 1.0, "SQS request": 1.0},
    "watch_queues": {"SQS request": 1.0},  # for each queue that its environment names
    "trigger_tables": {**_CHANGES, "SQS request": 1.0},
    **{
        f"start_workers {each.name}": {"SQS request": 1.0} if each.queues else _CHANGES
        for each in TASK_KINDS
    },
    **{
        f"start_workers {name}": {"SQS FIFO request" if each.fifo else "SQS request": 1.0}
        for name, each in QUEUES.items()
        if name not in {kind.name for kind in TASK_KINDS}
    },
}
"""Requests of a call that finds nothing to do, by handler; `interfaces/lambdas/handlers.py`."""


@dataclass(frozen=True, slots=True)
class CostLine:
    """What some resources cost.

    Attributes:
        what: The resources.
        count: How many.
        paid_by: What they are paid by.
        dollars: What they cost a month while nobody uses them.
    """

    what: str
    count: int
    paid_by: str
    dollars: float


def resource_costs(templates: Iterable[Mapping[str, Any]]) -> list[CostLine]:
    """Return a line for each type of resource.

    Raises:
        BadRequest: the price of a type is not known.
    """
    counts = Counter(each["Type"] for each in _resources(templates))
    unknown = counts.keys() - _FREE.keys() - MONTHLY.keys()
    if unknown:
        raise BadRequest(f"the price is not known of {', '.join(sorted(unknown))}")
    return [
        CostLine(kind, n, _FREE.get(kind, "by the month"), n * MONTHLY.get(kind, 0.0))
        for kind, n in sorted(counts.items())
    ]


def schedule_costs(templates: Iterable[Mapping[str, Any]]) -> list[CostLine]:
    """Return a line for each schedule: the calls of its function that find nothing to do."""
    resources = list(_resources(templates))
    functions = {
        str(each["Properties"]["FunctionName"]): each["Properties"]
        for each in resources
        if each["Type"] == "AWS::Lambda::Function"
    }
    return [
        _schedule_cost(each["Properties"], functions)
        for each in resources
        if each["Type"] == "AWS::Events::Rule" and "ScheduleExpression" in each["Properties"]
    ]


def polling_costs(templates: Iterable[Mapping[str, Any]]) -> list[CostLine]:
    """Return a line for each kind of queue: the requests of Lambda while it is empty."""
    sources = [
        str(each["Properties"]["EventSourceArn"])
        for each in _resources(templates)
        if each["Type"] == "AWS::Lambda::EventSourceMapping"
        and each["Properties"].get("Enabled", True)  # others are enabled while there is work
    ]
    fifo = sum(1 for each in sources if ".fifo" in each)
    requests = POLLS_A_MINUTE * MONTH_MINUTES
    return [
        CostLine(
            f"queues that Lambda waits for, {kind}",
            n,
            f"{requests:,} requests a month each",
            n * requests * DOLLARS[price],
        )
        for kind, n, price in (
            ("standard", len(sources) - fifo, "SQS request"),
            ("FIFO", fifo, "SQS FIFO request"),
        )
        if n
    ]


def _schedule_cost(rule: Mapping[str, Any], functions: Mapping[str, Mapping[str, Any]]) -> CostLine:
    (target,) = rule["Targets"]
    name = str(target["Arn"]).rpartition(":")[2]
    function = functions[name]
    handler = str(function["ImageConfig"]["Command"][0]).rpartition(".")[2]
    event = json.loads(str(target.get("Input") or "{}"))
    looked = [*event.get("kinds", ()), *event.get("functions", ())]
    done = [f"{handler} {each}" for each in looked] or [handler]
    minutes = _minutes(str(rule["ScheduleExpression"]))
    calls = MONTH_MINUTES // minutes
    architecture = str((function.get("Architectures") or ["x86_64"])[0])
    memory_gb = int(function["MemorySize"]) / 1024
    call = (
        DOLLARS["Lambda call"]
        + RUN_S * memory_gb * LAMBDA_GB_SECOND[architecture]
        + LOG_BYTES / 1e9 * LOG_GIGABYTE
        + _queues(function)
        * sum(n * DOLLARS[price] for each in done for price, n in REQUESTS[each].items())
    )
    what = f"{handler} {', '.join(looked)}".strip()
    every = "each minute" if minutes == 1 else f"every {minutes} minutes"
    return CostLine(f"`{what}`, {every}", calls, f"{memory_gb:g} GB", calls * call)


def _queues(function: Mapping[str, Any]) -> int:
    """Return how many queues a function looks at, by its environment; 1 for any other."""
    variables = function.get("Environment", {}).get("Variables", {})
    listed = [variables.get(f"SLEEPER_{each}", "") for each in ("QUEUES", "DEAD_LETTERS")]
    return sum(len(each.split(",")) for each in listed if each) or 1


def _minutes(expression: str) -> int:
    found = re.fullmatch(r"rate\((\d+) (minute|hour|day)s?\)", expression)
    if found is None:
        raise BadRequest(f"the cost of the schedule {expression!r} is not known")
    return int(found[1]) * {"minute": 1, "hour": 60, "day": 1440}[found[2]]


def _resources(templates: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    return (each for template in templates for each in template["Resources"].values())


# ---------------------------------------------------------------- a working day

SECONDS_A_GB: Final = 60
"""How long a worker takes to read, sort or merge, and write a gigabyte: assumed."""
START_S: Final = 30
"""For how long a task is paid before it works: assumed, for pulling its image."""
IDLE_S: Final = 60
"""How long a worker waits for another job before it ends."""
REWRITTEN: Final = 2.4
"""Gigabytes that compactions write for each that was ingested: docs/performance.md, a day."""
_REQUEST_GB: Final = 8 / 1024
"""What is read or written by one request to S3."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Day:
    """What is done in a day.

    Attributes:
        files: Files that are ingested, each a job.
        file_gb: How large each is.
        keys: Keys that are looked up.
    """

    files: int
    file_gb: float
    keys: int


def task_hour(templates: Iterable[Mapping[str, Any]], kind: str) -> float:
    """Return what a task of a kind costs for an hour.

    Raises:
        BadRequest: there is no such task.
    """
    for each in _resources(templates):
        properties = each.get("Properties", {})
        if each["Type"] == "AWS::ECS::TaskDefinition" and properties["Family"].endswith(f"-{kind}"):
            processor = str(properties["RuntimePlatform"]["CpuArchitecture"]).lower()
            return (
                int(properties["Cpu"]) / 1024 * FARGATE_VCPU_HOUR[processor]
                + int(properties["Memory"]) / 1024 * FARGATE_GB_HOUR[processor]
            )
    raise BadRequest(f"there is no task of {kind}")


def tasks_most(templates: Iterable[Mapping[str, Any]], kind: str) -> int:
    """Return how many tasks of a kind there are at once, at most.

    Raises:
        BadRequest: no function starts some.
    """
    name = f"SLEEPER_WORKERS_MAX_{kind.upper()}"
    for each in _resources(templates):
        variables = each.get("Properties", {}).get("Environment", {}).get("Variables", {})
        if each["Type"] == "AWS::Lambda::Function" and name in variables:
            return int(variables[name])
    raise BadRequest(f"no function starts tasks of {kind}")


def day_costs(
    templates: Iterable[Mapping[str, Any]], day: Day, million: Mapping[str, float]
) -> list[CostLine]:
    """Return a line for each part of a day's work.

    Args:
        templates: The templates, which say how large tasks are and how many run at once.
        day: What is done.
        million: Dollars for a million of each operation on tables, by its name in docs/aws.md.
    """
    found = list(templates)
    whole_gb = day.files * day.file_gb
    written_gb = whole_gb * (1 + REWRITTEN)
    requests = round(written_gb / _REQUEST_GB)
    job = million["the same as a job: send it"] + million["the same as a job: run it"]
    work = (("ingest", whole_gb), ("compaction", whole_gb * REWRITTEN))
    return [
        *(_work_cost(found, kind, day.files, gb) for kind, gb in work),
        CostLine(
            "requests that write data files",
            requests,
            "request to S3",
            requests * DOLLARS["S3 write"],
        ),
        CostLine(
            "requests that read data files",
            requests,
            "request to S3",
            requests * DOLLARS["S3 read"],
        ),
        CostLine("jobs sent, run and committed", day.files, "requests", day.files * job / 1e6),
        CostLine(
            "keys looked up",
            day.keys,
            "requests",
            day.keys * million["key that is there"] / 1e6,
        ),
    ]


def _work_cost(
    templates: list[Mapping[str, Any]], kind: str, jobs: int, gigabytes: float
) -> CostLine:
    tasks = min(jobs, tasks_most(templates, kind))
    seconds = gigabytes * SECONDS_A_GB + tasks * (START_S + IDLE_S)
    hour = task_hour(templates, kind)
    minutes = round(seconds / 60)
    return CostLine(
        f"{kind} on {tasks} tasks, {gigabytes:.0f} GB",
        minutes,
        f"minute of a task, ${hour:.3f} an hour",
        seconds / 3600 * hour,
    )
