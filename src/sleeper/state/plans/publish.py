"""Plans what engines of others may read in place: versions whose files have the table's rows alone.

Other engines read whole files, and do nothing with what they read. So a version can be published if
each row of each of its files is a row of the table, as it is: no file may hold rows that a
compaction of another leaf has already written anew, and nothing may be left to be summed or
dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, get_args

from sleeper.model.files import FileReference
from sleeper.model.processing import Processing
from sleeper.state.plans.push_down import FileKeys
from sleeper.state.plans.queries import hidden_in, key_files_of
from sleeper.state.table_state import TableState

PublishedFormat = Literal["delta", "iceberg"]
FORMATS: tuple[PublishedFormat, ...] = get_args(PublishedFormat)
"""The formats in which a table may be published."""


def is_unpublishable(processing: Processing) -> str | None:
    """Return why a table with such processing is never published; None if it may be."""
    if processing.filters:
        return (
            "its rows age off (sleeper.table.filters): readers of the published files would go on "
            "to see rows that the table no longer has. Export it instead, as often as it is needed"
        )
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Obstacles:
    """Why a version cannot be published as it is.

    Attributes:
        files: Files of which the table no longer has all rows: the others are in a newer file, or
            were deleted.
        leaves: Leaves with more files than one, in a table whose rows are united when they meet.
        outdated: Files that have other columns than the table.
        not_united: Whether one file of a leaf has rows that are to unite: it was there before the
            table united rows.
    """

    files: frozenset[str]
    leaves: frozenset[str]
    outdated: frozenset[str] = frozenset()
    not_united: bool = False

    @property
    def none(self) -> bool:
        """Whether there are none."""
        return not (self.files or self.leaves or self.outdated or self.not_united)

    def concern(self, reference: FileReference) -> bool:
        """Return whether a compaction of this reference removes an obstacle."""
        is_concerned = reference.filename in self.files or reference.filename in self.outdated
        return is_concerned or reference.partition_id in self.leaves

    def __str__(self) -> str:
        parts = []
        if self.files:
            parts.append(
                f"{len(self.files):,} files have rows that were deleted, or are in newer files too"
            )
        if self.leaves:
            parts.append(f"{len(self.leaves):,} leaves have several files whose rows are to unite")
        if self.outdated:
            parts.append(f"{len(self.outdated):,} files have other columns than the table")
        if self.not_united:
            parts.append("files have rows that were there before rows were united")
        return " and ".join(parts)


def obstacles_of(
    state: TableState,
    processing: Processing,
    rows_in: Callable[[str], int],
    names: Iterable[str] | None = None,
) -> Obstacles:
    """Return why a state cannot be published.

    Args:
        state: The state.
        processing: What is done to rows when they are read.
        rows_in: Returns how many rows a file has, by its footer. It is called for a file only where
            references do not tell.
        names: The files to look at, if all others are known to be good; None for all.
    """
    parts = state.files.partly_referenced() if names is None else sorted(set(names))
    leaves = () if processing.is_identity else _leaves_with_several_files(state)
    found = {name for name in parts if _has_rows_of_others(name, state, rows_in)}
    is_changed = state.schema_id > 1
    return Obstacles(
        files=frozenset(found.union(_with_deleted_rows(state))),
        leaves=frozenset(leaves),
        outdated=frozenset(state.files.of_older_schemas(state.schema_id) if is_changed else ()),
    )


def _with_deleted_rows(state: TableState) -> Iterator[str]:
    """Yield the files that have deleted rows: a deletion concerns older files as well."""
    for partition_id in state.files.partition_ids() if state.deletes else ():
        region = state.partition(partition_id).region
        for reference in state.files.references_on(partition_id):
            if hidden_in(state, reference.sequence, [region]) or key_files_of(
                state, reference.sequence, partition_id
            ):
                yield reference.filename


def _has_rows_of_others(name: str, state: TableState, rows_in: Callable[[str], int]) -> bool:
    """Return whether a file may have rows that are not the table's.

    That is so unless partitions of its references cover all of its keys, or have as many rows as it
    has: then no partition has let go of it.
    """
    references = state.files.references_to(name)
    if not references or any(each.whole_file for each in references):
        return False
    if _covers(references, state):
        return False
    if any(each.row_count_estimated for each in references):
        return True
    return sum(each.row_count for each in references) != rows_in(name)


def _covers(references: Iterable[FileReference], state: TableState) -> bool:
    """Return whether each leaf that may have keys of a file is below one of its references."""
    by_partition = {each.partition_id: each for each in references}
    keys = FileKeys.of(next(iter(by_partition.values())), state, None)
    waiting = [state.tree.root]
    while waiting:
        here = waiting.pop()
        if here.partition_id in by_partition or not keys.may_lie_in(here.region):
            continue
        if here.is_leaf:
            return False
        waiting += (state.partition(child) for child in here.child_ids)
    return True


def _leaves_with_several_files(state: TableState) -> Iterator[str]:
    """Yield the leaves whose rows are in more files than one, with those of split partitions."""
    counts = {name: each.references for name, each in state.files.totals().items()}
    waiting = [(state.tree.root, 0)]
    while waiting:
        here, above = waiting.pop()
        count = above + counts.get(here.partition_id, 0)
        if here.is_leaf and count > 1:
            yield here.partition_id
        waiting += ((state.partition(child), count) for child in here.child_ids)


@dataclass(frozen=True, slots=True, kw_only=True)
class NotedPublication:
    """A version of a table that is published, or about to be, as the note about it says.

    Attributes:
        version: Its number in the format.
        transaction: The transaction whose state it is.
        at_us: When that was committed, in microseconds since 1970; 0 if it is not known.
    """

    version: int
    transaction: int
    at_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptPublications:
    """The versions whose files readers may need, by what is noted and stored of one format.

    Attributes:
        kept: Those whose files must be kept, the oldest first.
        ended: Those that nobody needs any more.
        first: The oldest version that may be read; older ones may be forgotten.
    """

    kept: tuple[NotedPublication, ...]
    ended: tuple[NotedPublication, ...]
    first: int


def kept_publications(
    notes: Iterable[NotedPublication],
    *,
    replaced: Collection[int],
    newest: int,
    given_up: Collection[NotedPublication],
) -> KeptPublications:
    """Choose the publications whose files are kept.

    Args:
        notes: What is noted.
        replaced: Versions that the next one replaced long enough ago.
        newest: The newest version that is stored; -1 if there is none.
        given_up: Publications that were begun too long ago to be ended any more.
    """
    kept: list[NotedPublication] = []
    ended: list[NotedPublication] = []
    for note in sorted(notes, key=lambda each: (each.transaction, each.version)):
        if note.version > newest:
            is_over = note in given_up
        else:
            is_over = note.version < newest and note.version in replaced
        (ended if is_over else kept).append(note)
    readable = [each.version for each in kept if each.version <= newest]
    return KeptPublications(
        kept=tuple(kept), ended=tuple(ended), first=min(readable, default=max(newest, 0))
    )
