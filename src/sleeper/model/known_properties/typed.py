"""Properties as the rest of the code reads them: `table.properties.parquet.page_rows`.

A property's value is the table's own, else the instance's default for tables, else the built-in
default (rule INS-8). A blank value counts as not set. A group is loaded and parsed when it is first
read, so that a process loads no more than it reads. `catalogue` lists the properties of all groups.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING

from sleeper.html.markup import Markup, element, grid, joined
from sleeper.html.values import NotebookHtml, text_of
from sleeper.model.known_properties.instance import (
    ClockProperties,
    CommitProperties,
    GeneralProperties,
)
from sleeper.model.known_properties.state_store import STATE_MOVE_PROPERTY, StateStoreProperties
from sleeper.model.known_properties.table import (
    DefinitionProperties,
    ParquetProperties,
    QueryProperties,
)
from sleeper.model.known_properties.value_kinds import (
    TABLE_DEFAULT_PREFIX,
    TABLE_PREFIX,
    Property,
    given_text,
    read_group,
)
from sleeper.model.processing import Processing, parse_processing
from sleeper.model.schema import Schema
from sleeper.model.tables import STATE_MOVE, STATE_STORE, StateMove

if TYPE_CHECKING:
    from sleeper.model.known_properties.cloud import (
        CloudProperties,
        LambdaProperties,
        TaskProperties,
    )
    from sleeper.model.known_properties.clusters import ClusterProperties
    from sleeper.model.known_properties.ingest import (
        AsyncCommitProperties,
        BatcherProperties,
        BulkImportProperties,
        IngestProperties,
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
    from sleeper.model.known_properties.maintenance import (
        CompactionProperties,
        GarbageProperties,
        GarbageRunProperties,
        PublishProperties,
        SplittingProperties,
        SplittingRunProperties,
    )


@dataclass(frozen=True, slots=True)
class PropertyInForce(NotebookHtml):
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
class InstanceProperties(NotebookHtml):
    """An instance's properties, typed and in groups. A group is parsed at its first use.

    Attributes:
        values: The texts that were set, by full name.

    Raises (from each group):
        PropertiesInvalid: a value of the group is not allowed.
    """

    values: Mapping[str, str] = field(default_factory=dict)

    def _html(self) -> Markup:
        return _properties_html("Properties of an instance", self.values)

    def text(self, name: str) -> str | None:
        """Return a property's value as text: what was set, else the default, else None."""
        from sleeper.model.known_properties.catalogue import INSTANCE_PROPERTIES_BY_NAME

        known = INSTANCE_PROPERTIES_BY_NAME.get(name)
        return given_text(self.values, name) or (known.default if known else None)

    def in_force(self) -> tuple[PropertyInForce, ...]:
        """Return every property that is set, and all others that have an effect, by name."""
        from sleeper.model.known_properties.catalogue import INSTANCE_PROPERTIES_BY_NAME

        names = {name for name, known in INSTANCE_PROPERTIES_BY_NAME.items() if known.used}
        names |= {name for name in self.values if given_text(self.values, name)}
        known = INSTANCE_PROPERTIES_BY_NAME.get
        return tuple(self._in_force(name, known(name)) for name in sorted(names))

    def _in_force(self, name: str, known: Property | None) -> PropertyInForce:
        return PropertyInForce(
            name=name,
            value=given_text(self.values, name) or (known.default if known else None),
            is_set=given_text(self.values, name) is not None,
            default=known.default if known else None,
            is_fixed=known is not None and not known.editable,
        )

    def _own(self, name: str) -> tuple[str, str] | None:
        text = given_text(self.values, name)
        return (name, text) if text else None

    @property
    def id(self) -> str:
        """The instance's id, or an empty text."""
        return self.general.instance_id or ""

    @cached_property
    def general(self) -> GeneralProperties:
        """The instance's id and format."""
        return read_group(GeneralProperties, self._own)

    @cached_property
    def commits(self) -> CommitProperties:
        """Commits of tables whose own properties say nothing."""
        return read_group(CommitProperties, self._own)

    @cached_property
    def clocks(self) -> ClockProperties:
        """How far clocks may differ."""
        return read_group(ClockProperties, self._own)

    @cached_property
    def splitting(self) -> SplittingRunProperties:
        """One run of partition splitting."""
        from sleeper.model.known_properties.maintenance import SplittingRunProperties

        return read_group(SplittingRunProperties, self._own)

    @cached_property
    def gc(self) -> GarbageRunProperties:
        """One run of the garbage collector."""
        from sleeper.model.known_properties.maintenance import GarbageRunProperties

        return read_group(GarbageRunProperties, self._own)

    @cached_property
    def jobs(self) -> JobProperties:
        """Where jobs are kept, and how often one is tried."""
        from sleeper.model.known_properties.jobs import JobProperties

        return read_group(JobProperties, self._own)

    @cached_property
    def ingest_queue(self) -> IngestQueueProperties:
        """Workers of ingest jobs, and their queue."""
        from sleeper.model.known_properties.jobs import IngestQueueProperties

        return read_group(IngestQueueProperties, self._own)

    @cached_property
    def batcher(self) -> BatcherRunProperties:
        """Runs of the ingest batcher."""
        from sleeper.model.known_properties.jobs import BatcherRunProperties

        return read_group(BatcherRunProperties, self._own)

    @cached_property
    def compaction_workers(self) -> CompactionWorkerProperties:
        """Workers of compactions."""
        from sleeper.model.known_properties.jobs import CompactionWorkerProperties

        return read_group(CompactionWorkerProperties, self._own)

    @cached_property
    def query_queue(self) -> QueryQueueProperties:
        """Workers of queries, and what they return."""
        from sleeper.model.known_properties.jobs import QueryQueueProperties

        return read_group(QueryQueueProperties, self._own)

    @cached_property
    def export_queue(self) -> ExportQueueProperties:
        """Workers of exports, and their queue."""
        from sleeper.model.known_properties.jobs import ExportQueueProperties

        return read_group(ExportQueueProperties, self._own)

    @cached_property
    def trackers(self) -> TrackerProperties:
        """Which jobs are tracked, and for how long."""
        from sleeper.model.known_properties.jobs import TrackerProperties

        return read_group(TrackerProperties, self._own)

    @cached_property
    def committer(self) -> CommitterProperties:
        """The committer."""
        from sleeper.model.known_properties.jobs import CommitterProperties

        return read_group(CommitterProperties, self._own)

    @cached_property
    def cloud(self) -> CloudProperties:
        """What all stacks of a deployment share."""
        from sleeper.model.known_properties.cloud import CloudProperties

        return read_group(CloudProperties, self._own)

    @cached_property
    def tasks(self) -> TaskProperties:
        """Workers on Fargate."""
        from sleeper.model.known_properties.cloud import TaskProperties

        return read_group(TaskProperties, self._own)

    @cached_property
    def lambdas(self) -> LambdaProperties:
        """Lambda functions of a deployment."""
        from sleeper.model.known_properties.cloud import LambdaProperties

        return read_group(LambdaProperties, self._own)

    @cached_property
    def clusters(self) -> ClusterProperties:
        """Clusters of bulk imports that a deployment makes."""
        from sleeper.model.known_properties.clusters import ClusterProperties

        return read_group(ClusterProperties, self._own)


@dataclass(frozen=True)
class TableProperties(NotebookHtml):
    """A table's properties, typed and in groups. A group is parsed at its first use.

    Attributes:
        values: The texts that were set for the table, by full name.
        instance: The instance's properties, which may set other defaults for tables.

    Raises (from each group):
        PropertiesInvalid: a value of the group is not allowed. Other groups stay readable.
    """

    values: Mapping[str, str] = field(default_factory=dict)

    def _html(self) -> Markup:
        return _properties_html("Properties of a table", self.values)

    instance: InstanceProperties = field(default_factory=InstanceProperties)

    def text(self, name: str) -> str | None:
        """Return a property's value as text, by the chain of rule INS-8, or None."""
        from sleeper.model.known_properties.catalogue import TABLE_PROPERTIES_BY_NAME

        known = TABLE_PROPERTIES_BY_NAME.get(name)
        found = self._set_by(name, known)
        if found:
            return found[1]
        return known.default if known else None

    def is_given(self, name: str) -> bool:
        """Return whether a property is set for the table, or by the instance for all tables."""
        from sleeper.model.known_properties.catalogue import TABLE_PROPERTIES_BY_NAME

        return self._set_by(name, TABLE_PROPERTIES_BY_NAME.get(name)) is not None

    def _set_by(self, name: str, known: Property | None) -> tuple[str, str] | None:
        inherits = known is not None and known.instance_default is not None
        return self._own_or_shared(name) if inherits else self._own(name)

    def _own(self, name: str) -> tuple[str, str] | None:
        text = given_text(self.values, name)
        return (name, text) if text else None

    def _own_or_shared(self, name: str) -> tuple[str, str] | None:
        """Return what the table, or else the instance for all tables, sets a property to."""
        if own := self._own(name):
            return own
        shared_name = TABLE_DEFAULT_PREFIX + name.removeprefix(TABLE_PREFIX)
        shared = given_text(self.instance.values, shared_name)
        return (shared_name, shared) if shared else None

    @cached_property
    def definition(self) -> DefinitionProperties:
        """Name, schema and processing of the table."""
        return read_group(DefinitionProperties, self._own)

    @cached_property
    def parquet(self) -> ParquetProperties:
        """Layout of data files."""
        return read_group(ParquetProperties, self._own_or_shared)

    @cached_property
    def query(self) -> QueryProperties:
        """Settings of queries."""
        return read_group(QueryProperties, self._own_or_shared)

    @cached_property
    def splitting(self) -> SplittingProperties:
        """When a leaf partition is split."""
        from sleeper.model.known_properties.maintenance import SplittingProperties

        return read_group(SplittingProperties, self._own_or_shared)

    @cached_property
    def gc(self) -> GarbageProperties:
        """When files that nothing references are deleted."""
        from sleeper.model.known_properties.maintenance import GarbageProperties

        return read_group(GarbageProperties, self._own_or_shared)

    @cached_property
    def publish(self) -> PublishProperties:
        """In which formats of others the table is published, and when."""
        from sleeper.model.known_properties.maintenance import PublishProperties

        return read_group(PublishProperties, self._own_or_shared)

    @cached_property
    def compaction(self) -> CompactionProperties:
        """Which files are merged together."""
        from sleeper.model.known_properties.maintenance import CompactionProperties

        return read_group(CompactionProperties, self._own_or_shared)

    @property
    def compaction_obstacle(self) -> str | None:
        """Why compaction never merges files of the table; None if it may.

        Raises:
            PropertiesInvalid: a value of the group is not allowed.
        """
        return self.compaction.obstacle

    @cached_property
    def statestore(self) -> StateStoreProperties:
        """Settings of the state store: its class, commits and snapshots."""
        return read_group(StateStoreProperties, self._own_or_shared)

    @cached_property
    def ingest(self) -> IngestProperties:
        """Settings of ingest."""
        from sleeper.model.known_properties.ingest import IngestProperties

        return read_group(IngestProperties, self._own_or_shared)

    @cached_property
    def batcher(self) -> BatcherProperties:
        """Settings of the ingest batcher."""
        from sleeper.model.known_properties.ingest import BatcherProperties

        return read_group(BatcherProperties, self._own_or_shared)

    @cached_property
    def bulk_import(self) -> BulkImportProperties:
        """Settings of bulk import: how it splits the table."""
        from sleeper.model.known_properties.ingest import BulkImportProperties

        return read_group(BulkImportProperties, self._own_or_shared)

    @cached_property
    def async_commits(self) -> AsyncCommitProperties:
        """Which commits are sent to the committer, if one runs (rule INS-8).

        The table's switch turns them on; if it is not set, the instance's default does, which may
        depend on the state store. Where they are off by default, a flag that the table itself sets
        still counts; where the table's switch is off, it does not.
        """
        from sleeper.model.known_properties.ingest import ASYNC_COMMIT_SWITCH, AsyncCommitProperties

        switch = given_text(self.values, ASYNC_COMMIT_SWITCH.name)
        if switch:
            switched_on = bool(ASYNC_COMMIT_SWITCH.parse(switch))
        else:
            switched_on = self.instance.commits.async_behaviour == "ALL_IMPLEMENTATIONS"
        flags = read_group(AsyncCommitProperties, self._own_or_shared)
        if switched_on:
            return flags
        counts_alone = {} if switch else self.values
        names = {item.name: item.metadata["property"].name for item in fields(flags)}
        off = {each: False for each, name in names.items() if not given_text(counts_alone, name)}
        return replace(flags, **off)

    @property
    def state_store(self) -> str:
        """The simple name of the table's state store.

        A default that the instance sets counts for new tables only, and is stored in each: no
        change of it may let a table look for its state in another store.
        """

        def own_class(name: str) -> tuple[str, str] | None:
            return self._own(name) if name == STATE_STORE else None

        return read_group(StateStoreProperties, own_class).class_name

    @property
    def state_move(self) -> StateMove | None:
        """The move that brought the table's state into its store; None if it was never moved."""
        move_id = given_text(self.values, STATE_MOVE)
        if move_id is None:
            return None
        return StateMove.of(self.state_store, STATE_MOVE_PROPERTY.parse(move_id))

    def processing(self, schema: Schema) -> Processing:
        """Return the table's filters, aggregations and function.

        Raises:
            PropertiesInvalid: they do not fit the schema.
        """
        known = self.definition
        found = parse_processing(known.filters, known.aggregations, schema, known.function)
        return replace(found, refuses_large_sums=known.sums_too_large == "refuse")


def _properties_html(title: str, values: Mapping[str, str]) -> Markup:
    """Return a table of the properties that were set, by name."""
    words = f"{len(values)} are set; all others have their defaults"
    rows = [(name, text_of(values[name])) for name in sorted(values)]
    return joined([element("strong", title), grid(["name", "value"], rows, caption=words)])
