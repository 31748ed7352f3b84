"""Names of objects inside an instance (docs/design.md).

    <table id>/data/partition_<partition id>/<name>.parquet     a data file
    <table id>/data/partition_<partition id>/<name>.sketches    its sketch
    <table id>/statestore/transactions/ · snapshots/            the table's state
    <table id>/statestore/moves/<move id>                       a move of it to another state store
    <table id>/states/<move id>/                                what a store that it moved to keeps
    <table id>/published/<format>/<version>-<transaction>-<us>  a note: what readers may have open
    <table id>/_delta_log/, iceberg/                            the table in formats of others
    instance.properties, properties/                            the instance's properties
    tables/                                                     the table index
    services/jobs.sqlite                                        queues, tracker, batcher
    services/paused                                             exists while services are paused
    services/notes/<service>.json                               what was last done with each table

References name a data file by its path inside the table's folder, so an instance can be moved.
"""

from __future__ import annotations

import re

_DATA_FILE = re.compile(r"data/partition_[^/\x00]+/[^/\x00]+\.parquet")

IN_TABLE = r"(?:data/partition_[^/\x00]+/)?(?:[^/\x00]*[^/.\x00][^/\x00]*|\.{3,})"
"""Regular expression for file names inside a table's folder, for Python and for Arrow."""

_IN_TABLE = re.compile(IN_TABLE)

_COMMIT_REQUEST = re.compile(r"statestore/commit_requests/[0-9A-Za-z-]+\.json")

_PUBLICATION = re.compile(r"published/([a-z]+)/(\d{20})-(\d{20})-(\d{20})")

INSTANCE_PROPERTIES = "instance.properties"
PROPERTIES_VERSIONS = "properties/"
TABLE_INDEX = "tables/"
SERVICES = "services/"
JOBS = "services/jobs.sqlite"
PAUSED = "services/paused"
STATE_MOVES = "statestore/moves/"
MOVED_STATES = "states/"
PUBLISHED = "published/"


def service_notes(service: str) -> str:
    """Return the key of what a service of an instance in AWS notes between two calls."""
    return f"{SERVICES}notes/{service}.json"


def data_file(partition_id: str, name: str) -> str:
    """Return the file name of a data file under a partition's folder."""
    return f"data/partition_{partition_id}/{name}.parquet"


def is_data_file(name: str) -> bool:
    """Return whether `data_file` makes such a name. Files with other names are never deleted."""
    return _DATA_FILE.fullmatch(name) is not None


def may_be_data_file(name: str) -> bool:
    """Return whether `name` is inside a table's folder, or inside a partition's folder.

    Log entries are checked by this rule; writers keep to the stricter `is_data_file`.
    """
    return _IN_TABLE.fullmatch(name) is not None


def sketch_file(filename: str) -> str:
    """Return the file name of the sketch of a data file."""
    return filename.removesuffix(".parquet") + ".sketches"


def state_move(move_id: str) -> str:
    """Return the key, in a table's folder, of the note of a move of its state."""
    return f"{STATE_MOVES}{move_id}.json"


def moved_state(move_id: str) -> str:
    """Return the folder, in a table's folder, of the state store that a move has opened."""
    return f"{MOVED_STATES}{move_id}"


def commit_request(request_id: str) -> str:
    """Return the key, in a table's folder, of a transaction too large for a message."""
    return f"statestore/commit_requests/{request_id}.json"


def is_commit_request(key: str) -> bool:
    """Return whether a key is one that `commit_request` makes."""
    return _COMMIT_REQUEST.fullmatch(key) is not None


def publication_note(name: str, *, version: int, transaction: int, at_us: int) -> str:
    """Return the key, in a table's folder, of the note of a version that is published.

    Args:
        name: The format.
        version: The number of the version in the format.
        transaction: The transaction whose state it is.
        at_us: When that was committed, in microseconds since 1970; 0 if it is not known.
    """
    return f"{PUBLISHED}{name}/{version:020}-{transaction:020}-{at_us:020}"


def publication_noted(key: str) -> tuple[str, int, int, int] | None:
    """Return what `publication_note` was given for a key; None if it makes no such key."""
    found = _PUBLICATION.fullmatch(key)
    return None if found is None else (found[1], int(found[2]), int(found[3]), int(found[4]))
