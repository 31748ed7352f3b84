"""Bugs in states that are items of DynamoDB, and in how commits are kept small enough for it."""

from __future__ import annotations

from ..bug import Bug

TROUBLE = ("tests/contracts/state/test_dynamodb_items_trouble.py",)
DIFFERENCES = ("tests/unit/state/test_state_difference.py",)
ITEMS = ("tests/unit/storage/test_state_items.py",)
SIZES = ("tests/unit/state/test_commit_changes.py",)
LARGE = ("tests/contracts/state/test_large_dynamodb_commits.py",)
STAGED = "storage/aws/state/staged_commit.py"
SMALL = ("tests/unit/tables/test_small_commits.py",)

REVISIONS = "storage/aws/state/dynamo_revisions.py"

BUGS = (
    Bug(
        name="staged-commit-not-ended-first",
        breaks="A commit follows one whose changes are not in the items, and is refused for ever.",
        module=REVISIONS,
        right="        self._staged.finish(self._newest)\n",
        wrong="",
        tests=LARGE,
    ),
    Bug(
        name="slow-writer-goes-on",
        breaks="A writer that was suspended writes changes of a commit that others have ended.",
        module=STAGED,
        right="            if self._tables.write_together([group], guard) is None:\n",
        wrong="            if self._tables.write_together([group]) is None:\n",
        tests=LARGE,
    ),
    Bug(
        name="staged-changes-not-read",
        breaks="A reader sees only those changes of a large commit that are in the items.",
        module=STAGED,
        right="        changed = self._by_table.get(table.name, {})\n",
        wrong="        changed: dict[str, Item | None] = {}\n",
        tests=LARGE,
    ),
    Bug(
        name="staged-changes-deleted-too-early",
        breaks="What another process has staged for its next commit is deleted.",
        module=STAGED,
        right="<= self.before:\n            return False",
        wrong="< self.before:\n            return False",
        tests=LARGE,
    ),
    Bug(
        name="commit-beside-a-staged-one",
        breaks="A commit is made while changes of the one before are not in the items yet.",
        module="storage/aws/state/newest_item.py",
        right=' AND attribute_not_exists({_STAGED})"\n',
        wrong='"\n',
        tests=LARGE,
    ),
    Bug(
        name="rows-removed-without-new-partitions",
        breaks="A group that has to be one commit is committed in two.",
        module="state/revision_store.py",
        right="                if together:\n",
        wrong="                if together and not accepted:\n",
        tests=("tests/unit/state/test_revision_store.py",),
    ),
    Bug(
        name="children-told-apart-wrongly",
        breaks="Children whose ids hold the joint of upstream's list come back as others.",
        module="storage/aws/state/state_items.py",
        right="        if joined.split(_BETWEEN_CHILDREN) != list(partition.child_ids):\n",
        wrong="        if len(joined.split(_BETWEEN_CHILDREN)) != len(partition.child_ids):\n",
        tests=ITEMS,
    ),
    Bug(
        name="old-layout-not-refused",
        breaks="A new table writes to a partitions table with the keys of alpha versions.",
        module=REVISIONS,
        right="        if not before.state.number:\n            self._refuse",
        wrong="        if before.state.number:\n            self._refuse",
        tests=TROUBLE,
    ),
    Bug(
        name="wide-table-without-its-schema",
        breaks="The first state of a table of many leaves lacks the schema.",
        module="tables/create.py",
        right="    for transaction in transactions:\n",
        wrong="    for transaction in first:\n",
        tests=("tests/unit/tables/test_small_commits.py", "-k", "more_leaves"),
    ),
    Bug(
        name="state-read-by-half",
        breaks="A reader does not notice a commit between two pages of items.",
        module=REVISIONS,
        right=" and again is not None and is_same_commit(item, again):\n",
        wrong=" and again is not None:\n",
        tests=TROUBLE,
    ),
    Bug(
        name="revision-item-unconditional",
        breaks="A commit is made from a state that is no longer the newest.",
        module="storage/aws/state/newest_item.py",
        right='f"#0 = :number AND #1 = :commit AND',
        wrong='f"(#0 >= :number OR #1 = :commit) AND',
        tests=TROUBLE,
    ),
    Bug(
        name="changed-items-overwritten",
        breaks="A commit writes over an item that somebody else has changed.",
        module="storage/aws/state/commit_parts.py",
        right='of_file["ConditionExpression"] = "#references = :before"',
        wrong='of_file["ConditionExpression"] = "#references >= :before"',
        tests=TROUBLE,
    ),
    Bug(
        name="conflict-taken-for-damage",
        breaks="A condition that fails beside a conflict is reported as damage.",
        module="storage/aws/dynamo_tables.py",
        right="            if not _PASSING.intersection(reasons):  # else",
        wrong="            if _REFUSED in reasons or not _PASSING.intersection(reasons):  # else",
        tests=TROUBLE,
    ),
    Bug(
        name="cleared-jobs-come-back",
        breaks="Jobs of a cleared table count as committed for the next process.",
        module="storage/aws/state/newest_item.py",
        right="    if jobs_cleared:\n",
        wrong="    if jobs_cleared and not before.state.number:\n",
        tests=TROUBLE,
    ),
    Bug(
        name="hidden-reference-not-changed",
        breaks="A reference of the base that a change hides is not removed from the items.",
        module="state/file_references.py",
        right="before.get(key, _ABSENT) is not after.get(key, _ABSENT)",
        wrong="before.get(key) is not after.get(key)",
        tests=DIFFERENCES,
    ),
    Bug(
        name="null-not-compared",
        breaks="A claim is no change where files were folded, as it was null before.",
        module="state/file_references.py",
        right="        one_null = pc.xor(old.is_valid(), new.is_valid())\n",
        wrong="        one_null = pc.and_(old.is_null(), new.is_valid())\n",
        tests=DIFFERENCES,
    ),
    Bug(
        name="output-not-counted",
        breaks="A compaction is planned with more inputs than its commit may replace.",
        module="state/commit_changes.py",
        right="    return (changes_max - _OF_AN_OUTPUT) // 2\n",
        wrong="    return changes_max // 2\n",
        tests=SIZES,
    ),
    Bug(
        name="push-never-ends-at-leaves",
        breaks="References that were moved down a part of the way stay there.",
        module="state/plans/push_down.py",
        right="    more = not is_whole or any(True for _ in islice(waiting, 1))\n",
        wrong="    more = any(True for _ in islice(waiting, 1))\n",
        tests=SMALL,
    ),
)
