"""A job that was submitted has one state, whatever became of its table, its message or a clock."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sleeper
from sleeper.errors import BadRequest, JobNotFound, StorageFailed, TableNotFound
from sleeper.instance.instance import Instance
from sleeper.jobs.job_tables import JobTables
from sleeper.model.jobs.events import JobEvent
from sleeper.model.jobs.kinds import JobKind, QueueName, queues_of
from sleeper.model.jobs.query_statuses import QueryState
from sleeper.model.jobs.statuses import JobState
from sleeper.storage.local.jobs.job_queue import SqliteQueue
from sleeper.storage.local.jobs.job_stores import SqliteJobStores
from sleeper.storage.local.jobs.job_tracker import SqliteTracker
from sleeper.workers.kinds.ingest import IngestWork
from tests.stories.test_ingest_jobs import SCHEMA, work, written


@pytest.fixture
def instance(tmp_path: Path) -> Instance:
    """An instance in a folder, with a table; what fails is tried again at once, twice."""
    opened = sleeper.connect(tmp_path / "instance", create=True)
    opened.set_properties({"sleeper.jobs.retry.first.seconds": 0})
    opened.create_table("numbers", SCHEMA, row_keys=["id"])
    return opened


def send(instance: Instance, queue: str, **message: Any) -> None:
    """Send a message as a client of another language does."""
    instance.jobs.send(queue, json.dumps(message))


def waited(instance: Instance, job_id: str) -> JobState:
    """The state that `wait` ends with; fails where it does not end by itself."""
    status = instance.jobs.wait(job_id, rest=lambda: pytest.fail("the job never ends"))
    assert status == instance.jobs.job(job_id)
    assert [each for each in instance.jobs.list() if each.job_id == job_id] == [status]
    return status.state


class TestTables:
    """A run is bound to the table that it was submitted for (ING-9, TRK-10)."""

    def test_a_table_is_renamed_before_its_job_runs(self, instance, tmp_path):
        """Given a job, a query and an export, when the table is renamed, then they are done."""
        path = written(tmp_path / "two.parquet", 1, 2)
        instance.jobs.submit_ingest("numbers", path, "rows")
        instance.jobs.submit_bulk_import("numbers", written(tmp_path / "b.parquet", 7), "bulk")
        instance.jobs.submit_query("numbers", query_id="q")
        instance.jobs.submit_export("numbers", "e")
        instance.table("numbers").rename("figures")
        for kind in ("ingest", "bulk-import", "query", "export"):
            work(instance, kind)

        assert (waited(instance, "rows"), waited(instance, "bulk")) == (JobState.FINISHED,) * 2
        assert instance.table("figures").count() == 3
        assert instance.jobs.query("q").rows == 3
        assert instance.jobs.query("e", kind="export", table="figures").rows == 3
        assert instance.jobs.job("rows", table="figures").transaction is not None

    def test_another_table_gets_the_name(self, instance, tmp_path):
        """Given a renamed table and a new one of its old name, then the first one gets the rows."""
        instance.jobs.submit_ingest("numbers", written(tmp_path / "a.parquet", 5), "a")
        instance.jobs.submit_files("numbers", written(tmp_path / "b.parquet", 6))
        instance.table("numbers").rename("figures")
        instance.create_table("numbers", SCHEMA, row_keys=["id"])
        work(instance)
        work(instance, "batcher")

        assert (instance.table("figures").count(), instance.table("numbers").count()) == (1, 0)
        (file,) = instance.jobs.submitted_files()
        assert file.table_id == instance.table("figures").table_id
        with pytest.raises(JobNotFound):
            instance.jobs.job("a", table="numbers")

    def test_a_table_is_deleted_before_its_job_runs(self, instance, tmp_path):
        """Given a job and a query of a deleted table, then each is found, by id, with the reason."""
        table_id = instance.table("numbers").table_id
        instance.jobs.submit_ingest("numbers", written(tmp_path / "a.parquet", 1), "a")
        instance.jobs.submit_query("numbers", query_id="q")
        instance.delete_table("numbers")
        work(instance)
        work(instance, "query")

        assert waited(instance, "a") is JobState.REJECTED
        status = instance.jobs.job("a", table=table_id)
        assert status == instance.jobs.job("a")
        assert "Table not found" in status.reasons[0]
        assert [each.job_id for each in instance.jobs.list(table=table_id)] == ["a"]
        query = instance.jobs.query("q")
        assert (query.state, query.is_unfinished) == (QueryState.FAILED, False)
        assert query == instance.jobs.query("q", table=table_id)
        with pytest.raises(TableNotFound, match="by its id alone"):
            instance.jobs.job("a", table="numbers")

    def test_a_message_for_no_table_leaves_its_id_free(self, instance, tmp_path):
        """Given a rejection, when the table is made and the id sent again, then the job is done."""
        path = str(written(tmp_path / "a.parquet", 1, 2))
        send(instance, "ingest", id="a", tableName="later", files=[path])
        work(instance)
        assert waited(instance, "a") is JobState.REJECTED

        instance.create_table("later", SCHEMA, row_keys=["id"])
        instance.jobs.submit_ingest("later", path, "a")
        assert instance.jobs.job("a").state is JobState.ACCEPTED
        work(instance)

        assert waited(instance, "a") is JobState.FINISHED

    def test_a_message_by_name_is_bound_when_it_is_first_read(
        self, instance, tmp_path, monkeypatch
    ):
        """Given a run that failed, when the table is renamed, then the job ends as rejected."""
        run, calls = IngestWork.run, []

        def fail_first(self: IngestWork, context: Any) -> Any:
            calls.append(1)
            if len(calls) == 1:
                instance.table("numbers").rename("figures")
                raise StorageFailed("no answer")
            return run(self, context)

        monkeypatch.setattr(IngestWork, "run", fail_first)
        path = str(written(tmp_path / "a.parquet", 1))
        send(instance, "ingest", id="a", tableName="numbers", files=[path])
        work(instance)

        assert waited(instance, "a") is JobState.FAILED
        status = instance.jobs.job("a", table="figures")
        assert (status.is_given_up, status.reasons) == (True, ("Table not found: numbers",))

    def test_a_message_by_name_does_not_go_on_for_another_table(
        self, instance, tmp_path, monkeypatch
    ):
        """Given a run that failed, when another table gets the name, then no row goes there."""

        def fail_first(self: IngestWork, context: Any) -> Any:
            instance.table("numbers").rename("figures")
            instance.create_table("numbers", SCHEMA, row_keys=["id"])
            raise StorageFailed("no answer")

        monkeypatch.setattr(IngestWork, "run", fail_first)
        path = str(written(tmp_path / "a.parquet", 1))
        send(instance, "ingest", id="a", tableName="numbers", files=[path])
        work(instance)

        assert waited(instance, "a") is JobState.FAILED
        status = instance.jobs.job("a", table="figures")
        assert (status.is_given_up, len(status.runs)) == (True, 1)
        assert "another one has its name" in status.reasons[0]
        assert instance.table("numbers").count() == 0

    def test_a_message_by_name_is_rejected_for_its_own_table(self, instance, tmp_path, monkeypatch):
        """Given a killed run, a new table of the name and no file, then the first table is told."""
        instance.set_properties({"sleeper.ingest.queue.visibility.timeout.seconds": 1})
        path, first = written(tmp_path / "a.parquet", 1), instance.table("numbers").table_id
        send(instance, "ingest", id="a", tableName="numbers", files=[str(path)])
        with monkeypatch.context() as patch:
            patch.setattr(IngestWork, "run", _killed)
            with pytest.raises(SystemExit):
                work(instance)
        instance.delete_table("numbers")
        instance.create_table("numbers", SCHEMA, row_keys=["id"])
        path.unlink()
        time.sleep(1.1)
        work(instance)

        assert waited(instance, "a") is JobState.FAILED
        status = instance.jobs.job("a")
        assert (status.table_id, status.is_given_up) == (first, True)
        assert "Could not find" in status.reasons[0]
        with pytest.raises(JobNotFound):
            instance.jobs.job("a", table="numbers")

    def test_an_id_in_two_tables_is_told_by_table(self, instance, tmp_path):
        """Given jobs of one id, then the tables are named, and each is found by its own."""
        instance.create_table("others", SCHEMA, row_keys=["id"])
        for name in ("numbers", "others"):
            instance.jobs.submit_ingest(name, written(tmp_path / f"{name}.parquet", 1), "a")
            instance.jobs.submit_export(name, "e")

        with pytest.raises(BadRequest, match="tables numbers, others each have"):
            instance.jobs.job("a")
        with pytest.raises(BadRequest, match="numbers, others"):
            instance.jobs.query("e", kind="export")
        for name in ("numbers", "others"):
            table_id = instance.table(name).table_id
            assert instance.jobs.job("a", table=name).table_id == table_id
            assert instance.jobs.query("e", kind="export", table=name).table_id == table_id
            done = instance.jobs.wait("a", table=name, rest=lambda: False)
            assert done.table_id == table_id

    def test_a_query_that_was_refused_for_its_id_leaves_the_other_ones_answer(self, instance):
        """Given a query of two tables' id, then the id tells of the first, the table of each."""
        instance.create_table("others", SCHEMA, row_keys=["id"])
        instance.jobs.submit_query("numbers", query_id="q")
        work(instance, "query")
        send(instance, "query", queryId="q", tableName="others", type="Query", regions=[{}])
        work(instance, "query")

        assert instance.jobs.query("q").state is QueryState.COMPLETED
        refused = instance.jobs.query("q", table="others")
        assert (refused.state, refused.is_unfinished) == (QueryState.FAILED, False)
        assert "was used for a query of another table" in refused.errors[0]


class TestDeadLetters:
    """Every dead letter of a job has its failure, with the chain of messages (TRK-5)."""

    @pytest.mark.parametrize("queue", ["ingest", "bulk-import"])
    def test_input_that_cannot_be_looked_at(self, instance, queue, tmp_path, monkeypatch):
        """Given a place that never answers, then the job has failed for good, and says why."""

        def fail(self: JobTables, paths: Any) -> Any:
            raise StorageFailed("cannot list s3://away/") from OSError(13, "Permission denied")

        monkeypatch.setattr(JobTables, "missing", fail)
        path = str(written(tmp_path / "a.parquet", 1))
        send(instance, queue, id="a", tableName="numbers", files=[path])
        work(instance, queue)

        assert waited(instance, "a") is JobState.FAILED
        status = instance.jobs.job("a", table="numbers")
        assert (status.is_given_up, len(status.runs)) == (True, 3)
        assert status.reasons == (
            "cannot list s3://away/",
            "PermissionError: [Errno 13] Permission denied",
        )
        (letter,) = instance.jobs.dead_letters(queue)
        assert "Permission denied" in letter.reason

    def test_workers_that_are_killed(self, instance, tmp_path, monkeypatch):
        """Given a job that kills each of its workers, then its burial is told; put back, it runs."""
        instance.set_properties({"sleeper.ingest.queue.visibility.timeout.seconds": 1})
        path = written(tmp_path / "a.parquet", 1)
        instance.jobs.submit_ingest("numbers", path, "a")
        with monkeypatch.context() as patch:
            patch.setattr(IngestWork, "run", _killed)
            for _ in range(3):
                with pytest.raises(SystemExit):
                    work(instance)
                time.sleep(1.1)
            assert work(instance) == 0

        assert waited(instance, "a") is JobState.FAILED
        assert instance.jobs.job("a").reasons == ("received 3 times, and never deleted",)
        assert instance.jobs.redrive("ingest") == 1
        again = instance.jobs.job("a")
        assert (again.state, again.is_over) == (JobState.FAILED, False)
        work(instance)
        assert waited(instance, "a") is JobState.FINISHED

    @pytest.mark.parametrize("way", ["show", "wait", "list", "unfinished", "timer"])
    def test_where_each_look_costs_money_whoever_asks_is_told_the_end(
        self, instance, tmp_path, monkeypatch, way
    ):
        """Given a queue as in SQS, and no serve, then each question finds the dead letter."""
        instance.set_properties({"sleeper.jobs.receives.max": 1})
        instance.set_properties({"sleeper.ingest.queue.visibility.timeout.seconds": 1})
        monkeypatch.setattr(SqliteJobStores, "are_charged", True)
        instance.jobs.submit_ingest("numbers", written(tmp_path / "a.parquet", 1), "a")
        with monkeypatch.context() as patch:
            patch.setattr(IngestWork, "run", _killed)
            with pytest.raises(SystemExit):
                work(instance)
        time.sleep(1.1)
        assert work(instance) == 0

        jobs = instance.jobs
        if way == "timer":
            assert (jobs.note_dead_letters(), jobs.note_dead_letters()) == (1, 0)
        elif way == "wait":
            assert waited(instance, "a") is JobState.FAILED
        elif way == "list":
            assert [each.state for each in jobs.list()] == [JobState.FAILED]
        elif way == "unfinished":
            assert [*jobs.list(unfinished=True)] == []
        assert (jobs.job("a").state, jobs.job("a").is_over) == (JobState.FAILED, True)
        assert jobs.note_dead_letters() == 0

    def test_where_each_look_costs_money_looks_are_shared(self, instance, tmp_path, monkeypatch):
        """Given many questions about jobs that wait, then the queues are looked at every ten seconds."""
        monkeypatch.setattr(SqliteJobStores, "are_charged", True)
        jobs, looks = instance.jobs, []
        depth = SqliteQueue.depth
        monkeypatch.setattr(SqliteQueue, "depth", lambda self: looks.append(1) or depth(self))
        now, ahead = jobs.recorder.now, [timedelta(0)]
        monkeypatch.setattr(jobs.recorder, "now", lambda: now() + ahead[0])
        for name in ("a", "b"):
            jobs.submit_ingest("numbers", written(tmp_path / f"{name}.parquet", 1), name)

        for name in ("a", "b", "a", "b"):
            jobs.job(name)
        once = len(looks)
        ahead[0] = timedelta(seconds=11)
        jobs.job("a")

        assert (once, len(looks)) == (len(queues_of(JobKind.INGEST)), 2 * once)

    def test_a_queue_that_may_not_be_looked_at_leaves_what_the_tracker_has(
        self, instance, tmp_path, monkeypatch
    ):
        """Given a right to read the tracker and none for queues, then the job is shown."""
        monkeypatch.setattr(SqliteJobStores, "are_charged", True)
        instance.jobs.submit_ingest("numbers", written(tmp_path / "a.parquet", 1), "a")

        def denied(self):
            raise StorageFailed("access denied")

        monkeypatch.setattr(SqliteQueue, "depth", denied)

        assert instance.jobs.job("a").state is JobState.ACCEPTED

    def test_a_table_that_is_deleted_while_its_request_waits(self, instance, tmp_path):
        """Given files for the committer, when the table is deleted, then their job has failed."""
        instance.table("numbers").set_properties(
            {"sleeper.table.statestore.commit.async.enabled": True}
        )
        instance.jobs.submit_ingest("numbers", written(tmp_path / "a.parquet", 3), "a")
        work(instance)
        assert instance.jobs.job("a").state is JobState.UNCOMMITTED
        instance.delete_table("numbers")
        work(instance, "commit")

        assert waited(instance, "a") is JobState.FAILED
        status = instance.jobs.job("a")
        assert status.is_given_up
        assert "deleted" in status.reasons[0]
        assert len(instance.jobs.dead_letters("commit")) == 1


def _killed(self: IngestWork, context: Any) -> None:
    raise SystemExit


def no_answer(self: IngestWork, context: Any) -> Any:
    raise StorageFailed("no answer")


class TestAgain:
    """A new submission is a new attempt, whatever became of those before (TRK-9)."""

    def test_a_rejected_job_is_submitted_again(self, instance, tmp_path):
        """Given a rejection, when the file is there and the job sent again, then it waits at once."""
        path = tmp_path / "late.parquet"
        send(instance, "ingest", id="a", tableName="numbers", files=[str(path)])
        work(instance)
        assert waited(instance, "a") is JobState.REJECTED

        instance.jobs.submit_ingest("numbers", written(path, 1), "a")
        assert (instance.jobs.job("a").state, instance.jobs.job("a").reasons) == (
            JobState.ACCEPTED,
            (),
        )
        path.unlink()
        work(instance)
        assert waited(instance, "a") is JobState.REJECTED

    def test_a_failed_job_is_submitted_again(self, instance, tmp_path):
        """Given one that failed for good, when it is sent again, then it is not over until it ran."""
        path = tmp_path / "a.parquet"
        pq.write_table(pa.table({"id": [1], "n": [2]}), path)
        instance.jobs.submit_ingest("numbers", path, "a")
        work(instance)
        assert waited(instance, "a") is JobState.FAILED

        instance.jobs.submit_ingest("numbers", written(path, 1), "a")
        assert not instance.jobs.job("a").is_over
        work(instance)
        assert waited(instance, "a") is JobState.FINISHED

    def test_a_query_is_submitted_again_after_a_rejection(self, instance):
        """Given a rejected query, when its id is sent again, then it is queued, then completed."""
        send(instance, "query", queryId="q", tableName="numbers", type="Query", regions=[{"x": {}}])
        work(instance, "query")
        assert instance.jobs.query("q").state is QueryState.FAILED
        instance.jobs.submit_query("numbers", query_id="q")
        assert instance.jobs.query("q").state is QueryState.QUEUED
        work(instance, "query")
        assert instance.jobs.query("q").state is QueryState.COMPLETED

    def test_a_dead_letter_is_put_back_and_rejected(self, instance, tmp_path, monkeypatch):
        """Given a job that failed for good, when its message comes again for no file, it is over."""
        path = written(tmp_path / "a.parquet", 1)
        instance.jobs.submit_ingest("numbers", path, "a")
        with monkeypatch.context() as patch:
            patch.setattr(IngestWork, "run", no_answer)
            work(instance)
        assert waited(instance, "a") is JobState.FAILED

        path.unlink()
        assert instance.jobs.redrive("ingest") == 1
        assert not instance.jobs.job("a").is_over
        work(instance)

        status = instance.jobs.job("a")
        assert status.is_over
        assert status.reasons[0].startswith("Could not find")


class TestTrackers:
    """A tracker that cannot be asked makes no job endless (TRK-9)."""

    @pytest.mark.parametrize("failures", [1, 2])
    @pytest.mark.parametrize("end", [JobState.REJECTED, JobState.FAILED])
    def test_a_tracker_that_cannot_be_asked_at_the_end(
        self, instance, tmp_path, end, failures, monkeypatch
    ):
        """Given failed runs, when the last one cannot be counted by events, then the job is over."""
        path = written(tmp_path / "a.parquet", 1)
        ask = SqliteTracker.events_of_job
        runs: list[str] = []

        def fail(self: IngestWork, context: Any) -> Any:
            runs.append(context.run_id)
            if len(runs) == failures and end is JobState.REJECTED:
                path.unlink()
            raise StorageFailed("no answer") if len(runs) <= failures else BadRequest("no rows")

        def asked(self: SqliteTracker, kind: JobKind, job_id: str) -> list[JobEvent]:
            if len(runs) >= failures:
                raise StorageFailed("throttled")
            return ask(self, kind, job_id)

        monkeypatch.setattr(IngestWork, "run", fail)
        instance.jobs.submit_ingest("numbers", path, "a")
        with monkeypatch.context() as patch:
            patch.setattr(SqliteTracker, "events_of_job", asked)
            work(instance)

        status = instance.jobs.job("a")
        assert status.is_over
        assert len(status.runs) == len(runs)
        assert status.reasons[0].startswith("no rows" if end is JobState.FAILED else "Could not")


class TestClocks:
    """What comes last is told by the attempt, not by the time that a clock shows (TRK-9)."""

    @pytest.mark.parametrize("behind", [timedelta(seconds=50), timedelta(days=3 * 365)], ids=str)
    def test_a_clock_that_is_behind(self, instance, tmp_path, behind, monkeypatch):
        """Given workers whose clock is behind the sender's, then a job that failed is over."""
        path = tmp_path / "a.parquet"
        pq.write_table(pa.table({"id": [1], "n": [2]}), path)
        instance.jobs.submit_ingest("numbers", path, "a")
        recorder = instance.jobs.recorder
        monkeypatch.setattr(recorder, "now", lambda: datetime.now(UTC) - behind)
        work(instance)

        assert waited(instance, "a") is JobState.FAILED
        assert instance.jobs.job("a").is_given_up

    def test_a_first_run_on_a_clock_that_is_ahead(self, instance, tmp_path, monkeypatch):
        """Given a first try by a clock of tomorrow, then the last one says that the job is over."""
        ahead = [timedelta(days=1), timedelta(0), timedelta(seconds=-30)]
        runs: list[timedelta] = []

        def fail(self: IngestWork, context: Any) -> Any:
            runs.append(ahead[len(runs)])
            raise StorageFailed("no answer")

        monkeypatch.setattr(IngestWork, "run", fail)
        monkeypatch.setattr(
            instance.jobs.recorder,
            "now",
            lambda: datetime.now(UTC) + (runs[-1] if runs else ahead[0]),
        )
        instance.jobs.submit_ingest("numbers", written(tmp_path / "a.parquet", 1), "a")
        work(instance)

        assert len(runs) == 3
        assert waited(instance, "a") is JobState.FAILED
        assert len(instance.jobs.dead_letters(QueueName.INGEST)) == 1
