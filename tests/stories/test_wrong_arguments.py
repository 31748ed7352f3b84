"""Arguments that cannot be meant: each is refused by name, with the value and what is wanted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import sleeper
from sleeper.errors import BadRequest, QueryInvalid, UrlInvalid

SCHEMA = pa.schema([("k", pa.int64()), ("s", pa.string()), ("v", pa.int64())])
ROWS = [{"k": n, "s": "a", "v": n} for n in range(5)]


@pytest.fixture
def instance():
    return sleeper.connect("memory://")


@pytest.fixture
def table(instance):
    made = instance.create_table("t", SCHEMA, row_keys=["k"], sort_keys=["s"])
    made.ingest(ROWS)
    return made


@pytest.mark.parametrize("name", ["key", "keys", "range", "regions"])
def test_none_does_not_ask_for_all_rows(table, name, tmp_path):
    """A key that is missing where it was to be must not read the whole table."""
    verbs = [table.query, lambda **asked: table.to_spark(None, **asked)]
    if name in ("range", "regions"):
        verbs.append(lambda **asked: table.export(tmp_path / "out", **asked))

    for verb in verbs:
        with pytest.raises(QueryInvalid, match=f"{name}=None asks for nothing.*leave {name}= out"):
            verb(**{name: None})

    assert list(tmp_path.iterdir()) == []


def test_nothing_asked_for_is_no_rows(table, tmp_path):
    """An empty list of keys or ranges has no rows; without any of the four all rows come."""
    assert table.query(keys=[]).count() == 0
    assert table.query(keys=np.array([], int)).count() == 0
    assert table.query(regions=[]).count() == 0
    assert table.query(regions=iter([])).count() == 0
    assert table.export(tmp_path / "none", regions=[]).rows == 0
    assert table.query().count() == 5
    assert table.query(range={}).count() == 5
    assert table.query(regions=[{}]).count() == 5


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"range": []}, ["(min, max)", "[]"]),
        ({"range": 5}, ["(min, max)", "5"]),
        ({"regions": 5}, ["regions must be a list", "5"]),
        ({"regions": "k"}, ["regions must be a list", "'k'"]),
        ({"regions": {"k": (1, 2)}}, ["did you mean range={'k': (1, 2)}"]),
        ({"regions": [5]}, ["(min, max)", "5"]),
        ({"keys": 5}, ["keys must be a sequence", "int"]),
        ({"keys": {"k": 1}}, ["keys must be a sequence", "dict"]),
        ({"columns": 5}, ["columns must be a list of names", "5"]),
        ({"columns": [5]}, ["no column 5"]),
        ({"columns": []}, ["at least one column"]),
        ({"as_of": "1"}, ["as_of must be a transaction number", "'1'"]),
        ({"as_of": 1.0}, ["as_of must be a transaction number", "1.0"]),
        ({"as_of": True}, ["as_of must be a transaction number", "True"]),
        ({"key": 1, "keys": [1]}, ["not by several: key, keys"]),
    ],
)
def test_a_question_of_the_wrong_type(table, asked, words):
    """Before anything is read."""
    with pytest.raises(QueryInvalid) as refused:
        table.query(**asked)

    assert [word for word in words if word not in str(refused.value)] == [], str(refused.value)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda i, t: i.create_table("x", SCHEMA, row_keys="ab"), ["row_keys", "'ab'", "list"]),
        (
            lambda i, t: i.create_table("x", SCHEMA, row_keys=["k"], sort_keys="s"),
            ["sort_keys", "'s'", "list"],
        ),
        (lambda i, t: i.create_table("x", SCHEMA, row_keys=5), ["row_keys", "5", "list"]),
        (lambda i, t: i.create_table("x", None), ["schema", "None", "pyarrow.Schema"]),
        (lambda i, t: i.create_table("x", 5), ["schema", "5", "pyarrow.Schema"]),
        (
            lambda i, t: i.create_table("x", SCHEMA, row_keys=["k"], split_points=5),
            ["split_points", "5", "list of values of 'k'"],
        ),
        (
            lambda i, t: i.create_table("x", SCHEMA, row_keys=["s"], split_points="m"),
            ["split_points", "'m'", "list of values of 's'"],
        ),
        (lambda i, t: t.reinitialise(split_points=5), ["split_points", "5", "list"]),
        (lambda i, t: i.table(5), ["table", "5", "string"]),
        (lambda i, t: i.delete_table(None), ["table", "None", "string"]),
        (lambda i, t: t.ingest(""), ["''", "path or URL"]),
        (lambda i, t: t.ingest([b"", "a"]), ["b''", "path or URL"]),
        (lambda i, t: t.bulk_import(""), ["''", "path or URL"]),
        (lambda i, t: t.ingest(ROWS, set_aside=5), ["set_aside", "5", "path"]),
        (lambda i, t: t.ingest(ROWS, set_aside=""), ["set_aside", "''", "path"]),
        (lambda i, t: t.bulk_import(ROWS, engine="sparc"), ["engine", "'sparc'", "auto, local or"]),
        (lambda i, t: t.export(None), ["export", "None", "s3://bucket/folder"]),
        (lambda i, t: t.export("x", as_of="1"), ["as_of", "'1'"]),
        (lambda i, t: sleeper.connect(None), ["None", "path of a folder"]),
        (lambda i, t: sleeper.connect(5, create=True), ["5", "path of a folder"]),
        (lambda i, t: sleeper.create_instance(None), ["None", "path of a folder"]),
    ],
)
def test_an_argument_of_the_wrong_type(instance, table, call, words, tmp_path, monkeypatch):
    """Never a TypeError, nor a FileNotFoundError; and nothing is made or changed."""
    monkeypatch.chdir(tmp_path)

    with pytest.raises(BadRequest) as refused:
        call(instance, table)

    assert [word for word in words if word not in str(refused.value)] == [], str(refused.value)
    assert table.query().to_pylist() == ROWS
    assert [record.name for record in instance.tables()] == ["t"]
    assert list(tmp_path.iterdir()) == []


def test_pandas_is_shown_the_way(table):
    """`DataFrame(rows)` made a frame of one cell, in silence."""
    for make in (pd.DataFrame, np.asarray):
        with pytest.raises(BadRequest, match=r"rows\.to_pandas\(\)"):
            make(table.query())

    assert pd.DataFrame(table.query().to_pandas()).shape == (5, 3)


def test_an_instance_is_not_made_inside_another(tmp_path):
    """Its folder would be taken for a part of the outer one."""
    outer = sleeper.connect(tmp_path / "outer", create=True)
    (tmp_path / "link").symlink_to(tmp_path / "outer", target_is_directory=True)

    for inner in ("outer/inner", "outer/a/b", "link/c"):
        with pytest.raises(UrlInvalid, match=f"inside the instance at {outer.url}"):
            sleeper.connect(tmp_path / inner, create=True)
        with pytest.raises(UrlInvalid, match="outside of that folder"):
            sleeper.create_instance(tmp_path / inner)

    assert [path.name for path in Path(outer.url).glob("[!.]*")] == ["instance.properties"]
    assert sleeper.connect(tmp_path / "outer", create=True).instance_id == outer.instance_id


@pytest.mark.parametrize("workers", [-1, 0, -7, 2.0, True, "3", None])
def test_a_compaction_has_a_whole_number_of_workers(table, workers):
    """Anything else is refused before files are claimed; 0 and less were taken for 1."""
    table.ingest(ROWS)

    with pytest.raises(BadRequest, match=f"workers={workers!r} must be a whole number"):
        table.compact(all_files=True, workers=workers)

    assert table.claims() == ()
    assert len(table.state().references()) == 2


@pytest.mark.parametrize("url", ["az://box/trades", "abfss://box@account/a", "WASBS://box@a/b"])
def test_azure_is_said_to_be_unknown(table, url):
    """As the place of an instance, and as input; the message names the stores that are known."""
    for verb in (sleeper.connect, table.ingest):
        with pytest.raises(UrlInvalid, match=r"gs://bucket/folder.* Azure's storage is not suppor"):
            verb(url)

    with pytest.raises(UrlInvalid) as other:
        sleeper.connect("ftp://host/folder")
    assert "Azure" not in str(other.value)
