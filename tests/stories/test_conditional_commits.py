"""Rows are changed only if nobody has changed their leaves since they were read (rule DEL-5)."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Barrier

import httpx
import pyarrow as pa
import pytest

import sleeper
from sleeper.errors import BadRequest, CommitContended, RowsChanged, VersionNotFound
from sleeper.interfaces.rest.app import make_app
from sleeper.model.known_properties.state_store import STATE_STORES
from sleeper.tables.deletions import statement
from tests.contracts.s3_server import s3_credentials
from tests.contracts.servers.dynamo import dynamo_endpoint, dynamo_environment, on_one_server
from tests.patience import PATIENCE_S
from tests.unit.interfaces.command_line import sleeper as command
from tests.unit.interfaces.rest.running_server import running_server

__all__ = ["dynamo_endpoint", "dynamo_environment", "s3_credentials"]

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])


def rows(keys, value):
    numbers = [*keys]
    return pa.table({"k": numbers, "v": [value] * len(numbers)}, schema=SCHEMA)


def found(table):
    return {row["k"]: row["v"] for row in table.query().to_pylist()}


@pytest.fixture
def instance(tmp_path):
    with sleeper.connect(tmp_path / "instance", create=True) as opened:
        yield opened


@pytest.fixture(params=[1, 2], ids=["format 1", "format 2"])
def table(instance, request):
    """Numbers 0 to 9 in the leaf below 100, and 100 to 109 in the other."""
    return filled(instance, is_old=request.param == 1)


def filled(instance, name="t", *, is_old=False, **options):
    made = instance.create_table(name, SCHEMA, row_keys=["k"], split_points=[100], **options)
    if is_old:
        made.downgrade()
    made.ingest(rows([*range(10), *range(100, 110)], "old"))
    return made


VERBS = {
    "ingest": lambda table, n: table.ingest(rows([3], "mine"), if_unchanged_since=n),
    "upsert": lambda table, n: table.upsert(rows([3], "mine"), if_unchanged_since=n),
    "upsert of many": lambda table, n: table.upsert(
        rows([3, *range(-2_000, 0)], "mine"), if_unchanged_since=n
    ),
    "ingest in bulk": lambda table, n: table.bulk_import(rows([3], "mine"), if_unchanged_since=n),
    "upsert in bulk": lambda table, n: table.bulk_import(
        rows([3], "mine"), upsert=True, if_unchanged_since=n
    ),
    "delete by keys": lambda table, n: table.delete(
        keys=[3, *range(-2_000, 0)], if_unchanged_since=n
    ),
    "delete where": lambda table, n: table.delete(where="k = 3", if_unchanged_since=n),
    "delete in SQL by key": lambda table, n: table.sql(
        "DELETE FROM t WHERE k IN (3, 4)", if_unchanged_since=n
    ),
    "delete in SQL by value": lambda table, n: table.sql(
        "DELETE FROM t WHERE k < 4 AND v = 'old'", if_unchanged_since=n
    ),
}
"""Each changes the leaf below 100, in tables of either format."""

BY_SQL = ("delete in SQL by key", "delete in SQL by value")

CHANGES = {
    "an ingest": lambda table: table.ingest(rows([50], "theirs")),
    "an upsert": lambda table: table.upsert(rows([5], "theirs")),
    "a deletion": lambda table: table.delete(where="k = 5"),
    "a deletion of keys": lambda table: table.delete(keys=range(5, 2_000)),
    "a new start": lambda table: (table.reinitialise([100]), table.ingest(rows([103], "theirs"))),
}
"""Each changes the rows of the leaf below 100."""

KEPT = {
    "an ingest elsewhere": lambda table: table.ingest(rows([150], "theirs")),
    "an upsert elsewhere": lambda table: table.upsert(rows([105], "theirs")),
    "a deletion elsewhere": lambda table: table.delete(where="k = 105"),
    "a compaction elsewhere": lambda table: (
        table.ingest(rows([150], "theirs")),
        table.delete(where="k = 150"),
    ),
    "a split": lambda table: (
        table.set_properties({"sleeper.table.partition.splitting.threshold": "2"}),
        table.split_partitions(),
    ),
    "properties": lambda table: table.set_properties({"sleeper.table.compression.codec": "zstd"}),
}
"""Each leaves the rows of the leaf below 100 as they are."""


class TestRefused:
    """A leaf that the commit is about has changed since."""

    @pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
    @pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)
    def test_by_what_others_changed(self, table, verb, change):
        """Given a version that was read, when others change its rows, nothing is committed."""
        read_at = table.query().transaction
        change(table)
        there = found(table)

        by_condition = [VERBS["delete where"], VERBS["delete in SQL by value"]]
        if table.state().format == 1:
            by_condition.append(VERBS["delete in SQL by key"])
        if 3 not in there and verb in by_condition:
            pytest.skip("there is no row left that it could delete")
        with pytest.raises(
            RowsChanged, match=f"has changed since transaction {read_at}"
        ) as refused:
            verb(table, read_at)

        assert refused.value.since == read_at
        assert len(refused.value.leaves) == 1
        assert found(table) == there
        assert table.verify().clean

    def test_by_a_deletion_in_the_log_alone(self, instance):
        """Given a deletion of which files know nothing yet, it counts as a change."""
        table = filled(instance)
        read_at = table.refresh()
        table.delete(key=5)

        for verb in VERBS.values():
            with pytest.raises(RowsChanged, match="rows were deleted"):
                verb(table, read_at)
        VERBS["upsert"](table, table.refresh())

        assert found(table)[3] == "mine"

    def test_by_a_compaction_of_the_leaf_since_who_wrote_a_file_is_not_known(self, instance):
        """Given new files with the same rows, the caller reads again, and goes on."""
        table = filled(instance)
        table.ingest(rows([1], "more"))
        read_at = table.refresh()
        table.compact(all_files=True)

        with pytest.raises(RowsChanged, match="or its files were written anew"):
            VERBS["upsert"](table, read_at)
        VERBS["upsert"](table, table.refresh())

    def test_before_there_was_a_file(self, instance):
        """Given transaction 0, a table counts as unchanged while its leaf is empty."""
        table = instance.create_table("empty", SCHEMA, row_keys=["k"], split_points=[100])

        assert table.ingest(rows([1], "first"), if_unchanged_since=0).rows_written == 1
        assert table.ingest(rows([101], "first"), if_unchanged_since=0).rows_written == 1
        with pytest.raises(RowsChanged):
            table.ingest(rows([2], "second"), if_unchanged_since=0)


class TestCommitted:
    """No leaf that the commit is about has changed."""

    @pytest.mark.parametrize("change", KEPT.values(), ids=KEPT)
    @pytest.mark.parametrize(("name", "verb"), VERBS.items(), ids=VERBS)
    def test_whatever_changed_elsewhere(self, table, name, verb, change):
        """Given other leaves that changed, or leaves that were divided, it is as without it."""
        read_at = table.query().transaction
        change(table)

        verb(table, read_at)

        left = {"ingest": ["mine", "old"], "upsert": ["mine"], "delete": []}[name.split()[0]]
        assert sorted(row["v"] for row in table.query(key=3).to_pylist()) == left
        assert table.verify().clean

    def test_one_after_the_other(self, table):
        """Given the transaction of each answer, a writer that is alone is never refused."""
        number = table.refresh()
        for value in range(5):
            number = table.upsert(rows([3], str(value)), if_unchanged_since=number).transaction

        assert found(table)[3] == "4"


class TestOnce:
    """A repeated job is answered as without a condition."""

    @pytest.mark.parametrize("verb", ["ingest", "upsert"])
    def test_a_job_that_was_committed_is_not_refused(self, table, verb):
        """Given a job that was committed, its own commit is no change by others."""
        read_at = table.refresh()
        run = getattr(table, verb)
        first = run(rows([3, 4], "mine"), job_id="job", if_unchanged_since=read_at)

        again = run(rows([3, 4], "mine"), job_id="job", if_unchanged_since=read_at)
        unknown = run(rows([3, 4], "mine"), job_id="job", if_unchanged_since=10_000)

        assert (again.already_committed, unknown.already_committed) == (True, True)
        assert again.transaction == first.transaction

    @pytest.mark.parametrize("verb", ["ingest", "upsert"])
    def test_two_runs_of_a_job_at_once_are_one(self, table, verb):
        """Given another run that commits while this one writes, this one tells of its commit."""
        read_at = table.refresh()
        url = table._context.url

        def overtaken(done, total):
            other = getattr(sleeper.connect(url).table("t"), verb)
            other(rows([3, 4], "mine"), job_id="job", if_unchanged_since=read_at)

        mine = getattr(table, verb)(
            rows([3, 4], "mine"), job_id="job", if_unchanged_since=read_at, progress=overtaken
        )

        assert mine.already_committed
        assert table.count(where="v = 'mine'") == 2

    def test_a_refused_job_may_run_again_by_its_id(self, table):
        """Given a job that was refused, it is committed with the number of a newer answer."""
        read_at = table.refresh()
        table.ingest(rows([50], "theirs"))
        with pytest.raises(RowsChanged):
            table.upsert(rows([3], "mine"), job_id="job", if_unchanged_since=read_at)

        done = table.upsert(rows([3], "mine"), job_id="job", if_unchanged_since=table.refresh())

        assert (done.already_committed, found(table)[3]) == (False, "mine")


@on_one_server
@pytest.mark.parametrize("store", STATE_STORES)
@pytest.mark.parametrize("count", [1, 1_500])
def test_of_two_writers_exactly_one_wins_in_every_store(tmp_path, dynamo_environment, store, count):
    """Given two that read the same version and write at once, one is told; no increment is lost."""
    named = {"sleeper.table.statestore.classname": store}
    with sleeper.connect(tmp_path / "instance", create=True) as instance:
        table = filled(instance, properties=named)
        keys = range(count)
        table.upsert(rows(keys, "0"))
        both, done = Barrier(2), []

        def write(name):
            opened = sleeper.connect(tmp_path / "instance").table("t")
            for _ in range(3):
                read = opened.query(key=0)
                number, value = read.transaction, int(read.to_pylist()[0]["v"])
                both.wait(PATIENCE_S)
                with suppress(RowsChanged):
                    while True:  # two that write the same leaf anew may hinder each other
                        try:
                            opened.upsert(rows(keys, str(value + 1)), if_unchanged_since=number)
                        except CommitContended:
                            continue
                        done.append(name)
                        break
                both.wait(PATIENCE_S)

        with ThreadPoolExecutor(2) as pool:
            [*pool.map(write, "ab")]

        assert len(done) == 3
        assert found(table)[0] == "3"
        assert table.count() == {1: 20, 1_500: 1_500}[count]


class TestAsked:
    """What a caller may name."""

    @pytest.mark.parametrize("number", [-1, True, 1.0, "3", [1]])
    def test_a_number_of_a_transaction(self, table, number):
        """Anything else is refused, and nothing is changed."""
        before = table.refresh()

        for verb in VERBS.values():
            with pytest.raises(BadRequest, match="must be the number of a transaction"):
                verb(table, number)

        assert table.refresh() == before

    def test_one_that_there_is(self, table):
        """A transaction of the future was read by nobody."""
        for verb in VERBS.values():
            with pytest.raises(BadRequest, match="transactions so far"):
                verb(table, 10_000)

    def test_one_that_is_kept(self, instance, monkeypatch):
        """Given a version that the store no longer has, what has changed since is not known."""
        table = filled(instance)
        monkeypatch.setattr(type(table._current().store), "state_after", lambda store, n: None)

        for verb in VERBS.values():
            with pytest.raises(VersionNotFound, match="is no longer kept"):
                verb(table, 1)

    def test_none_where_a_committer_commits(self, table):
        """Who sends a commit elsewhere would not be told."""
        with pytest.raises(BadRequest, match="leave out if_unchanged_since"):
            table.ingest(rows([1], "x"), send_commit=print, if_unchanged_since=1)


def test_the_command_line(instance, tmp_path):
    """`sleeper ingest` and `sleeper delete` take the number; a refusal is an error with advice."""
    table, url = filled(instance), instance.url
    read_at = str(table.refresh())
    (tmp_path / "in.csv").write_text("k,v\n3,mine\n")
    given = ("--if-unchanged-since", read_at, "--instance", url)

    done = command("ingest", "t", str(tmp_path / "in.csv"), "--upsert", *given)
    late = command("ingest", "t", str(tmp_path / "in.csv"), *given)
    by_sql = command("sql", "DELETE FROM t WHERE k = 3", *given)
    deleted = command("delete", "t", "--key", "k=3", "--force", *given)

    assert "ingested 1 row" in done.stdout + done.stderr
    for refused in (late, deleted, by_sql):
        assert refused.exit_code == 1
        assert f"has changed since transaction {read_at}" in refused.stderr
    assert found(table)[3] == "mine"


@pytest.mark.parametrize("more", [["SELECT 1"], ["DELETE FROM t WHERE k = 3", "--explain"]])
def test_the_command_line_says_what_it_is_for(instance, more):
    """Given a statement that deletes nothing, the number is refused, and nothing goes."""
    table = filled(instance)

    refused = command("sql", *more, "--if-unchanged-since", "2", "--instance", instance.url)

    assert refused.exit_code in (1, 2)
    assert "for a DELETE" in refused.stderr or "is for DELETE" in refused.stderr
    assert len(found(table)) == 20


def test_a_statement_that_reads_relies_on_nothing(instance):
    """By table, by instance, and by a server, also in a statement that is read by a process."""
    filled(instance)
    reads = "SELECT k FROM t"
    for ask in (instance.sql, instance.table("t").sql):
        with pytest.raises(BadRequest, match="if_unchanged_since is for DELETE"):
            ask(reads, if_unchanged_since=2)
    with running_server(make_app(sleeper.connect(instance.url))) as url:
        remote = sleeper.connect(url)
        for ask in (remote.sql, remote.table("t").sql):
            for text in (reads, f"{reads} -- {'long ' * 20_000}"):
                with pytest.raises(BadRequest, match="if_unchanged_since is for DELETE"):
                    ask(text, if_unchanged_since=2)


def test_a_change_between_the_plan_and_the_commit_is_seen(instance, monkeypatch):
    """Given others who commit after a DELETE was planned, then it is refused, and rows stay."""
    table = filled(instance)
    read_at = table.refresh()
    plan = statement._regions

    def planned(version, where):
        regions = plan(version, where)
        CHANGES["an upsert"](sleeper.connect(instance.url).table("t"))
        return regions

    monkeypatch.setattr(statement, "_regions", planned)

    with pytest.raises(RowsChanged):
        table.sql("DELETE FROM t WHERE k BETWEEN 2 AND 7", if_unchanged_since=read_at)

    assert found(table) == {**dict.fromkeys([*range(10), *range(100, 110)], "old"), 5: "theirs"}


def test_a_server_and_its_client(instance):
    """By REST it is a parameter of the path; a refusal is answered by 409, and told the client."""
    table = filled(instance)
    read_at = table.refresh()
    with running_server(make_app(sleeper.connect(instance.url))) as url:
        remote = sleeper.connect(url).table("t")
        remote.upsert(rows([3], "mine"), if_unchanged_since=read_at)
        for name in ("ingest", "upsert", "upsert of many", "delete where", *BY_SQL):
            verb = VERBS[name]
            with pytest.raises(RowsChanged, match="Read the rows again") as refused:
                verb(remote, read_at)
            assert refused.value.since == read_at
            with pytest.raises(BadRequest, match="must be the number of a transaction"):
                verb(remote, "3")
        path = f"{url}/sleeper/tables/t"
        late = {"if_unchanged_since": read_at}
        answers = [
            httpx.post(
                f"{path}/rows", params=late, content=b"k,v\n1,x\n", headers=CSV, timeout=PATIENCE_S
            ),
            httpx.post(f"{path}/delete", params=late, json={"key": 3}, timeout=PATIENCE_S),
        ]
        wrong = httpx.post(
            f"{path}/delete",
            params={"if_unchanged_since": "x"},
            json={"key": 3},
            timeout=PATIENCE_S,
        )
        one = "DELETE FROM t WHERE k = 3"
        with pytest.raises(RowsChanged):
            sleeper.connect(url).sql(one, if_unchanged_since=read_at)
        newest = remote.refresh()
        done = sleeper.connect(url).sql(one, if_unchanged_since=newest)
        assert (done.to_pylist(), done.transaction) == ([{"deleted": 1}], newest + 1)

    assert [each.status_code for each in answers] == [409, 409]
    assert {json.loads(each.content)["class"] for each in answers} == {"RowsChanged"}
    assert wrong.status_code == 400
    assert table.query(key=3).count() == 0


CSV = {"Content-Type": "text/csv"}
