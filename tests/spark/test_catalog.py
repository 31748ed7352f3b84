"""The tables of an instance as a catalog of Spark (rule QRY-24): `SELECT * FROM sleeper.flights`."""

from __future__ import annotations

import math
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest
from pyspark.errors import PySparkException

import sleeper
from sleeper.errors import BadRequest
from sleeper.model.jobs.statuses import JobState
from sleeper.spark.java import find_java
from tests.patience import becomes_true
from tests.spark.class_archive import SHORT_LIVED
from tests.spark.conftest import KIND
from tests.stories.test_ingest_jobs import work
from tests.stories.test_serving import processes_of

NOON = datetime(2024, 6, 1, 12, tzinfo=UTC)
ORDERS = pa.schema(
    [
        pa.field("amount", pa.int64(), nullable=False),
        pa.field("at", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("weight", pa.float64()),
        pa.field("id", pa.string(), nullable=False),
        pa.field("odd, `name`", pa.int32()),
    ]
)
"""The row key and the sort key are not the first columns."""

KEYS = {"row_keys": ["id"], "sort_keys": ["at"]}


def orders_of(ids, amount=1):
    return [
        {"amount": amount, "at": NOON, "weight": n / 2, "id": key, "odd, `name`": 7}
        for n, key in enumerate(ids)
    ]


@pytest.fixture(scope="module")
def instance(tmp_path_factory):
    """An instance of which tests make and drop tables; `orders` and `sums` stay as they are."""
    with sleeper.connect(tmp_path_factory.mktemp("catalog"), create=True) as opened:
        orders = opened.create_table("orders", ORDERS, **KEYS, split_points=["g", "p"])
        orders.ingest(orders_of("abhxz"))
        orders.ingest([{**orders_of("k")[0], "weight": math.nan}])
        counts = pa.schema(
            [
                pa.field("n", pa.int64(), nullable=False),
                pa.field("id", pa.string(), nullable=False),
                pa.field("m", pa.int64(), nullable=False),
            ]
        )
        added_up = {"sleeper.table.aggregations": "sum(n),sum(m)"}
        sums = opened.create_table("sums", counts, row_keys=["id"], properties=added_up)
        for _ in range(2):
            sums.ingest([{"n": 2, "id": "a", "m": 3}, {"n": 1, "id": "b", "m": 1}])
        yield opened


@pytest.fixture(scope="module")
def spark(spark, instance):
    """The session, with the instance as its catalog `house`."""
    sleeper.spark.add_catalog(spark, instance, name="house")
    return spark


@pytest.fixture
def table(instance):
    """An empty table of the columns of `orders`, which a test may change."""
    made = instance.create_table("changing", ORDERS, **KEYS, split_points=["m"])
    yield made
    if "changing" in instance:
        instance.delete_table("changing")


def rows(frame):
    return sorted(map(tuple, frame.collect()), key=str)


def ids(frame):
    return sorted(row.id for row in frame.select("id").collect())


def plan_of(frame, capsys):
    frame.explain()
    return capsys.readouterr().out


class TestDescriptions:
    """What Spark shows of the instance."""

    @pytest.mark.every_spark
    def test_tables_are_listed_and_there_are_no_namespaces(self, spark):
        """An instance has tables alone; a name of three parts is none of them."""
        assert [row.tableName for row in spark.sql("SHOW TABLES IN house").collect()] == [
            "orders",
            "sums",
        ]
        assert spark.sql("SHOW NAMESPACES IN house").collect() == []
        assert spark.catalog.tableExists("house.orders")
        assert not spark.catalog.tableExists("house.order")
        with pytest.raises(PySparkException, match="no namespaces: a table is house"):
            spark.sql("CREATE NAMESPACE house.more")

    @pytest.mark.every_spark
    def test_columns_have_the_tables_order_and_keys_are_shown(self, spark):
        """DESCRIBE has the order in which the table was made, and says which columns are keys."""
        described = spark.sql("DESCRIBE house.orders").collect()

        assert [(row.col_name, row.data_type, row.comment) for row in described] == [
            ("amount", "bigint", None),
            ("at", "timestamp", "sort key"),
            ("weight", "double", None),
            ("id", "string", "row key"),
            ("odd, `name`", "int", None),
        ]
        assert spark.table("house.orders").columns == ORDERS.names
        assert [field.nullable for field in spark.table("house.orders").schema] == [
            *(False, False, True, False, True)
        ]

    @pytest.mark.every_spark
    def test_a_table_that_is_not_there_is_named_with_those_that_are(self, spark):
        """Spark alone would say that `house`, or the source `sleeper`, is no format of files."""
        with pytest.raises(PySparkException, match="no table 'order'; did you mean 'orders'"):
            spark.sql("SELECT * FROM house.order").collect()


class TestReading:
    """What a query gets, and by which reader."""

    @pytest.mark.every_spark
    def test_filters_and_columns_of_each_query_are_its_own(self, spark):
        """
        Given one DataFrame, when it is filtered in several ways and counted, then each answer is
        right: of NaN too, which statistics of files leave out, and which is the greatest number.
        """
        orders = spark.table("house.orders")

        assert ids(orders) == [*"abhkxz"]
        assert ids(orders.filter("id >= 'h' AND id < 'x'")) == ["h", "k"]
        assert ids(orders.filter("id IN ('a', 'z')").union(orders.filter("id LIKE 'k%'"))) == [
            *"akz"
        ]
        assert ids(orders.filter("weight > 1")) == ["k", "x", "z"]
        assert ids(orders.filter("NOT (id = 'a' OR weight < 100)")) == ["k"]
        assert orders.count() == 6
        assert orders.filter("id = 'nothing'").count() == 0
        assert rows(orders.filter("id = 'b'").select("`odd, ``name```")) == [(7,)]

    def test_sparks_parquet_reader_reads_where_it_may(self, spark, capsys):
        """EXPLAIN shows pruned columns, pushed filters, and the files of the leaves alone."""
        frame = spark.table("house.orders").filter("id = 'h' AND weight > 0").select("amount")

        plan = plan_of(frame, capsys)

        assert "ParquetScan" in plan
        assert "PushedFilters: [EqualTo(id,h)]" in plan  # not weight, which may be NaN
        assert "ReadSchema: struct<amount:bigint,weight:double,id:string>" in plan
        assert "InMemoryFileIndex(2 paths)" in plan

    @pytest.mark.every_spark
    def test_rows_that_must_be_united_are_read_by_the_data_source(self, spark):
        """A table that adds up its rows has each key once, whatever the query needs of it."""
        sums = spark.table("house.sums")

        assert rows(sums) == [(2, "b", 2), (4, "a", 6)]
        assert rows(sums.select("m")) == [(2,), (6,)]
        assert sums.count() == 2
        assert rows(sums.filter("id > 'a'").select("n")) == [(2,)]

    @pytest.mark.every_spark
    def test_a_table_without_files_has_no_rows(self, spark, table):
        """Neither reader has anything to read."""
        assert spark.table("house.changing").collect() == []
        assert spark.table("house.changing").count() == 0

    @pytest.mark.every_version
    def test_a_field_of_a_struct_is_no_column_with_a_dot(self, spark, instance):
        """
        Given a row key called `s.x` and a struct `s` with a field `x`, when each is compared, then
        the other is not: leaves and row groups are chosen by neither's namesake.
        """
        field = pa.struct([("x", pa.string()), ("y`.`z", pa.float64())])
        columns = pa.schema([("s", field), ("s.x", pa.string()), ("y`.`z", pa.string())])
        table = instance.create_table("dots", columns, row_keys=["s.x"], split_points=["m"])
        table.ingest([{"s": {"x": "z", "y`.`z": math.nan}, "s.x": "a", "y`.`z": "q"}])
        table.ingest([{"s": {"x": "b", "y`.`z": 1.0}, "s.x": "x", "y`.`z": "r"}])
        dots = spark.table("house.dots")

        for condition, found in {
            "s.x = 'z'": ["a"],
            "s.x IN ('b')": ["x"],
            "`s.x` = 'x'": ["x"],
            "`s.x` < 'b' AND s.x > 'b'": ["a"],
            "s.`y``.``z` > 5": ["a"],
            "`y``.``z` = 'r'": ["x"],
        }.items():
            assert [row[0] for row in dots.filter(condition).select("`s.x`").collect()] == found
        instance.delete_table("dots")

    def test_regions_may_be_named(self, spark):
        """The option of the data source works; others are refused by name."""
        named = spark.read.option("regions", '[{"id": {"min": "b", "max": "k"}}]')

        assert ids(named.table("house.orders")) == ["b", "h"]
        with pytest.raises(PySparkException, match="no option 'colums'; it has regions and as_of"):
            spark.read.option("colums", "id").table("house.orders").count()


class TestVersions:
    """VERSION AS OF, TIMESTAMP AS OF, and what a DataFrame keeps."""

    @pytest.mark.every_spark
    def test_an_older_version_is_read_by_number_and_by_time(self, spark, table):
        """A version is a transaction; a time means the last one at or before it."""
        first = table.ingest(orders_of("a")).transaction
        between = spark.sql("SELECT date_format(current_timestamp(), 'yyyy-MM-dd HH:mm:ss.SSSSSS')")
        time = between.collect()[0][0]
        table.ingest(orders_of("b"))

        versions = {
            f"VERSION AS OF {first}": ["a"],
            f"TIMESTAMP AS OF '{time}'": ["a"],
            f"VERSION AS OF {first + 1}": ["a", "b"],
        }

        for words, wanted in versions.items():
            assert ids(spark.sql(f"SELECT id FROM house.changing {words}")) == wanted
        with pytest.raises(PySparkException, match="no transaction 99; the newest is 3"):
            spark.sql("SELECT * FROM house.changing VERSION AS OF 99").collect()
        with pytest.raises(PySparkException, match="a transaction number, not 'main'"):
            spark.sql("SELECT * FROM house.changing VERSION AS OF 'main'").collect()

    @pytest.mark.every_spark
    def test_a_view_of_sql_is_fresh(self, spark, table):
        """
        Given a temporary view of a query, when rows are added by another program, then the view
        shows them.
        """
        table.ingest(orders_of("a"))
        spark.sql("CREATE OR REPLACE TEMP VIEW fresh AS SELECT id FROM house.changing")
        before = ids(spark.table("fresh"))
        table.ingest(orders_of("b"))

        assert (before, ids(spark.table("fresh"))) == (["a"], ["a", "b"])

    def test_a_data_frame_keeps_the_version_that_it_was_made_of(self, spark, table):
        """Whatever is added since, and however often it is used, also beside itself."""
        table.ingest(orders_of("ab"))
        frame = spark.table("house.changing")
        table.ingest(orders_of("c"))

        assert (ids(frame), frame.count()) == (["a", "b"], 2)
        assert frame.join(frame.select("id"), "id").count() == 2


INSERTS = {
    "select": lambda spark: spark.sql("INSERT INTO house.changing SELECT * FROM source"),
    "by name": lambda spark: spark.sql(
        "INSERT INTO house.changing BY NAME SELECT id, amount, weight, `odd, ``name```, at FROM source"
    ),
    "columns": lambda spark: spark.sql(
        "INSERT INTO house.changing (id, `odd, ``name```, at, weight, amount) "
        "SELECT id, `odd, ``name```, at, weight, amount FROM source"
    ),
    "writeTo": lambda spark: (
        spark.table("source")
        .select("id", "weight", "amount", "`odd, ``name```", "at")
        .writeTo("house.changing")
        .append()
    ),
    "saveAsTable": lambda spark: (
        spark.table("source")
        .select("id", "weight", "amount", "`odd, ``name```", "at")
        .write.mode("append")
        .saveAsTable("house.changing")
    ),
    "insertInto": lambda spark: spark.table("source").write.insertInto("house.changing"),
}
MORE_SQL = ("by name", "columns")


class TestWriting:
    """Rows are added once, and whole."""

    @pytest.mark.parametrize(
        "insert",
        [
            pytest.param(
                insert,
                id=name,
                marks=pytest.mark.every_version if name in MORE_SQL else pytest.mark.every_spark,
            )
            for name, insert in INSERTS.items()
        ],
    )
    def test_rows_are_added_by_position_or_by_name(self, spark, table, insert):
        """
        Position is that of the columns as the table shows them, in one transaction. To Connect one
        statement is text as another.
        """
        before = table.refresh()
        spark.table("house.orders").filter("id IN ('b', 'x')").createOrReplaceTempView("source")

        insert(spark)

        added = [row for row in orders_of("abhxz") if row["id"] in "bx"]
        assert table.query().to_pylist() == added
        assert table.refresh() == before + 1

    @pytest.mark.every_spark
    def test_a_named_write_is_done_once(self, spark, table):
        """The option `job_id` names it, as that of a bulk import does."""
        source = spark.table("house.orders").repartition(2)

        for _ in range(2):
            source.writeTo("house.changing").option("job_id", "june").append()

        assert table.query().count() == 6

    @pytest.mark.every_spark
    def test_rows_that_do_not_fit_change_nothing(self, spark, table):
        """A null key, a missing column and a text for a number are refused by Spark."""
        before = table.refresh()

        for select in (
            "amount, at, weight, if(id = 'x', null, id), 1",
            "amount, at, weight, id",
            "id, at, weight, id, 1",
        ):
            with pytest.raises(PySparkException):
                spark.sql(f"INSERT INTO house.changing SELECT {select} FROM house.orders")

        assert table.refresh() == before

    @pytest.mark.every_version
    @pytest.mark.parametrize(
        ("statement", "message"),
        [
            ("INSERT OVERWRITE house.changing SELECT * FROM house.orders", "never overwritten"),
            ("DELETE FROM house.changing WHERE id = 'a'", "DELETE is not possible"),
            ("DELETE FROM house.changing", "DELETE is not possible"),
            ("UPDATE house.changing SET amount = 3", "UPDATE is not possible"),
            (
                "MERGE INTO house.changing t USING house.sums o ON t.id = o.id WHEN MATCHED THEN DELETE",
                "MERGE is not possible",
            ),
            ("ALTER TABLE house.changing ADD COLUMN more INT", "nothing but the name"),
            ("ALTER TABLE house.changing SET TBLPROPERTIES ('a' = 'b')", "nothing but the name"),
            ("REPLACE TABLE house.changing (id STRING)", "not replaced or overwritten"),
            (
                "CREATE OR REPLACE TABLE house.changing AS SELECT * FROM house.orders",
                "not replaced or overwritten",
            ),
        ],
    )
    def test_rows_are_not_changed_or_removed(self, spark, table, statement, message):
        """Each is refused with what to do instead, and the table is as it was."""
        table.ingest(orders_of("a"))

        with pytest.raises(PySparkException, match=message):
            spark.sql(statement).collect()

        assert table.query().to_pylist() == orders_of("a")

    @pytest.mark.every_spark
    def test_data_frames_do_not_replace_a_table(self, spark, table):
        """createOrReplace, overwrite and saveAsTable by another mode leave the rows as they are."""
        table.ingest(orders_of("a"))
        frame = spark.table("house.orders")

        with pytest.raises(PySparkException, match="not replaced or overwritten"):
            frame.writeTo("house.changing").createOrReplace()
        with pytest.raises(PySparkException, match="not replaced or overwritten"):
            frame.write.mode("overwrite").saveAsTable("house.changing")
        with pytest.raises(PySparkException, match="never overwritten"):
            frame.writeTo("house.changing").overwritePartitions()
        with pytest.raises(PySparkException, match="already exists"):
            frame.write.saveAsTable("house.changing")
        frame.write.mode("ignore").saveAsTable("house.changing")

        assert table.query().to_pylist() == orders_of("a")

    @pytest.mark.every_spark
    def test_a_stream_goes_from_table_to_table(self, spark, table, tmp_path):
        """The rows that are there, then those that are added, each once."""
        source = spark.readStream.option("from", "earliest").table("house.orders")

        for _ in range(2):
            stream = source.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
            query = stream.trigger(availableNow=True).toTable("house.changing")
            assert query.awaitTermination(120)

        assert table.query().to_arrow().column("id").to_pylist() == [*"abhkxz"]

    def test_every_way_of_importing_adds_the_same_rows(self, spark, instance, tmp_path):
        """The same import by files, as a DataFrame, by a message and by the catalog is equal."""
        numbers = pa.table(
            {
                "n": pa.array(range(3_000), pa.int64()),
                "id": [f"{n:05}"[::-1] for n in range(3_000)],
                "half": pa.array([n / 2 if n % 7 else None for n in range(3_000)], pa.float64()),
            }
        )
        pq.write_table(numbers, tmp_path / "numbers.parquet")
        tables = {
            way: instance.create_table(
                f"numbers_{way}", numbers.schema, row_keys=["id"], split_points=["3", "7"]
            )
            for way in ("files", "frame", "message", "catalog")
        }
        spark.read.parquet(str(tmp_path / "numbers.parquet")).createOrReplaceTempView("numbers")

        tables["files"].bulk_import(str(tmp_path), spark=spark)
        tables["frame"].bulk_import(spark.table("numbers"), spark=spark)
        job = instance.jobs.submit_bulk_import("numbers_message", str(tmp_path))
        assert work(instance, "bulk-import") == 1
        spark.sql("INSERT INTO house.numbers_catalog SELECT * FROM numbers")

        assert instance.jobs.job(job).state is JobState.FINISHED
        wanted = numbers.sort_by("id").to_pylist()
        for way, each in tables.items():
            assert each.query().to_arrow().sort_by("id").to_pylist() == wanted, way
            instance.delete_table(each.name)


class TestDefinitions:
    """CREATE, DROP and RENAME."""

    @pytest.mark.every_version
    def test_a_table_is_made_renamed_and_dropped(self, spark, instance):
        """Keys are properties, the order of columns is kept, and properties are those of tables."""
        spark.sql(
            "CREATE TABLE house.made (n BIGINT, id STRING, day DATE, `odd, n` ARRAY<INT>) "
            "TBLPROPERTIES ('row_keys' = 'id', 'sort_keys' = 'day', "
            "'sleeper.table.parquet.compression.codec' = 'zstd')"
        )
        spark.sql("CREATE TABLE IF NOT EXISTS house.made (n BIGINT)")
        table = instance.table("made")

        assert [field.name for field in table.schema.row_keys] == ["id"]
        assert [field.name for field in table.schema.sort_keys] == ["day"]
        assert table.schema.columns == ("n", "id", "day", "odd, n")
        properties = {
            row.key: row.value for row in spark.sql("SHOW TBLPROPERTIES house.made").collect()
        }
        assert properties["sleeper.table.parquet.compression.codec"] == "zstd"
        assert (properties["row_keys"], properties["sort_keys"]) == ("`id`", "`day`")
        written = spark.sql("SHOW CREATE TABLE house.made").collect()[0][0]
        spark.sql("ALTER TABLE house.made RENAME TO house.renamed")
        spark.sql(written)
        assert instance.table("made").schema == instance.table("renamed").schema
        for name in ("made", "renamed"):
            spark.sql(f"DROP TABLE house.{name}")
            assert name not in instance
        spark.sql("DROP TABLE IF EXISTS house.made")
        with pytest.raises(PySparkException, match="TABLE_OR_VIEW_NOT_FOUND"):
            spark.sql("DROP TABLE house.made")

    @pytest.mark.every_spark
    def test_a_table_is_made_of_a_query(self, spark, instance):
        """With rows, or not at all: when they are refused, no table stays."""
        keys = "TBLPROPERTIES ('row_keys' = 'id')"

        spark.sql(f"CREATE TABLE house.copied {keys} AS SELECT id, amount FROM house.orders")
        with pytest.raises(PySparkException):
            spark.sql(
                f"CREATE TABLE house.failed {keys} AS "
                "SELECT if(id = 'x', null, id) AS id FROM house.orders"
            )
        frame = spark.table("house.orders").select("at", "id")
        frame.writeTo("house.written").tableProperty("row_keys", "at,id").create()

        assert instance.table("copied").query().count() == 6
        assert "failed" not in instance
        assert [field.name for field in instance.table("written").schema.row_keys] == ["at", "id"]
        for name in ("copied", "written"):
            instance.delete_table(name)

    @pytest.mark.parametrize(
        ("definition", "message"),
        [
            ("(id STRING)", "name the columns that are row keys"),
            ("(id STRING) TBLPROPERTIES ('row_keys' = 'ids')", "row_keys names 'ids'"),
            (
                "(id STRING) TBLPROPERTIES ('row_keys' = 'id', 'sortkeys' = 'id')",
                "has no 'sortkeys': it has row_keys, sort_keys",
            ),
            ("(id STRING) PARTITIONED BY (id)", "partitioned by its row keys"),
            ("(id STRING) USING parquet", "cannot be USING parquet"),
            ("(id STRING) COMMENT 'x' TBLPROPERTIES ('row_keys' = 'id')", "has no 'comment'"),
            ("(id STRING) LOCATION '/x' TBLPROPERTIES ('row_keys' = 'id')", "has no 'location'"),
            (
                "(id STRING, v VARCHAR(5)) TBLPROPERTIES ('row_keys' = 'id')",
                r"column 'v' is of Spark's type varchar\(5\)",
            ),
        ],
    )
    def test_a_definition_that_says_too_little_or_too_much_is_refused(
        self, spark, instance, definition, message
    ):
        """Nothing that a table lacks is left out in silence."""
        with pytest.raises(PySparkException, match=message):
            spark.sql(f"CREATE TABLE house.refused {definition}")

        assert "refused" not in instance


class TestSessions:
    """How a session gets the catalog."""

    @pytest.mark.every_spark
    def test_one_name_is_one_instance(self, spark, instance, tmp_path):
        """A catalog that was used stays what it is; the same again is no error."""
        sleeper.spark.add_catalog(spark, instance.url, name="house")
        with pytest.raises(BadRequest, match=r"has a catalog 'house' already.*another name"):
            sleeper.spark.add_catalog(spark, tmp_path, name="house")
        with pytest.raises(PySparkException, match="no Sleeper instance at"):
            sleeper.spark.add_catalog(spark, tmp_path, name="elsewhere")
        with pytest.raises(BadRequest, match="use a folder"):
            sleeper.spark.add_catalog(spark, "memory://", name="memory")

    @pytest.mark.every_version  # the session of Connect is one without the jar
    def test_a_session_of_the_users_own_gets_the_jar(self, instance):
        """It was started without it, and need not be started again."""
        program = """
            import sys, sleeper
            from pyspark.sql import SparkSession
            builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
            builder = builder.config("spark.driver.extraJavaOptions", sys.argv[2])
            spark = builder.config("spark.driver.host", "127.0.0.1").getOrCreate()
            sleeper.spark.add_catalog(spark, sys.argv[1], name="mine")
            found = spark.sql("SELECT id FROM mine.orders WHERE id > 'k'").collect()
            print(sorted(row.id for row in found))
        """
        environment = {
            **os.environ,
            "JAVA_HOME": str(find_java(os.environ, spark_version=pyspark.__version__).home),
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
        }

        done = subprocess.run(
            [
                sys.executable,
                "-W",
                "ignore",
                "-c",
                textwrap.dedent(program),
                instance.url,
                SHORT_LIVED,
            ],
            capture_output=True,
            text=True,
            check=False,
            env={k: v for k, v in environment.items() if k != "SPARK_DIST_CLASSPATH"},
        )

        assert done.stdout.strip() == "['x', 'z']", done.stderr

    @pytest.mark.every_spark
    def test_settings_that_are_missing_or_misspelt_are_named(self, spark):
        """They are read when the catalog is first used."""
        spark.conf.set("spark.sql.catalog.nowhere", "store.sleeper.spark.SleeperCatalog")
        with pytest.raises(PySparkException, match=r"set spark\.sql\.catalog\.nowhere\.instance"):
            spark.sql("SHOW TABLES IN nowhere").collect()
        spark.conf.set("spark.sql.catalog.nowhere.instanc", "x")
        with pytest.raises(
            PySparkException, match=r"no setting spark\.sql\.catalog\.nowhere\.instanc:"
        ):
            spark.sql("SHOW TABLES IN nowhere").collect()

    @pytest.mark.skipif(KIND != "classic", reason="a client of Connect has no JVM of its own")
    def test_a_python_process_that_was_killed_is_started_again(self, spark):
        """The catalog's process may end at any time; the next query has another."""
        jvm = spark._jvm.java.lang.ProcessHandle.current().pid()
        helpers = [pid for pid in processes_of(jvm) if "spark_catalog" in command_of(pid)]
        assert helpers

        for pid in helpers:
            os.kill(pid, signal.SIGKILL)
            assert becomes_true(lambda pid=pid: "spark_catalog" not in command_of(pid))

        assert ids(spark.sql("SELECT id FROM house.orders WHERE id = 'k'")) == ["k"]

    def test_an_instance_that_is_replaced_is_opened_anew(self, spark, tmp_path):
        """The query that notices says so; the next one reads what is there then."""
        place = tmp_path / "replaced"
        with sleeper.connect(place, create=True) as first:
            first.create_table("one", pa.schema([("id", pa.string())]), row_keys=["id"])
        sleeper.spark.add_catalog(spark, place, name="replaced")
        shutil.rmtree(place)
        with sleeper.connect(place, create=True) as second:
            second.create_table("two", pa.schema([("id", pa.string())]), row_keys=["id"])

        with pytest.raises(PySparkException, match="is not what this process opened"):
            spark.sql("SHOW TABLES IN replaced").collect()

        shown = spark.sql("SHOW TABLES IN replaced").collect()
        assert [row.tableName for row in shown] == ["two"]


def command_of(pid):
    """The command line of a process; nothing, once it has ended."""
    done = subprocess.run(
        ["ps", "-o", "args=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return done.stdout


def test_the_page_shows_what_happens(spark, tmp_path, capsys):
    """
    The statements of docs/spark/catalog.md run in the order of the page, and the last of each block
    prints what stands below it.
    """
    page = (Path(__file__).parents[2] / "docs" / "spark" / "catalog.md").read_text()
    shown = re.findall(r"<!-- run -->\n```sql\n(.*?)```\n\n```text\n(.*?)```", page, re.DOTALL)
    sleeper.connect(tmp_path / "page", create=True).close()
    sleeper.spark.add_catalog(spark, tmp_path / "page", name="page")

    for block, printed in shown:
        for statement in block.strip().removesuffix(";").split(";\n"):
            frame = spark.sql(statement.replace("sleeper.trips", "page.trips"))
        frame.show(truncate=False)
        assert capsys.readouterr().out.strip() == printed.strip()

    assert len(shown) == 3


class TestTablesOfSparksOwnCatalog:
    """`CREATE TABLE ... USING sleeper` outside a catalog of ours."""

    @pytest.mark.every_spark
    def test_it_is_refused_with_what_works(self, spark, instance):
        """Spark loses the options of such a table, so that nothing would be behind it."""
        options = f"instance '{instance.url}', table 'orders'"

        with pytest.raises(
            PySparkException, match=r"CREATE TABLE \.\.\. USING sleeper is not possible"
        ):
            spark.sql(f"CREATE TABLE lost USING sleeper OPTIONS ({options})")

    def test_one_that_spark_makes_without_asking_says_so_when_it_is_used(self, spark):
        """Spark asks no data source about a table with columns; reading and writing are refused."""
        spark.sql("CREATE TABLE hollow (id BIGINT) USING sleeper")
        try:
            for statement in ("SELECT * FROM hollow", "INSERT INTO hollow VALUES (1)"):
                with pytest.raises(PySparkException, match=r"made by CREATE TABLE .* drop it"):
                    spark.sql(statement).collect()
        finally:
            spark.sql("DROP TABLE hollow")
