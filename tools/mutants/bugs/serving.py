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
        name="rows-of-queries-forgotten",
        breaks="A query that is delivered again after its rows were written is shown with 0 rows.",
        module="services/job_kinds/query.py",
        right="            rows_written=results.rows_of_query(self.job_id),\n",
        wrong="",
        tests=("tests/stories/test_query_jobs.py",),
    ),
    Bug(
        name="rows-of-exports-forgotten",
        breaks="An export that is delivered again after it was complete is shown with 0 rows.",
        module="services/job_kinds/export.py",
        right="            rows_written=exported.row_count,\n",
        wrong="",
        tests=("tests/stories/test_query_jobs.py",),
    ),
    Bug(
        name="killed-exports-stay",
        breaks="The files of a killed run of an export stay for ever beside those of the next.",
        module="jobs/job_results.py",
        right="            delete_unfinished(Path(location))\n",
        wrong="            pass\n",
        tests=("tests/stories/test_query_jobs.py",),
    ),
    Bug(
        name="copy-shares-queues",
        breaks="A copy of an instance takes the jobs of the original.",
        module="table/backup.py",
        right="if name != _JOBS_URL}",
        wrong="if name}",
        tests=("tests/stories/test_backup.py",),
    ),
)
