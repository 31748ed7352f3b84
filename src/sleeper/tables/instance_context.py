"""The context of an instance: its adapters, its clock and its source of ids."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from sleeper.model.known_properties.typed import InstanceProperties
from sleeper.ports.clock import Clock
from sleeper.ports.ids import NewId
from sleeper.ports.objects import Objects
from sleeper.state.own_changes import NotedTableIndex, OwnChanges
from sleeper.storage.followed_log import Following
from sleeper.storage.objectstore.inputs import BucketInputs
from sleeper.storage.opened_instance import OpenedInstance
from sleeper.storage.places import (
    IndexBegun,
    check_folder,
    commit_checks,
    is_folder,
    table_index_of,
)
from sleeper.storage.storage_clock import StorageClock


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessContext:
    """What a process has for every instance that it opens.

    Attributes:
        clock: The clock of this machine.
        new_id: Makes random ids.
        host: The name of this machine.
        inputs: Reads input files by URL, and has the settings of buckets.
        environment: Environment variables, for finding Spark and Java.
        allow_functions: Patterns of modules whose functions tables may run in this process.
        temp_folder: Where sorting may spill; None for the system's temp folder.
    """

    clock: Clock
    new_id: NewId
    host: str
    inputs: BucketInputs
    environment: Mapping[str, str]
    allow_functions: tuple[str, ...]
    temp_folder: Path | None = None


class InstanceContext:
    """The objects that all tables of one open instance share. Making one reads nothing.

    Args:
        properties: The instance's properties.
        url: The instance's URL.
        objects: The instance's stored objects.
        process: What this process has; its values are attributes here too.
        reopen: Opens a copy in another process: `reopen[0](*reopen[1], table_id)`.
        index_begun: Returns what `begun_index` began to read.

    Attributes:
        index: The table index.
        commit_checks: The checks when a log entry of a table is committed.
        storage_time: The clock of the storage, which all writers share (aware, UTC).
    """

    def __init__(
        self,
        properties: InstanceProperties,
        *,
        url: str,
        objects: Objects,
        process: ProcessContext,
        reopen: tuple[Callable[..., Any], tuple[Any, ...]],
        index_begun: IndexBegun = None,
    ) -> None:
        self.properties = properties
        self.url = url
        self.objects = objects
        self.reopen = reopen
        self.clock = process.clock
        self.new_id = process.new_id
        self.host = process.host
        self.inputs = process.inputs
        self.environment = process.environment
        self.allow_functions = process.allow_functions
        self.temp_folder = process.temp_folder
        self.storage_time = StorageClock(
            objects,
            now=self.clock.now,
            ticks_s=self.clock.ticks_s,
            ahead_max=timedelta(minutes=properties.clocks.skew_max_minutes),
        ).time
        self.place = OpenedInstance(objects, url, properties.id)
        self.commit_checks = commit_checks(objects, properties.commits.read_back, self.new_id)
        index = table_index_of(
            objects,
            properties.id,
            self.inputs.settings,
            new_id=self.new_id,
            pause=self.clock.back_off,
            checks=self.commit_checks,
            begun=index_begun,
            following=self._following_index(),
        )
        self.index = NotedTableIndex(index, OwnChanges(url))

    def _following_index(self) -> Following:
        """Return how the log of the table index is compared with what was read of it before."""
        return Following(
            objects=self.objects,
            ticks_s=self.clock.ticks_s,
            lost=lambda what: self.place.lost(f"the table index: {what}"),
            check_empty=partial(check_folder, self.objects),
            is_remote=self.objects.is_remote,
            is_dated=is_folder(self.objects),
        )
