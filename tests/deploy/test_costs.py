"""What resources cost while nobody uses them, counted from templates."""

from __future__ import annotations

import pytest

from sleeper.errors import BadRequest
from sleeper.interfaces.lambdas import handlers
from tools.costs import (
    DOLLARS,
    MONTH_MINUTES,
    MONTHLY,
    REQUESTS,
    polling_costs,
    resource_costs,
    schedule_costs,
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
    assert found.dollars == pytest.approx(8_760 * (0.2e-6 + 0.3 * 16.6667e-6 + 0.3e-6 + 0.525e-6))
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


def test_empty_queues_are_asked():
    """Given queues that Lambda waits for, then its requests are priced, those of FIFO higher."""
    standard, fifo = polling_costs(
        template(
            ("AWS::Lambda::EventSourceMapping", {"EventSourceArn": "q"}),
            ("AWS::Lambda::EventSourceMapping", {"EventSourceArn": "q.fifo"}),
        )
    )

    assert standard.dollars == pytest.approx(657_000 * DOLLARS["SQS request"])
    assert fifo.dollars == pytest.approx(657_000 * DOLLARS["SQS FIFO request"])


@pytest.mark.parametrize("done", REQUESTS)
def test_what_is_priced_is_a_handler(done):
    """Given the requests of a call, then there is the function that makes them."""
    assert callable(getattr(handlers, done.partition(" ")[0]))
