"""Where fresh ids come from, and what counts as an id that was given."""

from __future__ import annotations

from collections.abc import Callable

from sleeper.errors import BadRequest

NewId = Callable[[], str]
"""Makes an id that nobody else has, a random UUID as text."""


def given_job_id(job_id: str | None) -> str | None:
    """Return the job id that a caller gave; None where it is None, empty or only spaces (ING-9).

    Raises:
        BadRequest: it is no text.
    """
    if job_id is not None and not isinstance(job_id, str):
        raise BadRequest(f"job_id must be a string, not {job_id!r}; leave it out to have one made")
    return job_id if job_id is not None and job_id.strip() else None
