"""Plans a query: which leaves it reads, and which files for each. Pure.

The rows of a leaf are in its own files and in those of all its ancestors, because a partition that
was split may still have references (rules QRY-1, PRT-13). A file of an ancestor also has rows of
other leaves, so a request is always intersected with the leaf's region.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from sleeper.model.keys import Key
from sleeper.model.partitions import Partition, leaf_groups
from sleeper.model.queries import LeafLookup, LeafQuery
from sleeper.model.ranges import Region
from sleeper.model.row_deletes import KeyFile, regions_without
from sleeper.state.table_state import TableState

KEYS_TOGETHER: Final = 1_000
"""Leaves with the same files are looked up together if they have no more keys, whose rows are in
memory at once."""


def plan_leaf_queries(state: TableState, regions: Sequence[Region]) -> list[list[LeafQuery]]:
    """Plan a read of `regions`, as groups of leaves in key order.

    Rows of one group come before rows of the next; leaves of one group interleave (there is
    more than one only if the tree was split on a later row key). Leaves without files are left
    out.
    """
    return [*leaf_queries(state, regions)]


def leaf_queries(state: TableState, regions: Sequence[Region]) -> Iterator[list[LeafQuery]]:
    """Yield the groups of `plan_leaf_queries`.

    Of a table with one row key each is planned when it is asked for, so that who takes a few rows
    plans a few leaves.
    """
    found = state.tree.leaves_overlapping(regions)
    if len(state.tree.root.region.ranges) == 1:
        plans = ([_leaf_query(state, leaf, asked)] for leaf, asked in found)
    else:
        inside = {leaf.partition_id: (leaf, asked) for leaf, asked in found}
        plans = (
            [_leaf_query(state, *inside[leaf.partition_id]) for leaf in group.leaves]
            for group in leaf_groups(leaf for leaf, _ in inside.values())
        )
    for plan in plans:
        with_files = [query for query in plan if query.filenames]
        if with_files:
            yield with_files


def plan_lookup(state: TableState, key: Key) -> LeafLookup:
    """Plan the look-up of one row key."""
    leaf = state.tree.leaf_of(key)
    names = filenames_for(state, leaf)
    if not state.deletes:
        return LeafLookup(leaf.partition_id, slice(0, 1), names)
    deletes = [each for each in state.deletes if each.hides(key)]
    if deletes:  # of few keys; references cost more than names
        gone = {
            reference.filename
            for reference in state.references_of(leaf.partition_id)
            if any(each.applies_to(reference.sequence) for each in deletes)
        }
        names = tuple(name for name in names if name not in gone)
    return LeafLookup(leaf.partition_id, slice(0, 1), names, key_files_in(state, leaf))


def plan_lookups(state: TableState, keys: Sequence[Key]) -> list[list[LeafLookup]]:
    """Plan the look-up of many row keys, sorted and distinct, as groups in key order.

    Only leaves that have both keys and files appear; groups are those of `plan_leaf_queries`.
    Neighbours with the same files are one look-up, up to `KEYS_TOGETHER`: many leaves may share
    the file of a small commit.
    """
    firsts = [key[0] for key in keys]
    plans = []
    start = 0
    for group in leaf_groups(state.tree.leaves()):
        if start == len(keys):
            break
        high = group.values.max
        end = len(keys) if high is None else bisect_left(firsts, high, lo=start)
        if end > start:
            plans.append(_group_lookups(state, group.leaves, keys, start, end))
        start = end
    return _joined([plan for plan in plans if plan])


def _joined(plans: Sequence[list[LeafLookup]]) -> list[list[LeafLookup]]:
    found: list[list[LeafLookup]] = []
    for plan in plans:
        both = _both(found[-1], plan) if found else None
        if both is None:
            found.append(plan)
        else:
            found[-1] = [both]
    return found


def _both(first: Sequence[LeafLookup], second: Sequence[LeafLookup]) -> LeafLookup | None:
    """Return one look-up for two that follow each other, or None if they must be two."""
    if len(first) > 1 or len(second) > 1 or first[0].filenames != second[0].filenames:
        return None
    if first[0].key_files != second[0].key_files:
        return None
    before, after = first[0].key_indices, second[0].key_indices
    if not isinstance(before, slice) or not isinstance(after, slice):
        return None
    if before.stop != after.start or after.stop - before.start > KEYS_TOGETHER:
        return None
    return replace(first[0], key_indices=slice(before.start, after.stop))


def filenames_for(state: TableState, leaf: Partition) -> tuple[str, ...]:
    """Return the files that may contain rows of a leaf: its own and its ancestors', ordered."""
    ids = state.tree.ids_upwards(leaf.partition_id)
    return tuple(name for each in ids for name in state.files.filenames_on(each))


def hidden_in_files(
    state: TableState, leaf: Partition, regions: Sequence[Region]
) -> dict[str, tuple[Region, ...]]:
    """Return the regions of deleted rows in the files of a leaf, as far as they are in `regions`.

    A deletion applies to the files that the table had when it was made.
    """
    found: dict[str, tuple[Region, ...]] = {}
    if not state.deletes:
        return found
    for reference in state.references_of(leaf.partition_id):
        if hidden := hidden_in(state, reference.sequence, regions):
            found[reference.filename] = hidden
    return found


def key_files_in(state: TableState, leaf: Partition) -> dict[str, tuple[str, ...]]:
    """Return, for the files of a leaf, the files whose keys are deleted from it, if there are."""
    if not any(each.key_files for each in state.deletes):
        return {}
    references = [*state.references_of(leaf.partition_id)]
    found = {}
    for reference in references:
        if names := key_files_of(state, reference.sequence, leaf.partition_id):
            found[reference.filename] = tuple(each.filename for each in names)
    return found


def key_files_of(state: TableState, sequence: int | None, partition_id: str) -> tuple[KeyFile, ...]:
    """Return the files whose keys are deleted from a file of a partition."""
    deletes = [each for each in state.deletes if each.key_files and each.applies_to(sequence)]
    if not deletes:
        return ()
    ids = [*state.tree.ids_upwards(partition_id), *state.tree.ids_below(partition_id)]
    found = (key_file for each in deletes for key_file in each.key_files_of(ids))
    return tuple(dict.fromkeys(found))


def hidden_in(
    state: TableState, sequence: int | None, regions: Sequence[Region]
) -> tuple[Region, ...]:
    """Return the regions of deleted rows of a file that are, in part at least, in `regions`."""
    return tuple(
        region
        for delete in state.deletes
        if delete.applies_to(sequence)
        for region in delete.regions
        if any(region.overlaps(asked) for asked in regions)
    )


def file_sizes(state: TableState, leaf_id: str, filenames: Iterable[str]) -> dict[str, int]:
    """Return the sizes of a leaf's files, in bytes, if the state records them."""
    ids = state.tree.ids_upwards(leaf_id)
    sizes = {filename: state.files.size_bytes(filename, ids) for filename in filenames}
    return {filename: size for filename, size in sizes.items() if size is not None}


def _leaf_query(state: TableState, leaf: Partition, regions: tuple[Region, ...]) -> LeafQuery:
    return LeafQuery(
        leaf.partition_id,
        regions,
        filenames_for(state, leaf),
        hidden_in_files(state, leaf, regions),
        key_files_in(state, leaf),
    )


def _group_lookups(
    state: TableState, leaves: Sequence[Partition], keys: Sequence[Key], start: int, end: int
) -> list[LeafLookup]:
    if len(leaves) == 1:
        places: dict[str, Any] = {leaves[0].partition_id: slice(start, end)}
    else:
        places = {}
        for index in range(start, end):
            places.setdefault(state.tree.leaf_of(keys[index]).partition_id, []).append(index)
    by_id = {leaf.partition_id: leaf for leaf in leaves}
    found = [
        LeafLookup(
            leaf_id,
            indices if isinstance(indices, slice) else tuple(indices),
            filenames_for(state, by_id[leaf_id]),
            key_files_in(state, by_id[leaf_id]),
        )
        for leaf_id, indices in places.items()
    ]
    if state.deletes:
        parts = (_by_visible_files(state, by_id[each.leaf_id], each, keys) for each in found)
        found = [part for each in parts for part in each]
    return [lookup for lookup in found if lookup.filenames]


def _by_visible_files(
    state: TableState, leaf: Partition, lookup: LeafLookup, keys: Sequence[Key]
) -> list[LeafLookup]:
    """Divide a look-up, so that no key is looked up in a file in which it is deleted."""
    hidden = hidden_in_files(state, leaf, [leaf.region])
    if not hidden:
        return [lookup]
    indices = lookup.key_indices
    if isinstance(indices, slice):
        indices = tuple(range(indices.start, indices.stop))
    firsts = [keys[index][0] for index in indices]
    gone: dict[int, set[str]] = {}
    for name, regions in hidden.items():
        for region in regions:
            side = region.ranges[0]
            low = bisect_left(firsts, side.min)
            high = len(firsts) if side.max is None else bisect_left(firsts, side.max)
            for index in indices[low:high]:
                if keys[index] in region:
                    gone.setdefault(index, set()).add(name)
    by_files: dict[frozenset[str], list[int]] = {}
    for index in indices:
        by_files.setdefault(frozenset(gone.get(index, ())), []).append(index)
    return [
        replace(
            lookup,
            key_indices=tuple(some),
            filenames=tuple(name for name in lookup.filenames if name not in without),
        )
        for without, some in by_files.items()
    ]


# ---------------------------------------------------------------- row counts
#
# Plans a count of rows: which rows the state has counted, and which files must be looked at. Pure.
#
# A reference has the number of its rows. It is an estimate after a push-down, and useless where
# only some rows of its partition are asked for. Source: rule QRY-21.


@dataclass(frozen=True, slots=True)
class RowCountPlan:
    """How to count rows that no filter, aggregation or function changes.

    Attributes:
        known_rows: Rows that the state has counted.
        regions_by_file: Files with other rows to count, and the regions that these are in.
        key_files: By file, the files whose keys do not count; only of files that have some.
    """

    known_rows: int
    regions_by_file: Mapping[str, tuple[Region, ...]]
    key_files: Mapping[str, tuple[str, ...]]


def plan_row_count(state: TableState, regions: Sequence[Region]) -> RowCountPlan:
    """Plan a count of the rows inside any of `regions`."""
    known_rows = 0
    by_file: dict[str, list[Region]] = {}
    key_files: dict[str, tuple[str, ...]] = {}
    for partition, shared in _partitions_overlapping(state, regions):
        references = state.files.references_on(partition.partition_id)
        if not references:
            continue
        whole = partition.region in shared
        for reference in references:
            hidden = hidden_in(state, reference.sequence, shared) if state.deletes else ()
            keys = key_files_of(state, reference.sequence, partition.partition_id)
            if whole and not (reference.row_count_estimated or hidden or keys):
                known_rows += reference.row_count
            elif left := regions_without(shared, hidden):
                by_file.setdefault(reference.filename, []).extend(left)
                if keys:
                    before = key_files.get(reference.filename, ())
                    names = (each.filename for each in keys)
                    key_files[reference.filename] = tuple(dict.fromkeys([*before, *names]))
    regions_by_file = {name: tuple(each) for name, each in by_file.items()}
    return RowCountPlan(known_rows, regions_by_file, key_files)


def _partitions_overlapping(
    state: TableState, regions: Sequence[Region]
) -> Iterator[tuple[Partition, Sequence[Region]]]:
    """Yield the leaves that share keys with a region, and all partitions above them, each once.

    Each comes with the parts of the regions that are inside it.
    """
    seen = set[str]()
    for leaf, inside in state.tree.leaves_overlapping(regions):
        yield leaf, inside
        for ancestor in state.tree.ancestors(leaf.partition_id):
            if ancestor.partition_id in seen:
                break
            seen.add(ancestor.partition_id)
            shared = (region.intersection(ancestor.region) for region in dict.fromkeys(regions))
            yield ancestor, [each for each in shared if each is not None]
