"""Replay and commit, over a log that fails where a test tells it to."""

from __future__ import annotations

import json
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import count

import pytest

from sleeper.errors import (
    BadRequest,
    CommitContended,
    CommitRefused,
    CommitUnknown,
    DataDamaged,
    FileAlreadyExists,
    FileReferenceNotFound,
    JobAlreadyCommitted,
    StorageFailed,
    StorageFull,
    StorageReadOnly,
    TableChanged,
)
from sleeper.state.commit import apply_entry, commit_group, replay
from sleeper.state.log_entry import (
    LogEntry,
    decode_entry,
    encode_entry,
    entry_digest,
    without_keys,
)
from sleeper.state.table_state import CommittedJob, TableState
from sleeper.state.transactions.files import (
    AddFiles,
    Claim,
    ClaimFiles,
    DeleteFiles,
    ReferencePush,
    ReplaceFiles,
    SplitFileReferences,
)
from sleeper.state.transactions.formats import SetFormat
from sleeper.state.transactions.partitions import InitialisePartitions, MergePartitions
from tests.unit.state.small_tables import MUCH_LATER, NOON, ROOT, SCHEMA, contents, ref, split

READY = InitialisePartitions(partitions=(ROOT,))


@dataclass
class Log:
    """A log in a dictionary. `appends` and `reads` say how the next calls of each kind end.

    For an append: "lost" does it and loses the reply; an error is raised without doing it; a
    body is another writer's, who is first. For a read: an error is raised.
    """

    entries: dict = field(default_factory=dict)
    appends: list = field(default_factory=list)
    reads: list = field(default_factory=list)
    looks: int = 0

    def append(self, number, body):
        how = self.appends.pop(0) if self.appends else None
        if isinstance(how, StorageFailed):
            raise how
        if isinstance(how, bytes):
            self.entries.setdefault(number, how)
        self.entries.setdefault(number, body)
        if how == "lost":
            raise StorageFailed("the reply got lost")
        return self.entries[number] == body

    def read(self, number):
        how = self.reads.pop(0) if self.reads else None
        if isinstance(how, StorageFailed):
            raise how
        return self.entries.get(number)

    def writer_lock(self, pause):
        return nullcontext()

    def read_after(self, number, *, up_to=None):
        self.looks += 1
        while number + 1 in self.entries:
            number += 1
            yield number, self.entries[number]


@dataclass
class Writer:
    """One process: what it knows, and the arguments that every commit takes."""

    log: Log
    name: str = "w"
    known: TableState = field(default_factory=TableState.empty)
    pauses: list = field(default_factory=list)
    attempts: int = 10
    now: datetime = NOON

    def __post_init__(self):
        self.ids = count()

    def arguments(self):
        return {
            "schema": SCHEMA,
            "now": lambda: self.now,
            "new_id": lambda: f"{self.name}-{next(self.ids)}",
            "pause": self.pauses.append,
            "attempts": self.attempts,
        }

    def commit(self, transaction):
        self.known = self.commit_group(transaction).of_one()
        return self.known

    def commit_group(self, *transactions, together=False):
        given = self.arguments()
        done = commit_group(transactions, self.log, self.known, together=together, **given)
        self.known = done.state
        return done


@pytest.fixture
def log():
    return Log()


@pytest.fixture
def writer(log):
    """A writer whose table has the partition `root`, at transaction 1."""
    writer = Writer(log)
    writer.commit(READY)
    return writer


def add(filename, job_id=None):
    job = None
    if job_id:
        job = CommittedJob(job_id=job_id, keep_until=MUCH_LATER, rows_read=1, rows_written=1)
    return AddFiles(references=(ref(filename),), job=job)


def claim(job_id, *filenames):
    return ClaimFiles(assignments=(Claim(job_id=job_id, partition_id="root", filenames=filenames),))


IMPOSSIBLE = (
    AddFiles(references=(ref("a", "nowhere"),)),
    claim("job", "gone"),
    DeleteFiles(filenames=("gone",)),
    MergePartitions(parent_id="root", child_ids=("L", "R")),
    ReplaceFiles(job_id="job", inputs=("gone",), output=ref("new")),
    SplitFileReferences(
        pushes=(ReferencePush(filename="a", partition_id="root", into=(ref("a", "L"),)),)
    ),
    split(split(ROOT, 50, "L", "R").children[0], 20, "LL", "LR"),
)


def body_of(*transactions, entry_id="theirs"):
    return encode_entry(LogEntry(entry_id=entry_id, at=NOON, transactions=transactions), SCHEMA)


def files_in(log):
    """The names of all files, replayed from the log alone."""
    state = replay(TableState.empty(), log.read_after(0), SCHEMA)
    return [each.filename for each in state.references()]


class TestReplay:
    """From entries to a state."""

    def test_every_entry_is_one_number(self, log, writer):
        """A state that is replayed equals the one that its writer had."""
        writer.commit(add("a"))
        writer.commit_group(add("b"), add("c"))

        replayed = replay(TableState.empty(), log.read_after(0), SCHEMA)

        assert replayed.number == 3
        assert contents(replayed) == contents(writer.known)

    def test_refuses_a_gap(self, writer):
        """The message says which entry is missing."""
        entry = LogEntry(entry_id="x", at=NOON, transactions=())

        with pytest.raises(DataDamaged, match="no entry 2: after 1 comes 3"):
            apply_entry(writer.known, 3, entry)

    @pytest.mark.parametrize("impossible", IMPOSSIBLE, ids=lambda each: type(each).__name__)
    def test_refuses_an_entry_that_changes_what_is_not_there(self, log, writer, impossible):
        """No rule can have allowed it, so the log is damaged."""
        log.entries[2] = body_of(impossible)

        with pytest.raises(DataDamaged, match="entry 2 of the transaction log does not fit"):
            replay(writer.known, log.read_after(1), SCHEMA)

    def test_follows_entries_that_todays_rules_would_refuse(self, log, writer):
        """They were committed, by a version with other rules: history is not judged again."""
        claims = [claim("one", "a"), claim("two", "a")]
        log.entries[2] = body_of(add("a", "job"), add("b", "job"), *claims)

        replayed = replay(writer.known, log.read_after(1), SCHEMA)

        assert [(ref.filename, ref.job_id) for ref in replayed.references()] == [
            ("a", "two"),
            ("b", None),
        ]
        for refused in (add("b"), claim("three", "a"), add("c", "job")):
            with pytest.raises(CommitRefused):
                refused.check(replayed)

    def test_names_an_entry_that_it_cannot_read(self, log, writer):
        """Damage has a place."""
        log.entries[2] = b"{"

        with pytest.raises(DataDamaged, match="entry 2 of the transaction log"):
            replay(writer.known, log.read_after(1), SCHEMA)


class TestChain:
    """Entries of format 2, each of which names the one before it by its digest (rule STS-28)."""

    @pytest.fixture
    def writer(self, writer):
        """Its table has format 2 from transaction 2 on."""
        writer.commit(SetFormat(format=2))
        return writer

    def test_each_entry_names_the_one_before_it(self, log, writer):
        """Given a table that was upgraded, the chain begins there, and the state has its end."""
        writer.commit(add("a"))
        writer.commit(add("b"))

        entries = [decode_entry(log.entries[n], SCHEMA, "") for n in (1, 2, 3, 4)]
        digests = [entry_digest(log.entries[n]) for n in (2, 3, 4)]

        assert [each.format for each in entries] == [1, 2, 2, 2]
        assert [each.prev for each in entries] == [None, None, *digests[:2]]
        replayed = replay(TableState.empty(), log.read_after(0), SCHEMA)
        assert writer.known.digest == replayed.digest == digests[2]
        assert contents(replayed) == contents(writer.known)

    def test_an_entry_that_was_changed_is_noticed(self, log, writer):
        """Given an entry whose file has another number of rows now, it cannot be followed."""
        writer.commit(add("a"))
        writer.commit(add("b"))
        log.entries[3] = log.entries[3].replace(b'"numberOfRows":100', b'"numberOfRows":101')

        with pytest.raises(DataDamaged, match=r"entry 4 .* after another entry 3 .*verify --chain"):
            replay(TableState.empty(), log.read_after(0), SCHEMA)

    def test_an_entry_without_its_keys_is_followed(self, log, writer):
        """Given the first key of a file, when it is removed, later entries follow as before."""
        writer.commit(AddFiles(references=(ref("a", first_key="[4711]", last_key="[4712]"),)))
        writer.commit(add("b"))
        log.entries[3] = without_keys(log.entries[3], [4711])

        replayed = replay(TableState.empty(), log.read_after(0), SCHEMA)

        assert replayed.digest == writer.known.digest
        assert [each.first_key for each in replayed.references()] == [None, None]
        assert b"4711" not in log.entries[3]

    def test_ends_where_the_table_goes_back_to_format_1(self, log, writer):
        """Given a table that is set back, entries after that are as an older version reads them."""
        writer.commit(SetFormat(format=1))
        writer.commit(add("a"))

        assert decode_entry(log.entries[3], SCHEMA, "").prev == entry_digest(log.entries[2])
        assert json.loads(log.entries[4])["format"] == 1
        assert "prev" not in json.loads(log.entries[4])
        assert writer.known.digest is None

    def test_a_format_is_set_once(self, writer):
        """Given two who upgrade, the second is told that it was done."""
        with pytest.raises(TableChanged, match="has format 2 already"):
            writer.commit(SetFormat(format=2))


class TestCommit:
    """One transaction."""

    def test_appends_one_entry_and_returns_the_state_after_it(self, log, writer):
        """The entry holds the transaction, its time, and an id that nobody else has."""
        state = writer.commit(add("a"))

        assert state.number == 2
        assert decode_entry(log.entries[2], SCHEMA, "entry 2") == LogEntry(
            entry_id="w-1", at=NOON + timedelta(milliseconds=1), transactions=(add("a"),)
        )

    def test_dates_an_entry_after_the_one_before_it(self, log, writer):
        """Time never goes back in a log, whatever a writer is told."""
        writer.now = NOON - timedelta(days=365)

        early = writer.commit(add("a")).at
        writer.now = NOON + timedelta(hours=1)
        late = writer.commit(add("b")).at

        assert (early, late) == (NOON + timedelta(milliseconds=1), NOON + timedelta(hours=1))
        assert replay(TableState.empty(), log.read_after(0), SCHEMA).at == late

    def test_is_checked_against_what_others_have_committed(self, log, writer):
        """A writer that knows an old state only is refused by the new one."""
        other = Writer(log, "other")
        other.commit(add("a"))

        with pytest.raises(FileAlreadyExists, match="'a'"):
            writer.commit(add("a"))
        assert list(log.entries) == [1, 2]

    def test_goes_round_again_after_a_lost_race(self, log, writer):
        """Somebody takes number 2 at the last moment; the commit becomes number 3."""
        log.appends = [body_of(add("theirs"))]

        state = writer.commit(add("ours"))

        assert state.number == 3
        assert files_in(log) == ["ours", "theirs"]
        assert writer.pauses == [0]

    def test_reads_what_others_commit_while_it_waits_for_its_turn(self, log, writer, monkeypatch):
        """Whoever has the turn holds up all others: it reads only what came last."""
        others, inside = Log(entries=log.entries), []

        @contextmanager
        def writer_lock(meanwhile):
            for name in ("a", "b"):
                Writer(others, name).commit(add(name))
                for _ in range(10):  # now and then it reads, and each time it waits
                    meanwhile()
            monkeypatch.setattr(log, "read_after", lambda n: inside.append(n) or iter(()))
            yield

        monkeypatch.setattr(log, "writer_lock", writer_lock)

        writer.commit(add("c"))

        assert inside == [3]
        assert writer.pauses == 20 * [0]
        assert files_in(others) == ["a", "b", "c"]

    def test_is_refused_after_a_lost_race_to_the_same_change(self, log, writer):
        """Two writers add one file; the slower one finds out when it goes round."""
        log.appends = [body_of(add("a"))]

        with pytest.raises(FileAlreadyExists):
            writer.commit(add("a"))
        assert list(log.entries) == [1, 2]

    def test_gives_up_after_so_many_lost_races(self, log, writer):
        """Nothing of ours is in the log; waiting after the last race would be for nothing."""
        writer.attempts = 3
        log.appends = [body_of(add(f"theirs-{n}")) for n in range(3)]

        with pytest.raises(
            CommitContended, match="in 3 attempts, the last time for transaction 4"
        ) as contended:
            writer.commit(add("ours"))

        assert contended.value.retryable
        assert "ours" not in files_in(log)
        assert writer.pauses == [0, 1]

    def test_with_no_attempts_nothing_is_tried(self, log, writer):
        """STS-14: not even a look at the log; the error names the property and not other writers."""
        writer.attempts, looks = 0, log.looks

        with pytest.raises(CommitContended, match=r"no attempt .*max\.attempts is 0.*1 or more"):
            writer.commit(add("a"))
        assert log.looks == looks

    def test_writes_nothing_when_nothing_changes(self, log, writer):
        """An empty transaction is done at once; the state has caught up all the same."""
        Writer(log, "other").commit(add("a"))

        assert writer.commit(AddFiles()).number == 2
        assert list(log.entries) == [1, 2]

    def test_writes_nothing_that_could_not_be_read_back(self, log, writer):
        """A wrong type is the caller's error, and not the table's end."""
        with pytest.raises(BadRequest):
            writer.commit(AddFiles(references=(ref("a", row_count=1.0),)))
        assert list(log.entries) == [1]


class TestLostReplies:
    """Storage fails while the entry is being written."""

    def test_an_entry_that_arrived_is_a_success(self, log, writer):
        """The entry is read back, and is ours: not refused as its own duplicate."""
        log.appends = ["lost"]

        assert writer.commit(add("a", "job-1")).number == 2
        assert list(log.entries) == [1, 2]

    def test_an_entry_that_did_not_arrive_is_sent_again(self, log, writer):
        """The same body, so that the two cannot both count."""
        log.appends = [StorageFailed("no answer")]

        assert writer.commit(add("a")).number == 2
        assert writer.pauses == [0]

    def test_an_entry_of_somebody_else_is_a_lost_race(self, log, writer):
        """The number is taken, so ours can never arrive there."""
        log.appends = [body_of(add("theirs"))]
        append = log.append

        def append_without_answer(number, body):
            log.append = append
            append(number, body)
            raise StorageFailed("no answer")

        log.append = append_without_answer
        state = writer.commit(add("ours"))

        assert state.number == 3
        assert files_in(log) == ["ours", "theirs"]

    def test_without_any_answer_the_outcome_is_unknown(self, log, writer):
        """The message forbids to delete the files, and says how to find out."""
        log.appends = [StorageFailed("no answer")] * 3
        log.reads = [StorageFailed("no answer")] * 3

        with pytest.raises(CommitUnknown, match=r"Do not delete its files.*same job id") as unknown:
            writer.commit(add("a"))

        assert unknown.value.retryable

    def test_an_entry_that_may_be_on_its_way_is_unknown(self, log, writer):
        """It is absent, but a request without an answer may still arrive."""
        log.appends = [StorageFailed("no answer")] * 3

        with pytest.raises(CommitUnknown):
            writer.commit(add("a"))
        assert writer.pauses == [0, 1]

    def test_running_the_same_job_again_finds_out(self, log, writer):
        """After an unknown outcome that was a success, the job is recognised."""
        log.appends = ["lost", "lost", "lost"]
        log.reads = [StorageFailed("no answer")] * 3
        with pytest.raises(CommitUnknown):
            writer.commit(add("a", "job-1"))

        with pytest.raises(JobAlreadyCommitted) as done:
            writer.commit(add("b", "job-1"))

        assert done.value.number == 2
        assert files_in(log) == ["a"]

    @pytest.mark.parametrize("refusal", [StorageFull("disk full"), StorageReadOnly("read-only")])
    def test_storage_that_refuses_is_told_as_it_is(self, log, writer, refusal):
        """The entry is not there and cannot come: nothing was written."""
        log.appends = [refusal]

        with pytest.raises(type(refusal), match=str(refusal)):
            writer.commit(add("a"))
        assert list(log.entries) == [1]

    def test_a_refusal_after_no_answer_is_no_certainty(self, log, writer):
        """The first request may still be on its way when the second is refused."""
        log.appends = [StorageFailed("no answer"), StorageFull("disk full"), StorageFull("full")]

        with pytest.raises(CommitUnknown):
            writer.commit(add("a"))

    def test_a_full_disk_that_cannot_be_read_either_is_unknown(self, log, writer):
        """Without a look nobody knows what was written before the disk was full."""
        log.appends = [StorageFull("disk full")] * 3
        log.reads = [StorageFailed("no answer")] * 3

        with pytest.raises(CommitUnknown):
            writer.commit(add("a"))

    def test_storage_that_fails_before_the_append_has_written_nothing(self, log, writer):
        """Then the error is the storage's own, and the commit can be tried again."""
        log.read_after = lambda number: (_ for _ in ()).throw(StorageFailed("no answer"))

        with pytest.raises(StorageFailed) as failed:
            writer.commit(add("a"))

        assert not isinstance(failed.value, CommitUnknown)
        assert list(log.entries) == [1]


class TestGroups:
    """Many transactions in one entry."""

    def test_share_one_entry_and_one_number(self, log, writer):
        """Jobs that are committed together name the same transaction."""
        done = writer.commit_group(add("a", "job-1"), add("b", "job-2"))

        assert list(log.entries) == [1, 2]
        assert done.refusals == (None, None)
        assert [done.state.jobs.find(job).number for job in ("job-1", "job-2")] == [2, 2]

    def test_a_refused_one_gets_its_answer_and_the_others_go_on(self, log, writer):
        """Each is checked against the state with those before it applied."""
        claim = ClaimFiles(
            assignments=(Claim(job_id="job", partition_id="root", filenames=("a",)),)
        )

        done = writer.commit_group(claim, add("a"), add("a"), claim)

        assert [type(each) for each in done.refusals] == [
            FileReferenceNotFound,
            type(None),
            FileAlreadyExists,
            type(None),
        ]
        entry = decode_entry(log.entries[2], SCHEMA, "entry 2")
        assert entry.transactions == (add("a"), claim)
        assert done.state.is_assigned("job", "root", ["a"])

    def test_one_job_twice_in_a_group_counts_once(self, log, writer):
        """A message that was delivered twice into one batch."""
        done = writer.commit_group(add("a", "job-1"), add("b", "job-1"))

        assert done.refusals[0] is None
        assert isinstance(done.refusals[1], JobAlreadyCommitted)
        assert files_in(log) == ["a"]

    def test_write_nothing_when_all_are_refused(self, log, writer):
        """The state that is returned has caught up with the log."""
        Writer(log, "other").commit(add("a"))

        done = writer.commit_group(add("a"), add("a"))

        assert list(log.entries) == [1, 2]
        assert done.state.number == 2
        assert all(done.refusals)

    def test_that_belong_together_are_refused_together(self, log, writer):
        """One that is refused keeps the others from the log, also after a lost race."""
        log.appends = [body_of(add("a"))]

        done = writer.commit_group(add("b"), add("a"), together=True)

        assert [type(each) for each in done.refusals] == [type(None), FileAlreadyExists]
        assert (done.state.number, files_in(log)) == (2, ["a"])
        assert writer.commit_group(add("b"), add("c"), together=True).refusals == (None, None)

    def test_are_checked_again_after_a_lost_race(self, log, writer):
        """A second committer by accident: what it took in is refused, the rest goes on."""
        log.appends = [body_of(add("a"))]

        done = writer.commit_group(add("a"), add("b"))

        assert isinstance(done.refusals[0], FileAlreadyExists)
        assert done.refusals[1] is None
        assert files_in(log) == ["a", "b"]

    def test_answers_do_not_come_from_their_own_entry(self, log, writer):
        """After a lost reply, what was committed is not refused as its own duplicate."""
        log.appends = ["lost"]

        done = writer.commit_group(add("a", "job-1"), add("b", "job-2"))

        assert done.refusals == (None, None)
        assert files_in(log) == ["a", "b"]
