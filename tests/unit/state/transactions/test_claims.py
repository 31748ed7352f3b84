"""Claims of compaction jobs have an owner and a lease: they are renewed, released, and end."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from sleeper.errors import FileReferenceNotAssignedToJob
from sleeper.model.files import ClaimOwner, ClaimRecord, FileReference
from sleeper.model.partitions import tree_from_split_points
from sleeper.model.schema import Field, Primitive, Schema
from sleeper.state.plans.claims import expired_claims
from sleeper.state.table_state import TableState
from sleeper.state.transactions.files import (
    AddFiles,
    Claim,
    ClaimFiles,
    ClearFiles,
    ReleaseClaims,
    RenewClaims,
    ReplaceFiles,
)
from sleeper.state.transactions.partitions import InitialisePartitions

AT = datetime(2026, 6, 1, tzinfo=UTC)
LATER = AT + timedelta(hours=1)
LATER_STILL = AT + timedelta(hours=2)
OWNER = ClaimOwner(host="here", pid=7, worker_id="w-1")
SCHEMA = Schema(row_keys=(Field("k", Primitive.LONG),))


def claim(job_id, *names):
    return Claim(job_id=job_id, partition_id="root", filenames=names)


@pytest.fixture
def state():
    """Files a, b and c; job one has claimed a and b, an hour later job two c."""
    tree = tree_from_split_points(SCHEMA, [], new_id=lambda: "unused")
    state = InitialisePartitions(partitions=(tree.root,)).apply(TableState.empty(), AT)
    references = tuple(
        FileReference(filename=name, partition_id="root", row_count=1) for name in "abc"
    )
    state = AddFiles(references=references).apply(state, AT)
    state = ClaimFiles(assignments=(claim("one", "a", "b"),)).apply(state, AT)
    return ClaimFiles(assignments=(claim("two", "c"),)).apply(state, LATER)


def expired(state, before):
    return tuple(each.claim for each in expired_claims(state, timedelta(0), before))


def holders(state):
    return {reference.filename: reference.job_id for reference in state.references()}


def test_released_files_are_free(state):
    """Those of other jobs stay claimed."""
    after = ReleaseClaims(claims=(claim("one", "a", "b"),)).apply(state, LATER)

    assert holders(after) == {"a": None, "b": None, "c": "two"}


def test_what_another_job_has_claimed_is_left_alone(state):
    """A release that comes late takes nothing from anybody."""
    assert ReleaseClaims(claims=(claim("one", "c", "gone"),)).apply(state, LATER) is state


def test_a_job_that_lost_its_files_cannot_replace_them(state):
    """The late finisher is refused, so no row is lost or doubled."""
    after = ReleaseClaims(claims=(claim("one", "a"),)).apply(state, LATER)
    output = FileReference(filename="out", partition_id="root", row_count=2)

    with pytest.raises(FileReferenceNotAssignedToJob):
        ReplaceFiles(job_id="one", inputs=("a", "b"), output=output).apply(after, LATER)


def test_claims_expire_by_when_they_were_made(state):
    """Strictly before the given time; each job with all of its files."""
    assert expired(state, AT) == ()
    assert expired(state, LATER) == (claim("one", "a", "b"),)
    assert expired(state, LATER + timedelta(seconds=1)) == (
        claim("one", "a", "b"),
        claim("two", "c"),
    )


class TestOwner:
    """Who holds a claim, since when, and until when."""

    @pytest.fixture
    def owned(self, state):
        """Job three has claimed d, and its owner is known."""
        added = AddFiles(
            references=(FileReference(filename="d", partition_id="root", row_count=1),)
        )
        claimed = ClaimFiles(assignments=(claim("three", "d"),), owner=OWNER)
        return claimed.apply(added.apply(state, AT), AT)

    def test_is_kept_by_job(self, owned):
        """Entries of before claims had owners leave no record."""
        assert owned.claims == {"three": ClaimRecord(owner=OWNER, since=AT, renewed=AT)}

    def test_a_claim_that_is_renewed_expires_later(self, owned):
        """The lease counts from the last renewal; jobs without a record keep their time."""
        renewed = RenewClaims(job_ids=("three", "one", "gone")).apply(owned, LATER)

        assert renewed.claims["three"] == ClaimRecord(owner=OWNER, since=AT, renewed=LATER)
        assert expired(renewed, LATER) == (claim("one", "a", "b"),)
        assert claim("three", "d") in expired(renewed, LATER_STILL)
        assert claim("three", "d") in expired(owned, LATER)

    def test_nothing_is_renewed_for_a_job_that_lost_its_files(self, owned):
        """It holds no claims any longer, and is refused when it commits."""
        released = ReleaseClaims(claims=(claim("three", "d"),)).apply(owned, LATER)

        assert released.claims == {}
        assert RenewClaims(job_ids=("three",)).apply(released, LATER) is released

    def test_goes_with_the_claim(self, owned):
        """When the job commits, and when the table is cleared."""
        output = FileReference(filename="out", partition_id="root", row_count=1)
        committed = ReplaceFiles(job_id="three", inputs=("d",), output=output).apply(owned, LATER)

        assert committed.claims == {}
        assert ClearFiles().apply(owned, LATER).claims == {}
