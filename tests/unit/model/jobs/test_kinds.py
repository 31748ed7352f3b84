"""The table of kinds of jobs: whatever must know the kinds knows those of its rows, and no others."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from sleeper.errors import BadRequest
from sleeper.interfaces.cli.worker import worker
from sleeper.interfaces.lambdas.worker_tasks import worker_limits
from sleeper.model.jobs.kinds import (
    BULK_IMPORT_QUEUES,
    KIND_NAMES,
    KINDS,
    QUEUES,
    QUEUES_OF_BATCHER,
    TASK_KINDS,
    TRACKED,
    JobKind,
    QueueName,
    Senders,
    kind_of,
    queues_from,
)
from sleeper.model.jobs.platforms import BY_QUEUE, PLATFORMS
from sleeper.model.jobs.settings import (
    TaskSize,
    handling_settings,
    queue_settings,
    task_period_minutes,
    task_size,
    tracker_settings,
    workers_max,
)
from sleeper.model.known_properties.catalogue import INSTANCE_PROPERTIES
from sleeper.model.known_properties.typed import InstanceProperties
from sleeper.model.stacks import DEFAULT_STACKS, OPTIONAL_STACKS, StackName
from sleeper.storage.aws.deployment.table_index import ALL_TABLES

ROOT = Path(__file__).resolve().parents[4]
KNOWN = {each.name: each for each in INSTANCE_PROPERTIES}
DEFAULTS = InstanceProperties()


class TestRows:
    """The rows agree with each other."""

    def test_no_name_is_given_twice(self):
        """Given all rows, then each kind has a name of its own, and a module."""
        assert len(set(KIND_NAMES)) == len({each.module for each in KINDS}) == len(KINDS)

    def test_each_queue_has_one_kind_of_worker(self):
        """No message waits for ever, and none is taken by two kinds."""
        taken = Counter(name for kind in KINDS for name in kind.queue_names)

        assert taken == Counter(QueueName)
        assert set(QUEUES) == set(QueueName)

    def test_names_in_sqs_differ(self):
        """Given the queues of an instance, then no two have a name in SQS in common."""
        named = Counter(name for each in QUEUES.values() for name in each.in_sqs)

        assert set(named.values()) == {1}

    def test_each_tracked_kind_is_that_of_a_worker(self):
        """Given what trackers keep, then there is a row for each kind, and workers of it."""
        assert set(TRACKED) == set(JobKind)
        assert {each.tracked_as for each in KINDS} - {None} == set(JobKind)

    def test_a_kind_runs_on_fargate_or_by_a_function(self):
        """Given kinds with a stack of their own, then it is known what runs there."""
        for kind in KINDS:
            assert (kind.stack is not None) == (kind.task is not None or kind.function is not None)
            assert kind.task is None or kind.function is None

    def test_a_kind_that_has_a_stack_takes_its_messages_there(self):
        """Given a kind with a stack, then its queues are taken by that stack."""
        for kind in KINDS:
            if kind.stack is not None:
                assert {each.stack for each in kind.queues} <= {kind.stack}

    def test_workers_leave_the_queues_of_platforms_to_functions(self):
        """Given each kind in AWS, then its workers take all of its queues but those of platforms."""
        for kind in KINDS:
            assert {*kind.queue_names} - {*kind.own_queues} == {*kind.queue_names} & {*BY_QUEUE}

    def test_an_unknown_kind_is_refused(self):
        """Given a name that no row has, then the error says which there are."""
        with pytest.raises(BadRequest, match="no kind of jobs 'exports'; there are ingest, bulk"):
            kind_of("exports")


class TestProperties:
    """The properties that rows name."""

    def test_each_is_known(self):
        """Given the names in rows, then an instance has these properties, and they are used."""
        named = {
            name
            for each in QUEUES.values()
            for name in (each.lease, each.keepalive, each.retry_first, each.url, each.dead_url)
        }
        named |= {each.workers_max for each in KINDS}
        named |= {
            name
            for each in TRACKED.values()
            for name in (each.enabled, each.job_ttl, each.task_ttl)
        }
        for kind in TASK_KINDS:
            sizes = [kind.task.size(each) for each in ("ARM64", "X86_64")]
            named |= {kind.task.period, kind.task.architecture, *sizes[0], *sizes[1]}

        wanted = {f"sleeper.{name}" for name in named - {None}}

        assert wanted <= set(KNOWN)
        assert all(KNOWN[name].used for name in wanted)

    @pytest.mark.parametrize("platform", PLATFORMS, ids=lambda each: each.name)
    def test_a_platform_is_described_by_properties_of_its_family(self, platform):
        """Given a platform, then what describes it are properties whose names begin alike."""
        assert all(name.startswith(f"{platform.family}.") for name in platform.described_by)
        assert QUEUES[platform.queue].stack is platform.stack

    @pytest.mark.parametrize("name", QueueName)
    def test_each_queue_can_be_opened(self, name):
        """Given the defaults of properties, then it is known how each queue delivers."""
        assert queue_settings(DEFAULTS, name).visibility_s > 0
        assert handling_settings(DEFAULTS, name).keepalive_s > 0

    @pytest.mark.parametrize("kind", JobKind)
    def test_each_kind_is_tracked(self, kind):
        """Given the defaults of properties, then jobs of each kind are tracked for a time."""
        assert tracker_settings(DEFAULTS, kind).enabled

    @pytest.mark.parametrize(
        ("kind", "most"),
        [
            *(("ingest", 10), ("bulk-import", 10), ("compaction", 10), ("export", 10)),
            *(("query", 1), ("batcher", 1), ("commit", 1)),
        ],
    )
    def test_a_property_limits_workers(self, kind, most):
        """Given the defaults, then there are at most so many in AWS; one where none says it."""
        assert workers_max(DEFAULTS, kind_of(kind)) == most

    def test_a_limit_can_be_set(self):
        """Given a limit for exports, then no other kind has it."""
        given = InstanceProperties({"sleeper.bulk.export.max.concurrent.tasks": "7"})

        limits = {kind.name: workers_max(given, kind) for kind in KINDS}

        assert limits["export"] == 7
        assert limits["compaction"] == 10

    @pytest.mark.parametrize(
        ("kind", "size"),
        [
            ("ingest", TaskSize("X86_64", 2048, 4096)),
            ("compaction", TaskSize("X86_64", 4096, 8192)),
            ("export", TaskSize("X86_64", 1024, 4096)),
        ],
    )
    def test_properties_say_how_large_a_task_is(self, kind, size):
        """Given the defaults, then workers on Fargate have upstream's sizes."""
        assert task_size(DEFAULTS, kind_of(kind).task) == size
        assert task_period_minutes(DEFAULTS, kind_of(kind).task) == 1

    def test_a_size_is_that_of_its_processor(self):
        """Given sizes for two processors, then that of the one that is used is taken."""
        given = {
            "sleeper.bulk.export.task.cpu.architecture": "ARM64",
            "sleeper.bulk.export.task.arm.cpu": "512",
            "sleeper.bulk.export.task.x86.cpu": "256",
        }

        found = task_size(InstanceProperties(given), kind_of("export").task)

        assert found == TaskSize("ARM64", 512, 4096)


class TestPlaces:
    """Places that list kinds or queues list those of the rows."""

    def test_the_command_line_starts_a_worker_of_each_kind(self):
        """Given `sleeper worker`, then it takes the names of all rows."""
        (argument,) = [each for each in worker.params if each.name == "kind"]

        assert tuple(argument.type.choices) == KIND_NAMES

    def test_a_function_may_start_workers_of_each_kind(self):
        """Given an event that names all kinds, then each has a limit."""
        limits = dict(worker_limits({"kinds": [*KIND_NAMES]}, {}, DEFAULTS))

        assert limits == {kind.name: workers_max(DEFAULTS, kind) for kind in KINDS}

    @pytest.mark.parametrize("place", [("serve", "jobWorkers"), ("workers",)])
    def test_the_helm_chart_takes_each_kind(self, place):
        """Given the schema of the chart's values, then it allows the names of all rows."""
        schema = json.loads((ROOT / "deploy/helm/sleeper/values.schema.json").read_text())
        for each in place:
            schema = schema["properties"][each]

        assert schema["propertyNames"]["enum"] == [*KIND_NAMES]

    def test_events_of_each_tracked_kind_have_tables(self):
        """Given the tables in DynamoDB that are made at first, then each kind has three."""
        names = {each.name for each in ALL_TABLES}

        for kind in JobKind:
            ends = ("job-updates", "job-lookup", "task-status")
            assert {f"{kind}-{end}" for end in ends} <= names

    def test_queues_with_urls_have_properties(self):
        """Given the queues that upstream has too, then their URLs are fixed properties."""
        for each in QUEUES.values():
            for name in (each.url, each.dead_url):
                assert name is None or not KNOWN[f"sleeper.{name}"].editable

    def test_the_batcher_sends_to_queues_of_files(self):
        """Given what the batcher calls queues, then they are those of ingest and bulk import."""
        assert set(QUEUES_OF_BATCHER.values()) == {QueueName.INGEST, *BULK_IMPORT_QUEUES}
        assert set(BY_QUEUE) == {*BULK_IMPORT_QUEUES} - {QueueName.BULK_IMPORT}

    def test_policies_let_users_send(self):
        """Given the policies for users, then together they send all but requests to commit."""
        sent = [name for senders in Senders for name in queues_from(senders)]

        assert sorted(sent) == sorted(set(QueueName) - {QueueName.COMMIT})


class TestStacks:
    """The names of stacks."""

    def test_those_of_kinds_can_be_chosen(self):
        """Given stacks that run jobs, then a user chooses them, except that of the committer."""
        run = {each.stack for each in QUEUES.values()} | {each.stack for each in KINDS}

        assert run - {None, StackName.COMMITTER} <= set(OPTIONAL_STACKS)

    def test_what_costs_while_idle_is_not_deployed_by_default(self):
        """Given the default, then it has no cluster that must be asked for."""
        assert {StackName.EMR, StackName.PERSISTENT_EMR, StackName.EKS}.isdisjoint(DEFAULT_STACKS)
        assert set(DEFAULT_STACKS) < set(OPTIONAL_STACKS)
