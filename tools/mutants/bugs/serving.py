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
        right="if name != _JOBS_URL}",
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
        right="{how}{why}\", retryable=True)",
        wrong="{how}{why}\", retryable=False)",
        tests=("tests/stories/test_bulk_import_jobs.py",),
    ),
)
