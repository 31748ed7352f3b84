"""Others write to a table, or move its state, while row keys are purged from it (rule DEL-4)."""

from __future__ import annotations

import pytest

import sleeper
from sleeper.state.moves import MoveNotes
from sleeper.tables import migrate_state as moving
from sleeper.tables.purges.search import Search
from tests.contracts.s3_server import s3_credentials
from tests.contracts.servers.dynamo import dynamo_endpoint, dynamo_environment, on_one_server
from tests.stories.test_purges import SCHEMA, addresses, new_table, rows_of

__all__ = ["dynamo_endpoint", "dynamo_environment", "s3_credentials"]

ANN, BOB = "ann@mail.example", "bob@mail.example"


@on_one_server
def test_a_purge_spares_the_copy_of_a_move_that_is_under_way(
    tmp_path, dynamo_environment, monkeypatch
):
    """Given a state that was copied to another store, and a purge then, the move ends well."""
    table, keys = new_table(tmp_path), addresses(50)
    table.ingest(rows_of(keys))
    table.migrate_state("DynamoDBStateStore")
    table.migrate_state("TransactionLogStateStore")
    table.purge(keys=keys[:5])
    copy = moving._copy

    def overtaken(*args):
        copy(*args)
        assert table.purge(keys=keys[:5]).finished

    monkeypatch.setattr(moving, "_copy", overtaken)
    sleeper.connect(tmp_path / "instance").table("people").migrate_state("DynamoDBStateStore")

    assert sleeper.connect(tmp_path / "instance").table("people").count() == len(keys) - 5


@on_one_server
def test_a_purge_deletes_the_copy_of_a_move_that_was_killed(
    tmp_path, dynamo_environment, monkeypatch
):
    """Given a table that never moved, and a copy with keys in DynamoDB, the copy is deleted."""
    table = new_table(tmp_path, split_points=[ANN])
    table.ingest(rows_of([ANN]))
    copy = moving._copy

    def killed(*args):
        copy(*args)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(moving, "_copy", killed)
        with pytest.raises(KeyboardInterrupt):
            table.migrate_state("DynamoDBStateStore")
    (move,) = MoveNotes(table._current().files).all()
    stores = moving._StatePlaces(table._current())
    place = moving.StatePlace(move.class_name, move)
    assert stores.open_store(place).refresh().files.references_count

    assert table.purge(keys=[ANN]).finished

    with pytest.raises(sleeper.errors.ObjectNotFound):
        stores.open_store(place).refresh()


def test_rows_that_are_added_during_the_search_are_told(tmp_path, monkeypatch):
    """Given a key in the midst of a file that was added after the list, it is not finished."""
    table = new_table(tmp_path)
    table.ingest(rows_of([ANN, BOB]))
    other = sleeper.connect(tmp_path / "instance").table("people")
    search_log = Search._search_log

    def overtaken(self, before):
        other.ingest(rows_of(["a@mail.example", ANN, "z@mail.example"]))
        search_log(self, before)

    with monkeypatch.context() as patched:
        patched.setattr(Search, "_search_log", overtaken)
        proof = table.purge(keys=[ANN])

    assert not proof.finished
    assert "during the search" in proof.findings[0].what
    assert table.purge(keys=[ANN]).finished


def test_deletions_of_others_that_share_a_field_are_not_told(tmp_path, monkeypatch):
    """Given keys of two fields, a deletion of another key with the same number is another's."""
    table = new_table(tmp_path, row_keys=("email", "n"))
    table.ingest([{"email": each, "n": 0, "notes": ["a"]} for each in (ANN, BOB, "cat@m.example")])
    other = sleeper.connect(tmp_path / "instance").table("people")
    search_log = Search._search_log

    def overtaken(self, before):
        other.delete(keys=[(BOB, 0)])
        search_log(self, before)

    monkeypatch.setattr(Search, "_search_log", overtaken)

    proof = table.purge(keys=[(ANN, 0)])

    assert proof.finished, proof.findings
    assert SCHEMA.names == table.arrow_schema.names
    assert table.count() == 1


@pytest.mark.parametrize("text", [f"Call {ANN}.", f"-{ANN}", f"...{ANN}...", f"{ANN}-"])
def test_a_key_beside_a_mark_of_punctuation_is_found(tmp_path, text):
    """Given somebody's note in which a sentence ends with the key, the proof names the note."""
    table = new_table(tmp_path)
    (tmp_path / "instance" / table.table_id / "notes.txt").write_text(text)

    assert [each.where for each in table.purge(keys=[ANN]).findings] == ["notes.txt"]


@pytest.mark.parametrize(
    "text",
    [
        "https://shop.example/people?who=z%C3%BCrich%40mail.example",
        "https://shop.example/people?who=z%c3%bcrich%40mail.example",
        "https://shop.example/z%C3%BCrich@mail.example",
        '{"who": "z\\u00FCrich@mail.example"}',
        '{"who": "z\\u00fcrich@mail.example"}',
    ],
)
def test_a_key_that_others_have_escaped_is_found(tmp_path, text):
    """Given an address or JSON of somebody else's in the table's folder, the proof names it."""
    table = new_table(tmp_path)
    (tmp_path / "instance" / table.table_id / "notes.txt").write_text(text)

    proof = table.purge(keys=["z\u00fcrich@mail.example"])

    assert [each.where for each in proof.findings] == ["notes.txt"]


@pytest.mark.parametrize("body", ["hello", ANN])
def test_a_name_with_a_key_is_found_and_the_proof_does_not_repeat_it(tmp_path, body):
    """Given a file of somebody's whose name is the key, it says so, and not the name."""
    table = new_table(tmp_path)
    notes = tmp_path / "instance" / table.table_id / "notes"
    notes.mkdir()
    (notes / f"{ANN}.txt").write_text(body)

    proof = table.purge(keys=[ANN])

    assert not proof.finished
    assert {each.where for each in proof.findings} == {
        "an object in notes/ whose name has a purged key"
    }
    assert "its name has a purged key" in {each.what for each in proof.findings}
    assert ANN not in str(proof.to_json())
    (notes / f"{ANN}.txt").unlink()
    assert table.purge(keys=[ANN]).finished
