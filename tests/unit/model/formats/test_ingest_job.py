"""Ingest jobs: upstream's message, read, written and checked."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sleeper.errors import JobInvalid
from sleeper.model.formats.ingest_job import (
    IngestJob,
    ingest_job_failures,
    read_ingest_job,
    write_ingest_job,
)

FULL = '{"id":"june","tableName":"trips","tableId":"0a1b2c3d","files":["bucket/a.parquet","b/"]}'
texts = st.text(st.characters(exclude_categories=["Cs"]))
values = st.recursive(
    st.none() | st.booleans() | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=4,
)
jobs = st.builds(
    IngestJob,
    id=st.none() | texts.filter(str.strip),
    table_name=st.none() | texts,
    table_id=st.none() | texts,
    files=st.none() | st.lists(st.none() | texts, max_size=3).map(tuple),
    upsert=st.booleans(),
    delete=st.none() | st.dictionaries(texts, values, max_size=2),
    others=st.dictionaries(st.just("later") | st.just("més"), values, max_size=2),
)


class TestReading:
    """What upstream's Java and Python clients send (ING-9)."""

    def test_every_key(self):
        """The names are upstream's."""
        assert read_ingest_job(FULL) == IngestJob(
            id="june",
            table_name="trips",
            table_id="0a1b2c3d",
            files=("bucket/a.parquet", "b/"),
        )

    @pytest.mark.parametrize("text", ["{}", '{"id": null, "tableName": null, "files": null}'])
    def test_nothing_at_all(self, text):
        """A key that is missing or null was not said; what follows from it is checked later."""
        assert read_ingest_job(text) == IngestJob()

    @pytest.mark.parametrize("blank", ["", " ", "\\t\\n"])
    def test_a_blank_id_is_none(self, blank):
        """The job gets one of its own (ING-9)."""
        assert read_ingest_job(f'{{"id": "{blank}"}}').id is None

    def test_spaces_around_an_id_stay(self):
        """An id is taken as it is."""
        assert read_ingest_job('{"id": " a "}').id == " a "

    def test_a_null_among_files_is_kept(self):
        """The check names it; paths are without it."""
        job = read_ingest_job('{"files": ["a", null]}')

        assert (job.files, job.paths) == (("a", None), ["a"])

    def test_numbers_and_booleans_are_texts(self):
        """As Gson reads them."""
        job = read_ingest_job('{"id": 7, "tableName": true, "files": [1.5]}')

        assert (job.id, job.table_name, job.files) == ("7", "true", ("1.5",))

    def test_unknown_keys_are_kept(self):
        """They are passed on, null or not, and change nothing."""
        job = read_ingest_job('{"files": ["a"], "later": {"x": [1]}, "more": null}')

        assert job.others == {"later": {"x": [1]}, "more": None}
        assert write_ingest_job(job) == '{"files":["a"],"later":{"x":[1]},"more":null}'

    @pytest.mark.parametrize(
        "text",
        [
            *("", "{", "[]", "null", '"x"', "7", "{} {}", '{"id": NaN}', '{"id": Infinity}'),
            *('{"files": "a"}', '{"id": []}', '{"tableName": {}}', '{"files": [["a"]]}'),
            *('{"id": "a", "id": "b"}', '{"x": [{"a": 1, "a": 2}]}', "[" * 101 + "]" * 101),
            *('{"x": ' + "[" * 100 + "]" * 100 + "}", '{"a":' * 101 + "1" + "}" * 101),
            *('{"id": "\\ud800"}', "\ud800", "[" * 100_000, '{"id": ' + "9" * 5000 + "}"),
        ],
        ids=lambda text: ascii(text[:20]),
    )
    def test_what_is_no_job_is_refused(self, text):
        """With the reason, worded as upstream words it (ING-10)."""
        with pytest.raises(JobInvalid, match=r"^Error parsing JSON\. Reason: \S") as caught:
            read_ingest_job(text)

        assert len(str(caught.value)) < 500

    def test_all_wrong_types_come_together(self):
        """Each with its place in the message (ING-10)."""
        with pytest.raises(JobInvalid) as caught:
            read_ingest_job(
                '{"id": {}, "tableName": [1], "tableId": {"a": 1}, "files": [{}, 1, []]}'
            )

        assert caught.value.failures == (
            "Error parsing JSON. Reason: id: must be a text, not {}",
            "Error parsing JSON. Reason: tableName: must be a text, not [1]",
            'Error parsing JSON. Reason: tableId: must be a text, not {"a": 1}',
            "Error parsing JSON. Reason: files.0: must be a text, not {}",
            "Error parsing JSON. Reason: files.2: must be a text, not []",
        )

    @given(st.text() | values.map(json.dumps))
    def test_any_text_is_read_or_refused(self, text):
        """Nothing else happens, whatever somebody sends."""
        try:
            job = read_ingest_job(text)
        except JobInvalid as error:
            assert error.failures  # noqa: PT017 - either is right
        else:
            assert isinstance(job, IngestJob)


class TestWriting:
    """What upstream reads, byte for byte as upstream writes it."""

    def test_every_key(self):
        """In upstream's order, without spaces."""
        assert write_ingest_job(read_ingest_job(FULL)) == FULL

    def test_only_what_was_said(self):
        """Nothing is null."""
        assert write_ingest_job(IngestJob(id="a", files=())) == '{"id":"a","files":[]}'

    def test_characters_are_escaped_as_gson_does(self):
        """`=`, `&`, `'`, `<` and `>` are, and two separators of lines; other letters are not."""
        job = IngestJob(files=("day=1/a&b'<c>", "é\u2028\u2029\U0001f600\n\x7f\x01"))

        assert write_ingest_job(job) == (
            r'{"files":["day\u003d1/a\u0026b\u0027\u003cc\u003e",'
            '"é\\u2028\\u2029\U0001f600\\n\x7f\\u0001"]}'
        )

    @given(jobs)
    def test_reads_back(self, job):
        """Whatever is in it."""
        assert read_ingest_job(write_ingest_job(job)) == job


class TestChecking:
    """Why a job is rejected (ING-10)."""

    def test_a_good_job_has_no_failure(self):
        """Any id will do, and no file is a file too few."""
        job = IngestJob(id="Ü_1", table_name="trips", files=())

        assert ingest_job_failures(job, table_found=True) == []

    @pytest.mark.parametrize(
        ("job", "found", "missing", "reason"),
        [
            (IngestJob(), True, (), 'Missing property "files"'),
            (IngestJob(files=("a", None)), True, (), "One of the files was null"),
            (IngestJob(files=(), table_name="t"), False, (), "Table not found: t"),
            (IngestJob(files=(), table_name="t", table_id="i"), False, (), "Table not found: i"),
            (IngestJob(files=()), False, (), "Table not found: none was named"),
            (IngestJob(files=("a", "b")), True, ["b"], "Could not find one or more paths: b"),
        ],
    )
    def test_one_thing_wrong_is_told_alone(self, job, found, missing, reason):
        """In upstream's words, with the name that nobody found."""
        assert ingest_job_failures(job, table_found=found, missing_paths=missing) == [reason]

    def test_all_failures_come_together(self):
        """One look is enough to mend a job (ING-10)."""
        job = IngestJob(table_name="tripz", files=("a", None, "b"))

        assert ingest_job_failures(job, table_found=False, missing_paths=["a", "b"]) == [
            "One of the files was null",
            "Table not found: tripz",
            "Could not find one or more paths: a, b",
        ]

    def test_files_and_table_missing(self):
        """The empty object has both."""
        assert ingest_job_failures(read_ingest_job("{}"), table_found=False) == [
            'Missing property "files"',
            "Table not found: none was named",
        ]
