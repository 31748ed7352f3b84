"""Routes of tables, as upstream's API and `sleeper table` have them."""

from __future__ import annotations

import json
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fastapi.testclient import TestClient

import sleeper
from sleeper.interfaces.rest.app import make_app

SCHEMA = {
    "rowKeyFields": [{"name": "id", "type": "StringType"}],
    "valueFields": [{"name": "n", "type": "LongType"}],
}
TABLE = {"properties": {"sleeper.table.name": "t"}, "schema": SCHEMA}


@pytest.fixture
def instance():
    with sleeper.connect("memory://") as opened:
        yield opened


@pytest.fixture
def client(instance):
    with TestClient(
        make_app(instance), base_url="http://localhost:8750", raise_server_exceptions=False
    ) as opened:
        yield opened


def test_a_table_is_created_as_by_upstreams_api(client, instance):
    """POST /sleeper/tables answers 201 with the id and the name."""
    answer = client.post("/sleeper/tables", json={**TABLE, "splitPoints": ["g", "p"]})

    table = instance.table("t")
    assert (answer.status_code, answer.json()) == (
        201,
        {"tableId": table.table_id, "tableName": "t"},
    )
    assert table.split_points() == ["g", "p"]


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ("{", 400, "invalid_request"),
        ("", 400, "invalid_request"),
        ({}, 400, "invalid_request"),
        ({"schema": SCHEMA}, 400, "invalid_request"),
        ({"properties": {}, "schema": SCHEMA}, 400, "invalid_request"),
        (TABLE | {"schema": {"rowKeyFields": []}}, 400, "invalid_request"),
        (TABLE | {"splitPoints": [5]}, 400, "invalid_request"),
        (TABLE | {"splitPoints": ["b", "a"]}, 400, "invalid_request"),
        (TABLE | {"other": 1}, 400, "invalid_request"),
        (
            TABLE | {"properties": {"sleeper.table.name": "t", "sleeper.table.splits.file": "/x"}},
            400,
            "invalid_request",
        ),
        (
            {"properties": {"sleeper.table.name": "there"}, "schema": SCHEMA},
            409,
            "table_already_exists",
        ),
    ],
)
def test_what_upstream_refuses_is_refused_with_its_code(client, instance, body, status, code):
    """Bodies that are no request, wrong properties, split points, and names that are taken."""
    instance.create_table("there", SCHEMA)

    send = {"content": body} if isinstance(body, str) else {"json": body}
    answer = client.post("/sleeper/tables", **send, headers={"Content-Type": "application/json"})

    found = answer.json()
    assert (answer.status_code, found["error"], found["status"]) == (status, code, status)
    assert found["message"] == found["detail"] != ""
    assert answer.headers["content-type"] == "application/problem+json"
    assert [table.name for table in instance.tables()] == ["there"]


def test_an_unknown_route_is_not_found(client):
    """As upstream answers it."""
    answer = client.get("/sleeper/other")

    assert (answer.status_code, answer.json()["error"]) == (404, "not_found")


@pytest.mark.parametrize("name", ["a/b", "a%2Fb", "..", ".", "ü 𝄞", "a?b#c", "x;y", "tables"])
def test_any_name_of_a_table_is_one_segment_of_a_path(client, instance, name):
    """A name may have a slash, dots or any letter: it is sent percent-encoded."""
    instance.create_table(name, SCHEMA)

    path = "/sleeper/tables/" + quote(name, safe="").replace(".", "%2E")
    shown = client.get(path)
    deleted = client.delete(path)

    assert (shown.status_code, shown.json()["name"]) == (200, name)
    assert deleted.status_code == 204
    assert instance.tables() == ()


def test_a_table_is_shown_as_the_command_line_shows_it(client, instance):
    """Schema, properties, and counts of files."""
    table = instance.create_table("t", SCHEMA)
    table.ingest([{"id": "a", "n": 1}])

    shown = client.get("/sleeper/tables/t").json()

    assert shown["name"] == "t"
    assert shown["schema"]["rowKeyFields"] == SCHEMA["rowKeyFields"]
    assert (shown["files"]["rows"], shown["files"]["files"]) == (1, 1)


def test_properties_are_changed_and_shown(client, instance):
    """PATCH sets, null takes away, and a wrong value is refused with its name."""
    instance.create_table("t", SCHEMA)
    codec = "sleeper.table.parquet.compression.codec"
    path = "/sleeper/tables/t/properties"

    changed = client.patch(path, json={"properties": {codec: "snappy"}})
    wrong = client.patch(path, json={"properties": {codec: "none such"}})

    assert changed.status_code == 204
    assert client.get(path).json()["properties"][codec] == "snappy"
    assert (wrong.status_code, wrong.json()["class"]) == (400, "PropertiesInvalid")
    assert codec in wrong.json()["detail"]
    assert client.patch(path, json={"properties": {codec: None}}).status_code == 204
    assert codec not in client.get(path).json()["properties"]


def test_properties_of_the_instance_are_changed_and_shown(client):
    """As those of a table."""
    name = "sleeper.default.table.parquet.compression.codec"
    path = "/sleeper/instance/properties"

    changed = client.patch(path, json={"properties": {name: "snappy"}})
    wrong = client.patch(path, json={"properties": {name: "none such"}})

    assert changed.status_code == 204
    assert client.get(path).json()["properties"][name] == "snappy"
    assert (wrong.status_code, wrong.json()["class"]) == (400, "PropertiesInvalid")


def test_partitions_and_files_are_listed(client, instance):
    """As `sleeper report` shows them."""
    table = instance.create_table("t", SCHEMA, split_points=["g"])
    table.ingest([{"id": "a", "n": 1}, {"id": "x", "n": 1}])

    partitions = client.get("/sleeper/tables/t/partitions").json()["partitions"]
    files = client.get("/sleeper/tables/t/files", params={"verbose": "true"}).json()

    assert [each["is_leaf"] for each in partitions] == [True, True, False]
    assert files["files"]["leaf_partitions"] == 2
    assert len(files["references"]) == files["files"]["references"]


JOB_FILES = {
    "another folder": "{above}/secret.parquet",
    "above": "{folder}/../secret.parquet",
    "escaped": "file://{folder}/%2e%2e/secret.parquet",
    "link": "{folder}/link",
    "relative": "in/fine.parquet",
    "too long": "{folder}/" + 5000 * "a",
    "no Unicode": "{folder}/\ud800",
    "no Unicode in a bucket": "s3://\ud800/a",
    "zero": "{folder}/\0",
    "other scheme": "http://127.0.0.1/a",
    "upper case": "FILE://{above}/secret.parquet",
}


@pytest.mark.parametrize("file", JOB_FILES.values(), ids=JOB_FILES)
@pytest.mark.parametrize("route", ["jobs", "batcher"])
def test_jobs_read_no_file_outside_the_input_folder(instance, tmp_path, monkeypatch, file, route):
    """Nor one whose meaning depends on where a worker runs; names that cannot be are refused."""
    folder = tmp_path / "in"
    folder.mkdir()
    (tmp_path / "secret.parquet").write_bytes(b"")
    (folder / "link").symlink_to(tmp_path / "secret.parquet")
    instance.create_table("t", pa.schema([("id", pa.string())]), row_keys=["id"])
    pq.write_table(pa.table({"id": ["a"]}), folder / "fine.parquet")
    monkeypatch.chdir(tmp_path)
    app = make_app(instance, input_folder=folder)
    client = TestClient(app, base_url="http://localhost", raise_server_exceptions=False)

    def send(name: str) -> int:
        content = json.dumps({"files": [name.format(folder=folder, above=tmp_path)]})
        headers = {"Content-Type": "application/json"}
        path = f"/sleeper/tables/t/{route}"
        return client.post(path, content=content, headers=headers).status_code

    assert send(file) == 400
    assert send("{folder}/fine.parquet") == 202


def test_a_table_that_is_not_there_is_not_found(client, instance):
    """The message names similar ones."""
    instance.create_table("flights", SCHEMA)

    answer = client.get("/sleeper/tables/flight")

    assert (answer.status_code, answer.json()["class"]) == (404, "TableNotFound")
    assert "did you mean 'flights'" in answer.json()["detail"]
