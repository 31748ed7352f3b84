"""The context of an instance: its adapters, its clock and its source of ids."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sleeper.model.known_properties.typed import InstanceProperties
from sleeper.ports.clock import Clock
from sleeper.ports.ids import NewId
from sleeper.ports.objects import InputStore, Objects
from sleeper.state.table_index import NotedTableIndex, OwnChanges
from sleeper.storage.followed_log import Following
from sleeper.storage.opened_instance import OpenedInstance
from sleeper.storage.places import IndexBegun, Place
from sleeper.storage.storage_clock import StorageClock

if TYPE_CHECKING:
    from sleeper.ports.read_cache import ReadCache


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessContext:
    """What a process has for every instance that it opens.

    Attributes:
        clock: The clock of this machine.
        new_id: Makes random ids.
        host: The name of this machine.
        user: Who runs this process, such as `ann@build7`, as entries of logs say it.
        environment: Environment variables, for finding Spark and Java.
        allow_functions: Patterns of modules whose functions tables may run in this process.
        temp_folder: Where sorting may spill; None for the system's temp folder.
    """

    clock: Clock
    new_id: NewId
    host: str
    user: str
    environment: Mapping[str, str]
    allow_functions: tuple[str, ...]
    temp_folder: Path | None = None


class InstanceContext:
    """The objects that all tables of one open instance share. Making one reads nothing.

    Args:
        properties: The instance's properties.
        place: Where the instance is, with its stored objects.
        process: What this process has; its values are attributes here too.
        reopen: Opens a copy in another process: `reopen[0](*reopen[1], table_id)`.
        index_begun: Returns what `begin_index` began to read.

    Attributes:
        index: The table index.
        commit_checks: The checks when a log entry of a table is committed.
        storage_time: The clock of the storage, which all writers share (aware, UTC).
        opened: Says whether the instance is still at its place.
    """

    def __init__(
        self,
        properties: InstanceProperties,
        *,
        place: Place,
        process: ProcessContext,
        reopen: tuple[Callable[..., Any], tuple[Any, ...]],
        index_begun: IndexBegun = None,
    ) -> None:
        self.properties = properties
        self.place = place
        self.reopen = reopen
        self.clock = process.clock
        self.new_id = process.new_id
        self.host = process.host
        self.user = process.user
        self.environment = process.environment
        self.allow_functions = process.allow_functions
        self.temp_folder = process.temp_folder
        self.storage_time = StorageClock(
            place.objects,
            now=self.clock.now,
            ticks_s=self.clock.ticks_s,
            ahead_max=timedelta(minutes=properties.clocks.skew_max_minutes),
        ).time
        self.opened = OpenedInstance(place.objects, place.url, properties.id)
        self.commit_checks = place.commit_checks(
            properties.commits.read_back, self.new_id, self.clock
        )
        index = place.table_index(
            properties.id,
            new_id=self.new_id,
            pause=self.clock.back_off,
            checks=self.commit_checks,
            begun=index_begun,
            following=self._following_index(),
        )
        self.index = NotedTableIndex(index, OwnChanges(place.url))

    @cached_property
    def inputs(self) -> InputStore:
        """Reads input files by URL."""
        return self.place.inputs()

    @cached_property
    def read_cache(self) -> ReadCache | None:
        """Keeps on this machine's disk what is read of files in a bucket; None if nothing does."""
        return self.place.read_cache(self.clock.now)

    @property
    def url(self) -> str:
        """The instance's URL."""
        return self.place.url

    @property
    def objects(self) -> Objects:
        """The instance's stored objects."""
        return self.place.objects

    def _following_index(self) -> Following:
        """Return how the log of the table index is compared with what was read of it before."""
        return Following(
            objects=self.objects,
            ticks_s=self.clock.ticks_s,
            lost=lambda what: self.opened.lost(f"the table index: {what}"),
            check_empty=self.place.check_opened,
            is_remote=self.objects.is_remote,
            is_dated=self.place.is_dated,
        )
