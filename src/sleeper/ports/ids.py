"""Makes unique ids, and checks job ids that callers give."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sleeper.errors import BadRequest

JOB_ID_MAX: Final = 1_000
"""Characters of an id that a caller gives, at most: it is stored in logs and keys."""

NewId = Callable[[], str]
"""Makes a unique id: a random UUID as text."""


def given_job_id(job_id: str | None, argument: str = "job_id") -> str | None:
    """Check the id of a job that a caller gave, and return it; None if there is none (ING-9).

    Args:
        job_id: The id.
        argument: The caller's name for it.

    Raises:
        BadRequest: it is not a string, is blank, or has more than `JOB_ID_MAX` characters.
    """
    if job_id is None:
        return None
    if not isinstance(job_id, str):
        raise BadRequest(
            f"{argument} must be a string, not {job_id!r:.100}; leave it out to have one made"
        )
    if not job_id.strip():
        raise BadRequest(
            f"{argument} is blank: give a text that names this work, so that it is done once, or "
            "leave it out to have one made"
        )
    if len(job_id) > JOB_ID_MAX:
        raise BadRequest(
            f"{argument} {job_id[:50]!r}... has {len(job_id):,} characters, above {JOB_ID_MAX:,}"
        )
    return job_id
