"""Whatever fails in a deployment is heard of, and each alarm has its line in the runbook."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from sleeper.deploy.names import TABLE_OPERATIONS
from sleeper.model.jobs.kinds import QueueName
from tests.deploy.flow.emulator import account, cloud, s3_credentials
from tests.deploy.stacks.conftest import ACCOUNT, REGION
from tests.deploy.stacks.test_templates import ALL, DEPLOYMENTS

__all__ = ["account", "cloud", "s3_credentials"]

RUNBOOK = Path(__file__).parents[3] / "docs" / "operating" / "alarms.md"
OWN_TOPIC = f"arn:aws:sns:{REGION}:{ACCOUNT}:on-call"
CLUSTER = f"arn:aws:ecs:{REGION}:{ACCOUNT}:cluster/sleeper-demo-workers"
MACHINE = f"arn:aws:states:{REGION}:{ACCOUNT}:stateMachine:sleeper-demo-bulk-import-eks"


LIMITED = {
    **ALL,
    "sleeper.alarms.running.tasks": "15",
    "sleeper.budget.usd.per.month": "50",
}


@pytest.fixture
def everything(synthesised):
    """All stacks, with properties that nobody set."""
    return synthesised(ALL)


def alarms(deployed):
    """The alarms by name, without the instance's prefix."""
    prefix = deployed.settings.names.prefix
    return {
        each.name.removeprefix(prefix): each.properties
        for each in deployed.resources("AWS::CloudWatch::Alarm")
    }


def failure_rules(deployed):
    """The rules that wait for events, by name, without the instance's prefix."""
    prefix = deployed.settings.names.prefix
    return {
        each.name.removeprefix(prefix): each.properties
        for each in deployed.resources("AWS::Events::Rule")
        if "EventPattern" in each.properties
    }


def test_there_is_one_alarm_of_a_kind_and_a_rule_for_each_platform(everything, default):
    """Alarms are paid by the metric they look at; rules on events of AWS are free."""
    assert alarms(everything).keys() == {
        "function-errors",
        "function-throttles",
        "dead-letters",
        "messages-wait",
    }
    assert alarms(default).keys() == alarms(everything).keys()
    assert failure_rules(everything).keys() == {
        "tasks-failed",
        "bulk-import-emr-failed",
        "bulk-import-eks-failed",
        "bulk-import-emr-serverless-failed",
    }
    assert failure_rules(default).keys() == {"tasks-failed", "bulk-import-emr-serverless-failed"}


def test_each_alarm_and_each_rule_is_sent_to_the_topic(everything):
    """A rule in another stack names the topic by its ARN."""
    (topic,) = everything.resources("AWS::SNS::Topic")
    arn = f"arn:aws:sns:{REGION}:{ACCOUNT}:{topic.properties['TopicName']}"

    for alarm in alarms(everything).values():
        assert alarm["AlarmActions"] == [{"Ref": topic.id}]
        assert alarm["TreatMissingData"] == "notBreaching"
        assert len(alarm.get("Metrics", [1])) == 1
    for name, rule in failure_rules(everything).items():
        (target,) = rule["Targets"]
        assert (target["Arn"], rule["State"]) == (arn, "ENABLED")
        template = json.loads(target["InputTransformer"]["InputTemplate"])
        assert template.startswith(f"sleeper-demo-{name}: ")
        told = set(re.findall("<([a-z]+)>", template))
        assert told == set(target["InputTransformer"]["InputPathsMap"])


def test_the_topic_takes_messages_of_alarms_and_of_the_instances_rules_alone(everything):
    """Given the topic's policy, then other accounts and rules cannot publish."""
    (policy,) = everything.resources("AWS::SNS::TopicPolicy")
    allowed = {
        each["Principal"]["Service"]: each["Condition"]
        for each in policy.properties["PolicyDocument"]["Statement"]
        if each["Effect"] == "Allow"
    }

    assert allowed == {
        "cloudwatch.amazonaws.com": {"StringEquals": {"aws:SourceAccount": ACCOUNT}},
        "events.amazonaws.com": {
            "ArnLike": {"aws:SourceArn": f"arn:aws:events:{REGION}:{ACCOUNT}:rule/sleeper-demo-*"}
        },
    }


def test_errors_of_every_function_are_counted_in_one_metric(everything):
    """Given all functions, then each has a filter of its log, and the alarm looks at the sum."""
    filters = {
        (each.stack, each.properties["LogGroupName"]["Ref"]): each.properties
        for each in everything.resources("AWS::Logs::MetricFilter")
    }
    alarm = alarms(everything)["function-errors"]
    functions = everything.resources("AWS::Lambda::Function")

    assert len(functions) == len(filters) > 12
    for function in functions:
        group = function.properties["LoggingConfig"]["LogGroup"]["Ref"]
        found = filters[function.stack, group]
        (counted,) = found["MetricTransformations"]
        assert counted["MetricNamespace"] == alarm["Namespace"] == "Sleeper/demo"
        assert counted["MetricName"] == alarm["MetricName"]
        assert "DefaultValue" not in counted, "it would be paid while nothing fails"
        assert set(re.findall(r'\?"([^"]+)"', found["FilterPattern"])) == {
            "[ERROR]",
            "Task timed out",
            "Runtime exited",
            "Runtime.InvalidEntrypoint",
        }


def test_throttles_are_those_of_the_whole_account(everything):
    """A metric without a dimension: the concurrency that is used up is the account's."""
    alarm = alarms(everything)["function-throttles"]

    assert (alarm["Namespace"], alarm["MetricName"]) == ("AWS/Lambda", "Throttles")
    assert "Dimensions" not in alarm


def test_every_queue_is_looked_at_for_dead_letters_and_for_long_waits(everything):
    """Given all queues, also those that nothing of the deployment takes, then one function looks."""
    names = everything.settings.names
    watcher = everything.resource("AWS::Lambda::Function", "queue-watch").properties
    variables = watcher["Environment"]["Variables"]
    listed = [
        *variables["SLEEPER_QUEUES"].split(","),
        *variables["SLEEPER_DEAD_LETTERS"].split(","),
    ]

    assert sorted(listed) == sorted(each.name for each in everything.resources("AWS::SQS::Queue"))
    assert names.dead_letters(QueueName.INGEST) in variables["SLEEPER_DEAD_LETTERS"].split(",")
    for operation in TABLE_OPERATIONS.values():
        assert names.operation_queues(operation).queue in variables["SLEEPER_QUEUES"].split(",")
    url = names.queue_url(names.queue(QueueName.INGEST))
    assert f"{variables['SLEEPER_QUEUES_URL']}/{names.queue(QueueName.INGEST)}" == url
    assert variables["SLEEPER_ALARMS_NAMESPACE"] == "Sleeper/demo"
    for alarm, metric, least in (
        ("dead-letters", "DeadLetters", 1),
        ("messages-wait", "OldestMessageSeconds", 3600),
    ):
        found = alarms(everything)[alarm]
        assert (found["MetricName"], found["Threshold"]) == (metric, least)
        assert found["Namespace"] == "Sleeper/demo"


@pytest.mark.parametrize("minutes", ["1", "10", "60", "360"])
def test_an_alarm_of_queues_covers_two_looks(synthesised, minutes):
    """Given any period of looks, then an alarm that holds does not end between two of them."""
    deployed = synthesised(
        {"sleeper.optional.stacks": "QueryStack", "sleeper.alarms.look.period.minutes": minutes}
    )
    rule = deployed.resource("AWS::Events::Rule", "queue-watch-rule").properties

    assert rule["ScheduleExpression"].split()[0] == f"rate({minutes}"
    for name in ("dead-letters", "messages-wait"):
        period_s = alarms(deployed)[name]["Period"]
        assert period_s > 2 * 60 * int(minutes)
        assert period_s % 60 == 0
        assert period_s <= 86_400


def task_event(**detail):
    return {
        "source": "aws.ecs",
        "detail-type": "ECS Task State Change",
        "detail": {"clusterArn": CLUSTER, "lastStatus": "STOPPED", **detail},
    }


def of(source, kind, **detail):
    return {"source": f"aws.{source}", "detail-type": kind, "detail": detail}


EMR_STEP = "EMR Step Status Change"
EXECUTION = "Step Functions Execution Status Change"
EVENTS = {
    "a task that exits with 1": (
        "tasks-failed",
        task_event(stopCode="EssentialContainerExited", containers=[{"exitCode": 1}]),
        True,
    ),
    "a task that is killed for its memory": (
        "tasks-failed",
        task_event(stopCode="EssentialContainerExited", containers=[{"exitCode": 137}]),
        True,
    ),
    "a task whose image cannot be pulled": (
        "tasks-failed",
        task_event(stopCode="TaskFailedToStart", containers=[{"name": "worker"}]),
        True,
    ),
    "a task without anything left to do": (
        "tasks-failed",
        task_event(stopCode="EssentialContainerExited", containers=[{"exitCode": 0}]),
        False,
    ),
    "a task that spot capacity was taken from": (
        "tasks-failed",
        task_event(stopCode="SpotInterruption", containers=[{"exitCode": 143}]),
        False,
    ),
    "a task that a person stopped": (
        "tasks-failed",
        task_event(stopCode="UserInitiated", containers=[{"exitCode": 143}]),
        False,
    ),
    "a task of another cluster": (
        "tasks-failed",
        task_event(
            clusterArn=f"{CLUSTER}-of-others",
            stopCode="EssentialContainerExited",
            containers=[{"exitCode": 1}],
        ),
        False,
    ),
    "a job on EMR that failed": (
        "bulk-import-emr-failed",
        of("emr", EMR_STEP, state="FAILED", name="sleeper-demo-flights-j1"),
        True,
    ),
    "a cluster of EMR that failed": (
        "bulk-import-emr-failed",
        of(
            "emr",
            "EMR Cluster State Change",
            state="TERMINATED_WITH_ERRORS",
            name="sleeper-demo-bulk-import-persistent-emr",
        ),
        True,
    ),
    "a job on EMR that is done": (
        "bulk-import-emr-failed",
        of("emr", EMR_STEP, state="COMPLETED", name="sleeper-demo-flights-j1"),
        False,
    ),
    "a job on EMR of another instance": (
        "bulk-import-emr-failed",
        of("emr", EMR_STEP, state="FAILED", name="sleeper-demo2-flights-j1"),
        False,
    ),
    "a driver on EKS that could not start": (
        "bulk-import-eks-failed",
        of("states", EXECUTION, stateMachineArn=MACHINE, status="FAILED"),
        True,
    ),
    "a driver on EKS that took too long": (
        "bulk-import-eks-failed",
        of("states", EXECUTION, stateMachineArn=MACHINE, status="TIMED_OUT"),
        True,
    ),
    "a driver on EKS that is done": (
        "bulk-import-eks-failed",
        of("states", EXECUTION, stateMachineArn=MACHINE, status="SUCCEEDED"),
        False,
    ),
    "a job on EMR Serverless that failed": (
        "bulk-import-emr-serverless-failed",
        of(
            "emr-serverless",
            "EMR Serverless Job Run State Change",
            applicationId="00abc",
            state="FAILED",
        ),
        True,
    ),
    "a job on EMR Serverless that is done": (
        "bulk-import-emr-serverless-failed",
        of(
            "emr-serverless",
            "EMR Serverless Job Run State Change",
            applicationId="00abc",
            state="SUCCESS",
        ),
        False,
    ),
}


@pytest.mark.parametrize("what", EVENTS)
def test_events_of_failures_match_and_others_do_not(everything, cloud, what):
    """Given an event of AWS, then a server of EventBridge says whether the rule sends it."""
    name, event, is_sent = EVENTS[what]
    pattern = failure_rules(everything)[name]["EventPattern"]
    if "serverless" in name:
        (application,) = everything.resources("AWS::EMRServerless::Application")
        assert pattern["detail"]["applicationId"] == [{"Ref": application.id}]
        pattern = {**pattern, "detail": {**pattern["detail"], "applicationId": ["00abc"]}}
    envelope = {
        "id": "1",
        "account": ACCOUNT,
        "time": "2026-11-27T00:00:00Z",
        "region": REGION,
        "resources": [],
    }

    answer = cloud.client("events").test_event_pattern(
        EventPattern=json.dumps(pattern), Event=json.dumps({**envelope, **event})
    )

    assert answer["Result"] is is_sent


def test_a_topic_of_the_users_is_used_in_place_of_one_that_is_made(synthesised):
    """Given `sleeper.alarms.topic.arn`, then no topic is made, and all is sent to that one."""
    deployed = synthesised({**ALL, "sleeper.alarms.topic.arn": OWN_TOPIC})

    assert deployed.resources("AWS::SNS::Topic") == []
    assert deployed.resources("AWS::SNS::TopicPolicy") == []
    assert deployed.resources("AWS::SNS::Subscription") == []
    assert {tuple(each["AlarmActions"]) for each in alarms(deployed).values()} == {(OWN_TOPIC,)}
    targets = [each["Targets"][0]["Arn"] for each in failure_rules(deployed).values()]
    assert set(targets) == {OWN_TOPIC}


def test_alarms_are_sent_by_email_where_there_is_an_address(everything, synthesised):
    """`sleeper.errors.email`; without it the console shows alarms, and a deployment warns."""
    told = synthesised(DEPLOYMENTS["all, with the longest names"])

    assert everything.resources("AWS::SNS::Subscription") == []
    (found,) = told.resources("AWS::SNS::Subscription")
    assert found.properties["Endpoint"] == "somebody@example.com"
    assert found.properties["Protocol"] == "email"


def test_an_alarm_of_many_tasks_is_there_where_a_property_says_how_many(everything, synthesised):
    """Given a number, then more tasks than that raise an alarm, and a function counts them."""
    limited = synthesised(LIMITED)
    alarm = alarms(limited)["tasks-running"]
    watcher = limited.resource("AWS::Lambda::Function", "queue-watch").properties
    role = limited.resource("AWS::IAM::Role", "queue-watch").properties

    assert (alarm["MetricName"], alarm["Threshold"]) == ("RunningTasks", 16)
    assert alarm["Namespace"] == "Sleeper/demo"
    assert watcher["Environment"]["Variables"]["SLEEPER_CLUSTER"] == "sleeper-demo-workers"
    assert '"ecs:ListTasks"' in json.dumps(role["Policies"])
    unlimited = everything.resource("AWS::Lambda::Function", "queue-watch").properties
    assert "SLEEPER_CLUSTER" not in unlimited["Environment"]["Variables"]
    assert "tasks-running" not in alarms(everything)


def test_a_budget_counts_what_has_the_instances_tag(everything, synthesised):
    """Given dollars a month, then the topic hears at 80 and 100 percent, and of the forecast."""
    limited = synthesised(LIMITED)
    (found,) = limited.resources("AWS::Budgets::Budget")
    budget = found.properties["Budget"]
    (topic,) = limited.resources("AWS::SNS::Topic")
    (policy,) = limited.resources("AWS::SNS::TopicPolicy")
    told = set()
    for each in found.properties["NotificationsWithSubscribers"]:
        (subscriber,) = each["Subscribers"]
        assert subscriber == {"SubscriptionType": "SNS", "Address": {"Ref": topic.id}}
        told.add((each["Notification"]["NotificationType"], each["Notification"]["Threshold"]))

    assert everything.resources("AWS::Budgets::Budget") == []
    assert budget["BudgetLimit"] == {"Amount": 50, "Unit": "USD"}
    assert budget["CostFilters"] == {"TagKeyValue": ["user:sleeper.instance.url$aws://demo"]}
    assert told == {("ACTUAL", 80), ("ACTUAL", 100), ("FORECASTED", 100)}
    assert "budgets.amazonaws.com" in json.dumps(policy.properties)
    (unlimited,) = everything.resources("AWS::SNS::TopicPolicy")
    assert "budgets.amazonaws.com" not in json.dumps(unlimited.properties)


def test_every_alarm_and_every_rule_of_failures_has_its_line_in_the_runbook(synthesised):
    """Given the page, then each has a row, and no row is of one that is gone."""
    limited = synthesised(LIMITED)
    rows = re.findall(r"^\| `([a-z-]+)` \|", RUNBOOK.read_text(), re.MULTILINE)

    assert sorted(rows) == sorted({*alarms(limited), *failure_rules(limited), "budget"})
