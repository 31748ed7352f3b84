"""Sums of decimals that have more digits than their field: limited, or refused (rule PRC-5)."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest

import sleeper
from sleeper.errors import PropertiesInvalid, SchemaInvalid

FIELDS = [
    pa.field("id", pa.int64(), nullable=False),
    pa.field("due", pa.decimal128(4, 1), nullable=False),
]
PROPERTY = "sleeper.table.sums.too.large"


@pytest.fixture
def table():
    """Three ingests of 400.0 for key 7, and one row that fits."""
    with sleeper.connect("memory://") as instance:
        made = instance.create_table(
            "t",
            pa.schema(FIELDS),
            row_keys=["id"],
            properties={"sleeper.table.aggregations": "sum(due)"},
        )
        for key in (7, 7, 7, 8):
            made.ingest([{"id": key, "due": Decimal("400.0")}])
        yield made


QUERIES = {
    "key": lambda table: table.query(key=7).to_pylist(),
    "range": lambda table: table.query(range={"id": (7, 8)}).to_pylist(),
    "all": lambda table: table.query(ordered=False).to_pylist(),
    "sql": lambda table: table.sql("SELECT id, due FROM t WHERE id = 7").to_pylist(),
}


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("compacted", [False, True])
def test_are_refused_where_the_table_says_so(table, query, compacted):
    """Rows of other keys are read; a correcting row makes the sum fit again."""
    table.set_properties({PROPERTY: "refuse"})
    if compacted:
        table.compact(all_files=True)

    with pytest.raises(sleeper.SleeperError, match=r"sum of field 'due' does not fit"):
        QUERIES[query](table)

    assert table.query(key=8).to_pylist() == [{"id": 8, "due": Decimal("400.0")}]
    table.ingest([{"id": 7, "due": Decimal("-300.5")}])
    assert QUERIES[query](table)[0] == {"id": 7, "due": Decimal("899.5")}


@pytest.mark.parametrize("query", QUERIES)
def test_are_limited_otherwise(table, query):
    """As they always were."""
    assert QUERIES[query](table)[0] == {"id": 7, "due": Decimal("999.9")}


def test_the_property_has_two_values(table):
    """Others are refused, and no row is lost by either."""
    with pytest.raises(PropertiesInvalid, match=PROPERTY):
        table.set_properties({PROPERTY: "null"})

    with pytest.raises(SchemaInvalid):
        table.set_properties({PROPERTY: "refuse"})
        table.to_arrow()
