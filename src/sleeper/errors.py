"""Every error class of Sleeper.

The class tells what the caller can do. The message tells what happened, and what to do next.

    SleeperError
    ├── BadRequest (ValueError)        fix the call
    │   ├── SchemaInvalid · PropertiesInvalid · SplitPointsInvalid · QueryInvalid · SplitInvalid
    │   └── JobInvalid · UrlInvalid · NothingToPublish
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
    │   ├── PartitionNotInTree · JobAlreadyCommitted · TableChanged · RowsChanged
    │   └── ClockTooFarAhead · NewFilesTooOld · CommitTooLarge · StateMoved
    ├── CommitContended                try again: other writers committed first
    │   └── SplitAttemptsExceeded
    ├── CommitUnknown                  run the same job id again; delete no files
    │   └── CommitOverwritten           move to a store that honours conditional writes
    ├── TableFunctionFailed            correct the table's function, or its property
    ├── DataDamaged                    stored data is wrong or missing: restore it
    ├── ResultsIncomplete              ask the query again, under another id
    ├── SubmissionFailed               the cluster refused the job, or its driver failed
    ├── DeploymentFailed               correct what CloudFormation says, and deploy again
    ├── FormatTooNew                   upgrade Sleeper
    ├── LibraryFailed                  write the call in another way, or report the error
    ├── MissingExtra (ImportError)     install the optional part that the message names
    ├── AccessRefused                  send a token that is valid, and whose role is enough
    └── StorageFailed                  repair the storage, then try again
        ├── StorageFull · StorageReadOnly · ObjectNotFound · ObjectTooShort
        └── InstanceLost               open the instance again; look where it is
            └── InstanceGone · InstanceReplaced
"""

from __future__ import annotations

_PACKAGE = __file__.removesuffix("errors.py")
_OF_CELLS = ("ipykernel", "<ipython-input")
"""What is in the file names of cells."""


class SleeperError(Exception):
    """The base class of all errors that Sleeper raises.

    Attributes:
        retryable: True if the same call may succeed later.
    """

    retryable: bool = False

    def __reduce__(self) -> tuple[object, ...]:
        return restored, (type(self), self.args), self.__dict__

    def _render_traceback_(self) -> list[str]:
        """Return what a notebook shows: the caller's own lines, and the message.

        IPython asks for it. Lines inside this package say nothing to who made a wrong call;
        `traceback.print_exception` shows them all.
        """
        lines = []
        step = self.__traceback__
        while step is not None and not step.tb_frame.f_code.co_filename.startswith(_PACKAGE):
            code = step.tb_frame.f_code
            is_cell = any(part in code.co_filename for part in _OF_CELLS)
            if "/IPython/" not in code.co_filename.replace("\\", "/"):
                place = "the cell" if is_cell else code.co_filename
                inside = "" if code.co_name == "<module>" else f", in {code.co_name}()"
                lines.append(f"line {step.tb_lineno} of {place}{inside}")
            step = step.tb_next
        return [*lines, f"{type(self).__name__}: {self}"]


def restored(cls: type[SleeperError], args: tuple[object, ...]) -> SleeperError:
    """Return an error with `args`, which are not those that its class is called with."""
    return cls.__new__(cls, *args)


class BadRequest(SleeperError, ValueError):
    """An argument of the call is wrong. Correct it."""


class SchemaInvalid(BadRequest):
    """A table schema breaks a rule (rules SCH-1 to SCH-6)."""


class PropertiesInvalid(BadRequest):
    """One or more properties have values that are not allowed (rule INS-6).

    Attributes:
        failures: All failures: property name to message, in the order of properties.
    """

    def __init__(self, failures: dict[str, str]) -> None:
        first = next(iter(failures.values()))
        more = f" Failure 1 of {len(failures)}." if len(failures) > 1 else ""
        super().__init__(f"{first}{more}")
        self.failures = failures


class SplitPointsInvalid(BadRequest):
    """Split points have the wrong type, or are not strictly ascending (rule TBL-9)."""


class SplitInvalid(BadRequest):
    """A partition tree, or one split in it, breaks a rule (rules PRT-10, PRT-11)."""


class QueryInvalid(BadRequest):
    """A query names an unknown field, or has an impossible value or range."""


class JobInvalid(BadRequest):
    """A job breaks a rule; it was not started (rules ING-10, BLK-2).

    Attributes:
        failures: Every reason, in the order of the rules.
    """

    def __init__(self, failures: tuple[str, ...]) -> None:
        super().__init__("; ".join(failures))
        self.failures = failures


class NothingToPublish(BadRequest):
    """Other engines could read no version of the table as it is: compact what stands in the way."""


class UrlInvalid(BadRequest):
    """A URL has a scheme or a form that Sleeper does not support."""


class NotFound(SleeperError, LookupError):
    """A named thing does not exist."""


class InstanceNotFound(NotFound):
    """There is no instance at this URL."""


class TableNotFound(NotFound):
    """No table has this name or id."""


class PartitionNotFound(NotFound):
    """The partition tree has no partition with this id (rule STS-10)."""


class VersionNotFound(NotFound):
    """The table has no version with this transaction number, or no longer."""


class JobNotFound(NotFound):
    """A job is unknown: it was not sent, or its events have expired."""


class AlreadyExists(SleeperError):
    """A thing to be created exists already."""


class InstanceAlreadyExists(AlreadyExists):
    """There is an instance at this URL already."""


class TableAlreadyExists(AlreadyExists):
    """Another table has this name (rules TBL-1, TBL-3)."""


class InputRefused(SleeperError):
    """Input data does not fit the table. None of its rows became visible."""


class InputNotFound(InputRefused):
    """An input path is not a file, nor a folder with a Parquet file (rule ING-11)."""


class InputUnreadable(InputRefused):
    """An input file is truncated, damaged or has another format."""


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


class InsufficientData(InputRefused):
    """The input has too few rows or keys for the required number of leaves (rule BLK-10).

    Attributes:
        min_leaves: The required number of leaves.
        reached: The number of leaves that the input allows.
    """

    def __init__(self, min_leaves: int, reached: int) -> None:
        super().__init__(
            f"Required {min_leaves} minimum leaf partitions. Unable to reach more than "
            f"{reached} with this input: it has too few rows, or too few different row keys. "
            "Nothing was changed. Lower sleeper.table.bulk.import.min.leaf.partitions, or use "
            "standard ingest."
        )
        self.min_leaves, self.reached = min_leaves, reached


class CommitRefused(SleeperError):
    """The table's state does not allow this transaction. Plan again from the newest state."""


class CommitTooLarge(CommitRefused):
    """The table's state store cannot hold this transaction in one commit. Make it smaller."""


class FileAlreadyExists(CommitRefused):
    """A transaction adds a file that the table tracks already (rule STS-5)."""


class FileNotTracked(CommitRefused):
    """A transaction names a file that the table does not track (rules STS-6, STS-9)."""


class FileReferenceNotFound(CommitRefused):
    """A transaction reads a file that its partition does not reference (rules STS-6 to STS-8)."""


class FileReferenceAlreadyExists(CommitRefused):
    """A transaction adds a reference that a partition has already (rule STS-6)."""


class FileReferenceAssignedToJob(CommitRefused):
    """A reference is claimed by a job (rules STS-6, STS-7, STS-11)."""


class FileReferenceNotAssignedToJob(CommitRefused):
    """A compaction commits inputs that are not claimed by its job (rule STS-8)."""


class NewReferenceSameAsOldReference(CommitRefused, ValueError):
    """A compaction's output has the name of one of its inputs (rule STS-8)."""


class FileHasReferences(CommitRefused):
    """A transaction removes a file from the state that partitions still reference (rule STS-9)."""


class InitialiseWithFilesPresent(CommitRefused):
    """Partitions cannot be replaced while files are tracked (rule STS-1)."""


class PartitionSplitRefused(CommitRefused):
    """A split does not fit the current partition tree (rules STS-3, STS-4)."""


class PartitionMergeRefused(CommitRefused):
    """Two leaves cannot be merged in the current tree, or with its current files."""


class PartitionNotInTree(CommitRefused):
    """A reference is for a partition that the tree does not have, or has in the wrong place."""


class JobAlreadyCommitted(CommitRefused):
    """A job with this id was committed before: nothing is added.

    Attributes:
        number: The transaction that committed it.
    """

    def __init__(self, job_id: str, number: int) -> None:
        super().__init__(
            f"job {job_id!r} was committed by transaction {number}; running it again changes "
            "nothing. Choose another job id for other data."
        )
        self.job_id, self.number = job_id, number


class TableChanged(CommitRefused):
    """Another writer changed the table's name or properties first. Read them again."""


class RowsChanged(CommitRefused):
    """Rows were changed since the version that a commit relies on. Read them again.

    Attributes:
        since: The number of that version.
        leaves: The ids of the leaves that have changed.
    """

    def __init__(self, message: str, *, since: int = 0, leaves: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.since, self.leaves = since, leaves


class StateMoved(CommitRefused):
    """The table's state was moved to another state store. Open the table again, and try again."""


class ClockTooFarAhead(CommitRefused):
    """This machine's clock is too far ahead of the storage's. Correct it, then try again."""


class NewFilesTooOld(CommitRefused):
    """Files of a job were deleted, or are so old that a sweep may delete them. Run it again."""


class CommitContended(SleeperError):
    """Other writers committed first in every attempt. Nothing was written; try again."""

    retryable = True


class SplitAttemptsExceeded(CommitContended):
    """Other writers changed the partition tree in every attempt to extend it (rule BLK-10).

    Attributes:
        min_leaves, leaves: The wanted number of leaves, and the tree's.
        attempts: The number of attempts.
    """

    def __init__(self, min_leaves: int, leaves: int, attempts: int) -> None:
        super().__init__(
            f"the partition tree could not be extended to {min_leaves:,} leaves: other writers "
            f"changed it in each of {attempts} attempts; it has {leaves:,}. No row was imported. "
            "Try again when no other process splits this table, or increase "
            "sleeper.table.bulk.import.partition.splitting.attempts."
        )
        self.min_leaves, self.leaves, self.attempts = min_leaves, leaves, attempts


class CommitUnknown(SleeperError):
    """Storage did not confirm a commit. Delete no data files; run the same job id again."""

    retryable = True


class CommitOverwritten(CommitUnknown):
    """A committed log entry was replaced or deleted: the store does not honour conditional writes.

    The message names the entry. Do not delete data files of the commit.
    """

    retryable = False


class TableFunctionFailed(SleeperError):
    """The table's function is not allowed, missing, or failed. Nothing was added or replaced."""


class DataDamaged(SleeperError):
    """A stored file is missing, truncated or wrong. The message names it."""


class ResultsIncomplete(SleeperError):
    """Some rows of a query were sent to a queue of results, others not. Ask under another id.

    Attributes:
        rows_sent: How many rows were sent.
    """

    def __init__(self, message: str, rows_sent: int) -> None:
        super().__init__(message)
        self.rows_sent = rows_sent


class SubmissionFailed(SleeperError):
    """A cluster did not take a job, or the driver that was started for it failed.

    Attributes:
        retryable: True if the service was busy or not reachable, or the cluster is full: `is_full`.
    """

    def __init__(self, message: str, *, retryable: bool = False, is_full: bool = False) -> None:
        super().__init__(message)
        self.retryable, self.is_full = retryable, is_full


class DeploymentFailed(SleeperError):
    """CloudFormation could not deploy or remove a stack. What it did before stays as it is."""


class FormatTooNew(SleeperError):
    """Stored data was written by a newer Sleeper than this one."""


class LibraryFailed(SleeperError):
    """A native library ended a call by an internal error (a panic). The message names it."""


class MissingExtra(SleeperError, ImportError):
    """An optional part of Sleeper is not installed. The message says how to install it."""


class AccessRefused(SleeperError):
    """A request to a server has no valid token, or one whose role is too small.

    Attributes:
        is_known: True if the token is valid, and only its role is too small.
    """

    def __init__(self, message: str, *, is_known: bool = False) -> None:
        super().__init__(message)
        self.is_known = is_known


class StorageFailed(SleeperError):
    """An operation of the storage failed."""

    retryable = True


class StorageFull(StorageFailed):
    """The storage has no space left."""


class StorageReadOnly(StorageFailed):
    """The storage does not allow writes."""

    retryable = False


class ObjectNotFound(StorageFailed):
    """A requested object does not exist."""

    retryable = False


class ObjectTooShort(StorageFailed):
    """An object ends before bytes that were requested: it was truncated, or replaced."""

    retryable = False


class InstanceLost(StorageFailed):
    """The instance that a handle opened is not at its place any more. Nothing was written.

    The handle refuses reads and commits. It looks again at each call, and works again as soon as
    the place has what the handle has seen, for instance because a folder was moved back.
    """


class InstanceGone(InstanceLost):
    """There is no instance at the place where one was opened: it was moved, deleted or unmounted.

    Put it back, or open it where it is now.
    """


class InstanceReplaced(InstanceLost):
    """Another instance, or an older copy, is at the place: for instance a restored backup.

    What this process has read or committed is not in it. Open the instance again, and run jobs
    again with their ids: what is missing is added.
    """

    retryable = False


def is_panic(error: BaseException) -> bool:
    """Return whether an exception is a panic of a library in Rust.

    It is no `Exception`, and each library has a class of its own, which cannot be imported.
    """
    return not isinstance(error, Exception) and type(error).__name__ == "PanicException"


def ends_process(error: BaseException) -> bool:
    """Return whether an exception asks this process to end: it is no failure of what ran."""
    return isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit)
