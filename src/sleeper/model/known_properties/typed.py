"""Properties as the rest of the code reads them: `table.properties.parquet.page_rows`.

A property's value is the table's own, else the instance's default for tables, else the built-in
default (rule INS-8). A blank value counts as not set. Unknown properties are stored
too, unless the name is a misspelt known name; `unknown_table_properties` returns them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Final

from sleeper.errors import PropertiesInvalid, SchemaInvalid
from sleeper.html.markup import Markup, element, grid, joined
from sleeper.html.values import NotebookHtml, text_of
from sleeper.model.known_properties.cloud import CloudProperties, LambdaProperties, TaskProperties
from sleeper.model.known_properties.clusters import ClusterProperties
from sleeper.model.known_properties.given import (
    is_known,
    misplaced_names,
    without_effect,
)
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
from sleeper.model.known_properties.maintenance import (
    CompactionProperties,
    GarbageProperties,
    SplittingProperties,
)
from sleeper.model.known_properties.state_store import StateStoreProperties
from sleeper.model.known_properties.table import (
    TABLE_PROPERTIES,
    AsyncCommitProperties,
    BatcherProperties,
    BulkImportProperties,
    DefinitionProperties,
    IngestProperties,
    ParquetProperties,
    QueryProperties,
)
from sleeper.model.processing import (
    AGGREGATIONS,
    FILTERS,
    FUNCTION,
    Processing,
    parse_processing,
)
from sleeper.model.schema import Schema
from sleeper.model.tables import SCHEMA, STATE_MOVE, STATE_STORE, StateMove

# ---------------------------------------------------------------- typed instance
#
# An instance's properties as the rest of the code reads them: `properties.gc.files_max`.

_PROPERTIES_IN_FORCE: Final = {known.name: known for known in INSTANCE_PROPERTIES} | {
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

KNOWN_INSTANCE_PROPERTIES: Final[tuple[Property, ...]] = tuple(_PROPERTIES_IN_FORCE.values())


def given_text(values: Mapping[str, str], name: str) -> str | None:
    """Return what a property was set to, without spaces around it; None when that is nothing."""
    return values.get(name, "").strip() or None


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
        known = _PROPERTIES_IN_FORCE.get(name)
        return given_text(self.values, name) or (known.default if known else None)

    def in_force(self) -> tuple[PropertyInForce, ...]:
        """Return every property that is set, and all others that have an effect, by name."""
        names = {name for name, known in _PROPERTIES_IN_FORCE.items() if known.used}
        names |= {name for name in self.values if given_text(self.values, name)}
        return tuple(map(self._in_force, sorted(names)))

    def _in_force(self, name: str) -> PropertyInForce:
        known = _PROPERTIES_IN_FORCE.get(name)
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


__all__ = (
    "INSTANCE_PROPERTIES",
    "KNOWN_INSTANCE_PROPERTIES",
    "SCHEMA",
    "TABLE_PROPERTIES",
    "InstanceProperties",
    "TableProperties",
    "check_editable",
    "instance_property_warnings",
    "table_property_warnings",
    "unknown_instance_properties",
    "unknown_table_properties",
    "validate_instance_properties",
    "validate_table_properties",
)

_INSTEAD: Final = {
    "sleeper.table.name": "Rename the table instead.",
    SCHEMA: "Make a new table with the other schema instead.",
    STATE_STORE: "Move the table's state: `sleeper table migrate-state NAME --to CLASS`.",
    STATE_MOVE: "Only `sleeper table migrate-state` sets it.",
    "sleeper.id": "It was fixed when it was made: make another instance with the other id instead.",
    "sleeper.format.version": "Sleeper sets it when it makes an instance.",
    "sleeper.properties.version": "Sleeper counts it.",
    "sleeper.data.bucket": "It was fixed when it was made: copy the instance by `sleeper backup`.",
}
_ASYNC_SWITCH: Final = "sleeper.table.statestore.commit.async.enabled"

_TABLE: Final = {known.name: known for known in TABLE_PROPERTIES}
_INSTANCE: Final = {known.name: known for known in KNOWN_INSTANCE_PROPERTIES}


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
        found = self._found(name)
        if found:
            return found[1]
        return _TABLE[name].default if name in _TABLE else None

    def is_given(self, name: str) -> bool:
        """Return whether a property is set for the table, or by the instance for all tables."""
        return self._found(name) is not None

    def _found(self, name: str) -> tuple[str, str] | None:
        own = given_text(self.values, name)
        if own:
            return name, own
        twin = _TABLE[name].instance_default if name in _TABLE else None
        shared = given_text(self.instance.values, twin) if twin else None
        return (twin, shared) if twin and shared else None

    @cached_property
    def definition(self) -> DefinitionProperties:
        """Name, schema and processing of the table."""
        return read_group(DefinitionProperties, self._found)

    @cached_property
    def parquet(self) -> ParquetProperties:
        """Layout of data files."""
        return read_group(ParquetProperties, self._found)

    @cached_property
    def query(self) -> QueryProperties:
        """Settings of queries."""
        return read_group(QueryProperties, self._found)

    @cached_property
    def splitting(self) -> SplittingProperties:
        """When a leaf partition is split."""
        return read_group(SplittingProperties, self._found)

    @cached_property
    def gc(self) -> GarbageProperties:
        """When files that nothing references are deleted."""
        return read_group(GarbageProperties, self._found)

    @cached_property
    def compaction(self) -> CompactionProperties:
        """Which files are merged together."""
        return read_group(CompactionProperties, self._found)

    @cached_property
    def statestore(self) -> StateStoreProperties:
        """Settings of the state store: its class, commits and snapshots."""
        return read_group(StateStoreProperties, self._found)

    @cached_property
    def ingest(self) -> IngestProperties:
        """Settings of ingest."""
        return read_group(IngestProperties, self._found)

    @cached_property
    def batcher(self) -> BatcherProperties:
        """Settings of the ingest batcher."""
        return read_group(BatcherProperties, self._found)

    @cached_property
    def bulk_import(self) -> BulkImportProperties:
        """Settings of bulk import: how it splits the table."""
        return read_group(BulkImportProperties, self._found)

    @cached_property
    def async_commits(self) -> AsyncCommitProperties:
        """Which commits are sent to the committer, if one runs (rule INS-8).

        The table's switch turns them on; if it is not set, the instance's default does, which may
        depend on the state store. Where they are off by default, a flag that the table itself sets
        still counts; where the table's switch is off, it does not.
        """
        switch = given_text(self.values, _ASYNC_SWITCH)
        switched_on = self._switched_on(switch)
        flags = read_group(AsyncCommitProperties, self._found)
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
        own = given_text(self.values, STATE_STORE)
        return str(_TABLE[STATE_STORE].parse(own or str(_TABLE[STATE_STORE].default)))

    @property
    def state_move(self) -> StateMove | None:
        """The move that brought the table's state into its store; None if it was never moved."""
        move_id = given_text(self.values, STATE_MOVE)
        if move_id is None:
            return None
        return StateMove.of(self.state_store, _TABLE[STATE_MOVE].parse(move_id))

    def processing(self, schema: Schema) -> Processing:
        """Return the table's filters, aggregations and function.

        Raises:
            PropertiesInvalid: they do not fit the schema.
        """
        known = self.definition
        return parse_processing(known.filters, known.aggregations, schema, known.function)

    def _switched_on(self, switch: str | None) -> bool:
        if switch:
            return bool(_TABLE[_ASYNC_SWITCH].parse(switch))
        return self.instance.commits.async_behaviour == "ALL_IMPLEMENTATIONS"


def validate_table_properties(
    values: Mapping[str, str], schema: Schema, *, given: Mapping[str, str | None] | None = None
) -> None:
    """Check all properties of a table and report every failure together (rule INS-6).

    Args:
        values: All that is set, by full name.
        schema: The table's.
        given: What a caller sets now. Misspelt names are refused here; stored ones may stay.

    Raises:
        PropertiesInvalid: one or more values or names are not allowed; each is in `failures`.
    """
    failures = _refused(given or {}, _TABLE, _INSTANCE) | _failures(values, TABLE_PROPERTIES)
    for check in (
        lambda: _read_schema(given_text(values, SCHEMA) or schema.to_json()),
        lambda: parse_processing(
            values.get(FILTERS), values.get(AGGREGATIONS), schema, values.get(FUNCTION)
        ),
    ):
        try:
            check()
        except PropertiesInvalid as error:
            failures |= error.failures
    _raise_in_order(failures, _TABLE)


def validate_instance_properties(
    values: Mapping[str, str], *, given: Mapping[str, str | None] | None = None
) -> None:
    """Check all properties of an instance, with its defaults for tables; report every failure.

    Raises:
        PropertiesInvalid: one or more values, or names that are set now, are not allowed.
    """
    failures = _refused(given or {}, _INSTANCE, _TABLE) | _failures(values, _INSTANCE.values())
    _raise_in_order(failures, _INSTANCE)


def check_editable(before: Mapping[str, str], after: Mapping[str, str]) -> None:
    """Check that an edit of table or instance properties changes no fixed property.

    Raises:
        PropertiesInvalid: a name, id or schema would change; says what to do instead (rules SCH-9,
            TBL-3).
    """
    failures = {}
    for name, known in (_TABLE | _INSTANCE).items():
        old, new = given_text(before, name), given_text(after, name)
        if known.editable or old == new:
            continue
        advice = _INSTEAD.get(name, "It was fixed when it was made.")
        failures[name] = f"{name} cannot be changed here from {old!r} to {new!r}. {advice}"
    if failures:
        raise PropertiesInvalid(failures)


def unknown_table_properties(values: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of a table's properties that are unknown, sorted. They are stored."""
    return tuple(sorted(name for name in values if not is_known(name, _TABLE)))


def unknown_instance_properties(values: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of an instance's properties that are unknown, sorted. They are stored."""
    return tuple(sorted(name for name in values if not is_known(name, _INSTANCE)))


def table_property_warnings(given: Mapping[str, str | None]) -> list[str]:
    """Return a warning for each property of a table that is stored but has no effect."""
    return without_effect(given, _TABLE)


def instance_property_warnings(given: Mapping[str, str | None]) -> list[str]:
    """Return a warning for each property of an instance that is stored but has no effect."""
    return without_effect(given, _INSTANCE)


def _read_schema(text: str) -> Schema:
    try:
        return Schema.from_json(text)
    except SchemaInvalid as error:
        raise PropertiesInvalid({SCHEMA: f"{SCHEMA} is {text!r}: {error}."}) from None


def _failures(values: Mapping[str, str], known: Iterable[Property]) -> dict[str, str]:
    failures: dict[str, str] = {}
    for each in known:
        text = given_text(values, each.name)
        if text is None:
            if each.required:
                failures[each.name] = f"{each.name} is not set, but it must be: {each.description}"
            continue
        try:
            each.parse(text)
        except PropertiesInvalid as error:
            failures |= error.failures
    return failures


def _refused(
    given: Mapping[str, str | None],
    known: Mapping[str, Property],
    elsewhere: Mapping[str, Property],
) -> dict[str, str]:
    """Return failures of properties that are set now: misspelt names."""
    return misplaced_names(given, known, elsewhere)


def _raise_in_order(failures: dict[str, str], order: Mapping[str, Property]) -> None:
    if failures:
        names = [*(name for name in order if name in failures), *sorted(failures.keys() - order)]
        raise PropertiesInvalid({name: failures[name] for name in names})


def _properties_html(title: str, values: Mapping[str, str]) -> Markup:
    """Return a table of the properties that were set, by name."""
    words = f"{len(values)} are set; all others have their defaults"
    rows = [(name, text_of(values[name])) for name in sorted(values)]
    return joined([element("strong", title), grid(["name", "value"], rows, caption=words)])
