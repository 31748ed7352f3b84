"""Bulk import jobs: upstream's message, read, written and checked."""

from __future__ import annotations

import json
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sleeper.errors import BadRequest, JobInvalid
from sleeper.model.formats.bulk_import_job import (
    BulkImportJob,
    check_bulk_import_job,
    read_bulk_import_job,
    write_bulk_import_job,
)

FULL = {
    "id": "june",
    "tableName": "trips",
    "tableId": "0a1b2c3d",
    "files": ["bucket/a.parquet", "bucket/more/"],
    "className": "com.example.Driver",
    "platformSpec": {"sleeper.table.bulk.import.emr.executor.market.type": "ON_DEMAND"},
    "sparkConf": {"spark.executor.memory": "3g"},
}
texts = st.text(st.characters(exclude_categories=["Cs"]))
settings = st.dictionaries(texts, texts, max_size=3)
jobs = st.builds(
    BulkImportJob,
    id=st.none() | texts.filter(str.strip),
    table_name=st.none() | texts,
    table_id=st.none() | texts,
    files=st.none() | st.lists(st.none() | texts, max_size=3).map(tuple),
    upsert=st.booleans(),
    class_name=st.none() | texts,
    platform_spec=settings,
    spark_conf=settings,
    others=st.dictionaries(st.just("later"), texts | st.integers(), max_size=1),
)


def good(**changes) -> BulkImportJob:
    """A job that nothing is wrong with, but for `changes`."""
    return BulkImportJob(**{"id": "june", "table_name": "trips", "files": ("a",), **changes})


class TestReading:
    """What upstream's Java and Python clients send (BLK-1)."""

    def test_every_key(self):
        """Names are in camel case, as in Java."""
        job = read_bulk_import_job(json.dumps(FULL))

        assert job == BulkImportJob(
            id="june",
            table_name="trips",
            table_id="0a1b2c3d",
            files=("bucket/a.parquet", "bucket/more/"),
            class_name="com.example.Driver",
            platform_spec={"sleeper.table.bulk.import.emr.executor.market.type": "ON_DEMAND"},
            spark_conf={"spark.executor.memory": "3g"},
        )

    @pytest.mark.parametrize("text", ["{}", '{"id": null, "files": null, "sparkConf": null}'])
    def test_nothing_at_all(self, text):
        """A key that is missing or null was not said; what follows from it is checked later."""
        assert read_bulk_import_job(text) == BulkImportJob()

    def test_numbers_and_booleans_are_texts(self):
        """Where a text belongs, `5` and `true` count as "5" and "true", as Gson reads them."""
        job = read_bulk_import_job(
            '{"id": 7, "sparkConf": {"spark.executor.cores": 5, "spark.speculation": true}}'
        )

        assert job.id == "7"
        assert job.spark_conf == {"spark.executor.cores": "5", "spark.speculation": "true"}

    def test_unknown_keys_are_kept(self):
        """They are passed on, and change nothing."""
        job = read_bulk_import_job('{"files": ["a"], "later": {"x": [1]}}')

        assert job.others == {"later": {"x": [1]}}
        assert json.loads(write_bulk_import_job(job)) == {"files": ["a"], "later": {"x": [1]}}

    def test_paths_leave_out_what_is_null(self):
        """`files` keeps it, so that the check can tell."""
        job = read_bulk_import_job('{"files": ["a", null]}')

        assert (job.files, job.paths) == (("a", None), ["a"])

    @pytest.mark.parametrize("text", ["", "{", "[]", '"x"', '{"files": "a"}', '{"id": []}'])
    def test_what_is_no_job_is_refused(self, text):
        """With the reason, worded as upstream words it (ING-10)."""
        with pytest.raises(JobInvalid, match=r"Error parsing JSON\. Reason: "):
            read_bulk_import_job(text)

    def test_all_wrong_types_are_told_together(self):
        """Each with its place in the message."""
        with pytest.raises(JobInvalid) as caught:
            read_bulk_import_job('{"files": [{}], "sparkConf": {"a": []}, "tableName": {}}')

        assert len(caught.value.failures) >= 3
        assert any("tableName" in failure for failure in caught.value.failures)
        assert any("files.0" in failure for failure in caught.value.failures)


class TestWriting:
    """What upstream reads."""

    def test_only_what_was_said(self):
        """One line without spaces; keys in upstream's order; nothing is null."""
        job = BulkImportJob(id="empty-job")

        assert write_bulk_import_job(job) == '{"id":"empty-job"}'
        assert list(json.loads(write_bulk_import_job(read_bulk_import_job(json.dumps(FULL))))) == [
            *FULL
        ]

    @given(jobs)
    def test_reads_back(self, job):
        """Whatever is in it."""
        assert read_bulk_import_job(write_bulk_import_job(job)) == job


class TestChecking:
    """Why a job is rejected before anything is started (ING-10, BLK-2)."""

    @pytest.mark.parametrize("job_id", ["june", "2026-06", "-", "a" * 63])
    def test_a_good_job_passes(self, job_id):
        """Lower case letters, digits and dashes, 63 of them at most."""
        assert check_bulk_import_job(good(id=job_id), table_found=True) is None

    @pytest.mark.parametrize("job_id", [None, "", "June", "a_b", "a b", "é", "a\n"])
    def test_other_ids_are_refused(self, job_id):
        """Clusters name things after them."""
        with pytest.raises(JobInvalid) as caught:
            check_bulk_import_job(good(id=job_id), table_found=True)

        assert caught.value.failures == (
            "Job Ids must only contain lowercase alphanumerics and dashes.",
        )

    @pytest.mark.parametrize(
        ("changes", "reason"),
        [
            ({"id": "a" * 64}, "up to 63"),
            ({"files": None}, 'Missing property "files"'),
            ({"files": ()}, "non-empty value"),
            ({"files": ("a", None)}, "One of the files was null"),
        ],
    )
    def test_one_thing_wrong(self, changes, reason):
        """Is told alone."""
        with pytest.raises(JobInvalid, match=reason) as caught:
            check_bulk_import_job(good(**changes), table_found=True)

        assert len(caught.value.failures) == 1

    def test_all_failures_are_told_together(self):
        """One look is enough to mend a job."""
        job = good(id="A" * 64, files=("a", None), table_name="tripz")

        with pytest.raises(JobInvalid) as caught:
            check_bulk_import_job(job, table_found=False, missing_paths=["a", "b"])

        assert caught.value.failures == (
            "One of the files was null",
            "Table not found: tripz",
            "Could not find one or more paths: a, b",
            "Job Ids must only contain lowercase alphanumerics and dashes.",
            "Job IDs are only allowed to be up to 63 characters long.",
        )
        assert isinstance(caught.value, BadRequest)
        assert pickle.loads(pickle.dumps(caught.value)).failures == caught.value.failures

    def test_an_id_of_a_table_is_told_before_its_name(self):
        """It is what was looked for (ING-9)."""
        with pytest.raises(JobInvalid, match="Table not found: 0a1b2c3d"):
            check_bulk_import_job(good(table_id="0a1b2c3d"), table_found=False)
