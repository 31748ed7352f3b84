"""Properties: a name, a kind of value, a default and a description.

Values are parsed from text by their kind, and never guessed. A typed group is a frozen dataclass
whose fields are made by `setting`, so that name, default and type are declared once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Generic, Literal, TypeVar, cast, overload

from sleeper.errors import PropertiesInvalid

T = TypeVar("T")
G = TypeVar("G")

PREFIX = "sleeper."
TABLE_PREFIX = "sleeper.table."
TABLE_DEFAULT_PREFIX = "sleeper.default.table."


@dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """A kind of property value.

    Attributes:
        wanted: Describes its values; completes the sentence "it must be ...".
        parse: Converts trimmed, non-empty text to a value; raises `ValueError` if it cannot.
        parse_stored: The same for stored text, which a version that allowed more may have
            written; None means `parse`.
    """

    wanted: str
    parse: Callable[[str], T]
    parse_stored: Callable[[str], T] | None = None


@dataclass(frozen=True, slots=True)
class Property:
    """One setting that Sleeper knows by name.

    Attributes:
        name: Full name, `sleeper.table...` or `sleeper...`.
        default: Built-in value, written as in a file; None when there is none.
        kind: How its text is parsed and checked.
        description: One sentence for users.
        group: The heading it is listed under.
        since: Whether upstream Sleeper has it, or we added it.
        editable: False when it is fixed once its table or instance exists.
        required: True when a value must be given.
        used: False when it is checked and stored, but nothing here uses it.
        instance_default: The instance property that sets its default for all tables (rule
            INS-8), or None.
    """

    name: str
    default: str | None
    kind: Kind[Any]
    description: str
    group: str = ""
    since: Literal["upstream", "ours"] = "upstream"
    editable: bool = True
    required: bool = False
    used: bool = True
    instance_default: str | None = None

    def parse(self, text: str, source: str | None = None, *, stored: bool = False) -> Any:
        """Parse a value of this property; `source` is the property that set it, if another.

        A `stored` value may be one that older versions allowed.

        Raises:
            PropertiesInvalid: the text is not a value of its kind; names property and text.
        """
        name, trimmed = source or self.name, text.strip()
        try:
            parse = self.kind.parse_stored if stored else None
            return (parse or self.kind.parse)(trimmed)
        except ValueError:
            raise PropertiesInvalid(
                {name: f"{name} is {trimmed!r}, but it must be {self.kind.wanted}."}
            ) from None


@overload
def setting(
    name: str, default: None, kind: Kind[T], description: str, **flags: Any
) -> T | None: ...
@overload
def setting(name: str, default: str, kind: Kind[T], description: str, **flags: Any) -> T: ...
def setting(
    name: str, default: str | None, kind: Kind[T], description: str, **flags: Any
) -> T | None:
    """Declare one field of a typed group; `name` goes without its leading `sleeper.`."""
    known = Property(PREFIX + name, default, kind, description, **flags)
    value = None if default is None else kind.parse(default)
    declared: Any = field(default=value, metadata={"property": known})
    return cast("T | None", declared)


def properties_of(title: str, group: type[Any], *, inherits: bool = False) -> tuple[Property, ...]:
    """Return the properties that a typed group declares, in order, under the heading `title`.

    With `inherits`, an instance may set a default for each of them.
    """
    declared = (item.metadata["property"] for item in fields(group))
    return tuple(_listed(known, title, inherits=inherits) for known in declared)


def family(
    title: str,
    prefix: str,
    members: Sequence[tuple[str, str | None, Kind[Any], str]],
    *,
    inherits: bool = False,
    used: bool = False,
) -> tuple[Property, ...]:
    """Return properties that belong to no typed group.

    Each is (name after `sleeper.` and prefix, default, kind, description).
    """
    made = (
        Property(PREFIX + prefix + name, default, kind, description, used=used)
        for name, default, kind, description in members
    )
    return tuple(_listed(known, title, inherits=inherits) for known in made)


def _listed(known: Property, title: str, *, inherits: bool) -> Property:
    twin = TABLE_DEFAULT_PREFIX + known.name.removeprefix(TABLE_PREFIX) if inherits else None
    return replace(known, group=title, instance_default=twin)


def gathered(properties: Iterable[Property]) -> tuple[Property, ...]:
    """Return properties sorted by group; groups keep the order of their first property."""
    listed = tuple(properties)
    groups = list(dict.fromkeys(known.group for known in listed))
    return tuple(sorted(listed, key=lambda known: groups.index(known.group)))


def given_text(values: Mapping[str, str], name: str) -> str | None:
    """Return what a property was set to, without spaces around it; None when that is nothing."""
    return values.get(name, "").strip() or None


def read_group(group: type[G], found: Callable[[str], tuple[str, str] | None]) -> G:
    """Build a typed group.

    `found` returns what a property was set to, by full name: the name of the property that
    set it (a table's own, or the instance's default) and the text; or None when none did.

    Raises:
        PropertiesInvalid: one or more of the texts are not values of their kind.
    """
    values: dict[str, Any] = {}
    failures: dict[str, str] = {}
    for item in fields(cast("type[Any]", group)):
        known: Property = item.metadata["property"]
        was_set = found(known.name)
        if was_set is None:
            continue
        source, text = was_set
        try:
            values[item.name] = known.parse(text, source, stored=True)
        except PropertiesInvalid as error:
            failures.update(error.failures)
    if failures:
        raise PropertiesInvalid(failures)
    return group(**values)


def _text(text: str) -> str:
    return text


def _refused(text: str) -> str:
    raise ValueError(text)


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"


def _integer(text: str) -> int:
    if not re.fullmatch(r"[+-]?[0-9]+", text):
        raise ValueError(text)
    return int(text)


def whole(low: int, high: int, wanted: str) -> Kind[int]:
    """Return the kind of whole numbers from `low` to `high`, both included."""

    def parse(text: str) -> int:
        number = _integer(text)
        if not low <= number <= high:
            raise ValueError(text)
        return number

    return Kind(wanted, parse)


def minutes_from(low: int) -> Kind[int]:
    """Return the kind of minutes from `low` on. A smaller value that is stored counts as `low`."""
    kind = whole(low, 2**31 - 1, f"a whole number of minutes from {low} to 2147483647")
    smaller = whole(0, 2**31 - 1, "")
    return replace(kind, parse_stored=lambda text: max(low, smaller.parse(text)))


def one_of(*allowed: str) -> Kind[str]:
    """Return the kind of a fixed set of words, in any case; the value is spelt as in `allowed`."""
    by_lower = {word.lower(): word for word in allowed}

    def parse(text: str) -> str:
        if text.lower() not in by_lower:
            raise ValueError(text)
        return by_lower[text.lower()]

    return Kind(f"one of {', '.join(allowed)}", parse)


def matching(pattern: str, wanted: str) -> Kind[str]:
    """Return the kind of texts that match a regular expression as a whole."""
    compiled = re.compile(pattern)

    def parse(text: str) -> str:
        if compiled.fullmatch(text) is None:
            raise ValueError(text)
        return text

    return Kind(wanted, parse)


def class_of(*allowed: str) -> Kind[str]:
    """Return the kind of a class name among `allowed`; a package before it is ignored."""
    simple = one_of(*allowed)
    return Kind(simple.wanted, lambda text: simple.parse(text.rpartition(".")[2]))


def list_of(kind: Kind[T], wanted: str) -> Kind[tuple[T, ...]]:
    """Return the kind of comma separated lists; spaces around items are ignored (rule INS-9)."""

    def parse(text: str) -> tuple[T, ...]:
        items = [item.strip() for item in text.split(",")]
        return tuple(kind.parse(item) for item in items if item)

    return Kind(wanted, parse)


def _byte_size(text: str) -> int:
    found = re.fullmatch(r"([0-9]+)([KMGTPE]?)", text.upper())
    if found is None:
        raise ValueError(text)
    size_bytes = int(found[1]) << 10 * " KMGTPE".index(found[2] or " ")
    if size_bytes >= 2**63:
        raise ValueError(text)
    return size_bytes


def _fraction(text: str) -> float:
    if not re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", text):
        raise ValueError(text)
    return float(text)


def _tags(text: str) -> dict[str, str]:
    items = [item.strip() for item in text.split(",")]
    if len(items) % 2:
        raise ValueError(text)
    return dict(zip(items[::2], items[1::2], strict=True))


def _instance_id(text: str) -> str:
    if len(text) > 20:
        raise ValueError(text)
    return text


def _jobs_url(text: str) -> str:
    if text != "sqs" and not re.fullmatch(r"sqlite:///[^\x00]*[^/\x00]", text):
        raise ValueError(text)
    return text


def _log_days(text: str) -> int:
    days = _integer(text)
    if days not in _LOG_DAYS:
        raise ValueError(text)
    return days


def _move_id(text: str) -> str:
    if not re.fullmatch("[1-9][0-9]{0,18}-[0-9a-f]{1,32}", text):
        raise ValueError(text)
    return text


_LOG_DAYS = (-1, 1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1827, 3653)

TEXT = Kind("text", _text)
JAVA_ITERATOR = Kind(
    "left out: iterators in Java do not run here. Filter by age with sleeper.table.filters, or "
    "name a Python function in sleeper.table.function",
    _refused,
)
BOOLEAN = Kind("true or false", _boolean)
KEY_ARN = matching("arn:aws[a-z-]*:kms:[a-z0-9-]+:[0-9]{12}:key/.+", "the ARN of a key of KMS")
INTEGER = whole(-(2**31), 2**31 - 1, "a whole number")
POSITIVE = whole(1, 2**31 - 1, "a whole number from 1 to 2147483647")
NOT_NEGATIVE = whole(0, 2**31 - 1, "a whole number from 0 to 2147483647")
A_MINUTE_OR_MORE = minutes_from(1)
AN_HOUR_OR_MORE = minutes_from(60)
POSITIVE_LONG = whole(1, 2**63 - 1, "a whole number above 0")
PERCENT = whole(0, 100, "a whole number from 0 to 100")
QUEUE_WAIT = whole(0, 20, "a number of seconds from 0 to 20")
LAMBDA_TIMEOUT = whole(1, 900, "a number of seconds from 1 to 900")
QUEUE_BATCH = whole(1, 10, "a whole number from 1 to 10")
LOG_DAYS = Kind(f"one of {', '.join(map(str, _LOG_DAYS))}", _log_days)
NUMBER = Kind("a number", _fraction)
BYTE_SIZE = Kind("a number of bytes, such as 1024, 32M or 1G (K is 1024)", _byte_size)
LIST = list_of(TEXT, "a comma separated list")
TAGS = Kind("a list of key,value,key,value", _tags)
JOBS_URL = Kind("sqs, or sqlite:///and/an/absolute/path, the path of a file", _jobs_url)
MOVE_ID = Kind("what `sleeper table migrate-state` sets", _move_id)
INSTANCE_ID = Kind("at most 20 characters long", _instance_id)
