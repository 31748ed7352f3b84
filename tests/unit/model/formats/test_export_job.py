"""Bulk export jobs: read, written and checked."""

from __future__ import annotations

import pytest

from sleeper.errors import JobInvalid
from sleeper.model.formats.export_job import (
    ExportJob,
    export_job_failures,
    read_export_job,
    write_export_job,
)


@pytest.mark.parametrize(
    "text",
    [
        '{"exportId":"e1","tableName":"trips"}',
        '{"exportId":"e1","tableId":"t1"}',
        '{"tableName":"trips","later":[1]}',
        "{}",
    ],
)
def test_what_upstream_sends_is_read_and_written(text):
    """Byte for byte (EXP-1)."""
    assert write_export_job(read_export_job(text)) == text


def test_a_blank_id_is_none():
    """The export gets one of its own (EXP-1)."""
    assert read_export_job('{"exportId": " ", "tableName": "t"}') == ExportJob(table_name="t")


def test_wrong_types_come_together():
    """Each with its place."""
    with pytest.raises(JobInvalid) as caught:
        read_export_job('{"exportId": {}, "tableName": []}')

    assert len(caught.value.failures) == 2


@pytest.mark.parametrize(
    ("job", "found", "failures"),
    [
        (ExportJob(table_name="t"), True, []),
        (ExportJob(), True, ["tableId or tableName field must be provided"]),
        (ExportJob(table_name="t"), False, ["Table not found: t"]),
        (ExportJob(table_name="t", table_id="i"), False, ["Table not found: i"]),
    ],
)
def test_a_table_must_be_named_and_there(job, found, failures):
    """By its id, or by its name (EXP-1)."""
    assert export_job_failures(job, table_found=found) == failures


@pytest.mark.parametrize("export_id", ["a/b", "/", "..", "."])
def test_an_id_that_is_no_name_of_a_folder_is_refused(export_id):
    """Results lie in a folder of that name; all failures come together."""
    failures = export_job_failures(ExportJob(export_id=export_id), table_found=False)

    assert len(failures) == 2
    assert repr(export_id) in failures[1]
