"""Finding rows by conditions in SQL, and reading tables by statements."""

from __future__ import annotations

import os
import threading
from datetime import date, datetime
from multiprocessing import get_context

import pyarrow as pa
import pytest

import sleeper
from sleeper.engine.sql import session
from sleeper.engine.sql import session as contexts
from sleeper.errors import BadRequest, DataDamaged, QueryInvalid, StorageFailed, VersionNotFound
from tests.patience import PATIENCE_S

FLIGHTS = pa.schema(
    [
        ("tail", pa.string()),
        ("day", pa.date32()),
        ("dest", pa.string()),
        ("delay", pa.float64()),
    ]
)
ROWS = [
    {
        "tail": f"N{n % 50:03}",
        "day": date(2026, 1, 1 + n // 50 % 28),
        "dest": ("IAH", "MIA", "BQN", None)[n % 4],
        "delay": (float(n % 90 - 20), float("nan"), None)[0 if n % 10 else n // 10 % 3],
    }
    for n in range(1400)
]
PLANES = [{"tail": f"N{n:03}", "maker": ("Boeing", "Airbus")[n % 2]} for n in range(0, 50, 2)]


@pytest.fixture(scope="module")
def instance(tmp_path_factory):
    """An instance with flights in four leaves with two files each, and planes."""
    made = sleeper.connect(tmp_path_factory.mktemp("sql"), create=True)
    flights = made.create_table(
        *("flights", FLIGHTS),
        row_keys=["tail", "day"],
        split_points=["N010", "N020", "N030"],
        properties={
            "sleeper.table.parquet.page.rows": 20,
            "sleeper.table.ingest.file.writing.strategy": "one_file_per_leaf",
        },
    )
    flights.ingest(ROWS[::2])
    flights.ingest(ROWS[1::2])
    planes = pa.schema([("tail", pa.string()), ("maker", pa.string())])
    made.create_table("My.Planes", planes, row_keys=["tail"]).ingest(PLANES)
    return made


@pytest.fixture(scope="module")
def flights(instance):
    """The table of flights."""
    return instance.table("flights")


def in_order(rows):
    """Rows in the order of their keys."""
    return sorted(rows, key=lambda row: (row["tail"], row["day"]))


def plain(rows):
    """Rows as text, so that NaN equals NaN."""
    return sorted(map(repr, rows))


@pytest.mark.parametrize(
    ("where", "meets"),
    [
        ("dest = 'MIA' AND delay > 30", lambda r: r["dest"] == "MIA" and (r["delay"] or 0) > 30),
        ("tail LIKE 'N01%'", lambda r: r["tail"].startswith("N01")),
        ("starts_with(tail, 'N0') AND dest IS NULL", lambda r: r["dest"] is None),
        ("tail IN ('N001', 'N049', 'no')", lambda r: r["tail"] in ("N001", "N049")),
        ("tail BETWEEN 'N01' AND 'N02'", lambda r: "N01" <= r["tail"] <= "N02"),
        ("day >= '2026-01-27'", lambda r: r["day"] >= date(2026, 1, 27)),
        ("NOT (tail >= 'N005')", lambda r: r["tail"] < "N005"),
        ("tail = 'N007' OR dest = 'BQN'", lambda r: r["tail"] == "N007" or r["dest"] == "BQN"),
        (
            "tail = 'N007' AND day = DATE '2026-01-03'",
            lambda r: (r["tail"], r["day"].day) == ("N007", 3),
        ),
        ("tail = 'N007' AND tail = 'N008'", lambda _: False),
        ("tail ILIKE 'n01%'", lambda r: r["tail"].startswith("N01")),
        ("tail LIKE 'N_1%' AND tail NOT LIKE 'N01%'", lambda r: False),
        ("NOT (tail LIKE 'N0%1')", lambda r: not r["tail"].endswith("1")),
        ("true", lambda _: True),
    ],
)
def test_rows_are_found_by_a_condition_over_any_field(flights, where, meets):
    """Keys and values, in key order, with exactly the requested columns, and counted."""
    wanted = in_order(row for row in ROWS if meets(row))

    found = flights.query(where=where).to_pylist()
    keys = flights.query(where=where, columns=["tail", "day"]).to_pylist()
    unordered = flights.query(where=where, ordered=False).to_pylist()

    assert plain(found) == plain(wanted) == plain(unordered)
    assert keys == [{"tail": row["tail"], "day": row["day"]} for row in wanted]
    assert flights.count(where=where) == len(wanted)
    assert plain(flights.sql(f"SELECT * FROM flights WHERE {where}").to_pylist()) == plain(wanted)


def test_a_condition_combines_with_keys_ranges_and_prefixes(flights):
    """The rows that were asked for by key, less those that do not meet the condition."""
    late = "delay > 0"

    def wanted(meets):
        return plain(r for r in ROWS if meets(r) and r["delay"] is not None and not r["delay"] <= 0)

    whole = [("N001", date(2026, 1, 1)), ("N002", date(2026, 1, 1)), ("x", date(2026, 1, 1))]
    for asked, meets in (
        ({"key": "N003"}, lambda r: r["tail"] == "N003"),
        ({"key": whole[0]}, lambda r: (r["tail"], r["day"]) == whole[0]),
        ({"keys": whole}, lambda r: (r["tail"], r["day"]) in whole),
        ({"range": {"tail": ("N01", "N02")}}, lambda r: "N01" <= r["tail"] < "N02"),
        ({"regions": [{"tail": ("N01", "N02")}]}, lambda r: "N01" <= r["tail"] < "N02"),
        ({"prefix": {"tail": "N04"}}, lambda r: r["tail"].startswith("N04")),
    ):
        found = flights.query(**asked, where=late).to_pylist()
        assert plain(found) == wanted(meets), asked
        assert flights.count(**asked, where=late) == len(found)
    first = flights.query(where=late, limit=3, columns=["tail"]).to_pylist()
    assert first == [{"tail": r["tail"]} for r in in_order(ROWS) if (r["delay"] or 0) > 0][:3]


def test_nan_is_above_all_numbers_and_null_meets_no_condition(flights):
    """The order of SQL, which aggregations and PostgreSQL have too."""
    above = flights.count(where="delay > 1e300")
    nans = [row for row in ROWS if row["delay"] is not None and row["delay"] != row["delay"]]

    assert above == len(nans) > 0
    assert flights.count(where="delay > 1e300 OR delay <= 1e300") == flights.count(
        where="delay IS NOT NULL"
    )


@pytest.mark.parametrize("terms", [90, 330])
def test_a_condition_of_very_many_terms_is_evaluated(flights, terms):
    """It narrows what is read up to some hundred terms, and is refused by its beginning if wrong."""
    many = " OR ".join(f"(tail = 'N00{n % 3}' AND delay > {n // 3})" for n in range(terms))
    wrong = f"({many}) AND wrong = 1"

    found = flights.count(where=many)

    assert found == flights.count(where="tail < 'N003' AND delay > 0") > 0
    explained = flights.explain_sql(f"SELECT dest FROM flights WHERE {many}")
    assert ("1 of 4 leaves" in explained) == (terms < 300)
    with pytest.raises(QueryInvalid, match="no column 'wrong'") as refused:
        flights.query(where=wrong)
    assert len(str(refused.value)) < 500


def test_a_chain_of_operators_that_would_end_the_process_is_refused(flights):
    """DataFusion plans it by recursion; operators inside texts do not count."""
    chain = " + ".join(["delay"] * 4_000)

    with pytest.raises(QueryInvalid, match="3,999 operators, and 1,500 are allowed"):
        flights.sql(f"SELECT {chain} FROM flights")
    with pytest.raises(QueryInvalid, match="4,000 operators"):
        flights.count(where=f"{chain} > 0")
    assert flights.count(where=f"tail <> '{'-+' * 4_000}'") == flights.count()


def test_a_bad_condition_is_refused_when_it_is_asked(flights):
    """Before any row is read: the message names the condition, similar columns, and the way out."""
    for where, message in (
        ("Dest = 'MIA'", "no column 'Dest'; did you mean 'dest'"),
        ("delays > 1", "did you mean 'delay'"),
        ("nothing = 1", "there are tail, day, dest, delay. Names"),
        ("delay", "non-boolean"),
        ("delay > 'late'", "Cannot cast string 'late'"),
        ("tail = 'N001' garbage", "found: garbage"),
        ("tail = 'N001'; DROP TABLE flights", "found: ;"),
        ("tail = 'a' OR 1=1) OR (1=1", "found: \\)"),
        ("", "found: EOF"),
        ("count(*) > 1", "GROUP BY and HAVING"),
        ("row_number() OVER () = 1", "GROUP BY and HAVING"),
        ("EXISTS (SELECT 1)", "has a query inside"),
        ("tail IN (SELECT tail FROM flights)", "flights|query inside"),
        ("nope(tail) = 1", "nope"),
    ):
        with pytest.raises(QueryInvalid, match=message):
            flights.query(where=where)
    for where in (5, b"tail = 'a'", ["tail"]):
        with pytest.raises(QueryInvalid, match="where must be a condition in SQL"):
            flights.query(where=where)
    with pytest.raises(QueryInvalid, match="no column 'nothing'"):
        flights.query(where="true", columns=["nothing"])


def test_a_value_that_cannot_be_compared_is_reported_while_rows_are_read(flights):
    """A text column compared with a number: the first text that is no number."""
    rows = flights.query(where="tail = 5")

    with pytest.raises(QueryInvalid, match=r"Cannot cast string 'N.*text is in single quotes"):
        rows.to_arrow()


def test_statements_group_sort_and_limit(flights):
    """Aggregates of all rows, of groups, the first of a sort; names in quotes; a CTE."""
    known = [row["delay"] for row in ROWS if row["dest"] == "MIA" and row["delay"] is not None]

    (found,) = flights.sql(
        "SELECT COUNT(*) AS n, count(delay) AS known FROM flights WHERE dest = 'MIA'"
    ).to_pylist()
    busiest = flights.sql(
        "WITH per AS (SELECT tail, count(*) AS n FROM flights WHERE tail < 'N003' GROUP BY tail) "
        'SELECT "tail", n FROM per ORDER BY n DESC, tail LIMIT 2'
    )

    assert found == {"n": sum(row["dest"] == "MIA" for row in ROWS), "known": len(known)}
    assert busiest.to_pylist() == [{"tail": "N000", "n": 28}, {"tail": "N001", "n": 28}]
    assert busiest.transaction == flights.refresh()


def test_rows_of_all_partitions_of_a_plan_are_returned(flights, monkeypatch):
    """A LIMIT above the plan does not make one partition of it: it was pushed below."""
    # given: computing a column over a condition is divided among two tasks, on any machine
    monkeypatch.setattr(session, "PARTITIONS", 2)

    # when
    found = flights.sql(
        "SELECT tail, CASE WHEN dest = 'IAH' THEN 1 ELSE 0 END AS to_houston FROM flights "
        "WHERE coalesce(delay, 0) >= 0"
    ).to_pylist()

    # then
    wanted = [row for row in ROWS if not (row["delay"] or 0) < 0]
    assert len(found) == len(wanted)
    assert sum(row["to_houston"] for row in found) == sum(row["dest"] == "IAH" for row in wanted)


def test_tables_are_joined(instance):
    """By their names; a name with a dot or capitals is quoted; equal column names are numbered."""
    found = instance.sql(
        'SELECT maker, count(*) AS n FROM flights f JOIN "My.Planes" p ON f.tail = p.tail '
        "WHERE f.tail < 'N010' GROUP BY maker ORDER BY maker"
    )
    both = instance.sql('SELECT * FROM flights f JOIN "My.Planes" p ON f.tail = p.tail LIMIT 1')

    assert found.to_pylist() == [{"maker": "Boeing", "n": 5 * 28}]
    assert both.schema.names == ["tail", "day", "dest", "delay", "tail_1", "maker"]
    assert both.to_arrow().num_rows == 1
    assert instance.sql("SELECT 1 AS one").to_pylist() == [{"one": 1}]


@pytest.mark.parametrize(
    ("condition", "read"),
    [
        ("tail = 'N012'", "1 of 4 leaves, 2 of 8 files, 3 of 14 pages"),
        ("tail LIKE 'N011%' AND delay > 0", "1 of 4 leaves, 2 of 8 files"),
        ("tail >= 'N030' OR tail = 'N001'", "2 of 4 leaves, 4 of 8 files"),
        ("tail IN ('N001', 'N049') AND day = '2026-01-03'", "2 complete keys, looked up"),
        ("NOT tail > 'N001'", "1 of 4 leaves, 2 of 8 files"),
        ("tail LIKE 'N012%' AND tail LIKE 'N013%'", "0 of 4 leaves, 0 of 8 files, 0 of 0 pages"),
        ("delay > 0", "4 of 4 leaves, 8 of 8 files"),
        ("tail = 'N012' OR delay > 0", "4 of 4 leaves, 8 of 8 files"),
        ("upper(tail) = 'N012'", "4 of 4 leaves, 8 of 8 files"),
    ],
)
def test_conditions_on_row_keys_narrow_what_is_read(instance, flights, condition, read):
    """Leaves, files and pages, as the explanation says; other conditions read everything."""
    statement = f"SELECT dest, count(*) FROM flights WHERE {condition} GROUP BY dest"

    explained = flights.explain_sql(statement)

    assert "Aggregate" in explained
    assert read in explained.split("read:")[1]
    assert instance.explain_sql(statement).split("read:")[1] == explained.split("read:")[1]


def test_a_scan_that_is_not_understood_is_read_whole(flights):
    """A LIMIT or OFFSET below the condition, a scan in a subquery, a table scanned twice."""
    for statement, rows in (
        ("SELECT * FROM (SELECT * FROM flights LIMIT 3) WHERE tail = 'N049'", None),
        ("SELECT * FROM (SELECT * FROM flights OFFSET 1399) WHERE tail = 'no'", 0),
        ("SELECT (SELECT max(tail) FROM flights) AS m, tail FROM flights WHERE tail='N001'", 28),
        ("SELECT * FROM flights WHERE tail='N001' UNION ALL SELECT * FROM flights", 1428),
    ):
        assert "4 of 4 leaves" in flights.explain_sql(statement), statement
        found = flights.sql(statement).to_arrow()
        assert rows is None or found.num_rows == rows, statement
    twice = "SELECT a.tail FROM flights a JOIN flights b USING (tail, day) WHERE a.tail = 'N001'"
    assert "1 of 4 leaves" in flights.explain_sql(twice)
    assert flights.sql(twice).to_arrow().num_rows == 28


def test_columns_that_a_statement_does_not_name_are_not_read(flights):
    """And a statement that only selects by keys needs no engine: its rows come as they are."""
    explained = flights.explain_sql("SELECT dest FROM flights WHERE tail = 'N001'")
    grouped = flights.explain_sql("SELECT max(delay) FROM flights")

    assert "projection=[tail, dest]" in explained
    assert "steps:\nnone" in explained
    assert "projection=[delay]" in grouped
    assert "fetch=" not in grouped


def test_a_statement_reads_a_table_at_one_transaction(tmp_path):
    """The newest when it is planned, or an earlier one; what is committed later is not seen."""
    table = sleeper.connect(tmp_path / "i", create=True).create_table(
        "t", pa.schema([("id", pa.int64()), ("n", pa.int64())]), row_keys=["id"]
    )
    table.ingest([{"id": 1, "n": 1}])
    first = table.refresh()
    table.ingest([{"id": 2, "n": 2}])
    rows = table.sql("SELECT a.id FROM t a JOIN t b ON a.id = b.id ORDER BY 1")
    table.ingest([{"id": 3, "n": 3}])

    assert rows.to_pylist() == [{"id": 1}, {"id": 2}]
    assert table.sql("SELECT count(*) AS n FROM t").to_pylist() == [{"n": 3}]
    assert table.sql("SELECT id FROM t", as_of=first).to_pylist() == [{"id": 1}]
    assert table.query(where="n > 0", as_of=first).to_pylist() == [{"id": 1, "n": 1}]
    with pytest.raises(VersionNotFound):
        table.sql("SELECT id FROM t", as_of=99)
    with pytest.raises(QueryInvalid, match="as_of"):
        table.sql("SELECT id FROM t", as_of="x")


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("INSERT INTO flights VALUES (1)", r"Table.ingest\(\)"),
        ("UPDATE flights SET delay = 0", r"Table.upsert\(\)"),
        ("MERGE INTO flights USING f ON true WHEN MATCHED THEN DELETE", r"Table.upsert\(\)"),
        ("CREATE TABLE x AS SELECT * FROM flights", r"create_table\(\)"),
        ("CREATE EXTERNAL TABLE x STORED AS CSV LOCATION '/etc/passwd'", "create_table"),
        ("DROP TABLE flights", r"delete_table\(\)"),
        ("TRUNCATE TABLE flights", "reinitialise"),
        ("COPY flights TO 'x.csv'", "export"),
        ("SET datafusion.execution.batch_size = 1", "set_properties"),
        ("SHOW TABLES", "DESCRIBE"),
        ("-- nothing", "empty"),
        ("", "empty"),
        ("SELEC 1", "SELEC"),
        ("SELECT 1; SELECT 2", "one statement at a time"),
        ("EXPLAIN INSERT INTO flights VALUES ('a')", "DML|values"),
        ("SELECT * INTO x FROM flights", "DDL"),
        ("WITH a AS (SELECT 1) DELETE FROM flights", "(?i)delete"),
        ("SELECT * FROM flights TABLESAMPLE (10)", "TABLESAMPLE is not known"),
        ("SELECT tail FROM flights prewhere delay > 1", "PREWHERE is not known"),
        ("SELECT dest, count(*) FROM flights GROUP BY dest WITH ROLLUP", "ROLLUP is not known"),
        ("SELECT 1 FROM flights START WITH delay = 1 CONNECT BY PRIOR delay = delay", "CONNECT BY"),
        ("SELECT * FROM flight", "no table 'flight'; did you mean 'flights'"),
        ("SELECT * FROM '/etc/passwd'", "no table '/etc/passwd'"),
        ("SELECT * FROM read_csv('/etc/passwd')", "read_csv"),
        ("SELECT tial FROM flights", "did you mean 'tail'"),
        ("SELECT sum(dest) FROM flights", r"sum\(\) takes values of other types, not String"),
        ("SELECT tail, count(*) FROM flights", "GROUP BY"),
        ("SELECT * FROM flights LIMIT -1", "LIMIT must be"),
        ("SELECT", "statement 'SELECT'"),
        (5, "must be SQL text"),
        (None, "must be SQL text"),
    ],
)
def test_a_statement_that_does_not_only_read_or_cannot_be_understood_is_refused(
    instance, flights, statement, message
):
    """Nothing is changed, no file outside the tables is read, and the message says what to do."""
    for sql in (flights.sql, instance.sql):
        with pytest.raises(QueryInvalid, match=message):
            sql(statement).to_arrow()


def test_words_of_clauses_that_are_not_known_may_be_names_and_text(flights):
    """Only the clauses are refused, which DataFusion would leave out of a statement."""
    # when
    found = flights.sql(
        "WITH totals AS (SELECT 'with rollup' AS \"prewhere\", row_number() OVER "
        "(PARTITION BY dest) AS cube FROM flights) -- tablesample\n"
        "SELECT count(*) AS n FROM totals WHERE cube = 1 AND \"prewhere\" = 'with rollup'"
    )

    # then
    assert found.to_pylist() == [{"n": 4}]


def test_an_error_of_a_file_is_raised_as_itself(tmp_path):
    """A damaged data file is reported as damage, not as a text of the SQL engine."""
    instance = sleeper.connect(tmp_path / "i", create=True)
    table = instance.create_table(
        "t", pa.schema([("id", pa.int64()), ("n", pa.int64())]), row_keys=["id"]
    )
    table.ingest([{"id": n, "n": n} for n in range(50_000)])
    (path,) = (tmp_path / "i").rglob("*.parquet")
    content = bytearray(path.read_bytes())
    content[1000:60_000] = bytes(59_000)
    path.write_bytes(content)

    for read in (
        lambda: table.query(where="n % 2 = 0"),
        lambda: table.sql("SELECT sum(n) FROM t"),
        lambda: instance.sql("SELECT n FROM t WHERE n % 3 = 0 UNION ALL SELECT n FROM t"),
    ):
        with pytest.raises(DataDamaged, match=path.name):
            read().to_arrow()


def test_a_stream_can_be_left_in_the_middle(flights):
    """Closing stops the reads; the next statement is not disturbed."""
    before = threading.active_count()
    for statement in (
        "SELECT * FROM flights a, flights b",
        "SELECT tail FROM flights WHERE delay > 0 UNION ALL SELECT tail FROM flights",
    ):
        rows = flights.sql(statement)
        assert next(iter(rows)).num_rows > 0
        rows.close()
        with flights.sql(statement) as unread:
            assert unread.schema.names[0] == "tail"
    first = flights.sql("SELECT * FROM flights a, flights b LIMIT 5")

    assert first.to_arrow().num_rows == 5
    assert threading.active_count() <= before + 2


def test_threads_run_statements_at_once(instance):
    """Each has its own context; all return the same."""
    found, failures = [], []

    def run():
        try:
            statement = 'SELECT count(*) AS n FROM flights f JOIN "My.Planes" p ON f.tail = p.tail'
            found.extend(instance.sql(statement).to_pylist())
            found.append(
                {"n": instance.table("flights").count(where="tail < 'N025'") + 25 * 28 - 700}
            )
        except BaseException as error:  # noqa: BLE001 - shown below
            failures.append(error)

    threads = [threading.Thread(target=run) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert failures == []
    assert found == [{"n": 25 * 28}] * 12


def test_merged_tables_are_read_by_statements_that_several_tasks_run(tmp_path):
    """Tables with aggregations in a UNION: their rows go to a temp file first, and all are there."""
    instance = sleeper.connect(tmp_path / "i", create=True)
    schema = pa.schema([("id", pa.int64()), pa.field("n", pa.int64(), nullable=False)])
    for name in ("a", "b"):
        table = instance.create_table(
            *(name, schema), row_keys=["id"], properties={"sleeper.table.aggregations": "sum(n)"}
        )
        for _ in range(3):
            table.ingest(pa.table({"id": range(9_000), "n": [1] * 9_000}))
    union = " UNION ALL ".join(f"SELECT n, id FROM {name}" for name in "abab")

    found = instance.sql(f"SELECT sum(n) AS total, count(*) AS n FROM ({union})")
    alone = instance.sql(f"SELECT count(*) AS n FROM ({union.replace('n, id', '1')})")

    assert found.to_pylist() == [{"total": 4 * 27_000, "n": 36_000}]
    assert alone.to_pylist() == [{"n": 36_000}]


def limit_memory(monkeypatch, memory_bytes):
    """Let statements have so much memory, in contexts that none has used before."""
    idle = contexts.IdleContexts()
    idle.memory_bytes = memory_bytes
    monkeypatch.setattr(contexts, "IDLE", idle)
    monkeypatch.setattr(session, "IDLE", idle)


def test_a_statement_that_needs_too_much_memory_is_refused(flights, monkeypatch):
    """The message says what to do; what can be spilled is spilled."""
    limit_memory(monkeypatch, 50_000)

    with pytest.raises(StorageFailed, match=r"more memory or disk.*select fewer columns"):
        flights.sql(
            "SELECT a.tail, array_agg(b.dest) FROM flights a, flights b GROUP BY a.tail"
        ).to_arrow()


def test_a_sort_of_all_rows_is_spilled(tmp_path, monkeypatch):
    """Without a condition too: the LIMIT above the table does not make it a sort in memory."""
    table = sleeper.connect(tmp_path / "i", create=True).create_table(
        "t", pa.schema([("id", pa.int64()), ("s", pa.string())]), row_keys=["id"]
    )
    texts = [f"{n % 9973:04}" * 300 for n in range(100_000)]
    table.ingest(pa.table({"id": range(100_000), "s": texts}))
    limit_memory(monkeypatch, 100 << 20)
    monkeypatch.setattr(session, "PARTITIONS", 1)

    rows = table.sql("SELECT s, id FROM t ORDER BY s, id")
    found = [text for batch in rows for text in batch.column("s").to_pylist()]

    assert found == sorted(texts)


def _count_in_child(table, results):
    try:
        results.put(table.count(where="delay > 0"))
    except BadRequest as error:
        results.put(str(error))


def test_a_forked_process_is_told_to_start_otherwise(flights):
    """DataFusion does not survive a fork: the child gets an error instead of waiting for ever."""
    assert flights.count(where="delay > 0") > 0
    context = get_context("fork")
    results = context.Queue()
    child = context.Process(target=_count_in_child, args=(flights, results))
    child.start()

    assert "fork" in str(results.get(timeout=PATIENCE_S))
    child.join()
    assert os.getpid() != child.pid


def test_dates_and_times_are_compared_as_their_columns_are(tmp_path):
    """Text is read as a value of the column; time zones count."""
    schema = pa.schema([("at", pa.timestamp("us", "UTC")), ("local", pa.timestamp("us"))])
    table = sleeper.connect("memory://").create_table("t", schema, row_keys=["at"])
    hours = [datetime.fromisoformat(f"2026-01-01T{hour:02}:00:00+00:00") for hour in range(24)]
    table.ingest([{"at": at, "local": at.replace(tzinfo=None)} for at in hours])

    for where, count in (
        ("at < '2026-01-01T03:00:00Z'", 3),
        ("at < '2026-01-01T03:00:00+02:00'", 1),
        ("at >= TIMESTAMP '2026-01-01T22:00:00Z'", 2),
        ("at = '2026-01-01'", 1),
        ("local BETWEEN '2026-01-01 05:00:00' AND '2026-01-01 05:30:00'", 1),
        ("date_trunc('day', at) = '2026-01-01'", 24),
    ):
        assert table.count(where=where) == count, where
