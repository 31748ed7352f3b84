"""Opens and creates instances; the composition root, which chooses adapters.

    /data/my-instance, file:///data/my-instance    a folder
    s3://bucket/my-instance                        a folder of a bucket
    aws://my-instance                              buckets, tables and queues in AWS
    memory://                                      the memory of this process, for tests

Only this module reads the clock and makes random ids; they are passed to all other modules.
"""

from __future__ import annotations

import os
import random
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, Self

from sleeper.errors import BadRequest, InstanceAlreadyExists, InstanceNotFound, TableNotFound
from sleeper.instance.handle import InstanceHandle
from sleeper.instance.properties import (
    StoredProperties,
    log_mistakes,
    make_instance,
    properties_at,
    unchecked_properties_at,
)
from sleeper.language.late_imports import LateMethod, late_imports
from sleeper.model.known_properties.given import PropertyValue
from sleeper.model.known_properties.typed import InstanceProperties
from sleeper.model.object_stores import ObjectStoreSettings
from sleeper.model.processing import allowed_functions
from sleeper.ports.ids import NewId
from sleeper.ports.objects import Objects
from sleeper.storage.objectstore.inputs import BucketInputs
from sleeper.storage.places import IndexBegun, Place, begun_index, opened_objects, place_of
from sleeper.tables.instance_context import open_context
from sleeper.tables.table import Table

with late_imports():
    from sleeper.instance import backup, destroy, notebook_view, tables
    from sleeper.instance import pause as pause_switch
    from sleeper.instance import pause as service_notes
    from sleeper.instance import sql as _sql
    from sleeper.instance import verify as _verify
    from sleeper.jobs import instance_jobs
    from sleeper.jobs import instance_jobs as open_jobs
    from sleeper.spark.submit import submitted_jobs
    from sleeper.storage import memory

_NO_SETTINGS = ObjectStoreSettings()


def _now() -> datetime:
    return datetime.now(UTC)


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


_make = partial(make_instance, now=_now, sleep=time.sleep, pause=_pause, new_id=_new_id)


def connect(
    url: str | os.PathLike[str],
    *,
    create: bool = False,
    allow_functions: Sequence[str] | None = None,
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

    Returns:
        The instance; usable as a context manager, picklable (except `memory://`).

    Raises:
        UrlInvalid: the URL's scheme is not known.
        BadRequest: `allow_functions` is not a list of modules.
        InstanceNotFound: there is no instance, and `create` is False.
        FormatTooNew: a newer Sleeper made it.
        MissingExtra: the URL names a bucket, and `sleeper-store[objectstore]` is not installed.
        StorageFailed: the storage cannot be read or written.
    """
    place = place_of(url, ObjectStoreSettings.of(os.environ), _now)
    return _connect(place, allowed_functions(allow_functions, os.environ), create=create)


def _connect(place: Place, allow_functions: tuple[str, ...], *, create: bool = False) -> Instance:
    begun = begun_index(place.objects)
    values = properties_at(place)
    if values is None and (create or place.scheme == "memory"):
        _make(place, {})
        values = properties_at(place)
    if values is None:
        raise InstanceNotFound(
            f"no Sleeper instance at {place.url}; create one by `sleeper init {place.url}` "
            f"or connect({place.url!r}, create=True)"
        )
    log_mistakes(values, place.url)
    return _opened(place, values, allow_functions, begun)


def _opened(
    place: Place, values: Mapping[str, str], allow: Sequence[str], begun: IndexBegun = None
) -> Instance:
    opened = partial(Instance, place.objects, values, url=place.url, stores=place.stores)
    return opened(allow_functions=allow, index_begun=begun)


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


def removal_of(url: str | os.PathLike[str]) -> destroy.Removal:
    """List what belongs to the instance at a URL; its `carry_out` removes that, and only that."""
    place = place_of(url, ObjectStoreSettings.of(os.environ), _now)
    return destroy.plan_removal(place, unchecked_properties_at(place), pause=_pause, new_id=_new_id)


def input_store() -> BucketInputs:
    """Return the reader of input files by URL, for use without an instance."""
    return BucketInputs(ObjectStoreSettings.of(os.environ))


class Instance(InstanceHandle):
    """A deployment of Sleeper: its tables, and where they are stored.

    An idle instance runs nothing and holds nothing open. `connect` makes it; a simulation makes it
    directly, with any adapter, clock and ids.

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
        objects: Objects,
        values: Mapping[str, str],
        *,
        url: str,
        stores: ObjectStoreSettings = _NO_SETTINGS,
        allow_functions: Sequence[str] = (),
        now: Callable[[], datetime] = _now,
        new_id: NewId = _new_id,
        pause: Callable[[int], None] = _pause,
        ticks_s: Callable[[], float] | None = None,
        index_begun: IndexBegun = None,
    ) -> None:
        self.url = url
        self.instance_id = values["sleeper.id"]
        self.now = now
        self.ticks_s = ticks_s or (time.monotonic if now is _now else lambda: now().timestamp())
        self._open_context = partial(
            open_context,
            url=url,
            objects=opened_objects(objects, self.instance_id),
            now=now,
            ticks_s=self.ticks_s,
            new_id=new_id,
            host=os.uname().nodename,
            pause=pause,
            inputs=BucketInputs(stores),
            environment=os.environ,
            allow_functions=tuple(allow_functions),
            reopen=(_reopen_table, (self,)),
            index_begun=index_begun,
        )
        self._adopt(values)
        self._jobs: instance_jobs.InstanceJobs | None = None

    def _adopt(self, values: Mapping[str, str]) -> None:
        """Use properties for all that is opened from now on."""
        self.properties = InstanceProperties(values)
        self._context = self._open_context(self.properties)
        self._sql_handles: dict[str, Table] = {}

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
                changes, checks=self._context.commit_checks, pause=self._context.pause
            )
        )

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
        self._context.place.check()
        self._context.index.all()

    create_table = LateMethod(lambda: tables.create_table)
    delete_table = LateMethod(lambda: tables.delete_table)
    sql = LateMethod(lambda: _sql.sql)
    explain_sql = LateMethod(lambda: _sql.explain_sql)
    verify = LateMethod(lambda: _verify.verify)
    _repr_html_ = LateMethod(lambda: notebook_view.instance_html)

    @property
    def jobs(self) -> instance_jobs.InstanceJobs:
        """The instance's jobs: what workers are asked to do, and what became of it.

        Raises:
            BadRequest: the instance is in a bucket, and `sleeper.jobs.url` does not say where its
                queues are.
        """
        if self._jobs is None:
            self._jobs = open_jobs.open_jobs(self._context, sleep=time.sleep)
        return self._jobs

    def backup(self, target: str | os.PathLike[str]) -> backup.Backup:
        """Copy the instance to a URL or folder while it is used, each table at one transaction.

        Raises:
            AlreadyExists: an instance is there already, or something else.
            CommitContended: files were collected faster than they could be copied.
        """
        return backup.backup_instance(
            self._context, place_of(target, self._context.inputs.settings, _now)
        )

    @property
    def pause_switch(self) -> pause_switch.PauseSwitch:
        """Stops all services and workers of the instance for a while."""
        return pause_switch.PauseSwitch(self._context.objects, self._context.now)

    @property
    def service_notes(self) -> service_notes.ServiceNotes:
        """What services that live for one call note for the next."""
        return service_notes.ServiceNotes(self._context.objects)

    @property
    def submitted_jobs(self) -> submitted_jobs.SubmittedJobs:
        """Bulk import jobs for clusters: saved here, sent to the cluster, and read there."""
        context = self._context
        return submitted_jobs.SubmittedJobs(
            objects=context.objects,
            index=context.index,
            properties=self.properties,
            url=self.url,
            new_id=context.new_id,
            now=context.now,
        )

    def close(self) -> None:
        """Close what is open. A `memory://` instance ends here."""
        if self._jobs is not None:
            self._jobs.stores.close()
        objects = self._context.objects
        if self.url.startswith("memory:") and isinstance(objects, memory.MemoryObjects):
            objects.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        if self.url.startswith("memory:"):
            raise BadRequest(
                "a memory:// instance lives in one process and cannot be pickled; use a folder"
            )
        context = self._context
        return _connect_again, (self.url, context.inputs.settings, context.allow_functions)

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
