"""Row keys are purged whatever keeps the state of a table, also after it was moved (rule DEL-4)."""

from __future__ import annotations

import pytest

import sleeper
from sleeper.errors import BadRequest
from sleeper.model.known_properties.state_store import STATE_STORES
from tests.contracts.s3_server import s3_credentials
from tests.contracts.servers.dynamo import dynamo_endpoint, dynamo_environment, on_one_server
from tests.stories.test_purges import SCHEMA, addresses, places_of, rows_of

__all__ = ["dynamo_endpoint", "dynamo_environment", "s3_credentials"]

WITHOUT_SNAPSHOTS = "DynamoDBTransactionLogStateStoreNoSnapshots"


def made(folder, store):
    """A table whose splits, hidden rows and first versions have the keys that are purged."""
    instance = sleeper.connect(folder / "instance", create=True)
    keys = addresses(300)
    table = instance.create_table(
        "people",
        SCHEMA,
        row_keys=["email"],
        split_points=[keys[100], keys[200]],
        properties={"sleeper.table.statestore.classname": store},
    )
    table.ingest(rows_of(keys[::2]))
    table.ingest(rows_of(keys[1::2]))
    table.delete(keys=keys[98:103])
    return table, keys, keys[90:150]


@on_one_server
@pytest.mark.parametrize("store", [each for each in STATE_STORES if each != WITHOUT_SNAPSHOTS])
def test_keys_are_purged_in_every_store(tmp_path, dynamo_environment, store):
    """Given splits, old versions and entries that have the keys, none is left, and rows stay."""
    table, keys, purged = made(tmp_path, store)

    proof = table.purge(keys=purged)

    assert proof.finished, proof.findings
    assert places_of(purged, tmp_path / "instance") == set()
    assert sleeper.connect(tmp_path / "instance").table("people").count() == len(keys) - 60
    table.ingest(rows_of(["new@mail.example"]))
    assert table.count() == len(keys) - 59
    assert table.verify().findings == ()


@on_one_server
def test_a_store_without_snapshots_is_refused(tmp_path, dynamo_environment):
    """Given readers who need the whole log, the error says to move the state first."""
    table, _, purged = made(tmp_path, WITHOUT_SNAPSHOTS)

    with pytest.raises(BadRequest, match="sleeper table migrate-state people"):
        table.purge(keys=purged)

    assert table.purges() == ()


@on_one_server
@pytest.mark.parametrize("store", [WITHOUT_SNAPSHOTS, "DynamoDBStateStore", "S3StateStore"])
def test_what_a_moved_state_has_left_behind_is_purged(tmp_path, dynamo_environment, store):
    """Given a state that was moved away and back, no store that it was in has a key."""
    table, keys, purged = made(tmp_path, "TransactionLogStateStore")
    table.migrate_state(store)
    table.ingest(rows_of(["new@mail.example"]))
    table.migrate_state("TransactionLogStateStore")

    proof = table.purge(keys=purged)

    assert proof.finished, proof.findings
    assert places_of(purged, tmp_path / "instance") == set()
    assert table.count() == len(keys) - 59
    assert table.verify().findings == ()
