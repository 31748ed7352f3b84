"""Every error that Sleeper raises on purpose.

A class says what the caller can do; the message says what happened, and what next.

    SleeperError
    ├── BadRequest (ValueError)        fix the call
    │   ├── SchemaInvalid · PropertiesInvalid · SplitPointsInvalid · QueryInvalid · SplitInvalid
    │   └── JobInvalid · UrlInvalid
    ├── NotFound (LookupError)         name something that exists
    │   ├── InstanceNotFound · TableNotFound · PartitionNotFound · VersionNotFound · JobNotFound
    ├── AlreadyExists                  choose another name, or use what is there
    │   ├── InstanceAlreadyExists · TableAlreadyExists
    ├── InputRefused                   fix the input data; nothing was written to the table
    │   ├── InputNotFound · InputUnreadable · InputSchemaMismatch · NullKeys
    │   └── InsufficientData
    ├── CommitRefused                  plan again from fresh state
    │   ├── FileAlreadyExists · FileNotTracked · FileReferenceNotFound
    │   ├── FileReferenceAlreadyExists · FileReferenceAssignedToJob
    │   ├── FileReferenceNotAssignedToJob · NewReferenceSameAsOldReference · FileHasReferences
    │   ├── InitialiseWithFilesPresent · PartitionSplitRefused · PartitionMergeRefused
    │   ├── PartitionNotInTree · JobAlreadyCommitted · TableChanged
    │   └── ClockTooFarAhead · NewFilesTooOld
    ├── CommitContended                try again: others were faster
    │   └── SplitAttemptsExceeded
    ├── CommitUnknown                  ask the log before doing anything; delete nothing
    │   └── CommitOverwritten           move to a store that keeps the condition of a commit
    ├── TableFunctionFailed            mend the table's own function, or its property
    ├── DataDamaged                    stored data is wrong or missing: restore it
    ├── SubmissionFailed               the cluster refused the job, or its driver failed
    ├── FormatTooNew                   upgrade Sleeper
    ├── MissingExtra (ImportError)     install the optional part that the message names
    └── StorageFailed                  mend the storage, then try again
        └── StorageFull · StorageReadOnly · ObjectNotFound
"""

from __future__ import annotations


class SleeperError(Exception):
    """The base of every deliberate error.

    Attributes:
        retryable: True when the very same call may succeed later.
    """

    retryable: bool = False


class BadRequest(SleeperError, ValueError):
    """The call itself is wrong. Fix its arguments."""


class SchemaInvalid(BadRequest):
    """A table schema breaks a rule (rules SCH-1 to SCH-6)."""


class PropertiesInvalid(BadRequest):
    """One or more properties have values that are not allowed (rule INS-6).

    Attributes:
        failures: Every failure, property name to message, in property order.
    """

    def __init__(self, failures: dict[str, str]) -> None:
        first = next(iter(failures.values()))
        more = f" Failure 1 of {len(failures)}." if len(failures) > 1 else ""
        super().__init__(f"{first}{more}")
        self.failures = failures

    def __reduce__(self) -> tuple[type[PropertiesInvalid], tuple[dict[str, str]]]:
        return type(self), (self.failures,)


class SplitPointsInvalid(BadRequest):
    """Split points are of the wrong type, or not strictly ascending (rule TBL-9)."""


class SplitInvalid(BadRequest):
    """A partition tree, or one split in it, breaks a rule (rules PRT-10, PRT-11)."""


class QueryInvalid(BadRequest):
    """A query names an unknown field, or a range that cannot be."""


class JobInvalid(BadRequest):
    """A job breaks a rule; nothing of it was started (rules ING-10, BLK-2).

    Attributes:
        failures: Every reason, in the order of the rules.
    """

    def __init__(self, failures: tuple[str, ...]) -> None:
        super().__init__("; ".join(failures))
        self.failures = failures

    def __reduce__(self) -> tuple[type[JobInvalid], tuple[tuple[str, ...]]]:
        return type(self), (self.failures,)


class UrlInvalid(BadRequest):
    """An instance URL has a scheme or a form that Sleeper does not know."""


class NotFound(SleeperError, LookupError):
    """Something that was named does not exist."""


class InstanceNotFound(NotFound):
    """No instance lives at this URL."""


class TableNotFound(NotFound):
    """No table has this name or id."""


class PartitionNotFound(NotFound):
    """The partition tree has no partition with this id (rule STS-10)."""


class VersionNotFound(NotFound):
    """The table has no state at this transaction number, or no longer."""


class JobNotFound(NotFound):
    """Nothing is known of a job: it was not sent, or its events have expired."""


class AlreadyExists(SleeperError):
    """Something that was to be made is there already."""


class InstanceAlreadyExists(AlreadyExists):
    """An instance lives at this URL already."""


class TableAlreadyExists(AlreadyExists):
    """Another table has this name (rules TBL-1, TBL-3)."""


class InputRefused(SleeperError):
    """Input data cannot go into the table. Nothing of it was made visible."""


class InputNotFound(InputRefused):
    """An input path names no file, or a folder that holds no Parquet file (rule ING-11)."""


class InputUnreadable(InputRefused):
    """An input file is truncated, damaged or of another format."""


class InputSchemaMismatch(InputRefused):
    """Columns of the input do not fit the table's schema (rule ING-14)."""


class NullKeys(InputRefused):
    """Rows have a null in a row key or sort key field.

    Attributes:
        null_counts: Rows with a null, by field name.
    """

    def __init__(self, message: str, null_counts: dict[str, int]) -> None:
        super().__init__(message)
        self.null_counts = null_counts

    def __reduce__(self) -> tuple[type[NullKeys], tuple[str, dict[str, int]]]:
        return type(self), (str(self), self.null_counts)


class InsufficientData(InputRefused):
    """The input cannot give the partition tree as many leaves as it must have (rule BLK-10).

    Attributes:
        min_leaves: Leaves that a bulk import wants.
        reached: Leaves that the input is good for.
    """

    def __init__(self, min_leaves: int, reached: int) -> None:
        super().__init__(
            f"Required {min_leaves} minimum leaf partitions. Unable to reach more than "
            f"{reached} with this input: it has too few rows, or too few different row keys. "
            "Nothing was changed. Lower sleeper.table.bulk.import.min.leaf.partitions, or use "
            "standard ingest."
        )
        self.min_leaves, self.reached = min_leaves, reached

    def __reduce__(self) -> tuple[type[InsufficientData], tuple[int, int]]:
        return type(self), (self.min_leaves, self.reached)


class CommitRefused(SleeperError):
    """The table's state forbids this transaction. Plan again from fresh state."""


class FileAlreadyExists(CommitRefused):
    """A transaction adds a file that the table tracks already (rule STS-5)."""


class FileNotTracked(CommitRefused):
    """A transaction names a file that the table does not track (rules STS-6, STS-9)."""


class FileReferenceNotFound(CommitRefused):
    """A transaction reads a file that its partition does not reference (rules STS-6 to STS-8)."""


class FileReferenceAlreadyExists(CommitRefused):
    """A transaction adds a reference that a partition has already (rule STS-6)."""


class FileReferenceAssignedToJob(CommitRefused):
    """A reference is locked by a job (rules STS-6, STS-7, STS-11)."""


class FileReferenceNotAssignedToJob(CommitRefused):
    """A compaction commits inputs that are not locked by its job (rule STS-8)."""


class NewReferenceSameAsOldReference(CommitRefused, ValueError):
    """A compaction's output has the name of one of its inputs (rule STS-8)."""


class FileHasReferences(CommitRefused):
    """A file is to be forgotten while partitions still reference it (rule STS-9)."""


class InitialiseWithFilesPresent(CommitRefused):
    """Partitions cannot be replaced while files are tracked (rule STS-1)."""


class PartitionSplitRefused(CommitRefused):
    """A split does not fit the partition tree as it is now (rules STS-3, STS-4)."""


class PartitionMergeRefused(CommitRefused):
    """Two leaves cannot become one as the tree and its files are now."""


class PartitionNotInTree(CommitRefused):
    """A reference is to go on a partition that the tree does not have, or not where it must be."""


class JobAlreadyCommitted(CommitRefused):
    """A job with this id has been committed before: the work is done, nothing is to be added.

    Attributes:
        number: The transaction that committed it.
    """

    def __init__(self, job_id: str, number: int) -> None:
        super().__init__(
            f"job {job_id!r} was committed by transaction {number}; running it again changes "
            "nothing. Choose another job id for other data."
        )
        self.job_id, self.number = job_id, number

    def __reduce__(self) -> tuple[type[JobAlreadyCommitted], tuple[str, int]]:
        return type(self), (self.job_id, self.number)


class TableChanged(CommitRefused):
    """Somebody else changed the table's name or properties first. Read them again."""


class ClockTooFarAhead(CommitRefused):
    """This machine's clock is too far ahead of the storage's. Set it right, then try again."""


class NewFilesTooOld(CommitRefused):
    """Files that a job wrote are gone, or so old that a sweep may delete them. Run it again."""


class CommitContended(SleeperError):
    """Other writers won every race. Nothing was written; try again."""

    retryable = True


class SplitAttemptsExceeded(CommitContended):
    """The partition tree changed each time that it was to be extended (rule BLK-10).

    Attributes:
        min_leaves: Leaves that a bulk import wants.
        leaves: Leaves that the tree has.
        attempts: How often extending it was tried.
    """

    def __init__(self, min_leaves: int, leaves: int, attempts: int) -> None:
        super().__init__(
            f"the partition tree was to be extended to {min_leaves:,} leaves, but others changed "
            f"it meanwhile {attempts} times; it has {leaves:,}. No row was imported. Try again "
            "when nobody else splits this table, or raise "
            "sleeper.table.bulk.import.partition.splitting.attempts."
        )
        self.min_leaves, self.leaves, self.attempts = min_leaves, leaves, attempts

    def __reduce__(self) -> tuple[type[SplitAttemptsExceeded], tuple[int, int, int]]:
        return type(self), (self.min_leaves, self.leaves, self.attempts)


class CommitUnknown(SleeperError):
    """No answer says whether the commit happened.

    Its data files must stay where they are. Run the same job id again once the
    storage answers: if the commit did happen, the job is recognised and changes nothing.
    """

    retryable = True


class CommitOverwritten(CommitUnknown):
    """A committed log entry was replaced or deleted: the store broke the condition of a commit.

    The message names the entry. Data files of the commit must stay where they are.
    """

    retryable = False


class TableFunctionFailed(SleeperError):
    """The function that a table names is not allowed here, missing, raised, or broke its contract.

    Where rows were being written, nothing was added or replaced.
    """


class DataDamaged(SleeperError):
    """A stored file is missing, truncated or wrong. The message names it."""


class SubmissionFailed(SleeperError):
    """A cluster did not take a job, or the driver that was started for it failed.

    Attributes:
        retryable: True when the cluster's service was busy or out of reach.
    """

    def __init__(self, message: str, *, retryable: bool = False) -> None:
        super().__init__(message)
        self.retryable = retryable

    def __reduce__(self) -> tuple[type[SubmissionFailed], tuple[str], dict[str, bool]]:
        return type(self), (str(self),), {"retryable": self.retryable}


class FormatTooNew(SleeperError):
    """Stored data was written by a newer Sleeper than this one."""


class MissingExtra(SleeperError, ImportError):
    """An optional part of Sleeper is not installed. The message says how to install it."""


class StorageFailed(SleeperError):
    """The storage did not do what it was asked."""

    retryable = True


class StorageFull(StorageFailed):
    """No space is left for what was to be written."""


class StorageReadOnly(StorageFailed):
    """The storage may not be written to."""

    retryable = False


class ObjectNotFound(StorageFailed):
    """An object that was asked for does not exist."""

    retryable = False
