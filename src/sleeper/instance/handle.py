"""The base of `Instance`: its tables, and what its methods in other modules use."""

from __future__ import annotations

from sleeper.model.known_properties.typed import InstanceProperties
from sleeper.model.tables import TableRecord
from sleeper.table.instance_context import InstanceContext
from sleeper.table.table import Table, open_table


class InstanceHandle:
    """An open instance.

    Attributes:
        url: Its URL.
        instance_id: Its name, `sleeper.id`.
        properties: Its properties, typed.
    """

    url: str
    instance_id: str
    properties: InstanceProperties
    _context: InstanceContext

    def tables(self) -> tuple[TableRecord, ...]:
        """Return every table's id, name, online flag and properties, ordered by name."""
        return self._context.index.all()

    def table(self, name: str) -> Table:
        """Open a table by its name.

        Raises:
            TableNotFound: there is no table with this name; the message names similar ones.
        """
        return open_table(name, self._context)
