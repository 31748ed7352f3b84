"""Checks an instance's properties when it is created, and when its file is read."""

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
    """Return the properties of a new instance; `given` overrides `fixed`.

    Raises:
        PropertiesInvalid: a name or value is not allowed; lists every failure.
    """
    set_now = {name: text for name, text in property_texts(given).items() if text is not None}
    values = {**fixed, **set_now}
    validate_instance_properties(values, given=set_now)
    for warning in instance_property_warnings(set_now):
        _log.warning("%s", warning)
    return values


def log_mistakes(values: Mapping[str, str], url: str) -> None:
    """Log each misspelt name and wrong value in the properties of an instance that is opened.

    The instance opens anyway. A wrong value raises an error when it is used.
    """
    try:
        validate_instance_properties(values, given=values)
    except PropertiesInvalid as error:
        for failure in error.failures.values():
            _log.warning("instance.properties of %s: %s", url, failure)
