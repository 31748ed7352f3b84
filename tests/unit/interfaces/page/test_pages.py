"""Pages: what they show, who may see and change what, and that nothing of a name is markup."""

from __future__ import annotations

import hashlib
import io
import tempfile
from datetime import UTC, datetime
from html.parser import HTMLParser
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fastapi.testclient import TestClient

import sleeper
from sleeper.html.markup import size_text
from sleeper.instance.instance import new_secret
from sleeper.interfaces.page.mount import add_pages
from sleeper.interfaces.page.rendering import STATIC
from sleeper.interfaces.page.routes.sign_in import _inside
from sleeper.interfaces.rest.app import make_app
from sleeper.interfaces.rest.tokens import Role, TokenFile
from sleeper.model.jobs.messages import NewMessage

BASE = "http://localhost:8750"
HOSTILE = "a/<script>alert(1)</script>?#%\"'&"
SCHEMA = pa.schema([("id", pa.string()), ("n", pa.int64()), ("text", pa.string())])
PAGES = [
    "",
    "/history",
    "/rows",
    "/rows?by=all&ask=1",
    "/properties",
    "/maintenance",
    "/maintenance?look=orphans",
]


class Page(HTMLParser):
    """The tags of a page, the fields of its forms, and its words."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.handlers: list[str] = []
        self.styles: list[str] = []
        self.fields: dict[str, str] = {}
        self.words = ""
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        given = dict(attrs)
        self.handlers += [name for name in given if name.startswith("on")]
        self.styles += [name for name in given if name == "style"]
        if tag == "input":
            self.fields[given["name"]] = given.get("value") or ""

    def handle_data(self, data):
        self.words += data


def in_page(name: str) -> str:
    return f"/page/tables/{quote(name, safe='')}"


@pytest.fixture
def instance():
    with sleeper.connect("memory://") as opened:
        yield opened


@pytest.fixture
def table(instance):
    made = instance.create_table(HOSTILE, SCHEMA, row_keys=["id"], split_points=["<b>", "m"])
    made.ingest([{"id": f"{HOSTILE}{n:03}", "n": n, "text": HOSTILE} for n in range(30)])
    return made


@pytest.fixture
def client(instance):
    """A browser on this machine; the server has no tokens."""
    app = make_app(instance)
    add_pages(app)
    with TestClient(app, base_url=BASE, raise_server_exceptions=False) as opened:
        yield opened


@pytest.fixture
def tokens(tmp_path):
    """A token of each role, and one that has expired."""
    file = TokenFile(tmp_path / "tokens.json", lambda: datetime.now(UTC))
    found = {
        role.text: file.add(
            role.text, role, expires=None, new_secret=new_secret, token_id=f"{role.value:08x}"
        )
        for role in Role
    }
    expired = {"expires": datetime(2020, 1, 1, tzinfo=UTC), "new_secret": new_secret}
    found["expired"] = file.add("old", Role.ADMIN, **expired, token_id="ffffffff")
    return file, found


@pytest.fixture
def guarded(instance, tokens):
    """A browser anywhere; the server asks for tokens."""
    app = make_app(instance, tokens=tokens[0])
    add_pages(app)
    with TestClient(
        app, base_url=BASE, raise_server_exceptions=False, follow_redirects=False
    ) as opened:
        yield opened


def sign_in(client: TestClient, token: str, after: str = "") -> object:
    proof = Page(client.get("/page/sign-in").text).fields["proof"]
    return client.post("/page/sign-in", data={"token": token, "proof": proof, "next": after})


def post(client: TestClient, path: str, **fields: str) -> object:
    """Send a form as its page would."""
    proof = Page(client.get("/page").text + client.get("/page/tables/t/properties").text)
    return client.post(path, data={"proof": proof.fields["proof"], **fields})


@pytest.mark.parametrize("page", PAGES)
def test_names_keys_and_values_with_markup_are_text_on_every_page(client, table, page):
    """Given a table whose name, keys and values are HTML, no element of theirs is made."""
    answer = client.get(in_page(HOSTILE) + page)

    shown = Page(answer.text)
    assert answer.status_code == 200
    assert shown.tags.count("script") == 2  # htmx, and page.js
    assert (shown.handlers, shown.styles) == ([], [])
    assert HOSTILE in shown.words


def test_every_answer_forbids_scripts_and_styles_of_others_and_frames(client, table):
    """Pages, errors, redirects and the sign-in alike."""
    for path in ("/page", "/page/", in_page(HOSTILE), "/page/nothing", "/", "/page/tables/none"):
        headers = client.get(path, follow_redirects=False).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self';" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["cache-control"] == "no-store"


def test_the_instance_at_a_glance(client, instance, table):
    """Tables with their counts, jobs by state, what waits, and whether it is paused."""
    instance.jobs.stores.queue("ingest").send([NewMessage(body="{}")])
    instance.pause_switch.pause()

    words = Page(client.get("/page").text).words

    assert HOSTILE in words
    assert "30" in words
    assert "Paused" in words
    assert "messages wait" in words


def test_a_table_that_cannot_be_read_does_not_hide_the_others(client, instance, table):
    """One table is damaged, and the page of the instance says so."""
    broken = instance.create_table("broken", SCHEMA, row_keys=["id"])
    objects = instance._context.objects.under(broken.table_id)
    objects.delete(["statestore/transactions/00000000000000000001.json"])

    words = Page(client.get("/page").text).words

    assert "not readable" in words
    assert HOSTILE in words


def test_a_table_shows_its_tree_its_leaves_and_its_fields(client, table):
    """For wide and for narrow screens."""
    answer = client.get(in_page(HOSTILE))

    shown = Page(answer.text)
    assert shown.tags.count("svg") >= 4
    assert "3 leaves at depth up to 2" in shown.words
    assert "Rows a leaf" in shown.words
    assert "row key" in shown.words


@pytest.mark.parametrize(
    ("question", "rows"),
    [
        ("by=key&key0=" + quote(f"{HOSTILE}007"), 1),
        ("by=prefix&prefix0=a%2F", 30),
        ("by=range&from0=a&to0=" + quote(f"{HOSTILE}004"), 5),
        ("by=all", 30),
        ("by=key&key0=none", 0),
        ("by=sql&sql=" + quote(f'SELECT * FROM "{HOSTILE.replace(chr(34), 2 * chr(34))}"'), 30),
    ],
    ids=["key", "prefix", "range", "all", "none", "sql"],
)
def test_rows_are_found_and_downloaded_by_the_same_question(client, table, question, rows):
    """The grid shows the first rows, and the file has all of them."""
    path = in_page(HOSTILE)

    words = Page(client.get(f"{path}/rows?{question}&ask=1").text).words
    csv = client.get(f"{path}/rows.csv?{question}")
    parquet = client.get(f"{path}/rows.parquet?{question}")
    arrow = client.get(f"{path}/rows.arrow?{question}")

    shown = "The first 20 rows; there are more" if rows > 20 else f"{rows} row"
    assert shown in words
    assert csv.headers["content-disposition"].startswith("attachment")
    assert csv.text.count("\n") == rows + 1
    assert pq.read_table(io.BytesIO(parquet.content)).num_rows == rows
    assert pa.ipc.open_file(io.BytesIO(arrow.content)).read_all().num_rows == rows


@pytest.mark.parametrize("failure", [None, TimeoutError("too slow"), OSError("went away")])
def test_the_file_of_a_download_is_deleted_however_it_ends(
    instance, table, tmp_path, monkeypatch, failure
):
    """Also if the client went away or takes nothing."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    app = make_app(instance)
    add_pages(app)
    made = []

    async def broken(scope, receive, send):
        async def sent(message):
            made.extend(tmp_path.iterdir())
            if failure is not None and message["type"] == "http.response.body":
                raise failure
            await send(message)

        await app(scope, receive, sent)

    with TestClient(broken, base_url=BASE, raise_server_exceptions=False) as browser:
        browser.get(f"{in_page(HOSTILE)}/rows.csv?by=all")

    assert made
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("question", "words"),
    [
        ("by=key&ask=1", "give a value for at least the first field"),
        ("by=prefix&ask=1", "give the beginning"),
        ("by=range&ask=1", "give a first or a last value"),
        ("by=range&from0=z&to0=a&ask=1", "id"),
        ("by=sql&sql=DROP TABLE x&ask=1", "read"),
        ("by=sql&sql=SELECT <b> FROM&ask=1", "SQL"),
        ("by=sql&ask=1", "statement"),
    ],
)
def test_a_question_that_cannot_be_answered_says_why(client, table, question, words):
    """The form stays, with a message beside it."""
    answer = client.get(f"{in_page(HOSTILE)}/rows?{question}")

    assert answer.status_code in (200, 400)
    assert words in Page(answer.text).words


def test_a_key_of_another_type_is_refused_by_name(client, instance):
    """Text where a number is expected is an error of the form, not of the server."""
    instance.create_table("t", pa.schema([("n", pa.int64())]), row_keys=["n"])

    answer = client.get("/page/tables/t/rows?by=key&key0=many&ask=1")

    assert answer.status_code == 400
    assert "many" in Page(answer.text).words


@pytest.mark.parametrize(
    ("kind", "example"),
    [
        (pa.int32(), "a whole number"),
        (pa.string(), "text"),
        (pa.binary(), "base64"),
        (pa.date32(), "such as 2026-01-31"),
        (pa.timestamp("us", "UTC"), "such as 2026-01-31T12:00:00+00:00"),
        (pa.timestamp("us"), "such as 2026-01-31T12:00:00"),
    ],
)
def test_a_form_shows_what_a_key_looks_like(client, instance, kind, example):
    """An example of the type of the field, beside its name."""
    instance.create_table("t", pa.schema([("k", kind)]), row_keys=["k"])

    words = Page(client.get("/page/tables/t/rows").text).words

    assert f"k {example}\n" in words


@pytest.mark.parametrize(
    "path",
    [
        "/page/nothing",
        "/page/tables/none",
        "/page/tables/none/rows",
        "/page/static/../mount.py",
        "/page/static/base.html",
        "/page/jobs?kind=none",
        "/page/jobs?state=<b>",
        "/page/tables/t/rows?by=none",
    ],
)
def test_what_is_not_there_is_a_page_that_says_so(client, path):
    """A wrong address is answered by a page that leads back, not by JSON or a trace."""
    answer = client.get(path)

    assert answer.status_code == 404
    assert "Back to the tables" in Page(answer.text).words
    assert "<b>" not in answer.text


def test_a_wrong_number_in_an_address_is_answered_by_a_page(client, table):
    """As is a page that does not exist any more: the nearest is shown."""
    assert client.get(f"{in_page(HOSTILE)}?page=x").status_code == 400
    assert client.get(f"{in_page(HOSTILE)}?page=999").status_code == 200
    assert client.get(f"{in_page(HOSTILE)}?page=-1").status_code == 200


def test_a_property_is_set_and_taken_away(client, instance):
    """The value is in force at once; an empty one restores the default."""
    table = instance.create_table("t", SCHEMA, row_keys=["id"])
    name = "sleeper.table.gc.delay.minutes"

    assert post(client, "/page/tables/t/properties", name=name, value=" 7 ").status_code == 200
    table.refresh()
    assert table.properties.gc.delay_minutes == 7
    assert "set here" in Page(client.get("/page/tables/t/properties?find=gc.delay").text).words
    post(client, "/page/tables/t/properties", name=name, value="")
    table.refresh()
    assert not table.properties.is_given(name)


def test_a_value_that_is_not_allowed_stays_in_its_form_with_the_reason(client, instance):
    """Nothing is changed, and what was typed is kept."""
    instance.create_table("t", SCHEMA, row_keys=["id"])

    answer = post(
        client, "/page/tables/t/properties", name="sleeper.table.gc.delay.minutes", value="<x>"
    )

    assert answer.status_code == 400
    assert "it must be" in Page(answer.text).words
    assert 'value="&lt;x&gt;"' in answer.text


def test_dead_letters_are_shown_and_redriven(client, instance, table):
    """One by one, and all of a queue."""
    queue = instance.jobs.stores.queue("ingest")
    queue.send([NewMessage(body=f"<i>{n}</i>") for n in range(3)])
    for message in queue.receive(10):
        queue.bury(message.receipt, "tried <b>often</b>")
    letters = queue.dead_letters()

    shown = client.get("/page/dead-letters")
    one = post(client, "/page/dead-letters", queue="ingest", message=letters[0].message_id)
    depth = queue.depth()
    post(client, "/page/dead-letters", queue="ingest")

    assert "<i>0</i>" in Page(shown.text).words
    assert "tried <b>often</b>" in Page(shown.text).words
    assert "in their queue again" in Page(one.text).words
    assert (depth.ready, depth.dead) == (1, 2)
    assert (queue.depth().ready, queue.depth().dead) == (3, 0)


def test_jobs_queues_and_the_batcher_are_on_one_page(client, instance, table, tmp_path):
    """With the reasons of what failed; the page renews itself, and can be stopped."""
    pq.write_table(pa.table({"id": ["a"], "n": [1], "text": ["x"]}), tmp_path / "a.parquet")
    job = instance.jobs.submit_ingest(HOSTILE, [str(tmp_path / "a.parquet")])

    live = client.get("/page/jobs")
    still = client.get("/page/jobs?live=no&state=ACCEPTED")

    assert job in Page(live.text).words
    assert 'hx-trigger="every 5s"' in live.text
    assert 'hx-trigger="every 5s"' not in still.text
    assert job in Page(still.text).words
    for kind in ("compaction", "query", "export"):
        assert client.get(f"/page/jobs?kind={kind}").status_code == 200


def test_maintenance_gives_the_reasons_of_each_leaf(client, table):
    """As `--explain` on the command line does."""
    words = Page(client.get(f"{in_page(HOSTILE)}/maintenance").text).words

    assert "it has one file, and no other to merge it with" in words
    assert "No file can be deleted now" in words
    assert "Look for orphans" in words


def test_a_history_tells_what_each_transaction_did(client, instance, table):
    """With the rows that it added, and its jobs."""
    table.ingest([{"id": "x", "n": 1, "text": ""}], job_id="<i>nightly</i>")

    words = Page(client.get(f"{in_page(HOSTILE)}/history").text).words

    assert "rows added" in words
    assert "<i>nightly</i>" in words
    assert "31 rows added" in words


def test_services_are_paused_and_resumed(client, instance):
    """By a form each."""
    instance.create_table("t", SCHEMA, row_keys=["id"])

    post(client, "/page/pause")
    assert instance.pause_switch.paused_since() is not None
    post(client, "/page/resume")
    assert instance.pause_switch.paused_since() is None


@pytest.mark.parametrize("proof", [None, "", "0" * 64, "\u00e9"])
def test_a_form_without_its_proof_changes_nothing(client, instance, proof):
    """A page of another site cannot know the proof."""
    instance.create_table("t", SCHEMA, row_keys=["id"])
    data = {} if proof is None else {"proof": proof}

    assert client.post("/page/pause", data=data).status_code == 403
    assert instance.pause_switch.paused_since() is None


@pytest.mark.parametrize(
    "headers",
    [{"Origin": "https://evil.example"}, {"Origin": "null"}, {"Host": "evil.example"}],
    ids=["origin", "null", "host"],
)
def test_another_site_can_neither_read_nor_change(client, instance, headers):
    """Also without tokens, and also by a name that it made lead to this machine."""
    instance.create_table("t", SCHEMA, row_keys=["id"])
    proof = Page(client.get("/page").text).fields["proof"]

    assert client.get("/page", headers=headers).status_code == 403
    assert client.post("/page/pause", data={"proof": proof}, headers=headers).status_code == 403
    assert instance.pause_switch.paused_since() is None


class TestTokens:
    """A server with tokens."""

    @pytest.mark.parametrize(
        "path", ["/page", "/page/tables/t", "/page/jobs", "/page/tables/t/rows.csv?by=all"]
    )
    def test_without_a_token_every_page_leads_to_the_sign_in(self, guarded, path):
        """And back to the page after it."""
        answer = guarded.get(path)

        assert answer.status_code == 303
        assert answer.headers["location"].startswith("/page/sign-in?next=%2Fpage")

    def test_a_part_of_a_page_is_never_the_sign_in(self, guarded):
        """The token expired while a page renewed itself: the whole page leads to the sign-in."""
        answer = guarded.get("/page/jobs", headers={"HX-Request": "true"})

        assert answer.headers["hx-redirect"].startswith("/page/sign-in?next=")
        assert answer.text == ""

    @pytest.mark.parametrize("token", ["", "x", "sleeper_00000001_" + "0" * 64, "expired"])
    def test_a_wrong_token_is_refused_and_sets_no_cookie(self, guarded, tokens, token):
        """Whatever is wrong with it."""
        answer = sign_in(guarded, tokens[1].get(token, token))

        assert answer.status_code in (400, 403)
        assert "set-cookie" not in answer.headers
        assert guarded.get("/page").status_code == 303

    def test_a_token_is_kept_in_a_cookie_that_scripts_and_other_sites_do_not_have(
        self, guarded, tokens, table
    ):
        """After the sign-in, the page that was asked for is shown."""
        answer = sign_in(guarded, tokens[1]["read"], in_page(HOSTILE))

        cookie = answer.headers["set-cookie"].lower()
        assert answer.headers["location"] == in_page(HOSTILE)
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
        assert guarded.get(in_page(HOSTILE)).status_code == 200

    def test_over_https_the_cookie_is_sent_over_https_only(self, instance, tokens):
        """`Secure` is set where the server can be reached so."""
        app = make_app(instance, tokens=tokens[0])
        add_pages(app)
        with TestClient(app, base_url="https://localhost:8750", follow_redirects=False) as client:
            assert "secure" in sign_in(client, tokens[1]["read"]).headers["set-cookie"].lower()

    def test_a_sign_out_forgets_the_token(self, guarded, tokens):
        """The next page asks for it again."""
        sign_in(guarded, tokens[1]["read"])
        proof = Page(guarded.get("/page").text).fields["proof"]

        guarded.post("/page/sign-out", data={"proof": proof})

        assert guarded.get("/page").status_code == 303

    @pytest.mark.parametrize("role", ["read", "write"])
    def test_a_role_that_is_too_small_sees_no_form_and_cannot_send_one(
        self, guarded, instance, tokens, role
    ):
        """Properties are an administrator's, as in REST."""
        instance.create_table("t", SCHEMA, row_keys=["id"])
        sign_in(guarded, tokens[1][role])
        page = Page(guarded.get("/page/tables/t/properties").text)

        answer = guarded.post(
            "/page/tables/t/properties",
            data={"proof": page.fields["proof"], "name": "sleeper.table.online", "value": "false"},
        )

        assert "Save" not in page.words
        assert answer.status_code == 403
        assert instance.table("t").online

    def test_dead_letters_are_redriven_by_administrators_only(self, guarded, instance, tokens):
        """As in REST."""
        queue = instance.jobs.stores.queue("ingest")
        queue.send([NewMessage(body="x")])
        for message in queue.receive(1):
            queue.bury(message.receipt, "tried")
        sign_in(guarded, tokens[1]["write"])
        page = Page(guarded.get("/page/dead-letters").text)

        answer = guarded.post(
            "/page/dead-letters", data={"proof": page.fields["proof"], "queue": "ingest"}
        )

        assert "Redrive all" not in page.words
        assert answer.status_code == 403
        assert queue.depth().dead == 1

    def test_a_proof_of_another_visitor_is_refused(self, guarded, instance, tokens):
        """It depends on the cookie."""
        sign_in(guarded, tokens[1]["read"])
        other = Page(guarded.get("/page").text).fields["proof"]
        guarded.cookies.clear()
        sign_in(guarded, tokens[1]["admin"])

        assert guarded.post("/page/pause", data={"proof": other}).status_code == 403

    def test_a_token_that_was_removed_is_refused_at_once(self, guarded, tokens):
        """A cookie is no more than the token in it."""
        sign_in(guarded, tokens[1]["read"])
        tokens[0].remove("read")

        assert guarded.get("/page").status_code == 303


@pytest.mark.parametrize(
    "after",
    [
        "https://evil.example",
        "//evil.example",
        "/page//evil",
        "/page\\evil",
        "/other",
        "",
        "/page\n",
    ],
)
def test_after_the_sign_in_only_pages_of_this_server_are_shown(after):
    """Whatever the address says."""
    assert _inside(after) == "/page"


def test_the_first_rows_are_shown_before_anything_is_asked(client, instance, table):
    """Given a table of 30 rows, its page shows the first 5 of them and its bytes, and its page of
    rows the first 20, which the download has too; the page of the instance has the bytes.
    """
    size = sum(file.size_bytes for file in table.ingest([]).files) or sum(
        reference.size_bytes
        for partition in table.state().files.partition_ids()
        for reference in table.state().files.references_on(partition)
    )

    overview, rows = client.get(in_page(HOSTILE)).text, client.get(f"{in_page(HOSTILE)}/rows").text
    download = client.get(f"{in_page(HOSTILE)}/rows.csv?by=all")

    assert f"{HOSTILE}004" in Page(overview).words
    assert f"{HOSTILE}005" not in Page(overview).words
    assert "The first 20 rows; there are more." in Page(rows).words
    assert f"{HOSTILE}019" in Page(rows).words
    assert "rows.csv?by=all" in rows
    assert download.text.count("\n") == 31
    for page in (overview, client.get("/page").text):
        assert size_text(size) in Page(page).words


def test_rows_that_csv_has_no_form_for_are_offered_in_others(client, instance):
    """Given a table with a struct, then no link leads to a file that cannot be made."""
    kind = pa.struct([("city", pa.string())])
    schema = pa.schema([("id", pa.int64()), ("home", kind)])
    made = instance.create_table("nested", schema, row_keys=["id"])
    made.ingest([{"id": 1, "home": {"city": "Bern"}}])

    every = client.get(f"{in_page('nested')}/rows").text
    keys = client.get(f"{in_page('nested')}/rows?by=sql&ask=1&sql=SELECT+id+FROM+nested").text

    assert [form in every for form in ("rows.csv?", "rows.parquet?")] == [False, True]
    assert [form in keys for form in ("rows.csv?", "rows.parquet?")] == [True, True]


def test_charts_are_drawn_where_there_is_something_to_compare(client, instance):
    """Given a new table of one leaf and one transaction with rows, no page of it has a chart of one
    bar; after two more ingests its history has one.
    """
    made = instance.create_table("new", SCHEMA, row_keys=["id"])
    made.ingest([{"id": "a", "n": 1, "text": ""}])
    pages = [client.get(in_page("new") + page) for page in ("", "/history")]
    assert [Page(answer.text).tags.count("svg") for answer in pages] == [0, 0]

    for key in ("b", "c"):
        made.ingest([{"id": key, "n": 1, "text": ""}])

    assert Page(client.get(f"{in_page('new')}/history").text).tags.count("svg") == 2


def test_docs_leads_to_the_routes_of_rest(client):
    """Where other servers of FastAPI list their routes, this one does too."""
    answer = client.get("/docs")

    assert answer.url.path == "/page/rest"
    assert "POST /sleeper/tables/{table}/query" in Page(answer.text).words


def test_the_library_of_scripts_is_htmx_as_its_makers_published_it(client):
    """Nobody edits it by accident, and its licence is beside it."""
    script = client.get("/page/static/htmx.min.js").content

    known = "d6fdc75f204e6bdefa99b69bf1e6d4ac69b8a364f77929f45c13476b4000f717"
    assert hashlib.sha256(script).hexdigest() == known
    assert "Zero-Clause BSD" in (STATIC / "htmx.LICENSE.txt").read_text(encoding="utf-8")
