"""Functions, schedules and workers of stacks are called and made as the properties say."""

from __future__ import annotations

import json

import pytest

from sleeper.deploy.names import TABLE_OPERATIONS
from sleeper.model.stacks import StackName
from tests.deploy.stacks.test_templates import ALL


@pytest.fixture
def everything(synthesised):
    """All stacks, with properties that nobody set."""
    return synthesised(ALL)


def schedule_of(deployed, name):
    rule = deployed.resource("AWS::Events::Rule", name).properties
    (target,) = rule["Targets"]
    event = json.loads(target["Input"])
    event.pop("functions", None)  # a test of its own has them
    function = target["Arn"].rpartition(":")[2].removeprefix(deployed.settings.names.prefix)
    return rule["ScheduleExpression"], function, event


def test_every_schedule_calls_its_function_as_often_as_its_property_says(everything, synthesised):
    """Periods are upstream's; each function may be called by its rule."""
    assert {
        each.name.removeprefix("sleeper-demo-"): schedule_of(everything, each.name)
        for each in everything.resources("AWS::Events::Rule")
        if "ScheduleExpression" in each.properties
    } == {
        "queue-watch-rule": ("rate(10 minutes)", "queue-watch", {}),
        "workers-1-rule": (
            "rate(1 minute)",
            "worker-starter",
            {"kinds": ["ingest", "compaction", "export"]},
        ),
        "batcher-rule": ("rate(1 minute)", "batcher-create-jobs", {}),
        "garbage-collector-rule": (
            "rate(15 minutes)",
            "garbage-collector-trigger",
            {"operation": "collect"},
        ),
        "partition-splitter-rule": (
            "rate(30 minutes)",
            "partition-splitter-trigger",
            {"operation": "split"},
        ),
        "table-metrics-rule": (
            "rate(5 minutes)",
            "table-metrics-trigger",
            {"operation": "measure"},
        ),
    }
    rarely = synthesised(
        {
            "sleeper.optional.stacks": "GarbageCollectorStack,CompactionStack,BulkExportStack",
            "sleeper.gc.period.minutes": "60",
            "sleeper.compaction.task.creation.period.minutes": "10",
        }
    )
    assert schedule_of(rarely, "garbage-collector-rule")[0] == "rate(60 minutes)"
    expected = ("rate(10 minutes)", "worker-starter", {"kinds": ["compaction"]})
    assert schedule_of(rarely, "workers-10-rule") == expected
    assert schedule_of(rarely, "workers-1-rule")[2] == {"kinds": ["export"]}
    permissions = {
        (each.stack, each.properties["SourceArn"]["Fn::GetAtt"][0]): each.properties
        for each in everything.resources("AWS::Lambda::Permission")
    }
    for rule in everything.resources("AWS::Events::Rule"):
        if "ScheduleExpression" not in rule.properties:
            continue
        found = permissions[rule.stack, rule.id]
        assert found["Principal"] == "events.amazonaws.com"
        assert found["FunctionName"].endswith(schedule_of(everything, rule.name)[1])


def test_every_function_runs_a_handler_in_the_image_of_workers(everything):
    """A module of awslambdaric calls it; SLEEPER_INSTANCE names the instance."""
    handlers = {}
    for function in everything.resources("AWS::Lambda::Function"):
        found = function.properties
        if "bulk-import" in function.name:
            continue
        assert found["PackageType"] == "Image"
        assert found["Code"] == {"ImageUri": everything.settings.image("worker")}
        assert found["ImageConfig"]["EntryPoint"] == ["python", "-m", "awslambdaric"]
        assert found["Environment"]["Variables"]["SLEEPER_INSTANCE"] == "aws://demo"
        (command,) = found["ImageConfig"]["Command"]
        name = function.name.removeprefix("sleeper-demo-")
        handlers[name] = command.removeprefix("sleeper.interfaces.lambdas.handlers.")

    assert handlers == {
        "committer": "commit",
        "worker-starter": "start_workers",
        "batcher-submit": "submit_to_batcher",
        "batcher-create-jobs": "create_batches",
        "query": "query",
        "garbage-collector": "run_tables",
        "garbage-collector-trigger": "trigger_tables",
        "partition-splitter": "run_tables",
        "partition-splitter-trigger": "trigger_tables",
        "table-metrics": "run_tables",
        "table-metrics-trigger": "trigger_tables",
        "queue-watch": "watch_queues",
        "properties-writer": "write_properties",
    }


def test_functions_of_queues_are_called_and_nothing_asks_an_empty_queue(everything):
    """Each minute the starter is told which functions to call, and senders which queues are urgent."""
    settings = everything.settings
    (rule,) = everything.resources("AWS::Events::Rule", stack="WorkersStack")
    event = json.loads(rule.properties["Targets"][0]["Input"])
    (made,) = everything.resources("Custom::SleeperProperties", stack="PropertiesStack")
    written = made.properties["Properties"]

    assert rule.properties["ScheduleExpression"] == "rate(1 minute)"
    assert event["functions"] == settings.called_functions
    assert event["functions"]["query"] == "sleeper-demo-query"
    assert event["functions"]["commit"] == "sleeper-demo-committer"
    assert written["sleeper.jobs.called.queues"] == "query,commit"
    for stack in ("QueryStack", "StateStoreCommitterStack"):
        assert not everything.resources("AWS::Lambda::EventSourceMapping", stack=stack)


def test_workers_that_are_started_rarely_leave_queues_their_minute(synthesised):
    """Given kinds of workers that are looked at each hour, then messages wait for a minute only."""
    rarely = {
        f"sleeper.{kind}.task.creation.period.minutes": "60"
        for kind in ("ingest", "compaction", "bulk.export")
    }
    rules = synthesised(rarely).resources("AWS::Events::Rule", stack="WorkersStack")

    events = {
        each.properties["ScheduleExpression"]: json.loads(each.properties["Targets"][0]["Input"])
        for each in rules
    }
    assert events["rate(1 minute)"]["kinds"] == []
    assert events["rate(1 minute)"]["functions"].keys() >= {"query", "commit"}
    assert events["rate(60 minutes)"] == {"kinds": ["ingest", "compaction"]}


def test_a_table_is_never_in_two_calls_of_an_operation_at_once(everything):
    """Its messages have one group of a FIFO queue, and the trigger sends to that queue."""
    names = everything.settings.names
    for stack, function in (
        ("GarbageCollectorStack", "garbage-collector"),
        ("PartitionSplittingStack", "partition-splitter"),
        ("TableMetricsStack", "table-metrics"),
    ):
        queue = names.operation_queues(TABLE_OPERATIONS[StackName(stack)]).queue
        made = everything.resource("AWS::SQS::Queue", queue).properties
        trigger = everything.resource("AWS::Lambda::Function", f"{function}-trigger").properties
        (source,) = everything.resources("AWS::Lambda::EventSourceMapping", stack=stack)

        assert made["FifoQueue"] is True
        url = trigger["Environment"]["Variables"]["SLEEPER_TABLES_QUEUE_URL"]
        assert url == f"https://sqs.eu-west-2.amazonaws.com/123456789012/{queue}"
        assert source.properties["EventSourceArn"] == names.queue_arn(queue)
        assert source.properties["ScalingConfig"] == {"MaximumConcurrency": 10}


def test_concurrency_is_reserved_where_one_at_a_time_is_wanted(everything):
    """Two starters would start twice as many workers; two batchers would wait for each other."""
    reserved = {
        each.name.removeprefix("sleeper-demo-"): each.properties["ReservedConcurrentExecutions"]
        for each in everything.resources("AWS::Lambda::Function")
        if "ReservedConcurrentExecutions" in each.properties
        if "bulk-import" not in each.name
    }

    assert reserved == {"worker-starter": 1, "batcher-create-jobs": 1, "committer": 10}


def test_committers_at_once_are_limited_by_what_is_reserved(synthesised):
    """Given a limit of committers, then it is reserved: nothing else limits calls of senders."""
    for given, expected in (({"max": "4"}, 4), ({"max": "4", "reserved": "0"}, 4), ({}, 10)):
        named = {f"sleeper.statestore.committer.concurrency.{name}": n for name, n in given.items()}
        committer = synthesised(named).resource("AWS::Lambda::Function", "committer")
        assert committer.properties["ReservedConcurrentExecutions"] == expected, given


def test_workers_end_when_there_is_nothing_to_do(everything):
    """A task has its size, its image and its two roles; SIGTERM leaves it two minutes."""
    sizes = {}
    for task in everything.resources("AWS::ECS::TaskDefinition"):
        found = task.properties
        (container,) = found["ContainerDefinitions"]
        kind = found["Family"].removeprefix("sleeper-demo-")
        assert found["RequiresCompatibilities"] == ["FARGATE"]
        assert container["Image"] == everything.settings.image("worker")
        command = f"sleeper --log-format json worker {kind} --until-empty --idle 60"
        assert " ".join([*container["EntryPoint"], *container["Command"]]) == (
            f"{command} --instance aws://demo"
        )
        assert container["StopTimeout"] == 120
        assert container["LinuxParameters"] == {"InitProcessEnabled": True}
        assert container["LogConfiguration"]["LogDriver"] == "awslogs"
        platform = found["RuntimePlatform"]["CpuArchitecture"]
        sizes[kind] = (platform, found["Cpu"], found["Memory"])

    assert sizes == {
        "ingest": ("X86_64", "2048", "4096"),
        "compaction": ("X86_64", "4096", "8192"),
        "export": ("X86_64", "1024", "4096"),
    }


def test_sizes_processors_and_spot_are_those_of_the_properties(synthesised):
    """Upstream has a size for each of two processors of compactions."""
    deployed = synthesised(
        {
            "sleeper.optional.stacks": "IngestStack,CompactionStack,BulkExportStack",
            "sleeper.ingest.task.cpu": "512",
            "sleeper.ingest.task.memory.mb": "2048",
            "sleeper.ingest.task.cpu.architecture": "arm64",
            "sleeper.compaction.task.cpu.architecture": "ARM64",
            "sleeper.compaction.task.arm.cpu": "8192",
            "sleeper.compaction.task.arm.memory.mb": "16384",
            "sleeper.bulk.export.task.cpu.architecture": "ARM64",
            "sleeper.bulk.export.task.arm.cpu": "256",
            "sleeper.bulk.export.task.arm.memory.mb": "512",
            "sleeper.ingest.max.concurrent.tasks": "3",
            "sleeper.fargate.spot": "true",
            "sleeper.fargate.public.ip": "true",
        }
    )

    tasks = {
        each.name.removeprefix("sleeper-demo-"): each.properties
        for each in deployed.resources("AWS::ECS::TaskDefinition")
    }
    assert {
        kind: (each["RuntimePlatform"]["CpuArchitecture"], each["Cpu"], each["Memory"])
        for kind, each in tasks.items()
    } == {
        "ingest": ("ARM64", "512", "2048"),
        "compaction": ("ARM64", "8192", "16384"),
        "export": ("ARM64", "256", "512"),
    }
    starter = deployed.resource("AWS::Lambda::Function", "worker-starter").properties
    found = starter["Environment"]["Variables"]
    assert found["SLEEPER_CAPACITY"] == "FARGATE_SPOT,FARGATE"
    assert found["SLEEPER_PUBLIC_IP"] == "ENABLED"
    assert found["SLEEPER_WORKERS_MAX_INGEST"] == "3"
    assert found["SLEEPER_WORKERS_MAX_COMPACTION"] == "10"
    assert found["SLEEPER_SUBNETS"] == "subnet-0a1b2c3d,subnet-0a1b2c3e"
    assert found["SLEEPER_TASK_EXPORT"] == "sleeper-demo-export"


def test_functions_and_workers_run_the_images_that_they_are_given(synthesised):
    """Given an image for each, then workers are started by a role that may pull theirs."""
    tasks = f"210987654321.dkr.ecr.eu-west-1.amazonaws.com/team/tasks@sha256:{'0a' * 32}"
    deployed = synthesised(
        {
            "sleeper.optional.stacks": "IngestStack",
            "sleeper.image.functions": "team/functions:2",
            "sleeper.image.tasks": tasks,
            "sleeper.lambda.reserves.concurrency": "false",
        }
    )

    registry = "123456789012.dkr.ecr.eu-west-2.amazonaws.com"
    for function in deployed.resources("AWS::Lambda::Function"):
        assert function.properties["Code"] == {"ImageUri": f"{registry}/team/functions:2"}
        assert "ReservedConcurrentExecutions" not in function.properties
    (task,) = deployed.resources("AWS::ECS::TaskDefinition")
    assert task.properties["ContainerDefinitions"][0]["Image"] == tasks
    role = deployed.resource("AWS::IAM::Role", "ingest-execution").properties
    assert "arn:aws:ecr:eu-west-1:210987654321:repository/team/tasks" in str(role["Policies"])


def test_workers_let_nobody_in_and_go_out_by_https_alone(everything):
    """A security group without rules for those who connect."""
    (group,) = everything.resources("AWS::EC2::SecurityGroup", stack="WorkersStack")

    assert "SecurityGroupIngress" not in group.properties
    rules = group.properties["SecurityGroupEgress"]
    assert {(rule["IpProtocol"], rule["FromPort"], rule["ToPort"]) for rule in rules} == {
        ("tcp", 443, 443)
    }


def test_the_dashboard_shows_what_is_deployed(synthesised):
    """Queues and functions of the stacks that are chosen, and figures of tables if measured."""
    some = synthesised({"sleeper.optional.stacks": "DashboardStack,QueryStack"})
    whole = synthesised(ALL)

    def widgets(deployed):
        (dashboard,) = deployed.resources("AWS::CloudWatch::Dashboard")
        body = json.loads(dashboard.properties["DashboardBody"])
        return {each["properties"]["title"]: each["properties"] for each in body["widgets"]}

    shown = widgets(some)
    assert [each[3] for each in shown["Messages"]["metrics"]] == [
        "sleeper-demo-StateStoreCommitterQ.fifo",
        "sleeper-demo-QueryQueue",
    ]
    assert "RowCount" not in shown
    assert widgets(whole)["RowCount"]["period"] == 300
    made = {each.name for each in whole.resources("AWS::Lambda::Function")}
    failures = {each[3] for each in widgets(whole)["Failures of functions"]["metrics"]}
    assert failures <= made
    others = ("bulk-import", "queue-watch", "properties-writer")
    assert {each for each in made if not any(one in each for one in others)} <= failures
