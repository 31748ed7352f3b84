"""Reads, checks and changes the properties of an instance.

    instance.properties                            version 0, then a copy of the newest version
    properties/00000000000000000001.properties     all properties after change 1, and so on

Each change is a whole version. Its object is created only if it is absent, as a log entry is, so of
two writers one applies its change to the version of the other. The numbered objects decide: a
reader begins at the copy, whose `sleeper.properties.version` says which version it is, and reads
the versions after it. The copy may thus be an older version at any time, for instance after a
writer was killed. Before the first change the property is missing, and nothing else is read.
Versions are never deleted: a number that was free again could be taken by a second writer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from sleeper.errors import (
    InstanceNotFound,
    PropertiesInvalid,
    SleeperError,
    StorageFailed,
    UrlInvalid,
)
from sleeper.model import paths
from sleeper.model.formats.properties_file import (
    FORMAT_PROPERTY,
    INSTANCE_FORMAT,
    VERSION_PROPERTY,
    properties_version,
    read_instance_properties,
    write_properties,
)
from sleeper.model.known_properties.given import PropertyValue, property_texts
from sleeper.ports.clock import Clock
from sleeper.ports.ids import NewId
from sleeper.ports.objects import Objects
from sleeper.state.append import CommitWording, NextEntry, append_entry
from sleeper.storage.followed_log import CommitChecks, open_log
from sleeper.storage.places import Place
from sleeper.storage.transaction_log import ObjectTransactionLog

_ATTEMPTS: Final = 20
_JOBS_URL: Final = "sleeper.jobs.url"
_SUFFIX: Final = ".properties"
_ALWAYS_SET: Final = frozenset(("sleeper.id", FORMAT_PROPERTY, VERSION_PROPERTY))
_WORDING: Final = CommitWording(
    entry="version",
    when_contended="Set the properties again.",
    when_unknown=(
        "It is a change of the instance's properties: when the storage answers, look with "
        "`sleeper instance show`, and set them again if they are not set."
    ),
    attempts_source="the number of attempts to change properties",
)
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StoredProperties:
    """The properties of one instance, where they are stored.

    Attributes:
        objects: The instance's objects.
        url: The instance, for messages.
    """

    objects: Objects
    url: str

    def newest(self) -> dict[str, str] | None:
        """Return all properties that are set now, by full name; None if there is no instance.

        Raises:
            DataDamaged, FormatTooNew, PropertiesInvalid: they cannot be read.
            StorageFailed: the storage cannot be read.
        """
        copied = self._copied()
        return None if copied is None else self._newest_after(copied)

    def create(self, values: Mapping[str, str]) -> bool:
        """Store the properties of a new instance; return False if there is an instance."""
        return self.objects.create(paths.INSTANCE_PROPERTIES, _encoded(values))

    def change(
        self,
        changes: Mapping[str, PropertyValue | None],
        *,
        checks: CommitChecks,
        pause: Callable[[int], None],
    ) -> dict[str, str]:
        """Set properties by full name, all or none; None takes a value away. Return all.

        A change that another writer makes at the same time is kept: this one is applied to it.

        Args:
            changes: Values are str, int or bool.
            checks: The checks when a version is stored.
            pause: Waits before another attempt.

        Raises:
            PropertiesInvalid: a name or value is not allowed, or a property is fixed; lists every
                failure. Nothing was changed.
            InstanceNotFound: the instance was deleted.
            CommitContended: others changed properties in each of 20 attempts. Nothing was changed.
            CommitUnknown: the storage did not confirm the change.
            StorageFailed: the storage cannot be read or written. Nothing was changed.
        """
        texts = property_texts(changes)
        log = open_log(self.objects, paths.PROPERTIES_VERSIONS, checks, suffix=_SUFFIX)
        before: dict[str, str] = {}
        copied: dict[str, str] = {}

        def build() -> NextEntry[dict[str, str]]:
            nonlocal before, copied
            copied = self._copied() or {}
            if not copied:
                raise InstanceNotFound(f"the instance at {self.url} was deleted")
            before = self._newest_after(copied)
            after = _changed(before, texts)
            number = (properties_version(before) or 0) + 1
            if after == before:
                return NextEntry(number, None, before)
            if VERSION_PROPERTY not in before:  # readers that find it look for versions
                marked = {**before, VERSION_PROPERTY: "0"}
                self.objects.put(paths.INSTANCE_PROPERTIES, _encoded(marked))
            after[VERSION_PROPERTY] = str(number)
            return NextEntry(number, _encoded(after), after)

        values = append_entry(log, build, pause=pause, attempts=_ATTEMPTS, wording=_WORDING)
        if values != copied:
            self._copy(values)
        if values != before:
            self._log_change(before, values)
        from sleeper.model.known_properties.checks import instance_property_warnings

        for warning in instance_property_warnings(texts, values):
            _log.warning("%s", warning)
        return values

    def _copied(self) -> dict[str, str] | None:
        body = self.objects.read(paths.INSTANCE_PROPERTIES)
        return None if body is None else read_instance_properties(body, self.url)

    def _newest_after(self, values: dict[str, str]) -> dict[str, str]:
        """Read the versions after one; return the last."""
        first = properties_version(values)
        if first is None:
            return values
        log = ObjectTransactionLog(self.objects, paths.PROPERTIES_VERSIONS, _SUFFIX)
        for number, body in log.read_after(first):
            values = read_instance_properties(body, self.url, log.key(number), number)
        if properties_version(values) != first:
            _log.info("instance.properties of %s has version %d, not the newest", self.url, first)
        return values

    def _copy(self, values: dict[str, str]) -> None:
        """Write the newest version to `instance.properties`, for other programs.

        Every writer looks for a newer version after it wrote, so the last one to write leaves the
        newest version, unless it is killed or fails.
        """
        try:
            while True:
                self.objects.put(paths.INSTANCE_PROPERTIES, _encoded(values))
                newer = self._newest_after(values)
                if newer == values:
                    return
                values = newer
        except SleeperError as error:
            _log.warning(
                "the properties of %s were changed, but instance.properties still has an older "
                "version, which other programs may read: %s. Setting a property again writes it.",
                self.url,
                error,
            )

    def _log_change(self, before: Mapping[str, str], after: Mapping[str, str]) -> None:
        names = (before.keys() | after.keys()) - {VERSION_PROPERTY}
        changed = sorted(name for name in names if before.get(name) != after.get(name))
        _log.info("changed properties of %s: %s", self.url, ", ".join(changed))
        if _JOBS_URL in changed:
            _log.warning(
                "%s was changed: queues, job events and submitted files are not moved. What is in "
                "%s stays there, and nothing looks there any more.",
                _JOBS_URL,
                before.get(_JOBS_URL) or paths.JOBS,
            )


def properties_at(place: Place) -> dict[str, str] | None:
    """Return the properties of the instance at a place; None if there is none.

    Raises:
        DataDamaged, FormatTooNew: they cannot be read.
        PropertiesInvalid: they cannot be read, or name the resources of another instance.
        UrlInvalid: it is a bucket of an instance in AWS.
        StorageFailed: the storage cannot be read.
    """
    values = unchecked_properties_at(place)
    if values is not None:
        place.check_properties(values)
    return values


def unchecked_properties_at(place: Place) -> dict[str, str] | None:
    """Return what `properties_at` returns, also where it names the resources of another."""
    try:
        return StoredProperties(place.objects, place.url).newest()
    except StorageFailed:
        if not place.is_missing():
            raise
        return None


def make_instance(
    place: Place,
    properties: Mapping[str, PropertyValue | None],
    *,
    clock: Clock,
    new_id: NewId,
) -> dict[str, str] | None:
    """Store a new instance's properties; return them, or None if there is an instance already.

    In AWS its buckets, tables and queues are made before; what makes it an instance comes last.

    Args:
        place: Where.
        properties: What is set; the id is the folder's name, if it is not set.
        clock: Says the time, and waits.
        new_id: Makes unique names of objects that test a bucket, and other ids.

    Raises:
        UrlInvalid: the place is inside another instance.
        PropertiesInvalid: a name or value is not allowed; lists every failure.
        AlreadyExists: a bucket of an instance in AWS belongs to somebody else.
        StorageFailed: the storage cannot be written.
    """
    if (outer := place.enclosing_instance()) is not None:
        raise UrlInvalid(
            f"{place.url} is inside the instance at {outer}, and would be taken for a part of it: "
            "create the instance outside of that folder"
        )
    fixed = {**place.fixed_properties(properties), FORMAT_PROPERTY: str(INSTANCE_FORMAT)}
    if place.has_resources and properties_at(place) is not None:
        return None
    values = _new_values(fixed, properties)
    values |= place.make(values, clock=clock, new_id=new_id)
    return values if StoredProperties(place.objects, place.url).create(values) else None


def write_deployed_properties(
    place: Place,
    before: Mapping[str, str],
    after: Mapping[str, str],
    *,
    clock: Clock,
    new_id: NewId,
) -> dict[str, str]:
    """Make the properties of an instance what the templates of its deployment say; return all.

    Without properties `after` makes the instance: its buckets, tables and queues are there. Else
    what differs between the templates is changed. So a property that was set since the last
    deployment stays as it is, until a template has another value for it; and one that no template
    has any more is taken away, unless it was set since. Called again it changes nothing.

    Args:
        place: The instance's place in AWS.
        before: All properties of the templates before; none if there were no templates.
        after: All properties of the templates now.
        clock: Waits before another attempt.
        new_id: Makes unique names of objects that test a bucket.

    Raises:
        PropertiesInvalid: a property is not known, not allowed, or cannot be changed; lists every
            failure. Nothing was changed.
        InstanceNotFound: there is no instance, and `after` makes none: it has no `sleeper.id`.
        StorageFailed, CommitContended, CommitUnknown: as by `StoredProperties.change`.
    """
    stored = StoredProperties(place.objects, place.url)
    found = properties_at(place)
    if found is None:
        values = _deployed_values(place, after)
        if stored.create(values):
            _log.info("the properties of %s are made", place.url)
            return values
        found = properties_at(place) or {}  # made in the meantime, by an earlier call of Lambda
    changes: dict[str, str | None] = {
        name: text
        for name, text in after.items()
        if before.get(name) != text and found.get(name) != text
    }
    gone = before.keys() - after.keys()
    changes |= {name: None for name in gone if found.get(name) == before[name]}
    _check_names(changes)
    read_back = found.get("sleeper.statestore.commit.read.back", "auto")
    checks = place.commit_checks(read_back, new_id, clock)
    return stored.change(changes, checks=checks, pause=clock.back_off)


def _deployed_values(place: Place, given: Mapping[str, str]) -> dict[str, str]:
    """Check and return the properties of a new instance whose resources a deployment has made."""
    if "sleeper.id" not in given:
        raise InstanceNotFound(
            f"no instance is at {place.url} that could be told {', '.join(sorted(given))}: deploy "
            "the stack with the properties of the instance before"
        )
    _check_names(given)
    values = {**place.fixed_properties({}), FORMAT_PROPERTY: str(INSTANCE_FORMAT)}
    values = _new_values(values, given)
    place.check_properties(values)
    return values


def _check_names(texts: Mapping[str, str | None]) -> None:
    from sleeper.model.known_properties import catalogue, given

    failures = given.unknown_names(texts, catalogue.INSTANCE_PROPERTIES_BY_NAME)
    if failures:
        raise PropertiesInvalid(failures)


def _new_values(
    fixed: Mapping[str, str], given: Mapping[str, PropertyValue | None]
) -> dict[str, str]:
    """Check and return the properties of a new instance; `given` overrides `fixed`."""
    set_now = {name: text for name, text in property_texts(given).items() if text is not None}
    if VERSION_PROPERTY in set_now:
        raise PropertiesInvalid(
            {VERSION_PROPERTY: f"{VERSION_PROPERTY} cannot be set: Sleeper counts changes itself."}
        )
    values = {**fixed, **set_now}
    from sleeper.model.known_properties import checks

    checks.validate_instance_properties(values, given=set_now)
    for warning in checks.instance_property_warnings(set_now, values):
        _log.warning("%s", warning)
    return values


def log_mistakes(values: Mapping[str, str], url: str) -> None:
    """Log each misspelt name and wrong value in the properties of an instance that is opened.

    The instance opens anyway. A wrong value raises an error when it is used, and those that every
    instance has are used at once.
    """
    if values.keys() <= _ALWAYS_SET:
        return
    from sleeper.model.known_properties import checks

    try:
        checks.validate_instance_properties(values, given=values)
    except PropertiesInvalid as error:
        for failure in error.failures.values():
            _log.warning("instance.properties of %s: %s", url, failure)


def _changed(before: Mapping[str, str], texts: Mapping[str, str | None]) -> dict[str, str]:
    after = {name: value for name, value in {**before, **texts}.items() if value is not None}
    from sleeper.model.known_properties import checks

    checks.check_editable(before, after)
    set_now = {name: texts[name] for name in texts if name in after or name not in before}
    checks.validate_instance_properties(after, given=set_now)
    return after


def _encoded(values: Mapping[str, str]) -> bytes:
    from sleeper.model.known_properties import catalogue

    return write_properties(values, catalogue.KNOWN_INSTANCE_PROPERTIES).encode()
