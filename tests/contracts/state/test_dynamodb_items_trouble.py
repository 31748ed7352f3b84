"""A state as items of DynamoDB: what it costs, and trouble that no server of the tests makes."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from itertools import count
from random import Random

import pytest
from botocore.exceptions import ConnectionClosedError

from sleeper.errors import (
    CommitTooLarge,
    CommitUnknown,
    DataDamaged,
    FormatTooNew,
    ObjectNotFound,
    StorageFailed,
    VersionNotFound,
)
from sleeper.model.partitions import tree_from_split_points
from sleeper.model.queries import key_region
from sleeper.model.row_deletes import RowDelete
from sleeper.model.schema import Field, Primitive, Schema
from sleeper.state import table_state
from sleeper.state.revision_store import Revision, RevisionStateStore
from sleeper.state.table_state import CommittedJob, TableState
from sleeper.state.transactions.files import AddFiles, Claim, ClaimFiles, ClearFiles, ReplaceFiles
from sleeper.state.transactions.partitions import InitialisePartitions
from sleeper.storage.aws.dynamo_tables import DynamoTables, make_tables
from sleeper.storage.aws.state import dynamo_revisions
from sleeper.storage.aws.state.dynamo_revisions import DynamoStateRevisions
from sleeper.storage.aws.state.state_items import COMMITS, FILES, REFERENCES
from tests.contracts.s3_server import s3_server
from tests.contracts.servers.dynamo import dynamo_endpoint, new_id
from tests.contracts.servers.dynamo_answers import cancelled, done_without_a_reply, refused, reply
from tests.contracts.state.s3_revision_stores import FIRST, Clock, Requests, add, names
from tests.unit.state.small_tables import MUCH_LATER, NOON, SCHEMA, contents, ref, split

__all__ = ["dynamo_endpoint", "s3_server"]

WRITE = "TransactWriteItems"


class World:
    """One table whose state is in items; any number of processes open it."""

    def __init__(self, endpoint):
        self.endpoint, self.prefix = endpoint, f"sleeper-{new_id()}-"
        self.clock = Clock()
        self.requests = Requests(endpoint)
        self.pauses = []

    def revisions(self, requests=None, *, is_new=False, schema=SCHEMA):
        requests = requests or self.requests
        tables = DynamoTables(
            lambda: requests.client, self.prefix, pause=self.pauses.append, new_id=new_id
        )
        return DynamoStateRevisions(
            tables,
            "flights",
            schema,
            new_id=new_id,
            pause=self.pauses.append,
            is_new=is_new,
        )

    def store(self, requests=None, *, is_new=False, schema=SCHEMA, **options):
        """Open the table in another process; it must be there, unless it is new."""
        return RevisionStateStore(
            self.revisions(requests, is_new=is_new, schema=schema),
            schema,
            storage_time=self.clock,
            ticks_s=lambda: 0.0,
            new_id=new_id,
            pause=lambda attempt: None,
            **options,
        )

    def new_store(self):
        store = self.store(is_new=True)
        store.commit(FIRST)
        return store

    def asked(self, do):
        """Return the requests that a call makes, and its result."""
        self.requests.seen.clear()
        result = do()
        return dict(self.requests.seen), result

    def tables(self):
        """Return the names of the tables that there are."""
        pages = self.requests.client.get_paginator("list_tables").paginate()
        found = (name for page in pages for name in page["TableNames"])
        return sorted(name for name in found if name.startswith(self.prefix))

    def items(self, table):
        """Return what any client of DynamoDB sees of a table, by range key."""
        name = f"{self.prefix}{table}"
        found = self.requests.client.scan(TableName=name, ConsistentRead=True)["Items"]
        order = {
            "active-files": "PartitionIdAndFileName",
            "file-ref-count": "FileName",
            "partitions": "PartitionId",
            "state-commits": "Id",
        }
        return {item[order[table]]["S"]: item for item in found}

    def change(self, table, key, **attributes):
        """Change an item as somebody else does; None removes an attribute."""
        item = self.items(table)[key] | attributes
        item = {name: value for name, value in item.items() if value is not None}
        self.requests.client.put_item(TableName=f"{self.prefix}{table}", Item=item)

    def remove(self, table, key):
        item = self.items(table)[key]
        order = next(name for name, value in item.items() if value == {"S": key})
        self.requests.client.delete_item(
            TableName=f"{self.prefix}{table}", Key={"TableId": item["TableId"], order: item[order]}
        )


@pytest.fixture
def world(s3_server):
    return World(s3_server.endpoint)


@pytest.fixture
def store(world):
    return world.new_store()


def at(operation, number, answer):
    """Return what meets the requests: an answer to this one, counted from 1."""
    return lambda what, n, request: answer(request) if (what, n) == (operation, number) else None


def job(job_id, keep_until=MUCH_LATER):
    return CommittedJob(job_id=job_id, keep_until=keep_until, rows_read=0, rows_written=0)


class TestCosts:
    """What is asked of DynamoDB."""

    def test_nothing_new_is_one_read_and_a_commit_one_more_request(self, world, store):
        """Without other writers."""
        looked, _ = world.asked(store.refresh)
        committed, _ = world.asked(lambda: store.commit(add("a")))

        assert looked == {"GetItem": 1}
        assert committed == {"GetItem": 1, WRITE: 1}

    def test_a_commit_of_another_is_two_reads_and_four_queries(self, world, store):
        """Where each table fits a page."""
        reader = world.store()
        reader.refresh()
        store.commit(add("a"))

        asked, state = world.asked(reader.refresh)

        assert asked == {"GetItem": 2, "Query": 4}
        assert names(state) == ["a"]

    def test_a_look_at_the_last_commit_is_remembered_by_one_write(self, world, store):
        """And not if there is a newer one by then."""
        world.clock.time += timedelta(hours=2)
        asked, _ = world.asked(lambda: store.dates_stored_before(world.clock.time))
        late = world.store()
        held = late._refreshed()
        store.commit(add("a"))
        late._revisions.remember(held)

        assert asked == {"GetItem": 1, "UpdateItem": 1}
        assert names(world.store().refresh()) == ["a"]
        assert world.items("state-commits")["revision"]["RevisionNumber"] == {"N": "2"}


class TestPages:
    """A state of several pages of items."""

    @pytest.fixture
    def large(self, store):
        """528 references of more than 2 KB."""
        key = json.dumps(["x" * 1000])
        for first in range(0, 528, 48):
            some = [ref(f"f{n:03d}", first_key=key, last_key=key) for n in range(first, first + 48)]
            store.commit(AddFiles(references=tuple(some)))
        return store

    def test_all_pages_are_read(self, world, large):
        """A page of DynamoDB has a megabyte."""
        asked, state = world.asked(lambda: world.store().refresh())

        assert asked == {"GetItem": 2, "Query": 5}
        assert contents(state) == contents(large.state())

    def test_a_commit_between_two_pages_is_not_read_by_half(self, world, large):
        """Given a compaction while another process reads, then it reads all again."""
        claim = Claim(job_id="c", partition_id="root", filenames=("f000", "f479"))
        large.commit(ClaimFiles(assignments=(claim,)))
        replacing = ReplaceFiles(job_id="c", inputs=("f000", "f479"), output=ref("new"))
        reader = Requests(world.endpoint)
        reader.meet = at("Query", 2, lambda request: large.commit(replacing) and None)

        state = world.store(reader).refresh()

        assert contents(state) == contents(large.state())
        assert reader.seen == {"GetItem": 3, "Query": 5 + 5}
        assert len(world.pauses) == 1

    def test_a_state_that_never_holds_still_is_an_error(self, world, store, monkeypatch):
        """It says so; nothing else is returned."""
        monkeypatch.setattr(dynamo_revisions, "_READS_MAX", 3)
        numbers = count()
        reader = Requests(world.endpoint)
        reader.meet = lambda what, n, request: (
            store.commit(add(f"f{next(numbers)}")) and None if what == "Query" else None
        )

        with pytest.raises(StorageFailed, match="changed each of 3 times that it was read"):
            world.store(reader).refresh()


class TestFaults:
    """Answers that no server of the tests gives."""

    @pytest.mark.parametrize(
        "code", ["TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded"]
    )
    def test_a_transaction_that_meets_another_is_sent_again(self, world, store, code):
        """With its token, and after a pause."""
        world.requests.seen.clear()
        world.requests.meet = at(WRITE, 1, lambda request: cancelled(request, {1: code}))

        state = store.commit(add("a"))

        assert (state.number, names(world.store().refresh())) == (2, ["a"])
        assert world.requests.seen[WRITE] == 2

    def test_a_condition_that_failed_beside_a_conflict_says_nothing(self, world, store):
        """The other transaction is in the midst of its writes."""
        world.requests.seen.clear()
        both = {0: "TransactionConflict", 1: "ConditionalCheckFailed"}
        world.requests.meet = at(WRITE, 1, lambda request: cancelled(request, both))

        assert store.commit(add("a")).number == 2

    def test_a_lost_race_of_the_revision_item_is_no_damage(self, world, store):
        """Though the condition of a file fails too: the other has added it."""
        other = world.store(Requests(world.endpoint))
        other.refresh()
        world.requests.seen.clear()
        world.requests.meet = at(WRITE, 1, lambda request: other.commit(add("a", "b")) and None)

        done = store.commit_group([add("b"), add("c")])

        assert [type(each).__name__ for each in done.refusals] == ["FileAlreadyExists", "NoneType"]
        assert names(done.state) == ["a", "b", "c"]

    def test_a_commit_follows_one_of_other_items(self, world, store):
        """Given a writer that was faster with another file, then the slower one commits again."""
        other = world.store(Requests(world.endpoint))
        other.refresh()
        world.requests.seen.clear()
        world.requests.meet = at(WRITE, 1, lambda request: other.commit(add("theirs")) and None)

        state = store.commit(add("ours"))

        assert (state.number, names(state)) == (3, ["ours", "theirs"])
        assert contents(world.store().refresh()) == contents(state)

    def test_a_commit_without_a_reply_is_there_once(self, world, store):
        """Given a connection that ends, then the history of the revision tells."""

        def connection_ends(request):
            done_without_a_reply(request)
            raise ConnectionClosedError(endpoint_url=request.url)

        world.requests.seen.clear()
        world.requests.meet = at(WRITE, 1, connection_ends)

        state = store.commit(add("a"))

        assert (state.number, names(state)) == (2, ["a"])
        assert names(world.store().refresh()) == ["a"]
        assert world.requests.seen[WRITE] == 1

    def test_boto3_repeats_a_commit_without_harm(self, world, store):
        """Given its own retries, then DynamoDB knows the token."""
        requests = Requests(world.endpoint, attempts=3)
        other = world.store(requests)
        other.refresh()
        requests.meet = at(WRITE, 1, done_without_a_reply)

        assert other.commit(add("a")).number == 2
        assert requests.seen[WRITE] == 2
        assert names(store.refresh()) == ["a"]

    def test_storage_that_goes_away_leaves_it_unknown(self, world, store):
        """After the commit was done."""
        down = []

        def go_away(request):
            down.append(True)
            return done_without_a_reply(request)

        world.requests.seen.clear()
        world.requests.meet = lambda what, n, request: (
            refused(request, "InternalServerError", 500)
            if down
            else go_away(request)
            if what == WRITE
            else None
        )

        with pytest.raises(CommitUnknown):
            store.commit(add("a"))
        assert names(world.store(Requests(world.endpoint)).refresh()) == ["a"]

    def test_items_that_were_not_deleted_are_deleted_again(self, world, store):
        """BatchWriteItem leaves some where there are too many calls."""
        store.commit(add(*(f"f{n}" for n in range(30))))
        left = []

        def some_left(operation, number, request):
            if operation != "BatchWriteItem" or left:
                return None
            left.append(json.loads(request.body)["RequestItems"])
            return reply(request, 200, {"UnprocessedItems": left[0]})

        world.requests.meet = some_left
        store.delete()

        assert left
        for table in ("active-files", "file-ref-count", "partitions", "state-commits"):
            assert world.items(table) == {}
        store.delete()

    def test_a_deletion_that_was_interrupted_is_completed(self, world, store):
        """Nobody reads what is left meanwhile."""
        store.commit(add("a"))
        world.requests.seen.clear()
        world.requests.meet = at("BatchWriteItem", 3, lambda r: refused(r, "AccessDeniedException"))
        with pytest.raises(StorageFailed):
            store.delete()
        world.requests.meet = lambda *_: None

        with pytest.raises(ObjectNotFound, match="the state of table flights is not in"):
            world.store().refresh()
        with pytest.raises(ObjectNotFound):
            store.commit(add("b"))
        world.store().delete()
        assert world.items("file-ref-count") == {}


class TestWrongPlaces:
    """A state that is looked for where it is not."""

    def test_tables_that_are_missing_are_not_made_for_a_table_that_exists(self, world, s3_server):
        """As with another region."""
        elsewhere = World(s3_server.endpoint)

        with pytest.raises(ObjectNotFound, match="AWS_REGION"):
            elsewhere.store().refresh()
        elsewhere.store().delete()
        assert all(
            not each.startswith(elsewhere.prefix)
            for each in elsewhere.requests.client.list_tables()["TableNames"]
        )

    def test_older_versions_are_refused_with_the_stores_that_have_them(self, store):
        """All of them."""
        store.commit(add("a"))

        with pytest.raises(
            VersionNotFound, match="a TransactionLogStateStore or DynamoDBTransactionLogStateStore"
        ):
            store.at(1)


class TestOldLayout:
    """The partitions table with the keys that Sleeper made before, on each server."""

    @pytest.fixture
    def world(self, dynamo_endpoint):
        world = World(dynamo_endpoint)
        keys = {"TableId": "HASH", "Id": "RANGE"}
        world.requests.client.create_table(
            TableName=f"{world.prefix}partitions",
            KeySchema=[{"AttributeName": name, "KeyType": kind} for name, kind in keys.items()],
            AttributeDefinitions=[{"AttributeName": each, "AttributeType": "S"} for each in keys],
            BillingMode="PAY_PER_REQUEST",
        )
        return world

    @pytest.mark.parametrize("others_are_made", [False, True])
    def test_it_is_refused_whatever_is_done(self, world, others_are_made):
        """By name, with what to do; nothing is written, and no table is made."""
        client = world.requests.client
        if others_are_made:  # as a stack would make them
            make_tables(
                client,
                {f"{world.prefix}{each.name}": each for each in (COMMITS, REFERENCES, FILES)},
                world.pauses.append,
                None,
                lambda answer: None,
            )
        before = world.tables()
        for act in (
            lambda: world.store().refresh(),
            lambda: world.store(is_new=True).commit(FIRST),
            lambda: world.revisions(is_new=True).begin(Revision()),
            lambda: world.store().delete(),
        ):
            with pytest.raises(DataDamaged, match=r"partitions has the keys .* migrate-state"):
                act()

        assert world.tables() == before
        assert len(before) == (4 if others_are_made else 1)
        assert [client.scan(TableName=each)["Count"] for each in before] == [0] * len(before)


class TestDamage:
    """Items that somebody else has changed."""

    def test_a_reference_that_is_gone_is_named(self, world, store):
        """By a writer that knew it; another process sees that one is missing."""
        store.commit(add("a", "b"))
        world.remove("active-files", "root|a")
        claim = Claim(job_id="c", partition_id="root", filenames=("a", "b"))

        with pytest.raises(DataDamaged, match=r"active-files TableId='flights', .*'root\|a'\."):
            store.commit(ClaimFiles(assignments=(claim,)))
        with pytest.raises(DataDamaged, match="it should have 2 references, and has 1"):
            world.store().refresh()
        assert store.refresh().number == 2

    def test_a_file_that_somebody_has_added_is_named(self, world, store):
        """Nothing is written over it."""
        store.commit(add("a"))
        item = world.items("file-ref-count")["a"] | {"FileName": {"S": "b"}}
        world.requests.client.put_item(TableName=f"{world.prefix}file-ref-count", Item=item)

        with pytest.raises(DataDamaged, match=r"file-ref-count TableId='flights', FileName='b'"):
            store.commit(add("b"))

    def test_a_count_that_somebody_has_changed_is_named(self, world, store):
        """As a file would be deleted that is needed."""
        store.commit(add("a"))
        world.change("file-ref-count", "a", References={"N": "2"})
        claim = Claim(job_id="c", partition_id="root", filenames=("a",))
        store.commit(ClaimFiles(assignments=(claim,)))

        with pytest.raises(DataDamaged, match="FileName='a'"):
            store.commit(ReplaceFiles(job_id="c", inputs=("a",), output=ref("out")))

    @pytest.mark.parametrize(
        ("table", "key", "attributes", "told"),
        [
            ("active-files", "root|a", {"FileDetails": {"S": "[1"}}, r"active-files \('root\|a'\)"),
            ("active-files", "root|a", {"FileDetails": None}, "KeyError: 'FileDetails'"),
            ("active-files", "root|a", {"FileDetails": {"S": "[]"}}, r"\('root\|a'\) cannot be"),
            (
                "partitions",
                "root",
                {"Region": {"S": "[]"}},
                r"partitions \('root'\) cannot be read",
            ),
            (
                "partitions",
                "root",
                {"Region": {"S": '{"n":{"min":"x","max":null}}'}},
                r"partitions \('root'\) cannot be read: QueryInvalid",
            ),
            (
                "partitions",
                "root",
                {"Region": {"S": '{"n":{"min":null,"max":null}}'}},
                "the range of 'n' has no minimum",
            ),
            ("partitions", "root", {"PartitionParentId": {"S": "x"}}, "have 0 roots"),
            ("state-commits", "job#j", {"Body": {"S": "[]"}}, r"\('job#j'\) cannot be read"),
            ("state-commits", "revision", {"Schemas": {"S": "{"}}, "revision item cannot be read"),
            ("state-commits", "revision", {"Schemas": {"B": b"{"}}, "schemas are damaged"),
            (
                "state-commits",
                "revision",
                {"History": {"S": "{"}},
                "history of a table's revisions",
            ),
            (
                "state-commits",
                "revision",
                {"PartitionCount": {"N": "7"}},
                "should have 7 partitions",
            ),
        ],
    )
    def test_an_item_that_cannot_be_read_is_named(self, world, store, table, key, attributes, told):
        """With the tables to restore."""
        store.commit(AddFiles(references=(ref("a"),), job=job("j")))
        world.change(table, key, **attributes)

        with pytest.raises(DataDamaged, match=rf"state of table flights .*{told}"):
            world.store().refresh()

    def test_a_file_outside_of_the_tables_folder_is_refused(self, world, store):
        """Nobody may read or delete it through the table."""
        store.commit(add("a"))
        item = world.items("active-files")["root|a"]
        item["PartitionIdAndFileName"] = {"S": "root|../other/data/a.parquet"}
        world.requests.client.put_item(TableName=f"{world.prefix}active-files", Item=item)

        with pytest.raises(DataDamaged, match="outside the table's folder"):
            world.store().refresh()

    def test_a_newer_format_is_refused(self, world, store):
        """With what to do."""
        world.change("state-commits", "revision", Format={"N": "3"})

        with pytest.raises(FormatTooNew, match="Upgrade Sleeper"):
            world.store().refresh()


class TestJobs:
    """Records of committed jobs, which expire, and end with a clear."""

    def test_expired_records_are_deleted_by_later_commits(self, world, store, monkeypatch):
        """A few by each, also those that an earlier process has left."""
        monkeypatch.setattr(table_state, "_ENTRIES_MIN", 3)
        monkeypatch.setattr(table_state, "_RECENT_MIN", 2)
        monkeypatch.setattr(dynamo_revisions, "_DROPPED_TOGETHER", 2)
        for n in range(12):
            current = store if n % 2 else world.store()
            keep = MUCH_LATER if n == 0 else NOON
            world.clock.time += timedelta(minutes=1)
            current.commit(AddFiles(references=(ref(f"f{n}"),), job=job(f"j{n:02d}", keep)))

        stored = {key for key in world.items("state-commits") if key.startswith("job#")}
        known = {job_id for job_id, _ in world.store().refresh().jobs.records()}
        assert {f"job#{job_id}" for job_id in known} <= stored
        assert "j01" not in known
        assert len(stored) <= len(known) + 3

    def test_a_job_can_run_again_after_a_clear(self, world, store):
        """Though records of the cleared jobs are deleted bit by bit."""
        for n in range(4):
            store.commit(AddFiles(references=(ref(f"f{n}"),), job=job(f"j{n}")))
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(dynamo_revisions, "_DROPPED_TOGETHER", 0)
            store.commit(ClearFiles())
        left = {key for key in world.items("state-commits") if key.startswith("job#")}
        other = world.store()
        before = [*other.refresh().jobs.records()]

        state = other.commit(AddFiles(references=(ref("again"),), job=job("j1")))

        assert len(left) == 4
        assert before == []
        assert [job_id for job_id, _ in state.jobs.records()] == ["j1"]
        assert [*world.store().refresh().jobs.records()] == [*state.jobs.records()]
        assert {key for key in world.items("state-commits") if key.startswith("job#")} == {"job#j1"}


class TestItems:
    """What other programs see, and what fits."""

    def test_items_have_upstreams_attributes(self, world, store):
        """Beside ours (rules FRF-1, FRF-6, PRT-5)."""
        store.commit(AddFiles(references=(ref("a", row_count=7),), unreferenced=("w",)))
        claim = Claim(job_id="c-1", partition_id="root", filenames=("a",))
        store.commit(ClaimFiles(assignments=(claim,)))
        store.commit(split(store.state().tree.root, 50, "L", "R"))

        reference = world.items("active-files")["root|a"]
        files, partitions = world.items("file-ref-count"), world.items("partitions")

        assert {name: reference[name] for name in reference if name != "FileDetails"} == {
            "TableId": {"S": "flights"},
            "PartitionIdAndFileName": {"S": "root|a"},
            "NumRecords": {"N": "7"},
            "IsCountApproximate": {"BOOL": False},
            "OnlyContainsDataForThisPartition": {"BOOL": True},
            "Job_name": {"S": "c-1"},
            "LastUpdateTime": {
                "N": str(int(store.state().references()[0].updated.timestamp() * 1000))
            },
        }
        assert {name: each["References"]["N"] for name, each in files.items()} == {
            "a": "1",
            "w": "0",
        }
        assert partitions["root"]["PartitionChildIds"] == {"S": "L___R"}
        assert partitions["L"]["PartitionParentId"] == {"S": "root"}
        assert sorted(partitions) == ["L", "R", "root"]
        assert partitions["L"] == {
            "TableId": {"S": "flights"},
            "PartitionId": {"S": "L"},
            "PartitionIsLeaf": {"S": "true"},
            "PartitionParentId": {"S": "root"},
            "PartitionSplitDimension": {"N": "-1"},
            "Region": partitions["L"]["Region"],
        }
        least = -(2**63)
        assert json.loads(partitions["L"]["Region"]["S"]) == {
            "stringsBase64Encoded": True,
            "n": {"min": least, "minInclusive": True, "max": 50, "maxInclusive": False},
        }

    def test_a_commit_of_too_many_bytes_is_refused(self, world):
        """Amazon takes 4 MB in a transaction, and 400 KB in an item."""
        schema = Schema(row_keys=(Field("k", Primitive.STRING),))
        store = world.store(is_new=True, schema=schema)

        def partitions(*points):
            ids = iter(f"p{n}" for n in range(99))
            tree = tree_from_split_points(schema, points, new_id=lambda: next(ids))
            return InitialisePartitions(partitions=tuple(tree.partitions.values()))

        with pytest.raises(CommitTooLarge, match=r"380 KB each, and 10 MB together"):
            store.commit(partitions("a" * 400_000))
        many = partitions(*(letter * 60_000 for letter in "abcdefghijklmnopqrstu"))
        asked, state = world.asked(lambda: store.commit(many))

        assert asked[WRITE] > 2  # 5 MB
        assert state.number == 1
        assert len(world.store(schema=schema).refresh().tree) == 43

    def test_deletions_of_rows_that_do_not_fit_are_not_moved_there(self, world):
        """They are in one item. Nothing is written, and the message says how to get rid of them."""
        regions = tuple(key_region(SCHEMA, 10**17 + n) for n in range(1_000))
        deletes = tuple(RowDelete(n, regions) for n in range(2, 6))
        state = replace(TableState.empty(), number=7, format=2, deletes=deletes)

        with pytest.raises(
            CommitTooLarge, match=r"180 KB of deleted keys.*Compact the table first"
        ):
            world.revisions(is_new=True).begin(Revision(state))

        assert world.tables() == []

    def test_schemas_that_do_not_fit_are_not_moved_there(self, world):
        """Many names that are not alike, all in the same item: alike ones are small together."""
        draw = Random(7)

        def wide():
            values = (Field(draw.randbytes(32).hex(), Primitive.LONG) for _ in range(200))
            return Schema(row_keys=SCHEMA.row_keys, values=tuple(values))

        schemas = {number: wide() for number in range(1, 50)}
        state = replace(TableState.empty(), number=7, schemas=schemas)

        with pytest.raises(CommitTooLarge, match=r"190 KB of a table's schemas.*S3StateStore"):
            world.revisions(is_new=True).begin(Revision(state))

        assert world.tables() == []

    def test_as_many_changes_as_fit_are_one_transaction(self, world, store):
        """A reference and a file for each, one job, and the revision item: 100."""
        most = [ref(f"f{n}") for n in range(49)]

        asked, _ = world.asked(lambda: store.commit(AddFiles(references=tuple(most), job=job("j"))))
        store.commit(ClearFiles())
        more, _ = world.asked(
            lambda: store.commit(AddFiles(references=(*most, ref("one-more")), job=job("k")))
        )

        assert asked == {"GetItem": 1, WRITE: 1}
        assert more[WRITE] > 1
        assert len(world.store().refresh().references()) == 50
