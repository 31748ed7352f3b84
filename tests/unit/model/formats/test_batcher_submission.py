"""Submissions to the ingest batcher: read, written and checked."""

from __future__ import annotations

import pytest

from sleeper.errors import JobInvalid
from sleeper.model.formats.batcher_submission import (
    BatcherSubmission,
    batcher_submission_failures,
    read_batcher_submission,
    write_batcher_submission,
)

TEXT = '{"tableName":"trips","files":["b/a.parquet","b/more/"]}'


def test_what_upstream_sends_is_read_and_written():
    """Byte for byte (BAT-1)."""
    submission = read_batcher_submission(TEXT)

    assert submission == BatcherSubmission(table_name="trips", files=("b/a.parquet", "b/more/"))
    assert write_batcher_submission(submission) == TEXT


def test_that_rows_are_to_be_replaced_is_read_and_written():
    """And nothing is written of a submission that adds rows (BAT-1)."""
    text = '{"tableName":"trips","files":["b/a.parquet"],"upsert":true}'

    assert read_batcher_submission(text).upsert
    assert write_batcher_submission(read_batcher_submission(text)) == text
    for said in ("false", "null"):
        adds = read_batcher_submission(text.replace("true", said))
        assert write_batcher_submission(adds) == text.replace(',"upsert":true', "")


def test_unknown_keys_are_kept():
    """They change nothing."""
    submission = read_batcher_submission('{"files":[],"later":1}')

    assert write_batcher_submission(submission) == '{"files":[],"later":1}'


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"files": 5}', '{"tableName": []}', '{"upsert": 1}']
)
def test_what_is_no_submission_is_refused(text):
    """With the reason (BAT-1)."""
    with pytest.raises(JobInvalid, match="Error parsing JSON"):
        read_batcher_submission(text)


def test_all_failures_come_together():
    """Nothing of a submission is taken if anything of it is wrong (BAT-1)."""
    submission = read_batcher_submission('{"tableName": "tripz", "files": ["a", null]}')

    failures = batcher_submission_failures(submission, table_found=False, missing_paths=["a"])

    assert submission.paths == ["a"]
    assert failures == [
        "One of the files was null",
        "Table not found: tripz",
        "Could not find one or more paths: a",
    ]


def test_a_good_submission_has_no_failure():
    """A table, and files that are there."""
    assert batcher_submission_failures(read_batcher_submission(TEXT), table_found=True) == []
