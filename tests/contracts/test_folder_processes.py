"""Real processes race for one log in a folder, and are killed in the middle of it."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from sleeper.storage.local.folder import FolderObjects
from sleeper.storage.transaction_log import ObjectTransactionLog
from tests.contracts import append_in_a_loop

if TYPE_CHECKING:
    from pathlib import Path

LONG_AGO = timedelta(days=2)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "instance"


class Writers:
    """Processes that append to the log in `folder`, all let go at the same moment."""

    def __init__(self, folder: Path, names: list[str], entries: int) -> None:
        program = [sys.executable, append_in_a_loop.__file__, str(folder)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self.processes = [
            subprocess.Popen(
                [*program, name, str(entries)],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for name in names
        ]
        for process in self.processes:
            assert process.stdout.readline() == "ready\n"
        for process in self.processes:
            process.stdin.write("go\n")
            process.stdin.flush()

    def acknowledged(self) -> dict[int, bytes]:
        """Wait for all to end; return the entries that they were told are theirs."""
        entries = {}
        for process in self.processes:
            lines, _ = process.communicate()
            # A line cut off by the kill says nothing: its entry counts as not acknowledged.
            for line in lines.splitlines(keepends=True):
                if line.endswith("\n"):
                    number, writer, n = line.strip().split(":")
                    assert int(number) not in entries, "two writers were given one number"
                    entries[int(number)] = append_in_a_loop.body(writer, int(n))
        return entries

    def kill_after(self, lines: int) -> dict[int, bytes]:
        """Kill all without warning, once the first has had so many entries acknowledged."""
        first = [self.processes[0].stdout.readline() for _ in range(lines)]
        for process in self.processes:
            process.kill()
        entries = self.acknowledged()
        for line in first:
            number, writer, n = line.strip().split(":")
            entries[int(number)] = append_in_a_loop.body(writer, int(n))
        return entries


def unfinished(folder: Path) -> list[Path]:
    """Return the hidden files that writers have left behind."""
    return sorted((folder / ".tmp-writes").iterdir())


class TestRacingProcesses:
    """Several processes append to one log at the same time."""

    def test_every_number_has_one_winner(self, folder):
        """All that was acknowledged is there, once, whole, and in a row without gaps."""
        writers = Writers(folder, ["a", "b", "c", "d"], entries=60)

        acknowledged = writers.acknowledged()

        log = ObjectTransactionLog(FolderObjects(folder))
        assert sorted(acknowledged) == list(range(1, 241))
        assert dict(log.read_after(0)) == acknowledged
        assert unfinished(folder) == []


class TestKilledProcesses:
    """Writers end by `kill -9`, wherever they are."""

    def test_nothing_acknowledged_is_lost_and_nothing_is_torn(self, folder):
        """
        After each of several massacres, every acknowledged entry is in the log, every entry of
        the log is whole, and their numbers have no gaps; new writers go on where it ends.
        """
        log = ObjectTransactionLog(FolderObjects(folder))
        acknowledged: dict[int, bytes] = {}

        for round_number, lines in enumerate((3, 11, 17, 8)):
            names = [f"{round_number}{letter}" for letter in "abc"]
            acknowledged |= Writers(folder, names, entries=100_000).kill_after(lines)

            present = dict(log.read_after(0))
            assert acknowledged.items() <= present.items()
            listed = [info.key for info in FolderObjects(folder).listing()]
            assert listed == [log.key(number) for number in range(1, len(present) + 1)]
            assert {len(body) for body in present.values()} == {append_in_a_loop.BODY_SIZE_BYTES}
            assert all(body.rstrip(b".").count(b":") == 2 for body in present.values())

        assert len(acknowledged) >= 39

    def test_what_killed_writers_leave_behind_is_swept(self, folder):
        """Hidden files without a writer go when they are old; the log is as it was."""
        objects = FolderObjects(folder)
        Writers(folder, ["a", "b"], entries=100_000).kill_after(5)
        entries = list(ObjectTransactionLog(objects).read_after(0))
        # The kill may have met every writer between two files; this one surely is half-way.
        half_way = objects.open_output("never/finished")

        swept_young = objects.sweep_temporaries(3_600, datetime.now(UTC))
        swept_old = objects.sweep_temporaries(3_600, datetime.now(UTC) + LONG_AGO)
        half_way.abort()

        assert swept_young == 0
        assert swept_old >= 1
        assert unfinished(folder) == []
        assert list(ObjectTransactionLog(objects).read_after(0)) == entries
