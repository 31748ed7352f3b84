"""The publications of a table: which versions readers of other formats may have open.

Each publication begins with a note, an object whose name says all: format, version, transaction and
time. Garbage collection lists the notes, and keeps the files of each version until the next one has
replaced it for some time (decision 0115):

1. of the oldest version that is kept, the files are known from its state
2. of all later ones, from the time since when files are unreferenced: those that were there when
   the version was the newest lost their last reference later
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from sleeper.engine.published.delta import DeltaLog
from sleeper.engine.published.iceberg import IcebergLog
from sleeper.engine.published.versions import PublishedLog
from sleeper.errors import DataDamaged, StorageFailed, VersionNotFound
from sleeper.model import paths
from sleeper.ports.objects import ObjectInfo, Objects
from sleeper.state.file_references import FileReferences
from sleeper.state.findings import Finding, FindingKind
from sleeper.state.plans.publish import (
    KeptPublications,
    NotedPublication,
    PublishedFormat,
    kept_publications,
)
from sleeper.state.state_store import StateStore
from sleeper.tables.open_table import OpenTable

LOGS: Final[Mapping[PublishedFormat, Callable[[Objects], PublishedLog]]] = {
    "delta": DeltaLog,
    "iceberg": IcebergLog,
}
"""Opens the versions of a table in each format, given the table's folder."""

_FIRST_TIME: Final = datetime(1970, 1, 1, tzinfo=UTC)
_log = logging.getLogger(__name__)


def note_of(name: str, note: NotedPublication) -> str:
    """Return the key of the note about a publication in a format."""
    return paths.publication_note(
        name, version=note.version, transaction=note.transaction, at_us=note.at_us
    )


@dataclass(frozen=True, slots=True)
class ReadersNeeds:
    """What readers of other formats need besides the table itself.

    Attributes:
        names: Files that garbage collection must keep.
        since: Files that lost their last reference at this time or later must be kept too; None if
            there is no such time.
        choices: What was chosen of each format.
        notes: The keys of notes of publications that nobody needs any more.
    """

    names: frozenset[str] = frozenset()
    since: datetime | None = None
    choices: Mapping[PublishedFormat, KeptPublications] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def limited(self, before: datetime) -> datetime:
        """Return the time before which files must have lost their last reference to be deleted."""
        return before if self.since is None else min(before, self.since)


def needs_of_readers(table: OpenTable) -> ReadersNeeds:
    """Return which files readers of other formats may need now.

    Raises:
        StorageFailed: the storage cannot be read.
    """
    return readers_needs(
        table.files,
        table.store,
        now=table.store.time(),
        kept=timedelta(minutes=table.properties.publish.kept_minutes),
        given_up=table.orphan_age(),
    )


def readers_needs(
    files: Objects, store: StateStore, *, now: datetime, kept: timedelta, given_up: timedelta
) -> ReadersNeeds:
    """Return which files readers of other formats may need.

    A table that was never published costs one listing.

    Args:
        files: The table's folder.
        store: Its state.
        now: The time by the clock of the storage.
        kept: How long a version is kept after the next one replaced it.
        given_up: How long a publication may take from its note to the end.

    Raises:
        StorageFailed: the storage cannot be read.
    """
    noted = _noted(files.listing(paths.PUBLISHED))
    chosen: dict[PublishedFormat, KeptPublications] = {}
    for name, notes in noted.items():
        stored = {each.version: each.stored for each in LOGS[name](files).versions()}
        chosen[name] = kept_publications(
            notes,
            replaced={number - 1 for number, at in stored.items() if at < now - kept},
            newest=max(stored, default=-1),
            given_up={note for note, info in notes.items() if info.modified < now - given_up},
        )
    needed = [note for each in chosen.values() for note in each.kept]
    names, since = _files_of(needed, store)
    ended = [note_of(name, note) for name, each in chosen.items() for note in each.ended]
    return ReadersNeeds(names=names, since=since, choices=chosen, notes=(*ended,))


def forget_ended(files: Objects, needs: ReadersNeeds) -> None:
    """Delete notes and parts of logs that nobody needs any more."""
    try:
        files.delete(needs.notes)
        for name, choice in needs.choices.items():
            if any(each.version < choice.first for each in choice.ended):
                LOGS[name](files).forget(choice.first)
    except StorageFailed as failure:
        _log.warning("what was published before is left for the next run: %s", failure)


def _noted(
    infos: Iterable[ObjectInfo],
) -> dict[PublishedFormat, dict[NotedPublication, ObjectInfo]]:
    found: dict[PublishedFormat, dict[NotedPublication, ObjectInfo]] = {}
    for info in infos:
        if (noted := paths.publication_noted(info.key)) is None:
            continue
        name, version, transaction, at_us = noted
        for known in LOGS:
            if known == name:
                note = NotedPublication(version=version, transaction=transaction, at_us=at_us)
                found.setdefault(known, {})[note] = info
    return found


def _files_of(
    needed: list[NotedPublication], store: StateStore
) -> tuple[frozenset[str], datetime | None]:
    """Return the files that the oldest version needs, and the time for all later ones."""
    if not needed:
        return frozenset(), None
    oldest = min(needed, key=lambda each: each.transaction)
    later = [each for each in needed if each.transaction > oldest.transaction]
    newest = store.refresh()
    try:
        state = store.state_after(oldest.transaction)
    except VersionNotFound:
        state = None
    if state is None:
        later = needed
        names: frozenset[str] = frozenset()
    else:
        names = frozenset(state.files.needed_besides(newest.files))
    if not later:
        return names, None
    return names, _FIRST_TIME + timedelta(microseconds=min(each.at_us for each in later))


def check_publications(files: Objects, store: StateStore) -> Iterator[Finding]:
    """Compare what is published with the states that it was made of, and find all of its files.

    Raises:
        StorageFailed: the storage cannot be read.
    """
    for name, open_log in LOGS.items():
        log = open_log(files)
        try:
            version = log.newest()
            published = set() if version is None else set(log.names(version).to_pylist())
        except DataDamaged as damage:
            yield _finding(name, str(damage))
            continue
        if version is None:
            continue
        newest = store.refresh()
        state = newest
        if version.transaction != newest.number:
            state = store.state_after(version.transaction) or newest
        known = set(state.files.needed_besides(FileReferences.empty()))
        if state.number == version.transaction and known != published:
            other = min(known ^ published)
            yield _finding(
                name,
                f"it has not the files of transaction {version.transaction}, as {other!r} is in "
                "one of both alone",
            )
        for each in sorted(published - set(newest.files.needed_besides(FileReferences.empty()))):
            if files.stored_at(each) is None:
                yield _finding(name, f"its file {each!r} is missing")
                break


def _finding(name: str, what: str) -> Finding:
    return Finding(
        kind=FindingKind.PUBLICATION,
        what=f"the table is published as {name}, and {what}",
        next_step=f"Run `sleeper unpublish TABLE --as {name}`, and publish it again.",
    )
