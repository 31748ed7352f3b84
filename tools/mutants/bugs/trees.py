"""Bugs in partition trees."""

from __future__ import annotations

from ..bug import Bug

ANY_ORDER = ("tests/any_order/test_instance.py", "-k", "times")
"""Two processes do anything to tables of two row keys and a sort key."""

BUGS = (
    Bug(
        name="estimate-drops-a-leaf",
        breaks="A push-down trusts an estimate, and a leaf with rows gets no reference.",
        module="state/plans/push_down.py",
        right="        if self.ranks is None or not self.ranks.is_exact:\n",
        wrong="        if self.ranks is None:\n",
        tests=("tests/unit/state/plans/test_push_down.py",),
    ),
    Bug(
        name="last-key-is-outside",
        breaks="A push-down takes the leaf that begins at a file's last key for empty.",
        module="state/plans/push_down.py",
        right="            if high < wanted.min or ",
        wrong="            if high <= wanted.min or ",
        tests=("tests/unit/state/plans/test_push_down.py",),
    ),
    Bug(
        name="newest-merges-forgotten",
        breaks="A table that remembers enough merges forgets the newest, not the oldest.",
        module="model/partitions.py",
        right="    return dict(islice(mapping.items(), len(mapping) - count, None))\n",
        wrong="    return dict(islice(mapping.items(), count))\n",
        tests=("tests/unit/state/transactions/test_merges.py",),
    ),
    Bug(
        name="upper-leaf-forgotten",
        breaks="A merge of two leaves forgets the references of the upper one.",
        module="state/transactions/partitions.py",
        right="for each in self.child_ids for ref in",
        wrong="for each in self.child_ids[:1] for ref in",
        tests=ANY_ORDER,
    ),
    Bug(
        name="odd-part-merged",
        breaks="Leaves are merged though one has compacted its part of a file, and rows double.",
        module="state/transactions/partitions.py",
        right="    return (parts[0] | parts[1])[odd[0]] if odd else None\n",
        wrong="    return None\n",
        tests=ANY_ORDER,
    ),
    Bug(
        name="merged-leaf-kept",
        breaks="What was written for a leaf is not placed on the one it was merged into.",
        module="state/transactions/files.py",
        right="        placed = placed_references(each.references, state.partitions)\n",
        wrong="        placed = each.references\n",
        tests=ANY_ORDER,
    ),
    Bug(
        name="leaf-not-pushed-to",
        breaks="References are pushed down to the lower half alone.",
        module="state/plans/push_down.py",
        right="        waiting += [(upper, row_count - below), (lower, below)]\n",
        wrong="        waiting += [(lower, below)]\n",
        tests=ANY_ORDER,
    ),
    Bug(
        name="estimate-called-exact",
        breaks="A count that was an estimate is called exact once its reference is pushed down.",
        module="state/plans/push_down.py",
        right="                row_count_estimated=not (known.are_counted(here) and exact),\n",
        wrong="                row_count_estimated=not known.are_counted(here),\n",
        tests=("tests/unit/state/plans/test_push_down.py",),
    ),
    Bug(
        name="median-not-clipped",
        breaks="The median of whole files splits a leaf that has parts of them.",
        module="engine/sketches/sketch.py",
        right="            last = bisect_left(known.values, number_of(known.kind, inside.max))\n",
        wrong="            pass\n",
        tests=ANY_ORDER,
    ),
    Bug(
        name="bound-looked-up-below",
        breaks="The least key of a leaf is looked up in the leaf below.",
        module="model/partitions.py",
        right="            here = lower if key[here.dimension] < bound else upper\n",
        wrong="            here = lower if key[here.dimension] <= bound else upper\n",
        tests=ANY_ORDER,
    ),
)
