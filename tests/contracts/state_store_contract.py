"""What every state store must do, wherever it keeps the state of a table.

Most tests compare a store, as another process reads it, with the same transactions applied in
memory: so all stores come to the same states and the same refusals.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from threading import Event

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sleeper.errors import (
    BadRequest,
    CommitContended,
    CommitRefused,
    CommitTooLarge,
    FileAlreadyExists,
    FileReferenceAssignedToJob,
    JobAlreadyCommitted,
    StateMoved,
    VersionNotFound,
)
from sleeper.model.files import ClaimOwner
from sleeper.model.partitions import Partition, tree_from_split_points
from sleeper.model.queries import key_region
from sleeper.model.ranges import whole_region
from sleeper.model.schema import Field, Primitive, Schema
from sleeper.model.tables import StateMove
from sleeper.state.table_state import CommittedJob, TableState
from sleeper.state.transactions.deletes import DeleteRows
from sleeper.state.transactions.files import (
    AddFiles,
    Claim,
    ClaimFiles,
    ClearFiles,
    DeleteFiles,
    ReferencePush,
    ReleaseClaims,
    RenewClaims,
    ReplaceFiles,
    SplitFileReferences,
    SweepOrphans,
    UpsertFiles,
)
from sleeper.state.transactions.formats import SetFormat
from sleeper.state.transactions.moves import MoveState
from sleeper.state.transactions.partitions import (
    ExtendPartitionTree,
    InitialisePartitions,
    MergePartitions,
)
from sleeper.state.transactions.schemas import SetSchema
from tests.soak import tries
from tests.unit.state.any_transactions import schemas, transactions
from tests.unit.state.small_tables import MUCH_LATER, NOON, ROOT, SCHEMA, contents, part, ref, split

BEGIN = InitialisePartitions(partitions=(ROOT,))
OWNER = ClaimOwner(host="höst.example", pid=4_194_304, worker_id="w|1\n")
LONG_AGO = datetime(1970, 1, 2, tzinfo=UTC)
FAR_AHEAD = datetime(8999, 1, 1, tzinfo=UTC)
WRITERS, COMMITS = 4, 4


def add(*names, job=None):
    return AddFiles(references=tuple(ref(name) for name in names), job=job)


def job(job_id, **more):
    values = {"keep_until": MUCH_LATER, "rows_read": 9, "rows_written": 8, **more}
    return CommittedJob(job_id=job_id, **values)


def names(state):
    return [each.filename for each in state.references()]


def claim(job_id, partition_id, *filenames):
    return Claim(job_id=job_id, partition_id=partition_id, filenames=filenames)


def push(filename, row_count=50):
    parts = tuple(part(filename, leaf, row_count) for leaf in ("L", "R"))
    parts = tuple(replace(each, row_count_estimated=False) for each in parts)
    return SplitFileReferences(
        pushes=(ReferencePush(filename=filename, partition_id="root", into=parts),)
    )


EVERY_KIND = (
    BEGIN,
    AddFiles(references=(ref("a"), ref("b"), ref("c")), unreferenced=("w",), job=job("job-1")),
    split(ROOT, 50, "L", "R"),
    push("a"),
    AddFiles(
        references=(
            ref(
                "keys",
                "L",
                size_bytes=2**63 - 1,
                schema_id=1,
                first_key="[-9223372036854775808]",
                last_key="[49]",
            ),
            ref("d", "R", row_count=2**63 - 1),
        ),
        written_since=NOON,
    ),
    ClaimFiles(assignments=(claim("c-1", "L", "a", "keys"), claim("c-2", "R", "d")), owner=OWNER),
    RenewClaims(job_ids=("c-1", "c-2")),
    ReplaceFiles(
        job_id="c-1", inputs=("a", "keys"), output=ref("out", "L"), task_id="t", run_id="r"
    ),
    ReleaseClaims(claims=(claim("c-2", "R", "d"),)),
    DeleteFiles(filenames=("w", "keys")),
    split(replace(split(ROOT, 50, "L", "R").children[0]), 20, "LL", "LR"),
    MergePartitions(parent_id="L", child_ids=("LL", "LR")),
    SweepOrphans(before=NOON - timedelta(days=3)),
    SetSchema(schema_id=2, schema=SCHEMA),
    SetFormat(format=2),
    ClearFiles(),
    InitialisePartitions(partitions=()),
)
"""One of each kind at least, each allowed after those before it."""

ODD_NAMES = (
    "data/partition_root/with space and 'quotes\".parquet",
    "data/partition_root/é漢字🙂.parquet",
    "data/partition_root/#;|%00=?&+.parquet",
    "data/partition_root/\t\n\x7f.parquet",
    f"data/partition_root/{'x' * 200}.parquet",
    f"data/partition_root/{'é' * 600}.parquet",
    f"data/partition_root/{'é' * 600}y.parquet",
)
ODD_TABLES = {
    "bytes": (Primitive.BYTES, [b"\0", b"\0\0", b"\xff" * 1000]),
    "string": (Primitive.STRING, ["\0", "a\0b", "\N{PILE OF POO}", "\N{PILE OF POO}" * 200]),
    "int": (Primitive.INT, [-(2**31) + 1, 0, 2**31 - 1]),
    "long": (Primitive.LONG, [-(2**63) + 1, 2**53 + 1, 2**63 - 1]),
    "date": (Primitive.DATE, [date(1, 1, 2), date(1969, 12, 31), date(9999, 12, 31)]),
    "timestamp": (
        Primitive.TIMESTAMP,
        [datetime(2, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)],
    ),
    "timestamp_ntz": (Primitive.TIMESTAMP_NTZ, [datetime(2, 1, 1), datetime(9999, 12, 31)]),
}


def outcome_of(act):
    """Return what an act returns, and None; or None, and how it was refused."""
    try:
        return act(), None
    except (CommitRefused, VersionNotFound) as refusal:
        return None, refusal


class InMemory:
    """The same transactions, applied in memory."""

    def __init__(self, schema=SCHEMA, state=None):
        self.schema, self.state = schema, state or TableState.empty()

    def commit(self, transaction, committed):
        """Apply what a store has committed, with the date of that."""
        at = committed.at
        self.state = transaction.apply(self.following(transaction, at), at)

    def following(self, transaction, at):
        """Return what a transaction is applied to: the first one follows its writer's schema."""
        following = replace(self.state, number=self.state.number + 1, at=at)
        if self.state.schemas or isinstance(transaction, SetSchema):
            return following
        return SetSchema(schema_id=self.state.schema_id, schema=self.schema).fold(following, at)

    def outcome(self, transaction, at):
        """Return the error that it raises here, or whether it changes anything."""
        following = self.following(transaction, at)
        try:
            applied = transaction.apply(following, at)
        except CommitRefused as refusal:
            return type(refusal)
        return applied is not following


def _state_of_another_store():
    """300 files, claims, jobs, a merged leaf, a sweep, two schemas; at transaction 40."""
    memory = InMemory()
    made = EVERY_KIND[: EVERY_KIND.index(ClearFiles())]
    many = AddFiles(references=tuple(ref(f"m{n:03d}", "R") for n in range(300)))
    claims = ClaimFiles(assignments=(claim("c-9", "R", "m007", "m008"),), owner=OWNER)
    for transaction in (*made, many, claims):
        memory.state = transaction.apply(memory.following(transaction, NOON), NOON)
    return replace(memory.state, number=40)


class StateStoreContract:
    """Subclass it and supply `place` (see `tests.contracts.state.places`)."""

    @pytest.fixture
    def store(self, place):
        """A store of a table with one partition, at transaction 1."""
        opened = place.open(is_new=True)
        opened.commit(BEGIN)
        return opened

    @pytest.fixture
    def commits_max(self):
        """How many rounds of threads: fewer where each request is slow."""
        return COMMITS

    # ------------------------------------------------------------ commits

    def test_a_commit_is_there_for_every_process(self, place, store):
        """With the schema, its number, its date, and all that a reference has."""
        committed = store.commit(add("a", "b", job=job("job-1")))

        seen = place.open().state()
        assert (seen.number, names(seen)) == (2, ["a", "b"])
        assert contents(seen) == contents(committed) == contents(store.state())
        assert seen.schemas == {1: SCHEMA}
        assert seen.at is not None
        assert seen.at.tzinfo is not None

    def test_every_kind_of_transaction_has_its_effect(self, place):
        """The same as in memory, after each; whether it is read anew or was there before."""
        store, watcher, memory = place.open(is_new=True), None, InMemory()
        for transaction in EVERY_KIND:
            committed = store.commit(transaction)
            watcher = watcher or place.open()
            memory.commit(transaction, committed)
            assert contents(committed) == contents(memory.state)
            assert contents(watcher.refresh()) == contents(memory.state), transaction

        assert contents(place.open().state()) == contents(memory.state)

    def test_a_refused_transaction_writes_nothing(self, place, store):
        """Its error is that of the state."""
        store.commit(add("a", job=job("job-1")))
        store.commit(ClaimFiles(assignments=(claim("c-1", "root", "a"),)))

        with pytest.raises(FileAlreadyExists):
            store.commit(add("a"))
        with pytest.raises(FileReferenceAssignedToJob):
            store.commit(ClaimFiles(assignments=(claim("c-2", "root", "a"),)))
        with pytest.raises(JobAlreadyCommitted) as done:
            store.commit(add("b", job=job("job-1")))

        assert done.value.number == 2
        assert place.open().state().number == store.state().number == 3

    def test_what_changes_nothing_writes_nothing(self, place, store):
        """It is no refusal, and the number stays."""
        state = store.commit(AddFiles())

        assert (state.number, place.open().state().number) == (1, 1)

    def test_a_group_leaves_out_what_is_refused(self, place, store):
        """Each is checked against what those before it in the group have changed."""
        group = [add("a"), add("a"), add("b", job=job("j")), add("c", job=job("j")), add("d")]

        done = store.commit_group(group)

        kinds = [type(each) for each in done.refusals]
        none = type(None)
        assert kinds == [none, FileAlreadyExists, none, JobAlreadyCommitted, none]
        assert names(done.state) == names(place.open().state()) == ["a", "b", "d"]

    def test_a_group_of_nothing_writes_nothing(self, place, store):
        """Nor does one whose transactions are all refused."""
        store.commit(add("a"))

        assert store.commit_group([]).refusals == ()
        done = store.commit_group([add("a"), add("a")])

        assert [type(each) for each in done.refusals] == [FileAlreadyExists] * 2
        assert place.open().state().number == done.state.number == 2

    def test_a_large_transaction_is_committed_whole_or_refused(self, place, store):
        """A store that takes only so much says so, and has written nothing."""
        many = add(*(f"file-{n:04}" for n in range(500)))

        _, refusal = outcome_of(lambda: store.commit(many))

        if refusal is not None:
            assert type(refusal) is CommitTooLarge
            assert "Nothing was written" in str(refusal)
        expected = [] if refusal else [each.filename for each in many.references]
        assert names(place.open().state()) == names(store.refresh()) == expected

    def test_deletions_of_long_keys_are_kept_or_refused(self, place):
        """A store that has room for fewer says so, has written nothing, and takes the compaction that
        ends them.
        """
        schema = Schema(row_keys=(Field("k", Primitive.STRING),))
        there = place.another_table(schema)
        store = there.open(is_new=True)
        root = Partition(partition_id="root", region=whole_region(schema))
        store.commit(InitialisePartitions(partitions=(root,)))
        store.commit_group([SetFormat(format=2), add("a")])
        regions = [key_region(schema, f"{n:04}" + "\N{SNOWMAN}" * 400) for n in range(400)]

        taken = 0
        for first in range(0, 400, 20):
            some = DeleteRows(regions=tuple(regions[first : first + 20]))
            _, refusal = outcome_of(lambda some=some: store.commit(some))
            if refusal is not None:
                assert type(refusal) is CommitTooLarge
                assert "Nothing was written. Compact the table" in str(refusal)
                assert "ranges instead of single keys" in str(refusal)
                break
            taken += 20
        found = there.open().refresh()
        assert taken > 0
        assert [each for one in found.deletes for each in one.regions] == regions[:taken]
        store.commit(ClaimFiles(assignments=(claim("c", "root", "a"),)))
        store.commit(
            ReplaceFiles(job_id="c", inputs=("a",), output=ref("b", sequence=found.number))
        )
        assert there.open().refresh().deletes == ()

    def test_files_of_the_keys_of_upserts_are_kept(self, place):
        """A store has them by partition, for a new process too, until a compaction ends them."""
        there = place.another_table(SCHEMA)
        store = there.open(is_new=True)
        root = Partition(partition_id="root", region=whole_region(SCHEMA))
        store.commit(InitialisePartitions(partitions=(root,)))
        store.commit_group([SetFormat(format=2), add("a")])
        store.commit(UpsertFiles(references=(ref("b", row_count=7),)))
        store.commit(
            UpsertFiles(references=(ref("c"), ref("d")), without_old_rows=frozenset({"d"}))
        )

        found = there.open().refresh()
        assert found.deletes == store.state().deletes
        kept = {name: each.row_count for name, each in found.key_files().items()}
        assert kept == {"b": 7, "c": 100}
        store.commit(ClaimFiles(assignments=(claim("j", "root", "a", "b"),)))
        output = ref("e", sequence=found.number)
        store.commit(ReplaceFiles(job_id="j", inputs=("a", "b"), output=output))
        ended = there.open().refresh()
        assert ended.deletes == ()
        assert {name for name, _ in ended.files.unreferenced()} == {"a", "b"}

    def test_a_large_group_is_committed_whole(self, place, store):
        """In one entry, or in several by a store that takes only so much at once."""
        group = [add(*(f"file-{n}-{m}" for m in range(10)), job=job(f"j-{n}")) for n in range(30)]

        done = store.commit_group(group)

        assert done.refusals == (None,) * 30
        found = place.open().state()
        assert found.files.reference_count == 300
        assert {job_id for job_id, _ in found.jobs.records()} == {f"j-{n}" for n in range(30)}
        assert contents(found) == contents(done.state)

    @pytest.mark.parametrize(
        "transaction",
        [
            add("../outside.parquet"),
            add("a", job=job("\ud800")),
            add("statestore/transactions/00000000000000000002.json"),
            DeleteFiles(filenames=("w", "..")),
        ],
        ids=["path", "surrogate", "log", "second path"],
    )
    def test_a_value_that_cannot_be_stored_is_refused(self, place, store, transaction):
        """Before anything is written: what is stored can be read again."""
        store.commit(AddFiles(unreferenced=("w",)))

        with pytest.raises((BadRequest, CommitRefused)):
            store.commit(transaction)
        alone = place.open().state().number
        try:
            done = store.commit_group([add("good"), transaction])
        except BadRequest:
            expected = 2
        else:
            assert isinstance(done.refusals[1], CommitRefused)
            expected = 3

        assert alone == 2
        assert place.open().state().number == store.refresh().number == expected
        store.commit(add("after"))

    # ------------------------------------------------------------ values

    def test_odd_names_stay_as_they_are(self, place, store):
        """Of files, jobs and workers; long ones that begin alike are told apart."""
        memory = InMemory(state=store.state())
        steps = [
            add(*ODD_NAMES[:4], job=job(ODD_NAMES[1], rows_read=2**63 - 1)),
            add(*ODD_NAMES[4:], job=job("x" * 1000)),
            ClaimFiles(assignments=(claim(ODD_NAMES[2], "root", *ODD_NAMES[:2]),), owner=OWNER),
            ReplaceFiles(job_id=ODD_NAMES[2], inputs=ODD_NAMES[:2], output=ref("out")),
            DeleteFiles(filenames=ODD_NAMES[:1]),
        ]
        for step in steps:
            memory.commit(step, store.commit(step))

        assert contents(place.open().state()) == contents(memory.state)

    @pytest.mark.parametrize("kind", ODD_TABLES)
    def test_bounds_of_partitions_are_kept_to_the_last_bit(self, place, kind):
        """For each type of key, of which the extremes are among the split points."""
        type_, points = ODD_TABLES[kind]
        schema = Schema(
            row_keys=(Field("k", type_), Field("second", Primitive.BYTES)),
            values=(Field("v", Primitive.STRING),),
        )
        numbers = iter(range(100))
        tree = tree_from_split_points(schema, points, new_id=lambda: f"p-{next(numbers)}")
        there = place.another_table(schema)
        store, memory = there.open(is_new=True), InMemory(schema)
        root = tree.root
        rest = [each for each in tree.partitions.values() if each is not root]
        alone = replace(root, child_ids=(), dimension=None)
        for step in (
            InitialisePartitions(partitions=(alone,)),
            ExtendPartitionTree(updated=(root,), new=tuple(rest)),
        ):
            memory.commit(step, store.commit(step))

        seen = there.open().state()
        assert contents(seen) == contents(memory.state)
        assert {*seen.partitions.partitions} == {*tree.partitions}

    @pytest.mark.soak
    def test_any_transactions_have_the_effect_that_they_have_in_memory(self, place):
        """Sensible or not, over any schema: the same refusals, and the same states."""

        @settings(
            max_examples=tries(4, soak=300),
            suppress_health_check=[*HealthCheck],
            deadline=None,
        )
        @given(st.data())
        def check(data):
            schema = data.draw(schemas)
            there = place.another_table(schema)
            writers, memory = [there.open(is_new=True)], InMemory(schema)
            for n, step in enumerate(data.draw(st.lists(transactions(schema), max_size=6))):
                expected = memory.outcome(step, memory.state.at or NOON)
                writer = writers[n % len(writers)]
                before = memory.state.number
                committed, refusal = outcome_of(lambda: writer.commit(step))  # noqa: B023 - now
                if refusal is not None:
                    assert type(refusal) is expected
                    continue
                assert committed.number == before + bool(expected)
                if expected:
                    memory.commit(step, committed)
                if len(writers) == 1 and memory.state.number:
                    writers.append(there.open())
            if memory.state.number:
                assert contents(there.open().state()) == contents(memory.state)
                assert contents(writers[0].refresh()) == contents(memory.state)

        check()

    # ------------------------------------------------------------ many processes

    def test_a_refresh_sees_what_others_committed(self, place, store):
        """The cached state does not, until then."""
        other = place.open()
        before = other.state()
        store.commit(add("a"))

        assert other.state() is before
        assert names(other.refresh()) == ["a"]
        assert other.state() is other.refresh()

    def test_a_commit_after_a_lost_race_is_based_on_the_winner(self, place, store):
        """Whoever is late commits behind; a change that the winner forbids is refused."""
        late = place.open()
        late.state()
        store.commit(add("a", job=job("job")))

        with pytest.raises(JobAlreadyCommitted):
            late.commit(add("b", job=job("job")))
        state = late.commit(add("c"))

        assert (state.number, names(state)) == (3, ["a", "c"])
        assert contents(store.refresh()) == contents(state) == contents(place.open().state())

    def test_no_attempts_are_contention(self, place, store):
        """Nothing is written."""
        with pytest.raises(CommitContended, match="Nothing was written"):
            place.open(attempts=0).commit(add("a"))

        assert store.refresh().number == 1

    def test_of_many_writers_each_commits_all(self, place, store, commits_max):
        """Processes at once: every commit has a number of its own, and none is lost."""
        numbers = self.race([place.open(attempts=10_000) for _ in range(WRITERS)], commits_max)

        wanted = {f"{writer}-{n}" for writer in range(WRITERS) for n in range(commits_max)}
        state = place.open().state()
        assert {*names(state)} == wanted
        assert sorted(numbers) == list(range(2, 2 + len(wanted)))
        assert contents(store.refresh()) == contents(state)

    def test_threads_share_a_store(self, place, store, commits_max):
        """Each commit of each is there once, and readers see numbers ascend."""
        shared = place.open(attempts=10_000)
        seen, done = [], []

        def watch():
            while not done:
                seen.append(shared.refresh().number)

        with ThreadPoolExecutor(1) as reader:
            watching = reader.submit(watch)
            numbers = self.race([shared] * WRITERS, commits_max)
            done.append(True)
            watching.result()

        assert sorted(numbers) == list(range(2, 2 + WRITERS * commits_max))
        assert seen == sorted(seen)
        assert store.refresh().files.reference_count == WRITERS * commits_max

    def test_a_table_is_opened_while_others_commit_all_the_time(self, place, store):
        """What a new process reads is the state after one commit, never parts of two."""
        opened, numbers = Event(), [0, 0]

        def commit_on(writer):
            open_store = place.open(attempts=10_000)
            while not opened.is_set():
                # None goes far ahead of another that the machine lets wait: whether a commit was
                # stored is known only for so many commits after it.
                if numbers[writer] > numbers[1 - writer] + 10:
                    time.sleep(0.001)
                    continue
                open_store.commit(add(f"{writer}-{numbers[writer]}"))
                numbers[writer] += 1

        with ThreadPoolExecutor(2) as threads:
            writing = [threads.submit(commit_on, writer) for writer in range(2)]
            try:
                states = [place.open().state() for _ in range(3)]
            finally:
                opened.set()
            for each in writing:
                each.result()

        for state in states:
            assert state.files.reference_count == state.number - 1
        assert [each.number for each in states] == sorted(each.number for each in states)
        assert store.refresh().number == 1 + sum(numbers)

    @staticmethod
    def race(stores, commits):
        def run(writer):
            return [stores[writer].commit(add(f"{writer}-{n}")).number for n in range(commits)]

        with ThreadPoolExecutor(len(stores)) as threads:
            return [number for each in threads.map(run, range(len(stores))) for number in each]

    def test_tables_of_an_instance_do_not_meet(self, place, store):
        """What one commits or deletes, the other does not see."""
        there = place.another_table()
        other = there.open(is_new=True)
        other.commit(BEGIN)
        other.commit(add("theirs"))
        store.commit(add("mine"))

        other.delete()

        assert names(place.open().state()) == ["mine"]
        assert names(store.refresh()) == ["mine"]

    # ------------------------------------------------------------ versions and times

    def test_an_older_version_is_whole_or_refused(self, place, store):
        """The newest can always be read; one that does not exist never."""
        states = {1: store.state()}
        for name in ("a", "b", "c"):
            state = store.commit(add(name))
            states[state.number] = state
        for each in (store, place.open()):
            for number, state in states.items():
                found, refusal = outcome_of(lambda: each.at(number))  # noqa: B023 - now
                if refusal is not None:
                    assert number != 4
                    assert not place.keeps_versions
                    assert "TransactionLogStateStore" in str(refusal)
                else:
                    assert contents(found) == contents(state)
                kept = each.state_after(number)
                assert (kept is None) == (refusal is not None)
                assert kept is None or contents(kept) == contents(state)
                assert each.time_of(number) in (state.at, None if kept is None else state.at)
            for number in (5, -1):
                with pytest.raises(VersionNotFound, match=f"no transaction {number}"):
                    each.at(number)
                assert each.state_after(number) is None
                assert each.time_of(number) is None

    def test_a_version_whose_files_were_deleted_is_refused(self, place, store):
        """It is never read as something else."""
        store.commit(add("a"))
        store.commit(ClaimFiles(assignments=(claim("c", "root", "a"),)))
        store.commit(ReplaceFiles(job_id="c", inputs=("a",), output=ref("b")))
        store.commit(DeleteFiles(filenames=("a",)))

        for each in (store, place.open()):
            with pytest.raises(VersionNotFound):
                each.at(2)
            assert names(each.at(5)) == ["b"]

    def test_the_time_is_never_before_the_last_commit(self, place, store):
        """And dates of commits ascend."""
        dates = [store.commit(add(f"file-{n}")).at for n in range(5)]
        dates += [place.open().commit(add("last")).at]

        assert dates == sorted({*dates})
        assert store.time() >= dates[-2]
        assert place.open().time() >= dates[-1]

    def test_what_was_stored_before_a_time_is_never_too_much(self, place, store):
        """Nothing was stored long ago; all that was seen is known to be stored some day."""
        earlier = store.time() - timedelta(seconds=3)  # clocks of servers tell seconds
        store.commit(add("a"))
        last = store.commit(add("b")).at

        for each in (store, place.open()):
            assert each.dates_stored_before(LONG_AGO) <= LONG_AGO
            assert each.dates_stored_before(earlier) <= earlier
            assert last < each.dates_stored_before(FAR_AHEAD) <= FAR_AHEAD

    # ------------------------------------------------------------ the end

    # ------------------------------------------------------------ moves

    def test_a_state_of_any_size_can_be_moved_here(self, place):
        """Given one that another store has brought to transaction 40, then it goes on with 41.

        Larger than one commit may be, and with all that a state has.
        """
        state = _state_of_another_store()
        move = StateMove(getattr(place, "class_name", "Here"), 41, "5a")
        store = place.open(is_new=True, here=move)
        store.begin_with(state)
        arrived = store.commit(MoveState(move=move))

        seen = place.open(here=move).refresh()
        assert contents(seen) == contents(arrived)
        assert contents(replace(seen, number=40, at=state.at, moved=None)) == contents(state)
        assert seen.moved == move
        assert place.open(here=move).commit(add("next")).number == 42
        with pytest.raises(VersionNotFound):
            place.open(here=move).at(7)

    def test_a_state_that_was_moved_away_takes_no_commit(self, place, store):
        """Nor does a process that opens it later; both can read."""
        store.commit(add("a"))
        store.commit(MoveState(move=StateMove("Elsewhere", 3, "5a")))

        for process in (store, place.open()):
            with pytest.raises(StateMoved, match="Elsewhere"):
                process.commit(add("b"))
            assert names(process.refresh()) == ["a"]
            assert process.state().moved == StateMove("Elsewhere", 3, "5a")

    def test_a_deleted_state_can_be_deleted_again(self, place, store):
        """As a process does that finishes what another began."""
        store.commit(add("a"))

        store.delete()
        store.delete()
        place.open().delete()

        assert place.another_table().open(is_new=True).commit(BEGIN).number == 1

    def test_a_commit_tells_how_long_it_took(self, place, store):
        """For the metrics; before the first there is nothing to tell."""
        opened = place.open()
        before = opened.commit_s
        opened.commit(add("a"))

        assert before is None
        assert opened.commit_s >= 0
