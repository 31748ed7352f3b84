"""A first table: make an instance, put rows in, get them back by key and by range."""

from __future__ import annotations

import pyarrow as pa

import sleeper


def test_a_first_table(tmp_path):
    """An instance is a folder; a table has a key; rows come back in key order."""
    instance = sleeper.connect(tmp_path / "demo", create=True)
    schema = pa.schema([("city", pa.string()), ("people", pa.int64())])

    table = instance.create_table("cities", schema, row_keys=["city"])
    result = table.ingest(
        [{"city": "Oslo", "people": 709_037}, {"city": "Bern", "people": 134_794}]
    )

    assert (result.rows_read, result.rows_written) == (2, 2)
    assert table.query(key="Oslo").to_pylist() == [{"city": "Oslo", "people": 709_037}]
    assert table.query(range={"city": ("A", "C")}).to_pylist() == [
        {"city": "Bern", "people": 134_794}
    ]
    assert [row["city"] for row in table.query().to_pylist()] == ["Bern", "Oslo"]


def test_it_is_there_tomorrow(tmp_path):
    """Nothing runs in between: another process opens the folder and finds the rows."""
    schema = pa.schema([("city", pa.string())])
    with sleeper.connect(tmp_path / "demo", create=True) as instance:
        instance.create_table("cities", schema, row_keys=["city"]).ingest([{"city": "Oslo"}])

    again = sleeper.connect(tmp_path / "demo")

    assert [record.name for record in again.tables()] == ["cities"]
    assert again.table("cities").query(key="Oslo").to_pylist() == [{"city": "Oslo"}]


def test_an_instance_in_memory():
    """`memory://` needs no folder, and is gone with the process: good for a try."""
    instance = sleeper.connect("memory://")
    table = instance.create_table("t", pa.schema([("id", pa.int64())]), row_keys=["id"])

    table.ingest({"id": n} for n in (3, 1, 2))

    assert table.query().to_pylist() == [{"id": 1}, {"id": 2}, {"id": 3}]


def test_a_schema_file_of_upstream(tmp_path):
    """Schema JSON is Sleeper's own, so a file that exists already will do (rule SCH-1)."""
    schema = """{
      "rowKeyFields":  [{"name": "id", "type": "StringType"}],
      "sortKeyFields": [{"name": "at", "type": "LongType"}],
      "valueFields":   [{"name": "count", "type": "IntType"}]
    }"""

    table = sleeper.connect("memory://").create_table("t", schema, split_points=["g", "p"])

    assert table.schema.names == ("id", "at", "count")
    assert table.arrow_schema.field("count").type == pa.int32()
    assert table.split_points() == ["g", "p"]


def test_a_key_needs_no_name():
    """Given one value without a name, then it is the key; a composite key is a tuple."""
    instance = sleeper.connect("memory://")
    fields = [("id", pa.int64()), ("day", pa.int64())]
    one = instance.create_table("one", pa.schema(fields), row_keys=["id"])
    two = instance.create_table("two", pa.schema(fields), row_keys=["id", "day"])
    rows = [{"id": id_, "day": day} for id_ in (1, 2) for day in (1, 2)]
    for table in (one, two):
        table.ingest(rows)

    assert one.query(2).to_pylist() == rows[2:]
    assert two.query((2, 1)).to_pylist() == [{"id": 2, "day": 1}]
    assert two.query((2,)).to_pylist() == rows[2:]


def test_the_result_of_an_ingest_fits_on_a_screen():
    """Given an ingest into many leaves, then its result shows counts, and not each file."""
    table = sleeper.connect("memory://").create_table(
        "t", pa.schema([("id", pa.int64())]), row_keys=["id"], split_points=[*range(50)]
    )

    done = table.ingest([{"id": n} for n in range(50)])

    assert len(done.files) == 50
    assert "rows_written=50" in repr(done)
    assert len(repr(done)) < 250
