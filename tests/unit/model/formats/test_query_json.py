"""Queries as messages: read, written and checked, with where their results go."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sleeper.errors import JobInvalid, QueryInvalid
from sleeper.model.formats.query_json import (
    QueryMessage,
    query_columns,
    query_failures,
    query_regions,
    query_warnings,
    read_query,
    region_documents,
    write_query,
)
from sleeper.model.formats.results import (
    ResultsDestination,
    ResultsPublishing,
    read_results_publishing,
    unused_options,
)
from sleeper.model.queries import region_from_request
from sleeper.model.ranges import Range, Region
from sleeper.model.schema import Field, Primitive, Schema

SCHEMA = Schema(
    row_keys=[Field("id", Primitive.STRING), Field("n", Primitive.LONG)],
    sort_keys=[Field("at", Primitive.LONG)],
    values=[Field("v", Primitive.STRING), Field("w", Primitive.BYTES)],
)
GOOD = {
    "tableName": "trips",
    "queryId": "q1",
    "type": "Query",
    "regions": [{"id": {"min": "YQ=="}}],
}


def message(**changes) -> QueryMessage:
    """A query that nothing is wrong with, but for `changes`; None takes a key away."""
    values = {name: value for name, value in (GOOD | changes).items() if value is not None}
    return read_query(json.dumps(values))


class TestReading:
    """What upstream's Java and Python clients send (QRY-8)."""

    def test_every_key(self):
        """The names are upstream's."""
        read = message(
            requestedValueFields=["v"],
            queryTimeIteratorClassName="x.Y",
            queryTimeIteratorConfig="z",
            resultsPublisherConfig={"destination": "SQS", "batchSize": 5},
            statusReportDestinations=[{"destination": "DYNAMODB"}],
            later=1,
        )

        assert read == QueryMessage(
            query_id="q1",
            table_name="trips",
            regions=({"id": {"min": "YQ=="}},),
            requested_value_fields=("v",),
            iterator_class_name="x.Y",
            iterator_config="z",
            publisher={"destination": "SQS", "batchSize": "5"},
            report_to=({"destination": "DYNAMODB"},),
            others={"later": 1},
        )

    @pytest.mark.parametrize("text", ["", "[]", "{"])
    def test_what_is_no_json_object_is_refused(self, text):
        """Nothing can be read of it."""
        with pytest.raises(JobInvalid, match="Error parsing JSON"):
            read_query(text)

    def test_what_is_wrong_with_a_value_hides_no_other(self):
        """The id and the destinations are known, so somebody can be told (QRY-8)."""
        read = message(regions="all", requestedValueFields=[{}], tableName=[])

        assert read.query_id == "q1"
        assert len(read.problems) == 3
        assert query_failures(read, None) == [
            *read.problems,
            "tableName field must be provided",
        ]


class TestRegions:
    """Which rows are asked for (QRY-8)."""

    def test_strings_are_in_base64_unless_it_says_no(self):
        """Upstream leaves the flag out where they are (QRY-8)."""
        documents = [
            {"id": {"min": "YQ==", "max": "Yg=="}},
            {"id": {"min": "YQ==", "max": "Yg=="}, "stringsBase64Encoded": True},
            {"id": {"min": "a", "max": "b"}, "stringsBase64Encoded": False},
        ]

        regions = query_regions(message(regions=documents), SCHEMA)

        assert set(regions) == {Region((Range("a", "b"), Range(-(2**63), None)))}

    def test_ends_belong_as_upstream_says(self):
        """The least value does, the greatest does not; null is no bound."""
        documents = [
            {"n": {"min": 1, "max": 5}},
            {"n": {"min": 0, "minInclusive": False, "max": 4, "maxInclusive": True}},
            {"n": {"min": 1, "max": None}},
        ]

        ranges = [each.ranges[1] for each in query_regions(message(regions=documents), SCHEMA)]

        assert ranges == [Range(1, 5), Range(1, 5), Range(1, None)]

    def test_a_value_of_the_wrong_type_is_refused(self):
        """Each region's failure is reported."""
        read = message(regions=[{"n": {"min": "x"}}, {"id": {"min": "?"}}, {"n": 5}])

        assert len(query_failures(read, SCHEMA)) == 3
        with pytest.raises(QueryInvalid):
            query_regions(read, SCHEMA)

    @given(st.text(st.characters(exclude_categories=["Cs"])), st.integers(-9, 9), st.booleans())
    def test_regions_read_back(self, text, number, bounded):
        """As upstream writes them: strings in base64, and it says so."""
        request = {"id": (text, None), "n": (number, number + 1 if bounded else None)}
        regions = (region_from_request(SCHEMA, request),)

        written = write_query(QueryMessage(regions=region_documents(SCHEMA, regions)))

        assert query_regions(read_query(written), SCHEMA) == regions
        assert '"stringsBase64Encoded":true' in written

    def test_a_key_may_have_the_name_of_the_flag(self):
        """Its strings are as they are then."""
        schema = Schema(row_keys=[Field("stringsBase64Encoded", Primitive.STRING)])
        regions = (Region((Range("a", "b"),)),)

        documents = region_documents(schema, regions)

        assert query_regions(QueryMessage(regions=documents), schema) == regions
        assert query_failures(message(regions=list(documents)), schema) == []


class TestWriting:
    """What upstream reads."""

    def test_in_upstreams_order(self):
        """Without what is not set; the two lists are always there."""
        query = QueryMessage(query_id="q", table_name="t", regions=())

        assert write_query(query) == (
            '{"tableName":"t","queryId":"q","type":"Query","regions":[],'
            '"resultsPublisherConfig":{},"statusReportDestinations":[]}'
        )

    def test_reads_back(self):
        """Unknown keys too."""
        query = message(later={"a": None}, requestedValueFields=[], tableId="i")

        assert read_query(write_query(query)) == query


class TestChecking:
    """Why a query is refused (QRY-8)."""

    def test_a_good_query_has_no_failure(self):
        """With a table's name or id; an empty list of regions asks for no rows."""
        assert query_failures(message(), SCHEMA) == []
        assert query_failures(message(tableName=None, tableId="i", regions=[]), SCHEMA) == []

    @pytest.mark.parametrize(
        ("changes", "failure"),
        [
            ({"queryId": None}, "queryId field must be provided"),
            ({"queryId": " "}, "queryId field must be provided"),
            ({"tableName": None}, "tableName field must be provided"),
            ({"type": None}, "type field must be provided"),
            ({"type": "Other"}, 'Unknown query type "Other"'),
            ({"regions": None}, "regions field must be provided"),
            (
                {"regions": [{"x": {}}]},
                'Key "x" was not a row key field in the table schema',
            ),
            (
                {"requestedValueFields": ["x", "v", "x"]},
                'requestedValueFields: the table has no field "x"',
            ),
        ],
    )
    def test_one_thing_wrong_is_told_alone(self, changes, failure):
        """In upstream's words."""
        assert query_failures(message(**changes), SCHEMA) == [failure]

    @pytest.mark.parametrize(
        ("changes", "part"),
        [
            ({"type": "LeafPartitionQuery"}, "use Query"),
            ({"queryId": "../x"}, "names a folder"),
            ({"queryTimeIteratorClassName": "a.B"}, "sleeper.table.function"),
            ({"resultsPublisherConfig": {"destination": "FTP"}}, "Unknown results publisher"),
            ({"resultsPublisherConfig": {"destination": "WEBSOCKET"}}, "not built yet"),
        ],
    )
    def test_what_is_not_done_here_is_told(self, changes, part):
        """With what to do instead, where there is something."""
        (failure,) = query_failures(message(**changes), SCHEMA)

        assert part in failure

    def test_a_table_that_is_not_there(self):
        """By what it was looked for."""
        by_name, by_id = message(), message(tableId="i")

        assert query_failures(by_name, None) == ['Table could not be found with name: "trips"']
        assert query_failures(by_id, None) == ['Table could not be found with ID: "i"']

    def test_all_failures_come_together(self):
        """The empty object has four."""
        assert query_failures(read_query("{}"), None) == [
            "queryId field must be provided",
            "tableName field must be provided",
            "type field must be provided",
            "regions field must be provided",
        ]


class TestColumns:
    """Which columns the answer has."""

    def test_keys_are_always_there(self):
        """Then the value fields asked for, in the schema's order."""
        assert query_columns(message(), SCHEMA) is None
        assert query_columns(message(requestedValueFields=[]), SCHEMA) == ["id", "n", "at"]
        assert query_columns(message(requestedValueFields=["w", "v", "w", "at"]), SCHEMA) == [
            *("id", "n", "at", "v", "w"),
        ]


class TestPublishing:
    """Where results go (QRY-10, QRY-11, QRY-13)."""

    @pytest.mark.parametrize(
        ("config", "publishing"),
        [
            ({}, ResultsPublishing()),
            (
                {"destination": "s3", "compressionCodec": "SNAPPY"},
                ResultsPublishing(compression="snappy"),
            ),
            (
                {"rowGroupSize": "8M", "pageSize": "131072"},
                ResultsPublishing(row_group_bytes=8 << 20, page_bytes=131_072),
            ),
            (
                {"destination": "NoResultsOutput"},
                ResultsPublishing(destination=ResultsDestination.NOTHING),
            ),
        ],
    )
    def test_what_is_said(self, config, publishing):
        """Files by default (QRY-10); nothing at all (QRY-13)."""
        assert read_results_publishing(config) == (publishing, [])
        assert unused_options(config, publishing) == []

    def test_results_in_messages(self):
        """With the queue, and how many rows a message has (QRY-11)."""
        config = {"destination": "SQS", "sqsResultsUrl": "http://q", "batchSize": "5"}

        publishing, failures = read_results_publishing(config)

        assert publishing == ResultsPublishing(
            destination=ResultsDestination.SQS, queue_url="http://q", batch_rows=5
        )
        assert failures == []

    def test_all_that_is_wrong_comes_together(self):
        """Each option by name."""
        config = {"compressionCodec": "rar", "rowGroupSize": "many", "pageSize": ""}

        _, failures = read_results_publishing(config)

        assert [failure.split(" is ")[0] for failure in failures] == [
            "resultsPublisherConfig: compressionCodec",
            "resultsPublisherConfig: rowGroupSize",
        ]

    def test_a_queue_must_be_named(self):
        """There is none to guess (QRY-11)."""
        _, failures = read_results_publishing({"destination": "SQS", "batchSize": "0"})

        assert len(failures) == 2
        assert "sqsResultsUrl must be provided" in failures[1]


class TestWarnings:
    """What is said without effect is told."""

    def test_nothing_to_tell(self):
        """Upstream's default destination is the tracker."""
        query = message(statusReportDestinations=[{"destination": "DYNAMODB"}])

        assert query_warnings(query) == []

    def test_everything_unknown_is_told(self):
        """Keys, options of results, and those who are to be told of the state."""
        query = message(
            later=1,
            resultsPublisherConfig={"sqsResultsUrl": "x", "bucket": "b"},
            statusReportDestinations=[{"destination": "WEBSOCKET"}, {}],
        )

        assert [warning.split(" ")[0] for warning in query_warnings(query)] == [
            "later",
            "resultsPublisherConfig:",
            "resultsPublisherConfig:",
            "statusReportDestinations:",
            "statusReportDestinations:",
        ]
