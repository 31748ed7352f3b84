"""A table's state is moved to another store while the process dies, fails, or is overtaken.

A move is run over healthy storage first, to count its calls. Then it is run again for each call and
each kind of fault, on a copy of the same objects, and once more by the next process.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from itertools import count

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sleeper.errors import (
    CommitContended,
    CommitRefused,
    CommitUnknown,
    SleeperError,
    StateMoved,
    StorageFailed,
    TableChanged,
    TableNotFound,
)
from sleeper.storage.memory import MemoryObjects
from sleeper.tables.migrate_state import MigrationResult
from tests.any_order.faults import Fault, Faults, FaultyObjects, Killed
from tests.any_order.second_store import LOG, REVISIONS, install
from tests.any_order.whole_instance import (
    NOON,
    copy_of,
    counted_ids,
    open_instance,
)
from tests.soak import SOAK, some, tries

SCHEMA = pa.schema([pa.field("k", pa.int64(), nullable=False), pa.field("v", pa.string())])
STARTS = count(0, 1_000)
DEATHS, FAILURES = ("before", "after"), ("lost", "refused")


@pytest.fixture(autouse=True)
def _two_kinds(monkeypatch):
    install(monkeypatch)


def rows(*keys):
    return pa.table({"k": keys, "v": [f"v{key}" for key in keys]}, schema=SCHEMA)


def opened(objects):
    return open_instance(objects, counted_ids(next(STARTS)))


def ingest(objects, job, *keys):
    return opened(objects).table("t").ingest(rows(*keys), job_id=job)


def migrate(objects, to, faults=None):
    seen = objects if faults is None else FaultyObjects(objects, faults)
    return opened(seen).table("t").migrate_state(to)


def other(class_name):
    return REVISIONS if class_name == LOG else LOG


def error_of(act):
    """Return what an act raised, or None."""
    try:
        act()
    except SleeperError as error:
        return error
    return None


def keys_in(objects):
    found = opened(objects).table("t").query()
    return sorted(row["k"] for row in found.to_pylist())


def places_in(objects):
    """The ids of all moves of which something is left."""
    return {
        part.split("/")[0]
        for info in objects.listing()
        for _, found, part in [info.key.partition("/states/")]
        if found
    }


@pytest.fixture(params=[LOG, REVISIONS])
def table(request):
    """A table whose state is in one of the kinds, two commits old; it was moved there or not."""
    objects = MemoryObjects(lambda: NOON)
    instance = opened(objects)
    made = instance.create_table("t", SCHEMA, row_keys=["k"], split_points=[10])
    ingest(objects, "one", 1, 11)
    if request.param != LOG:
        made.migrate_state(request.param)
    ingest(objects, "two", 2, 12)
    return objects, request.param


def calls_of(objects, to):
    faults = Faults()
    migrate(copy_of(objects), to, faults)
    return faults.calls


def check_whole(objects, to, keys):
    """The rows are there once, the state is in the store, old jobs are known, new ones commit."""
    table = opened(objects).table("t")
    assert table.properties.state_store == to
    assert keys_in(objects) == sorted(keys)
    assert ingest(objects, "one", 1, 11).already_committed
    ingest(objects, "last", 99)
    assert keys_in(objects) == sorted([*keys, 99])


class TestAlone:
    """Nobody else uses the table."""

    def test_moves_there_and_back(self, table):
        """Numbers go on by one for each move; a second run changes nothing."""
        objects, kind = table
        number = opened(objects).table("t").refresh()

        moved = migrate(objects, other(kind))
        again = migrate(objects, other(kind))
        back = migrate(objects, kind)

        assert (moved.moved_from, moved.state_store, moved.transaction) == (
            kind,
            other(kind),
            number + 1,
        )
        assert (again.is_moved, again.transaction) == (False, number + 1)
        assert (back.state_store, back.transaction) == (kind, number + 2)
        check_whole(objects, kind, [1, 2, 11, 12])

    @pytest.mark.parametrize("kind_of_fault", [*DEATHS, *FAILURES])
    def test_that_fails_at_any_call_is_completed_by_the_next_run(self, table, kind_of_fault):
        """Given a death, a lost reply or a refusal, then queries work, and the next run completes.

        A commit in between succeeds, or is refused and says what to do. Nothing is left of the
        attempt that failed.
        """
        objects, kind = table
        sealed = 0
        for call in some(range(calls_of(objects, other(kind))), one_in=13):
            copy = copy_of(objects)
            with suppress(Killed, StorageFailed, CommitUnknown):
                migrate(copy, other(kind), Faults((Fault(call, kind_of_fault),)))
            keys = [1, 2, 11, 12]
            assert keys_in(copy) == keys, call
            refusal = error_of(partial(ingest, copy, "between", 50))
            if refusal is None:
                keys.append(50)
            else:
                assert isinstance(refusal, StateMoved)
                assert f"migrate-state NAME --to {other(kind)}" in str(refusal)
                sealed += 1

            migrate(copy, other(kind))

            check_whole(copy, other(kind), keys)
            assert len(places_in(copy)) == len(places_in(objects)) + 1, call
        assert sealed or kind_of_fault in FAILURES or not SOAK

    def test_to_a_third_store_is_refused_while_another_move_is_incomplete(self, table):
        """Given a move that was killed after the seal, then also the way back is refused."""
        objects, kind = table
        for call in range(calls_of(objects, other(kind))):
            copy = copy_of(objects)
            with pytest.raises(Killed):
                migrate(copy, other(kind), Faults((Fault(call, "before"),)))
            try:
                ingest(copy, "between", 50)
            except StateMoved:
                with pytest.raises(TableChanged, match="Complete it by"):
                    migrate(copy, kind)
                return
        pytest.fail("no call was after the seal")


class TestOvertaken:
    """Another process does something whole between two calls of a move."""

    def overtaken(self, objects, to, act):
        """Run a move for each call before which another process acts; yield what both did."""
        for call in some(range(calls_of(objects, to)), one_in=3):
            copy, done = copy_of(objects), []

            def meanwhile(copy=copy, done=done):
                try:
                    done.append(act(copy))
                except SleeperError as error:
                    done.append(error)

            try:
                outcome = migrate(copy, to, Faults(meanwhile={call: meanwhile}))
            except SleeperError as error:
                outcome = error
            yield copy, outcome, done[0]

    def test_by_an_ingest_loses_and_doubles_no_row(self, table):
        """It is acknowledged and in the table once, or refused and not there."""
        objects, kind = table
        refused = 0
        act = lambda copy: ingest(copy, "meanwhile", 50)  # noqa: E731 - one of a kind
        for copy, outcome, done in self.overtaken(objects, other(kind), act):
            assert not isinstance(outcome, SleeperError)
            refused += isinstance(done, StateMoved)
            keys = [1, 2, 11, 12] + ([] if isinstance(done, SleeperError) else [50])
            check_whole(copy, other(kind), keys)
        assert refused

    def test_by_the_same_move_is_done_once(self, table):
        """Both say that the state is there, whichever was faster."""
        objects, kind = table
        act = partial(migrate, to=other(kind))
        for copy, outcome, done in self.overtaken(objects, other(kind), act):
            assert outcome.state_store == done.state_store == other(kind)
            check_whole(copy, other(kind), [1, 2, 11, 12])

    def test_by_a_move_there_and_back_loses_no_row(self, table):
        """It must not take the store that the table is in by then for its own remains."""
        objects, kind = table

        def there_and_back(copy):
            migrate(copy, other(kind))
            ingest(copy, "there", 50)
            migrate(copy, kind)
            ingest(copy, "back", 60)

        for copy, outcome, done in self.overtaken(objects, other(kind), there_and_back):
            assert not isinstance(outcome, SleeperError), outcome
            keys = [1, 2, 11, 12]
            assert done is None
            keys += [50, 60]
            # Whoever was last: the other may begin when this one has only to clean up.
            check_whole(copy, opened(copy).table("t").properties.state_store, keys)

    def test_by_a_deletion_leaves_nothing(self, table):
        """Not even the copy of the state."""
        objects, kind = table
        act = lambda copy: opened(copy).delete_table("t")  # noqa: E731 - one of a kind
        for copy, outcome, done in self.overtaken(objects, other(kind), act):
            assert done is None
            # The last look at the index compares it after it was read: a deletion in between comes
            # after the move, and removes what that has made.
            assert isinstance(outcome, TableNotFound | MigrationResult), outcome
            left = [i.key for i in copy.listing() if "/states/" in i.key or "/statestore/" in i.key]
            assert left == []

    def test_of_an_ingest_loses_and_doubles_no_row(self, table):
        """A whole move between any two calls of an ingest: acknowledged once, or refused."""
        objects, kind = table
        healthy = Faults()
        ingest(FaultyObjects(copy_of(objects), healthy), "mine", 50)
        outcomes = set()
        for call in some(range(healthy.calls), one_in=7):
            copy = copy_of(objects)
            faults = Faults(meanwhile={call: partial(migrate, copy, other(kind))})
            keys = [1, 2, 11, 12]
            try:
                ingest(FaultyObjects(copy, faults), "mine", 50)
                keys.append(50)
                outcomes.add("committed")
            except StateMoved:
                outcomes.add("refused")
            check_whole(copy, other(kind), keys)
        assert outcomes == {"committed", "refused"}


class TestWriters:
    """Writers that commit all the time."""

    def test_that_never_stop_have_the_move_refused(self, table):
        """Given a commit during each attempt, then nothing is left of the move."""
        objects, kind = table
        faults = Faults()
        written = []

        class Busy(FaultyObjects):
            """Another process commits before each entry or revision that the move creates."""

            def create(self, key, body):
                if "/states/" not in key and "index" not in key and not written_now:
                    written_now.append(key)
                    written.append(len(written) + 100)
                    ingest(
                        objects,
                        f"busy-{len(written)}",
                        written[-1],
                    )
                    written_now.clear()
                return super().create(key, body)

            def under(self, prefix):
                return Busy(self._inner.under(prefix), self._faults)

        written_now = []
        with pytest.raises(CommitContended, match="others wrote to this table"):
            opened(Busy(objects, faults)).table("t").migrate_state(other(kind))

        assert len(written) >= 3
        assert keys_in(objects) == sorted([1, 2, 11, 12, *written])
        migrate(objects, other(kind))
        check_whole(objects, other(kind), [1, 2, 11, 12, *written])

    @settings(max_examples=tries(8, soak=2_000))
    @given(
        st.lists(
            st.tuples(st.integers(0, 80), st.sampled_from(["ingest", "there", "back", "compact"])),
            min_size=1,
            max_size=6,
            unique_by=lambda each: each[0],
        ),
        st.sampled_from([*DEATHS, *FAILURES, None]),
        st.integers(0, 60),
    )
    def test_in_any_order_lose_and_double_no_row(self, acts, kind_of_fault, at):
        """Ingests, compactions and moves by others at any calls of a move, which may fail, too."""
        objects = MemoryObjects(lambda: NOON)
        opened(objects).create_table("t", SCHEMA, row_keys=["k"], split_points=[10])
        ingest(objects, "one", 1, 11)
        ingest(objects, "two", 2, 12)
        keys = [1, 2, 11, 12]

        def act(name, number):
            try:
                if name == "ingest":
                    ingest(objects, f"job-{number}", 100 + number)
                    keys.append(100 + number)
                elif name == "compact":
                    opened(objects).table("t").compact(all_files=True)
                else:
                    migrate(objects, REVISIONS if name == "there" else LOG)
            except (CommitRefused, CommitContended):
                pass

        plan = () if kind_of_fault is None else (Fault(at, kind_of_fault),)
        meanwhile = {call: partial(act, name, call) for call, name in acts}
        with suppress(Killed, SleeperError):
            migrate(objects, REVISIONS, Faults(plan, meanwhile=meanwhile))
        assert keys_in(objects) == sorted(keys)

        try:
            migrate(objects, REVISIONS)
        except TableChanged:  # another move, back to the log, was interrupted
            migrate(objects, LOG)
            migrate(objects, REVISIONS)
        check_whole(objects, REVISIONS, keys)
