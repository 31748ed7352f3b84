"""Check an instance's properties: those of a new one, and those of a file that is read."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from sleeper.errors import PropertiesInvalid
from sleeper.model.known_properties.given import PropertyValue, property_texts
from sleeper.model.known_properties.typed import (
    instance_property_warnings,
    validate_instance_properties,
)

_log = logging.getLogger(__name__)


def new_instance_values(
    fixed: Mapping[str, str], given: Mapping[str, PropertyValue | None]
) -> dict[str, str]:
    """Return the properties of an instance that is to be created; `given` overrides `fixed`.

    Raises:
        PropertiesInvalid: every property name and value that is not allowed.
    """
    set_now = {name: text for name, text in property_texts(given).items() if text is not None}
    values = {**fixed, **set_now}
    validate_instance_properties(values, given=set_now)
    for warning in instance_property_warnings(set_now):
        _log.warning("%s", warning)
    return values


def log_mistakes(values: Mapping[str, str], url: str) -> None:
    """Log each misspelt name and wrong value in an instance's properties that were read.

    The instance opens all the same. A wrong value raises where it is used.
    """
    try:
        validate_instance_properties(values, given=values)
    except PropertiesInvalid as error:
        for failure in error.failures.values():
            _log.warning("instance.properties of %s: %s", url, failure)
