"""Each operation on a bucket makes exactly the requests that docs/buckets.md says."""

from __future__ import annotations

import pytest

import sleeper
from sleeper.model.object_stores import ObjectStoreSettings
from tests.requests.counting_s3 import Request, Requests, counting_s3
from tests.requests.operations import OPERATIONS, found
from tests.requests.world import World, use


@pytest.fixture(scope="module")
def world():
    with pytest.MonkeyPatch.context() as patch, counting_s3() as server:
        use(server, patch.setenv)
        yield World(server)


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_an_operation_makes_exactly_its_requests(world, operation):
    """Given an operation, then its requests, round trips and writes are those of the table."""
    seen = operation.measured(world)

    assert found(seen) == operation.expected, f"requests, round trips, writes:\n{seen}"
    assert seen.read_bytes <= operation.read_bytes_max, str(seen)


def test_a_check_reads_each_entry_of_a_log_once(world):
    """Given a log of sixty entries, then a check replays them and follows their chain by one read."""
    world.make("log of 60")
    last = world.table("log of 60").refresh()
    table = world.instance.table("log of 60")
    world.server.take()

    found = table.verify(quick=True)

    read = [
        each.key
        for each in world.server.take().seen
        if "/transactions/" in each.key and each.operation == "GET" and each.status == 200
    ]
    assert (found.entries, found.chained, found.clean) == (last, last, True)
    assert (len(read), len({*read})) == (last, last)


def test_a_new_instance_on_amazons_s3_takes_twenty_requests(world, monkeypatch):
    """Given a server that is Amazon's, one race of eight writers is enough."""
    monkeypatch.setattr(ObjectStoreSettings, "is_amazon", True)
    world.server.take()

    sleeper.create_instance("s3://amazon/instance")

    assert 10 < len(seen := world.server.take()) <= 20, str(seen)


@pytest.mark.parametrize(
    ("spans", "round_trips"),
    [
        ([], 0),
        ([(0, 1)], 1),
        ([(0, 1), (1, 2), (2, 3)], 3),
        ([(0, 2), (1, 3), (1, 2)], 1),
        ([(0, 9), (0, 1), (2, 3), (9, 10)], 3),
    ],
)
def test_round_trips_are_the_longest_chain(spans, round_trips):
    """Given when requests began and ended, then those that overlap are one round trip."""
    seen = Requests([Request("GET", "k", "", 200, 0, *span) for span in spans])

    assert seen.round_trips == round_trips
