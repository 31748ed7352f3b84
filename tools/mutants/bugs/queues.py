"""Bugs in queues, tracker and batcher store, as SQLite and memory keep them."""

from __future__ import annotations

from ..bug import Bug

SQLITE = ("tests/contracts/jobs/test_sqlite_jobs.py",)
ANY_ORDER = ("tests/contracts/jobs/test_any_order.py",)
PROCESSES = ("tests/contracts/jobs/test_sqlite_processes.py",)
TROUBLE = ("tests/contracts/jobs/test_sqlite_trouble.py",)
_QUEUE = "storage/local/jobs/job_queue.py"
_TRACKER = "storage/local/jobs/job_tracker.py"
_BATCHER = "storage/local/jobs/batcher_store.py"
_DATABASE = "storage/local/jobs/database.py"

BUGS = (
    Bug(
        name="stale-receipt-deletes",
        breaks="A receipt deletes a message that another has received since.",
        module=_QUEUE,
        right='"SELECT number FROM message WHERE number = ? AND receipt = ? AND queue = ?"',
        wrong="\"SELECT number FROM message WHERE number = ? AND ? != '' AND queue = ?\"",
        tests=SQLITE,
    ),
    Bug(
        name="clock-set-back-not-noticed",
        breaks="A clock that is set back hides messages until it is there again.",
        module=_QUEUE,
        right="        elif latest < now:",
        wrong="        elif latest < 0:",
        tests=ANY_ORDER,
    ),
    Bug(
        name="idle-look-ignores-the-clock",
        breaks="Who waits does not notice that the clock was set back.",
        module=_QUEUE,
        right="            return self._latest(connection) > now + _STEP\n",
        wrong="            return False\n",
        tests=SQLITE,
    ),
    Bug(
        name="deduplication-from-the-future",
        breaks="After the clock was set back, messages count as sent that never were.",
        module=_QUEUE,
        right="DO UPDATE SET since = :now WHERE since > :now + :step",
        wrong="DO UPDATE SET since = :now WHERE since < 0 * :step",
        tests=SQLITE,
    ),
    Bug(
        name="deduplication-forgets-early",
        breaks="A message is sent twice within five minutes.",
        module=_QUEUE,
        right='"forgotten": now - _REMEMBERED}',
        wrong='"forgotten": now - _STEP}',
        tests=SQLITE,
    ),
    Bug(
        name="group-not-blocked",
        breaks="A later message of a group is delivered beside an earlier one.",
        module=_QUEUE,
        right="SELECT message_group FROM message WHERE queue = :queue AND visible > :now)",
        wrong="SELECT message_group FROM message WHERE queue = :queue AND visible < 0)",
        tests=ANY_ORDER,
    ),
    Bug(
        name="group-out-of-order",
        breaks="A message that came back stands behind later ones of its group.",
        module=_QUEUE,
        right="    ORDER BY number LIMIT :count",
        wrong="    ORDER BY visible, number LIMIT :count",
        tests=SQLITE,
    ),
    Bug(
        name="one-delivery-too-many",
        breaks="A poison message is delivered once more than it may be.",
        module=_QUEUE,
        right="if row[-1] >= self._settings.receives_max]",
        wrong="if row[-1] > self._settings.receives_max]",
        tests=SQLITE,
    ),
    Bug(
        name="transactions-begin-as-readers",
        breaks="Two processes that write at once fail, or both get one message.",
        module=_DATABASE,
        right='connection.execute("BEGIN IMMEDIATE")\n                break',
        wrong='connection.execute("BEGIN")\n                break',
        tests=PROCESSES,
    ),
    Bug(
        name="connection-taken-over-a-fork",
        breaks="A child uses its parent's connection, and locks mean nothing.",
        module=_DATABASE,
        right="    def _take(self) -> sqlite3.Connection:\n        if self._pid != os.getpid():",
        wrong="    def _take(self) -> sqlite3.Connection:\n        if self._pid == 0:",
        tests=PROCESSES,
    ),
    Bug(
        name="replaced-file-not-noticed",
        breaks="Messages go into a file that was deleted.",
        module=_DATABASE,
        right="        if self._file is None or self._identity() != self._file:",
        wrong="        if self._file is None:",
        tests=TROUBLE,
    ),
    Bug(
        name="resubmitted-file-assigned",
        breaks="A file that was submitted again since is in a job planned by its old size.",
        module=_BATCHER,
        right="AND size_bytes = :size_bytes AND received = :received AND expires = :expires",
        wrong="AND size_bytes >= 0",
        tests=SQLITE,
    ),
    Bug(
        name="files-of-unsent-jobs-expire",
        breaks="A job that is sent late has lost its files.",
        module=_BATCHER,
        right='                " AND job_id NOT IN (SELECT job_id FROM unsent_job)",\n',
        wrong='                "",\n',
        tests=SQLITE,
    ),
    Bug(
        name="job-order-by-first-event",
        breaks="Jobs with new events stay far down in the list.",
        module=_TRACKER,
        right="newest = max(newest, :at)",
        wrong="newest = newest",
        tests=SQLITE,
    ),
    Bug(
        name="times-of-forgotten-events",
        breaks="Jobs are found by events that were forgotten.",
        module=_TRACKER,
        right='(_EMPTY_JOBS, _CHANGED_JOBS, "DROP TABLE changed")',
        wrong='(_EMPTY_JOBS, "DROP TABLE changed")',
        tests=SQLITE,
    ),
)
