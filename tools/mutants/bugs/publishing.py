"""Bugs in what is published for other engines."""

from __future__ import annotations

from ..bug import Bug

STORY = ("tests/stories/test_published.py",)
ICEBERG = ("tests/stories/test_published_iceberg.py",)

BUGS = (
    Bug(
        name="deletions-not-in-the-lag",
        breaks="Rows that were deleted since they were published count as up to date.",
        module="tables/publish.py",
        right="    if files is not None and is_as_published:\n",
        wrong="    if files is not None:\n",
        tests=(*STORY, "-k", "deletion"),
    ),
    Bug(
        name="dead-rows-published",
        breaks="A file is published though a compaction of another leaf wrote its rows anew.",
        module="state/plans/publish.py",
        right="        if here.is_leaf:\n            return False\n",
        wrong="        if here.is_leaf:\n            continue\n",
        tests=(*STORY, "-k", "shared_file"),
    ),
    Bug(
        name="rows-to-unite-published",
        breaks="A leaf with several files is published though its rows are to unite.",
        module="state/plans/publish.py",
        right="        if here.is_leaf and count > 1:\n",
        wrong="        if here.is_leaf and count > 2:\n",
        tests=(*STORY, "-k", "united"),
    ),
    Bug(
        name="published-files-collected",
        breaks="Garbage collection deletes files that readers of the published version need.",
        module="tables/garbage.py",
        right="name > after and name not in kept)",
        wrong="name > after)",
        tests=(*STORY, "-k", "TestGarbage"),
    ),
    Bug(
        name="later-publications-collected",
        breaks="Only the files of the oldest version that may be read are kept.",
        module="tables/publications.py",
        right="    if not later:\n        return names, None\n",
        wrong="    if True:\n        return names, None\n",
        tests=(*STORY, "-k", "TestGarbage"),
    ),
    Bug(
        name="deleted-version-published",
        breaks="A version is published whose files were deleted.",
        module="tables/publish.py",
        right=" and not before.needs_more_than(newest):\n",
        wrong=":\n",
        tests=(*STORY, "-k", "passed_over"),
    ),
    Bug(
        name="version-after-none-published",
        breaks="A version is added to a log that was removed.",
        module="tables/publish.py",
        right="if not is_late and (last is None or log.is_there(last.version)):",
        wrong="if not is_late:",
        tests=(*STORY, "-k", "anew_after_it_was_removed"),
    ),
    Bug(
        name="bound-in-another-order",
        breaks="Bounds have characters that readers with UTF-16 order otherwise.",
        module="engine/published/key_bounds.py",
        right='_ORDERED_OTHERWISE: Final = r"\\\\u(?:00[01]|[ef]|d[89a-f])"',
        wrong='_ORDERED_OTHERWISE: Final = r"\\\\u(?:00[01])"',
        tests=("tests/unit/engine/published/test_key_bounds.py",),
    ),
    Bug(
        name="time-rounded-down-twice",
        breaks="The greatest time of a file is rounded down, and readers miss the last.",
        module="engine/published/delta.py",
        right='pc.ceil_temporal(greatest, unit="millisecond")',
        wrong='pc.floor_temporal(greatest, unit="millisecond")',
        tests=(*STORY, "-k", "TestKeys"),
    ),
    Bug(
        name="hint-left-behind",
        breaks="After a kill, readers of the folder stay at the version before.",
        module="engine/published/iceberg.py",
        right="        if self._files.read(_HINT) != hint:\n",
        wrong="        if self._files.read(_HINT) is None:\n",
        tests=(*ICEBERG, "-k", "kill"),
    ),
    Bug(
        name="manifest-of-others-kept",
        breaks="A manifest is taken for unchanged when the number of its rows changed.",
        module="engine/published/iceberg.py",
        right='    for name in ("filename", "keys"):\n',
        wrong='    for name in ("keys",):\n',
        tests=("tests/unit/engine/published/test_iceberg.py",),
    ),
)
