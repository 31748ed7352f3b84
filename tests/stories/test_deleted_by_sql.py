"""DELETE FROM table WHERE condition deletes what the condition is true of (rules DEL-1, DEL-2)."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest
from fastapi.testclient import TestClient

import sleeper
from sleeper.errors import QueryInvalid, StorageFailed
from sleeper.instance.instance import new_secret
from sleeper.interfaces.page.mount import add_pages
from sleeper.interfaces.rest.app import make_app
from sleeper.interfaces.rest.tokens import Role, TokenFile
from sleeper.tables.deletions import statement as by_statement
from tests.unit.interfaces.command_line import sleeper as command
from tests.unit.interfaces.rest.running_server import running_server

SCHEMA = pa.schema([("id", pa.int64()), ("n", pa.int64()), ("name", pa.string())])


@pytest.fixture
def instance(tmp_path):
    with sleeper.connect(tmp_path / "instance", create=True) as opened:
        yield opened


@pytest.fixture(params=[1, 2], ids=["format 1", "format 2"])
def table(instance, request):
    """Numbers 0 to 9 in two leaves; every third has no name."""
    table = instance.create_table("my table", SCHEMA, row_keys=["id"], split_points=[5])
    if request.param == 1:
        table.downgrade()
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
            ('DELETE FROM "my table" WHERE id IN (3, 4, 4, NULL) OR id = 3', [3, 4]),
            ('DELETE FROM "my table" WHERE id BETWEEN 4 AND 6 AND n = 1', [5]),
            ('DELETE FROM "my table" WHERE NOT (id BETWEEN 1 AND 8)', [0, 9]),
            ('DELETE FROM "my table" WHERE id IS NOT NULL', [*range(10)]),
            ('DELETE FROM "my table" WHERE false', []),
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


class TestByKeys:
    """In a table of format 2, a condition on row keys alone is one entry, and no file is written."""

    TOWNS = pa.schema([("land", pa.string()), ("town", pa.string()), ("n", pa.int64())])

    @pytest.fixture
    def towns(self, instance):
        """Towns of three countries in two leaves, some with odd names."""
        table = instance.create_table(
            "towns", self.TOWNS, row_keys=["land", "town"], split_points=["D"]
        )
        names = ["", "Bern", "Bex", "b%", "O'Fallon", "Zürich", "\u00e9\u0000"]
        table.ingest([{"land": a, "town": b, "n": 1} for a in ["CH", "FR", "US"] for b in names])
        return table

    @pytest.mark.parametrize(
        ("where", "rows"),
        [
            ("land = 'CH' AND town = 'Bern'", 1),
            ("land = 'CH'", 7),
            ("land IN ('CH', 'US', 'XX') AND town IN ('Bern', 'O''Fallon', '')", 6),
            ("land = 'US' AND town LIKE 'Be%'", 2),
            ("town = 'Z\u00fcrich'", 3),
            ("land > 'CH' AND town >= 'Z'", 6),
            ("land BETWEEN 'CH' AND 'FR' AND NOT town = ''", 12),
            ("(land = 'CH' AND town < 'C') OR (land = 'US' AND town = 'b%')", 4),
            ("town = ''", 3),
            ("land = 'nowhere'", 0),
        ],
    )
    def test_hides_what_a_question_finds(self, towns, where, rows):
        """Given the condition, the rows that a SELECT finds are gone, and no others."""
        files, before = towns.references(), towns.refresh()
        kept = towns.sql(f"SELECT * FROM towns WHERE NOT ({where})").to_pylist()
        others = sorted(kept, key=str)

        answer = towns.sql(f"DELETE FROM towns WHERE {where}")

        assert answer.to_pylist() == [{"deleted": rows}]
        assert towns.sql(f"SELECT * FROM towns WHERE {where}").count() == 0
        assert sorted(towns.query().to_pylist(), key=str) == others
        assert towns.references() == files
        assert answer.transaction == before + 1
        assert towns.history(limit=1)[0].kinds == ("rows deleted",)

    @pytest.mark.parametrize(
        "where", ["land = 'CH' AND n = 1", "upper(land) = 'CH'", "town LIKE '%n'"]
    )
    def test_writes_files_for_what_is_no_region_of_keys(self, towns, where):
        """Given a condition that each row is asked, leaves are written anew."""
        files = towns.references()

        towns.sql(f"DELETE FROM towns WHERE {where}")

        assert towns.references() != files
        assert towns.sql(f"SELECT * FROM towns WHERE {where}").count() == 0

    def test_writes_files_where_readers_cannot_be_told_more(self, instance):
        """Given more than 1,000 keys, or a table without room for so many, all of them go."""
        table = instance.create_table("t", SCHEMA, row_keys=["id"])
        table.ingest({"id": range(0, 6_000, 2), "n": range(3_000), "name": ["x"] * 3_000})
        files = table.references()

        first = table.sql(f"DELETE FROM t WHERE id IN ({', '.join(map(str, range(0, 1_800, 2)))})")
        assert table.references() == files
        full = table.sql(f"DELETE FROM t WHERE id IN ({', '.join(map(str, range(1_700, 2_200)))})")
        assert table.references() != files
        many = table.sql(f"DELETE FROM t WHERE id IN ({', '.join(map(str, range(3_000, 5_000)))})")

        assert [each.to_pylist()[0]["deleted"] for each in (first, full, many)] == [900, 200, 1_000]
        assert ids(table) == [i for i in range(2_200, 6_000, 2) if not 3_000 <= i < 5_000]

    def test_a_leaf_without_files_gets_no_entry(self, instance):
        """Given no file that could have such rows, nothing is committed, and none went."""
        table = instance.create_table("t", SCHEMA, row_keys=["id"], split_points=[5])
        table.ingest([{"id": 7, "n": 0, "name": None}])
        table.sql("DELETE FROM t WHERE id = 8")
        before = table.refresh()

        done = table.sql("DELETE FROM t WHERE id < 5")

        assert (done.to_pylist(), done.transaction) == ([{"deleted": 0}], before)

    def test_counts_what_was_there_when_it_was_committed(self, towns, monkeypatch):
        """Given rows that another adds before the commit, they go, and are counted."""
        other = sleeper.connect(towns._context.url).table("towns")
        real = by_statement.delete_rows

        def overtaken(table, regions, beside):
            other.ingest([{"land": "CH", "town": f"new {i}", "n": 2} for i in range(5)])
            return real(table, regions)

        monkeypatch.setattr(by_statement, "delete_rows", overtaken)

        assert towns.sql("DELETE FROM towns WHERE land = 'CH'").to_pylist() == [{"deleted": 12}]
        assert towns.count() == 14

    def test_says_nothing_of_a_number_that_cannot_be_found_out(self, towns, monkeypatch):
        """Given storage that fails after the commit, the rows are deleted, and how many is null."""

        def fails(*_):
            raise StorageFailed("no answer")

        monkeypatch.setattr(by_statement, "query_regions", fails)

        assert towns.sql("DELETE FROM towns WHERE land = 'CH'").to_pylist() == [{"deleted": None}]
        assert towns.count() == 14

    def test_sums_begin_anew(self, instance):
        """Given a table of sums, deleted keys that come again have what was added since."""
        number = pa.field("n", pa.int64(), nullable=False)
        schema = pa.schema([("id", pa.string()), number])
        sums = {"sleeper.table.aggregations": "sum(n)"}
        table = instance.create_table("sums", schema, row_keys=["id"], properties=sums)
        for _ in range(2):
            table.ingest([{"id": "a", "n": 1}, {"id": "b", "n": 1}])

        assert table.sql("DELETE FROM sums WHERE id = 'a'").to_pylist() == [{"deleted": 1}]
        table.ingest([{"id": "a", "n": 5}])

        assert table.query().to_pylist() == [{"id": "a", "n": 5}, {"id": "b", "n": 2}]


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
