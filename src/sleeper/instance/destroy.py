"""Removes an instance: lists what belongs to it, then removes that, and nothing else.

`instance.properties` is removed last, so an interrupted removal can be repeated.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Final

from sleeper.errors import InstanceNotFound, StorageFailed
from sleeper.model import paths
from sleeper.model.tables import TableRecord
from sleeper.ports.ids import NewId
from sleeper.ports.objects import Belonging, Objects
from sleeper.ports.table_index import TableIndex
from sleeper.storage.followed_log import NO_CHECKS
from sleeper.storage.places import Place

_log = logging.getLogger(__name__)

_DELETED_TOGETHER: Final = 1_000
_SHOWN_MAX: Final = 5
_KINDS: Final = {
    "results of queries": ("query_results/", r"query-[^/]+/[^/]+\.parquet"),
    "exports": ("bulk_export/", "[^/]+/[^/]+/[^/]+"),
    "bulk import jobs": ("bulk_import/", r"[^/]+\.json"),
    "jobs": (paths.SERVICES, r"jobs\.sqlite(?:-wal|-shm|-journal)?|paused"),
    "deleted tables": ("", "[0-9a-f]{8}/(?:data/partition_|statestore/).*"),
    "checks of the bucket": ("condition-checks/", ".*"),
    "time of the storage": ("storage.time", ""),
    "table index": (paths.TABLE_INDEX, "(?:index|checkpoints)/.*"),
    "properties": (paths.PROPERTIES_VERSIONS, r"\d{20}\.properties"),
    "instance": (paths.INSTANCE_PROPERTIES, ""),
}
"""Which objects outside of tables are Sleeper's, in the order in which they are removed.

How their keys begin, and a regular expression for what follows.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """What is removed with an instance.

    Attributes:
        url: The instance.
        belongings: What belongs to it, in the order in which it is removed.
        others: How many other objects are in its folder; they stay.
        other_keys: Some of them.
        values: The instance's properties; None where an interrupted removal took them already.
        finish: Called when all is removed.
    """

    url: str
    belongings: tuple[Belonging, ...]
    others: int
    other_keys: tuple[str, ...]
    values: Mapping[str, str] | None
    finish: Callable[[], object]

    @property
    def table_names(self) -> tuple[str, ...]:
        """The instance's tables."""
        return tuple(each.name for each in self.belongings if each.kind == "table")

    def carry_out(self, report: Callable[[Belonging], object] = lambda each: None) -> None:
        """Remove everything that was listed. It can be repeated after any failure.

        Args:
            report: Called with each thing before it is removed.

        Raises:
            StorageFailed: something could not be removed; what was listed before it is gone.
        """
        for each in self.belongings:
            report(each)
            each.remove()
            _log.info("removed %s %s of %s", each.kind, each.name, self.url)
        self.finish()


def plan_removal(
    place: Place,
    values: Mapping[str, str] | None,
    *,
    pause: Callable[[int], None],
    new_id: NewId,
) -> Removal:
    """List what belongs to the instance at a place. Nothing is removed.

    Args:
        place: Where it is.
        values: Its properties; None without any.
        pause: Waits before another attempt, given how many there were.
        new_id: Makes unique ids.

    Raises:
        InstanceNotFound: there is no instance, and nothing that an interrupted removal left.
        BadRequest: a bucket does not belong to the instance; nothing may be removed.
        StorageFailed: the storage cannot be read.
    """
    opened = partial(place.table_index, new_id=new_id, pause=pause, checks=NO_CHECKS)
    if place.has_resources:
        return _with_resources(place, values, opened(place.default_id), pause)
    if values is None:
        raise InstanceNotFound(f"no Sleeper instance at {place.url}: nothing is to be removed")
    return _in_objects(place, values, opened(values["sleeper.id"]), pause)


def _with_resources(
    place: Place,
    values: Mapping[str, str] | None,
    index: TableIndex,
    pause: Callable[[int], None],
) -> Removal:
    found = place.belongings(values, pause=pause)
    if not found:
        raise InstanceNotFound(f"no Sleeper instance at {place.url}: nothing is to be removed")
    tables = [] if values is None else _tables(place.objects, _records(index))
    return Removal(
        url=place.url,
        belongings=(*tables, *found),
        others=0,
        other_keys=(),
        values=values,
        finish=lambda: None,
    )


def _records(index: TableIndex) -> tuple[TableRecord, ...]:
    """Return the tables; none where an interrupted removal took the index already."""
    try:
        return index.all()
    except StorageFailed as error:
        _log.warning("tables are not listed, but removed with their bucket: %s", error)
        return ()


def _tables(objects: Objects, records: Iterable[TableRecord]) -> list[Belonging]:
    return [
        Belonging(
            "table",
            record.name,
            sum(1 for _ in objects.listing(f"{record.table_id}/")),
            "objects",
            partial(_delete_all, objects, f"{record.table_id}/"),
        )
        for record in records
    ]


def _in_objects(
    place: Place,
    values: Mapping[str, str],
    index: TableIndex,
    pause: Callable[[int], None],
) -> Removal:
    objects, records = place.objects, index.all()
    folders = {f"{record.table_id}/": record for record in records}
    counts: Counter[str] = Counter()
    others: list[str] = []
    for key in (info.key for info in objects.listing()):
        folder = key[: key.find("/") + 1]
        kind = folder if folder in folders else _kind_of(key)
        counts[kind] += 1
        if not kind and len(others) < _SHOWN_MAX:
            others.append(key)
    tables = [
        Belonging(
            "table", record.name, counts[folder], "objects", partial(_delete_all, objects, folder)
        )
        for folder, record in folders.items()
    ]
    rest = [
        Belonging("objects", kind, counts[kind], "objects", partial(_delete_kind, objects, kind))
        for kind in _KINDS
        if counts[kind]
    ]
    return Removal(
        url=place.url,
        belongings=(*tables, *_elsewhere(place, values, records, pause), *rest),
        others=counts[""],
        other_keys=tuple(others),
        values=values,
        finish=place.remove_if_empty,
    )


def _elsewhere(
    place: Place,
    values: Mapping[str, str],
    records: Iterable[TableRecord],
    pause: Callable[[int], None],
) -> list[Belonging]:
    """Return queues and tables in AWS, if the properties say that there may be some."""
    name = "statestore.classname"
    classes = [
        values.get(f"sleeper.default.table.{name}", ""),
        *(record.properties.get(f"sleeper.table.{name}", "") for record in records),
    ]
    in_dynamo = any("DynamoDB" in each or "S3StateStore" in each for each in classes)
    if not in_dynamo and place.jobs_url(values.get("sleeper.jobs.url")) != "sqs":
        return []
    return place.belongings(values, pause=pause)


def _kind_of(key: str) -> str:
    return next((kind for kind in _KINDS if _is_of_kind(key, kind)), "")


def _is_of_kind(key: str, kind: str) -> bool:
    start, rest = _KINDS[kind]
    return key.startswith(start) and re.fullmatch(rest, key[len(start) :], re.DOTALL) is not None


def _delete_kind(objects: Objects, kind: str) -> None:
    keys = _keys(objects, _KINDS[kind][0])
    _delete(objects, (key for key in keys if _is_of_kind(key, kind)))


def _delete_all(objects: Objects, folder: str) -> None:
    _delete(objects, _keys(objects, folder))


def _keys(objects: Objects, prefix: str = "") -> Iterator[str]:
    return (info.key for info in objects.listing(prefix))


def _delete(objects: Objects, keys: Iterator[str]) -> None:
    while batch := list(islice(keys, _DELETED_TOGETHER)):
        objects.delete(batch)
