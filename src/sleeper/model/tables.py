"""The record of a table in the table index: id, name, online flag, properties."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Final

from sleeper.errors import BadRequest
from sleeper.model.known_properties.value_kinds import BOOLEAN, MOVE_ID

ID: Final = "sleeper.table.id"
NAME: Final = "sleeper.table.name"
ONLINE: Final = "sleeper.table.online"
SCHEMA: Final = "sleeper.table.schema"
STATE_STORE: Final = "sleeper.table.statestore.classname"
STATE_MOVE: Final = "sleeper.table.statestore.move"


@dataclass(frozen=True, slots=True)
class TableRecord:
    """One table, as the table index records it.

    Attributes:
        table_id: Eight hex characters, a rename does not change it.
        name: Unique within the instance.
        online: False stops background operations (rule TBL-6); ingest and queries still work.
        properties: The other values that were set, by full property name (`sleeper.table...`),
            including the schema's JSON. Defaults are not stored.

    Source: rules TBL-1 to TBL-3, TBL-6.
    """

    table_id: str
    name: str
    online: bool = True
    properties: Mapping[str, str] = field(default_factory=dict)

    def all_properties(self) -> dict[str, str]:
        """Return every value by full property name, including id, name and online flag."""
        online = "true" if self.online else "false"
        return {ID: self.table_id, NAME: self.name, ONLINE: online, **self.properties}

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> TableRecord:
        """Return the record for checked values, such as `all_properties` returns."""
        others = {key: value for key, value in properties.items() if key not in (ID, NAME, ONLINE)}
        online = BOOLEAN.parse(properties.get(ONLINE, "").strip() or "true")
        return cls(properties[ID], checked_table_name(properties[NAME]), online, others)


@dataclass(frozen=True, slots=True)
class StateMove:
    """A move of a table's state to a state store. What a store keeps for a table has its id.

    Each attempt to move has an id of its own, so nothing that one attempt writes, leaves behind or
    deletes can be another's, or the table's state.

    Attributes:
        class_name: The state store that the state was moved to.
        number: The transaction that moved it. Earlier ones are not in that store.
        token: Makes the id unique: hex characters.
    """

    class_name: str
    number: int
    token: str

    @property
    def move_id(self) -> str:
        """The value of the table property `sleeper.table.statestore.move`."""
        return f"{self.number}-{self.token}"

    @property
    def properties(self) -> dict[str, str]:
        """The properties of a table whose state is there."""
        return {STATE_STORE: self.class_name, STATE_MOVE: self.move_id}

    @classmethod
    def of(cls, class_name: str, move_id: str) -> StateMove:
        """Parse a `move_id`.

        Raises:
            ValueError: it is none.
        """
        number, _, token = MOVE_ID.parse(move_id).partition("-")
        return cls(class_name, int(number), token)


def checked_table_name(name: str) -> str:
    """Check a table's name and return it.

    Raises:
        BadRequest: it is empty, starts or ends with a space, or has a control character.
    """
    if type(name) is not str or not name or name != name.strip() or not name.isprintable():
        raise BadRequest(
            f"{name!r} cannot be a table's name: it needs at least one character, no control "
            "characters, and no space at either end"
        )
    return name


def no_such_table(name: str, names: Sequence[str]) -> str:
    """Return what to say where no table has a name: similar names, or those that there are."""
    near = get_close_matches(name, names, n=3)
    if near:
        return f"no table {name!r}; did you mean {' or '.join(map(repr, near))}?"
    return f"no table {name!r}; the instance has {', '.join(names[:10]) or 'no tables yet'}"
