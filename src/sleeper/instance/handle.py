"""The base of `Instance`: its tables, and what its methods in other modules use."""

from __future__ import annotations

from collections.abc import Iterator

from sleeper.model.known_properties.typed import InstanceProperties
from sleeper.model.tables import TableRecord
from sleeper.tables.instance_context import InstanceContext
from sleeper.tables.table import Table, open_table


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
    _sql_handles: dict[str, Table]

    def tables(self) -> tuple[TableRecord, ...]:
        """Return every table's id, name, online flag and properties, ordered by name."""
        return self._context.index.all()

    def table(self, name: str) -> Table:
        """Open a table by its name.

        Raises:
            TableNotFound: there is no table with this name; the message names similar ones.
        """
        return open_table(name, self._context)

    def __getitem__(self, name: str) -> Table:
        """Open a table by its name, as `table` does: `instance["flights"]`.

        Raises:
            TableNotFound: there is no table with this name; it is a LookupError.
        """
        return self.table(name)

    def __contains__(self, name: object) -> bool:
        """Return whether there is a table with a name."""
        return isinstance(name, str) and self._context.index.by_name(name) is not None

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of all tables, in order."""
        return iter([record.name for record in self.tables()])

    def _ipython_key_completions_(self) -> list[str]:
        """Return the names that IPython completes after `instance["`."""
        return [*self]
