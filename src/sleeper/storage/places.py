"""Which adapter serves a URL: a folder, a folder of a bucket, or the memory of this process."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from urllib.parse import unquote, urlsplit

from sleeper.errors import PropertiesInvalid, StorageFailed, UrlInvalid
from sleeper.model import paths
from sleeper.model.jobs.messages import QueueName, QueueSettings
from sleeper.model.object_stores import (
    ObjectStoreSettings,
    is_bucket_url,
    split_url,
    without_credentials,
)
from sleeper.ports.ids import NewId
from sleeper.ports.job_stores import JobStores
from sleeper.ports.objects import Objects
from sleeper.ports.results_queue import ResultsQueue
from sleeper.storage.aws.clients import aws_client
from sleeper.storage.aws.jobs.job_stores import AwsJobStores
from sleeper.storage.aws.jobs.sqs_results import SqsResultsQueue
from sleeper.storage.checked_log import CommitChecks
from sleeper.storage.local.folder import FolderObjects
from sleeper.storage.local.jobs.job_stores import SqliteJobStores
from sleeper.storage.local.jobs.owner import Owner
from sleeper.storage.memory import MemoryObjects
from sleeper.storage.memory_jobs.job_stores import MemoryJobStores
from sleeper.storage.objectstore.client import Client
from sleeper.storage.objectstore.conditions import check_conditions_once
from sleeper.storage.objectstore.objects import BucketObjects


@dataclass(frozen=True, slots=True)
class Place:
    """The location of an instance, with its adapter.

    Attributes:
        scheme: `file`, `memory`, `s3` or `gs`.
        url: The URL for messages; for a folder its absolute path.
        objects: The adapter that reads and writes there.
        stores: How to connect to buckets.
    """

    scheme: str
    url: str
    objects: Objects
    stores: ObjectStoreSettings

    @property
    def default_id(self) -> str:
        """An instance id made from the folder's name (rule INS-1: at most 20 characters)."""
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
        elif isinstance(self.objects, BucketObjects):
            bucket, folder = split_url(self.url)
            parts = folder.split("/")
            for length in range(len(parts)):
                parent_key = "/".join(parts[:length])
                above = BucketObjects(self.objects.client).under(parent_key)
                with suppress(StorageFailed):
                    if above.read(paths.INSTANCE_PROPERTIES) is not None:
                        return bucket.named(parent_key).rstrip("/")
        return None


def place_of(
    url: str | os.PathLike[str], stores: ObjectStoreSettings, now: Callable[[], datetime]
) -> Place:
    """Return the place that a URL names. Nothing is read.

    Args:
        url: The path of a folder, `file://` and a path, `s3://bucket/folder`, or `memory://`.
        stores: How to connect to buckets.
        now: The clock (aware, UTC), for modification times of objects in memory and for the
            age of temp files, which are deleted before the first write to a folder.

    Raises:
        UrlInvalid: the URL is empty, or its scheme is not known.
        MissingExtra: it names a bucket, and `sleeper-store[objectstore]` is not installed.
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
        return Place("memory", "memory://", MemoryObjects(now=now), stores)
    if is_bucket_url(text):
        return _bucket(text, stores)
    raise UrlInvalid(
        f"cannot open {without_credentials(text)!r}: an instance is a folder, file:// and a path, "
        "s3://bucket/folder, or memory://"
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
    bucket, key = split_url(folder)
    return BucketObjects(Client(bucket, stores)).under(key)


def commit_checks(objects: Objects, read_back: str, new_id: NewId) -> CommitChecks:
    """Return the checks for commits to `objects`.

    Args:
        objects: The instance's objects.
        read_back: The property `sleeper.statestore.commit.read.back`: auto, always or never.
        new_id: Makes a unique id for scratch objects.
    """
    if not isinstance(objects, BucketObjects) or objects.client.is_amazon:
        return CommitChecks(read_back=read_back == "always")
    return CommitChecks(
        before_append=partial(check_conditions_once, objects, new_id),
        read_back=read_back != "never",
    )


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
) -> JobStores:
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
        aws = partial(AwsJobStores, instance_id, instance_url, settings, region=region)
        return aws(now=now, sleep=sleep, pause=pause, new_id=new_id)
    if url is not None:
        path = Path("/", url.removeprefix("sqlite://").lstrip("/"))
    elif isinstance(objects, BucketObjects):
        raise PropertiesInvalid(
            {
                "sleeper.jobs.url": f"{instance_url} is in a bucket, which cannot hold queues: set "
                "sleeper.jobs.url to sqs, or to sqlite:///and/an/absolute/path on the machine that "
                "runs jobs."
            }
        )
    elif isinstance(objects, FolderObjects):
        path = Path(instance_url) / paths.JOBS
    else:
        return MemoryJobStores(settings, now=now, sleep=sleep, new_id=new_id)
    is_folder = isinstance(objects, FolderObjects)
    owner = Owner(instance_id, os.path.realpath(instance_url) if is_folder else instance_url)
    stores = SqliteJobStores(path, settings, now=now, sleep=sleep, new_id=new_id, owner=owner)
    stores.check_owner()
    return stores


def results_queue(region: str | None) -> ResultsQueue:
    """Return what sends rows of queries to queues in SQS.

    Args:
        region: The region of queues whose URLs name none; None for the one that boto3 finds.
    """
    return SqsResultsQueue(lambda named: aws_client("sqs", named or region))


def _folder(path: Path, stores: ObjectStoreSettings, now: Callable[[], datetime]) -> Place:
    root = path.expanduser().absolute()
    return Place("file", str(root), FolderObjects(root, now=now), stores)


def _bucket(text: str, stores: ObjectStoreSettings) -> Place:
    bucket, folder = split_url(text)
    objects = BucketObjects(Client(bucket, stores)).under(folder)
    return Place(bucket.scheme, bucket.named(folder).rstrip("/"), objects, stores)
