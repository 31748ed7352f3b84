"""Whether a message whose job failed is delivered again, and when."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sleeper.errors import SleeperError

_FIRST_DELAY_S: Final = 5.0
_DELAY_MAX_S: Final = 600.0


@dataclass(frozen=True, slots=True)
class Redelivery:
    """What becomes of a message whose job failed.

    Attributes:
        delay_s: Seconds until it can be received again; None when it becomes a dead letter.
    """

    delay_s: float | None


def plan_redelivery(failure: Exception, *, receives: int, receives_max: int) -> Redelivery:
    """Return what becomes of a message after a failure.

    An error of ours that says that the same call cannot succeed later ends it at once. Any other
    may pass: it comes again after a delay that doubles, while receives are left.

    Args:
        failure: Why the job failed.
        receives: How often the message was received, this time included.
        receives_max: How often it may be.
    """
    if isinstance(failure, SleeperError) and not failure.retryable:
        return Redelivery(None)
    if receives >= receives_max:
        return Redelivery(None)
    return Redelivery(min(_DELAY_MAX_S, _FIRST_DELAY_S * 2.0 ** (receives - 1)))
