"""Rows are replaced and deleted whatever keeps the state of a table (rules DEL-2, DEL-3)."""

from __future__ import annotations

import pyarrow as pa
import pytest

import sleeper
from sleeper.model.known_properties.state_store import STATE_STORES
from tests.contracts.s3_server import s3_credentials
from tests.contracts.servers.dynamo import dynamo_endpoint, dynamo_environment, on_one_server

__all__ = ["dynamo_endpoint", "dynamo_environment", "s3_credentials"]

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])


def rows(keys, value):
    numbers = [*keys]
    return pa.table({"k": numbers, "v": [value] * len(numbers)}, schema=SCHEMA)


@on_one_server
@pytest.mark.parametrize("store", STATE_STORES)
def test_rows_are_replaced_and_deleted_in_every_store(tmp_path, dynamo_environment, store):
    """Given two leaves, then few keys, many keys, a condition and a job that runs again agree."""
    with sleeper.connect(tmp_path / "instance", create=True) as instance:
        table = instance.create_table(
            "t",
            SCHEMA,
            row_keys=["k"],
            split_points=[1_500],
            properties={"sleeper.table.statestore.classname": store},
        )
        table.ingest(rows(range(3_000), "old"))

        table.upsert(rows([1, 2_000, 5_000], "few"), job_id="few")
        table.upsert(rows(range(900, 2_100), "many"), job_id="many")
        assert table.upsert(rows([1], "again"), job_id="few").already_committed
        assert table.delete(where="k % 2 = 0 AND v <> 'few'").rows == 1_500
        assert table.delete(keys=range(4_000)).regions == 4_000

        assert table.query().to_pylist() == [{"k": 5_000, "v": "few"}]
        assert table.count() == 1
        assert table.verify().clean
        assert instance.table("t").query(key=5_000).to_pylist() == [{"k": 5_000, "v": "few"}]
