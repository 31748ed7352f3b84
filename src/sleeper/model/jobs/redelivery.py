"""Whether a message whose job failed is delivered again, and when."""

from __future__ import annotations

from dataclasses import dataclass

from sleeper.errors import (
    CommitRefused,
    CommitTooLarge,
    JobAlreadyCommitted,
    RowsChanged,
    SleeperError,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Redelivery:
    """What to do with a message.

    Attributes:
        delay_s: Seconds before it is delivered again; None when it becomes a dead letter at once.
        reason: Why it becomes a dead letter; empty when it does not.
    """

    delay_s: float | None
    reason: str = ""

    @property
    def is_dead(self) -> bool:
        """True when the message is to be delivered no more."""
        return self.delay_s is None


def may_pass(error: BaseException) -> bool:
    """Return whether a job that failed so may succeed when it is run again, unchanged.

    What is wrong with the job, its input or stored data stays wrong. What the storage did may
    pass, and so may a refused commit, as the next run plans from the table's state at that time. An
    error that is not ours may be anything, so it is tried again too.
    """
    if isinstance(error, JobAlreadyCommitted | CommitTooLarge | RowsChanged):
        return False
    if isinstance(error, CommitRefused):
        return True
    return not isinstance(error, SleeperError) or error.retryable


def plan_redelivery(
    failure: BaseException,
    *,
    receives: int,
    receives_max: int,
    first_s: float = 10.0,
    max_s: float = 900.0,
) -> Redelivery:
    """Return what becomes of a message whose job failed.

    The wait doubles with each failure.

    Args:
        failure: Why it failed.
        receives: How often the message was received, this time included.
        receives_max: How often it may be received.
        first_s: The wait after the first failure.
        max_s: The longest wait after any.
    """
    if not may_pass(failure):
        return Redelivery(
            delay_s=None, reason=f"trying it again cannot help: {chain_text(failure)}"
        )
    if receives >= receives_max:
        times = "once" if receives == 1 else f"{receives} times"
        return Redelivery(delay_s=None, reason=f"failed {times}, at last: {chain_text(failure)}")
    return Redelivery(delay_s=min(first_s * 2.0 ** min(receives - 1, 64), max_s))


def reasons_of(error: BaseException) -> tuple[str, ...]:
    """Return the messages of an error and of those that caused it, outermost first (rule TRK-5).

    An error without a message is named by its class. A message that the one before it has word for
    word is left out.
    """
    reasons: list[str] = []
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        text = str(cause).strip() or type(cause).__name__
        if not isinstance(cause, SleeperError) and str(cause).strip():
            text = f"{type(cause).__name__}: {text}"
        if not (reasons and text in reasons[-1]):
            reasons.append(text)
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
    return tuple(reasons)


def chain_text(error: BaseException) -> str:
    """Return `reasons_of` an error as one line."""
    return "; because: ".join(reasons_of(error))
