"""A table's state moves between all state stores, on a server of DynamoDB, with its rows."""

from __future__ import annotations

import threading
from functools import partial
from itertools import count, permutations

import pyarrow as pa
import pytest

import sleeper
from sleeper.errors import (
    BadRequest,
    CommitContended,
    CommitRefused,
    CommitUnknown,
    PropertiesInvalid,
    StateMoved,
    StorageFailed,
    VersionNotFound,
)
from sleeper.model.known_properties.state_store import STATE_STORES
from sleeper.model.tables import STATE_STORE
from sleeper.state.transactions.files import ClearFiles
from sleeper.storage.aws import clients
from sleeper.storage.memory import MemoryObjects
from sleeper.tables import state_stores
from tests.any_order.faults import Fault, Faults, FaultyObjects, Killed
from tests.any_order.whole_instance import NOON, counted_ids, open_instance
from tests.contracts.s3_server import s3_credentials
from tests.contracts.servers.dynamo import dynamo_endpoint, dynamo_environment, on_one_server
from tests.soak import SOAK, some
from tests.unit.interfaces.command_line import sleeper as command

__all__ = ["dynamo_endpoint", "dynamo_environment", "s3_credentials"]

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])
PAIRS = [*permutations(STATE_STORES, 2)]
CHAIN = [*STATE_STORES, STATE_STORES[0]]
STARTS = count(0, 1_000)
SECONDS = 20.0 if SOAK else 4.0

pytestmark = pytest.mark.usefixtures("dynamo_environment")


def rows(*ids):
    return pa.table({"id": list(ids), "v": [f"v{each}" for each in ids]}, schema=SCHEMA)


def ids_in(table):
    return sorted(row["id"] for row in table.query().to_pylist())


@pytest.fixture
def instance(tmp_path):
    with sleeper.connect(tmp_path / "instance", create=True) as opened:
        yield opened


def make(instance, class_name, name="t"):
    """A table of two leaves with four rows in two commits."""
    table = instance.create_table(
        name, SCHEMA, row_keys=["id"], split_points=[10], properties={STATE_STORE: class_name}
    )
    table.ingest(rows(1, 11), job_id="one")
    table.ingest(rows(2, 12), job_id="two")
    return table


@on_one_server
def test_the_chain_of_a_moved_log_begins_with_the_move(instance):
    """Given a table of format 2, its first entry there names one that stayed behind: no finding."""
    table = make(instance, STATE_STORES[0])

    table.migrate_state(STATE_STORES[1])
    table.ingest(rows(3))

    assert sleeper.connect(instance.url).table("t").verify().findings == ()


class ClientWithFaults:
    """A client of boto3 whose calls are counted with those of the objects, and fail with them."""

    def __init__(self, client, faults):
        self._client, self._faults = client, faults

    def __getattr__(self, name):
        found = getattr(self._client, name)
        if not callable(found):
            return found
        return lambda **request: self._faults.run(name, lambda: found(**request))


@on_one_server
class TestEveryPair:
    """A state moves from each state store to each other."""

    @pytest.mark.parametrize(("source", "target"), PAIRS)
    def test_all_of_it_is_there_and_goes_on(self, instance, source, target):
        """Rows, job ids, claims and numbers; older versions are refused with the reason."""
        table = make(instance, source)
        old_handle = sleeper.connect(instance.url).table("t")
        assert ids_in(old_handle) == [1, 2, 11, 12]
        old_store = old_handle._current().store
        number = table.refresh()

        result = table.migrate_state(f"sleeper.statestore.any.{target}")

        assert (result.moved_from, result.state_store, result.is_moved) == (source, target, True)
        assert result.transaction == table.refresh() == number + 1
        assert table.properties.state_store == target
        assert ids_in(old_handle) == ids_in(table) == [1, 2, 11, 12]
        assert table.ingest(rows(1, 11), job_id="one").already_committed
        assert old_handle.ingest(rows(3), job_id="three").transaction == number + 2
        with pytest.raises(StateMoved, match=f"moved to {target}"):
            old_store.commit(ClearFiles())
        with pytest.raises(VersionNotFound, match="left earlier versions behind"):
            table.query(as_of=2)
        assert table.compact(all_files=True).failed == ()
        assert ids_in(sleeper.connect(instance.url).table("t")) == [1, 2, 3, 11, 12]

    @pytest.mark.parametrize("target", STATE_STORES)
    def test_history_and_times_begin_with_the_move(self, instance, target):
        """Given a store with a log, then its history has the move; others say that they have none.

        The newest version is found by its time in every store.
        """
        source = next(each for each in STATE_STORES if each != target)
        table = make(instance, source)
        moved = table.migrate_state(f"sleeper.statestore.any.{target}").transaction
        last = table.ingest(rows(3), job_id="three").transaction
        now = table.state().at

        assert table.query(as_of=now).transaction == last
        kept = table.kept_versions()
        assert (moved <= kept.first <= last, kept.newest, kept.newest_at) == (True, last, now)
        with pytest.raises(VersionNotFound, match="no transaction from 19"):
            table.query(as_of=NOON.replace(year=1970))
        if "Log" in target:
            found = table.history()
            assert [each.number for each in found] == [last, moved]
            assert found[1].kinds == ("state moved to this store",)
            assert table.history(1) == found[:1]
            assert table.diff(moved).to_pylist() == [{"id": 3, "v": "v3"}]
        else:
            for ask in (table.history, lambda: table.diff(moved)):
                with pytest.raises(BadRequest, match="keeps no log of transactions"):
                    ask()

    def test_around_all_of_them_and_deleted(self, instance):
        """Through each and back to the first; then nothing is left of the table."""
        table = make(instance, CHAIN[0])
        for number, class_name in enumerate(CHAIN[1:]):
            table.migrate_state(class_name)
            table.ingest(rows(100 + number))
        assert ids_in(table) == [1, 2, 11, 12, *range(100, 100 + len(CHAIN) - 1)]

        instance.delete_table("t")

        files = instance._context.objects
        assert [i.key for i in files.listing(f"{table.table_id}/")] == []
        for class_name in STATE_STORES[1:]:
            assert left_in_dynamo(instance, table.table_id) == [], class_name


def left_in_dynamo(instance, table_id):
    """Return all items of a table in any DynamoDB table of the instance."""
    tables = state_stores._aws_states(instance._context).tables
    client, prefix = tables._client(), tables._prefix
    names = [n for n in client.list_tables()["TableNames"] if n.startswith(prefix)]
    found = [item for name in names for item in client.scan(TableName=name)["Items"]]
    return [item for item in found if table_id in str(item)]


@on_one_server
class TestTrouble:
    """Moves that are killed, and others that write."""

    @pytest.mark.parametrize(("source", "target"), some(PAIRS, one_in=7))
    def test_killed_before_any_request_is_completed_by_the_next_run(
        self, monkeypatch, source, target
    ):
        """Given a death before a request to the folder or to DynamoDB, then no row is amiss."""
        client, faults = clients.aws_client, [Faults()]
        monkeypatch.setattr(
            clients, "aws_client", lambda *a: ClientWithFaults(client(*a), faults[0])
        )

        def new_table():
            objects = MemoryObjects(lambda: NOON)
            faults[0] = Faults()
            make(open_instance(objects, counted_ids(next(STARTS))), source)
            return objects

        def move(objects, plan=()):
            faults[0] = Faults(plan)
            seen = FaultyObjects(objects, faults[0])
            open_instance(seen, counted_ids(next(STARTS))).table("t").migrate_state(target)

        for _ in range(2):  # the first one makes tables in DynamoDB
            move(new_table())
        for call in some(range(1, faults[0].calls), one_in=11):
            objects = new_table()
            with pytest.raises(Killed):
                move(objects, (Fault(call, "before"),))
            faults[0] = Faults()
            assert ids_in(table_of(objects)) == [1, 2, 11, 12]

            move(objects)

            table = table_of(objects)
            assert table.properties.state_store == target
            table.ingest(rows(99))
            assert ids_in(table_of(objects)) == [1, 2, 11, 12, 99]

    def test_writers_at_the_same_time_lose_and_double_no_row(self, instance):
        """Given two writers that never pause, then what was acknowledged is there once."""
        make(instance, CHAIN[0])
        stop, acknowledged, refusals = threading.Event(), [1, 2, 11, 12], []
        numbers = count(1_000)

        def write():
            table = sleeper.connect(instance.url).table("t")
            while not stop.is_set():
                number = next(numbers)
                for _ in range(20):
                    try:
                        table.ingest(rows(number), job_id=f"job-{number}")
                        acknowledged.append(number)
                        break
                    except (CommitRefused, CommitContended, StorageFailed, CommitUnknown) as error:
                        refusals.append(error)

        writers = [threading.Thread(target=write) for _ in range(2)]
        for writer in writers:
            writer.start()
        timer = threading.Timer(SECONDS, stop.set)
        timer.start()
        moves = move_around(instance, stop)
        for writer in writers:
            writer.join()
        timer.cancel()

        assert moves["tried"] > 0
        assert ids_in(sleeper.connect(instance.url).table("t")) == sorted(acknowledged)
        assert all(isinstance(each, StateMoved | CommitContended) for each in refusals), refusals


def move_around(instance, stop):
    """Move the state from store to store until it is time; return how often."""
    told = {"tried": 0, "moved": 0}
    while not stop.is_set():
        for class_name in CHAIN[1:]:
            told["tried"] += 1
            try:
                told["moved"] += instance.table("t").migrate_state(class_name).is_moved
            except CommitContended:
                continue
    return told


def table_of(objects):
    return open_instance(objects, counted_ids(next(STARTS))).table("t")


@on_one_server
class TestCommand:
    """`sleeper table migrate-state`, and what else may be asked."""

    def test_says_what_it_did(self, instance):
        """And what it did not, as the state was there already."""
        make(instance, "TransactionLogStateStore")
        run = partial(command, "table", "migrate-state", "t", "--instance", instance.url)

        first, second = run("--to", "S3StateStore"), run("--to", "s3statestore")

        assert first.exit_code == second.exit_code == 0, first.output + second.output
        assert "moved the state of table t from TransactionLogStateStore to S3Sta" in first.output
        assert "go on after 4; earlier versions cannot be read" in first.output
        assert "is in S3StateStore already" in second.output
        assert '"transaction": 4' in run("--to", "S3StateStore", "--json").output

    def test_refuses_a_store_that_is_not_there(self, instance):
        """With the list."""
        table = make(instance, "TransactionLogStateStore")

        with pytest.raises(
            BadRequest, match=r"'Oracle' is not a state store; choose one of Transaction"
        ):
            table.migrate_state("Oracle")

    def test_is_the_only_way_to_change_the_class(self, instance):
        """Setting the property is refused, with the command to use."""
        table = make(instance, "TransactionLogStateStore")

        with pytest.raises(PropertiesInvalid, match="migrate-state NAME --to CLASS"):
            table.set_properties({STATE_STORE: "S3StateStore"})
        with pytest.raises(PropertiesInvalid, match=r"Only .* sets it"):
            table.set_properties({"sleeper.table.statestore.move": "4-5a"})

    def test_a_default_of_the_instance_is_for_new_tables(self, instance):
        """Given a table, when the default changes, then it keeps its state; a new one does not."""
        old = instance.create_table("old", SCHEMA, row_keys=["id"])
        old.ingest(rows(1))

        instance.set_properties({"sleeper.default.table.statestore.classname": "S3StateStore"})

        again = sleeper.connect(instance.url)
        new = again.create_table("new", SCHEMA, row_keys=["id"])
        assert ids_in(again.table("old")) == [1]
        assert again.table("old").properties.state_store == "TransactionLogStateStore"
        assert new.properties.values[STATE_STORE] == "S3StateStore"

    @pytest.mark.parametrize("class_name", STATE_STORES)
    def test_a_backup_has_the_state_in_a_log(self, instance, tmp_path, class_name):
        """Whichever store the table's state is in, moved or not; twice, as one was interrupted."""
        moved = make(instance, STATE_STORES[-1], "moved")
        moved.migrate_state(class_name)
        made = make(instance, class_name, "made")

        copied = instance.backup(tmp_path / "copy")

        assert [each.files for each in copied.tables] == [4, 4]
        with sleeper.connect(tmp_path / "copy") as copy:
            for table in (copy.table("moved"), copy.table("made")):
                assert ids_in(table) == [1, 2, 11, 12]
                assert table.properties.state_store == "TransactionLogStateStore"
                assert table.ingest(rows(1, 11), job_id="one").already_committed
                table.ingest(rows(3))
                assert ids_in(table) == [1, 2, 3, 11, 12]
        assert ids_in(made) == ids_in(moved) == [1, 2, 11, 12]
