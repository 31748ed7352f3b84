"""Routes that publish tables for other engines."""

from __future__ import annotations

import polars as pl
import pyarrow as pa
import pytest
from fastapi.testclient import TestClient

import sleeper
from sleeper.interfaces.rest.app import make_app

PATH = "/sleeper/tables/t"


@pytest.fixture
def client(tmp_path):
    with sleeper.connect(tmp_path / "instance", create=True) as instance:
        schema = pa.schema([("id", pa.string()), ("n", pa.int64())])
        instance.create_table("t", schema, row_keys=["id"]).ingest([{"id": "a", "n": 1}])
        with TestClient(make_app(instance), base_url="http://localhost:8750") as opened:
            yield opened


def test_a_table_is_published_shown_and_unpublished(client):
    """Given a table, then the answer says what to give to readers, who have its rows."""
    done = client.post(f"{PATH}/publish", json={"as": "delta", "makeClean": True}).json()
    rows = pl.read_delta(done["location"]).to_dicts()
    shown = client.get(f"{PATH}/publications").json()["publications"]
    gone = client.post(f"{PATH}/unpublish", json={"as": "delta"}).json()
    after = client.get(f"{PATH}/publications").json()

    assert (done["transaction"], done["lag"], done["is_new"]) == (2, 0, True)
    assert rows == [{"id": "a", "n": 1}]
    assert shown == [{**done, "is_new": False}]
    assert gone == {"format": "delta", "deleted": 1}
    assert after == {"publications": []}


@pytest.mark.parametrize(
    "body",
    [
        *({}, {"as": "hudi"}, {"as": 1}, {"as": "delta", "other": 1}, {"as": "delta\0"}),
        *({"as": "x" * 100_000}, {"as": "delta", "makeClean": 1}, {"as": ["delta"]}, [], None),
    ],
    ids=lambda body: str(body)[:30],
)
def test_what_is_no_format_is_refused(client, body):
    """Given such a body, then nothing is published, and the answer does not repeat all of it."""
    answer = client.post(f"{PATH}/publish", json=body)

    assert answer.status_code == 400
    assert len(answer.content) < 2_000
    assert client.get(f"{PATH}/publications").json() == {"publications": []}
