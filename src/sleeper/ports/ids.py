"""Makes unique ids, and checks job ids that callers give."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sleeper.errors import BadRequest

JOB_ID_MAX: Final = 1_000
"""Characters of an id that a caller gives, at most: it is stored in logs and keys."""

NewId = Callable[[], str]
"""Makes a unique id: a random UUID as text."""


def given_job_id(job_id: str | None) -> str | None:
    """Check the job id that a caller gave and return it; None if it is None or blank (ING-9).

    Raises:
        BadRequest: it is not a string, or has more than `JOB_ID_MAX` characters.
    """
    if job_id is not None and not isinstance(job_id, str):
        raise BadRequest(f"job_id must be a string, not {job_id!r}; leave it out to have one made")
    if job_id is not None and len(job_id) > JOB_ID_MAX:
        raise BadRequest(
            f"the id {job_id[:50]!r}... has {len(job_id):,} characters, above {JOB_ID_MAX:,}"
        )
    return job_id if job_id is not None and job_id.strip() else None
