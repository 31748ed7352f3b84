"""Takes purged keys out of the file of jobs that an instance in a folder has.

1. dead letters of the table that name a key are deleted; they are delivered no more
2. what was deleted from the file, then or earlier, is overwritten
3. what still names a key is told: messages that wait, events of jobs, and files for the batcher are
   wanted by others
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Final

from sleeper.model import paths
from sleeper.model.jobs.events import JobFilter
from sleeper.model.jobs.kinds import JobKind, QueueName
from sleeper.model.jobs.messages import DeadLetter
from sleeper.model.jobs.settings import queue_settings
from sleeper.ports.jobs import JobStores
from sleeper.tables.open_table import OpenTable
from sleeper.tables.purges.search import Search

ELSEWHERE: Final = (
    "messages and dead letters in queues of the instance, its job tracker and its batcher"
)
_LETTERS_MAX: Final = 100_000
_WAIT = "Let workers handle it or delete it, then purge the same keys again"
_EXPIRES = "Wait until it expires, then purge the same keys again"
_log = logging.getLogger(__name__)


def purge_jobs(table: OpenTable, search: Search, note: Callable[[int], None]) -> tuple[str, ...]:
    """Delete dead letters with keys, and search the file of jobs; return what was not searched.

    Args:
        table: The table.
        search: Finds keys, and notes what has one.
        note: Called with the number of dead letters that were deleted.

    Raises:
        StorageFailed: the file cannot be read or written.
    """
    context = table.context
    if context.properties.jobs.url is not None or context.objects.is_remote:
        return (ELSEWHERE,)
    if context.objects.stored_at(paths.JOBS) is None:
        return ()
    stores = context.place.job_stores(
        context.properties.id,
        None,
        {name: queue_settings(context.properties, name) for name in QueueName},
        now=context.clock.now,
        sleep=context.clock.sleep,
        pause=context.clock.back_off,
        new_id=context.new_id,
    )
    try:
        for name in QueueName:
            note(_delete_letters(table, stores, name, search))
        stores.erase_deleted()
        _search_records(table, stores, search)
    finally:
        stores.close()
    for info in context.objects.listing(paths.SERVICES):
        search.found.note("jobs of the instance", info.size_bytes)
        if search.has_text(context.objects, info):
            search.found.add(info.key, "messages, events or files of jobs name a purged key", _WAIT)
    return ()


def _delete_letters(table: OpenTable, stores: JobStores, name: QueueName, search: Search) -> int:
    queue = stores.queue(name)
    letters = queue.dead_letters(_LETTERS_MAX)
    texts = ((each, text) for each in letters for text in (each.body, each.reason))
    found = {each.message_id: each for each in search.named(texts)}.values()
    own = [each for each in found if _is_of_table(each, table)]
    for each in found:
        if each not in own:
            where = f"dead letter {each.message_id} of queue {name}"
            search.found.add(where, "it names a purged key, of another table maybe", _WAIT)
    if not own:
        return 0
    deleted = queue.delete_dead_letters([each.message_id for each in own])
    _log.info("deleted %d dead letters of queue %s, which named purged keys", deleted, name)
    return deleted


def _is_of_table(letter: DeadLetter, table: OpenTable) -> bool:
    return f'"{table.name}"' in letter.body or f'"{table.record.table_id}"' in letter.body


def _search_records(table: OpenTable, stores: JobStores, search: Search) -> None:
    """Search events of the table's jobs, and files for the batcher, text by text."""
    for kind in JobKind:
        wanted = JobFilter(kind=kind, table_id=table.record.table_id)
        if _is_in_any(map(repr, stores.tracker.jobs(wanted)), search):
            search.found.add(f"events of {kind} jobs", "they name a purged key", _EXPIRES)
    if _is_in_any(map(repr, stores.batcher.newest()), search):
        search.found.add("files for the batcher", "their names have a purged key", _EXPIRES)


def _is_in_any(texts: Iterable[str], search: Search) -> bool:
    return any(search.named((True, text) for text in texts))
