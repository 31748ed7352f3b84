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
)
