"""Copies of an instance are put in its place and taken away between commits of two handles.

The model is a list of tokens for each log, one for each entry. A handle may go on if and only if the
last entry that it knows is in the log that is in the place: then no row that was acknowledged is
lost or doubled, but those that a restored copy does not have. Else it is refused.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from sleeper.errors import InstanceLost, TableNotFound
from sleeper.tables.table import Table
from tests.contracts.replaced_instance_contract import (
    SCHEMA,
    FolderPlace,
    RemotePlace,
    ids,
    rows,
)
from tests.soak import tries

JOBS = st.sampled_from([None, "a", "b", "c"])
HANDLES = st.sampled_from([0, 1])
GC_DELAY = "sleeper.table.gc.delay.minutes"


@dataclass
class Stored:
    """What is in one copy of the instance: a token for each log entry, rows, and jobs."""

    index: list[int] = field(default_factory=list)
    log: list[int] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    jobs: set[str] = field(default_factory=set)

    def copy(self) -> Stored:
        """Return what a copy has."""
        return Stored([*self.index], [*self.log], [*self.rows], {*self.jobs})


@dataclass
class Handle:
    """An open table, with the length and the last token of each log that it has seen."""

    table: Table
    index: tuple[int, int]
    log: tuple[int, int] = (0, 0)

    def is_current(self, stored: Stored | None) -> bool:
        """Return whether all that the handle knows is in the place."""
        return stored is not None and _has(stored.index, self.index) and _has(stored.log, self.log)


def _has(log: list[int], seen: tuple[int, int]) -> bool:
    length, token = seen
    return length == 0 or (len(log) >= length and log[length - 1] == token)


class ReplacedInstances(RuleBasedStateMachine):
    """Subclasses say where the instance is."""

    place: Any

    def __init__(self) -> None:
        super().__init__()
        self.tokens = count(1)
        self.numbers = count(1)
        self.stored: Stored | None = None
        self.kept: list[tuple[Any, Stored]] = []
        self.away: tuple[Any, Stored] | None = None
        self.handles: list[Handle] = []

    @initialize()
    def begin(self) -> None:
        """Make an instance with a table, and two handles of it."""
        instance = self.place.open()
        self.empty = self.place.copy()
        self.stored = Stored()
        instance.create_table("t", SCHEMA, row_keys=["id"])
        self.add_index()
        self.follow(self.place.open().table("t"))
        self.handles = [self.opened(), self.opened()]

    @rule(which=HANDLES, job_id=JOBS)
    def ingest(self, which: int, job_id: str | None) -> None:
        """A handle ingests a row, by a job that may have been done."""
        number = next(self.numbers)
        handle, stored = self.handles[which], self.stored
        self.place.wait()
        try:
            done = handle.table.ingest(rows(number), job_id=job_id)
        except (InstanceLost, TableNotFound):
            assert not handle.is_current(stored)
            return
        assert handle.is_current(stored)
        assert stored is not None
        assert done.already_committed == (job_id in stored.jobs)
        if not done.already_committed:
            stored.rows.append(number)
            stored.log.append(next(self.tokens))
            assert done.transaction == len(stored.log)
            stored.jobs |= {job_id} - {None}
        self.note(handle)

    @rule(which=HANDLES)
    def read(self, which: int) -> None:
        """A handle reads all rows."""
        handle = self.handles[which]
        self.place.wait()
        try:
            found = ids(handle.table)
        except (InstanceLost, TableNotFound):
            assert not handle.is_current(self.stored)
            return
        assert handle.is_current(self.stored)
        assert self.stored is not None
        assert found == sorted(self.stored.rows)
        self.note(handle)

    @rule(which=HANDLES)
    def compact(self, which: int) -> None:
        """A handle compacts all files."""
        handle = self.handles[which]
        self.place.wait()
        try:
            handle.table.compact(all_files=True)
        except (InstanceLost, TableNotFound):
            assert not handle.is_current(self.stored)
            return
        assert handle.is_current(self.stored)
        self.follow(handle.table)
        self.note(handle)

    @rule(which=HANDLES)
    def set_property(self, which: int) -> None:
        """A handle changes the table's record, for which it need know the index alone."""
        handle, stored = self.handles[which], self.stored
        self.place.wait()
        try:
            handle.table.set_properties({GC_DELAY: next(self.numbers)})
        except (InstanceLost, TableNotFound):
            assert not handle.is_current(stored)
            return
        assert stored is not None
        assert _has(stored.index, handle.index)
        self.add_index()
        handle.index = (len(stored.index), stored.index[-1])

    @precondition(lambda self: self.stored is not None and self.stored.index)
    @rule(which=HANDLES)
    def open_again(self, which: int) -> None:
        """A handle is opened again."""
        self.handles[which] = self.opened()

    @precondition(lambda self: self.stored is not None)
    @rule()
    def copy(self) -> None:
        """Somebody copies the instance."""
        assert self.stored is not None
        self.kept.append((self.place.copy(), self.stored.copy()))

    @precondition(lambda self: self.kept)
    @rule(data=st.data())
    def restore(self, data: Any) -> None:
        """Somebody puts a copy in the place, whatever is there."""
        copy, stored = self.kept.pop(data.draw(st.integers(0, len(self.kept) - 1)))
        if self.stored is not None:
            self.kept.append((self.place.take_away(), self.stored))
        self.place.put_in_place(copy)
        self.stored = stored

    @precondition(lambda self: self.stored is not None)
    @rule()
    def take_away(self) -> None:
        """Somebody moves the instance, and may put it back."""
        assert self.stored is not None
        self.kept.append((self.place.take_away(), self.stored))
        self.stored = None

    @precondition(lambda self: self.stored is None)
    @rule(with_table=st.booleans())
    def make_anew(self, with_table: bool) -> None:
        """Somebody makes an instance of the same id."""
        self.place.put_in_place(self.made_anew())
        self.stored = Stored()
        if with_table:
            self.place.open().create_table("t", SCHEMA, row_keys=["id"])
            self.add_index()
            self.follow(self.place.open().table("t"))

    def teardown(self) -> None:
        """What is in the place is what was acknowledged there, without a hole or a double."""
        if self.stored is None:
            assert self.place.is_empty()
        elif self.stored.index:
            instance = self.place.open()
            assert ids(instance.table("t")) == sorted(self.stored.rows)
            assert instance.table("t").refresh() == len(self.stored.log)
            assert instance.verify().clean

    def opened(self) -> Handle:
        """Open a handle, which has read the index, and nothing of the table."""
        assert self.stored is not None
        return Handle(self.place.open().table("t"), (len(self.stored.index), self.stored.index[-1]))

    def add_index(self) -> None:
        """Take note of an entry of the index."""
        assert self.stored is not None
        self.stored.index.append(next(self.tokens))

    def follow(self, table: Table) -> None:
        """Take note of entries that were committed."""
        assert self.stored is not None
        while len(self.stored.log) < table.refresh():
            self.stored.log.append(next(self.tokens))

    def note(self, handle: Handle) -> None:
        """Take note of what a handle has seen."""
        assert self.stored is not None
        handle.index = (len(self.stored.index), self.stored.index[-1])
        handle.log = (len(self.stored.log), self.stored.log[-1])

    def made_anew(self) -> Any:
        """Return another instance of the same id."""
        raise NotImplementedError


class InFolder(ReplacedInstances):
    """The instance is in a folder."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.place = FolderPlace(self.folder / "instance")

    def made_anew(self) -> Any:
        """Make another folder."""
        return FolderPlace(self.folder / f"new {next(self.numbers)}").root

    def teardown(self) -> None:
        """Check, and remove the folder."""
        try:
            super().teardown()
        finally:
            shutil.rmtree(self.folder)


class Remote(ReplacedInstances):
    """The instance is in objects that are read as those of a bucket, after more than a minute."""

    def __init__(self) -> None:
        super().__init__()
        self.place = RemotePlace()

    def made_anew(self) -> Any:
        """Return the objects of an instance without a table."""
        return self.empty

    def teardown(self) -> None:
        """Check, and remove the files of queries."""
        try:
            super().teardown()
        finally:
            self.place.objects.close()


@pytest.mark.soak
@pytest.mark.parametrize("machine", [InFolder, Remote])
def test_replaced_instances(machine):
    """No row is lost or doubled; a handle is refused if it knows what is not there (rule STS-27)."""
    stories = tries(12, soak=2_000)
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=stories,
            stateful_step_count=20,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
    print(f"{stories} stories of up to 20 steps")  # noqa: T201 - pytest -rP shows how much was tried
