"""A table by REST does what the table itself does: the same calls give the same."""

from __future__ import annotations

import pickle
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import product

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sleeper
from sleeper.errors import (
    AccessRefused,
    AlreadyExists,
    BadRequest,
    InputSchemaMismatch,
    NullKeys,
    PropertiesInvalid,
    StorageFailed,
    UrlInvalid,
)
from sleeper.interfaces.remote import remote_table
from sleeper.interfaces.rest.app import make_app
from sleeper.interfaces.rest.request_limits import RequestLimits
from tests.unit.interfaces.rest.running_server import running_server

SCHEMA = pa.schema(
    [
        ("name", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
        ("day", pa.date32()),
        ("raw", pa.binary()),
        ("price", pa.decimal128(10, 2)),
        ("tags", pa.list_(pa.string())),
        ("more", pa.map_(pa.string(), pa.int64())),
    ]
)
ROWS = [
    {
        "name": f"n{i:03}",
        "at": datetime(2026, 1, 1 + i % 3, tzinfo=UTC),
        "day": date(2026, 2, 1 + i % 5),
        "raw": bytes([i, 255]),
        "price": Decimal(i) / 100,
        "tags": ["a", "b"][: i % 3],
        "more": {"x": i},
    }
    for i in range(200)
]
DAY = datetime(2026, 1, 2, tzinfo=UTC)


@pytest.fixture(scope="module")
def both():
    """The same table, itself and by REST."""
    with sleeper.connect("memory://") as instance:
        table = instance.create_table(
            "ü/t", SCHEMA, row_keys=["name", "at"], sort_keys=["day"], split_points=["n100"]
        )
        table.ingest(ROWS[:150])
        table.ingest(ROWS[150:])
        with (
            running_server(make_app(instance)) as url,
            sleeper.connect(url, token="unused") as remote,
        ):
            yield table, remote.table("ü/t")


CALLS = {
    "all": {},
    "key": {"key": ("n005", datetime(2026, 1, 3, tzinfo=UTC))},
    "key by field": {"key": {"at": DAY}},
    "first field": {"key": "n005"},
    "no such key": {"key": ("none", DAY)},
    "keys": {"keys": [("n009", datetime(2026, 1, 1, tzinfo=UTC)), ("n001", DAY)]},
    "no keys": {"keys": []},
    "range": {"range": {"name": ("n003", "n006")}},
    "inclusive": {"range": {"name": ("n003", False, "n006", True), "at": (DAY, None)}},
    "regions": {"regions": [{"name": ("n003", "n006")}, {"name": ("n005", "n007")}]},
    "no regions": {"regions": []},
    "prefix": {"prefix": {"name": "n01"}},
    "prefix and range": {"prefix": {"name": "n0"}, "range": {"at": (DAY, None)}},
    "limit": {"limit": 7},
    "limit 0": {"limit": 0},
    "columns": {"columns": ["price", "name"], "key": "n005"},
    "condition": {"where": "price > 1.2 AND name LIKE 'n1%'"},
    "condition and range": {"where": "day = DATE '2026-02-03'", "range": {"name": ("n1", None)}},
    "wrong condition": {"where": "nonsense ="},
    "unknown field": {"where": "prize > 5"},
    "version": {"as_of": 2},
    "time": {"as_of": datetime(2100, 1, 1, tzinfo=UTC)},
    "time too early": {"as_of": datetime(2000, 1, 1, tzinfo=UTC)},
    "time without a zone": {"as_of": datetime(2100, 1, 1)},
    "unordered": {"ordered": False},
    "max_age": {"max_age": 60},
    "None": {"key": None},
    "two": {"key": "a", "range": {"name": ("a", "b")}},
    "wrong type": {"key": 5},
    "bytes for text": {"key": b"n005"},
    "wrong time": {"key": ("n005", datetime(2026, 1, 1))},
    "wrong field": {"range": {"price": (1, 2)}},
    "no range": {"range": {"name": ("b", "a")}},
    "wrong column": {"columns": ["none"]},
    "one column as text": {"columns": "name"},
    "wrong limit": {"limit": -1},
    "wrong version": {"as_of": 999},
    "version as text": {"as_of": "2"},
    "wrong ordered": {"ordered": 1},
    "wrong max_age": {"max_age": -1},
}


def outcome(call):
    """What a call gives: a value, or the class and the message of its error."""
    try:
        return call()
    except sleeper.SleeperError as error:
        return type(error), str(error)


@pytest.mark.parametrize("name", CALLS)
def test_a_query_gives_the_same_by_rest(both, name):
    """Rows, schema, transaction, count; or the same class of error with the same message."""

    def asked(table):
        rows = table.query(**CALLS[name])
        found = (rows.schema, rows.transaction, rows.in_memory, rows.to_pylist())
        ordered = CALLS[name].get("ordered", True)
        return found if ordered else (*found[:3], sorted(found[3], key=str))

    local, remote = (outcome(lambda table=table: asked(table)) for table in both)

    assert remote == local


@pytest.mark.parametrize(
    "name", [name for name in CALLS if {*CALLS[name]} <= {"key", "keys", "range", "regions"}]
)
def test_a_count_gives_the_same_by_rest(both, name):
    """Rows are counted by the server."""
    local, remote = (outcome(lambda table=table: table.count(**CALLS[name])) for table in both)

    assert remote == local


@pytest.mark.parametrize(
    "call",
    [
        lambda t: t.sql('SELECT count(*) AS n, max(price) AS p FROM "ü/t"').to_pylist(),
        lambda t: t.sql('SELECT count(*) AS n FROM "ü/t"', as_of=2).to_pylist(),
        lambda t: t.sql('DELETE FROM "ü/t"').to_pylist(),
        lambda t: t.sql("SELECT nothing FROM other").to_pylist(),
        lambda t: t.explain_sql("SELECT * FROM \"ü/t\" WHERE name = 'n005'"),
        lambda t: t.history(),
        lambda t: t.history(2),
        lambda t: t.history(-1),
        lambda t: t.kept_versions(),
        lambda t: t.diff(2).to_pylist(),
        lambda t: t.diff(0, 2, columns=["name"]).to_pylist(),
        lambda t: t.diff(3, 2).to_pylist(),
        lambda t: t.diff(None).to_pylist(),
        lambda t: t.diff("2").to_pylist(),
    ],
)
def test_sql_and_history_give_the_same_by_rest(both, call):
    """Statements, what transactions did, and the rows that they added."""
    local, remote = (outcome(lambda table=table: call(table)) for table in both)

    assert remote == local


def test_what_is_known_of_a_table_is_the_same_by_rest(both):
    """Names, schema, properties and reports."""
    local, remote = (
        (
            table.name,
            table.table_id,
            table.online,
            table.schema,
            table.arrow_schema,
            table.properties.values,
            table.report_partitions(),
            table.report_files(),
            table.references(),
            table.refresh(),
            table.head(2).to_pylist(),
        )
        for table in both
    )

    assert remote == local


def test_a_whole_table_is_used_alike(both):
    """Its columns, number of rows and rows, without a query; a table without rows is true too."""
    for table in both:
        assert table.columns == SCHEMA.names
        assert len(table) == 200
        assert next(table.rows()) == ROWS[0]
        assert table.to_arrow().num_rows == len(table.to_polars()) == len(table.to_pandas()) == 200
        assert table.to_pandas()["name"].is_monotonic_increasing


def test_a_table_without_rows_is_there():
    """So `if table:` means what a reader expects."""
    with sleeper.connect("memory://") as instance:
        table = instance.create_table("empty", SCHEMA, row_keys=["name"])

        assert len(table) == 0
        assert table


def test_rows_are_a_stream_that_is_read_once(both):
    """They may be counted before, and closed early, as those of a table."""
    rows = both[1].query()

    assert rows.count() == 200
    assert rows.to_arrow().num_rows == 200
    with pytest.raises(BadRequest, match="read or closed"):
        rows.to_arrow()
    both[1].query().close()
    assert pl.DataFrame(both[1].query(limit=3)).height == 3


@pytest.fixture
def remote():
    with (
        sleeper.connect("memory://") as instance,
        running_server(make_app(instance)) as url,
        sleeper.connect(url, token=None) as opened,
    ):
        yield opened, instance


NUMBERS = pa.schema([("id", pa.int64()), ("n", pa.int64())])


class TestIngest:
    """Rows are checked by the client, and sent as an Arrow stream."""

    @pytest.mark.parametrize("kind", ["dicts", "arrow", "polars", "pandas", "file", "batches"])
    def test_takes_what_a_table_takes(self, remote, tmp_path, kind):
        """With the same result."""
        table = remote[0].create_table("t", NUMBERS, row_keys=["id"])
        rows = pa.table({"id": [1, 2], "n": [3, 4]})
        pq.write_table(rows, tmp_path / "rows.parquet")
        given = {
            "dicts": rows.to_pylist,
            "arrow": lambda: rows,
            "polars": lambda: pl.DataFrame(rows),
            "pandas": rows.to_pandas,
            "file": lambda: tmp_path / "rows.parquet",
            "batches": rows.to_reader,
        }

        result = table.ingest(given[kind](), "one")
        again = table.ingest(given[kind](), "one")

        assert (result.rows_read, result.rows_written, result.job_id) == (2, 2, "one")
        assert result.files == tuple(
            ref.__class__(**{n: getattr(ref, n) for n in ref.__slots__}) for ref in result.files
        )
        assert (result.already_committed, again.already_committed) == (False, True)
        assert remote[1].table("t").query().to_pylist() == rows.to_pylist()

    def test_sends_many_rows_in_chunks(self, remote):
        """More than fit into one."""
        table = remote[0].create_table("t", NUMBERS, row_keys=["id"])
        count = 500_000

        table.ingest(pa.table({"id": np.arange(count), "n": np.arange(count)}))

        assert table.count() == count

    def test_that_is_refused_changes_nothing(self, remote, tmp_path):
        """The server sees a request that is cut off."""
        table = remote[0].create_table("t", NUMBERS, row_keys=["id"])
        many = [{"id": i, "n": 1} for i in range(300_000)]

        with pytest.raises(NullKeys, match="1 of 300,001 rows"):
            table.ingest([*many, {"id": None, "n": 1}])
        with pytest.raises(InputSchemaMismatch):
            table.ingest([{"id": 1, "m": 1}])
        with pytest.raises(InputSchemaMismatch):
            table.ingest([*many, {"id": "text", "n": 1}])

        assert remote[1].table("t").count() == 0

    @pytest.mark.parametrize("blank", ["", " "])
    def test_under_a_blank_id_is_refused(self, remote, blank):
        """As by the table itself: an empty variable names no work."""
        table = remote[0].create_table("t", NUMBERS, row_keys=["id"])

        for add in (table.ingest, table.upsert):
            with pytest.raises(BadRequest, match="job_id is blank"):
                add([{"id": 1, "n": 1}], job_id=blank)

        assert table.count() == 0

    def test_sets_rows_aside_on_this_machine(self, remote, tmp_path):
        """As `Table.ingest(set_aside=...)`."""
        table = remote[0].create_table("t", NUMBERS, row_keys=["id"])
        aside = tmp_path / "aside.parquet"

        result = table.ingest([{"id": 1, "n": 1}, {"id": None, "n": 2}], set_aside=aside)

        assert (result.rows_read, result.rows_written, result.rows_set_aside) == (2, 1, 1)
        assert pq.read_table(aside).to_pylist() == [{"id": None, "n": 2}]


CHANGES = {
    "added": {"add": [pa.field("x", pa.int64())]},
    "added from a schema": {"add": pa.schema([("x", pa.list_(pa.string()))])},
    "defaults": {
        "add": [
            pa.field("x", pa.int64(), nullable=False),
            pa.field("t", pa.timestamp("us", "UTC"), nullable=False),
            pa.field("b", pa.binary()),
            pa.field("d", pa.decimal128(5, 2)),
            pa.field("f", pa.float64()),
        ],
        "defaults": {
            "x": 7,
            "t": DAY,
            "b": b"\x00\xff",
            "d": Decimal("1.5"),
            "f": float("-inf"),
        },
    },
    "all": {
        "drop": ["note"],
        "rename": {"n": "m"},
        "widen": {"n": pa.int64()},
        "nullable": ["n"],
        "properties": {"sleeper.table.gc.delay.minutes": 7},
        "reason": "ticket 12",
    },
    "nothing": {},
    "a key": {"drop": ["id"]},
    "misspelt": {"drop": ["notes"]},
    "text": {"drop": "note"},
    "number": {"nullable": 5},
    "pairs": {"rename": [("n", "m")]},
    "no field": {"add": ["x"]},
    "no fields": {"add": "x"},
    "no type": {"widen": {"n": "int64"}},
    "no such type": {"add": [pa.field("x", pa.null())]},
    "no default": {"add": [pa.field("x", pa.int64(), nullable=False)]},
    "default of another type": {"add": [pa.field("x", pa.int64())], "defaults": {"x": "1"}},
    "default of too many digits": {"add": [pa.field("x", pa.int64())], "defaults": {"x": 10**5000}},
    "default too long": {"add": [pa.field("x", pa.string())], "defaults": {"x": "y" * 5_000}},
    "default of nothing": {"defaults": {"n": 1}},
    "no name": {"rename": {"n": ""}},
    "half of a letter": {"rename": {"n": "\ud800"}},
    "name of a number": {"rename": {"n": 5}},
    "wrong property": {"nullable": ["n"], "properties": {"sleeper.table.filters": "ageOff(z,1)"}},
    "long reason": {"nullable": ["n"], "reason": "x" * 501},
}


class TestColumns:
    """They change by REST as they do in Python."""

    COLUMNS = pa.schema(
        [("id", pa.string()), pa.field("n", pa.int32(), nullable=False), ("note", pa.string())]
    )

    def made(self, instance, name):
        table = instance.create_table(name, self.COLUMNS, row_keys=["id"])
        table.ingest([{"id": "a", "n": 1, "note": "z"}])
        return table

    @pytest.mark.parametrize("name", CHANGES)
    def test_a_change_does_the_same_by_rest(self, remote, name):
        """The same result, or error; and the same table afterwards."""
        self.made(remote[1], "u")
        both = self.made(remote[1], "t"), remote[0].table("u")

        found = [
            (
                outcome(lambda table=table: table.alter(**CHANGES[name])),
                table.columns,
                table.arrow_schema,
                table.properties.values,
                table.query().to_pylist(),
                [(each.kinds, each.reasons) for each in table.history(1)],
            )
            for table in both
        ]

        assert found[0] == found[1]

    def test_a_handle_of_before_uses_the_columns_of_now(self, remote):
        """Somebody else changes them; what is asked for, sent and shown goes by the new ones."""
        local = self.made(remote[1], "t")
        asked, sent, counted, listed, refreshed = (remote[0].table("t") for _ in range(5))

        local.alter(rename={"n": "m"}, widen={"n": pa.int64()}, add=[pa.field("x", pa.int64())])
        sent.ingest([{"id": "b", "m": 2**40, "note": None, "x": 3}])

        assert asked.query(columns=["x", "m"]).to_pylist() == [
            {"x": None, "m": 1},
            {"x": 3, "m": 2**40},
        ]
        with pytest.raises(BadRequest, match="'n'"):
            counted.query(columns=["n"])
        assert listed.query("b").to_pylist() == [{"id": "b", "m": 2**40, "note": None, "x": 3}]
        refreshed.refresh()
        columns = ["id", "m", "note", "x"]
        assert [each.columns for each in (asked, sent, listed, refreshed)] == [columns] * 4


class TestInstances:
    """`sleeper.connect` with the URL of a server."""

    def test_make_and_delete_tables(self, remote):
        """With split points of each type; errors have their class and attributes."""
        made = remote[0].create_table("t", NUMBERS, row_keys=["id"], split_points=[5, 10])

        assert remote[1].table("t").split_points() == [5, 10]
        assert [record.all_properties() for record in remote[0].tables()] == [
            record.all_properties() for record in remote[1].tables()
        ]
        with pytest.raises(AlreadyExists, match="'t' exists"):
            remote[0].create_table("t", NUMBERS, row_keys=["id"])
        with pytest.raises(sleeper.BadRequest, match="'x'"):
            remote[0].create_table("u", NUMBERS, row_keys=["id"], split_points=["x"])
        with pytest.raises(PropertiesInvalid) as caught:
            made.set_properties({"sleeper.table.parquet.compression.codec": "none such"})
        assert [*caught.value.failures] == ["sleeper.table.parquet.compression.codec"]
        made.set_properties({"sleeper.table.parquet.compression.codec": "snappy"})
        assert made.properties.parquet.compression == "snappy"
        made.rename("v")
        made.set_online(online=False)
        assert [(t.name, t.online) for t in remote[1].tables()] == [("v", False)]
        remote[0].delete_table("v")
        with pytest.raises(sleeper.NotFound, match="no table 'v'"):
            remote[0].table("v")

    def test_have_properties(self, remote):
        """That can be shown and set; those that cannot be set are refused by their names."""
        name = "sleeper.gc.batch.size"

        remote[0].set_properties({name: 500})

        assert remote[0].properties.values[name] == "500"
        assert remote[0].properties.values == remote[1].properties.values
        with pytest.raises(PropertiesInvalid) as caught:
            remote[0].set_properties({name: "many"})
        assert name in caught.value.failures
        remote[0].set_properties({name: None})
        assert name not in remote[1].properties.values

    def test_run_statements(self, remote):
        """Over all tables, by their names."""
        for name in ("t", "u"):
            table = remote[0].create_table(name, NUMBERS, row_keys=["id"])
            table.ingest([{"id": 1, "n": 2}])
        statement = "SELECT t.id, u.n FROM t JOIN u ON t.id = u.id"

        assert remote[0].sql(statement).to_pylist() == [{"id": 1, "n": 2}]
        assert remote[0].explain_sql(statement) == remote[1].explain_sql(statement)
        with pytest.raises(sleeper.BadRequest, match="text in SQL"):
            remote[0].sql(5)

    def test_have_jobs(self, remote, tmp_path):
        """They are submitted, and followed."""
        remote[0].create_table("t", NUMBERS, row_keys=["id"])
        remote[0].table("t").ingest([{"id": 1, "n": 1}], "one")

        local, jobs = remote[1].jobs, remote[0].jobs
        assert jobs.job("one") == local.job("one")
        assert [*jobs.list()] == [*local.list()]
        assert jobs.queue_depths() == local.queue_depths()
        assert jobs.dead_letters("ingest") == []
        assert jobs.redrive("ingest") == 0
        assert [*jobs.submitted_files()] == []
        with pytest.raises(sleeper.NotFound, match="'two'"):
            jobs.job("two")
        with pytest.raises(BadRequest, match="input-folder"):
            jobs.submit_ingest("t", str(tmp_path))

    def test_take_a_key_without_its_name(self, remote):
        """As tables of the instance itself do."""
        table = remote[0].create_table("t", NUMBERS, row_keys=["id"])
        table.ingest([{"id": 1, "n": 1}, {"id": 2, "n": 2}])

        assert table.query(2).to_pylist() == [{"id": 2, "n": 2}]

    def test_say_what_they_lack(self, remote):
        """And what to use instead."""
        table = remote[0].create_table("t", NUMBERS, row_keys=["id"])

        with pytest.raises(BadRequest, match=r"no 'compact': open the instance itself"):
            table.compact()
        with pytest.raises(BadRequest, match=r"no 'backup': open the instance itself"):
            remote[0].backup("x")
        with pytest.raises(BadRequest, match=r"no 'send': open the instance itself"):
            remote[0].jobs.send("ingest", "{}")
        for thing in (table, remote[0], remote[0].jobs):
            with pytest.raises(AttributeError, match="nothing"):
                _ = thing.nothing

    def test_are_pickled_without_their_token(self, remote, monkeypatch):
        """The process that unpickles them has one in SLEEPER_TOKEN, or needs none."""
        secret = "sleeper_00_secret"
        opened = sleeper.connect(remote[0].url, token=secret)

        content = pickle.dumps(opened)
        monkeypatch.setenv("SLEEPER_TOKEN", "sleeper_11_other")
        again = pickle.loads(content)

        assert secret.encode() not in content
        assert again._client._client.headers["Authorization"] == "Bearer sleeper_11_other"
        assert again.tables() == ()
        opened.create_table("t", NUMBERS, row_keys=["id"])
        assert pickle.loads(pickle.dumps(opened.table("t"))).count() == 0

    @pytest.mark.parametrize(
        "url", ["https://", "https://host/path", "https://user@host", "http://host:x", "http://h?q"]
    )
    def test_need_the_url_of_a_server(self, url):
        """Without a path, a user or a query."""
        with pytest.raises(UrlInvalid, match="https://host:port"):
            sleeper.connect(url)

    def test_refuse_arguments_that_are_not_for_them(self, tmp_path):
        """`create` is for places, `token` for servers."""
        with pytest.raises(BadRequest, match="create="):
            sleeper.connect("https://host", create=True)
        with pytest.raises(BadRequest, match="token= is for a server"):
            sleeper.connect(tmp_path, token="x")

    def test_say_that_a_server_is_not_there(self):
        """Trying again may help."""
        with pytest.raises(StorageFailed, match=r"http://127\.0\.0\.1:1 did not answer"):
            sleeper.connect("http://127.0.0.1:1").tables()


@pytest.mark.parametrize("token", ["sleeper_1_sécret", "sleeper_1_se\ncret", "sleeper_1_se\0cret"])
def test_a_token_that_no_header_can_hold_is_refused_without_being_shown(token):
    """It would be in the message of the library that sends headers."""
    with pytest.raises(AccessRefused) as refused:
        sleeper.connect("http://127.0.0.1:9", token=token)

    assert "cret" not in str(refused.value)
    assert "token=" in str(refused.value)


def test_a_token_read_from_a_file_may_end_with_its_line():
    """Given a token with the end of a line, the server is asked with the token alone."""
    asked = []

    async def other(scope, receive, send):
        asked.append(dict(scope["headers"])[b"authorization"])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b'{"id": "x"}'})

    with running_server(other) as url, sleeper.connect(url, token="sleeper_1_s\n") as remote:
        assert remote.instance_id == "x"
    assert asked == [b"Bearer sleeper_1_s"]


@pytest.mark.parametrize(
    "call",
    [
        lambda remote: remote.tables(),
        lambda remote: remote.table("t"),
        lambda remote: remote.sql("SELECT 1"),
    ],
)
def test_success_of_another_server_is_not_taken_for_an_answer(call):
    """Given a server or proxy that answers every request by a page, the error says so."""

    async def other(scope, receive, send):
        headers = [(b"content-type", b"text/html")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"<html>sign in</html>"})

    with (
        running_server(other) as url,
        sleeper.connect(url, token=None) as remote,
        pytest.raises(StorageFailed, match="not as a Sleeper server"),
    ):
        call(remote)


def test_rows_are_asked_for_uncompressed(both):
    """The client reads the bytes as they come: a proxy that compresses would break them."""
    seen = []
    client = both[1]._client._client
    client.event_hooks["request"] = [lambda request: seen.append(request.headers)]

    assert both[1].query(limit=1).to_arrow().num_rows == 1
    assert seen[-1]["accept-encoding"] == "identity"


MANY = {
    "keys": {"keys": [f"k{n:07}" for n in range(3_000, 0, -1)]},
    "regions": {"regions": [{"k": (f"k{n:07}", f"k{n:07}a")} for n in range(0, 3_000, 2)]},
    "overlapping": {"regions": [{"k": (f"k{n:07}", f"k{n + 3:07}")} for n in range(0, 2_000, 5)]},
}


class TestManyKeys:
    """A question that is longer than a server takes is sent in parts."""

    @pytest.fixture
    def one_key(self, monkeypatch):
        """A table with one row key, itself and by a server that takes no long questions."""
        monkeypatch.setattr(remote_table, "_PART_BYTES", 7 << 10)
        schema = pa.schema([("k", pa.string()), ("n", pa.int64())])
        with sleeper.connect("memory://") as instance:
            table = instance.create_table("t", schema, row_keys=["k"], split_points=["k0001000"])
            table.ingest({"k": [f"k{n:07}" for n in range(2_000)], "n": [*range(2_000)]})
            app = make_app(instance, limits=RequestLimits(body_bytes=8 << 10))
            with running_server(app) as url, sleeper.connect(url, token="unused") as remote:
                yield table, remote.table("t")

    def test_rows_and_count_are_the_same(self, one_key):
        """In the same order, each once; a limit is of all parts together."""
        for name, more in product(MANY, ({}, {"limit": 333}, {"where": "n % 7 = 0"})):
            asked = {**MANY[name], **more}
            local, remote = (table.query(**asked) for table in one_key)
            asked.pop("limit", None)
            counted = [table.count(**asked) for table in one_key]

            assert (remote.schema, remote.transaction) == (local.schema, local.transaction)
            assert remote.to_arrow().equals(local.to_arrow()), (name, more)
            assert counted[0] == counted[1] > 0

    def test_all_parts_read_one_version(self, one_key):
        """Rows that are added between two parts are of none."""
        local, remote = one_key
        rows = remote.query(**MANY["keys"])
        local.ingest({"k": ["k0002999"], "n": [0]})

        found = rows.to_arrow()

        assert found.num_rows == 1_999
        assert remote.query(**MANY["keys"]).to_arrow().num_rows == 2_000
