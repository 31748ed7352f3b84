"""Which adapter serves a URL: a folder, a bucket, an instance in AWS, or this process's memory.

`place_of` chooses a class by the URL. Its methods say what follows from the kind of place, so that
nobody else asks of which class an adapter is. A store that obstore knows needs no class of its own:
its scheme is in `model/object_stores.py`, and `objectstore/client.py` and
`engine/reading/session.py` open it. Any other store is an adapter, and one class here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Self
from urllib.parse import unquote, urlsplit

from sleeper.errors import (
    BadRequest,
    MissingExtra,
    PropertiesInvalid,
    StorageFailed,
    UrlInvalid,
)
from sleeper.model import paths
from sleeper.model.formats.properties_file import is_of_instance
from sleeper.model.object_stores import (
    Bucket,
    ObjectStoreSettings,
    is_bucket_url,
    split_url,
    unknown_store,
    without_credentials,
)
from sleeper.ports.clock import Clock
from sleeper.ports.ids import NewId
from sleeper.ports.objects import Belonging, InputStore, Objects
from sleeper.ports.table_index import TableIndex
from sleeper.storage.followed_log import CommitChecks, Following
from sleeper.storage.local.folder import FolderObjects, OpenedFolder, signature_of
from sleeper.storage.local.unfinished import remove_hidden_folder
from sleeper.storage.table_index import begin_index, object_table_index

if TYPE_CHECKING:
    from sleeper.model.jobs.kinds import QueueName
    from sleeper.model.jobs.messages import QueueSettings
    from sleeper.model.known_properties.given import PropertyValue
    from sleeper.ports import jobs
    from sleeper.ports.old_versions import OldVersions
    from sleeper.ports.read_cache import ReadCache
    from sleeper.storage.aws.deployment.deployment import Deployment
    from sleeper.storage.aws.state.aws_states import AwsStates
    from sleeper.storage.memory import MemoryObjects
    from sleeper.storage.objectstore.objects import BucketObjects

_NO_SETTINGS = ObjectStoreSettings()

_CONFIGURATION = (
    paths.INSTANCE_PROPERTIES,
    paths.PROPERTIES_VERSIONS,
    paths.SERVICES,
    paths.TABLE_INDEX,
)
"""How the keys begin that an instance in AWS has in its config bucket."""

IndexBegun = Callable[[], bytes | None] | None
"""Returns the copy of a table index that was begun to be read; None if none was."""


@dataclass(frozen=True, slots=True)
class Place:
    """The location of an instance, with its adapter, and what follows from the kind of location.

    This class serves any adapter: the table index is in its objects, jobs are in memory. The
    classes below serve the kinds of URLs, and differ in some methods. `place_of` chooses one.

    Attributes:
        url: The URL for messages; for a folder its absolute path.
        objects: The adapter that reads and writes there.
        stores: How to connect to buckets.
    """

    url: str
    objects: Objects
    stores: ObjectStoreSettings = _NO_SETTINGS

    is_of_process: ClassVar[bool] = False
    """Whether the instance ends with this process, and is made when it is opened."""

    is_dated: ClassVar[bool] = False
    """Whether `stored_at` is the time of an object's last change, by the system's clock."""

    has_resources: ClassVar[bool] = False
    """Whether buckets and tables are made for the instance alone, before it has properties."""

    @property
    def default_id(self) -> str:
        """An instance id made from the folder's name (rule INS-1: at most 20 characters)."""
        name = re.sub(r"[^a-z0-9-]+", "-", Path(self.url).name.lower()).strip("-")
        return name[:20] or "sleeper"

    def close(self) -> None:
        """End what is kept only while the instance is open."""

    def enclosing_instance(self) -> str | None:
        """Return the URL of an instance whose folder contains this place; None if there is none.

        Parents that cannot be read are skipped.
        """
        return None

    # Made once, with the instance.

    def fixed_properties(self, given: Mapping[str, PropertyValue | None]) -> dict[str, str]:
        """Return properties that a new instance has here; those given may replace some.

        Raises:
            PropertiesInvalid: one is given that follows from the place.
        """
        return {"sleeper.id": self.default_id}

    def make(
        self,
        values: Mapping[str, str],
        *,
        clock: Clock,
        new_id: NewId,
    ) -> dict[str, str]:
        """Make what a new instance needs before its properties are stored; return further ones.

        Args:
            values: Its properties.
            clock: Says the time, and waits.
            new_id: Makes unique names of objects that test a bucket, and other ids.

        Raises:
            AlreadyExists: a bucket belongs to somebody else.
            StorageFailed: the storage cannot be written, or cannot hold an instance.
        """
        return {}

    def check_properties(self, values: Mapping[str, str]) -> None:
        """Check that properties which were read here are those of an instance at this place.

        Raises:
            PropertiesInvalid: they name the resources of another instance.
            UrlInvalid: they are those of an instance in AWS.
        """

    def is_missing(self) -> bool:
        """Return whether a read may have failed because the instance has no bucket yet."""
        return False

    # Used while the instance is open.

    def as_opened(self, instance_id: str) -> Self:
        """Return the place for the use of an open instance: a folder of it is never made anew."""
        return self

    def check_opened(self) -> None:
        """Raise `InstanceLost` if the folder of an instance that was opened is not there."""

    def table_index(
        self,
        instance_id: str,
        *,
        new_id: NewId,
        pause: Callable[[int], None],
        checks: CommitChecks,
        begun: IndexBegun = None,
        following: Following | None = None,
    ) -> TableIndex:
        """Return the table index: in DynamoDB for an instance in AWS, else in its objects.

        Args:
            instance_id: Its `sleeper.id`.
            new_id: Makes unique ids.
            pause: Waits after a lost race; called with the number of races lost before.
            checks: The checks when a change is committed to objects.
            begun: Returns what `begin_index` began to read.
            following: How a log of the index is followed; None for an index that is used once.
        """
        return object_table_index(
            self.objects,
            new_id=new_id,
            pause=pause,
            checks=checks,
            begun=begun,
            following=following,
        )

    def aws_states(
        self, instance_id: str, *, pause: Callable[[int], None], new_id: NewId
    ) -> AwsStates:
        """Return the states of tables that are kept in AWS, as a property of each table says.

        Args:
            instance_id: Its `sleeper.id`.
            pause: Waits before another attempt, with jitter, given how many there were.
            new_id: Makes unique ids.
        """
        from sleeper.storage.aws.clients import aws_client, resource_prefix
        from sleeper.storage.aws.dynamo_tables import DynamoTables
        from sleeper.storage.aws.state.aws_states import AwsStates

        tables = DynamoTables(
            partial(aws_client, "dynamodb", self.stores.region),
            resource_prefix(instance_id),
            pause=pause,
            new_id=new_id,
            owner=self.url,
        )
        return AwsStates(tables=tables, new_id=new_id, pause=pause)

    def begin_index(self) -> IndexBegun:
        """Begin to read a table index in a bucket, before its instance is known; None elsewhere."""
        return None

    def commit_checks(self, read_back: str, new_id: NewId, clock: Clock) -> CommitChecks:
        """Return the checks for commits to the objects.

        Args:
            read_back: The property `sleeper.statestore.commit.read.back`: auto, always or never.
            new_id: Makes a unique id for scratch objects.
            clock: Says how long requests were tried, and waits between them.
        """
        return CommitChecks(read_back=read_back == "always")

    def jobs_url(self, url: str | None) -> str | None:
        """Return where jobs are kept, if `sleeper.jobs.url` is `url`: `sqs` by default in AWS."""
        return url

    def job_stores(
        self,
        instance_id: str,
        url: str | None,
        settings: Mapping[QueueName, QueueSettings],
        *,
        now: Callable[[], datetime],
        sleep: Callable[[float], None],
        pause: Callable[[int], None],
        new_id: NewId,
    ) -> jobs.JobStores:
        """Return where the jobs of the instance are kept. Those in memory are new.

        Args:
            instance_id: Its `sleeper.id`.
            url: The property `sleeper.jobs.url`: `sqs`, `sqlite://` and an absolute path, or None
                for `services/jobs.sqlite` in a folder, and memory for an instance in memory.
            settings: How queues deliver; one that is missing has the default settings.
            now: The clock (aware, UTC).
            sleep: Waits for so many seconds.
            pause: Waits before another attempt, with jitter, given how many there were.
            new_id: Makes an id that no other process uses.

        Raises:
            PropertiesInvalid: the instance is in a bucket, and `url` is None; or the file is there,
                and another instance's; or names in AWS cannot have the id.
        """
        known = self.jobs_url(url)
        if known == "sqs":
            from sleeper.storage.aws.jobs.job_stores import AwsJobStores

            aws = partial(
                AwsJobStores,
                instance_id,
                self.url,
                settings,
                region=self.stores.region,
            )
            return aws(now=now, sleep=sleep, pause=pause, new_id=new_id)
        path, check = self._jobs_file if known is None else None, self._jobs_check
        if known is not None:
            path, check = Path("/", known.removeprefix("sqlite://").lstrip("/")), None
        from sleeper.storage.local.jobs.database import Owner
        from sleeper.storage.local.jobs.job_stores import SqliteJobStores

        owner = Owner(instance_id, self._real_url)
        in_file = partial(SqliteJobStores, path, settings, owner=owner)
        stores = in_file(now=now, sleep=sleep, new_id=new_id, check_instance=check)
        stores.check_owner()
        return stores

    @property
    def _jobs_file(self) -> Path | None:
        """The file that holds jobs if no property names another; None for memory."""
        return None

    @property
    def _jobs_check(self) -> Callable[[], None] | None:
        """What raises `InstanceLost` if the instance that has the file is gone; None if nothing."""
        return None

    @property
    def _real_url(self) -> str:
        """The URL that stays the same where links lead to the instance."""
        return self.url

    def results_queue(self) -> jobs.ResultsQueue:
        """Return what sends rows of queries to queues in SQS, in the region that their URLs name.

        One whose URL names none is in the region of the place.
        """
        from sleeper.storage.aws import clients
        from sleeper.storage.aws.jobs.sqs_messages import SqsResultsQueue

        own = self.stores.region
        return SqsResultsQueue(lambda region: clients.aws_client("sqs", region or own))

    def read_cache(self, now: Callable[[], datetime]) -> ReadCache | None:
        """Return what keeps on this machine's disk what is read of files in a bucket.

        None for files that are no bucket's, and if the settings name no folder for it.

        Args:
            now: The clock (aware, UTC).
        """
        if not self.objects.is_remote or self.stores.cache_folder is None:
            return None
        from sleeper.storage.local.disk_cache import DiskCache

        return DiskCache(
            folder=self.stores.cache_folder,
            bytes_max=self.stores.cache_bytes,
            origin=self.stores.endpoint or "",
            now=now,
        )

    def inputs(self) -> InputStore:
        """Return the reader of input files in buckets, which connects as the place does."""
        return inputs_of(self.stores)

    # Used when the instance is removed.

    def belongings(
        self, values: Mapping[str, str] | None, *, pause: Callable[[int], None]
    ) -> list[Belonging]:
        """Return what the instance has in AWS: queues and tables; for one in AWS buckets as well.

        Args:
            values: Its properties; None where an interrupted removal took them already.
            pause: Waits before another attempt, given how many there were.

        Raises:
            BadRequest: a bucket does not belong to the instance; nothing may be removed.
            StorageFailed: there is no answer.
        """
        from sleeper.storage.aws.deployment.belongings import AwsBelongings

        instance_id = self.default_id if values is None else values["sleeper.id"]
        region = self.stores.region
        aws = AwsBelongings(instance_id, self.url, region=region, pause=pause)
        return [*aws.queues(), *aws.tables()]

    def remove_if_empty(self) -> None:
        """Remove the folder of an instance that was removed, if nothing else is in it."""

    def delete_old_versions(self, folders: Iterable[str]) -> tuple[OldVersions, ...]:
        """Delete for good what the storage keeps of objects that were replaced or deleted.

        A folder of a file system keeps nothing; of what is neither that nor S3 it is not known.

        Args:
            folders: URLs of folders, which end in `/`.

        Raises:
            StorageFailed: there was no answer.
        """
        if not self.objects.is_remote:
            return ()
        from sleeper.ports.old_versions import OldVersions

        return tuple(
            _deleted_in_s3(each, self.stores)
            if each.startswith("s3://")
            else OldVersions(unknown=f"{each} cannot be asked for them")
            for each in folders
        )


def _deleted_in_s3(folder: str, stores: ObjectStoreSettings) -> OldVersions:
    from sleeper.ports.old_versions import OldVersions
    from sleeper.storage.aws.clients import aws_client
    from sleeper.storage.aws.old_versions import delete_old_versions

    bucket, prefix = split_url(folder)
    try:
        client = aws_client("s3", stores.region, stores.endpoint)
    except MissingExtra as error:
        return OldVersions(unknown=f"{folder} cannot be asked for them: {error}")
    return delete_old_versions(client, bucket.name, unquote(prefix))


@dataclass(frozen=True, slots=True)
class MemoryPlace(Place):
    """The memory of this process."""

    objects: MemoryObjects

    is_of_process: ClassVar[bool] = True

    def close(self) -> None:
        """Forget all objects."""
        self.objects.close()


@dataclass(frozen=True, slots=True)
class FolderPlace(Place):
    """A folder. Jobs are in a file in it."""

    objects: FolderObjects

    is_dated: ClassVar[bool] = True

    def enclosing_instance(self) -> str | None:
        """Look into each folder above."""
        for parent in Path(self.url).resolve().parents:
            file = parent / paths.INSTANCE_PROPERTIES
            with suppress(OSError):
                if file.is_file() and is_of_instance(file.read_bytes()):
                    return str(parent)
        return None

    def as_opened(self, instance_id: str) -> Self:
        """Take note of the instance, if it has properties, as all have but those of tests."""
        if signature_of(self.objects.url(paths.INSTANCE_PROPERTIES)) is None:
            return self
        opened = OpenedFolder(self.objects.root, instance_id)
        return replace(self, objects=replace(self.objects, opened=opened))

    def check_opened(self) -> None:
        """Compare the file of its properties."""
        if self.objects.opened is not None:
            self.objects.opened.check()

    @property
    def _jobs_file(self) -> Path:
        return Path(self.url) / paths.JOBS

    @property
    def _jobs_check(self) -> Callable[[], None] | None:
        return None if self.objects.opened is None else self.objects.opened.check

    @property
    def _real_url(self) -> str:
        return os.path.realpath(self.url)

    def remove_if_empty(self) -> None:
        """Remove the folder, if nothing but temp files is in it."""
        remove_hidden_folder(str(self.objects.root))


@dataclass(frozen=True, slots=True)
class BucketPlace(Place):
    """A folder of a bucket, at any object store that `objectstore` knows."""

    objects: BucketObjects

    def enclosing_instance(self) -> str | None:
        """Ask for the properties in each folder above."""
        from sleeper.storage.objectstore.objects import BucketObjects

        bucket, folder = split_url(self.url)
        parts = folder.split("/")
        for length in range(len(parts)):
            parent_key = "/".join(parts[:length])
            above = BucketObjects(self.objects.client).under(parent_key)
            with suppress(StorageFailed):
                body = above.read(paths.INSTANCE_PROPERTIES)
                if body is not None and is_of_instance(body):
                    return bucket.named(parent_key).rstrip("/")
        return None

    def make(self, values: Mapping[str, str], *, clock: Clock, new_id: NewId) -> dict[str, str]:
        """Check that the server creates an object only if it is absent."""
        from sleeper.storage.objectstore.conditions import check_new_instance

        check_new_instance(self.objects, new_id, clock)
        return {}

    def check_properties(self, values: Mapping[str, str]) -> None:
        """Refuse the bucket that holds the properties of an instance in AWS."""
        from sleeper.model.known_properties.deployment import CONFIG_BUCKET

        if self.url == f"s3://{values.get(CONFIG_BUCKET)}":
            raise UrlInvalid(
                f"{self.url} is the bucket of properties of an instance in AWS: open "
                f"aws://{values['sleeper.id']}"
            )

    def begin_index(self) -> IndexBegun:
        """Begin at once."""
        return begin_index(self.objects)

    def commit_checks(self, read_back: str, new_id: NewId, clock: Clock) -> CommitChecks:
        """Trust Amazon; of another server, try the conditions and read entries back."""
        return _bucket_checks(self.objects, read_back, new_id, clock)

    @property
    def _jobs_file(self) -> Path:
        raise PropertiesInvalid(
            {
                "sleeper.jobs.url": f"{self.url} is in a bucket, which cannot hold queues: set "
                "sleeper.jobs.url to sqs, or to sqlite:///and/an/absolute/path on the machine that "
                "runs jobs."
            }
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsPlace(Place):
    """Buckets, tables in DynamoDB and queues that are made for the instance alone.

    Attributes:
        deployment: Their names.
        bucket: The bucket of its tables.
    """

    deployment: Deployment
    bucket: BucketObjects

    has_resources: ClassVar[bool] = True

    @property
    def default_id(self) -> str:
        """The id that the URL names. It cannot be another."""
        return self.deployment.names.instance_id

    def fixed_properties(self, given: Mapping[str, PropertyValue | None]) -> dict[str, str]:
        """Name all resources."""
        from sleeper.model.known_properties.deployment import DEPLOYMENT_PROPERTIES

        taken = {name: value for name, value in given.items() if value is not None}
        failures = {
            each.name: f"{each.name} cannot be set: Sleeper names the resources of {self.url}."
            for each in DEPLOYMENT_PROPERTIES
            if each.name in taken
        }
        wanted = self.default_id
        if str(taken.get("sleeper.id", wanted)) != wanted:
            failures["sleeper.id"] = f"sleeper.id cannot be set: it is {wanted!r} at {self.url}."
        if failures:
            raise PropertiesInvalid(failures)
        return {
            "sleeper.id": wanted,
            **self.deployment.properties(),
            **self.deployment.defaults(),
        }

    def make(
        self,
        values: Mapping[str, str],
        *,
        clock: Clock,
        new_id: NewId,
    ) -> dict[str, str]:
        """Make all resources that are missing, and check the bucket of tables."""
        from sleeper.model.jobs.kinds import QueueName
        from sleeper.model.jobs.settings import queue_settings
        from sleeper.model.known_properties.typed import InstanceProperties
        from sleeper.storage.aws.deployment.keeping import Keeping
        from sleeper.storage.objectstore.conditions import check_new_instance

        known = InstanceProperties(values)
        settings = {name: queue_settings(known, name) for name in QueueName}
        made = self.deployment.make(
            settings,
            Keeping.of(known.cloud),
            now=clock.now,
            sleep=clock.sleep,
            pause=clock.back_off,
            new_id=new_id,
        )
        check_new_instance(self.bucket, new_id, clock)
        return made

    def check_properties(self, values: Mapping[str, str]) -> None:
        """Compare them with the names of the resources."""
        self.deployment.check(values)

    def is_missing(self) -> bool:
        """Ask for the bucket of properties."""
        return not self.deployment.has_config_bucket()

    def table_index(
        self,
        instance_id: str,
        *,
        new_id: NewId,
        pause: Callable[[int], None],
        checks: CommitChecks,
        begun: IndexBegun = None,
        following: Following | None = None,
    ) -> TableIndex:
        """Return the one in DynamoDB."""
        from sleeper.storage.aws.deployment.deployment import instance_tables
        from sleeper.storage.aws.deployment.table_index import DynamoTableIndex

        tables = instance_tables(instance_id, self.stores.region, pause=pause, new_id=new_id)
        return DynamoTableIndex(tables, self.objects, pause=pause)

    def commit_checks(self, read_back: str, new_id: NewId, clock: Clock) -> CommitChecks:
        """Treat the bucket of tables as any bucket."""
        return _bucket_checks(self.bucket, read_back, new_id, clock)

    def jobs_url(self, url: str | None) -> str | None:
        """Return `sqs`, unless a property names something else."""
        return "sqs" if url is None else url

    def belongings(
        self, values: Mapping[str, str] | None, *, pause: Callable[[int], None]
    ) -> list[Belonging]:
        """Return all resources, if the properties are those of this instance."""
        names = self.deployment.names
        if values is not None and values["sleeper.id"] != names.instance_id:
            raise BadRequest(
                f"nothing was removed: bucket {names.config_bucket} is that of instance "
                f"{values['sleeper.id']!r}, not of {names.instance_id!r}. Destroy "
                f"aws://{values['sleeper.id']}."
            )
        return self.deployment.belongings(pause=pause)


def _bucket_checks(
    bucket: BucketObjects, read_back: str, new_id: NewId, clock: Clock
) -> CommitChecks:
    if bucket.client.is_amazon:
        return CommitChecks(read_back=read_back == "always")
    from sleeper.storage.objectstore import conditions

    return CommitChecks(
        before_commit=partial(conditions.check_conditions_once, bucket, new_id, clock),
        read_back=read_back != "never",
    )


def place_of(
    url: str | os.PathLike[str], stores: ObjectStoreSettings, now: Callable[[], datetime]
) -> Place:
    """Return the place that a URL names. Nothing is read, but the AWS account for `aws://`.

    Args:
        url: The path of a folder, `file://` and a path, `s3://bucket/folder`, `aws://` and an
            instance id, or `memory://`.
        stores: How to connect to buckets.
        now: The clock (aware, UTC), for modification times of objects in memory and for the
            age of temp files, which are deleted before the first write to a folder.

    Raises:
        UrlInvalid: the URL is empty, or a file, or its scheme is not known.
        MissingExtra: it names a bucket, and `sleeper-store[objectstore]` is not installed; or an
            instance in AWS, and `sleeper-store[aws]` is not.
        StorageFailed: it names an instance in AWS, and there are no valid credentials.
    """
    if not isinstance(url, str | bytes | os.PathLike):
        raise UrlInvalid(f"an instance needs a URL or the path of a folder, not {url!r}")
    text = os.fsdecode(url)
    if not text.strip():
        raise UrlInvalid("an instance needs a URL or the path of a folder, not an empty one")
    scheme, separator, _ = text.partition("://")
    if not separator:
        return _folder(Path(text), stores, now)
    if scheme == "file":
        return _folder(Path(unquote(urlsplit(text).path)), stores, now)
    if scheme == "memory":
        from sleeper.storage.memory import MemoryObjects

        return MemoryPlace("memory://", MemoryObjects(now=now), stores)
    if scheme == "aws":
        from sleeper.storage.aws.deployment.names import instance_id_of

        return _in_aws(instance_id_of(text), stores)
    if is_bucket_url(text):
        return _bucket(text, stores)
    if scheme in ("http", "https"):
        raise UrlInvalid(
            f"{without_credentials(text)!r} is a server, and this needs the instance itself: its "
            "folder, or s3://bucket/folder"
        )
    raise UrlInvalid(
        f"cannot open {without_credentials(text)!r}: an instance is a folder, file:// and a path, "
        "s3://bucket/folder, gs://bucket/folder, aws:// and an id, or "
        f"memory://{unknown_store(text)}"
    )


def inputs_of(stores: ObjectStoreSettings) -> InputStore:
    """Return the reader of input files by URL, for use without an instance."""
    from sleeper.storage.objectstore.inputs import BucketInputs

    return BucketInputs(stores)


def checked_folder(target: object) -> Path | str:
    """Check the target of an export: return a local folder as a path, or the URL of a bucket.

    Raises:
        UrlInvalid: it is neither.
    """
    if isinstance(target, str | bytes | os.PathLike):
        text = os.fsdecode(target)
        if is_bucket_url(text):
            return text
        scheme, separator, _ = text.partition("://")
        if separator and scheme.lower() == "file":
            text, separator = unquote(urlsplit(text).path), ""
        if text.strip() and not separator:
            return Path(text).expanduser()
    raise UrlInvalid(
        f"cannot export to {target!r}: a target is a folder, file:// and a path, or "
        "s3://bucket/folder"
    )


def objects_of(folder: Path | str, stores: ObjectStoreSettings) -> Objects:
    """Return the adapter for a folder that `checked_folder` returned. Nothing is read."""
    if isinstance(folder, Path):
        return FolderObjects(folder)
    from sleeper.storage.objectstore.client import Client
    from sleeper.storage.objectstore.objects import BucketObjects

    bucket, key = split_url(folder)
    return BucketObjects(Client(bucket, stores)).under(key)


def _folder(path: Path, stores: ObjectStoreSettings, now: Callable[[], datetime]) -> Place:
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        raise UrlInvalid(
            f"{str(path)!r} cannot be a folder's path: it has half of a surrogate pair"
        ) from None
    root = path.expanduser().absolute()
    if root.is_file():
        raise UrlInvalid(f"{root} is a file, and an instance is a folder: give the folder")
    return FolderPlace(str(root), FolderObjects(root, now=now), stores)


def _bucket(text: str, stores: ObjectStoreSettings) -> Place:
    from sleeper.storage.objectstore.client import Client
    from sleeper.storage.objectstore.objects import BucketObjects

    bucket, folder = split_url(text)
    objects = BucketObjects(Client(bucket, stores)).under(folder)
    return BucketPlace(bucket.named(folder).rstrip("/"), objects, stores)


def _in_aws(instance_id: str, stores: ObjectStoreSettings) -> Place:
    from sleeper.storage.aws.deployment.identity import aws_identity

    identity = aws_identity(stores.region)
    here = replace(stores, region=identity.region)
    from sleeper.storage.aws.deployment.deployment import Deployment

    deployment = Deployment.of(instance_id, identity, here.endpoint)
    names = deployment.names

    from sleeper.storage.objectstore.client import Client
    from sleeper.storage.objectstore.objects import BucketObjects

    def objects(bucket: str) -> BucketObjects:
        return BucketObjects(Client(Bucket("s3", bucket), here))

    from sleeper.storage.objectstore.routed_objects import Route, RoutedObjects

    config = objects(names.config_bucket)
    routes = (
        *(Route(start, config, start) for start in _CONFIGURATION),
        Route("query_results/", objects(names.query_results_bucket), ""),
        Route("bulk_export/", objects(names.bulk_export_bucket), ""),
        Route("bulk_import/", objects(names.bulk_import_bucket), "bulk_import/"),
    )
    bucket = objects(names.data_bucket)
    return AwsPlace(
        url=deployment.url,
        objects=RoutedObjects(bucket, routes),
        stores=here,
        deployment=deployment,
        bucket=bucket,
    )
