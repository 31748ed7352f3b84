"""What resources cost while nobody uses them, counted from templates."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from sleeper.errors import BadRequest
from sleeper.interfaces.lambdas import handlers
from tools.costs import (
    DOLLARS,
    FARGATE_GB_HOUR,
    FARGATE_VCPU_HOUR,
    MONTH_MINUTES,
    MONTHLY,
    REQUESTS,
    Day,
    day_costs,
    polling_costs,
    resource_costs,
    schedule_costs,
    task_hour,
    tasks_most,
)


def template(*resources):
    named = {
        f"R{n}": {"Type": kind, "Properties": properties}
        for n, (kind, properties) in enumerate(resources)
    }
    return [{"Resources": named}]


def test_what_is_paid_by_the_month_costs_and_all_else_is_free():
    """Given alarms and a table, then alarms cost, and the table does not."""
    found = resource_costs(
        template(
            ("AWS::CloudWatch::Alarm", {}),
            ("AWS::CloudWatch::Alarm", {}),
            ("AWS::DynamoDB::Table", {}),
        )
    )

    assert [(each.what, each.count, each.dollars) for each in found] == [
        ("AWS::CloudWatch::Alarm", 2, 2 * MONTHLY["AWS::CloudWatch::Alarm"]),
        ("AWS::DynamoDB::Table", 1, 0.0),
    ]


@pytest.mark.parametrize("kind", ["AWS::EC2::NatGateway", "AWS::EC2::VPCEndpoint"])
def test_a_resource_whose_price_is_not_known_is_refused(kind):
    """Given something that is paid by the hour, then the page cannot be written."""
    with pytest.raises(BadRequest, match=kind):
        resource_costs(template((kind, {})))


def test_a_schedule_costs_its_calls():
    """Given a function that is called every five minutes, then its calls are priced."""
    (found,) = schedule_costs(
        template(
            (
                "AWS::Lambda::Function",
                {
                    "FunctionName": "f",
                    "MemorySize": 1024,
                    "ImageConfig": {
                        "Command": ["sleeper.interfaces.lambdas.handlers.trigger_tables"]
                    },
                },
            ),
            (
                "AWS::Events::Rule",
                {"ScheduleExpression": "rate(5 minutes)", "Targets": [{"Arn": "a:function:f"}]},
            ),
        )
    )

    assert found.count == MONTH_MINUTES // 5
    assert found.what == "`trigger_tables`, every 5 minutes"
    assert found.dollars == pytest.approx(8_760 * (0.2e-6 + 0.3 * 16.6667e-6 + 0.3e-6 + 0.925e-6))
    with pytest.raises(BadRequest, match="cron"):
        schedule_costs(
            template(
                (
                    "AWS::Lambda::Function",
                    {
                        "FunctionName": "f",
                        "MemorySize": 1024,
                        "ImageConfig": {"Command": ["x.trigger_tables"]},
                    },
                ),
                (
                    "AWS::Events::Rule",
                    {"ScheduleExpression": "cron(0 * * * ? *)", "Targets": [{"Arn": "a:f"}]},
                ),
            )
        )


def test_a_look_at_queues_costs_a_request_for_each():
    """Given a function that looks at three queues, then its calls have three requests to SQS."""
    environment = {"SLEEPER_QUEUES": "a,b", "SLEEPER_DEAD_LETTERS": "c"}
    (found,) = schedule_costs(
        template(
            (
                "AWS::Lambda::Function",
                {
                    "FunctionName": "f",
                    "MemorySize": 512,
                    "ImageConfig": {"Command": ["x.watch_queues"]},
                    "Environment": {"Variables": environment},
                },
            ),
            (
                "AWS::Events::Rule",
                {"ScheduleExpression": "rate(10 minutes)", "Targets": [{"Arn": "a:function:f"}]},
            ),
            ("AWS::Events::Rule", {"EventPattern": {"source": ["aws.ecs"]}, "Targets": []}),
        )
    )

    each = 0.2e-6 + 0.3 * 16.6667e-6 / 2 + 0.3e-6 + 3 * DOLLARS["SQS request"]
    assert found.dollars == pytest.approx(4_380 * each)


def test_a_look_at_queues_of_functions_costs_a_request_for_each():
    """Given workers and functions that are looked at by one call, then each has its requests."""
    event = {"kinds": ["ingest"], "functions": {"query": "f", "commit": "g"}}
    (found,) = schedule_costs(
        template(
            (
                "AWS::Lambda::Function",
                {
                    "FunctionName": "f",
                    "MemorySize": 512,
                    "ImageConfig": {"Command": ["x.start_workers"]},
                },
            ),
            (
                "AWS::Events::Rule",
                {
                    "ScheduleExpression": "rate(1 minute)",
                    "Targets": [{"Arn": "a:function:f", "Input": json.dumps(event)}],
                },
            ),
        )
    )

    asked = 2 * DOLLARS["SQS request"] + DOLLARS["SQS FIFO request"]
    assert found.what == "`start_workers ingest, query, commit`, each minute"
    assert found.dollars == pytest.approx(43_800 * (0.2e-6 + 0.3 * 16.6667e-6 / 2 + 0.3e-6 + asked))


def test_an_idle_instance_costs_less_than_a_dollar():
    """Given the default stacks, and this page's prices, then a month without work is below $1."""
    page = Path("docs/deploy/costs.md").read_text()

    (total,) = re.findall(r"^\*\*\$([0-9.]+) a month\*\*", page, re.MULTILINE)

    assert float(total) < 1.00


def test_empty_queues_are_asked():
    """Given queues, then requests of Lambda are priced, but not to one that is followed by a call."""
    standard, fifo = polling_costs(
        template(
            ("AWS::Lambda::EventSourceMapping", {"EventSourceArn": "q"}),
            ("AWS::Lambda::EventSourceMapping", {"EventSourceArn": "q.fifo"}),
            ("AWS::Lambda::EventSourceMapping", {"EventSourceArn": "r.fifo", "Enabled": False}),
        )
    )

    assert standard.dollars == pytest.approx(657_000 * DOLLARS["SQS request"])
    assert fifo.dollars == pytest.approx(657_000 * DOLLARS["SQS FIFO request"])


@pytest.mark.parametrize("done", REQUESTS)
def test_what_is_priced_is_a_handler(done):
    """Given the requests of a call, then there is the function that makes them."""
    assert callable(getattr(handlers, done.partition(" ")[0]))


MILLION = {
    "key that is there": 1.0,
    "the same as a job: send it": 4.0,
    "the same as a job: run it": 26.0,
}


def workers(most):
    """Templates of two kinds of workers, of which so many run at once."""
    return template(
        *(
            (
                "AWS::ECS::TaskDefinition",
                {
                    "Family": f"sleeper-demo-{kind}",
                    "Cpu": "2048",
                    "Memory": "4096",
                    "RuntimePlatform": {"CpuArchitecture": processor},
                },
            )
            for kind, processor in (("ingest", "X86_64"), ("compaction", "ARM64"))
        ),
        (
            "AWS::Lambda::Function",
            {
                "Environment": {
                    "Variables": {
                        "SLEEPER_WORKERS_MAX_INGEST": str(most),
                        "SLEEPER_WORKERS_MAX_COMPACTION": str(most),
                    }
                }
            },
        ),
    )


def test_a_day_costs_what_its_tasks_and_requests_cost():
    """Given 100 files of a gigabyte, then work is paid by the second, and each request once."""
    ingest, compaction, writes, reads, jobs, keys = day_costs(
        workers(10), Day(files=100, file_gb=1, keys=10_000), MILLION
    )

    x86 = 2 * FARGATE_VCPU_HOUR["x86_64"] + 4 * FARGATE_GB_HOUR["x86_64"]
    arm = 2 * FARGATE_VCPU_HOUR["arm64"] + 4 * FARGATE_GB_HOUR["arm64"]
    assert ingest.dollars == pytest.approx((100 * 60 + 10 * 90) / 3600 * x86)
    assert compaction.dollars == pytest.approx((240 * 60 + 10 * 90) / 3600 * arm)
    assert writes.count == reads.count == 340 * 128
    assert writes.dollars == pytest.approx(340 * 128 * 5e-6)
    assert jobs.dollars == pytest.approx(100 * 30e-6)
    assert keys.dollars == pytest.approx(0.01)


def test_fewer_tasks_at_once_cost_less_for_starting_and_as_much_for_working():
    """Given one task at a time, then only what it costs to start and end tasks is less."""
    day = Day(files=100, file_gb=1, keys=0)

    (many, *_), (one, *_) = (day_costs(workers(most), day, MILLION) for most in (10, 1))

    assert many.dollars - one.dollars == pytest.approx(
        9 * 90 / 3600 * task_hour(workers(1), "ingest")
    )
    assert tasks_most(workers(7), "compaction") == 7


def test_tasks_that_are_not_there_cannot_be_priced():
    """Given no workers, then the page cannot be written."""
    with pytest.raises(BadRequest, match="there is no task of export"):
        task_hour(workers(1), "export")
    with pytest.raises(BadRequest, match="no function starts tasks of export"):
        tasks_most(workers(1), "export")
