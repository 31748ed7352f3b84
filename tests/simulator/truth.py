"""What is true of a simulated table, said once more in plain lists and sets.

It sees each entry of the log at the moment that it comes into being, and what every party is told.
A version of the table is the set of attempts whose rows it holds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

Row = tuple[int, int, str]
_ENTRY = re.compile(r"\w+/statestore/transactions/(\d{20})\.json")
_DATA_FILE = re.compile(r"data/partition_[^\"/]+/[^\"/]+\.parquet")


@dataclass
class Attempt:
    """One try of a job: its rows, the files that it wrote, and what was told of it.

    Attributes:
        job: The job's id; None for work without one.
        rows: Each names the attempt.
        denied: Whether somebody was told that the rows are not in the table.
    """

    label: str
    job: str | None
    rows: list[Row]
    files: set[str] = field(default_factory=set)
    denied: str = ""

    def opened(self, key: str) -> None:
        self.files.add(key)


@dataclass
class Truth:
    """One table: its versions, the attempts of all jobs, and when each version was replaced.

    Attributes:
        versions: The attempts whose rows each transaction number holds.
        ended: When each version was replaced by the next one; none for the newest.
    """

    gc_delay: timedelta
    attempts: dict[str, Attempt] = field(default_factory=dict)
    versions: list[frozenset[str]] = field(default_factory=lambda: [frozenset()])
    ended: list[datetime] = field(default_factory=list)
    committed_jobs: dict[str, int] = field(default_factory=dict)

    def copy(self) -> Truth:
        """The same again; attempts that have ended are shared."""
        return replace(
            self,
            attempts={**self.attempts},
            versions=[*self.versions],
            ended=[*self.ended],
            committed_jobs={**self.committed_jobs},
        )

    @property
    def number(self) -> int:
        return len(self.versions) - 1

    def begin(self, job: str | None, keys: list[int]) -> Attempt:
        """Return a new attempt with a row for each key."""
        label = f"{job or 'nameless'}/{len(self.attempts)}"
        rows = [(key, place, label) for place, key in enumerate(keys)]
        self.attempts[label] = attempt = Attempt(label, job, rows)
        return attempt

    # ------------------------------------------------------------ what happens

    def created(self, key: str, body: bytes, now: datetime) -> None:
        """See an object come into being; the log's entries are what counts."""
        found = _ENTRY.fullmatch(key)
        if found is None:
            return
        assert int(found[1]) == self.number + 1, f"{key} follows on {self.number}"
        holds = set(self.versions[-1])
        document = json.loads(body)
        for transaction in document["transactions"]:
            if transaction["type"] == "ADD_FILES":
                holds.add(self._added(transaction))
        holds.discard("")
        self.versions.append(frozenset(holds))
        self.ended.append(now)

    def _added(self, transaction: Any) -> str:
        """The attempt whose files an entry adds: all of them, once, and of a job once."""
        names = set(_DATA_FILE.findall(json.dumps(transaction)))
        owners = [each for each in self.attempts.values() if each.files & names]
        assert len(owners) == 1, f"{names} were written by {owners}"
        (attempt,) = owners
        assert names == attempt.files, f"{attempt} is committed in part: {names}"
        assert attempt.label not in self.versions[-1], f"{attempt} is committed twice"
        assert not attempt.denied, f"{attempt} is committed, and {attempt.denied} denied it"
        if attempt.job is not None:
            assert attempt.job not in self.committed_jobs, f"{attempt.job} is committed twice"
            self.committed_jobs[attempt.job] = self.number + 1
        return attempt.label

    # ------------------------------------------------------------ what is told

    def acknowledged(self, attempt: Attempt, result: Any) -> None:
        """Check what an ingest said that came to its end."""
        assert 0 < result.transaction <= self.number
        if result.already_committed:
            assert attempt.job is not None
            assert self.committed_jobs[attempt.job] == result.transaction
            assert attempt.label not in self.versions[-1]
            attempt.denied = "a result"
            return
        assert attempt.label in self.versions[result.transaction], "an acknowledged job is lost"
        assert attempt.label not in self.versions[result.transaction - 1]
        assert attempt.label in self.versions[-1]

    def denies(self, attempt: Attempt, error: Exception) -> None:
        """Check an error that says the table is as it was."""
        attempt.denied = repr(error)
        assert attempt.label not in self.versions[-1], f"{attempt} is there"

    def check_rows(self, number: int, rows: list[Row], wanted: Callable[[Row], bool]) -> None:
        """Check an answer: exactly the rows of one version that were asked for, in order."""
        keys = [row[:2] for row in rows]
        assert keys == sorted(keys), "rows are out of order"
        holds = self.versions[number]
        expected = [row for label in holds for row in self.attempts[label].rows if wanted(row)]
        assert sorted(rows) == sorted(expected), f"version {number} is read wrong"

    def must_be_readable(self, number: int, now: datetime) -> bool:
        """Whether the files of a version may not be deleted yet."""
        return number >= self.number or now - self.ended[number] < self.gc_delay
