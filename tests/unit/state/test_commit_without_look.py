"""In remote storage a commit that comes soon after a look is tried without another look."""

from __future__ import annotations

from datetime import timedelta

import pytest

from sleeper.errors import FileAlreadyExists
from sleeper.state.transactions.files import Claim, ClaimFiles, ReleaseClaims
from tests.unit.state.small_tables import ROOT
from tests.unit.state.test_log_store import Place, add, filenames


class RemotePlace(Place):
    """A log whose looks cost as much as its commits."""

    def remote(self, attempts=10):
        return self.open(attempts=attempts, is_remote=True)


@pytest.fixture
def place():
    """A log of a table with files 2 and 3."""
    place = RemotePlace()
    place.filled(2)
    return place


def of_file_2(job_id):
    return (Claim(job_id=job_id, partition_id=ROOT.partition_id, filenames=("file-002",)),)


def claim(job_id):
    return ClaimFiles(assignments=of_file_2(job_id))


def test_soon_after_a_look_a_commit_is_one_request(place):
    """Given a refresh, then an entry is appended at once, and so is the next one."""
    store = place.remote()
    store.refresh()
    place.log.asked.clear()

    assert store.commit(add(4)).number == 4
    assert store.commit(add(5)).number == 5
    assert place.log.asked == {"append": 2}


def test_long_after_a_look_a_commit_looks_first(place):
    """Given ten seconds and more, then others have probably committed."""
    store = place.remote()
    store.refresh()
    place.clock.time += timedelta(seconds=10.1)
    place.log.asked.clear()

    store.commit(add(4))

    assert place.log.asked == {"append": 1, "look": 1}


def test_a_number_that_is_taken_costs_one_more_append_and_a_look(place):
    """Given a commit by another, then both are in the log, and the next commit looks first."""
    store, other = place.remote(), place.open()
    store.refresh()
    other.commit(add(4))
    place.log.asked.clear()

    assert filenames(store.commit(add(5))) == [f"file-{n:03d}" for n in (2, 3, 4, 5)]
    assert place.log.asked == {"append": 2, "look": 1, "entry": 1}

    other.commit(add(6))
    place.log.asked.clear()
    assert store.commit(add(7)).number == 7
    assert place.log.asked == {"append": 1, "look": 1, "entry": 1}


def test_a_lost_race_without_a_look_is_no_attempt(place):
    """Given one attempt, then it is made after a look."""
    store = place.remote(attempts=1)
    store.refresh()
    place.open().commit(add(4))

    assert store.commit(add(5)).number == 5


def test_nothing_is_refused_without_a_look(place):
    """Given a claim that was released meanwhile, then another job gets the file."""
    store, other = place.remote(), place.open()
    other.commit(claim("job-1"))
    store.refresh()
    other.commit(ReleaseClaims(claims=of_file_2("job-1")))

    state = store.commit(claim("job-2"))

    assert [each.job_id for each in state.references()] == ["job-2", None]


def test_nothing_of_a_group_is_refused_without_a_look(place):
    """Given a transaction beside it that may be committed at once, then both are looked at anew."""
    store, other = place.remote(), place.open()
    other.commit(claim("job-1"))
    store.refresh()
    other.commit(ReleaseClaims(claims=of_file_2("job-1")))

    done = store.commit_group([add(4), claim("job-2")])

    assert [*done.refusals] == [None, None]


def test_what_the_newest_state_forbids_is_refused(place):
    """Given a file that another has added, then it is not added twice."""
    store = place.remote()
    store.refresh()
    place.open().commit(add(4))

    with pytest.raises(FileAlreadyExists):
        store.commit(add(4))


def test_a_commit_that_changes_nothing_is_told_by_the_newest_state(place):
    """Given a release of claims that nobody has as it seems, then a newer claim is released."""
    store, other = place.remote(), place.open()
    store.refresh()
    other.commit(claim("job-1"))

    state = store.commit(ReleaseClaims(claims=of_file_2("job-1")))

    assert [each.job_id for each in state.references()] == [None, None]
    assert [each.job_id for each in other.refresh().references()] == [None, None]
