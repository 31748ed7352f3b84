"""The configuration of an instance as files, by which another one can be made.

    instance.properties
    tables/flights/schema.json
    tables/flights/table.properties
    tables/flights/splits.txt           only if it has split points

`sleeper init --properties` and `sleeper table add` take them. The files have what was set: defaults
and what belongs to this instance alone (ids, names of buckets and queues) are left out. The folder
of a table has its name, or its id where a folder cannot have the name, or cannot have it on every
system beside that of another table. Split points are those of the first row key; a table with
others has a warning.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from sleeper.errors import AlreadyExists, SplitPointsInvalid
from sleeper.instance.instance import Instance
from sleeper.model.formats.properties_file import write_properties
from sleeper.model.formats.split_points_file import write_split_points
from sleeper.model.known_properties.catalogue import KNOWN_INSTANCE_PROPERTIES, TABLE_PROPERTIES
from sleeper.model.known_properties.value_kinds import Property
from sleeper.tables.table import Table

_log = logging.getLogger(__name__)

_FOLDER_NAME = re.compile(r"\w[\w .-]*")
_PLACES = ("sleeper.jobs.url", "sleeper.table.splits.file", "sleeper.table.splits.base64.encoded")


def write_configuration(instance: Instance, folder: Path) -> list[Path]:
    """Write the files into a folder, which is new or empty; return their paths.

    Raises:
        AlreadyExists: the folder has files already.
        OSError: it cannot be written.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise AlreadyExists(f"{folder} is there already, and not empty: choose a new folder")
    texts = {
        folder / "instance.properties": _settings(
            instance.properties.values, KNOWN_INSTANCE_PROPERTIES
        )
    }
    tables = [instance.table(record.name) for record in instance.tables()]
    taken = Counter(text.casefold() for table in tables for text in (table.name, table.table_id))
    for table in tables:
        is_own = _FOLDER_NAME.fullmatch(table.name) and taken[table.name.casefold()] == 1
        name = table.name if is_own else table.table_id
        texts |= _table_texts(table, folder / "tables" / name)
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return [*texts]


def _table_texts(table: Table, folder: Path) -> dict[Path, str]:
    texts = {
        folder / "schema.json": f"{table.schema.to_json()}\n",
        folder / "table.properties": _settings(table.properties.values, TABLE_PROPERTIES),
    }
    points = table.split_points()
    leaves = sum(1 for _ in table.state().tree.leaves())
    if leaves > len(points) + 1:
        _log.warning(
            "table %s has %d leaves, some of them by other row keys than the first, which a file "
            "of split points cannot say: a table made from these files begins with %d",
            table.name,
            leaves,
            len(points) + 1,
        )
    if points:
        try:
            texts[folder / "splits.txt"] = write_split_points(points, table.schema)
        except SplitPointsInvalid:  # a string that no line can hold
            name = "splits.base64.txt"
            texts[folder / name] = write_split_points(points, table.schema, base64_encoded=True)
    return texts


def _settings(values: Mapping[str, str], known: Iterable[Property]) -> str:
    """Return what was set and may be set elsewhere, as a properties file."""
    properties = [*known]
    own = {each.name for each in properties if not each.editable} | {*_PLACES}
    return write_properties(
        {name: text for name, text in values.items() if name not in own}, properties
    )
