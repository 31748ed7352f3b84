"""A log that somebody has written to: its names lead nowhere, and nothing else is deleted."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path

import pyarrow as pa
import pytest

import sleeper
from sleeper.errors import DataDamaged
from sleeper.storage.deletion import delete_data_files
from sleeper.storage.local.folder import FolderObjects

LEADING_AWAY = [
    "statestore/transactions/00000000000000000001.json",
    "../other/data/partition_root/a.parquet",
    "data/partition_root/../../statestore/x.parquet",
    "data/partition_root/a/b.parquet",
    "/etc/passwd",
    "..",
    "",
    "a\0b",
]


@pytest.fixture
def table(tmp_path):
    instance = sleeper.connect(tmp_path / "instance", create=True)
    schema = pa.schema([pa.field("id", pa.int64())])
    table = instance.create_table(
        "t", schema, row_keys=["id"], properties={"sleeper.table.gc.delay.minutes": "1"}
    )
    table.ingest([{"id": n} for n in range(10)])
    return table


def log_of(table: sleeper.Table) -> list[Path]:
    return sorted(Path(table._context.url, table.table_id, "statestore/transactions").iterdir())


def append(table: sleeper.Table, transaction: dict, at: str = "2020-01-01T00:00:00+00:00") -> None:
    """Write an entry by hand, as whoever may write to the folder can."""
    last = log_of(table)[-1]
    first_line = last.read_bytes().partition(b"\n")[0]
    document = json.loads(first_line)
    del document["keys"]
    document |= {"entryId": "by hand", "at": at, "transactions": [transaction]}
    document["prev"] = sha256(first_line).hexdigest()
    last.with_name(f"{int(last.stem) + 1:020d}.json").write_text(json.dumps(document))


def adding(name: str) -> dict:
    kind = {"filename": name, "partitionId": "root", "numberOfRows": 1}
    return {"type": "ADD_FILES", "references": [kind]}


def unreferenced(name: str) -> dict:
    return {"type": "ADD_FILES", "references": [], "unreferencedFiles": [name]}


@pytest.mark.parametrize("transaction", [adding, unreferenced])
@pytest.mark.parametrize("name", LEADING_AWAY)
def test_a_name_that_leads_away_is_damage(table, transaction, name):
    """The entry is named, whoever opens the table, and whatever is asked."""
    append(table, transaction(name))

    with pytest.raises(DataDamaged, match=r"entry 3 .*data/partition_<id>"):
        sleeper.connect(table._context.url).table("t").query().to_arrow()


def test_gc_deletes_data_files_alone(table):
    """A file of the table's folder that is none is reported, and stays; so does all else."""
    folder = Path(table._context.url, table.table_id)
    (folder / "notes.txt").write_text("dear")
    append(table, unreferenced("notes.txt"))

    summary = sleeper.connect(table._context.url).table("t").collect_garbage(force=True)

    assert "not the name of a data file" in summary.failures["notes.txt"]
    assert (folder / "notes.txt").exists()
    assert len(log_of(table)) == 3


def test_only_names_of_data_files_are_deleted(tmp_path, caplog):
    """Whatever list is handed in: each other name is a failure with its reason, and logged."""
    objects = FolderObjects(tmp_path)
    good = "data/partition_root/a.parquet"
    others = ["statestore/transactions/1.json", "data/partition_root/a.sketches", "x.parquet"]
    for key in (good, *others):
        objects.put(key, b"")

    failures = delete_data_files([*LEADING_AWAY, *others, good], objects)

    assert failures.keys() == {*LEADING_AWAY, *others}
    kept = {info.key for info in objects.listing()}
    assert kept == {"statestore/transactions/1.json", "x.parquet"}
    assert "not deleted" in caplog.text
