"""What an application serves: an instance, its open tables, its tokens and its limits.

It also registers the converter `segment` for paths of routes, such as `/tables/{table:segment}`.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from pathlib import Path
from typing import Final
from urllib.parse import quote, unquote

from fastapi import Request
from starlette.convertors import Convertor, register_url_convertor

from sleeper.instance.instance import Instance
from sleeper.interfaces.rest.request_limits import RequestLimits
from sleeper.interfaces.rest.tokens import TokenFile
from sleeper.tables.table import Table
from sleeper.workers.serve.metrics import Metrics, NoWorkers

_OPEN_TABLES_MAX: Final = 256


class _Segment(Convertor[str]):
    """One segment of a path, decoded: a name may have a slash, which is sent as `%2F`."""

    regex = "[^/]+"

    def convert(self, value: str) -> str:
        return unquote(value, errors="replace")

    def to_string(self, value: str) -> str:
        return quote(value, safe="")


register_url_convertor("segment", _Segment())


class ServedInstance:
    """What the routes of one application use.

    Attributes:
        instance: The instance.
        tokens: Who may do what; None if every request of this machine may do everything.
        limits: How large requests and answers may be.
        input_folder: The folder of this machine whose files jobs may name; None for none.
        metrics: Figures of queues and jobs.
    """

    def __init__(
        self,
        instance: Instance,
        tokens: TokenFile | None,
        limits: RequestLimits,
        input_folder: Path | None,
    ) -> None:
        self.instance = instance
        self.tokens = tokens
        self.limits = limits
        self.input_folder = input_folder
        self.metrics = Metrics(lambda: instance, NoWorkers, (), instance.clock)
        self._open: OrderedDict[str, Table] = OrderedDict()
        self._lock = threading.Lock()

    def table(self, name: str) -> Table:
        """Open a table by its name; the handle is kept, with what it knows of the table's state.

        Raises:
            TableNotFound: there is no table with this name; the message names similar ones.
        """
        found = self.instance.table(name)
        with self._lock:
            table = self._open.setdefault(found.table_id, found)
            self._open.move_to_end(found.table_id)
            if len(self._open) > _OPEN_TABLES_MAX:
                self._open.popitem(last=False)
        return table


def served_instance(request: Request) -> ServedInstance:
    """Return what the application of a request serves."""
    served: ServedInstance = request.app.state.served
    return served
