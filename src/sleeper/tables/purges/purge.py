"""Purges row keys: their rows, and every other trace of them, and tells what was found after that.

1. what is done is stored as an object from the beginning on, without keys (`records`): a purge that
   was killed goes on when it is repeated
2. files and limits of partitions are written anew without the keys (`files`)
3. files that had them are deleted at once, also those that no transaction names
4. the state is written whole, and older versions end: keys go from the log (`versions`)
5. results of queries and exports of the table that have such rows are deleted (`results`), and dead
   letters that name one (`jobs`)
6. all that is stored is searched (`search`). What still has a key is told, and then the purge is
   not finished
7. what a bucket keeps of objects that were replaced or deleted until then is deleted for good
8. the disk cache of this process, if it has one, is emptied of what it has of the table's files
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Final

from sleeper.errors import BadRequest, StorageFailed
from sleeper.model.authors import author_now
from sleeper.tables.open_table import OpenTable
from sleeper.tables.publications import LOGS
from sleeper.tables.purges.files import (
    Rewritten,
    delete_orphans,
    delete_unreferenced,
    write_keys_out,
)
from sleeper.tables.purges.jobs import purge_jobs
from sleeper.tables.purges.keys import PurgedKeys
from sleeper.tables.purges.records import Purge, PurgeFinding, save, stored
from sleeper.tables.purges.results import delete_results
from sleeper.tables.purges.search import Search, note_shared_values, result_folders
from sleeper.tables.purges.versions import check_versions_end, end_versions, write_clean_state

_OUT_OF_REACH: Final = (
    "backups and other copies of the instance, and snapshots of its disks",
    "files that rows were imported from, and files with rows that were set aside",
    "exports to places outside of the instance",
    "other tables, and results of queries that have no column of each row key",
    "what processes have in memory, files that they write of it later and do not commit",
    "logs of processes, and temporary files of processes that were killed",
)
_OF_BUCKETS: Final = "versions of objects that are not current, where a bucket keeps them"
_OF_CACHES: Final = (
    "disk caches of other machines, and of processes here that have other folders for them"
)
_ANY: Final = "any"
"""A name in a folder, for to have the folder's URL."""

_OF_DYNAMODB: Final = (
    "the history of tables in DynamoDB, from which they can be restored for up to 35 days"
)


def purge(table: OpenTable, given: object) -> Purge:
    """Purge row keys, or go on with a purge of the same keys (`Table.purge`)."""
    keys = PurgedKeys(given, table.schema, table.arrow_schema)
    author = author_now(table.context.user)
    _check(table, keys, author.by, author.reason)
    running = _Running(table, keys, _begun(table, keys, author.by, author.reason))
    try:
        return running.run()
    finally:
        table.undo_commit_if_deleted()


def purges(table: OpenTable) -> tuple[Purge, ...]:
    """Return the purges of a table, the newest first (`Table.purges`)."""
    found = sorted(stored(table.files), key=lambda each: each.started_at)
    return tuple(reversed(found))


def _check(table: OpenTable, keys: PurgedKeys, by: str | None, reason: str | None) -> None:
    """Check that the table can be purged.

    Raises:
        BadRequest: it cannot; the message says what to do first.
    """
    if table.store.refresh().format < 2:
        table.check_exists()
        raise BadRequest(
            f"table {table.name!r} has format 1, whose log cannot do without keys. Nothing was "
            f"purged. Upgrade it first: `sleeper table upgrade {table.name}` or table.upgrade(); "
            "versions of Sleeper that do not know format 2 refuse it then"
        )
    check_versions_end(table)
    published = [name for name, open_log in LOGS.items() if any(open_log(table.files).versions())]
    if published:
        raise BadRequest(
            f"table {table.name!r} is published as {' and '.join(published)}, and what other "
            "engines read of it names keys, and files that have to go. Nothing was purged. Stop "
            f"that first: `sleeper unpublish {table.name} --as {published[0]}`. Publish it again "
            "afterwards"
        )
    for what, text in (("name of who asks", by), ("reason", reason)):
        if text is None or not Search(table, keys).is_in(text):
            continue
        raise BadRequest(
            f"the {what} names a key that has to go, and the history of the table would keep it. "
            "Nothing was purged. Give the number of a document as the reason, and a user who is "
            "not purged (SLEEPER_USER, or another token)"
        )


def _begun(table: OpenTable, keys: PurgedKeys, by: str | None, reason: str | None) -> Purge:
    """Return the purge of the same keys that has not finished, or a new one."""
    for each in stored(table.files):
        if not each.finished and each.digest == keys.digest(each.salt):
            return replace(each, finished_at=None, findings=(), mentions=(), searched=())
    purge_id = table.context.new_id()
    salt = sha256(f"{table.context.new_id()}{table.context.new_id()}".encode()).hexdigest()[:32]
    return Purge(
        purge_id=purge_id,
        table=table.name,
        table_id=table.record.table_id,
        keys=len(keys),
        salt=salt,
        digest=keys.digest(salt),
        by=by,
        reason=reason,
        started_at=table.store.time(),
    )


def _without_keys(search: Search, where: str) -> str:
    """Return a place as a proof may name it, which has no key."""
    if not search.is_in_name(where):
        return where
    folder = where.rpartition("/")[0]
    inside = f" in {folder}/" if folder and not search.is_in_name(folder) else ""
    return f"an object{inside} whose name has a purged key"


class _Running:
    """A purge that runs, and stores how far it is."""

    def __init__(self, table: OpenTable, keys: PurgedKeys, begun: Purge) -> None:
        self._table = table
        self._keys = keys
        self._purge = begun

    def run(self) -> Purge:
        """Do all of it, and return the proof."""
        table, keys = self._table, self._keys
        self._save()
        write_keys_out(table, keys, self._note_rewritten)
        self._done("rows written out of files and partitions")
        failures = delete_unreferenced(table, keys, lambda n: self._count(filesDeleted=n))
        delete_orphans(table, keys, lambda n: self._count(orphansDeleted=n))
        self._done("files deleted")
        note_shared_values(table, keys)
        before = write_clean_state(table)
        self._purge = replace(self._purge, versions_before=before)
        self._save()
        ended = end_versions(table, keys, before, self._purge.purge_id)
        self._count(
            entriesRedacted=ended.redacted,
            entriesRemoved=ended.emptied,
            stateObjectsDeleted=ended.deleted,
        )
        self._done("older versions ended")
        search = Search(table, keys)
        texts = delete_results(table, search, lambda n: self._count(resultsDeleted=n))
        self._done("results of queries and exports searched")
        elsewhere = purge_jobs(table, search, lambda n: self._count(deadLettersDeleted=n))
        if not elsewhere:
            self._done("jobs searched")
        search.search_table(before)
        for name, reason in failures.items():
            search.found.add(name, f"it could not be deleted: {reason}")
        kept = self._delete_old_versions(search)
        self._empty_cache(search)
        return self._end(search, (*texts, *elsewhere, *kept))

    def _delete_old_versions(self, search: Search) -> tuple[str, ...]:
        """Delete what was current before; return what it is not known of.

        It comes after the search, which has read all that is current since.
        """
        table, unknown = self._table, dict[str, None]()
        objects, results = table.context.objects, result_folders(table.record.table_id)
        folders = [table.files.url(_ANY), *(objects.url(each + _ANY) for each in results)]
        for done in table.context.place.delete_old_versions(
            dict.fromkeys(each.removesuffix(_ANY) for each in folders)
        ):
            self._count(oldVersionsDeleted=done.deleted)
            for where, reason in done.failures:
                search.found.add(
                    where,
                    f"an old version of it, which may have keys, could not be deleted: {reason}",
                    "Use credentials that may delete versions (s3:DeleteObjectVersion), or wait "
                    "until a rule of the bucket has deleted them; then purge the same keys again",
                )
            if done.unknown is not None:
                unknown[f"{_OF_BUCKETS}: {done.unknown}"] = None
        if table.files.is_remote:
            self._done("old versions of objects deleted")
        return (*unknown,)

    def _empty_cache(self, search: Search) -> None:
        """Delete what this machine's disk cache has; all purged files are deleted before."""
        cache = self._table.context.read_cache
        if cache is None:
            return
        try:
            self._count(cacheBytesDeleted=cache.over(self._table.files).drop_all())
        except StorageFailed as error:
            search.found.add("the disk cache", str(error), "Then purge the same keys again")
            return
        self._done("disk cache emptied")

    def _end(self, search: Search, elsewhere: Sequence[str]) -> Purge:
        found, out_of_reach = search.found, [*_OUT_OF_REACH, *elsewhere]
        if self._table.properties.state_store.startswith("DynamoDB"):
            out_of_reach.append(_OF_DYNAMODB)
        if self._table.files.is_remote:
            out_of_reach.append(_OF_CACHES)
        findings = dict.fromkeys(
            (_without_keys(search, each.where), each.what, each.next_step)
            for each in found.findings
        )
        self._purge = replace(
            self._purge,
            finished_at=self._table.store.time(),
            findings=tuple(
                PurgeFinding(where=where, what=what, next_step=step)
                for where, what, step in findings
            ),
            mentions=tuple(
                replace(each, where=_without_keys(search, each.where)) for each in found.mentions
            ),
            searched=found.summary(),
            searched_as_values=self._keys.only_as_values(),
            out_of_reach=(*out_of_reach,),
        )
        self._done("searched")
        return self._purge

    def _note_rewritten(self, done: Rewritten) -> None:
        self._count(rowsRemoved=done.rows, filesRewritten=done.files, limitsReplaced=done.limits)

    def _count(self, **more: int) -> None:
        if any(more.values()):
            self._purge = self._purge.counted(**{name: n for name, n in more.items() if n})
            self._save()

    def _done(self, step: str) -> None:
        steps = [each for each in self._purge.steps if each != step]
        self._purge = replace(self._purge, steps=(*steps, step))
        self._save()

    def _save(self) -> None:
        save(self._table.files, self._purge)
