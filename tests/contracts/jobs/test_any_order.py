"""SQLite does in any order of calls what the adapters in memory do, under one clock."""

from __future__ import annotations

import tempfile
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from sleeper.model.jobs.events import JobEvent, JobEventType, JobFilter, TaskEvent
from sleeper.model.jobs.kinds import JobKind, QueueName
from sleeper.model.jobs.messages import NewMessage, QueueSettings
from sleeper.model.jobs.submitted_files import SubmittedFile
from sleeper.storage.local.jobs.job_stores import SqliteJobStores
from tests.contracts.jobs.clock import Clock, numbered
from tests.contracts.jobs.dictionaries import MemoryJobStores
from tests.soak import tries

EXAMPLES = tries(30, soak=3_000, mutants=600)
SETTINGS = {
    QueueName.INGEST: QueueSettings(visibility_s=30, receives_max=2),
    QueueName.COMMIT: QueueSettings(fifo=True, visibility_s=30, receives_max=3),
}
NOON = datetime(2026, 5, 4, 12, tzinfo=UTC)
seconds = st.sampled_from([0, 0.000001, 1, 10, 29, 30, 31, 60, 300, 900])
few = st.integers(0, 3)
times = few.map(lambda hours: NOON + timedelta(hours=hours))
windows = st.none() | times
files = st.builds(
    SubmittedFile,
    table_id=st.sampled_from(["t", "u"]),
    path=st.sampled_from("abcd"),
    size_bytes=few,
    received=times,
    expires=times,
)
job_events = st.builds(
    JobEvent,
    kind=st.sampled_from([JobKind.INGEST, JobKind.QUERY]),
    table_id=st.sampled_from(["t", "u"]),
    job_id=st.sampled_from("ab"),
    type=st.just(JobEventType.STARTED),
    at=times,
    task_id=st.sampled_from(["1", "2", None]),
)
task_events = st.builds(
    TaskEvent,
    kind=st.just(JobKind.INGEST),
    task_id=st.sampled_from("12"),
    at=times,
    is_finished=st.booleans(),
    host=st.just("here"),
    pid=few,
)


class Pair(RuleBasedStateMachine):
    """Every call goes to both adapters, which must answer alike."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.clock = Clock()
        how = {"now": self.clock.now, "sleep": self.clock.sleep}
        self.memory = MemoryJobStores(SETTINGS, **how, new_id=numbered("id-"))
        path = Path(self.folder.name) / "jobs.sqlite"
        self.sqlite = SqliteJobStores(path, SETTINGS, **how, new_id=numbered("id-"))
        self.receipts = {name: [("0-", "0-")] for name in SETTINGS}

    def teardown(self) -> None:
        self.sqlite.close()
        self.folder.cleanup()

    def both(self, call):
        """Call both, and return what both answered."""
        expected, found = call(self.memory), call(self.sqlite)
        assert found == expected
        return expected

    @rule(by=st.sampled_from([0.000001, 1, 29, 31, 299, 301, 7_200, -30, -59, -61, -7_200]))
    def time_passes(self, by):
        self.clock.time += timedelta(seconds=by)

    @rule(bodies=st.lists(st.sampled_from("xyz"), max_size=3), delay_s=seconds)
    def send(self, bodies, delay_s):
        messages = [NewMessage(body=body, delay_s=delay_s) for body in bodies]
        self.both(lambda stores: stores.queue(QueueName.INGEST).send(messages))

    @rule(
        names=st.lists(st.sampled_from(["a1", "a2", "b1"]), max_size=4), deduplicated=st.booleans()
    )
    def send_in_groups(self, names, deduplicated):
        messages = [
            NewMessage(body=name, group=name[0], deduplication_id=name if deduplicated else None)
            for name in names
        ]
        self.both(lambda stores: stores.queue(QueueName.COMMIT).send(messages))

    @rule(
        name=st.sampled_from([*SETTINGS]), count=st.integers(1, 4), visibility_s=st.none() | seconds
    )
    def receive(self, name, count, visibility_s):
        how = {"count_max": count, "visibility_s": visibility_s}
        expected = self.memory.queue(name).receive(**how)
        found = self.sqlite.queue(name).receive(**how)
        assert without_receipts(found) == without_receipts(expected)
        self.receipts[name] += [
            (ours.receipt, theirs.receipt) for ours, theirs in zip(expected, found, strict=True)
        ]

    @rule(
        name=st.sampled_from([*SETTINGS]),
        data=st.data(),
        what=st.sampled_from(["delete", "extend", "release", "release uncounted", "bury"]),
        for_s=seconds,
    )
    def use_receipts(self, name, data, what, for_s):
        used = data.draw(st.lists(st.sampled_from(self.receipts[name][-8:]), max_size=3))
        arguments = {"extend": [for_s], "release": [for_s], "bury": ["why"]}.get(what.split()[0])
        named = {"counted": False} if what == "release uncounted" else {}
        answers = []
        for stores, side in ((self.memory, 0), (self.sqlite, 1)):
            queue, receipts = stores.queue(name), [pair[side] for pair in used]
            if arguments is None:
                answers.append(queue.delete(receipts))
            else:
                use = getattr(queue, what.split()[0])
                answers.append([use(each, *arguments, **named) for each in receipts])
        assert answers[0] == answers[1]

    @rule(name=st.sampled_from([*SETTINGS]), one=st.booleans(), redriven=st.booleans())
    def use_dead_letters(self, name, one, redriven):
        letters = self.both(lambda stores: stores.queue(name).dead_letters())
        ids = [letter.message_id for letter in letters[:1]] if one else None
        what = "redrive" if redriven else "delete_dead_letters"
        self.both(lambda stores: getattr(stores.queue(name), what)(ids))

    @rule(name=st.sampled_from([*SETTINGS]))
    def look_at_the_depth(self, name):
        self.both(lambda stores: stores.queue(name).depth())

    @rule(events=st.lists(job_events | task_events, max_size=4), expires=times)
    def record(self, events, expires):
        self.both(lambda stores: stores.tracker.record(events, expires=expires))

    @rule(
        wanted=st.builds(
            JobFilter,
            kind=job_events.map(lambda each: each.kind),
            table_id=st.sampled_from([None, "t"]),
            task_id=st.sampled_from([None, "1"]),
            since=windows,
            until=windows,
        )
    )
    def look_at_jobs(self, wanted):
        self.both(lambda stores: by_newest(stores.tracker.jobs(wanted)))
        self.both(lambda stores: stores.tracker.events_of_job(wanted.kind, "a"))
        self.both(lambda stores: sorted(stores.tracker.tasks(), key=repr))

    @rule(now=times)
    def forget_events(self, now):
        self.both(lambda stores: stores.tracker.delete_expired(now))

    @rule(submitted=st.lists(files, max_size=4))
    def submit(self, submitted):
        self.both(lambda stores: stores.batcher.save(submitted))

    @rule(job_id=st.sampled_from("jkl"), others=st.lists(files, max_size=2), count=few)
    def assign(self, job_id, others, count):
        if job_id in {each.job_id for each in self.memory.batcher.newest()}:
            return  # ids of jobs are fresh
        chosen = [*self.memory.batcher.pending()[:count], *others]
        self.both(lambda stores: stores.batcher.assign(job_id, chosen, QueueName.INGEST))
        self.both(lambda stores: stores.batcher.unsent())

    @rule(job_id=st.sampled_from("jkl"))
    def note_sent(self, job_id):
        self.both(lambda stores: stores.batcher.note_sent(job_id))

    @rule(what=st.sampled_from(["pending", "expired", "tables"]), now=times)
    def delete_files(self, what, now):
        if what == "pending":
            self.both(lambda stores: stores.batcher.delete_pending())
        elif what == "expired":
            self.both(lambda stores: stores.batcher.delete_expired(now))
        else:
            self.both(lambda stores: stores.batcher.delete_tables_except(["t"]))

    @rule()
    def look_at_files(self):
        self.both(lambda stores: list(stores.batcher.newest()))
        self.both(lambda stores: stores.batcher.pending())
        self.both(lambda stores: stores.batcher.unsent())


def without_receipts(messages):
    return [{**asdict(message), "receipt": None} for message in messages]


def by_newest(jobs):
    """Jobs in their order, those of one moment in any."""
    listed = [(max(event.at for event in events), events) for events in jobs]
    assert listed == sorted(listed, key=lambda each: each[0], reverse=True)
    return sorted(listed, key=lambda each: (each[0], repr(each[1])))


@pytest.mark.soak
def test_sqlite_and_memory_answer_alike():
    """Whatever is called, in whatever order, while time passes or leaps."""
    run_state_machine_as_test(
        Pair, settings=settings(max_examples=EXAMPLES, stateful_step_count=40)
    )
