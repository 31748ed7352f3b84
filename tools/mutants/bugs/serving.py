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
        name="outdated-worker-goes-on",
        breaks="A busy worker uses properties for ever that were changed long ago.",
        module="services/worker.py",
        right="                if self._outdated():\n",
        wrong="                if self._outdated() is None:\n",
        tests=("tests/unit/services/test_current_instance.py", "-k", "outdated"),
    ),
    Bug(
        name="maintenance-keeps-old-properties",
        breaks="Maintenance goes on with tables whose defaults were changed.",
        module="services/online_tables.py",
        right="        if self._current() is not self._instance:\n",
        wrong="        if self._instance is None:\n",
        tests=("tests/unit/services/test_current_instance.py", "-k", "defaults"),
    ),
)
