"""A store that answers ranges of data files wrongly: rows are right, or an error is raised."""

from __future__ import annotations

from dataclasses import replace

import pytest

import sleeper
from sleeper.errors import DataDamaged, StorageFailed
from tests.requests import counting_s3 as store
from tests.requests.world import SCHEMA, key, rows, use

NUMBERS = range(3_000)
ASKED = [7, 1_234, 2_998]


def _body(answer, change):
    return replace(answer, body=change(answer.body))


def _moved(stored, name, asked, by):
    """Answer for a range somewhat later, but say that it is the one that was asked for."""
    first, _, last = asked.removeprefix("bytes=").partition("-")
    moved = store._got(stored, name, f"bytes={int(first) + by}-{int(last) + by}")
    honest = store._got(stored, name, asked)
    return replace(moved, headers=honest.headers)


def _of_another_file(stored, name, asked):
    """Answer from another data file."""
    other = next(each for each in stored.bodies if "/data/" in each and each != name)
    return store._got(stored, other, asked)


def _resized(stored, name, asked, by):
    """Answer as if the file was truncated, or as if zeros were appended to it."""
    body = stored.bodies[name]
    changed = body + bytes(by) if by > 0 else body[:by]
    copy = store.Stored({name: changed}, dict(stored.times))
    return store._got(copy, name, asked)


LIES = {
    "fewer bytes": lambda *asked: _body(store._got(*asked), lambda body: body[:-3]),
    "no bytes": lambda *asked: _body(store._got(*asked), lambda body: b""),
    "more bytes": lambda *asked: _body(store._got(*asked), lambda body: body + bytes(9)),
    "the whole file": lambda stored, name, _: store._got(stored, name, ""),
    "a later range": lambda *asked: _moved(*asked, by=1),
    "zeros": lambda *asked: _body(store._got(*asked), lambda body: bytes(len(body))),
    "another file": _of_another_file,
    "a truncated file": lambda *asked: _resized(*asked, by=-20),
    "a longer file": lambda *asked: _resized(*asked, by=20),
}

HARMLESS = ("more bytes", "a longer file", "a truncated file")
"""Lies that leave the bytes that some question needs as they are."""


@pytest.fixture
def server(monkeypatch):
    with store.counting_s3() as server:
        use(server, monkeypatch.setenv)
        yield server


@pytest.mark.parametrize("warm", [False, True], ids=["cold", "warm"])
@pytest.mark.parametrize("lie", LIES)
def test_wrong_answers_give_no_wrong_rows(server, monkeypatch, lie, warm):
    """Given a table of two files, when ranges are answered wrongly, then queries fail or are right."""
    url = "s3://lying/instance"
    properties = {"sleeper.statestore.commit.read.back": "never"}
    with sleeper.create_instance(url, properties) as instance:
        table = instance.create_table("t", SCHEMA, row_keys=["key"])
        table.ingest(rows(NUMBERS[::2]))
        table.ingest(rows(NUMBERS[1::2]))
    table = sleeper.connect(url).table("t")
    if warm:
        table.query(keys=[key(n) for n in ASKED[:1]]).to_arrow()
    honest = store._got

    def answered(stored, name, asked):
        if "/data/" not in name or not asked:
            return honest(stored, name, asked)
        with monkeypatch.context() as patch:
            patch.setattr(store, "_got", honest)
            return LIES[lie](stored, name, asked)

    monkeypatch.setattr(store, "_got", answered)
    questions = [
        *({"key": key(n)} for n in ASKED),
        {"keys": [key(n) for n in ASKED]},
        {"range": {"key": (key(1_000), key(1_100))}},
    ]
    expected = [*(rows([n]) for n in ASKED), rows(ASKED), rows(range(1_000, 1_100))]
    refused = 0
    for question, right in zip(questions, expected, strict=True):
        try:
            found = table.query(**question).to_arrow()
        except (DataDamaged, StorageFailed):
            refused += 1
        else:
            assert found.to_pylist() == right.to_pylist(), question
    assert refused == len(questions) or lie in HARMLESS
