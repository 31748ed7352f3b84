"""A schedule asks for operations on tables that may need them, and on no others."""

from __future__ import annotations

import json
import logging
from datetime import timedelta

import pyarrow as pa
import pytest

import sleeper
from sleeper.errors import BadRequest, StorageFailed
from sleeper.tables.table import Table
from sleeper.workers.scheduled_operations import TableOperation, ask_for_operation, run_operation
from sleeper.workers.stop_signal import StopSignal
from tests.unit.workers.clocks import SimulatedStop

SCHEMA = pa.schema([("id", pa.string()), ("n", pa.int64())])
BASIC = {"sleeper.table.compaction.strategy.class": "BasicCompactionStrategy"}


@pytest.fixture
def instance(tmp_path):
    """An instance in a folder, with two tables."""
    opened = sleeper.connect(tmp_path / "instance", create=True)
    for name in ("one", "two"):
        opened.create_table(name, SCHEMA, row_keys=["id"])
    return opened


@pytest.fixture
def ask(instance):
    """Asks for an operation some time later; returns messages as they were sent."""
    begun = instance.now()

    def asked(operation="split", *, hours=0.0, refused=()):
        instance.now = lambda: begun + timedelta(hours=hours)
        sent = []

        def send(messages):
            ids = {record.table_id for record in instance.tables() if record.name in refused}
            sent.extend(each for each in messages if each.group not in ids)
            return ids

        ask_for_operation(instance, operation, send)
        return sent

    return asked


def names(instance, messages):
    of_id = {record.table_id: record.name for record in instance.tables()}
    return [of_id[json.loads(message.body)["tableId"]] for message in messages]


def run(instance, operation, name="one", *, told=None, sweep=False, stopped=lambda: False):
    [record] = [each for each in instance.tables() if each.name == name]
    wanted = TableOperation(operation=operation, table_id=record.table_id, sweep=sweep)
    return run_operation(
        instance,
        TableOperation.read(wanted.write()),
        SimulatedStop(stopped),
        report=lambda *figures: told is not None and told.append(figures),
    )


def test_each_online_table_has_a_message_in_a_group_of_its_own(instance, ask):
    """Given a new instance and a table offline, then the others are asked for (INS-13)."""
    instance.create_table("three", SCHEMA, row_keys=["id"]).set_online(online=False)

    messages = ask()

    assert names(instance, messages) == ["one", "two"]
    assert [message.group for message in messages] == [
        json.loads(message.body)["tableId"] for message in messages
    ]
    assert len({message.deduplication_id for message in messages}) == 2


def test_tables_that_have_not_changed_are_left_alone_until_a_day_has_passed(instance, ask):
    """Given one commit, then that table alone is due; a day later both are."""
    ask()

    unchanged = ask(hours=1)
    instance.table("two").ingest([{"id": "a", "n": 1}])
    changed = ask(hours=2)
    again = ask(hours=3)
    next_day = ask(hours=25)

    assert unchanged == []
    assert names(instance, changed) == ["two"]
    assert again == []
    assert names(instance, next_day) == ["one", "two"]


def test_a_changed_property_makes_its_table_due(instance, ask):
    """Such as a threshold of splits: no commit comes with it."""
    ask()
    instance.table("one").set_properties({"sleeper.table.partition.splitting.threshold": 10})

    assert names(instance, ask(hours=1)) == ["one"]


def test_garbage_is_looked_for_until_it_may_have_been_deleted(instance, ask):
    """Given a commit, then its garbage may be deleted a while later, without another commit."""
    ask("collect")

    assert [bool(ask("collect", hours=hours)) for hours in (0.5, 2.0, 3.0, 20.0)] == [
        True,
        True,
        False,
        False,
    ]


def test_orphans_are_looked_for_once_a_day(instance, ask):
    """Given tables without a change, then the first message of a day asks for a sweep."""
    days = [ask("collect", hours=hours) for hours in (0, 1, 24, 25, 48)]

    swept = [[json.loads(each.body).get("sweep") for each in messages] for messages in days]
    assert swept == [[True, True], [None, None], [True, True], [], [True, True]]


def test_a_table_whose_message_was_not_sent_is_asked_for_again(instance, ask, caplog):
    """Given a queue that takes one of two, then the other comes with the next look."""
    assert names(instance, ask(refused=["two"])) == ["one"]
    assert "split was not asked for 1 of 2 tables" in caplog.text

    assert names(instance, ask(hours=0.1)) == ["two"]


def test_nothing_is_asked_for_while_the_instance_is_paused(instance, ask):
    """Given a pause, then the tables are due when it ends."""
    instance.pause_switch.pause()
    paused = ask()
    instance.pause_switch.resume()

    assert paused == []
    assert names(instance, ask()) == ["one", "two"]


@pytest.mark.parametrize("damage", [b"", b"[]", b"text", b'{"a": 7}', b'{"a": {}}', b"\xff"])
def test_notes_that_cannot_be_read_cost_another_message(instance, ask, damage):
    """Given an object that somebody wrote, then all tables are asked for."""
    ask()
    instance._context.objects.put("services/notes/split.json", damage)

    assert names(instance, ask()) == ["one", "two"]


@pytest.mark.parametrize(
    "note",
    [
        {"number": "1"},
        {"number": 1, "changed": "yesterday", "daily": 7},
        {"number": 1, "changed": "2000-01-01T00:00:00", "daily": "9999-01-01T00:00:00+00:00"},
    ],
)
def test_a_note_that_cannot_be_understood_makes_its_table_due(instance, ask, note):
    """Given times without a zone, in the future, or no times: the operation does no harm."""
    ask()
    notes = instance.service_notes.read("split")
    instance.service_notes.write("split", dict.fromkeys(notes, note))

    assert names(instance, ask()) == ["one", "two"]


def test_notes_of_deleted_tables_go(instance, ask):
    """Given a table that was deleted, then the notes do not grow for ever."""
    ask()
    instance.delete_table("one")
    instance.table("two").ingest([{"id": "a", "n": 1}])

    ask()

    [record] = instance.tables()
    assert [*instance.service_notes.read("split")] == [record.table_id]


def test_a_split_splits_what_is_large_and_merges_what_is_small(instance):
    """Given a table over its threshold, when it is asked for, then it has two leaves."""
    table = instance.table("one")
    table.set_properties({"sleeper.table.partition.splitting.threshold": 10})
    table.ingest([{"id": f"{n:03}", "n": n} for n in range(20)])

    assert run(instance, "split") == ()

    assert table.report_files().leaf_partitions == 2


def test_a_collection_deletes_what_nothing_references(instance, caplog):
    """Given files that a compaction replaced, then garbage and orphans are looked for."""
    table = instance.table("one")
    table.set_properties({"sleeper.table.gc.delay.minutes": 1})
    for n in range(2):
        table.ingest([{"id": str(n), "n": n}])
    table.compact(all_files=True)
    calls = []
    real = {name: getattr(Table, name) for name in ("collect_garbage", "sweep_orphans")}
    for name, method in real.items():
        setattr(
            Table, name, lambda self, name=name, method=method: calls.append(name) or method(self)
        )
    try:
        assert run(instance, "collect") == ()
        assert run(instance, "collect", sweep=True) == ()
    finally:
        for name, method in real.items():
            setattr(Table, name, method)

    assert calls == ["collect_garbage", "collect_garbage", "sweep_orphans"]
    assert table.query().count() == 2


def test_a_table_is_compacted_as_by_a_worker(instance):
    """Given files in one leaf and no workers elsewhere, then they are merged, and tracked."""
    table = instance.table("one")
    table.set_properties({**BASIC, "sleeper.table.compaction.files.batch.size": 2})
    for n in range(4):
        table.ingest([{"id": str(n), "n": n}])

    assert run(instance, "compact") == ()

    assert table.report_files().references < 4
    assert table.claims() == ()
    assert table.query().count() == 4
    assert list(instance.jobs.list(kind="compaction")) != []


def test_a_compaction_whose_time_is_over_keeps_no_claim(instance):
    """Given a function that must end, then others may take the files at once."""
    table = instance.table("one")
    table.set_properties({**BASIC, "sleeper.table.compaction.files.batch.size": 2})
    for n in range(4):
        table.ingest([{"id": str(n), "n": n}])
    calls = iter([False, False, False, False])

    run(instance, "compact", stopped=lambda: next(calls, True))

    assert table.claims() == ()
    assert table.query().count() == 4


def test_figures_of_a_table_are_told(instance):
    """Given rows, then they are in the figures."""
    instance.table("one").ingest([{"id": "a", "n": 1}])
    told = []

    run(instance, "measure", told=told)

    [(name, files)] = told
    assert (name, files.rows, files.leaf_partitions) == ("one", 1, 1)


def test_a_table_that_is_gone_offline_or_paused_since_is_left_alone(instance, caplog):
    """Given messages that waited, then nothing fails, and nothing is done."""
    caplog.set_level(logging.INFO, "sleeper")
    record = instance.table("one")._record
    gone = TableOperation(operation="split", table_id="00000000")
    assert run_operation(instance, gone, StopSignal(), report=lambda *_: None) == ()
    told = []
    instance.table("one").set_online(online=False)
    run(instance, "measure", told=told)
    instance.table("one").set_online(online=True)
    instance.pause_switch.pause()
    run(instance, "measure", told=told)

    assert told == []
    assert record.name == "one"
    assert "is offline" in caplog.text
    assert "is paused" in caplog.text


def test_a_step_that_fails_is_told_and_does_not_stop_the_next(instance, monkeypatch, caplog):
    """Given splits that fail, then merges are tried, and the message is to come again."""
    merged = []
    monkeypatch.setattr(Table, "split_partitions", _no_answer)
    monkeypatch.setattr(Table, "merge_partitions", lambda self: merged.append(1) or ())

    failures = run(instance, "split")

    assert failures == ("no answer",)
    assert merged == [1]
    assert "one: split failed: no answer" in caplog.text


def _no_answer(*_):
    raise StorageFailed("no answer")


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("text", "no JSON"),
        ("[]", "tableId"),
        ('{"operation": "split"}', "tableId"),
        ('{"operation": "destroy", "tableId": "a"}', "operation is 'destroy'"),
        ('{"operation": ["split"], "tableId": "a"}', "operation is"),
    ],
)
def test_a_message_that_asks_for_nothing_is_refused(body, why):
    """Its text says what is wrong."""
    with pytest.raises(BadRequest, match=why):
        TableOperation.read(body)
