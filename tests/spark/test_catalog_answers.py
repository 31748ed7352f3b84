"""The Python side of Spark's catalog, without Spark: its process, and the scans that it plans."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sleeper
from sleeper.errors import BadRequest
from sleeper.interfaces.spark_catalog import CatalogAnswers
from sleeper.model.ranges import whole_region
from sleeper.spark.catalog.answers import PROTOCOL, answer_requests
from sleeper.spark.catalog.scan_plan import condition_of, plan_scan
from sleeper.spark.catalog.tables import new_table
from sleeper.state.plans.key_conditions import narrow
from tests.patience import PATIENCE_S

COLUMNS = pa.schema(
    [pa.field("n", pa.int64(), nullable=False), pa.field("id", pa.string(), nullable=False)]
)


@pytest.fixture
def instance(tmp_path):
    """`plain` has a file in each of three leaves; `sums` adds up its rows."""
    with sleeper.connect(tmp_path / "instance", create=True) as opened:
        plain = opened.create_table("plain", COLUMNS, row_keys=["id"], split_points=["g", "p"])
        plain.ingest([{"id": key, "n": 1} for key in "ahx"])
        added_up = {"sleeper.table.aggregations": "sum(n)"}
        sums = opened.create_table("sums", COLUMNS, row_keys=["id"], properties=added_up)
        sums.ingest([{"id": key, "n": 1} for key in "ahx"])
        yield opened


def opening(instance, **changes):
    return {
        "call": "open",
        "protocol": PROTOCOL,
        "instance": instance.url,
        "allow_functions": None,
        **changes,
    }


def answers_of(instance):
    answers = CatalogAnswers()
    answers.answer(opening(instance))
    return answers


def scan_of(answers, table, **changes):
    version = answers.answer({"call": "load", "table": table})["version"]
    request = {
        "call": "scan",
        "table": table,
        "version": version,
        "columns": ["n"],
        "filters": [],
        "options": {},
        "source": {"instance": "there", "table": table},
        "s3_scheme": None,
    }
    return answers.answer({**request, **changes})


class TestProcess:
    """`python -m sleeper.interfaces.spark_catalog`, as the jar starts it."""

    def test_it_answers_line_by_line_and_ends_with_its_input(self, instance):
        """A refusal is an answer too, and so is a fault; the process goes on after both."""
        requests = [
            opening(instance),
            {"call": "tables"},
            {"call": "load", "table": "plane"},
            {"call": "load"},
            {"call": "drop", "table": "nothing"},
        ]

        with subprocess.Popen(
            [sys.executable, "-m", "sleeper.interfaces.spark_catalog"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        ) as process:
            answers = []
            for request in requests:
                process.stdin.write(json.dumps(request) + "\n")
                process.stdin.flush()
                answers.append(json.loads(process.stdout.readline()))
            rest, said = process.communicate(timeout=PATIENCE_S)

        opened, tables, refused, fault, dropped = answers
        assert (process.returncode, rest) == (0, "")
        assert (opened, tables) == ({"answer": None}, {"answer": ["plain", "sums"]})
        assert refused["error"]["kind"] == "TableNotFound"
        assert "did you mean 'plain'" in refused["error"]["message"]
        assert fault["error"]["kind"] == "Fault"
        assert dropped == {"answer": False}
        assert "Traceback" in said  # of the fault

    def test_it_ends_when_nobody_asks(self):
        """Whoever needs it again starts it again; answers until then are complete."""
        read, write = map(os.fdopen, os.pipe(), ("rb", "wb"))
        answered = io.BytesIO()
        with read, write:
            write.write(b'{"call": "a"}\n')
            write.flush()

            answer_requests(read, answered, lambda request: request["call"], idle_s=0.1)

        assert answered.getvalue() == b'{"answer": "a"}\n'

    def test_a_jar_of_another_version_is_refused(self, instance):
        """A cluster may have the jar of one release and the Python of another."""
        with pytest.raises(BadRequest, match=r"use the jar .*sleeper-catalog\.jar"):
            CatalogAnswers().answer(opening(instance, protocol=PROTOCOL + 1))


class TestScans:
    """Which leaves are read, and by which reader."""

    def test_spark_reads_the_files_of_the_leaves_that_may_match(self, instance):
        """Whole files are Spark's to read; conditions on keys choose among them."""
        answers = answers_of(instance)

        whole = scan_of(answers, "plain")
        some = scan_of(answers, "plain", filters=[["=", "id", {"text": "h"}], None])
        none = scan_of(answers, "plain", filters=[["in", "id", []]])

        assert [len(each["files"]) for each in (whole, some, none)] == [3, 1, 0]
        assert some["files"][0] in whole["files"]
        assert whole["columns"] == ["n"]

    def test_the_data_source_reads_what_must_be_processed(self, instance):
        """With the columns, the regions and the version of this query; a column at least."""
        answers = answers_of(instance)

        plan = scan_of(answers, "sums", columns=[], filters=[[">=", "id", {"text": "h"}]])

        assert plan["files"] is None
        assert plan["columns"] == ["id"]
        options = plan["options"]
        assert (options["instance"], options["columns"]) == ("there", "`id`")
        assert json.loads(options["regions"])[0]["id"]["min"] == "h"
        assert options["as_of"] == "2"

    def test_regions_that_a_user_named_are_cut_by_the_data_source(self, instance):
        """Spark does not evaluate them, so its own reader would return too many rows."""
        regions = json.dumps([{"id": {"min": "b", "max": "i"}}])

        plan = scan_of(answers_of(instance), "plain", options={"Regions": regions})

        assert plan["files"] is None
        assert json.loads(plan["options"]["regions"])[0]["id"]["max"] == "i"

    def test_more_regions_than_an_option_may_hold_are_left_to_spark(self, instance):
        """Then all given regions are read, and Spark filters."""
        keys = [{"text": f"{n:04}"} for n in range(3_000)]

        plan = scan_of(answers_of(instance), "sums", filters=[["in", "id", keys]])

        assert len(json.loads(plan["options"]["regions"])) == 1

    def test_a_bucket_is_read_by_the_scheme_of_the_session(self, instance):
        """Without one Spark cannot read it, and the data source does."""
        table = instance.table("plain").open_for_spark()

        class InBucket:
            def url(self, name):
                return f"s3://bucket/{name}"

        def files(scheme):
            there = type(table.table_files)(
                url="s3://bucket",
                files=InBucket(),
                schema=table.schema,
                processing=table.table_files.processing,
                temp_folder=None,
            )
            return plan_scan(
                there,
                table.store.refresh(),
                columns=["n"],
                filters=[],
                regions=None,
                options={},
                s3_scheme=scheme,
            ).files

        assert files(None) is None
        assert [each.split("/")[0] for each in files("s3a")] == ["s3a:"] * 3


comparisons = st.sampled_from(["=", "<", "<=", ">", ">="])
texts = st.text("abz", max_size=2)
simple = st.one_of(
    st.tuples(comparisons, st.just("id"), st.builds(lambda text: {"text": text}, texts)).map(list),
    st.tuples(st.just("prefix"), st.just("id"), st.builds(lambda t: {"text": t}, texts)).map(list),
    st.lists(texts, max_size=3).map(lambda each: ["in", "id", [{"text": text} for text in each]]),
    st.tuples(comparisons, st.just("n"), st.integers(-2, 2)).map(list),
    st.none(),
)
conditions = st.recursive(
    simple,
    lambda inner: st.one_of(
        st.tuples(st.sampled_from(["and", "or"]), inner, inner).map(list),
        inner.map(lambda part: ["not", part]),
    ),
    max_leaves=6,
)


def is_met(condition, row):
    """Whether a row meets a condition; None if that is not known."""
    match condition:
        case None:
            return None
        case ["and", left, right]:
            both = [is_met(left, row), is_met(right, row)]
            return False if False in both else None if None in both else True
        case ["or", left, right]:
            both = [is_met(left, row), is_met(right, row)]
            return True if True in both else None if None in both else False
        case ["not", part]:
            inner = is_met(part, row)
            return None if inner is None else not inner
        case ["in", column, values]:
            return row[column] in [value["text"] for value in values]
        case [operator, column, value]:
            mine, other = row[column], value["text"] if isinstance(value, dict) else value
            return {
                "=": mine == other,
                "<": mine < other,
                "<=": mine <= other,
                ">": mine > other,
                ">=": mine >= other,
                "prefix": str(mine).startswith(str(other)),
            }[operator]


@given(condition=conditions, key=texts, n=st.integers(-2, 2))
def test_no_row_that_may_meet_a_condition_is_left_out(condition, key, n):
    """Whatever Spark asks for, the regions contain every row of which it is not surely false."""
    schema = sleeper.Schema(
        row_keys=[sleeper.Field("id", sleeper.Primitive.STRING)],
        values=[sleeper.Field("n", sleeper.Primitive.LONG)],
    )

    found = narrow([whole_region(schema)], condition_of(condition), schema).regions

    if is_met(condition, {"id": key, "n": n}) is not False:
        assert any(
            each.ranges[0].min <= key and (each.ranges[0].max is None or key < each.ranges[0].max)
            for each in found
        )


class TestDefinitions:
    """What CREATE TABLE says, as Spark hands it over."""

    def test_options_repeat_properties_and_owner_says_nothing(self):
        """OPTIONS come twice, once with a prefix; Spark adds an owner."""
        columns = {
            "type": "struct",
            "fields": [{"name": "a,b", "type": "long", "nullable": True, "metadata": {}}],
        }
        given = {"row_keys": "`a,b`", "option.row_keys": "`a,b`", "owner": "me"}

        made = new_table(columns, {**given, "sleeper.table.online": "false"})

        assert (made.row_keys, made.sort_keys) == (["a,b"], [])
        assert made.properties == {"sleeper.table.online": "false"}
