"""Things go wrong around a table: storage, damage, others at work. Nothing is lost in silence."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import sleeper
from sleeper.errors import DataDamaged, FormatTooNew, InstanceNotFound, TableNotFound, UrlInvalid

SCHEMA = pa.schema([pa.field("id", pa.string()), pa.field("n", pa.int64(), nullable=False)])
ROWS = [{"id": key, "n": n} for n, key in enumerate("abcdefghijklmnopqrstuvwxyz")]


@pytest.fixture
def instance(tmp_path):
    return sleeper.connect(tmp_path / "instance", create=True)


@pytest.fixture
def table(instance):
    """26 rows in two leaves; no file is in any cache yet."""
    made = instance.create_table("letters", SCHEMA, row_keys=["id"], split_points=["m"])
    made.ingest(ROWS)
    return made


def folder_of(table: sleeper.Table) -> Path:
    return table._context.objects.root / table.table_id


def file_of(table: sleeper.Table, key: str) -> Path:
    """The data file that holds a key."""
    leaf = table.state().tree.leaf_of((key,))
    (reference,) = table.state().files.references_on(leaf.partition_id)
    return folder_of(table) / reference.filename


def flip(path: Path, where: float) -> None:
    """Change one byte."""
    body = bytearray(path.read_bytes())
    body[int(len(body) * where)] ^= 0x55
    path.write_bytes(body)


def answer_of(ask):
    """The rows of an answer, or what was said of the damage."""
    try:
        return ask()
    except DataDamaged as error:
        return str(error)


class TestDamagedData:
    """Data files that are not as they were written."""

    @pytest.mark.parametrize("where", [0.02, 0.5, 0.97])
    @pytest.mark.parametrize("opened_before", [True, False])
    def test_damage_is_told_and_stays_where_it_is(self, table, where, opened_before):
        """The file is named whatever the question; keys in other files are found."""
        damaged = file_of(table, "b")
        if opened_before:
            table.query(key="z").to_arrow()
        flip(damaged, where)

        questions = [
            lambda: table.query(key="b").to_pylist(),
            lambda: table.query(keys=["b", "z"]).to_pylist(),
            lambda: table.query(range={"id": ("a", "c")}).to_pylist(),
            lambda: table.query().to_pylist(),
        ]
        answers = [answer_of(ask) for ask in questions]
        for answer in answers:
            if isinstance(answer, str):
                assert damaged.name in answer
            else:  # the changed byte was not needed for this answer
                assert answer == [row for row in ROWS if row in answer]
                assert {"id": "b", "n": 1} in answer
        assert where < 0.1 or any(isinstance(answer, str) for answer in answers)
        assert table.query(key="z").to_pylist() == [{"id": "z", "n": 25}]

    @pytest.mark.parametrize("opened_before", [True, False])
    def test_a_missing_file_is_told(self, table, opened_before):
        """By keys and by ranges; what to do is said; other keys are found."""
        if opened_before:
            table.query(key="b").to_arrow()
            table.query(range={"id": ("a", "c")}).to_arrow()
        missing = file_of(table, "b")
        missing.unlink()

        for asked in ({"key": "b"}, {"keys": ["a", "b"]}, {"range": {"id": ("a", "c")}}, {}):
            with pytest.raises(DataDamaged, match=r"restore|ingest its rows again") as caught:
                table.query(**asked).to_pylist()
            assert missing.name in str(caught.value)
        assert table.query(key="z").to_pylist() == [{"id": "z", "n": 25}]
        assert table.query(range={"id": ("m", None)}).to_arrow().num_rows == 14

    def test_a_table_with_damage_still_takes_rows(self, table):
        """Ingest reads no data file, so it goes on."""
        flip(file_of(table, "b"), 0.5)

        table.ingest([{"id": "zz", "n": 1}])

        assert table.query(key="zz").to_pylist() == [{"id": "zz", "n": 1}]


class TestDamagedLog:
    """The table's truth itself."""

    def entry(self, table: sleeper.Table, number: int) -> Path:
        return folder_of(table) / f"statestore/transactions/{number:020d}.json"

    @pytest.mark.parametrize("body", [b"", b"{", b'{"format": 1}', b"\xff\xfe"])
    def test_a_damaged_entry_is_named(self, instance, table, body):
        """A table is not opened on half its truth, nor written to."""
        entry = self.entry(table, 2)
        entry.write_bytes(body)
        opened = instance.table("letters")

        for call in (
            lambda: opened.query(key="a"),
            lambda: opened.ingest(ROWS),
            opened.state,
            opened.reinitialise,
        ):
            with pytest.raises(DataDamaged, match=r"2|entry|transaction"):
                call()
        assert not self.entry(table, 3).exists()
        assert entry.read_bytes() == body

    def test_other_tables_are_not_concerned(self, instance, table):
        """Damage in one table's log is damage of one table."""
        other = instance.create_table("other", SCHEMA, row_keys=["id"])
        self.entry(table, 1).write_bytes(b"damaged")

        other.ingest(ROWS)

        assert sleeper.connect(instance.url).table("other").query().to_pylist() == ROWS

    def test_an_entry_of_a_newer_sleeper(self, instance, table):
        """What this version cannot understand it does not guess (spec: format version)."""
        document = json.loads(self.entry(table, 2).read_bytes().partition(b"\n")[0])
        document["format"] = 99
        self.entry(table, 2).write_text(json.dumps(document))

        with pytest.raises(FormatTooNew, match="Upgrade Sleeper"):
            instance.table("letters").query(key="a")

    def test_an_instance_of_a_newer_sleeper(self, instance):
        """The whole instance may be newer."""
        properties = Path(instance.url) / "instance.properties"
        text = properties.read_text()
        properties.write_text(text.replace("sleeper.format.version=1", "sleeper.format.version=2"))

        with pytest.raises(FormatTooNew, match="has format 2"):
            sleeper.connect(instance.url)

    def test_a_damaged_table_index_is_named(self, instance, table):
        """Which tables there are cannot be guessed either."""
        (entry,) = Path(instance.url, "tables/index").iterdir()
        entry.write_bytes(b"{")

        with pytest.raises(DataDamaged, match=entry.name):
            sleeper.connect(instance.url).tables()


class TestOthersAtWork:
    """A handle is open while others change things."""

    def test_a_table_deleted_under_an_open_handle(self, instance, table):
        """Every use says that it was deleted; nothing is written where it was."""
        fresh = instance.table("letters")
        table.query(key="a").to_arrow()
        sleeper.connect(instance.url).delete_table("letters")

        for handle in (table, fresh):
            for use in (
                lambda handle: handle.query(key="a"),
                lambda handle: handle.query(),
                lambda handle: handle.query(as_of=1),
                lambda handle: handle.ingest(ROWS),
                lambda handle: handle.state(),
                lambda handle: handle.refresh(),
                lambda handle: handle.reinitialise(),
                lambda handle: handle.report_files(),
                lambda handle: handle.rename("other"),
                lambda handle: handle.set_properties({"sleeper.table.gc.delay.minutes": "1"}),
            ):
                with pytest.raises(TableNotFound, match="deleted"):
                    use(handle)
        assert not folder_of(table).exists()

    def test_a_table_deleted_while_rows_are_on_their_way(self, instance, table):
        """The ingest is told that its rows are gone, and leaves no file behind."""

        def rows():
            yield ROWS[0]
            instance.delete_table("letters")
            yield ROWS[1]

        with pytest.raises(TableNotFound, match="was deleted"):
            table.ingest(rows())

        assert [path for path in folder_of(table).rglob("*") if path.is_file()] == []

    def test_a_table_of_the_same_name_is_another_one(self, instance, table):
        """An open handle does not slide over to a new table."""
        instance.delete_table("letters")
        again = instance.create_table("letters", SCHEMA, row_keys=["id"])

        with pytest.raises(TableNotFound):
            table.ingest(ROWS)

        assert again.query().to_pylist() == []

    def test_a_table_renamed_under_an_open_handle(self, instance, table):
        """The handle goes on: it holds the table, not the name (rule TBL-3)."""
        sleeper.connect(instance.url).table("letters").rename("signs")

        table.ingest([{"id": "zz", "n": 26}])

        assert table.query(key="zz").to_pylist() == [{"id": "zz", "n": 26}]
        assert table.name == "signs"
        assert instance.table("signs").query().to_arrow().num_rows == 27

    def test_changes_of_others_come_with_changes_of_ones_own(self, instance, table):
        """A handle that renames sees properties that somebody else had set meanwhile."""
        other = sleeper.connect(instance.url).table("letters")
        other.set_properties({"sleeper.table.parquet.page.rows": "7"})

        table.rename("signs")

        assert table.properties.parquet.page_rows == 7

    def test_rows_are_seen_by_every_handle_at_once(self, instance, table):
        """Committed is visible: the next query of any handle finds them."""
        other = sleeper.connect(instance.url).table("letters")
        other.query(key="a").to_arrow()

        table.ingest([{"id": "zz", "n": 26}])

        assert other.query(key="zz").to_pylist() == [{"id": "zz", "n": 26}]


class TestPlaces:
    """URLs that lead nowhere."""

    def test_no_instance_there(self, tmp_path):
        """The message says how to make one."""
        with pytest.raises(InstanceNotFound, match="create=True"):
            sleeper.connect(tmp_path / "none")

        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("url", ["gopher://x/y", "", "  "])
    def test_urls_that_are_none(self, url, tmp_path, monkeypatch):
        """The schemes that there are, are named; an empty one is not the working directory."""
        monkeypatch.chdir(tmp_path)

        with pytest.raises(UrlInvalid, match="an instance"):
            sleeper.connect(url, create=True)

        assert list(tmp_path.iterdir()) == []


# What follows needs file systems of its own, made in a namespace that only the child sees.
PRELUDE = """
import os
import sleeper
import pyarrow as pa
from pathlib import Path
import polars as pl
url, SIZE = os.environ["FOLDER"] + "/instance", 300_000
def attempt(call):
    try:
        return call()
    except sleeper.SleeperError as error:
        return f"{type(error).__name__}: {error}"
def many(seed):
    noise = pl.Series(range(SIZE), dtype=pl.UInt64).hash(seed)
    return pl.DataFrame({"id": noise.cast(pl.String), "n": noise.cast(pl.Int64, strict=False).fill_null(0)})
def data_files():
    return sum(path.suffix == ".parquet" for path in Path(url).rglob("*"))
"""


def run_with_mounts(script: str, folder: Path) -> list[str]:
    """Run a shell script that may mount, and its Python; return the lines printed."""
    namespace = ["unshare", "--mount", "--map-root-user"]
    mount = [*namespace, "mount", "-t", "tmpfs", "none", str(folder)]
    if (
        not shutil.which("unshare")
        or subprocess.run(mount, check=False, capture_output=True).returncode
    ):
        pytest.skip("this machine lets nobody mount a file system for a test")
    done = subprocess.run(
        [*namespace, "sh", "-euc", script],
        check=False,
        capture_output=True,
        text=True,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "FOLDER": str(folder),
            "PYTHON": sys.executable,
        },
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


class TestStorageThatRefuses:
    """Full disks and folders that may not be written to."""

    def test_the_instance_is_full(self, tmp_path):
        """Ingest says so; what was there is there, and the half-written files are not."""
        lines = run_with_mounts(
            f"""
            mount -t tmpfs -o size=2m none "$FOLDER"
            "$PYTHON" - <<'END'
{PRELUDE}
table = sleeper.connect(url, create=True).create_table(
    "t", pa.schema([("id", pa.string()), ("n", pa.int64())]), row_keys=["id"], split_points=["5"])
table.ingest([{{"id": "1", "n": 1}}, {{"id": "7", "n": 2}}])
print(data_files())
answer = attempt(lambda: table.ingest(many(1), job_id="j"))
print(answer)
print(data_files(), table.query().to_pylist(), table.state().number)
print(table.ingest([{{"id": "8", "n": 3}}], job_id="j").rows_written)
END
""",
            tmp_path,
        )

        before, answer, after, again = lines
        assert before == "2"
        assert answer.startswith("StorageFull: ")
        assert "Free some space" in answer
        assert after == "2 [{'id': '1', 'n': 1}, {'id': '7', 'n': 2}] 2"
        assert again == "1", "the job id was not used up"

    def test_the_instance_is_full_in_the_middle_of_a_compaction(self, tmp_path):
        """The job fails and frees its files; half an output is not there, and rows are as before."""
        lines = run_with_mounts(
            f"""
            mount -t tmpfs -o size=3m none "$FOLDER"
            "$PYTHON" - <<'END'
{PRELUDE}
table = sleeper.connect(url, create=True).create_table(
    "t", pa.schema([("id", pa.string()), ("n", pa.int64())]), row_keys=["id"])
for seed in (1, 2):
    table.ingest(many(seed).head(SIZE // 4))
rows = table.query().to_arrow()
(job,) = table.compact(all_files=True).jobs
print(type(job.failure).__name__, job.failure)
print(data_files(), table.query().to_arrow() == rows)
print([each.job_id for each in table.references()])
END
""",
            tmp_path,
        )

        answer, after, claims = lines
        assert answer.startswith("StorageFull ")
        assert after == "2 True"
        assert claims == "[None, None]"

    def test_the_temporary_folder_is_full(self, tmp_path):
        """Sorting needs it: the folder is named, and the table is as it was."""
        (tmp_path / "temp").mkdir()
        lines = run_with_mounts(
            f"""
            mount -t tmpfs -o size=1m none "$FOLDER/temp"
            TMPDIR="$FOLDER/temp" "$PYTHON" - <<'END'
{PRELUDE}
table = sleeper.connect(url, create=True).create_table(
    "t", pa.schema([("id", pa.string()), ("n", pa.int64())]), row_keys=["id"],
    properties={{"sleeper.table.ingest.memory": "4M"}})
print(attempt(lambda: table.ingest(many(1))))
print(data_files(), table.query().to_pylist(), table.state().number)
END
""",
            tmp_path,
        )

        answer, after = lines
        assert answer.startswith("StorageFull: ")
        assert f"{tmp_path}/temp" in answer
        assert after == "0 [] 1"

    def test_a_folder_that_may_only_be_read(self, tmp_path):
        """Queries answer; whatever writes is refused, and is not worth trying again."""
        table = sleeper.connect(tmp_path / "instance", create=True).create_table(
            "t", SCHEMA, row_keys=["id"]
        )
        table.ingest(ROWS)
        lines = run_with_mounts(
            f"""
            mount --bind "$FOLDER" "$FOLDER"
            mount -o remount,bind,ro "$FOLDER"
            "$PYTHON" - <<'END'
{PRELUDE}
instance = sleeper.connect(url)
table = instance.table("t")
print(table.query(key="b").to_pylist(), table.query().to_arrow().num_rows)
for call in (
    lambda: table.ingest([{{"id": "zz", "n": 1}}]),
    lambda: table.rename("u"),
    lambda: table.reinitialise(),
    lambda: instance.create_table("u", pa.schema([("id", pa.string())]), row_keys=["id"]),
    lambda: instance.delete_table("t"),
    lambda: sleeper.create_instance(os.environ["FOLDER"] + "/other"),
):
    print(attempt(call))
print(table.query().to_arrow().num_rows, [record.name for record in instance.tables()])
END
""",
            tmp_path,
        )

        assert lines[0] == "[{'id': 'b', 'n': 1}] 26"
        assert [line.split(":")[0] for line in lines[1:-1]] == ["StorageReadOnly"] * 6
        assert lines[-1] == "26 ['t']"
