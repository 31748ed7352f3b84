"""`verify` finds every kind of damage by its name, and nothing where nothing is damaged."""

from __future__ import annotations

import json
import os
import shutil
import struct
import threading
import time
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sleeper
from sleeper.engine.reading.check_file import FileChecker
from sleeper.engine.sketches.stored_sketch import SketchBuilder
from sleeper.errors import TableNotFound
from sleeper.model.files import FileReference
from sleeper.state import log_store, table_index
from sleeper.state.findings import FindingKind
from sleeper.state.transactions.files import AddFiles
from sleeper.tables.verify import verify_files
from tests.unit.interfaces.command_line import json_of
from tests.unit.interfaces.command_line import sleeper as command

SCHEMA = pa.schema([("k", pa.int64()), ("s", pa.string()), ("v", pa.string())])


def rows(*keys):
    return pa.table(
        {"k": [*keys], "s": ["s"] * len(keys), "v": [f"value {key}" for key in keys]},
        schema=SCHEMA,
    )


@pytest.fixture
def instance(tmp_path):
    return sleeper.connect(tmp_path / "instance", create=True)


@pytest.fixture
def table(instance):
    """Two leaves, each with a file of six thousand rows and one of a few."""
    table = instance.create_table("t", SCHEMA, row_keys=["k"], sort_keys=["s"], split_points=[0])
    table.ingest(rows(*range(-6000, 6000)))
    table.ingest(rows(-3, 3))
    return table


@pytest.fixture
def folder(instance, table):
    return Path(instance.url) / table.table_id


def leaves(table):
    return [leaf.partition_id for leaf in table.state().leaf_partitions()]


def data_files(folder):
    """The data files, the largest first."""
    return sorted(folder.glob("data/*/*.parquet"), key=lambda path: -path.stat().st_size)


def flip(path, place):
    body = bytearray(path.read_bytes())
    body[place] ^= 1
    path.write_bytes(body)


def entry(folder, number):
    return folder / f"statestore/transactions/{number:020d}.json"


def add_plain(table, folder, contents, *, leaf=1, whole=True, **told):
    """Commit a Parquet file that pyarrow wrote, and what its reference says of it."""
    partition_id = leaves(table)[leaf]
    filename = f"data/partition_{partition_id}/plain.parquet"
    path = folder / filename
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(contents, path, write_page_index=True)
    reference = FileReference(
        filename=filename,
        partition_id=partition_id,
        row_count=contents.num_rows,
        whole_file=whole,
        size_bytes=path.stat().st_size,
    )
    table._current().store.commit(AddFiles(references=(replace(reference, **told),)))
    return path


def kinds(instance, **asked):
    (summary,) = instance.verify(**asked).tables
    return sorted({str(each.kind) for each in summary.findings})


def flip_a_page(table, folder):
    flip(data_files(folder)[0], 100)


def flip_the_end(table, folder):
    flip(data_files(folder)[0], -40)


def truncate(table, folder):
    path = data_files(folder)[0]
    path.write_bytes(path.read_bytes()[:-1])


def delete(table, folder):
    data_files(folder)[0].unlink()


def swap(table, folder):
    first, *others = data_files(folder)
    second = next(path for path in reversed(others) if path.parent != first.parent)
    between = folder / "between"
    first.rename(between)
    second.rename(first)
    between.rename(second)


def other_columns(table, folder):
    add_plain(table, folder, pa.table({"k": [1], "other": ["a"]}))


def count_of_whole_file(table, folder):
    add_plain(table, folder, rows(1, 2), row_count=3)


def count_of_part(table, folder):
    add_plain(table, folder, rows(-1, 1, 2), whole=False, row_count=3)


def unsorted(table, folder):
    add_plain(table, folder, rows(1, 3, 2))


def unsorted_by_sort_key(table, folder):
    add_plain(table, folder, rows(1, 1).set_column(1, "s", pa.array(["b", "a"])))


def null_key(table, folder):
    add_plain(table, folder, rows(1, None))


def outside_of_leaf(table, folder):
    add_plain(table, folder, rows(-1, 1))


def wrong_first_key(table, folder):
    add_plain(table, folder, rows(1, 2), first_key="[0]", last_key="[2]")


def wrong_last_key(table, folder):
    add_plain(table, folder, rows(1, 2), first_key="[1]", last_key="[3]")


def wrong_bounds(table, folder):
    """The page index and the footer say a greater least key than the page has."""
    path = add_plain(table, folder, rows(0x1122334455667788, 0x1222334455667788))
    body = path.read_bytes()
    key = struct.pack("<q", 0x1122334455667788)
    after = body.index(key) + 8
    wrong = body[after:].replace(key, struct.pack("<q", 0x1122334455667789))
    assert wrong != body[after:]
    path.write_bytes(body[:after] + wrong)


def flip_the_sketch(table, folder):
    path = data_files(folder)[0]
    flip(path, path.read_bytes().rindex(b"SLPRSKT") + 60)


def wrong_sketch(table, folder):
    """Beside a file of another program lies the sketch of other rows."""
    path = add_plain(table, folder, rows(*range(6000)))
    builder = SketchBuilder(table.schema)
    builder.add(rows(*range(6000, 12000)))
    path.with_suffix(".sketches").write_bytes(builder.to_bytes())


def sketch_of_fewer_rows(table, folder):
    path = add_plain(table, folder, rows(*range(6000)))
    builder = SketchBuilder(table.schema)
    builder.add(rows(*range(5999)))
    path.with_suffix(".sketches").write_bytes(builder.to_bytes())


def gap_in_the_log(table, folder):
    entry(folder, 2).unlink()


def garbled_entry(table, folder):
    entry(folder, 2).write_bytes(b"{")


def entry_over_another(table, folder):
    """The rows of transaction 2 are gone, and those of 3 are there twice by the log."""
    entry(folder, 2).write_bytes(entry(folder, 3).read_bytes())


def overlapping_references(table, folder):
    """Both leaves reference the same file as a whole."""
    add_plain(table, folder, rows(1, 2))
    text = json.loads(entry(folder, 4).read_text())
    added = next(each for each in text["transactions"] if "references" in str(each))
    holder = added if "references" in added else next(iter(added.values()))
    other = {**holder["references"][0]}
    name = next(key for key, value in other.items() if value == leaves(table)[1])
    holder["references"].append({**other, name: leaves(table)[0]})
    entry(folder, 4).write_text(json.dumps(text))


def changed_key(table, folder):
    """The first key of a file, in the second line of its entry."""
    table.ingest(rows(4711, 4712))
    path = entry(folder, table.state().number)
    path.write_bytes(path.read_bytes().replace(b"[4711,", b"[4710,"))


def no_log(table, folder):
    shutil.rmtree(folder / "statestore")


def published_log_of_fewer_files(table, folder):
    """Given another program that took a file out of what is published."""
    table.publish("delta")
    log = folder / f"_delta_log/{0:020d}.json"
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:-1]))


DAMAGE = {
    flip_a_page: {"file-damaged"},
    flip_the_end: {"file-damaged"},
    truncate: {"file-size", "file-damaged"},
    delete: {"file-missing"},
    swap: {"key-limits", "row-place", "row-count", "file-size"},
    other_columns: {"schema"},
    count_of_whole_file: {"row-count"},
    count_of_part: {"row-count"},
    unsorted: {"row-order"},
    unsorted_by_sort_key: {"row-order"},
    null_key: {"row-order"},
    outside_of_leaf: {"row-place"},
    wrong_first_key: {"key-limits"},
    wrong_last_key: {"key-limits"},
    wrong_bounds: {"page-index"},
    flip_the_sketch: {"sketch"},
    wrong_sketch: {"sketch"},
    sketch_of_fewer_rows: {"sketch"},
    gap_in_the_log: {"log"},
    garbled_entry: {"log", "state"},
    entry_over_another: {"chain", "log", "state"},
    overlapping_references: {"reference", "row-place"},
    changed_key: {"chain", "key-limits"},
    no_log: {"index"},
    published_log_of_fewer_files: {"publication"},
}
SEEN_QUICKLY = {
    truncate,
    delete,
    other_columns,
    count_of_whole_file,
    gap_in_the_log,
    garbled_entry,
}


@pytest.mark.parametrize("damage", DAMAGE, ids=lambda damage: damage.__name__)
def test_each_kind_of_damage_is_found_and_no_other(instance, table, folder, damage):
    """Given one damage, then its kind is found, with advice, and nothing else."""
    damage(table, folder)

    summary = instance.verify()

    assert kinds(instance) == sorted(DAMAGE[damage])
    assert not summary.clean
    assert all(each.next_step for each in summary.tables[0].findings)


@pytest.mark.parametrize(
    "damage",
    sorted(SEEN_QUICKLY, key=lambda damage: damage.__name__),
    ids=lambda damage: damage.__name__,
)
def test_a_quick_look_finds_what_the_state_and_the_ends_of_files_show(
    instance, table, folder, damage
):
    """Given such damage, then `quick=True` finds it as well."""
    damage(table, folder)

    assert set(kinds(instance, quick=True)) >= DAMAGE[damage] - {"key-limits"}


def test_a_clean_table_has_no_finding(instance, table):
    """Given ingests, a compaction and a split, then what was checked is counted."""
    table.compact(all_files=True)
    table.ingest(rows(7))

    (found,) = instance.verify().tables

    assert found.findings == ()
    assert found.clean
    assert (found.files, found.rows) == (3, 12003)
    assert found.entries == found.transaction == table.refresh()
    assert (found.rest.garbage, found.rest.garbage_due, found.rest.orphans) == (4, 0, 0)


def test_a_file_that_many_leaves_share_is_clean(instance):
    """Given leaves that reference parts of one file, and a file of an ancestor, then all is well."""
    points = [*range(100, 2000, 100)]
    table = instance.create_table(
        "shared",
        SCHEMA,
        row_keys=["k"],
        split_points=points,
        properties={
            "sleeper.table.ingest.file.writing.strategy": "one_reference_per_leaf",
            "sleeper.table.partition.splitting.threshold": 50,
        },
    )
    table.ingest(rows(*range(2000)))
    assert not all(each.whole_file for each in table.references())
    table.split_partitions()

    assert table.verify().findings == ()
    table.compact()
    assert table.verify().findings == ()


@pytest.fixture
def often(monkeypatch):
    """Snapshots of every second entry."""
    rule = log_store.SnapshotRule
    monkeypatch.setattr(log_store, "SnapshotRule", lambda: rule(entries_min=2, entries_max=2))
    monkeypatch.setattr("sleeper.tables.state_stores.SnapshotRule", log_store.SnapshotRule)


def with_snapshots(instance, split_points=None):
    table = instance.create_table("snapped", SCHEMA, row_keys=["k"], split_points=split_points)
    for number in range(6):
        table.ingest(rows(number))
    return table, sorted((Path(instance.url) / table.table_id).glob("statestore/snapshots/*"))


def test_a_snapshot_that_differs_from_the_log_is_found(instance, often):
    """Given a snapshot with the files of another one, then snapshot and state are wrong."""
    table, parts = with_snapshots(instance)
    assert table.verify().snapshots >= 2
    newer = [path for path in parts if path.name.endswith("files.parquet")][-1]
    metadata = pq.read_table(newer)
    pq.write_table(
        metadata.slice(0, metadata.num_rows - 1).replace_schema_metadata(metadata.schema.metadata),
        newer,
    )

    assert kinds(instance) == ["snapshot", "state"]


def test_leaves_that_overlap_are_found(instance, often):
    """Given a snapshot whose leaves overlap, then the tree of the state is wrong."""
    table, parts = with_snapshots(instance, split_points=[3])
    newest = [path for path in parts if path.name.endswith("partitions.parquet")][-1]
    stored = pq.read_table(newest)
    limits = pa.array([text.replace("[3,", "[2,") for text in stored["region"].to_pylist()])
    number = stored.schema.get_field_index("region")
    wrong = stored.set_column(number, stored.schema.field("region"), limits)
    pq.write_table(wrong, newest)

    assert kinds(instance) == ["snapshot", "state", "tree"]
    assert table.name == "snapped"


def test_a_damaged_snapshot_is_found_though_readers_do_without_it(instance, often):
    """Given a snapshot that cannot be read, then readers use the log, and verify reports it."""
    table, parts = with_snapshots(instance)
    newest = [path for path in parts if path.name.endswith("files.parquet")][-1]
    newest.write_bytes(b"no Parquet")

    assert len(sleeper.connect(instance.url).table("snapped").query().to_pylist()) == 6
    assert kinds(instance) == ["snapshot"]
    assert table.name == "snapped"


def test_an_entry_that_a_snapshot_hides_is_found_missing(instance, often):
    """Given a missing entry before a snapshot, then readers notice nothing, and verify does."""
    table, _ = with_snapshots(instance)
    entry(Path(instance.url) / table.table_id, 2).unlink()

    assert len(sleeper.connect(instance.url).table("snapped").query().to_pylist()) == 6
    (found,) = instance.verify().tables
    assert [(str(each.kind), each.entry) for each in found.findings] == [("log", 2)]


def index_faults(instance):
    return [each.what for each in sleeper.connect(instance.url).verify().findings]


def index_of(instance):
    return Path(instance.url) / "tables"


@pytest.mark.parametrize("missing", [2, 3, 4])
def test_a_hole_in_the_log_is_named(instance, table, folder, missing):
    """Given a missing entry, then the finding names it, and what comes after it that none sees."""
    for key in (1, 2, 3):
        table.ingest(rows(key))
    entry(folder, missing).unlink()

    (found,) = sleeper.connect(instance.url).verify(quick=True).tables
    (log,) = [each for each in found.findings if str(each.kind) == "log"]

    assert log.entry == missing
    assert f"entry {missing} of the transaction log is missing, but there is" in log.what
    assert f"{missing + 1:020d}.json" in log.what


def test_an_entry_that_filled_a_hole_is_not_told_as_overwritten_alone(instance, table, folder):
    """Given an entry that is older than the one before it, then a missing one may be the reason."""
    table.downgrade()  # the chain of format 2 tells such entries apart
    for key in (1, 2):
        table.ingest(rows(key))
    third, fourth = entry(folder, 5), entry(folder, 6)
    body, later = third.read_bytes(), fourth.read_bytes()
    third.write_bytes(later)
    fourth.write_bytes(body)

    (found,) = sleeper.connect(instance.url).verify(quick=True).tables

    (log,) = [each for each in found.findings if str(each.kind) == "log"]
    assert "or the one before was missing when it was written" in log.what


@pytest.mark.parametrize("missing", [1, 2, 4])
def test_a_hole_in_the_table_index_is_named(instance, table, missing):
    """Given a missing entry, then the finding names it, and the one after it that none sees."""
    for number in range(4):
        table.rename(f"t{number}")
    (index_of(instance) / f"index/{missing:020d}.json").unlink()

    (fault,) = index_faults(instance)

    assert f"tables/index/{missing:020d}.json is missing, but there is" in fault
    assert f"tables/index/{missing + 1:020d}.json" in fault


def test_a_gap_in_the_table_index_is_found(instance, table):
    """Given a checkpoint after an entry that is missing, then readers see nothing, and verify does."""
    for number in range(table_index.ENTRIES_PER_CHECKPOINT):
        table.rename(f"t{number}")
    assert index_faults(instance) == []
    (index_of(instance) / f"index/{3:020d}.json").unlink()

    assert len(sleeper.connect(instance.url).tables()) == 1
    (fault,) = index_faults(instance)
    assert f"{3:020d}.json is missing" in fault
    assert command("verify", instance.url).exit_code == 1


def test_a_checkpoint_of_the_table_index_that_differs_is_found(instance, table):
    """Given a checkpoint with another name, then it differs from the log."""
    for number in range(table_index.ENTRIES_PER_CHECKPOINT):
        table.rename(f"t{number}")
    (checkpoint,) = (index_of(instance) / "checkpoints").glob("*.json")
    text = checkpoint.read_text()
    checkpoint.write_text(text.replace(table.name, "other").replace("t62", "other"))

    assert text != checkpoint.read_text()
    (fault,) = index_faults(instance)
    assert "differs from the log" in fault


def test_a_garbled_table_index_is_a_finding(instance, table):
    """Given an entry that cannot be read, then that is the finding, and no error."""
    (index_of(instance) / f"index/{1:020d}.json").write_bytes(b"{")

    (fault,) = index_faults(instance)
    assert "tables/index/" in fault


def test_orphans_and_garbage_are_counted_and_are_no_faults(instance, table, folder):
    """Given a file that nothing names, then it is reported, and the table is clean."""
    shutil.copy(data_files(folder)[0], data_files(folder)[0].with_name("orphan.parquet"))
    (Path(instance.url) / "0badf00d" / "data").mkdir(parents=True)
    (Path(instance.url) / "0badf00d" / "data" / "left").write_bytes(b"x")

    summary = instance.verify()

    (found,) = summary.tables
    assert summary.clean
    assert (found.rest.orphans, found.rest.orphans_due, found.rest.orphans_newer) == (1, 0, 1)
    assert found.rest.examples[0].endswith("orphan.parquet")
    assert summary.unknown_folders == ("0badf00d",)


def test_the_files_of_a_deleted_last_entry_are_newer_than_the_last_transaction(
    instance, table, folder
):
    """Given no snapshot of it, then nothing else tells that there was an entry (verify.md)."""
    data_files(folder)[-1].with_name("old.parquet").write_bytes(b"")
    os.utime(data_files(folder)[-1], (0, 0))
    entry(folder, 3).unlink()

    (found,) = sleeper.connect(instance.url).verify().tables
    done = command("verify", instance.url)

    assert (found.findings, found.transaction) == ((), 2)
    assert (found.rest.orphans, found.rest.orphans_newer) == (3, 2)
    assert "t: 2 orphans newer than transaction 2: " in done.stdout


def test_a_last_entry_that_a_snapshot_knows_is_found_missing(instance, often):
    """Given a snapshot of the newest transaction, then its entry cannot be gone unseen."""
    table, parts = with_snapshots(instance)
    last = max(int(path.name.partition("-")[0]) for path in parts)
    for number in range(last, table.refresh() + 1):
        entry(Path(instance.url) / table.table_id, number).unlink()

    (found,) = sleeper.connect(instance.url).verify().tables

    assert [(str(each.kind), each.entry) for each in found.findings] == [("log", last)]


def test_writers_and_compactions_beside_it_cause_no_finding(instance, table):
    """Given ingests, compactions, splits and collected garbage meanwhile, then all is clean."""
    stop = threading.Event()

    def work():
        number = 0
        while not stop.is_set():
            number += 1
            table.ingest(rows(*range(-number, number)))
            table.compact(all_files=True)
            table.collect_garbage(force=True)

    writer = threading.Thread(target=work)
    writer.start()
    try:
        ends, found = time.monotonic() + 3, []
        while time.monotonic() < ends or len({each.transaction for each in found}) < 3:
            found += instance.verify().tables
    finally:
        stop.set()
        writer.join()

    assert [fault for each in found for fault in each.findings] == []


def test_a_file_that_was_collected_since_is_no_finding(instance, table):
    """Given a state whose files were compacted and collected since, then they are counted apart."""
    state, store = table.state(), table._current().store
    table.compact(all_files=True)
    table.collect_garbage(force=True)
    checker = FileChecker(table._current().files, table.schema, table.arrow_schema, quick=False)

    found = verify_files(state, store=store, checker=checker, threads=2)

    assert (found.files, found.replaced, found.findings) == (0, 4, ())


def test_a_deleted_table_is_not_found(instance, table):
    """Given a table that was deleted, then its handle says so, and the instance goes on."""
    instance.delete_table("t")

    with pytest.raises(TableNotFound):
        table.verify()
    with pytest.raises(TableNotFound):
        instance.verify(["t"])
    assert instance.verify().tables == ()


def test_progress_is_told(instance, table):
    """Given a function for progress, then it gets the table, what is done, and of how much."""
    told = []

    instance.verify(progress=lambda *each: told.append(each))

    assert told[0] == ("t", 1, 3)
    assert told[-1] == ("t", 4, 4)


def test_the_command_says_what_is_wrong_and_ends_with_1(instance, table, folder):
    """Given no fault and then one, then the exit code is 0 and then 1, also with --json."""
    clean = command("verify", "t", "--instance", instance.url)
    document = json_of(command("verify", "--json", env={"SLEEPER_INSTANCE": instance.url}))
    delete(table, folder)
    broken = command("verify", instance.url)
    as_json = command("verify", instance.url, "--quick", "--json")

    assert clean.exit_code == 0
    assert "0 findings in 1 table" in clean.output
    assert document["tables"][0]["findings"] == []
    assert broken.exit_code == as_json.exit_code == 1
    assert "t: file-missing: data file" in broken.output
    assert "Restore the file from a copy" in broken.output
    (found,) = json.loads(as_json.stdout)["tables"][0]["findings"]
    assert found["kind"] == "file-missing"


@pytest.mark.usefixtures("table")
def test_the_command_takes_an_instance_or_tables(instance):
    """Given SLEEPER_INSTANCE, then an argument without a slash is a table, and others an instance."""
    here = {"SLEEPER_INSTANCE": instance.url}

    assert "in 1 table" in command("verify", "t", env=here).output
    assert "in 1 table" in command("verify", instance.url, env={"SLEEPER_INSTANCE": "/no"}).output
    assert "no table 'u'" in command("verify", "u", env=here).output
    assert "no Sleeper instance" in command("verify", "./u", env=here).output
    assert command("verify").exit_code == 2
    assert command("verify", "t", "u").exit_code == 2


def test_every_kind_is_made_by_a_test():
    """Given the kinds of findings, then a test of this file or of the stores makes each."""
    made = set().union(*DAMAGE.values())

    assert {str(kind) for kind in FindingKind} - made == {"snapshot", "tree"}
