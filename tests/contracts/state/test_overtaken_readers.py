"""Others commit between any two requests of a process that reads a state kept in DynamoDB."""

from __future__ import annotations

from itertools import count

import pytest

from sleeper.state.transactions.files import AddFiles, Claim, ClaimFiles, DeleteFiles, ReplaceFiles
from sleeper.storage.aws import clients
from sleeper.storage.aws.state.commit_parts import WaitingReaders
from sleeper.storage.aws.state.newest_item import revision_key
from sleeper.storage.aws.state.state_items import COMMITS
from sleeper.storage.memory import MemoryObjects
from tests.contracts.s3_server import aws_endpoint, s3_credentials, s3_server
from tests.contracts.servers.dynamo import dynamo, dynamo_endpoint, new_id, tables
from tests.contracts.state.places import RealClock, StatePlace
from tests.contracts.state_store_contract import BEGIN, add, names
from tests.unit.state.small_tables import ROOT, contents, ref, split

__all__ = ["aws_endpoint", "dynamo", "dynamo_endpoint", "s3_credentials", "s3_server", "tables"]

STEPS = (
    split(ROOT, 50, "L", "R"),
    ClaimFiles(assignments=(Claim(job_id="c", partition_id="root", filenames=("a", "b")),)),
    ReplaceFiles(job_id="c", inputs=("a", "b"), output=ref("out")),
    DeleteFiles(filenames=("a",)),
    AddFiles(references=(ref("x", "L"), ref("y", "R"))),
)


@pytest.fixture(params=["DynamoDBStateStore", "S3StateStore"])
def place(request, aws_endpoint):
    clock = RealClock()
    return StatePlace(request.param, MemoryObjects(clock.now), clock)


def before_request(number, act):
    """Do something before a request of this process; return what ends that."""
    numbers, events = count(), clients.aws_client("dynamodb").meta.events

    def count_requests(**_):
        if next(numbers) == number:
            act()

    events.register("before-send.dynamodb", count_requests)
    return lambda: events.unregister("before-send.dynamodb", count_requests)


def test_a_reader_sees_one_state_wherever_it_is_overtaken(place):
    """Given commits that move files about between two requests, then it sees what they left."""
    for number in count():
        there = place.another_table()
        writer = there.open(is_new=True)
        for step in (BEGIN, add("a", "b")):
            writer.commit(step)
        overtaken = []

        def overtake(writer=writer, overtaken=overtaken):
            for step in STEPS:
                writer.commit(step)
            overtaken.append(True)

        end = before_request(number, overtake)
        seen = there.open().state()
        end()

        assert contents(seen) == contents(writer.state())
        if not overtaken:
            break
    assert number >= 1
    assert names(seen) == ["a", "b"]


class TestWaitingReaders:
    """Readers that read in vain ask writers to wait."""

    @pytest.fixture
    def item(self, tables):
        """A function that reads the revision item, which is all that the table has."""
        tables.make(COMMITS)
        tables.put_new(COMMITS, {**revision_key("t"), "CommitId": {"S": "id"}})
        return lambda: tables.get(COMMITS, revision_key("t"))

    def test_a_writer_waits_once_for_each_request(self, tables, item):
        """Given a reader that is killed, then a writer goes on after some looks."""
        waits = []
        writer, reader = self.party(tables, waits.append), self.party(tables)

        for times in (0, 1):
            reader.ask(times)
            writer.note(item())
            writer.let_read(item)
            writer.let_read(item)

        assert len(waits) == 4 + 8

    def test_a_writer_goes_on_when_the_reader_has_read(self, tables, item):
        """It looks for that while it waits; a reader does not wait for itself."""
        reader = self.party(tables)
        request = reader.ask(6)
        waits = []

        def wait(attempt):
            waits.append(attempt)
            if len(waits) == 3:
                reader.end(request)

        writer = self.party(tables, wait)
        writer.note(item())
        writer.let_read(item)
        reader.note(item())
        reader.let_read(item)

        assert len(waits) == 3
        assert "Waiting" not in item()

    def test_a_request_of_another_reader_stays(self, tables, item):
        """Whoever has read ends its own alone."""
        one, two = self.party(tables), self.party(tables)
        request = one.ask(0)
        two.ask(0)

        one.end(request)

        assert "Waiting" in item()

    @staticmethod
    def party(tables, pause=lambda attempt: None):
        return WaitingReaders(tables, "t", new_id=new_id, pause=pause)
