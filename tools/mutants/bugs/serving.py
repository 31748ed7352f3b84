"""Bugs in services and in copies of instances."""

from __future__ import annotations

from ..bug import Bug

BUGS = (
    Bug(
        name="workers-while-starting",
        breaks="A second worker is started for a message that the first one is about to take.",
        module="services/serving/worker_fleet.py",
        right="                idle=kind.starting(self._ticks_s()),\n",
        wrong="                idle=0,\n",
        tests=("tests/unit/services/test_worker_fleet.py",),
    ),
    Bug(
        name="pace-forgets-changes",
        breaks="A job at work does not end a long pause of table maintenance.",
        module="services/serving/pace.py",
        right="            pause_s = self._every_s if self._changed else self._pause_s\n",
        wrong="            pause_s = self._pause_s\n",
        tests=("tests/unit/services/test_pace.py",),
    ),
    Bug(
        name="copy-shares-queues",
        breaks="A copy of an instance takes the jobs of the original.",
        module="table/backup.py",
        right="if name not in _NOT_COPIED}",
        wrong="if name}",
        tests=("tests/stories/test_backup.py",),
    ),
    Bug(
        name="export-expires-under-way",
        breaks="An export that takes longer than results are kept loses its first files.",
        module="jobs/job_results.py",
        right="(max(info.modified for info in infos),",
        wrong="(min(info.modified for info in infos),",
        tests=("tests/unit/jobs/test_job_results.py",),
    ),
    Bug(
        name="other-files-expire",
        breaks="Files that somebody put beside results are deleted with them.",
        module="jobs/job_results.py",
        right="            if info.key == _query_key(_query_id(info.key))\n",
        wrong="",
        tests=("tests/unit/jobs/test_job_results.py",),
    ),
    Bug(
        name="killed-driver-is-final",
        breaks="A job whose Spark driver was killed is not tried again.",
        module="spark/submit/driver_process.py",
        right='{how}{why}", retryable=True)',
        wrong='{how}{why}", retryable=False)',
        tests=("tests/stories/test_bulk_import_jobs.py",),
    ),
    Bug(
        name="stopped-worker-runs-on",
        breaks="A compaction worker that is stopped finishes its job first.",
        module="services/compaction_turn.py",
        right="        if self._stopped():\n            raise Interrupted\n",
        wrong="        if self._stopped():\n            return\n",
        tests=("tests/unit/services/test_compaction_worker.py",),
    ),
    Bug(
        name="claims-beyond-the-limit",
        breaks="A compaction worker claims files for more jobs than it was asked to run.",
        module="operations/maintenance/claim_jobs.py",
        right="while (room := self._room()) > 0:",
        wrong="while room := max(9, self._room()):",
        tests=("tests/unit/services/test_compaction_worker.py",),
    ),
    Bug(
        name="failed-compactions-at-once",
        breaks="A table whose compactions fail is compacted again without a pause.",
        module="services/compaction_worker.py",
        right="        self._note(table, failed=failed and not turn.done)\n",
        wrong="        self._note(table, failed=False)\n",
        tests=("tests/unit/services/test_compaction_worker.py",),
    ),
    Bug(
        name="ended-claims-not-planned",
        breaks="Serve starts no worker for files whose worker died.",
        module="table/compaction.py",
        right="    state = expired_released(state, _lease(opened), max(now, state.at or now))\n",
        wrong="",
        tests=("tests/unit/services/test_compaction_worker.py",),
    ),
)
