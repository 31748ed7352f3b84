"""An instance's properties as the rest of the code reads them: `properties.gc.files_max`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from functools import cached_property
from typing import Final

from sleeper.language.value_classes import dataclass
from sleeper.model.known_properties.cloud import (
    CloudProperties,
    LambdaProperties,
    TaskProperties,
)
from sleeper.model.known_properties.clusters import ClusterProperties
from sleeper.model.known_properties.instance import (
    INSTANCE_PROPERTIES,
    ClockProperties,
    CommitProperties,
    GarbageRunProperties,
    GeneralProperties,
    SplittingRunProperties,
)
from sleeper.model.known_properties.jobs import (
    BatcherRunProperties,
    CommitterProperties,
    CompactionWorkerProperties,
    ExportQueueProperties,
    IngestQueueProperties,
    JobProperties,
    QueryQueueProperties,
    TrackerProperties,
)
from sleeper.model.known_properties.kinds import Property, read_group
from sleeper.model.known_properties.table import TABLE_PROPERTIES

_INSTANCE: Final = {known.name: known for known in INSTANCE_PROPERTIES} | {
    known.instance_default: replace(
        known,
        name=known.instance_default,
        description=f"Default of {known.name}: {known.description}",
        group=f"Defaults for tables: {known.group}",
        editable=True,
        instance_default=None,
    )
    for known in TABLE_PROPERTIES
    if known.instance_default
}

KNOWN_INSTANCE_PROPERTIES: Final[tuple[Property, ...]] = tuple(_INSTANCE.values())


def given_text(values: Mapping[str, str], name: str) -> str | None:
    """Return what a property was set to, without spaces around it; None when that is nothing."""
    return values.get(name, "").strip() or None


@dataclass(frozen=True, slots=True)
class PropertyInForce:
    """A property of an instance and its value.

    Attributes:
        name: Its full name.
        value: What is in force, as text; None for nothing.
        is_set: Whether it was set for this instance; else the value is the default.
        default: The built-in value, or None.
        is_fixed: Whether it cannot be changed.
    """

    name: str
    value: str | None
    is_set: bool
    default: str | None
    is_fixed: bool


@dataclass(frozen=True)
class InstanceProperties:
    """An instance's properties, typed and in groups. A group is parsed at its first use.

    Attributes:
        values: The texts that were set, by full name.

    Raises (from each group):
        PropertiesInvalid: a value of the group is not allowed.
    """

    values: Mapping[str, str] = field(default_factory=dict)

    def text(self, name: str) -> str | None:
        """Return a property's value as text: what was set, else the default, else None."""
        known = _INSTANCE.get(name)
        return given_text(self.values, name) or (known.default if known else None)

    def in_force(self) -> tuple[PropertyInForce, ...]:
        """Return every property that is set, and all others that have an effect, by name."""
        names = {name for name, known in _INSTANCE.items() if known.used}
        names |= {name for name in self.values if given_text(self.values, name)}
        return tuple(map(self._in_force, sorted(names)))

    def _in_force(self, name: str) -> PropertyInForce:
        known = _INSTANCE.get(name)
        return PropertyInForce(
            name=name,
            value=self.text(name),
            is_set=given_text(self.values, name) is not None,
            default=known.default if known else None,
            is_fixed=known is not None and not known.editable,
        )

    def _found(self, name: str) -> tuple[str, str] | None:
        text = given_text(self.values, name)
        return (name, text) if text else None

    @property
    def id(self) -> str:
        """The instance's id, or an empty text."""
        return self.general.instance_id or ""

    @cached_property
    def general(self) -> GeneralProperties:
        """The instance's id and format."""
        return read_group(GeneralProperties, self._found)

    @cached_property
    def commits(self) -> CommitProperties:
        """Commits of tables whose own properties say nothing."""
        return read_group(CommitProperties, self._found)

    @cached_property
    def clocks(self) -> ClockProperties:
        """How far clocks may differ."""
        return read_group(ClockProperties, self._found)

    @cached_property
    def splitting(self) -> SplittingRunProperties:
        """One run of partition splitting."""
        return read_group(SplittingRunProperties, self._found)

    @cached_property
    def gc(self) -> GarbageRunProperties:
        """One run of the garbage collector."""
        return read_group(GarbageRunProperties, self._found)

    @cached_property
    def jobs(self) -> JobProperties:
        """Where jobs are kept, and how often one is tried."""
        return read_group(JobProperties, self._found)

    @cached_property
    def ingest_queue(self) -> IngestQueueProperties:
        """Workers of ingest jobs, and their queue."""
        return read_group(IngestQueueProperties, self._found)

    @cached_property
    def batcher(self) -> BatcherRunProperties:
        """Runs of the ingest batcher."""
        return read_group(BatcherRunProperties, self._found)

    @cached_property
    def compaction_workers(self) -> CompactionWorkerProperties:
        """Workers of compactions."""
        return read_group(CompactionWorkerProperties, self._found)

    @cached_property
    def query_queue(self) -> QueryQueueProperties:
        """Workers of queries, and what they return."""
        return read_group(QueryQueueProperties, self._found)

    @cached_property
    def export_queue(self) -> ExportQueueProperties:
        """Workers of exports, and their queue."""
        return read_group(ExportQueueProperties, self._found)

    @cached_property
    def trackers(self) -> TrackerProperties:
        """Which jobs are tracked, and for how long."""
        return read_group(TrackerProperties, self._found)

    @cached_property
    def committer(self) -> CommitterProperties:
        """The committer."""
        return read_group(CommitterProperties, self._found)

    @cached_property
    def cloud(self) -> CloudProperties:
        """What all stacks of a deployment share."""
        return read_group(CloudProperties, self._found)

    @cached_property
    def tasks(self) -> TaskProperties:
        """Workers on Fargate."""
        return read_group(TaskProperties, self._found)

    @cached_property
    def lambdas(self) -> LambdaProperties:
        """Lambda functions of a deployment."""
        return read_group(LambdaProperties, self._found)

    @cached_property
    def clusters(self) -> ClusterProperties:
        """Clusters of bulk imports that a deployment makes."""
        return read_group(ClusterProperties, self._found)
