"""What becomes of a message whose job failed."""

from __future__ import annotations

import inspect

import pytest

from sleeper import errors
from sleeper.errors import (
    BadRequest,
    CommitContended,
    InputUnreadable,
    JobAlreadyCommitted,
    StorageFailed,
    SubmissionFailed,
)
from sleeper.model.jobs.redelivery import may_pass, plan_redelivery, reasons_of

PASSING = {
    *("CommitContended", "SplitAttemptsExceeded", "CommitUnknown", "StorageFailed", "StorageFull"),
    *("CommitRefused", "FileAlreadyExists", "FileNotTracked", "FileReferenceNotFound"),
    *("FileReferenceAlreadyExists", "FileReferenceAssignedToJob", "FileReferenceNotAssignedToJob"),
    *("NewReferenceSameAsOldReference", "FileHasReferences", "InitialiseWithFilesPresent"),
    *("PartitionSplitRefused", "PartitionMergeRefused", "PartitionNotInTree", "TableChanged"),
    *("ClockTooFarAhead", "NewFilesTooOld", "StateMoved"),
    *("InstanceGone", "InstanceLost"),  # the folder may come back
}
CLASSES = [each for _, each in inspect.getmembers(errors, inspect.isclass)]


def made(kind: type[Exception]) -> Exception:
    """An error of a class, whatever its arguments are."""
    return kind.__new__(kind)


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_error_of_ours_may_pass_or_never_will(kind):
    """A new class is decided here: what the storage or other writers did may pass."""
    error = made(kind)
    if kind is SubmissionFailed:
        error.retryable = False

    assert may_pass(error) is (kind.__name__ in PASSING)


def test_a_busy_cluster_may_pass():
    """The error says so itself."""
    assert may_pass(SubmissionFailed("busy", retryable=True))


@pytest.mark.parametrize("error", [OSError("x"), MemoryError(), KeyError("k"), TypeError()])
def test_other_errors_may_be_anything(error):
    """So they are tried again, while attempts are left."""
    assert may_pass(error)


def redelivery(error: Exception | None = None, **changes: float):
    """What becomes of a message that was received once, of three times."""
    error = error or StorageFailed("x")
    numbers = {"receives": 1, "receives_max": 3, "first_s": 10, "max_s": 900}
    return plan_redelivery(error, **{**numbers, **changes})


@pytest.mark.parametrize(
    ("receives", "delay_s"), [(1, 10), (2, 20), (3, 40), (7, 640), (8, 900), (5000, 900)]
)
def test_the_wait_doubles_up_to_a_limit(receives, delay_s):
    """However often it failed."""
    assert redelivery(receives=receives, receives_max=9999).delay_s == delay_s


def test_no_wait_when_none_is_wanted():
    """Nothing doubled is nothing."""
    assert redelivery(first_s=0, receives=2).delay_s == 0


@pytest.mark.parametrize(
    ("receives", "reason"),
    [(3, "failed 3 times, at last: x"), (12, "failed 12 times, at last: x")],
)
def test_the_last_failure_makes_a_dead_letter(receives, reason):
    """It says how often, and why the last time."""
    after = redelivery(receives=receives)

    assert (after.is_dead, after.reason) == (True, reason)


def test_what_cannot_pass_is_a_dead_letter_at_once():
    """With the whole chain of reasons."""
    error = InputUnreadable("june.parquet cannot be read")
    error.__cause__ = ValueError("no magic number")

    after = redelivery(error)

    assert after.is_dead
    assert after.reason == (
        "trying it again cannot help: june.parquet cannot be read; "
        "because: ValueError: no magic number"
    )


def test_a_message_that_goes_back_has_no_reason_to_be_dead():
    """It is alive."""
    after = redelivery(CommitContended("others won"))

    assert (after.is_dead, after.reason) == (False, "")


def test_one_attempt_is_no_retry():
    """The first failure is the last."""
    assert redelivery(receives_max=1).reason == "failed once, at last: x"


class TestReasons:
    """The chain of messages (TRK-5)."""

    def test_outermost_first(self):
        """Each error, then what caused it or came before it (TRK-5)."""
        try:
            try:
                try:
                    raise OSError(28, "No space left on device")
                except OSError as error:
                    raise StorageFailed("cannot write a.parquet") from error
            except StorageFailed:
                raise BadRequest("the job failed") from None
        except BadRequest as error:
            hidden = reasons_of(error)
            error.__suppress_context__ = False
            shown = reasons_of(error)

        assert hidden == ("the job failed",)
        assert shown == (
            "the job failed",
            "cannot write a.parquet",
            "OSError: [Errno 28] No space left on device",
        )

    def test_what_was_said_is_not_said_again(self):
        """An error that quotes its cause is enough."""
        outer = StorageFailed("cannot write: disk full")
        outer.__cause__ = StorageFailed("disk full")

        assert reasons_of(outer) == ("cannot write: disk full",)

    def test_an_error_without_a_message_is_told_by_its_class(self):
        """Better than nothing."""
        assert reasons_of(MemoryError()) == ("MemoryError",)
        assert reasons_of(KeyError("k")) == ("KeyError: 'k'",)

    def test_a_circle_ends(self):
        """Errors may name each other as causes."""
        one, other = BadRequest("one"), BadRequest("other")
        one.__cause__, other.__cause__ = other, one

        assert reasons_of(one) == ("one", "other")

    def test_a_job_that_was_committed_is_not_run_again(self):
        """It is done."""
        assert not may_pass(JobAlreadyCommitted("j", 4))
