"""Requests to the committer as messages."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sleeper.errors import JobInvalid
from sleeper.model.tables import StateMove
from sleeper.state.commit_request import (
    BODY_CHARACTERS_MAX,
    CommitRequest,
    body_text,
    read_commit_request,
    request_commit,
    transaction_of,
    with_body_at,
    write_commit_request,
)
from sleeper.state.transactions.files import AddFiles, ClearFiles, DeleteFiles
from sleeper.state.transactions.moves import MoveState
from tests.unit.state.any_transactions import schemas, transactions
from tests.unit.state.small_tables import SCHEMA, ref

ADDED = AddFiles(references=(ref("a"),))


@given(st.data(), schemas, st.none() | st.text(st.characters(exclude_categories=["Cs"])))
def test_every_transaction_reads_back_as_it_was(data, schema, name):
    """Any transaction over any schema, with names or without (STS-21)."""
    transaction = data.draw(transactions(schema))
    request = request_commit(transaction, schema, "t", request_id=name, task_id=name, run_id=name)

    read = read_commit_request(write_commit_request(request))

    assert transaction_of(read, schema) == transaction
    assert (read.table_id, read.request_id, read.task_id, read.run_id) == ("t", name, name, name)


def test_cannot_move_the_state_to_another_store():
    """A message must not seal a table: only `migrate-state` does, which has copied the state."""
    move = MoveState(move=StateMove("S3StateStore", 7, "5a"))
    request = request_commit(move, SCHEMA, "t")

    with pytest.raises(JobInvalid, match="cannot be requested"):
        transaction_of(request, SCHEMA)


def test_has_upstreams_names():
    """The type stands beside the transaction (STS-21)."""
    written = json.loads(write_commit_request(request_commit(ADDED, SCHEMA, "t", run_id="r")))

    assert list(written) == ["tableId", "transactionType", "transaction", "jobRunId"]
    assert (written["tableId"], written["transactionType"]) == ("t", "ADD_FILES")
    assert list(written["transaction"]) == ["references"]


def test_a_transaction_without_values_is_an_empty_object():
    """It is there, and not null."""
    request = request_commit(ClearFiles(), SCHEMA, "t")

    assert '"transaction":{}' in write_commit_request(request)
    read = read_commit_request(write_commit_request(request))
    assert transaction_of(read, SCHEMA) == ClearFiles()


class TestLargeOnes:
    """A transaction may lie in an object (STS-21)."""

    def test_from_a_length_on(self):
        """Half of it twice is too long for a message."""
        name = "data/partition_root/" + "a" * (BODY_CHARACTERS_MAX - 40) + ".parquet"
        small = request_commit(DeleteFiles(filenames=(name[:-30] + ".parquet",)), SCHEMA, "t")
        large = request_commit(DeleteFiles(filenames=(name,)), SCHEMA, "t")

        assert (small.is_large, large.is_large) == (False, True)
        assert not with_body_at(large, "key").is_large

    def test_the_message_has_the_key(self):
        """What was stored there is the transaction."""
        request = request_commit(ADDED, SCHEMA, "t")
        stored = body_text(request)

        read = read_commit_request(write_commit_request(with_body_at(request, "t/x.json")))

        assert (read.body, read.body_key) == (None, "t/x.json")
        assert transaction_of(read, SCHEMA, stored_body=stored) == ADDED
        assert transaction_of(read, SCHEMA, stored_body=stored.encode()) == ADDED

    @pytest.mark.parametrize("stored", [None, "", "[]", "7", "{", '{"references": 5}', b"\xff"])
    def test_a_body_that_is_none_is_refused(self, stored):
        """The object may be missing, empty or something else."""
        request = CommitRequest(table_id="t", type="ADD_FILES", body_key="k")

        with pytest.raises(JobInvalid, match="ADD_FILES"):
            transaction_of(request, SCHEMA, stored_body=stored)


class TestRefusals:
    """What is no request."""

    @pytest.mark.parametrize(
        ("text", "failures"),
        [
            ("{}", ['Missing property "tableId"', 'Missing property "transactionType"']),
            (
                '{"tableId": "t", "transactionType": "CLEAR_FILES"}',
                ['One of "transaction" and "bodyKey" is needed, and not both'],
            ),
            (
                '{"tableId": "t", "transactionType": "X", "transaction": {}, "bodyKey": "k"}',
                ['One of "transaction" and "bodyKey" is needed, and not both'],
            ),
            (
                '{"tableId": [], "transaction": 5}',
                [
                    "Error parsing JSON. Reason: tableId: must be a text, not []",
                    "Error parsing JSON. Reason: transaction: must be an object, not 5",
                    'Missing property "transactionType"',
                ],
            ),
        ],
    )
    def test_all_failures_come_together(self, text, failures):
        """Each by name."""
        with pytest.raises(JobInvalid) as caught:
            read_commit_request(text)

        assert list(caught.value.failures) == failures

    @pytest.mark.parametrize(
        ("kind", "body"),
        [
            ("NEW_TYPE", {}),
            ("ADD_FILES", {}),
            ("ADD_FILES", {"references": [{"filename": "/etc/passwd"}]}),
            ("REPLACE_FILE_REFERENCES", {"jobId": 5}),
        ],
    )
    def test_what_is_no_transaction_is_refused(self, kind, body):
        """With the reason; the committer goes on with others."""
        request = CommitRequest(table_id="t", type=kind, body=body)

        with pytest.raises(JobInvalid, match=kind):
            transaction_of(request, SCHEMA)
