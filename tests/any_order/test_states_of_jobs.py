"""States of jobs in any order of events, beside a plain model of queues: which messages live.

Tables are renamed and deleted, workers fail, are killed and have wrong clocks, messages are buried and
put back, ids are used again. After each step every job has one state: `job` and `query`, `wait` and
`list` tell the same; it is FINISHED if a run finished, over if no message of it lives, and else not.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    rule,
    run_state_machine_as_test,
)

from sleeper.errors import BadRequest, JobInvalid, JobNotFound, QueryInvalid, StorageFailed
from sleeper.instance.instance import Instance
from sleeper.jobs.event_recorder import EventRecorder, events_kept
from sleeper.jobs.instance_jobs import InstanceJobs
from sleeper.jobs.job_tables import JobTables
from sleeper.model.jobs.kinds import JobKind, QueueName
from sleeper.model.jobs.messages import NewMessage, ReceivedMessage
from sleeper.model.jobs.query_statuses import QueryState, QueryStatus
from sleeper.model.jobs.settings import queue_settings
from sleeper.model.jobs.statuses import JobState, JobStatus
from sleeper.storage.local.jobs.job_stores import SqliteJobStores
from sleeper.storage.memory import MemoryObjects
from sleeper.storage.places import Place
from sleeper.workers.kinds.export import ExportWork
from sleeper.workers.kinds.ingest import IngestWork
from sleeper.workers.kinds.query import QueryWork
from sleeper.workers.open_worker import open_worker
from sleeper.workers.worker import WorkerSettings
from tests.contracts.jobs.dictionaries import MemoryJobStores
from tests.simulated_process import simulated_process
from tests.soak import tries
from tests.unit.workers.clocks import SimulatedStop

START = datetime(2026, 5, 4, 12, tzinfo=UTC)
SCHEMA = pa.schema([("id", pa.string())])
NAMES = ("t", "u")
IDS = ("a", "b")
KINDS = (JobKind.INGEST, JobKind.QUERY, JobKind.EXPORT)
WORKS = {JobKind.INGEST: IngestWork, JobKind.QUERY: QueryWork, JobKind.EXPORT: ExportWork}
ID_NAMES = {JobKind.INGEST: "id", JobKind.QUERY: "queryId", JobKind.EXPORT: "exportId"}


@dataclass
class Asked:
    """A message that was sent, as the model knows it."""

    kind: JobKind
    job_id: str
    table_id: str | None
    name: str
    was_received: bool = False


@dataclass
class Model:
    """Which messages there are, and which jobs a run has finished."""

    asked: dict[str, Asked] = field(default_factory=dict)
    deleted: set[str] = field(default_factory=set)
    done: set[tuple[JobKind, str, str]] = field(default_factory=set)

    def of_job(self, kind: JobKind, job_id: str) -> dict[str | None, list[str]]:
        """Return the messages of each table's job of an id that a tracker can know."""
        by_table: dict[str | None, list[str]] = {}
        for message_id, asked in self.asked.items():
            known = asked.was_received or asked.table_id is not None
            if (asked.kind, asked.job_id) == (kind, job_id) and known:
                by_table.setdefault(asked.table_id, []).append(message_id)
        return by_table


class ModelQueue:
    """A queue that tells the model what is sent, received and deleted."""

    def __init__(self, inner: Any, kind: JobKind, world: StatesOfJobs) -> None:
        self._inner, self._kind, self._world = inner, kind, world
        self._received: dict[str, str] = {}

    def send(self, messages: list[NewMessage]) -> None:
        """Note what each message asks for."""
        self._inner.send(messages)
        for message in messages:
            body = json.loads(message.body)
            assert message.message_id is not None
            self._world.model.asked[message.message_id] = Asked(
                self._kind, body[ID_NAMES[self._kind]], body.get("tableId"), body["tableName"]
            )

    def receive(self, *arguments: Any, **named: Any) -> list[ReceivedMessage]:
        """Note which messages were received, and for which table, where that can be read."""
        received: list[ReceivedMessage] = self._inner.receive(*arguments, **named)
        for message in received:
            self._received[message.receipt] = message.message_id
            asked = self._world.model.asked[message.message_id]
            asked.was_received = True
            if asked.table_id is None and self._world.fault != "unread":
                record = self._world.instance.jobs.tables.find(table_id=None, table_name=asked.name)
                asked.table_id = None if record is None else record.table_id
        return received

    def delete(self, receipts: list[str]) -> list[bool]:
        """Note which messages are gone."""
        deleted: list[bool] = self._inner.delete(receipts)
        self._world.model.deleted |= {
            self._received[receipt]
            for receipt, is_deleted in zip(receipts, deleted, strict=True)
            if is_deleted
        }
        return deleted

    def delete_dead_letters(self, ids: list[str] | None = None) -> int:
        """Note that all dead letters are gone."""
        self._world.model.deleted |= {each.message_id for each in self._inner.dead_letters(1000)}
        return int(self._inner.delete_dead_letters(ids))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class ModelStores:
    """Stores whose queues tell the model."""

    def __init__(self, inner: Any, world: StatesOfJobs) -> None:
        self.are_charged = inner.are_charged
        self._inner, self.tracker, self.batcher = inner, inner.tracker, inner.batcher
        self._queues = {
            QueueName(kind.value): ModelQueue(inner.queue(QueueName(kind.value)), kind, world)
            for kind in KINDS
        }

    def queue(self, name: QueueName) -> Any:
        """Return a queue that tells the model, if it has jobs of the model."""
        return self._queues.get(name) or self._inner.queue(name)


class _Process:
    """The instance as a worker's process sees it: its clock is its own."""

    def __init__(self, instance: Instance, jobs: InstanceJobs) -> None:
        self._instance, self.jobs = instance, jobs

    def __getattr__(self, name: str) -> Any:
        return getattr(self._instance, name)


class StatesOfJobs(RuleBasedStateMachine):
    """Jobs whose queues, tracker and clock are in this process."""

    def __init__(self) -> None:
        super().__init__()
        self.time, self.model, self.fault = START, Model(), "none"
        self.folder = self.new_folder()
        ids = count()

        def new_id() -> str:
            return f"{next(ids):08x}-0000-4000-8000-000000000000"

        self.instance = Instance(
            Place("memory://", MemoryObjects(now=lambda: self.time)),
            {"sleeper.id": "any", "sleeper.jobs.retry.first.seconds": "0"},
            process=simulated_process(now=lambda: self.time, new_id=new_id),
        )
        self.instance.create_table("t", SCHEMA, row_keys=["id"])
        self.inner = self.stores(new_id)
        self.model_stores = ModelStores(self.inner, self)
        self.jobs = self.jobs_of(timedelta(0))
        self.client: Any = self.client_of_jobs()
        self.file = self.folder / "a.parquet"
        pq.write_table(pa.table({"id": ["x"]}, schema=SCHEMA), self.file)

    def new_folder(self) -> Path:
        """Return a folder for the jobs' file."""
        return Path(tempfile.mkdtemp())

    def stores(self, new_id: Callable[[], str]) -> Any:
        """Return where queues and events are."""
        return MemoryJobStores(
            self.queue_settings(),
            now=lambda: self.time,
            sleep=lambda seconds: None,
            new_id=new_id,
        )

    def client_of_jobs(self) -> Any:
        """Return what users ask: the jobs of the instance, or of a server."""
        return self.jobs

    def queue_settings(self) -> dict[QueueName, Any]:
        """How queues deliver."""
        return {name: queue_settings(self.instance.properties, name) for name in QueueName}

    def jobs_of(self, ahead: timedelta) -> InstanceJobs:
        """Return the jobs as a process sees them whose clock is ahead of the true time."""
        jobs, stores = self.instance.jobs, self.model_stores
        recorder = EventRecorder(
            stores.tracker,
            kept=events_kept(self.instance.properties),
            now=lambda: self.time + ahead,
        )
        return InstanceJobs(
            stores, jobs.tables, recorder, jobs.results, new_id=jobs.new_id, url="memory://"
        )

    # What users do.

    @rule(name=st.sampled_from(NAMES))
    def create_table(self, name: str) -> None:
        if name not in self.names():
            self.instance.create_table(name, SCHEMA, row_keys=["id"])

    @rule(old=st.sampled_from(NAMES), new=st.sampled_from(NAMES))
    def rename_table(self, old: str, new: str) -> None:
        if old in self.names() and new not in self.names():
            self.instance.table(old).rename(new)

    @rule(name=st.sampled_from(NAMES))
    def delete_table(self, name: str) -> None:
        if name in self.names():
            self.instance.delete_table(name)

    @rule(kind=st.sampled_from(KINDS), name=st.sampled_from(NAMES), job_id=st.sampled_from(IDS))
    def submit(self, kind: JobKind, name: str, job_id: str) -> None:
        if name not in self.names():
            return
        try:
            if kind is JobKind.INGEST:
                self.client.submit_ingest(name, self.file, job_id)
            elif kind is JobKind.QUERY:
                self.client.submit_query(name, query_id=job_id)
            else:
                self.client.submit_export(name, job_id)
        except (JobInvalid, QueryInvalid):  # the file is away, or the id another table's
            return
        table_id = self.instance.table(name).table_id
        status = self.status(kind, job_id, table_id)
        assert self.is_done(kind, table_id, job_id) or not over(status)
        assert state_name(status) != "REJECTED"

    @rule(kind=st.sampled_from(KINDS), name=st.sampled_from(NAMES), job_id=st.sampled_from(IDS))
    def send(self, kind: JobKind, name: str, job_id: str) -> None:
        """Send what a client of another language does: the table has no id."""
        more: dict[JobKind, dict[str, Any]] = {
            JobKind.INGEST: {"files": [str(self.file)]},
            JobKind.QUERY: {"type": "Query", "regions": [{}]},
        }
        body = {ID_NAMES[kind]: job_id, "tableName": name, **more.get(kind, {})}
        self.jobs.send(kind.value, json.dumps(body))

    @rule()
    def move_file(self) -> None:
        """Take the jobs' file away, or put it back."""
        away = self.folder / "away"
        if self.file.exists():
            self.file.rename(away)
        else:
            away.rename(self.file)

    @rule(kind=st.sampled_from(KINDS))
    def redrive(self, kind: JobKind) -> None:
        self.client.redrive(kind.value)

    @rule(kind=st.sampled_from(KINDS))
    def delete_dead_letters(self, kind: JobKind) -> None:
        self.jobs.delete_dead_letters(kind.value)

    @rule(seconds=st.sampled_from([1, 30, 1_000, 100_000, -30]))
    def wait(self, seconds: int) -> None:
        self.time += timedelta(seconds=seconds)

    # What workers do.

    @rule(
        kind=st.sampled_from(KINDS),
        fault=st.sampled_from(["none", "none", "fails", "fails once", "killed", "unread"]),
        ahead_s=st.sampled_from([0, 0, -50, 50, -86_400 * 2, -86_400 * 2_000]),
    )
    def work(self, kind: JobKind, fault: str, ahead_s: int) -> None:
        jobs: Any = _Process(self.instance, self.jobs_of(timedelta(seconds=ahead_s)))
        worker = open_worker(
            jobs,
            kind.value,
            WorkerSettings(wait_s=0, until_empty=True, is_reported=False, jobs_max=20),
            SimulatedStop(),
        )
        with self.faults(kind, fault):
            try:
                worker.run()
            except SystemExit:
                assert fault == "killed"

    @contextmanager
    def faults(self, kind: JobKind, fault: str) -> Iterator[None]:
        """Let a worker's runs fail so; note those that finish."""
        run, failures = WORKS[kind].run, [0]

        def tried(work: Any, context: Any) -> Any:
            failures[0] += 1
            if fault == "killed":
                raise SystemExit
            if fault == "fails" or (fault == "fails once" and failures[0] == 1):
                raise StorageFailed("no answer") from OSError(5, "Input/output error")
            outcome = run(work, context)
            self.model.done.add((kind, work.table_id, work.job_id))
            return outcome

        def unread(*_: Any, **__: Any) -> Any:
            raise StorageFailed("the index does not answer")

        self.fault = fault
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(WORKS[kind], "run", tried)
            if fault == "unread":
                patch.setattr(JobTables, "find", unread)
            yield
        self.fault = "none"

    # What is told.

    @invariant()
    def each_job_has_one_state(self) -> None:
        for kind in KINDS:
            queue = self.inner.queue(QueueName(kind.value))
            dead = {letter.message_id for letter in queue.dead_letters(1_000)}
            ended = self.model.deleted | dead
            listed = {(each.table_id, id_of(each)): each for each in self.listed(kind)}
            for job_id in IDS:
                by_table = self.model.of_job(kind, job_id)
                for table_id, message_ids in by_table.items():
                    if table_id is None:
                        continue
                    status = self.status(kind, job_id, table_id)
                    is_open = any(each not in ended for each in message_ids)
                    self.check(status, is_open=is_open)
                    assert listed[table_id, job_id] == status
                self.check_without_table(kind, job_id, by_table, ended)
            self.check_views(kind, listed)

    def check_views(self, kind: JobKind, listed: Mapping[tuple[str, str], Any]) -> None:
        """Compare what else shows the jobs of a kind."""

    def check(self, status: JobStatus | QueryStatus, *, is_open: bool) -> None:
        """Compare a state with the model."""
        is_done = self.is_done(status.kind, status.table_id, id_of(status))
        assert (state_name(status) in ("FINISHED", "COMPLETED")) is is_done, status
        assert over(status) is (is_done or not is_open), status
        if over(status) and not is_done:
            assert state_name(status) in ("FAILED", "REJECTED")
            assert status.errors if isinstance(status, QueryStatus) else status.reasons

    def check_without_table(
        self,
        kind: JobKind,
        job_id: str,
        by_table: dict[str | None, list[str]],
        ended: set[str],
    ) -> None:
        """Ask by the id alone: there is one answer, or the tables are named."""
        tables = [each for each in by_table if each is not None]
        try:
            status = self.status(kind, job_id, None)
        except JobNotFound:
            assert not by_table
            return
        except BadRequest:
            assert len(tables) > 1
            return
        if tables:
            assert len(tables) == 1 or kind is JobKind.QUERY
            assert status == self.status(kind, job_id, status.table_id)
        else:
            is_open = any(each not in ended for each in by_table[None])
            self.check(status, is_open=is_open)
        if isinstance(status, JobStatus):
            assert self.client.wait(job_id, kind=kind, rest=lambda: False) == status

    def listed(self, kind: JobKind) -> list[JobStatus] | list[QueryStatus]:
        """Return all jobs of a kind."""
        return (
            [*self.client.list(kind=kind)]
            if kind is JobKind.INGEST
            else [*self.client.queries(kind=kind)]
        )

    def status(self, kind: JobKind, job_id: str, table: str | None) -> JobStatus | QueryStatus:
        """Return the state of a job, by its table's id or none."""
        if kind is JobKind.INGEST:
            return self.client.job(job_id, table=table)
        status = self.client.query(job_id, kind=kind, table=table)
        same = self.client.job(job_id, kind=kind, table=status.table_id)
        assert SAME_STATES[status.state] == {same.state} | SAME_STATES[status.state]
        assert same.is_over is over(status)
        return status

    def is_done(self, kind: JobKind, table_id: str, job_id: str) -> bool:
        """Return whether a run of a job has finished."""
        return (kind, table_id, job_id) in self.model.done

    def names(self) -> set[str]:
        """The names of tables."""
        return {record.name for record in self.instance.tables()}

    def pass_long(self) -> None:
        """Let more time go by than any message is hidden for."""
        self.time += timedelta(hours=20)

    def teardown(self) -> None:
        """Let all that lives be run by workers without a fault: then nothing is under way."""
        for _ in range(4):
            self.pass_long()
            for kind in KINDS:
                self.work(kind, "none", 0)
        self.each_job_has_one_state()
        for kind in KINDS:
            assert all(over(status) for status in self.listed(kind))
        self.inner.close()
        shutil.rmtree(self.folder)


SAME_STATES = {
    QueryState.QUEUED: {JobState.ACCEPTED},
    QueryState.IN_PROGRESS: {JobState.IN_PROGRESS},
    QueryState.COMPLETED: {JobState.FINISHED},
    QueryState.FAILED: {JobState.FAILED, JobState.REJECTED},
    QueryState.PARTIALLY_FAILED: {JobState.FAILED},
}
"""What states of queries are as states of jobs."""


def over(status: JobStatus | QueryStatus) -> bool:
    """Return whether nothing more comes of a job."""
    return status.is_over if isinstance(status, JobStatus) else not status.is_unfinished


def id_of(status: JobStatus | QueryStatus) -> str:
    """Return the id of a job."""
    return status.job_id if isinstance(status, JobStatus) else status.query_id


def state_name(status: JobStatus | QueryStatus) -> str:
    """Return the state of a job as text."""
    return status.state.value


class StatesOfJobsInAFile(StatesOfJobs):
    """Jobs in the SQLite file."""

    def stores(self, new_id: Callable[[], str]) -> Any:
        """Return where queues and events are."""
        return SqliteJobStores(
            self.folder / "jobs.sqlite",
            self.queue_settings(),
            now=lambda: self.time,
            sleep=lambda seconds: None,
            new_id=new_id,
        )


@pytest.mark.soak
@pytest.mark.parametrize("machine", [StatesOfJobs, StatesOfJobsInAFile])
def test_each_job_has_one_state_in_any_order(machine):
    """Given any order of steps, then each job is told as its messages and runs say (TRK-9, TRK-10)."""
    stories = tries(15, soak=1_500)
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=stories,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=[*HealthCheck],
        ),
    )
    print(f"{stories} stories of up to 25 steps")  # noqa: T201 - pytest -rP shows how much was tried
