"""What a reader sees of a table while others write it: files, bytes, jobs, a look-up."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from time import monotonic, perf_counter
from urllib.request import ProxyHandler, build_opener

import sleeper
from bench.a_day import live_files
from sleeper.state.log_entry import decode_entry
from sleeper.state.transactions.files import AddFiles


@dataclass(frozen=True, slots=True)
class Look:
    """What a reader saw at one moment.

    Attributes:
        at_s: Seconds since the first file was submitted.
        transaction: The table's newest transaction.
        files_mean: Files in a leaf.
        files_max: Files in the leaf that has most.
        ingests: Jobs that were committed.
        waiting: Files that were submitted and are in no job yet.
        queued: Jobs in the ingest queue, or at work.
        stored_bytes: Bytes of data files.
        written_bytes: Those of all that were ever there.
        lookup_s: How long a look-up of a key took.
    """

    at_s: float
    transaction: int
    files_mean: float
    files_max: int
    ingests: int
    waiting: int
    queued: int
    stored_bytes: int
    written_bytes: int
    lookup_s: float


class Observer:
    """Looks at a table while others write it.

    Args:
        instance: The instance.
        port: Where `sleeper serve` answers with metrics.
        key: A key to look up.
    """

    def __init__(self, instance: sleeper.Instance, port: int, key: str) -> None:
        self.table = instance.table("bench")
        self.root = Path(self.table._context.objects.url(self.table.table_id))
        self.sizes: dict[str, int] = {}
        self.ingested: list[list[str]] = []
        self.looks: list[Look] = []
        self._instance, self._key = instance, key
        self._metrics = f"http://127.0.0.1:{port}/metrics"
        self._begun = monotonic()
        self._read = 0

    def seconds(self) -> float:
        """Return the seconds since the beginning."""
        return monotonic() - self._begun

    def look(self) -> Look:
        """Look once."""
        transaction = self.table.refresh()
        at_s = self.seconds()
        counts = [len(leaf) for leaf in live_files(self.table)]
        begin = perf_counter()
        self.table.query(key=self._key).to_arrow()
        lookup_s = perf_counter() - begin
        stored_bytes = self._stored_bytes()
        self._read_log(transaction)
        seen = Look(
            at_s=at_s,
            transaction=transaction,
            files_mean=fmean(counts),
            files_max=max(counts),
            ingests=len(self.ingested),
            waiting=sum(1 for _ in self._instance.jobs.submitted_files(pending=True)),
            queued=self._queued(),
            stored_bytes=stored_bytes,
            written_bytes=sum(self.sizes.values()),
            lookup_s=lookup_s,
        )
        self.looks.append(seen)
        return seen

    def seen_at(self, transaction: int) -> float:
        """Return when a transaction was seen first."""
        return next(look.at_s for look in self.looks if look.transaction >= transaction)

    def _stored_bytes(self) -> int:
        """Take note of new files, and return the bytes of all that are there."""
        stored = 0
        folders = os.scandir(self.root / "data") if (self.root / "data").exists() else ()
        for folder in folders:
            for file in os.scandir(folder):
                if file.name not in self.sizes:
                    try:
                        self.sizes[file.name] = file.stat().st_size
                    except FileNotFoundError:
                        continue
                stored += self.sizes[file.name]
        return stored

    def _queued(self) -> int:
        """Return how many ingest jobs wait or are at work, as the metrics of serve say."""
        with build_opener(ProxyHandler({})).open(self._metrics, timeout=30) as reply:
            text = reply.read().decode()
        found = re.findall(r'sleeper_queue_messages_\w+\{queue="ingest"\} (\d+)', text)
        return sum(map(int, found))

    def _read_log(self, last: int) -> None:
        """Take note of the files that ingests added, by the new entries of the log."""
        folder = self.root / "statestore" / "transactions"
        for number in range(self._read + 1, last + 1):
            body = (folder / f"{number:020}.json").read_bytes()
            self.ingested += [
                [Path(reference.filename).name for reference in each.references]
                for each in decode_entry(body, self.table.schema, f"entry {number}").transactions
                if isinstance(each, AddFiles)
            ]
        self._read = last
