"""Opens and creates instances; the composition root, which chooses adapters.

    /data/my-instance, file:///data/my-instance    a folder
    s3://bucket/my-instance                        a folder of a bucket
    aws://my-instance                              buckets, tables and queues in AWS
    memory://                                      the memory of this process, for tests

Only this module reads the clock and makes random ids; they are passed to all other modules.
"""

from __future__ import annotations

import os
import pwd
import random
import re
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Never, Self

from sleeper.errors import BadRequest, InstanceAlreadyExists, InstanceNotFound, TableNotFound
from sleeper.instance.properties import (
    StoredProperties,
    log_mistakes,
    make_instance,
    properties_at,
    unchecked_properties_at,
)
from sleeper.model.known_properties.given import PropertyValue
from sleeper.model.known_properties.typed import InstanceProperties
from sleeper.model.object_stores import ObjectStoreSettings
from sleeper.model.other_names import OF_INSTANCE, no_such_attribute
from sleeper.model.processing import allowed_functions
from sleeper.model.tables import TableRecord
from sleeper.ports.clock import Clock
from sleeper.ports.ids import NewId
from sleeper.ports.objects import InputStore
from sleeper.storage.places import IndexBegun, Place, inputs_of, place_of
from sleeper.tables.instance_context import InstanceContext, ProcessContext
from sleeper.tables.table import Table, open_table, record_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sleeper.engine.rows import Rows
    from sleeper.instance.backup import Backup
    from sleeper.instance.destroy import Removal
    from sleeper.instance.pause import PauseSwitch, ServiceNotes
    from sleeper.instance.sql import StatementTable
    from sleeper.instance.verify import InstanceVerifySummary
    from sleeper.jobs.instance_jobs import InstanceJobs
    from sleeper.model.csv_options import CsvOptions
    from sleeper.spark.submit.submitted_jobs import SubmittedJobs


_now: Final = partial(datetime.now, UTC)


def environment_token() -> str | None:
    """Return the token for a REST server that the environment has, SLEEPER_TOKEN."""
    return os.environ.get("SLEEPER_TOKEN") or None


def process_environment() -> Mapping[str, str]:
    """Return the variables of the environment, for entry points that are configured by them."""
    return os.environ


def current_time() -> datetime:
    """Return the clock of this machine (aware, UTC), for use without an instance."""
    return _now()


def _new_id() -> str:
    return str(uuid.uuid4())


def between_attempts(attempt: int) -> None:
    """Wait before another attempt, given how many there were, for use without an instance."""
    _pause(attempt)


def new_secret() -> str:
    """Return 256 random bits as text, for a token that nobody can guess."""
    return os.urandom(32).hex()


def _pause(attempt: int) -> None:
    """Wait before another attempt: full jitter, from 2 ms doubling to 1 s (rule STS-14)."""
    time.sleep(random.uniform(0, min(1.0, 0.002 * 2**attempt)))


_CLOCK = Clock(now=_now, ticks_s=time.monotonic, sleep=time.sleep, back_off=_pause)

_make = partial(make_instance, clock=_CLOCK, new_id=_new_id)


def connect(
    url: str | os.PathLike[str],
    *,
    create: bool = False,
    allow_functions: Sequence[str] | None = None,
    cache_folder: str | os.PathLike[str] | None = None,
    cache_bytes: int | None = None,
) -> Instance:
    """Open an instance.

    Args:
        url: A folder, `file://` and a path, `s3://bucket/folder`, `aws://` and an instance id, or
            `memory://` for a new instance in the memory of this process. For a bucket,
            AWS_ENDPOINT_URL and AWS_REGION are read here and pickled with the instance;
            credentials are read from the environment of each process.
        create: True to create the instance if it does not exist.
        allow_functions: Modules whose functions may run in this process if a table names one
            (`sleeper.table.function`), such as `my_package.cleaning` or `my_package.*`. Without
            it, the modules in SLEEPER_ALLOW_FUNCTIONS, separated by commas, or none.
        cache_folder: A folder of this machine's disk that keeps what look-ups by key and small
            ranges read of files in a bucket, for all processes of this user; it is made if it is
            missing. Without it, SLEEPER_CACHE_FOLDER, or nothing is kept.
        cache_bytes: How many bytes of the disk it may take, at least 16 MiB. Without it,
            SLEEPER_CACHE_BYTES, or 1 GiB.

    Returns:
        The instance; usable as a context manager, picklable (except `memory://`).

    Raises:
        UrlInvalid: the URL's scheme is not known.
        BadRequest: `allow_functions` is not a list of modules, or `cache_folder` no path, or
            `cache_bytes` too small.
        InstanceNotFound: there is no instance, and `create` is False.
        FormatTooNew: a newer Sleeper made it.
        MissingExtra: the URL names a bucket, and `sleeper-store[objectstore]` is not installed.
        StorageFailed: the storage cannot be read or written.
    """
    stores = ObjectStoreSettings.of(os.environ).with_cache(cache_folder, cache_bytes)
    place = place_of(url, stores, _now)
    return _connect(place, allowed_functions(allow_functions, os.environ), create=create)


def _connect(place: Place, allow_functions: tuple[str, ...], *, create: bool = False) -> Instance:
    begun = place.begin_index()
    values = properties_at(place)
    if values is None and (create or place.is_of_process):
        _make(place, {})
        values = properties_at(place)
    if values is None:
        raise InstanceNotFound(
            f"no Sleeper instance at {place.url}; create one by `sleeper init {place.url}` "
            f"or connect({place.url!r}, create=True){_or_others(place.url)}"
        )
    log_mistakes(values, place.url)
    return _opened(place, values, allow_functions, begun)


def _or_others(url: str) -> str:
    """Return what else may be wanted: a deployment, or a server where a folder's name looks so."""
    if url.startswith("aws://"):
        return f"; `sleeper deploy aws {url.removeprefix('aws://')}` deploys one with its workers"
    name = url.rpartition("/")[2]
    is_host = re.fullmatch(r"[A-Za-z0-9.-]+:\d{1,5}", name) is not None
    return f"; for a server, give http://{name} or https://{name}" if is_host else ""


def _opened(
    place: Place, values: Mapping[str, str], allow: Sequence[str], begun: IndexBegun = None
) -> Instance:
    process = process_context(allow_functions=allow)
    return Instance(place, values, process=process, index_begun=begun)


def create_instance(
    url: str | os.PathLike[str], properties: Mapping[str, PropertyValue | None] | None = None
) -> Instance:
    """Make a new instance.

    Args:
        url: As for `connect`.
        properties: Instance properties by full name; values are str, int or bool. `sleeper.id`
            is the folder's name, if it is not given (rule INS-1).

    Raises:
        InstanceAlreadyExists: there is an instance already.
        PropertiesInvalid: a name or value is not allowed; lists every failure.
        StorageFailed: the storage cannot be written.
    """
    place = place_of(url, ObjectStoreSettings.of(os.environ), _now)
    values = _make(place, properties or {})
    if values is None:
        raise InstanceAlreadyExists(f"an instance is at {place.url} already")
    return _opened(place, values, allowed_functions(None, os.environ))


def write_deployed_properties(
    url: str, before: Mapping[str, str], after: Mapping[str, str]
) -> dict[str, str]:
    """Make the properties of an instance in AWS what the templates of its deployment say.

    Args:
        url: The instance.
        before: All properties of the templates before; none if there were no templates.
        after: All properties of the templates now.

    Raises:
        PropertiesInvalid: a property is not known, not allowed, or cannot be changed; lists every
            failure. Nothing was changed.
        InstanceNotFound: there is no instance, and `after` makes none: it has no `sleeper.id`.
        StorageFailed, CommitContended, CommitUnknown: they cannot be stored.
    """
    from sleeper.instance import properties

    place = place_of(url, ObjectStoreSettings.of(os.environ), _now)
    return properties.write_deployed_properties(place, before, after, clock=_CLOCK, new_id=_new_id)


def process_context(
    *,
    clock: Clock = _CLOCK,
    new_id: NewId = _new_id,
    allow_functions: Sequence[str] = (),
) -> ProcessContext:
    """Return what this process has for the instances that it opens.

    Args:
        clock: The clock; a simulation has its own.
        new_id: Makes random ids.
        allow_functions: Patterns of modules whose functions tables may run in this process.
    """
    return ProcessContext(
        clock=clock,
        new_id=new_id,
        host=os.uname().nodename,
        user=_user(),
        environment=os.environ,
        allow_functions=tuple(allow_functions),
    )


def _user() -> str:
    """Return who runs this process: the user and the machine, unless the environment says who."""
    if named := os.environ.get("SLEEPER_USER"):
        return named
    if function := os.environ.get("AWS_LAMBDA_FUNCTION_NAME"):
        return f"lambda:{function}"
    try:
        name = pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:  # a container may run as a user without a name
        name = str(os.geteuid())
    return f"{name}@{os.uname().nodename}"


def removal_of(url: str | os.PathLike[str]) -> Removal:
    """List what belongs to the instance at a URL; its `carry_out` removes that, and only that."""
    from sleeper.instance import destroy

    place = place_of(url, ObjectStoreSettings.of(os.environ), _now)
    return destroy.plan_removal(place, unchecked_properties_at(place), pause=_pause, new_id=_new_id)


def input_store() -> InputStore:
    """Return the reader of input files by URL, for use without an instance."""
    return inputs_of(ObjectStoreSettings.of(os.environ))


class Instance:
    """A deployment of Sleeper: its tables, and where they are stored.

    An idle instance runs nothing and holds nothing open. `connect` makes it; a simulation makes it
    directly, with a `Place` of any adapter, clock and ids.

    Attributes:
        url: Its URL.
        instance_id: Its name, `sleeper.id`.
        properties: Its properties, typed, as they were when it was opened, or as this handle
            set them since.
        now: The clock of this machine (aware, UTC).
        ticks_s: A monotonic clock, in seconds, for waiting.
    """

    def __init__(
        self,
        place: Place,
        values: Mapping[str, str],
        *,
        process: ProcessContext | None = None,
        index_begun: IndexBegun = None,
    ) -> None:
        self.url = place.url
        self.instance_id = values["sleeper.id"]
        self._process = process or process_context()
        self.now = self._process.clock.now
        self.ticks_s = self._process.clock.ticks_s
        self._open_context = partial(
            InstanceContext,
            place=place.as_opened(self.instance_id),
            process=self._process,
            reopen=(_reopen_table, (self,)),
            index_begun=index_begun,
        )
        self._adopt(values)
        self._jobs: InstanceJobs | None = None

    def _adopt(self, values: Mapping[str, str]) -> None:
        """Use properties for all that is opened from now on."""
        self.properties = InstanceProperties(values)
        self._context = self._open_context(self.properties)
        self._sql_handles: dict[str, StatementTable] = {}

    def set_properties(self, changes: Mapping[str, PropertyValue | None]) -> None:
        """Set properties of the instance by their full names; None takes a value away.

        The change is in force for handles that are opened from now on, here or elsewhere. Tables
        and `jobs` that are open keep the values that they were opened with.

        Args:
            changes: Values are str, int or bool.

        Raises:
            PropertiesInvalid: a name or value is not allowed, or the property cannot be changed;
                lists every failure. Nothing was changed.
            CommitUnknown: the storage did not confirm the change.
        """
        self._adopt(
            self.stored_properties.change(
                changes, checks=self._context.commit_checks, pause=self._context.clock.back_off
            )
        )

    def tables(self) -> tuple[TableRecord, ...]:
        """Return every table's id, name, online flag and properties, ordered by name."""
        return self._context.index.all()

    def table(self, name: str) -> Table:
        """Open a table by its name.

        Raises:
            TableNotFound: there is no table with this name; the message names similar ones.
        """
        return open_table(name, self._context)

    def __getitem__(self, name: str) -> Table:
        """Open a table by its name, as `table` does: `instance["flights"]`.

        Raises:
            TableNotFound: there is no table with this name; it is a LookupError.
        """
        return self.table(name)

    def __contains__(self, name: object) -> bool:
        """Return whether there is a table with a name."""
        return isinstance(name, str) and self._context.index.by_name(name) is not None

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of all tables, in order."""
        return iter([record.name for record in self.tables()])

    def _ipython_key_completions_(self) -> list[str]:
        """Return the names that IPython completes after `instance["`."""
        return [*self]

    @property
    def clock(self) -> Clock:
        """The clock of this process."""
        return self._process.clock

    @property
    def stored_properties(self) -> StoredProperties:
        """The properties in the storage, which others may have changed since."""
        return StoredProperties(self._context.objects, self.url)

    def check(self) -> None:
        """Check that the instance is still at its place, and as this handle knows it.

        Reads and commits check it too, as far as `docs/operating/moving.md` says.

        Raises:
            InstanceGone: it was moved, deleted or unmounted.
            InstanceReplaced: another instance, or an older copy, is there.
            StorageFailed: the storage cannot be read.
        """
        self._context.opened.check()
        self._context.index.all()

    def create_table(
        self,
        name: str,
        schema: object,
        *,
        row_keys: Sequence[str] | None = None,
        sort_keys: Sequence[str] = (),
        csv: CsvOptions | Mapping[str, Any] | None = None,
        split_points: Sequence[Any] | None = None,
        properties: Mapping[str, PropertyValue | None] | None = None,
    ) -> Table:
        """Make a table, without rows.

        Args:
            name: Unique within the instance.
            schema: A `Schema` or its JSON; or a `pyarrow.Schema`, or data whose columns the table
                is to have, with `row_keys` named: what `Table.ingest` takes, but iterators. No row
                of it is added. Of CSV and JSON lines the types are what the first 8 MiB of the
                first file suggest: look at the `schema` of the table. Rows are returned with their
                columns in the order of the data, or of `Schema.columns`.
            row_keys: Without a `Schema`: the fields that partition and sort the table.
            sort_keys: Without a `Schema`: the fields that order rows with equal row keys.
            csv: How files of CSV are written, as for `Table.ingest`.
            split_points: Values of the first row key between leaf partitions, ascending. None
                reads them from the file that `sleeper.table.splits.file` names, if it is set.
            properties: Table properties by full name (docs/reference/properties.md); values are
                str, int or bool.

        Raises:
            TableAlreadyExists: the name is taken.
            SchemaInvalid, SplitPointsInvalid, PropertiesInvalid: what is wrong, and why.
            InputRefused: a file of data cannot be read.

        Source: rule TBL-1.
        """
        from sleeper.tables.create import create_table

        record = create_table(
            self._context,
            name,
            schema,
            row_keys=row_keys,
            sort_keys=sort_keys,
            csv=csv,
            split_points=split_points,
            properties=properties,
        )
        return Table(record, self._context)

    def delete_table(self, name: str) -> None:
        """Delete a table with all its data. This cannot be undone (rule TBL-4).

        Raises:
            TableNotFound: there is no table with this name.
        """
        from sleeper.tables.delete import delete_table

        delete_table(record_of(name, self._context), self._context)

    def sql(self, statement: str, *, if_unchanged_since: int | None = None) -> Rows:
        """Run one SQL statement that reads tables, or deletes rows of one, by their names.

        Each table is read at one transaction, the newest when the statement is planned. More is
        said at `Table.sql`, which is about one table.

        Args:
            statement: SELECT, WITH, VALUES, EXPLAIN or DESCRIBE, in the dialect of DataFusion; or
                DELETE FROM with a table and a condition.
            if_unchanged_since: Of a DELETE, a transaction number of its table, as for
                `Table.delete`.

        Returns:
            The rows, as a stream, in no order unless the statement says one. Their `transaction` is
            that of the table if there is only one, else 0.

        Raises:
            QueryInvalid: it is another statement, a DELETE without a condition, cannot be
                understood, or names an unknown table or column.
            CommitContended, CommitTooLarge, CommitUnknown, RowsChanged: of a DELETE, as by
                `Table.delete`.
            DataDamaged: a file of a table is missing or wrong.
            StorageFailed: the temp folder is full, or the statement needs too much memory.
        """
        from sleeper.instance.sql import statement_rows
        from sleeper.tables.sql import check_deletes, deletion_asked_for

        deletion = deletion_asked_for(statement, lambda: [each.name for each in self.tables()])
        if deletion is not None:
            table = self.table(deletion.table)
            return table.sql(statement, if_unchanged_since=if_unchanged_since)
        check_deletes(if_unchanged_since)
        return statement_rows(self._context, self._sql_handles, statement)

    def explain_sql(self, statement: str) -> str:
        """Return what a statement would do: DataFusion's plan, and what is read of each table.

        Raises:
            QueryInvalid: as by `sql`.
        """
        from sleeper.instance.sql import planned_statement

        return planned_statement(self._context, self._sql_handles, statement).explain()

    def verify(
        self,
        tables: Sequence[str] | None = None,
        *,
        quick: bool = False,
        chain: bool = False,
        spark: SparkSession | None = None,
        progress: Callable[[str, int, int | None], None] = lambda table, done, total: None,
    ) -> InstanceVerifySummary:
        """Check everything that is stored of tables; change nothing.

        Args:
            tables: The names of the tables; None for all.
            quick: Read states and the ends of data files only (see `Table.verify`).
            chain: Read logs only, and name every entry of format 2 that was changed.
            spark: A session whose workers check the data files (see `Table.verify`).
            progress: Called with the name of a table, what was checked of it, and of how much.

        Returns:
            What was checked and what is wrong. Faults do not raise.

        Raises:
            TableNotFound: a named table does not exist.
            BadRequest: a table keeps no log, whose chain could be checked.
            StorageFailed: the storage did not answer.

        Source: ours; upstream has no such check.
        """
        from sleeper.instance.verify import verify

        return verify(
            self._context, tables, quick=quick, chain=chain, spark=spark, progress=progress
        )

    def spark_session(
        self, *, master: str | None = None, conf: Mapping[str, str] | None = None
    ) -> SparkSession:
        """Return a Spark session for `spark=` of a table's methods; one is started if need be.

        A process has one session: the caller stops it.

        Args:
            master: Where Spark runs: `local[4]`, `spark://host:7077`, ... Without it, on all cores
                of this machine.
            conf: Settings of Spark.

        Raises:
            MissingExtra: pyspark is not installed, or there is no Java that it runs on.
            BadRequest: a session runs already, with another master or other settings.
        """
        from sleeper.tables.on_spark import spark_session

        return spark_session(self._context, master=master, conf=conf or {})

    def _repr_html_(self) -> str:
        """Return the instance's id and URL, and a list of its tables."""
        from sleeper.instance.notebook_view import instance_html

        return instance_html(self.instance_id, self.url, self.tables())

    @property
    def jobs(self) -> InstanceJobs:
        """The instance's jobs: what workers are asked to do, and what became of it.

        Raises:
            BadRequest: the instance is in a bucket, and `sleeper.jobs.url` does not say where its
                queues are.
        """
        if self._jobs is None:
            from sleeper.jobs.instance_jobs import open_jobs

            self._jobs = open_jobs(self._context)
        return self._jobs

    def backup(self, target: str | os.PathLike[str]) -> Backup:
        """Copy the instance to a URL or folder while it is used, each table at one transaction.

        Raises:
            AlreadyExists: an instance is there already, or something else.
            CommitContended: files were collected faster than they could be copied.
        """
        from sleeper.instance.backup import backup_instance

        return backup_instance(self._context, place_of(target, self._context.place.stores, _now))

    @property
    def pause_switch(self) -> PauseSwitch:
        """Stops all services and workers of the instance for a while."""
        from sleeper.instance.pause import PauseSwitch

        return PauseSwitch(self._context.objects, self.now)

    @property
    def service_notes(self) -> ServiceNotes:
        """What services that live for one call note for the next."""
        from sleeper.instance.pause import ServiceNotes

        return ServiceNotes(self._context.objects)

    @property
    def submitted_jobs(self) -> SubmittedJobs:
        """Bulk import jobs for clusters: saved here, sent to the cluster, and read there."""
        from sleeper.spark.submit.submitted_jobs import SubmittedJobs

        context = self._context
        return SubmittedJobs(
            objects=context.objects,
            index=context.index,
            properties=self.properties,
            url=self.url,
            new_id=context.new_id,
            now=self.now,
            inputs=context.inputs,
        )

    def close(self) -> None:
        """Close what is open. A `memory://` instance ends here."""
        if self._jobs is not None:
            self._jobs.stores.close()
        self._context.place.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        if self._context.place.is_of_process:
            raise BadRequest(
                "a memory:// instance lives in one process and cannot be pickled; use a folder"
            )
        context = self._context
        return _connect_again, (self.url, context.place.stores, context.allow_functions)

    if not TYPE_CHECKING:  # an editor would take every name

        def __getattr__(self, name: str) -> Never:
            raise no_such_attribute(self, name, OF_INSTANCE)

    def __repr__(self) -> str:
        return f"<Instance {self.instance_id!r} at {self.url}>"


def _connect_again(
    url: str, stores: ObjectStoreSettings, allow_functions: tuple[str, ...]
) -> Instance:
    """Open an unpickled instance, with its settings and the credentials of this process."""
    return _connect(place_of(url, stores, _now), allow_functions)


def _reopen_table(instance: Instance, table_id: str) -> Table:
    """Open an unpickled table of an unpickled instance."""
    for record in instance.tables():
        if record.table_id == table_id:
            return instance.table(record.name)
    raise TableNotFound(f"table {table_id!r} was deleted from {instance.url}")
