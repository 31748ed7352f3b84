"""`sleeper jobs` and `sleeper queue` take the words that their help and the pages show."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

import sleeper as library
from sleeper.model.jobs.kinds import QueueName
from tests.unit.interfaces.command_line import sleeper


@pytest.fixture
def url(tmp_path):
    """An instance with a table."""
    with library.connect(tmp_path / "instance", create=True) as opened:
        opened.create_table("t", pa.schema([("id", pa.int64())]), row_keys=["id"])
        return opened.url


@pytest.mark.parametrize("name", [each for each in QueueName if each is not QueueName.COMMIT])
def test_a_message_goes_to_the_queue_that_is_named(url, tmp_path, name):
    """By the names that `sleeper queue list` shows. Only commits need more than a text."""
    message = tmp_path / "message.json"
    message.write_text("{}")

    sent = sleeper("jobs", "send", name.value, message, "--instance", url)

    assert sent.exit_code == 0, sent.output
    listed = json.loads(sleeper("queue", "list", "--json", "--instance", url).stdout)
    assert [each for each, depth in listed.items() if depth["ready"]] == [name.value]


@pytest.mark.parametrize(
    "arguments",
    [
        ("queue", "dead-letters", "bulk-import"),
        ("queue", "redrive", "ingest"),
        ("jobs", "list", "--kind", "compaction", "--state", "FAILED"),
        ("jobs", "list", "--kind", "INGEST"),
        ("jobs", "queries", "--state", "COMPLETED"),
        ("report", "tasks", "--kind", "query"),
    ],
)
def test_words_are_taken_as_they_are_shown(url, arguments):
    """Lower case as in queues and kinds; any case will do."""
    done = sleeper(*arguments, "--instance", url)

    assert done.exit_code == 0, done.output
