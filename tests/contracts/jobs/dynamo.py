"""Moved to tests/contracts/servers/dynamo.py; goes when nothing imports it from here."""

from tests.contracts.servers.dynamo import (
    LastingTables,
    dynamo,
    dynamo_client,
    dynamo_endpoint,
    new_id,
    pause,
    tables,
)

__all__ = [
    "LastingTables",
    "dynamo",
    "dynamo_client",
    "dynamo_endpoint",
    "new_id",
    "pause",
    "tables",
]
