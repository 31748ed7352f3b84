"""Properties that somebody else changes while a table is open."""

from __future__ import annotations

import pyarrow as pa
import pytest

from sleeper.instance.instance import connect

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        pa.field("at_ms", pa.int64(), nullable=False),
        pa.field("n", pa.int64(), nullable=False),
    ]
)
LONG_AGO = 1_000


@pytest.fixture
def instance(tmp_path):
    return connect(tmp_path / "instance", create=True)


@pytest.fixture
def table(instance):
    return instance.create_table("t", SCHEMA, row_keys=["id"])


def changed_by_another(instance, **changes: str) -> None:
    names = {
        "filters": "sleeper.table.filters",
        "aggregation": "sleeper.table.aggregations",
    }
    other = connect(instance.url).table("t")
    other.set_properties({names[name]: value for name, value in changes.items()})


class TestAnOpenHandle:
    """A handle that was open before takes over what the index says, with each call."""

    def test_applies_a_filter_by_age_that_was_set_since(self, instance, table):
        """Rows past their age are not returned."""
        new = 2**50
        table.ingest(
            [{"id": "old", "at_ms": LONG_AGO, "n": 1}, {"id": "new", "at_ms": new, "n": 2}]
        )
        assert len(table.query().to_pylist()) == 2

        changed_by_another(instance, filters="ageOff(at_ms,1000)")

        assert [row["id"] for row in table.query().to_pylist()] == ["new"]
        assert table.query(key="old").to_pylist() == []

    def test_aggregates_by_what_was_set_since(self, instance, table):
        """Two rows of one key are one row, by keys and by ranges alike."""
        for n in (700, 1):
            table.ingest([{"id": "a", "at_ms": LONG_AGO, "n": n}])
        assert len(table.query().to_pylist()) == 2

        changed_by_another(instance, aggregation="sum(n),max(at_ms)")

        whole = [{"id": "a", "at_ms": LONG_AGO, "n": 701}]
        assert table.query().to_pylist() == whole
        assert table.query(key="a").to_pylist() == whole
        assert table.query(keys=["a"]).to_pylist() == whole

    def test_keeps_what_it_knows_of_the_state(self, instance, table):
        """Only what depends on properties is opened anew; the log is not read again."""
        table.ingest([{"id": "a", "at_ms": LONG_AGO, "n": 1}])
        store = table._current().store

        changed_by_another(instance, aggregation="sum(n),max(at_ms)")

        assert table._current().store is store
        assert table.properties.processing(table.schema).aggregations
