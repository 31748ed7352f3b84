"""The parts of an instance in AWS keep their contracts, on each server that speaks to them."""

from __future__ import annotations

import uuid
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from botocore.httpsession import URLLib3Session

from sleeper.errors import BadRequest, DataDamaged, ObjectNotFound
from sleeper.model.formats.properties_file import read_properties
from sleeper.storage.aws.clients import aws_client
from sleeper.storage.aws.deployment.deployment import instance_tables
from sleeper.storage.aws.deployment.table_index import (
    BY_ID,
    BY_NAME,
    DynamoTableIndex,
    properties_key,
)
from sleeper.storage.memory import MemoryObjects
from sleeper.storage.objectstore.routed_objects import Route, RoutedObjects
from tests.any_order.faults import Fault, Faults, FaultyObjects
from tests.contracts.instance_properties_contract import InstancePropertiesContract
from tests.contracts.jobs.test_dynamo_trouble import WRITE
from tests.contracts.objects_contract import ObjectsContract
from tests.contracts.outputs_contract import OutputContract
from tests.contracts.s3_server import REGION
from tests.contracts.servers.dynamo import (
    dynamo_endpoint,
    dynamo_environment,
    without_backoff,
)
from tests.contracts.servers.dynamo_answers import reply
from tests.contracts.servers.s3 import s3_credentials, s3_server
from tests.contracts.table_index_contract import TableIndexContract, short_pause, table

__all__ = [
    "dynamo_endpoint",
    "dynamo_environment",
    "s3_credentials",
    "s3_server",
    "without_backoff",
]


@pytest.fixture
def objects(s3_server, s3_credentials):
    """The routes of an instance in AWS, in three buckets."""
    config, results, rest = (s3_server.objects(s3_server.new_bucket()) for _ in range(3))
    routes = (
        Route("instance.properties", config, "instance.properties"),
        Route("properties/", config, "properties/"),
        Route("a/", results, ""),
        Route("z/", config, "z/"),
    )
    return RoutedObjects(rest, routes)


class TestRoutedObjects(ObjectsContract, OutputContract):
    """Objects in several buckets that are seen as one store."""

    def test_an_object_is_where_its_key_says(self, objects):
        """A route may leave out how its keys begin; a folder is opened where it is."""
        for key in ("a/b/c", "m", "properties/1", "z/y"):
            objects.create(key, key.encode())

        results, config = objects.routes[2].objects, objects.routes[3].objects
        objects.rest.create("a/elsewhere", b"not to be seen")
        assert [info.key for info in results.listing()] == ["b/c"]
        assert [info.key for info in config.listing()] == ["properties/1", "z/y"]
        assert [info.key for info in objects.rest.listing()] == ["a/elsewhere", "m"]
        assert [info.key for info in objects.listing()] == ["a/b/c", "m", "properties/1", "z/y"]
        assert [info.key for info in objects.listing(after="a/b/c")] == ["m", "properties/1", "z/y"]
        assert [info.key for info in objects.listing(after="m")] == ["properties/1", "z/y"]
        assert [info.key for info in objects.listing("a/b", after="a/b/a")] == ["a/b/c"]
        assert objects.under("a/b").read("c") == b"a/b/c"
        assert objects.under("a").read("b/c") == b"a/b/c"
        assert objects.under("z").read("y") == b"z/y"
        assert objects.under("").read("m") == b"m"

        objects.delete(["a/b/c", "z/y"])
        assert [info.key for info in objects.listing()] == ["m", "properties/1"]


class TestInstancePropertiesInAws(InstancePropertiesContract):
    """Properties of an instance in its config bucket."""


@pytest.fixture
def tables(dynamo_environment):
    made = instance_tables(
        f"test-{uuid.uuid4().hex[:8]}",
        REGION,
        pause=short_pause,
        new_id=lambda: str(uuid.uuid4()),
    )
    made.make(BY_ID, BY_NAME)
    return made


@pytest.fixture
def config():
    return MemoryObjects(now=lambda: datetime.now(UTC))


@pytest.fixture
def index(tables, config):
    return DynamoTableIndex(tables, config, pause=short_pause)


@pytest.fixture
def requests(dynamo_environment):
    """The operations that were called of DynamoDB, from now on."""
    called = []
    events = aws_client("dynamodb", REGION).meta.events
    note = called.append
    events.register("before-call.dynamodb", lambda model, **_: note(model.name), "count")
    yield called
    events.unregister("before-call.dynamodb", unique_id="count")


class TestDynamoTableIndex(TableIndexContract):
    """A table index in DynamoDB."""

    @pytest.fixture
    def open_index(self, tables, config):
        return lambda: DynamoTableIndex(tables, config, pause=short_pause)


def test_a_look_up_is_one_request_and_a_change_at_most_three(index, requests):
    """The budget of requests to DynamoDB; a change also writes one object."""
    before, after = table("1", "a"), table("1", "b", p="1")

    def asked(call, *arguments):
        requests.clear()
        call(*arguments)
        return list(requests)

    assert asked(index.add, before) == ["TransactWriteItems", "GetItem"]
    assert asked(index.by_name, "a") == ["GetItem"]
    assert asked(index.by_id, "1") == ["GetItem"]
    assert asked(index.all) == ["Scan"]
    changed = ["GetItem", "TransactWriteItems", "GetItem"]
    assert asked(index.replace, before, after) == changed
    assert asked(index.remove, "1") == changed


def test_items_have_upstreams_attributes(index, tables):
    """Given a table that is offline, then both tables have its item as upstream does (TBL-2)."""
    online = table("1", "a", p="1")
    offline = replace(online, online=False)
    index.add(online)
    index.replace(online, offline)

    assert index.by_name("a") == offline
    for where, key in ((BY_ID, {"TableId": {"S": "1"}}), (BY_NAME, {"TableName": {"S": "a"}})):
        item = tables.get(where, key)
        assert {name: item[name] for name in ("TableId", "TableName", "Online")} == {
            "TableId": {"S": "1"},
            "TableName": {"S": "a"},
            "Online": {"S": "false"},
        }


def test_properties_lie_in_the_config_bucket_while_there_is_the_table(index, config):
    """Given changes, then the file has the last of them; it goes with the table (TBL-3, TBL-4)."""
    name = "sleeper.table.gc.delay.minutes"
    index.add(table("1", "a", **{name: "1"}))
    index.replace(table("1", "a", **{name: "1"}), table("1", "b", **{name: "2"}))

    found = read_properties(config.read(properties_key("1")).decode())
    assert (found["sleeper.table.name"], found[name]) == ("b", "2")

    index.remove("1")
    assert config.read(properties_key("1")) is None


def test_a_file_that_cannot_be_written_fails_no_change(tables, config, caplog):
    """Given a config bucket that fails, then the table is made, and the next change writes it."""
    faulty = FaultyObjects(config, Faults((Fault(0, "refused"),)))
    index = DynamoTableIndex(tables, faulty, pause=short_pause)

    index.add(table("1", "a"))

    assert index.by_name("a") == table("1", "a")
    assert config.read(properties_key("1")) is None
    assert "tables/table-1.properties" in caplog.text

    index.replace(table("1", "a"), table("1", "a", p="1"))
    assert config.read(properties_key("1")) is not None


def test_the_last_change_is_the_one_in_the_file(index, tables, config):
    """Given a change by another between a change and its file, then the file has the newer one."""
    index.add(table("1", "a"))
    other = table("1", "a", **{"sleeper.table.gc.delay.minutes": "2"})
    faults = Faults(meanwhile={0: lambda: index.replace(table("1", "b"), other)})
    late = DynamoTableIndex(tables, FaultyObjects(config, faults), pause=short_pause)

    late.replace(table("1", "a"), table("1", "b"))

    found = read_properties(config.read(properties_key("1")).decode())
    assert found["sleeper.table.gc.delay.minutes"] == "2"


def test_properties_that_are_too_long_are_refused(index):
    """DynamoDB takes 400 KB: the message names the longest property."""
    with pytest.raises(BadRequest, match=r"350000.*sleeper.table.schema"):
        index.add(table("1", "a", **{"sleeper.table.schema": "é" * 200_000}))
    with pytest.raises(BadRequest, match="2048"):
        index.add(table("1", "é" * 1_025))

    assert index.by_name("é" * 1_025) is None
    assert index.all() == ()


def test_a_missing_index_is_no_empty_one(index, tables):
    """Given a table of the index that somebody deleted, then a look-up says so."""
    aws_client("dynamodb", REGION).delete_table(TableName=tables.name(BY_NAME))

    with pytest.raises(ObjectNotFound, match="table-index-by-name"):
        index.by_name("a")


def test_an_item_of_another_program_is_told(index, tables):
    """Given an item without properties, then the message says what it lacks."""
    item = {"TableId": {"S": "1"}, "TableName": {"S": "a"}, "Online": {"S": "true"}}
    aws_client("dynamodb", REGION).put_item(TableName=tables.name(BY_NAME), Item=item)

    with pytest.raises(DataDamaged, match=r"'a'.*Properties"):
        index.by_name("a")


@pytest.mark.usefixtures("without_backoff")
@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_lost_reply_changes_nothing(index, config, number):
    """Given a write that was done and whose reply is lost, then it counts once (TBL-2)."""
    events = aws_client("dynamodb", REGION).meta.events
    writes = []

    def lose(request, **_):
        writes.append(request)
        if len(writes) != number:
            return None
        sent = URLLib3Session().send(request)
        assert sent.status_code == 200, sent.content
        return reply(request, 500, {"__type": "InternalServerError"})

    events.register(WRITE, lose, "lose")
    try:
        index.add(table("1", "a"))
        index.replace(table("1", "a"), table("1", "b"))
        seen = index.all(), index.by_name("a"), index.by_name("b")
        index.remove("1")
    finally:
        events.unregister(WRITE, unique_id="lose")

    assert len(writes) == 4
    assert seen == ((table("1", "b"),), None, table("1", "b"))
    assert index.all() == ()
    assert config.read(properties_key("1")) is None
