"""What all formats are told of a table and of one version of it, and what they tell of theirs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

import pyarrow as pa

from sleeper.errors import DataDamaged
from sleeper.model.schema import Schema
from sleeper.ports.objects import Objects
from sleeper.state.file_references import FileReferences


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedTable:
    """What formats tell of a table in each version.

    Attributes:
        table_id: Its id.
        name: Its name.
        schema: Its schema.
        url: The absolute path or URL of its folder.
    """

    table_id: str
    name: str
    schema: Schema
    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FileTotals:
    """How many files there are, with their bytes and rows together."""

    files: int
    size_bytes: int
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NewVersion:
    """What is to be published.

    Attributes:
        transaction: The transaction whose state it is.
        at: When that was committed (aware, UTC).
        files: Returns its data files, with the columns of `FileReferences.data_files`.
        added: Those that the version before does not have.
        removed: Names of files that only the version before has.
        totals: What all its files are together.
    """

    transaction: int
    at: datetime
    files: Callable[[], pa.Table]
    added: pa.Table
    removed: pa.Array
    totals: FileTotals


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedVersion:
    """A version that readers of a format can open.

    Attributes:
        version: Its number in the format: 0, 1, 2, ...
        transaction: The transaction whose state it is.
        described: A digest of what it tells of the table besides files, such as its columns.
        since_base: How many files changed since the format's last complete list of files.
        base: The version that has that list; -1 if there is none.
        totals: What its files are together.
    """

    version: int
    transaction: int
    described: str
    since_base: int
    base: int
    totals: FileTotals

    @staticmethod
    def number_after(before: PublishedVersion | None) -> int:
        """Return the number of the version after one; of the first where there is none before."""
        return 0 if before is None else before.version + 1


@dataclass(frozen=True, slots=True)
class LastPublished:
    """What a process knows of the version that was published last.

    Attributes:
        version: The version.
        files: The files of its state; None if this process did not publish it.
    """

    version: PublishedVersion
    files: FileReferences | None


@dataclass(frozen=True, slots=True)
class StoredVersion:
    """A version as a listing shows it: its number, and when it was stored."""

    version: int
    stored: datetime


def stored_body(files: Objects, key: str) -> bytes:
    """Return an object of a published table that must be there.

    Raises:
        DataDamaged: it is not.
    """
    body = files.read(key)
    if body is None:
        raise DataDamaged(
            f"{key} is missing: something else deleted from the published table. Unpublish it, "
            "and publish it again."
        )
    return body


class PublishedLog(Protocol):
    """The versions of one table in one format. The last write of a version makes it visible."""

    def newest(self) -> PublishedVersion | None:
        """Return the newest version; None before the first."""
        ...

    def names(self, version: PublishedVersion) -> pa.Array:
        """Return the names of the data files of a version, in any order."""
        ...

    def publish(
        self, table: PublishedTable, before: PublishedVersion | None, new: NewVersion
    ) -> PublishedVersion | None:
        """Publish the version after `before`; None if another publisher was faster."""
        ...

    def described_by(self, table: PublishedTable) -> str:
        """Return a digest of what a version tells of its table besides files."""
        ...

    def location(self, table: PublishedTable) -> str:
        """Return what a reader is given to open the table."""
        ...

    def is_there(self, version: PublishedVersion) -> bool:
        """Return whether a version is stored."""
        ...

    def complete(self, version: PublishedVersion) -> None:
        """Write what a publisher that was killed left out of the newest version."""
        ...

    def versions(self) -> list[StoredVersion]:
        """Return the versions that can be opened, the oldest first."""
        ...

    def forget(self, before: int) -> int:
        """Delete what only versions before one need; return how many objects that were."""
        ...

    def remove(self) -> int:
        """Delete all versions; return how many objects that were."""
        ...
