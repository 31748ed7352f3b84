"""What checks find, and how they are run so that all failures are reported at once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Final

from sleeper.errors import BadRequest, MissingExtra, PropertiesInvalid, SleeperError
from sleeper.language.value_classes import dataclass
from sleeper.storage.aws.failures import error_code, vendor_errors

logger = logging.getLogger(__name__)

_NOT_ALLOWED: Final = (
    "AccessDenied",
    "AccessDeniedException",
    "UnauthorizedOperation",
    "AuthorizationError",
    "NotAuthorized",
)


class Level(StrEnum):
    """How bad it is."""

    OK = "ok"
    WARNING = "warning"
    FAILURE = "failure"


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check found.

    Attributes:
        level: Whether it stands in the way.
        text: What was found, and what to do, as a sentence.
    """

    level: Level
    text: str


Check = Callable[[], Iterable[Finding]]


def ok(text: str) -> list[Finding]:
    """Return that all is well."""
    return [Finding(Level.OK, text)]


def warning(text: str) -> list[Finding]:
    """Return something to know of, which does not stand in the way."""
    return [Finding(Level.WARNING, text)]


def failure(text: str) -> list[Finding]:
    """Return something that stands in the way."""
    return [Finding(Level.FAILURE, text)]


def run_checks(checks: Mapping[str, Check]) -> list[Finding]:
    """Run checks by name, each whatever others found; return all findings.

    One that may not ask AWS, or gets no answer, is a warning: what it looks for may be right.
    """
    found: list[Finding] = []
    for name, check in checks.items():
        try:
            found += check()
        except PropertiesInvalid as error:
            found += [Finding(Level.FAILURE, text) for text in error.failures.values()]
        except (BadRequest, MissingExtra) as error:
            found += failure(str(error))
        except SleeperError as error:
            logger.warning("the check of %s failed: %s", name, error)
            found += warning(f"{name}: not checked, for {error}")
        except vendor_errors() as error:
            logger.info("the check of %s has no answer: %s", name, error)
            allowed = "" if error_code(error) not in _NOT_ALLOWED else "these credentials may not: "
            found += warning(f"{name}: not checked, {allowed}{_first_line(error)}")
    return found


def raise_failures(findings: Iterable[Finding]) -> None:
    """Raise all failures as one error.

    Raises:
        BadRequest: there are some; lists them all.
    """
    failures = [each.text for each in findings if each.level is Level.FAILURE]
    if failures:
        listed = "".join(f"\n- {each}" for each in failures)
        raise BadRequest(f"nothing was deployed:{listed}")


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0][:300]
