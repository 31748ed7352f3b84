"""DELETE FROM table WHERE condition deletes what the condition is true of, and asks for a role."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest
from fastapi.testclient import TestClient

import sleeper
from sleeper.errors import QueryInvalid
from sleeper.instance.instance import new_secret
from sleeper.interfaces.page.mount import add_pages
from sleeper.interfaces.rest.app import make_app
from sleeper.interfaces.rest.tokens import Role, TokenFile
from tests.unit.interfaces.command_line import sleeper as command
from tests.unit.interfaces.rest.running_server import running_server

SCHEMA = pa.schema([("id", pa.int64()), ("n", pa.int64()), ("name", pa.string())])


@pytest.fixture
def instance(tmp_path):
    with sleeper.connect(tmp_path / "instance", create=True) as opened:
        yield opened


@pytest.fixture
def table(instance):
    """Numbers 0 to 9 in two leaves; every third has no name."""
    table = instance.create_table("my table", SCHEMA, row_keys=["id"], split_points=[5])
    table.ingest([{"id": i, "n": i % 4, "name": None if i % 3 else f"n{i}"} for i in range(10)])
    return table


def ids(table):
    return [row["id"] for row in table.query(columns=["id"]).to_pylist()]


class TestPython:
    """`Table.sql` and `Instance.sql` take the statement."""

    @pytest.mark.parametrize("holder", ["table", "instance"])
    @pytest.mark.parametrize(
        ("statement", "gone"),
        [
            ('DELETE FROM "my table" WHERE n = 1', [1, 5, 9]),
            ("/* why */ -- and\n delete\tfrom\n\"my table\" where name = 'n3' ;\n", [3]),
            ('DELETE FROM "my table" WHERE(id > 7)', [8, 9]),
            ('DELETE FROM "my table" WHERE "my table".id = 0 -- one;', [0]),
            ('DELETE FROM "my table" WHERE name <> \'; DELETE FROM "my table"\'', [0, 3, 6, 9]),
            ('DELETE FROM "my table" WHERE n > 100', []),
        ],
    )
    def test_deletes_the_rows_that_meet_the_condition(
        self, instance, table, holder, statement, gone
    ):
        """And says how many went, and in which transaction; rows for which it is null stay."""
        before = table.refresh()

        answer = (table if holder == "table" else instance).sql(statement)

        assert answer.to_pylist() == [{"deleted": len(gone)}]
        assert ids(table) == [each for each in range(10) if each not in gone]
        assert answer.transaction == table.refresh()
        assert (answer.transaction > before) == bool(gone)
        assert table.count(as_of=before) == 10

    @pytest.mark.parametrize(
        ("statement", "says"),
        [
            ('DELETE FROM "my table"', "DELETE without WHERE .*`sleeper table reinitialise"),
            ('DELETE FROM "my table" ;', "DELETE without WHERE"),
            ('DELETE FROM "my table" WHERE', "A condition is what stands after WHERE"),
            ('DELETE FROM "my table" AS t WHERE t.n = 1', "DELETE has one form here"),
            ('DELETE FROM "my table" USING x WHERE n = 1', "DELETE has one form here"),
            ('DELETE "my table" WHERE n = 1', "DELETE has one form here"),
            ("DELETE FROM a.b WHERE n = 1", "DELETE has one form here"),
            ('DELETE FROM "my table" WHERE n = 1 LIMIT 1', "found: LIMIT"),
            ('DELETE FROM "my table" WHERE n = 1 RETURNING n', "found: RETURNING"),
            ('DELETE FROM "my table" WHERE n = 1; DELETE FROM "my table" WHERE n = 2', "found: ;"),
            ('DELETE FROM "my table" WHERE id IN (SELECT id FROM "my table")', "no table"),
            ('DELETE FROM "my table" WHERE nn = 1', "did you mean 'n'"),
            ("DELETE FROM mytable WHERE n = 1", "no table 'mytable'"),
            ('EXPLAIN DELETE FROM "my table" WHERE n = 1', "Delete"),
            ('INSERT INTO "my table" VALUES (1)', r"Table.ingest\(\)"),
            ('UPDATE "my table" SET n = 1', r"Table.upsert\(\)"),
            ('MERGE INTO "my table" USING x ON n = m WHEN MATCHED THEN DELETE', "Table.upsert"),
        ],
    )
    def test_refuses_any_other_change_and_says_what_does_it(self, instance, table, statement, says):
        """Nothing is deleted by what could mean more than it is taken for."""
        for holder in (table, instance):
            with pytest.raises(QueryInvalid, match=says):
                holder.sql(statement)

        assert ids(table) == [*range(10)]

    def test_deletes_nothing_of_an_older_version_and_explains_nothing(self, instance, table):
        """Given as_of, or a question for a plan, it says why."""
        statement = 'DELETE FROM "my table" WHERE n = 1'

        with pytest.raises(QueryInvalid, match="leave out as_of"):
            table.sql(statement, as_of=table.refresh())
        for holder in (table, instance):
            with pytest.raises(QueryInvalid, match="EXPLAIN is for statements that read"):
                holder.explain_sql(statement)

        assert table.count() == 10


def test_the_command_line_deletes(table):
    """`sleeper sql` prints how many rows went, and the history has the reason."""
    url = table._context.url

    done = command(
        *("--reason", "ticket 12", "sql", 'DELETE FROM "my table" WHERE n = 1'),
        *("--format", "csv", "--instance", url),
    )

    assert done.stdout.split() == ['"deleted"', "3"]
    assert ids(table) == [0, 2, 3, 4, 6, 7, 8]
    assert table.history(limit=1)[0].reasons == ("ticket 12",)


def test_a_client_of_the_rest_server_deletes(table):
    """By statements about one table and about all, as the library does."""
    with running_server(make_app(sleeper.connect(table._context.url))) as url:
        remote = sleeper.connect(url)

        assert remote.sql('DELETE FROM "my table" WHERE id = 7').to_pylist() == [{"deleted": 1}]
        one = remote.table("my table").sql('DELETE FROM "my table" WHERE id < 2')
        assert one.to_pylist() == [{"deleted": 2}]
        with pytest.raises(QueryInvalid, match="DELETE without WHERE"):
            remote.sql('DELETE FROM "my table"')
        with pytest.raises(QueryInvalid, match="only reads here"):
            remote.explain_sql('DELETE FROM "my table" WHERE id = 8')

    assert ids(table) == [2, 3, 4, 5, 6, 8, 9]


class TestRoles:
    """Who may only read deletes nothing, by any route that takes SQL."""

    @pytest.fixture
    def ask(self, tmp_path, table):
        """Ask a route of a server as the bearer of a token with a role."""
        tokens = TokenFile(tmp_path / "tokens.json", lambda: datetime.now(UTC))
        kept = {
            role: tokens.add(
                role.name, role, expires=None, new_secret=new_secret, token_id=f"{place}"
            )
            for place, role in enumerate(Role)
        }
        app = make_app(sleeper.connect(table._context.url), tokens=tokens)
        add_pages(app)
        with TestClient(app, base_url="http://localhost") as client:

            def ask(role, method, path, **body):
                client.headers["Authorization"] = f"Bearer {kept[role]}"
                return client.request(method, path, **body)

            yield ask

    @pytest.mark.parametrize("path", ["/sleeper/sql", "/sleeper/tables/my%20table/sql"])
    def test_by_a_statement(self, table, ask, path):
        """Given a token that reads, the statement is refused; given one that writes, it is done."""
        body = {"statement": '/* x */ DELETE FROM "my table" WHERE n = 1'}

        refused = ask(Role.READ, "POST", path, json=body)
        assert refused.status_code == 403
        assert table.count() == 10

        done = ask(Role.WRITE, "POST", path, json=body)
        assert done.json()["rows"] == [{"deleted": 3}]
        assert table.count() == 7
        assert table.history(limit=1)[0].by == ("token WRITE",)

    @pytest.mark.parametrize("path", ["/sleeper/sql", "/sleeper/tables/my%20table/sql"])
    @pytest.mark.parametrize("role", [Role.READ, Role.WRITE])
    def test_by_a_long_statement(self, table, ask, path, role):
        """Given one that is read where statements run, it says which route deletes."""
        long = f'DELETE FROM "my table" WHERE n = 1 -- {"x" * 70_000}'

        refused = ask(role, "POST", path, json={"statement": long})

        assert (refused.status_code, table.count()) == (400, 10)
        assert "nothing was deleted" in refused.text

    @pytest.mark.parametrize("page", ["rows", "rows.csv"])
    def test_by_the_page(self, table, ask, page):
        """Given whoever is signed in, a link to a page with a statement deletes nothing."""
        asked = {"by": "sql", "ask": "1", "sql": 'DELETE FROM "my table" WHERE n = 1'}

        refused = ask(Role.ADMIN, "GET", f"/page/tables/my%20table/{page}", params=asked)

        assert refused.status_code in (200, 400)
        assert "nothing was deleted" in refused.text
        assert table.count() == 10
