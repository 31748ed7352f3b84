"""The context of an instance: its adapters, its clock and its source of ids."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from sleeper.model.known_properties.typed import InstanceProperties
from sleeper.ports.ids import NewId
from sleeper.ports.objects import Objects
from sleeper.ports.table_index import TableIndex
from sleeper.state.own_changes import NotedTableIndex, OwnChanges
from sleeper.storage.followed_log import Following
from sleeper.storage.object_log import CommitChecks
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
class InstanceContext:
    """The objects that all tables of one open instance share.

    Attributes:
        url: The instance's URL.
        objects: The instance's stored objects.
        index: The table index.
        commit_checks: The checks when a log entry of a table is committed.
        properties: The instance's properties.
        temp_folder: Where sorting may spill; None for the system's temp folder.
        now: The clock of this machine (aware, UTC).
        ticks_s: A monotonic clock, in seconds.
        storage_time: The clock of the storage, which all writers share (aware, UTC).
        new_id: Makes random ids.
        host: The name of this machine.
        pause: Waits before another attempt at a commit, given the attempt's number.
        inputs: Reads input files by URL, and has the settings of buckets.
        environment: Environment variables, for finding Spark and Java.
        allow_functions: Patterns of modules whose functions tables may run in this process.
        reopen: Opens a copy in another process: `reopen[0](*reopen[1], table_id)`.
        place: Says whether the instance is still at its place.
    """

    url: str
    objects: Objects
    index: TableIndex
    commit_checks: CommitChecks
    properties: InstanceProperties
    temp_folder: Path | None
    now: Callable[[], datetime]
    ticks_s: Callable[[], float]
    storage_time: Callable[[], datetime]
    new_id: NewId
    host: str
    pause: Callable[[int], None]
    inputs: BucketInputs
    environment: Mapping[str, str]
    allow_functions: tuple[str, ...]
    reopen: tuple[Callable[..., Any], tuple[Any, ...]]
    place: OpenedInstance


def open_context(
    properties: InstanceProperties,
    *,
    url: str,
    objects: Objects,
    now: Callable[[], datetime],
    ticks_s: Callable[[], float],
    new_id: NewId,
    host: str,
    pause: Callable[[int], None],
    inputs: BucketInputs,
    environment: Mapping[str, str],
    allow_functions: tuple[str, ...],
    reopen: tuple[Callable[..., Any], tuple[Any, ...]],
    index_begun: IndexBegun = None,
) -> InstanceContext:
    """Return the context of an instance with these properties. Nothing is read.

    Args:
        properties, url, objects, now, ticks_s, new_id, host, pause, inputs, environment,
            allow_functions, reopen: As in `InstanceContext`.
        index_begun: Returns what `begun_index` began to read.
    """
    clock = StorageClock(
        objects,
        now=now,
        ticks_s=ticks_s,
        ahead_max=timedelta(minutes=properties.clocks.skew_max_minutes),
    )
    place = OpenedInstance(objects, url, properties.id)
    checks = commit_checks(objects, properties.commits.read_back, new_id)
    index = table_index_of(
        objects,
        properties.id,
        inputs.settings,
        new_id=new_id,
        pause=pause,
        checks=checks,
        begun=index_begun,
        following=_following_index(objects, place, ticks_s),
    )
    return InstanceContext(
        url=url,
        objects=objects,
        index=NotedTableIndex(index, OwnChanges(url)),
        commit_checks=checks,
        properties=properties,
        temp_folder=None,
        now=now,
        ticks_s=ticks_s,
        storage_time=clock.time,
        new_id=new_id,
        host=host,
        pause=pause,
        inputs=inputs,
        environment=environment,
        allow_functions=allow_functions,
        reopen=reopen,
        place=place,
    )


def _following_index(
    objects: Objects, place: OpenedInstance, ticks_s: Callable[[], float]
) -> Following:
    """Return how the log of the table index is compared with what was read of it before."""
    return Following(
        objects=objects,
        ticks_s=ticks_s,
        lost=lambda what: place.lost(f"the table index: {what}"),
        check_empty=partial(check_folder, objects),
        is_remote=objects.is_remote,
        is_dated=is_folder(objects),
    )
