"""What is kept of each purge, as an object in the table's folder: how far it is, then its proof.

    <table id>/purges/<purge id>.json

It has no key: of all keys of the request together there is a salted digest, by which the same
request finds its own purge again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

from sleeper.errors import DataDamaged, FormatTooNew
from sleeper.html.values import NotebookHtml
from sleeper.ports.objects import Objects
from sleeper.state.value_json import time_from_json, time_to_json

FORMAT: Final = 1
PURGES: Final = "purges/"

_NOT_OBJECTS = (ValueError, TypeError, LookupError, AttributeError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Searched(NotebookHtml):
    """What was searched for the keys when all was done.

    Attributes:
        kind: What it is, such as `data files`.
        objects: How many of them.
        size_bytes: Their size.
    """

    kind: str
    objects: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeFinding(NotebookHtml):
    """Something that still has a purged key.

    Attributes:
        where: The object or the queue.
        what: What it has.
        next_step: What to do.
    """

    where: str
    what: str
    next_step: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Mention(NotebookHtml):
    """Rows that stay and have a purged key in a column that is no row key.

    Attributes:
        where: The object.
        column: The column.
        rows: How many values.
    """

    where: str
    column: str
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Purge(NotebookHtml):
    """A purge of row keys: its proof, once it is finished.

    Attributes:
        purge_id: Its id.
        table: The table's name.
        table_id: The table's id.
        keys: How many row keys.
        salt: Random text in hexadecimal.
        digest: SHA-256, in hexadecimal, of the salt and all keys together: whoever has the list of
            keys can tell that it was this one.
        by: Who asked for it.
        reason: Why.
        started_at: When it began.
        finished_at: When it ended; None while it has not.
        steps: What is done, in order.
        versions_before: Versions before this transaction ended, as they had the rows; None until
            they have.
        counts: What was removed and written, by name.
        searched: What was searched at the end.
        findings: What still has a key.
        mentions: Columns of other rows that have a key as their value.
        searched_as_values: How many keys are numbers, or too short to be told from other bytes:
            they were searched where values are decoded, and not among the bytes of other objects.
        out_of_reach: What may have keys, and was not searched.
    """

    purge_id: str
    table: str
    table_id: str
    keys: int
    salt: str
    digest: str
    by: str | None = None
    reason: str | None = None
    started_at: datetime
    finished_at: datetime | None = None
    steps: tuple[str, ...] = ()
    versions_before: int | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    searched: tuple[Searched, ...] = ()
    findings: tuple[PurgeFinding, ...] = ()
    mentions: tuple[Mention, ...] = ()
    searched_as_values: int = 0
    out_of_reach: tuple[str, ...] = ()

    @property
    def finished(self) -> bool:
        """Whether all is done, and nothing was found that still has a key."""
        return self.finished_at is not None and not self.findings

    def counted(self, **more: int) -> Purge:
        """Return it with higher counts."""
        counts = {**self.counts}
        for name, number in more.items():
            counts[name] = counts.get(name, 0) + number
        return replace(self, counts=counts)

    def to_json(self) -> dict[str, Any]:
        """Return it as a JSON object; `docs/format.md` has its fields."""
        document = {
            "format": FORMAT,
            "purgeId": self.purge_id,
            "table": self.table,
            "tableId": self.table_id,
            "keys": self.keys,
            "salt": self.salt,
            "digest": self.digest,
            "by": self.by,
            "reason": self.reason,
            "startedAt": time_to_json(self.started_at),
            "finishedAt": None if self.finished_at is None else time_to_json(self.finished_at),
            "finished": self.finished,
            "steps": [*self.steps],
            "versionsBefore": self.versions_before,
            "counts": {**self.counts},
            "searched": [
                {"kind": each.kind, "objects": each.objects, "sizeBytes": each.size_bytes}
                for each in self.searched
            ],
            "findings": [
                {"where": each.where, "what": each.what, "nextStep": each.next_step}
                for each in self.findings
            ],
            "mentions": [
                {"where": each.where, "column": each.column, "rows": each.rows}
                for each in self.mentions
            ],
            "searchedAsValues": self.searched_as_values,
            "outOfReach": [*self.out_of_reach],
        }
        return {name: value for name, value in document.items() if value is not None}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Purge:
        """Read what `to_json` returned.

        Raises:
            ValueError, TypeError, LookupError, AttributeError: it is something else.
        """
        finished_at = document.get("finishedAt")
        return cls(
            purge_id=document["purgeId"],
            table=document["table"],
            table_id=document["tableId"],
            keys=document["keys"],
            salt=document["salt"],
            digest=document["digest"],
            by=document.get("by"),
            reason=document.get("reason"),
            started_at=time_from_json(document["startedAt"]),
            finished_at=None if finished_at is None else time_from_json(finished_at),
            steps=(*document["steps"],),
            versions_before=document.get("versionsBefore"),
            counts=dict(document["counts"]),
            searched=tuple(
                Searched(kind=each["kind"], objects=each["objects"], size_bytes=each["sizeBytes"])
                for each in document["searched"]
            ),
            findings=tuple(
                PurgeFinding(where=each["where"], what=each["what"], next_step=each["nextStep"])
                for each in document["findings"]
            ),
            mentions=tuple(
                Mention(where=each["where"], column=each["column"], rows=each["rows"])
                for each in document["mentions"]
            ),
            searched_as_values=document["searchedAsValues"],
            out_of_reach=(*document["outOfReach"],),
        )


def save(files: Objects, purge: Purge) -> None:
    """Store how far a purge is."""
    body = json.dumps(purge.to_json(), ensure_ascii=False, indent=1).encode()
    files.put(f"{PURGES}{purge.purge_id}.json", body)


def stored(files: Objects) -> Iterator[Purge]:
    """Yield what is kept of each purge of a table.

    Raises:
        DataDamaged, FormatTooNew: one cannot be read.
    """
    for info in files.listing(PURGES):
        body = files.read(info.key)
        if body is None:
            continue
        try:
            document = json.loads(body)
            if document["format"] > FORMAT:
                raise FormatTooNew(
                    f"{files.url(info.key)} has format {document['format']}; this Sleeper reads "
                    f"formats up to {FORMAT}. Upgrade Sleeper to read it."
                )
            yield Purge.from_json(document)
        except _NOT_OBJECTS as error:
            raise DataDamaged(
                f"{files.url(info.key)} is not what a purge has stored: {error!r}. Delete it, and "
                "purge the same keys again"
            ) from error


def purged_up_to(files: Objects) -> int:
    """Return the transaction before which entries of the log may lack keys; 0 without purges."""
    return max((each.versions_before or 0 for each in stored(files)), default=0)
