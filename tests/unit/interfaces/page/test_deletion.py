"""Rows are deleted on a page: after they were shown, by who may write, and once (rule DEL-7)."""

from __future__ import annotations

import re

import httpx
import pyarrow as pa
import pytest

import sleeper
from sleeper.interfaces.page.mount import add_pages
from sleeper.interfaces.rest.app import make_app
from tests.patience import PATIENCE_S
from tests.unit.interfaces.page.test_pages import (
    Page,
    client,
    guarded,
    instance,
    sign_in,
    tokens,
)
from tests.unit.interfaces.rest.running_server import running_server

__all__ = ["client", "guarded", "instance", "tokens"]

PAIRS = pa.schema([("town", pa.string()), ("day", pa.int32()), ("note", pa.string())])
PATH = "/page/tables/trips/delete"
ROWS = [
    {"town": town, "day": day, "note": None if day == 3 else f"{town}<b>{day}"}
    for town in ("Bern", "Biel", "Chur")
    for day in (1, 2, 3, 4)
]


@pytest.fixture
def trips(instance):
    """Twelve rows of three towns and four days."""
    made = instance.create_table("trips", PAIRS, row_keys=["town", "day"])
    made.ingest(ROWS)
    return made


def left(table):
    """What rows are left, in short: the first letters of their towns, and their days."""
    return [f"{row['town'][:2]}{row['day']}" for row in table.query().to_pylist()]


def shown(client, **fields):
    """Send the first form, and return the page that shows what would go."""
    by = fields["by"]
    proof = Page(client.get(f"{PATH}?by={by}").text).fields["proof"]
    return client.post(PATH, data={"proof": proof, **fields})


def confirmed(client, page, **more):
    """Send the form of a page that shows what would go, as it is."""
    return client.post(PATH, data={**Page(page.text).fields, **more})


WAYS = {
    "a key": ({"by": "key", "key0": "Bern", "key1": "2"}, 1, ["Be2"]),
    "the first field of keys": ({"by": "key", "key0": "Biel"}, 4, ["Bi1", "Bi2", "Bi3", "Bi4"]),
    "keys": ({"by": "keys", "keys": "Bern\t3\r\n\r\nChur\t1\nNone\t9"}, 2, ["Be3", "Ch1"]),
    "a prefix": (
        {"by": "prefix", "prefix0": "B"},
        8,
        ["Be1", "Be2", "Be3", "Be4", "Bi1", "Bi2", "Bi3", "Bi4"],
    ),
    "a range": (
        {"by": "range", "from0": "Biel", "to0": "Chur", "to1": "1"},
        2,
        ["Bi1", "Ch1"],
    ),
    "a condition": ({"by": "where", "where": "note IS NULL AND town > 'Bern'"}, 2, ["Bi3", "Ch3"]),
}


@pytest.mark.parametrize(("fields", "count", "gone"), [*WAYS.values()], ids=[*WAYS])
def test_rows_go_after_they_were_shown(client, trips, fields, count, gone):
    """Given any way to name rows, their number and the rows are shown, and nothing goes before."""
    before = left(trips)

    page = shown(client, **fields)

    assert page.status_code == 200
    words = Page(page.text).words
    assert f"Delete {count} row{'s' * (count > 1)}?" in words
    assert [f"{town[:2]}{day}" for town, day in re.findall(r"(Bern|Biel|Chur)<b>(\d)", words)] == [
        each for each in gone if each[2] != "3"
    ]
    assert left(trips) == before

    told = Page(confirmed(client, page).text).words

    assert "went (transaction" in told
    assert left(trips) == [each for each in before if each not in gone]
    assert trips.verify().clean


def test_a_condition_is_tested_where_statements_run(tmp_path):
    """Given a server with processes for statements, it is counted there, and rows go."""
    with sleeper.connect(tmp_path / "instance", create=True) as instance:
        table = instance.create_table("trips", PAIRS, row_keys=["town", "day"])
        table.ingest(ROWS)
        app = make_app(instance)
        add_pages(app)
        with running_server(app) as url, httpx.Client(base_url=url, timeout=PATIENCE_S) as client:
            assert app.state.statements is not None
            page = shown(client, by="where", where="day = 4")
            assert "Delete 3 rows?" in Page(page.text).words
            assert "3 rows of trips went" in Page(confirmed(client, page).text).words
            refused = shown(client, by="where", where="tomorrow = 4")

        assert (refused.status_code, "tomorrow" in Page(refused.text).words) == (400, True)
        assert len(left(table)) == 9


def test_a_form_that_is_sent_again_spares_what_was_added_since(client, trips):
    """Given an answer that was lost, the second one says so and deletes nothing (DEL-6)."""
    page = shown(client, by="key", key0="Chur")
    confirmed(client, page)
    trips.ingest([{"town": "Chur", "day": 7, "note": "new"}])

    again = confirmed(client, page)

    assert "were deleted before" in Page(again.text).words
    assert left(trips)[-1] == "Ch7"


def test_the_reason_is_in_the_history(client, trips):
    """With who deleted them."""
    page = shown(client, by="key", key0="Biel")

    confirmed(client, page, reason=" ticket <4711> ")

    newest = trips.history()[0]
    assert (newest.reasons, newest.number) == (("ticket <4711>",), trips.refresh())


def test_rows_that_are_not_there_cannot_be_confirmed(client, trips):
    """The page says that none would go, and has no form."""
    page = shown(client, by="key", key0="Genf")

    assert "No row would go" in Page(page.text).words
    assert "sure" not in Page(page.text).fields


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"by": "key"}, "give a value"),
        ({"by": "key", "key0": "Bern", "key1": "second"}, "is not a value for key field 'day'"),
        ({"by": "keys", "keys": "\n"}, "paste one key"),
        ({"by": "keys", "keys": "Bern\t1\nBern"}, "line 2 has 1 values; a key has 2"),
        ({"by": "keys", "keys": "Bern\tx"}, "line 1: 'x' is not a value"),
        ({"by": "keys", "keys": "Bern\t1\n" * 1001}, "these are 1,001 keys"),
        ({"by": "prefix"}, "give the beginning"),
        ({"by": "prefix", "prefix1": "1"}, "day"),
        ({"by": "range"}, "give a first or a last value"),
        ({"by": "where", "where": " "}, "give a condition"),
        ({"by": "where", "where": "town ="}, "town ="),
        ({"by": "where", "where": "nothing = 1"}, "nothing"),
    ],
)
def test_what_cannot_be_deleted_is_told_beside_what_was_typed(client, trips, fields, words):
    """Before anything is counted or goes; the texts stay in the form."""
    answer = shown(client, **fields)

    assert answer.status_code == 400
    assert words in Page(answer.text).words
    assert "sure" not in Page(answer.text).fields
    assert {n: v for n, v in Page(answer.text).fields.items() if n in fields and v} == {
        n: v for n, v in fields.items() if n not in ("keys", "where")
    }
    assert len(left(trips)) == 12


def test_no_kind_of_form_is_refused(client, trips):
    """Whoever makes up a form is told what there is."""
    proof = Page(client.get(PATH).text).fields["proof"]

    answer = client.post(PATH, data={"proof": proof, "by": "all", "sure": "yes"})

    assert (answer.status_code, "by one of key, keys" in answer.text) == (400, True)
    assert len(left(trips)) == 12


def test_markup_in_what_is_asked_is_text(client, trips):
    """In the facts, and in the fields that are kept."""
    trips.ingest([{"town": "<script>", "day": 1, "note": "<i>"}])

    page = shown(client, by="key", key0="<script>")

    assert "<script>" not in page.text.partition("<main")[2]
    assert Page(page.text).fields["key0"] == "<script>"


@pytest.mark.parametrize("step", ["asked", "confirmed"])
@pytest.mark.parametrize(
    ("headers", "proof"),
    [({"Origin": "https://evil.example"}, True), ({}, False), ({}, None)],
    ids=["other site", "wrong proof", "no proof"],
)
def test_a_form_that_is_of_no_page_of_ours_deletes_nothing(client, trips, step, headers, proof):
    """Whichever of the two it is."""
    fields = {"by": "key", "key0": "Bern"} | ({"sure": "yes"} if step == "confirmed" else {})
    right = Page(client.get(PATH).text).fields["proof"]
    sent = {} if proof is None else {"proof": right if proof else "0" * 64}

    answer = client.post(PATH, data=fields | sent, headers=headers)

    assert answer.status_code == 403
    assert len(left(trips)) == 12


class TestRoles:
    """A server with tokens: rows are deleted by who may write, as by REST."""

    def test_a_reader_sees_no_way_and_has_none(self, guarded, trips, tokens):
        """Neither the link, nor the form, nor what it does."""
        sign_in(guarded, tokens[1]["read"])
        rows = Page(guarded.get("/page/tables/trips/rows").text)
        fields = {"by": "key", "key0": "Bern", "sure": "yes", "proof": rows.fields["proof"]}

        assert "Delete rows" not in rows.words
        assert guarded.get(PATH).status_code == 403
        assert guarded.post(PATH, data=fields).status_code == 403
        assert len(left(trips)) == 12

    @pytest.mark.parametrize("role", ["write", "admin"])
    def test_who_may_write_deletes_under_the_name_of_the_token(self, guarded, trips, tokens, role):
        """And the history says so."""
        sign_in(guarded, tokens[1][role])
        assert "Delete rows" in Page(guarded.get("/page/tables/trips/rows").text).words

        confirmed(guarded, shown(guarded, by="prefix", prefix0="Be"))

        assert len(left(trips)) == 8
        assert trips.history()[0].by == (f"token {role}",)

    def test_without_a_token_the_form_leads_to_the_sign_in(self, guarded, trips):
        """And deletes nothing."""
        answer = guarded.post(PATH, data={"by": "key", "key0": "Bern", "sure": "yes"})

        assert (answer.status_code, answer.headers["location"][:13]) == (303, "/page/sign-in")
        assert len(left(trips)) == 12
