"""An instance that a REST server serves."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Never, Self
from urllib.parse import urlsplit

from sleeper.engine.inputs.data_schema import schema_of
from sleeper.engine.rows import Rows
from sleeper.errors import BadRequest, QueryInvalid, SplitPointsInvalid, UrlInvalid
from sleeper.instance.instance import Instance, environment_token, input_store
from sleeper.instance.pause import PauseSwitch
from sleeper.interfaces.remote.http_client import HttpClient
from sleeper.interfaces.remote.remote_jobs import RemoteJobs
from sleeper.interfaces.remote.remote_table import (
    RemoteTable,
    answered_rows,
    not_offered,
    path_of_table,
    text_of,
)
from sleeper.jobs.arguments import checked_since
from sleeper.model.csv_options import CsvOptions
from sleeper.model.keys import checked_value, key_type, value_to_json
from sleeper.model.known_properties.given import PropertyValue, property_texts
from sleeper.model.known_properties.typed import InstanceProperties
from sleeper.model.schema import Schema
from sleeper.model.tables import NAME, TableRecord


def open_remote(url: str, token: str | None) -> RemoteInstance:
    """Return the instance that a server serves. Nothing is asked yet.

    Args:
        url: `https://host:port`, or `http://` for a server of this machine.
        token: A token of the server; without it that of the environment, SLEEPER_TOKEN.

    Raises:
        UrlInvalid: the URL has no host, or a path, user or query.
    """
    parts = urlsplit(url)
    try:
        is_wrong = not parts.hostname or parts.port == 0
    except ValueError:
        is_wrong = True
    if is_wrong or parts.path.strip("/") or parts.query or parts.fragment or "@" in parts.netloc:
        raise UrlInvalid(
            f"a server is https://host:port, without a path, user or query; the token is given "
            f"apart: connect('{parts.scheme}://{parts.netloc.rpartition('@')[2]}', token=...)"
        )
    if token is not None and not isinstance(token, str):
        raise BadRequest(f"token must be a text, not a {type(token).__name__}")
    return RemoteInstance(f"{parts.scheme}://{parts.netloc}", token or environment_token())


class RemoteInstance:
    """An instance that a REST server serves: its tables and jobs, by the methods of `Instance`.

    It is safe in threads and may be pickled, without its token, which is read from SLEEPER_TOKEN
    where it is unpickled. Everything else of `Instance` raises BadRequest, which names what to use.

    Attributes:
        url: The server.
    """

    def __init__(self, url: str, token: str | None) -> None:
        self.url = url
        self._client = HttpClient(url, token)

    @property
    def instance_id(self) -> str:
        """Its name, `sleeper.id`."""
        return str(self._client.get("/sleeper/instance")["id"])

    @property
    def properties(self) -> InstanceProperties:
        """Its properties, typed, as the server uses them now."""
        found = self._client.get("/sleeper/instance/properties")["properties"]
        return InstanceProperties(found)

    def set_properties(self, changes: Mapping[str, PropertyValue | None]) -> None:
        """Set properties of the instance, as `Instance.set_properties`."""
        path = "/sleeper/instance/properties"
        self._client.send("PATCH", path, {"properties": dict(changes)})

    def tables(self) -> tuple[TableRecord, ...]:
        """Return every table's id, name, online flag and properties, ordered by name."""
        found = self._client.get("/sleeper/tables", properties=True)["tables"]
        return tuple(
            TableRecord(each["id"], each["name"], each["online"], each["properties"])
            for each in found
        )

    def table(self, name: str) -> RemoteTable:
        """Open a table by its name.

        Raises:
            TableNotFound: there is no table with this name; the message names similar ones.
        """
        return RemoteTable(self._client, name)

    def __getitem__(self, name: str) -> RemoteTable:
        return self.table(name)

    def __contains__(self, name: object) -> bool:
        return name in [*self]

    def __iter__(self) -> Iterator[str]:
        return iter([record.name for record in self.tables()])

    def _ipython_key_completions_(self) -> list[str]:
        return [*self]

    def create_table(
        self,
        name: str,
        schema: Any,
        *,
        row_keys: Sequence[str] | None = None,
        sort_keys: Sequence[str] = (),
        csv: CsvOptions | Mapping[str, Any] | None = None,
        split_points: Sequence[Any] | None = None,
        properties: Mapping[str, PropertyValue | None] | None = None,
    ) -> RemoteTable:
        """Make a table, as `Instance.create_table`."""
        ours = schema_of(schema, row_keys, sort_keys, csv=csv, remote=input_store())
        texts = property_texts(properties or {})
        body: dict[str, Any] = {
            "properties": {NAME: name, **{k: v for k, v in texts.items() if v is not None}},
            "schema": json.loads(ours.to_json()),
        }
        if split_points is not None:
            body["splitPoints"] = [_split_point(ours, point) for point in split_points]
        self._client.send("POST", "/sleeper/tables", body)
        return self.table(name)

    def delete_table(self, name: str) -> None:
        """Delete a table with all its data. This cannot be undone.

        Raises:
            TableNotFound: there is no table with this name.
        """
        self._client.send("DELETE", path_of_table(name))

    def sql(self, statement: str, *, if_unchanged_since: int | None = None) -> Rows:
        """Return the rows of an SQL query over the tables, as `Instance.sql`."""
        body = {"statement": text_of(statement, "a statement")}
        since = checked_since(if_unchanged_since)
        return answered_rows(self._client, "/sleeper/sql", body, if_unchanged_since=since)

    def explain_sql(self, statement: str) -> str:
        """Return what a statement would do, and what it would read."""
        body = {"statement": text_of(statement, "a statement"), "explain": True}
        return str(self._client.send("POST", "/sleeper/sql", body)["plan"])

    @property
    def jobs(self) -> RemoteJobs:
        """The instance's jobs."""
        return RemoteJobs(self._client)

    @property
    def pause_switch(self) -> RemotePauseSwitch:
        """Tells whether the instance is paused."""
        return RemotePauseSwitch(self._client)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return open_remote, (self.url, None)

    def __getattr__(self, name: str) -> Never:
        raise not_offered(self, Instance, "an instance", name)

    def __repr__(self) -> str:
        return f"<RemoteInstance at {self.url}>"


class RemotePauseSwitch:
    """Whether an instance is paused, as its server tells. To pause it, open the instance itself."""

    def __init__(self, client: HttpClient) -> None:
        self._client = client

    def paused_since(self) -> datetime | None:
        """Return since when the instance is paused (aware, UTC); None when it is not."""
        since = self._client.get("/sleeper/instance")["paused_since"]
        return None if since is None else datetime.fromisoformat(since)

    def __getattr__(self, name: str) -> Never:
        raise not_offered(self, PauseSwitch, "the pause switch", name)


def _split_point(schema: Schema, value: Any) -> Any:
    """Return a split point as a JSON value.

    Raises:
        SplitPointsInvalid: it is not a value of the first row key.
    """
    field = schema.row_keys[0]
    try:
        return value_to_json(key_type(field), checked_value(field, value))
    except QueryInvalid as error:
        raise SplitPointsInvalid(str(error)) from None
