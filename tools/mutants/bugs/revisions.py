"""Bugs in states that are Parquet objects, named by an item in DynamoDB."""

from __future__ import annotations

from ..bug import Bug

STATES = ("tests/contracts/state/test_s3_revisions.py", "-k", "ministack")
TROUBLE = ("tests/contracts/state/test_s3_revisions_trouble.py", "-k", "ministack")

REVISIONS = "storage/aws/state/s3_revisions.py"

BUGS = (
    Bug(
        name="newest-revision-overwritten",
        breaks="A commit replaces a revision that it has not seen.",
        module=REVISIONS,
        right='= "CURRENT_UUID = :replaced"',
        wrong='= "CURRENT_UUID = :replaced OR CURRENT_UUID <> :replaced"',
        tests=STATES,
    ),
    Bug(
        name="own-revision-discarded",
        breaks="After a lost reply a writer deletes the objects of its own commit.",
        module=REVISIONS,
        right="            if holder is None or holder.commit_id != commit_id:\n",
        wrong="            if holder is None or holder.commit_id:\n",
        tests=TROUBLE,
    ),
    Bug(
        name="loser-leaves-its-objects",
        breaks="Objects of every lost race wait for a sweep.",
        module=REVISIONS,
        right="                if holder is not None:\n",
        wrong="                if holder is None:\n",
        tests=STATES,
    ),
    Bug(
        name="next-revision-swept",
        breaks="A sweep deletes objects that a slow writer is about to commit.",
        module=REVISIONS,
        right="and number <= newest.number\n",
        wrong="and number <= newest.number + 1\n",
        tests=STATES,
    ),
    Bug(
        name="kept-revisions-lose-objects",
        breaks="A sweep deletes what only older revisions that are kept name.",
        module=REVISIONS,
        right="for each in (newest, *kept) for key",
        wrong="for each in (newest,) for key",
        tests=STATES,
    ),
    Bug(
        name="revisions-age-by-their-own-date",
        breaks="A revision that was the newest a minute ago is too old.",
        module=REVISIONS,
        right="and following.at < limits.kept_since",
        wrong="and revision.at < limits.kept_since",
        tests=STATES,
    ),
    Bug(
        name="swept-is-damaged",
        breaks="A reader beside a sweep fails, although there is a newer state.",
        module=REVISIONS,
        right="if again is None or again.commit_id != stored.commit_id:",
        wrong="if again is None:",
        tests=TROUBLE,
    ),
    Bug(
        name="claims-not-written",
        breaks="Leases that are renewed are not stored.",
        module="state/snapshot.py",
        right="after.files is before.files and after.claims == before.claims",
        wrong="after.files is before.files",
        tests=STATES,
    ),
    Bug(
        name="readers-without-a-second-look",
        breaks="What is read of a state in items, while others commit, is parts of two states.",
        module="storage/aws/state/dynamo_revisions.py",
        right=" and again is not None and is_same_commit(item, again):\n",
        wrong=" and again is not None:\n",
        tests=("tests/contracts/state/test_overtaken_readers.py",),
    ),
    Bug(
        name="writers-never-wait",
        breaks="Who commits all the time leaves readers of items no time to read.",
        module="storage/aws/state/commit_parts.py",
        right="        if request is None or request == self._answered:\n",
        wrong="        if request is None or request != self._answered:\n",
        tests=("tests/contracts/state/test_overtaken_readers.py",),
    ),
)
