"""Which adapter serves a URL: a folder, a bucket, an instance in AWS, or this process's memory."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from sleeper.errors import PropertiesInvalid, StorageFailed, UrlInvalid
from sleeper.model import paths
from sleeper.model.object_stores import (
    Bucket,
    ObjectStoreSettings,
    is_bucket_url,
    split_url,
    without_credentials,
)
from sleeper.ports.ids import NewId
from sleeper.ports.objects import Objects
from sleeper.ports.table_index import TableIndex
from sleeper.storage.followed_log import Following
from sleeper.storage.local.folder import FolderObjects
from sleeper.storage.local.opened_folder import OpenedFolder, signature_of
from sleeper.storage.local.unfinished import remove_hidden_folder
from sleeper.storage.object_log import CommitChecks
from sleeper.storage.snapshots import begin_index, object_table_index

if TYPE_CHECKING:
    from sleeper.model.jobs.kinds import QueueName
    from sleeper.model.jobs.messages import QueueSettings
    from sleeper.ports import jobs
    from sleeper.ports import objects as belonging_port
    from sleeper.storage.aws.deployment import deployment as aws_deployment
    from sleeper.storage.objectstore import objects as bucket_objects

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
    """The location of an instance, with its adapter.

    Attributes:
        scheme: `file`, `memory`, `s3`, `gs` or `aws`.
        url: The URL for messages; for a folder its absolute path.
        objects: The adapter that reads and writes there.
        stores: How to connect to buckets.
        deployment: What an instance in AWS is made of; None for others.
    """

    scheme: str
    url: str
    objects: Objects
    stores: ObjectStoreSettings
    deployment: aws_deployment.Deployment | None = None

    @property
    def default_id(self) -> str:
        """An instance id made from the folder's name (rule INS-1: at most 20 characters)."""
        if self.deployment is not None:
            return self.deployment.names.instance_id
        name = re.sub(r"[^a-z0-9-]+", "-", Path(self.url).name.lower()).strip("-")
        return name[:20] or "sleeper"

    def enclosing_instance(self) -> str | None:
        """Return the URL of an instance whose folder contains this place; None if there is none.

        Parents that cannot be read are skipped.
        """
        if self.scheme == "file":
            for parent in Path(self.url).resolve().parents:
                if (parent / paths.INSTANCE_PROPERTIES).is_file():
                    return str(parent)
            return None
        from sleeper.storage.objectstore import objects as bucket_objects

        if isinstance(self.objects, bucket_objects.BucketObjects):
            bucket, folder = split_url(self.url)
            parts = folder.split("/")
            for length in range(len(parts)):
                parent_key = "/".join(parts[:length])
                above = bucket_objects.BucketObjects(self.objects.client).under(parent_key)
                with suppress(StorageFailed):
                    if above.read(paths.INSTANCE_PROPERTIES) is not None:
                        return bucket.named(parent_key).rstrip("/")
        return None


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
        UrlInvalid: the URL is empty, or its scheme is not known.
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
        from sleeper.storage import memory

        return Place("memory", "memory://", memory.MemoryObjects(now=now), stores)
    if scheme == "aws":
        from sleeper.storage.aws.deployment import names as aws_names

        return _in_aws(aws_names.instance_id_of(text), stores)
    if is_bucket_url(text):
        return _bucket(text, stores)
    if scheme in ("http", "https"):
        raise UrlInvalid(
            f"{without_credentials(text)!r} is a server, and this needs the instance itself: its "
            "folder, or s3://bucket/folder"
        )
    raise UrlInvalid(
        f"cannot open {without_credentials(text)!r}: an instance is a folder, file:// and a path, "
        "s3://bucket/folder, aws:// and an id, or memory://"
    )


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
    from sleeper.storage.objectstore import client
    from sleeper.storage.objectstore import objects as bucket_objects

    bucket, key = split_url(folder)
    return bucket_objects.BucketObjects(client.Client(bucket, stores)).under(key)


def opened_objects(objects: Objects, instance_id: str) -> Objects:
    """Return the objects of an instance that is opened: a folder that is never made anew."""
    if not isinstance(objects, FolderObjects):
        return objects
    if signature_of(objects.url(paths.INSTANCE_PROPERTIES)) is None:
        return objects  # a test made it without properties
    return replace(objects, opened=OpenedFolder(objects.root, instance_id))


def check_folder(objects: Objects) -> None:
    """Raise `InstanceLost` if the folder of an instance that was opened is not there any more."""
    if isinstance(objects, FolderObjects) and objects.opened is not None:
        objects.opened.check()


def is_folder(objects: Objects) -> bool:
    """Return whether objects are files in a folder."""
    return isinstance(objects, FolderObjects)


def bucket_of(objects: Objects) -> bucket_objects.BucketObjects | None:
    """Return the bucket of an instance's tables; None for an instance that is in no bucket."""
    if isinstance(objects, FolderObjects):
        return None
    from sleeper.storage.objectstore import objects as bucket_objects
    from sleeper.storage.objectstore import routed_objects

    found = objects.rest if isinstance(objects, routed_objects.RoutedObjects) else objects
    return found if isinstance(found, bucket_objects.BucketObjects) else None


def table_index_of(
    objects: Objects,
    instance_id: str,
    stores: ObjectStoreSettings,
    *,
    new_id: NewId,
    pause: Callable[[int], None],
    checks: CommitChecks,
    begun: IndexBegun = None,
    following: Following | None = None,
) -> TableIndex:
    """Return the table index of an instance: in DynamoDB for one in AWS, else in its objects.

    Args:
        objects: The instance's objects.
        instance_id: Its `sleeper.id`.
        stores: How to connect to buckets.
        new_id: Makes unique ids.
        pause: Waits after a lost race; called with the number of races lost before.
        checks: The checks when a change is committed to objects.
        begun: Returns what `begun_index` began to read.
        following: How a log of the index is followed; None for an index that is used once.
    """
    if _is_in_aws(objects):
        from sleeper.storage.aws.deployment import deployment as aws_deployment
        from sleeper.storage.aws.deployment import table_index

        tables = aws_deployment.instance_tables(
            instance_id, stores.region, pause=pause, new_id=new_id
        )
        return table_index.DynamoTableIndex(tables, objects, pause=pause)
    return object_table_index(
        objects, new_id=new_id, pause=pause, checks=checks, begun=begun, following=following
    )


def _is_in_aws(objects: Objects) -> bool:
    """Return whether these are the objects of an instance in AWS."""
    if isinstance(objects, FolderObjects):
        return False
    from sleeper.storage.objectstore.routed_objects import RoutedObjects

    return isinstance(objects, RoutedObjects)


def begun_index(objects: Objects) -> IndexBegun:
    """Begin to read a table index in a bucket, before its instance is known; None elsewhere."""
    return None if bucket_of(objects) is not objects else begin_index(objects)


def commit_checks(objects: Objects, read_back: str, new_id: NewId) -> CommitChecks:
    """Return the checks for commits to `objects`.

    Args:
        objects: The instance's objects.
        read_back: The property `sleeper.statestore.commit.read.back`: auto, always or never.
        new_id: Makes a unique id for scratch objects.
    """
    bucket = bucket_of(objects)
    if bucket is None or bucket.client.is_amazon:
        return CommitChecks(read_back=read_back == "always")
    from sleeper.storage.objectstore import conditions

    return CommitChecks(
        before_append=partial(conditions.check_conditions_once, bucket, new_id),
        read_back=read_back != "never",
    )


def aws_belongings(
    values: Mapping[str, str], url: str, region: str | None, pause: Callable[[int], None]
) -> list[belonging_port.Belonging]:
    """Return the queues and the tables in DynamoDB of an instance in a folder or a bucket.

    Args:
        values: Its properties.
        url: Where it is.
        region: The region of AWS; None for the one that boto3 finds.
        pause: Waits before another attempt, given how many there were.
    """
    from sleeper.storage.aws.deployment import belongings

    aws = belongings.AwsBelongings(values["sleeper.id"], url, region=region, pause=pause)
    return [*aws.queues(), *aws.tables()]


def remove_empty_folder(objects: Objects) -> None:
    """Remove the folder of an instance that was removed, if nothing else is in it."""
    if isinstance(objects, FolderObjects):
        remove_hidden_folder(str(objects.root))


def jobs_url_of(objects: Objects, url: str | None) -> str | None:
    """Return where jobs are kept, if `sleeper.jobs.url` is `url`: `sqs` by default in AWS."""
    return "sqs" if url is None and _is_in_aws(objects) else url


def job_stores_of(
    objects: Objects,
    instance_id: str,
    instance_url: str,
    url: str | None,
    settings: Mapping[QueueName, QueueSettings],
    *,
    region: str | None,
    now: Callable[[], datetime],
    sleep: Callable[[float], None],
    pause: Callable[[int], None],
    new_id: NewId,
) -> jobs.JobStores:
    """Return where the jobs of an instance are kept. Those in memory are new.

    Args:
        objects: The instance's objects.
        instance_id: Its `sleeper.id`.
        instance_url: Where the instance is.
        url: The property `sleeper.jobs.url`: `sqs`, `sqlite://` and an absolute path, or None for
            `services/jobs.sqlite` in a folder, and memory for an instance in memory.
        settings: How queues deliver; one that is missing has the default settings.
        region: The region of AWS; None for the one that boto3 finds.
        now: The clock (aware, UTC).
        sleep: Waits for so many seconds.
        pause: Waits before another attempt, with jitter, given how many there were.
        new_id: Makes an id that no other process uses.

    Raises:
        PropertiesInvalid: the instance is in a bucket, and `url` is None; or the file is there,
            and another instance's; or names in AWS cannot have the id.
    """
    if url == "sqs":
        from sleeper.storage.aws.jobs import job_stores as aws_job_stores

        aws = partial(
            aws_job_stores.AwsJobStores, instance_id, instance_url, settings, region=region
        )
        return aws(now=now, sleep=sleep, pause=pause, new_id=new_id)
    is_folder, check = isinstance(objects, FolderObjects), None
    if url is not None:
        path = Path("/", url.removeprefix("sqlite://").lstrip("/"))
    elif isinstance(objects, FolderObjects):
        path = Path(instance_url) / paths.JOBS
        check = objects.opened.check if objects.opened else None
    elif bucket_of(objects) is not None:
        raise PropertiesInvalid(
            {
                "sleeper.jobs.url": f"{instance_url} is in a bucket, which cannot hold queues: set "
                "sleeper.jobs.url to sqs, or to sqlite:///and/an/absolute/path on the machine that "
                "runs jobs."
            }
        )
    else:
        from sleeper.storage import memory_jobs as memory_job_stores

        return memory_job_stores.MemoryJobStores(settings, now=now, sleep=sleep, new_id=new_id)
    from sleeper.storage.local.jobs import database as sqlite_owner
    from sleeper.storage.local.jobs import job_stores as sqlite_job_stores

    owner = sqlite_owner.Owner(
        instance_id, os.path.realpath(instance_url) if is_folder else instance_url
    )
    in_file = partial(sqlite_job_stores.SqliteJobStores, path, settings, owner=owner)
    stores = in_file(now=now, sleep=sleep, new_id=new_id, check_instance=check)
    stores.check_owner()
    return stores


def results_queue(region: str | None) -> jobs.ResultsQueue:
    """Return what sends rows of queries to queues in SQS.

    Args:
        region: The region of queues whose URLs name none; None for the one that boto3 finds.
    """
    from sleeper.storage.aws import clients
    from sleeper.storage.aws.jobs import sqs_messages

    return sqs_messages.SqsResultsQueue(lambda named: clients.aws_client("sqs", named or region))


def _folder(path: Path, stores: ObjectStoreSettings, now: Callable[[], datetime]) -> Place:
    root = path.expanduser().absolute()
    return Place("file", str(root), FolderObjects(root, now=now), stores)


def _bucket(text: str, stores: ObjectStoreSettings) -> Place:
    from sleeper.storage.objectstore import client
    from sleeper.storage.objectstore import objects as bucket_objects

    bucket, folder = split_url(text)
    objects = bucket_objects.BucketObjects(client.Client(bucket, stores)).under(folder)
    return Place(bucket.scheme, bucket.named(folder).rstrip("/"), objects, stores)


def _in_aws(instance_id: str, stores: ObjectStoreSettings) -> Place:
    from sleeper.storage.aws.deployment import names as aws_names

    identity = aws_names.aws_identity(stores.region)
    here = replace(stores, region=identity.region)
    from sleeper.storage.aws.deployment import deployment as aws_deployment

    deployment = aws_deployment.Deployment.of(instance_id, identity, here.endpoint)
    names = deployment.names

    from sleeper.storage.objectstore import client
    from sleeper.storage.objectstore import objects as bucket_objects

    def objects(bucket: str) -> bucket_objects.BucketObjects:
        return bucket_objects.BucketObjects(client.Client(Bucket("s3", bucket), here))

    config = objects(names.config_bucket)
    from sleeper.storage.objectstore import routed_objects

    routes = (
        *(routed_objects.Route(start, config, start) for start in _CONFIGURATION),
        routed_objects.Route("query_results/", objects(names.query_results_bucket), ""),
        routed_objects.Route("bulk_export/", objects(names.bulk_export_bucket), ""),
        routed_objects.Route("bulk_import/", objects(names.bulk_import_bucket), "bulk_import/"),
    )
    data = routed_objects.RoutedObjects(objects(names.data_bucket), routes)
    return Place("aws", deployment.url, data, here, deployment)
