"""Row keys are purged: nothing that an instance stores has them any more, and a proof says so
(rule DEL-4)."""

from __future__ import annotations

import contextlib
import json
import random
import zlib

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sleeper
from sleeper.errors import BadRequest, CommitContended, QueryInvalid, VersionNotFound
from sleeper.interfaces.rest.app import make_app
from sleeper.model.authors import committing
from sleeper.model.jobs.kinds import QueueName
from sleeper.model.jobs.messages import NewMessage
from sleeper.tables.compact import compact
from sleeper.tables.purges import files as purge_files
from sleeper.tables.purges import purge as purging
from sleeper.tables.purges.records import PURGES
from tests.stories.test_newest_copy import World
from tests.unit.interfaces.command_line import sleeper as command
from tests.unit.interfaces.rest.running_server import running_server

SCHEMA = pa.schema([("email", pa.string()), ("n", pa.int64()), ("notes", pa.list_(pa.string()))])
ODD = (
    "nul\0in.the.middle",
    "😀 beyond the plane",
    'quote " and \\ slash',
    "zürich.straße",
    "\t" * 9,
)


def addresses(count, seed=1):
    """Keys as people have them, some of which are hard to write down."""
    drawn = random.Random(seed)
    names = {f"{drawn.randrange(16**8):08x}.{n:05}@mail{n % 7}.example" for n in range(count)}
    return sorted({*names, *ODD})


def rows_of(keys):
    return pa.table(
        {"email": keys, "n": range(len(keys)), "notes": [["a", "b"]] * len(keys)}, schema=SCHEMA
    )


def new_table(folder, *, row_keys=("email",), schema=SCHEMA, **options):
    instance = sleeper.connect(folder / "instance", create=True)
    return instance.create_table("people", schema, row_keys=[*row_keys], **options)


# ---------------------------------------------------------------- a search of the test's own


def every_form(body):
    """The bytes of an object, and what they are decoded or decompressed to."""
    yield body
    if body[:4] == b"PAR1":
        for column in pq.read_table(pa.BufferReader(body)).columns:
            yield json.dumps(column.to_pylist(), default=_plain, ensure_ascii=False).encode()
    with contextlib.suppress(zlib.error):
        yield zlib.decompress(body)
    place = body.find(b"\x28\xb5\x2f\xfd")  # frames of zstd: pages, and bodies of sketches
    while place >= 0:
        with contextlib.suppress(OSError):
            yield pa.CompressedInputStream(pa.BufferReader(body[place:]), "zstd").read(1 << 24)
        place = body.find(b"\x28\xb5\x2f\xfd", place + 1)


def _plain(value):
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


def places_of(keys, folder):
    """Which files below a folder have one of some texts, in any of its forms."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return places_in(
        keys, ((path.relative_to(folder).as_posix(), path.read_bytes()) for path in files)
    )


def places_in(keys, stored):
    """Which of some objects have one of some texts, in any of its forms."""
    forms = {key.encode() for key in keys}
    forms |= {json.dumps(key)[1:-1].encode() for key in keys}
    forms |= {json.dumps(key, ensure_ascii=False)[1:-1].encode() for key in keys}
    found = set()
    for name, whole in stored:
        if any(form in body for body in every_form(whole) for form in forms):
            found.add(name)
    return found


def split_at(table, key):
    """A table is split at a key by itself where that is its median."""
    table.set_properties({"sleeper.table.partition.splitting.threshold": "500"})
    table.split_partitions()
    return key in table.split_points()


# ---------------------------------------------------------------- stories


class TestPurgedKeys:
    """What is left of them, and of all else."""

    def test_are_nowhere_in_the_instance(self, tmp_path):
        """Given a thousand people in splits, hidden rows, orphans and results, none is found."""
        keys = addresses(6_000)
        drawn = random.Random(2)
        splits = drawn.sample(keys, 9)
        purged = sorted({*drawn.sample(keys, 986), *splits[:5], *ODD})
        table = new_table(
            tmp_path,
            split_points=sorted(splits),
            properties={"sleeper.table.versions.kept.minutes": "60"},
        )
        for part in range(4):
            table.ingest(rows_of(keys[part::4]))
        table.delete(keys=purged[:50])  # hidden, and its request names them
        table.compact()
        table.ingest(rows_of(purged[:20]))
        before = table.refresh()
        folder = tmp_path / "instance"
        orphan = folder / table.table_id / "data" / "partition_x" / "left-behind.parquet"
        orphan.parent.mkdir()
        pq.write_table(rows_of(purged[:3]), orphan)
        result = folder / "query_results" / "query-1" / "rows.parquet"
        result.parent.mkdir(parents=True)
        pq.write_table(rows_of([keys[0], purged[7]]), result)
        export = folder / "bulk_export" / table.table_id / "export-1" / "rows.csv"
        export.parent.mkdir(parents=True)
        export.write_text(f"email,n\n{purged[8]},1\n")
        assert len(places_of(purged, folder)) > 10
        stays = [key for key in keys if key not in {*purged}]
        wanted = table.query(keys=stays).to_arrow()

        proof = table.purge(keys=purged, reason="ticket 4711")

        assert proof.finished, proof.findings
        assert places_of(purged, folder) == set()
        assert table.query().to_arrow().equals(wanted)
        assert proof.keys == len(purged)
        assert proof.counts["resultsDeleted"] == 2
        assert proof.counts["orphansDeleted"] == 1
        assert proof.counts["limitsReplaced"] == len({*splits} & {*purged}) >= 5
        assert len(table.split_points()) == len(splits)
        with pytest.raises(VersionNotFound, match="rows were purged"):
            table.query(as_of=before).to_arrow()
        assert {"data files", "entries of the log", "states"} <= {s.kind for s in proof.searched}

    def test_leave_a_table_that_goes_on(self, tmp_path):
        """Given a purge, when rows are added, leaves split and files compacted, all checks pass."""
        keys = addresses(3_000)
        table = new_table(tmp_path, split_points=[keys[1_500]])
        table.ingest(rows_of(keys))
        split_at(table, keys[0])
        purged = [*table.split_points(), *keys[:100]]

        assert table.purge(keys=purged).finished

        again = sleeper.connect(tmp_path / "instance").table("people")
        left = len({*keys} - {*purged})
        assert again.count() == left
        assert again.query(as_of=table.purges()[0].versions_before).count() == left
        again.ingest(rows_of([f"new.{n}@mail.example" for n in range(700)]))
        again.split_partitions()
        again.compact(all_files=True)
        again.collect_garbage(force=True)
        again.sweep_orphans(force=True)
        assert table.count() == again.count() == left + 700
        for each in (table, again):
            assert each.verify().findings == ()
            assert each.verify(chain=True).findings == ()
        kinds = {kind for entry in again.history() for kind in entry.kinds}
        assert "keys of purged rows removed" in kinds

    def test_go_with_rows_that_an_unfinished_split_shares(self, tmp_path):
        """Given a file of which a leaf has let go in part, its other rows are written anew too."""
        keys = addresses(2_000)
        table = new_table(tmp_path)
        table.ingest(rows_of(keys))
        split_at(table, keys[0])
        (first, *_) = table.split_points()
        table.ingest(rows_of([key for key in keys if key < first][:50]))
        table.compact()
        purged = [*table.split_points(), *keys[::40]]

        assert table.purge(keys=purged).finished

        assert places_of(purged, tmp_path / "instance") == set()
        assert {row["email"] for row in table.query(columns=["email"]).to_pylist()} == {*keys} - {
            *purged
        }
        assert table.verify().findings == ()

    def test_go_with_files_that_are_kept_for_the_keys_of_an_upsert(self, tmp_path):
        """Given new files that were merged with later ones, old files without the keys are written anew,
        so that the new ones go.
        """
        keys = addresses(4_000)
        table = new_table(tmp_path, split_points=[keys[2_000]])
        table.ingest(rows_of(keys[::2]))
        old = {each.filename for each in table.references()}
        table.upsert(rows_of(keys))
        table.ingest(rows_of([keys[0], keys[-1]]))
        compact(table._current(), all_files=True, only=lambda each: each.filename not in old)
        kept = {*table.state().key_files()}
        assert kept
        assert kept.isdisjoint({each.filename for each in table.references()})
        purged = keys[1::40]

        assert table.purge(keys=purged).finished

        assert places_of(purged, tmp_path / "instance") == set()
        found = [row["email"] for row in table.query(columns=["email"]).to_pylist()]
        assert found == sorted([*({*keys} - {*purged}), *({keys[0], keys[-1]} - {*purged})])
        assert table.verify().findings == ()

    def test_may_be_all_that_the_table_has(self, tmp_path):
        """Given an empty table afterwards, its partitions and checks are whole."""
        keys = addresses(100)
        table = new_table(tmp_path, split_points=[keys[20], keys[60]])
        table.ingest(rows_of(keys))

        assert table.purge(keys=keys).finished

        assert places_of(keys, tmp_path / "instance") == set()
        assert table.count() == 0
        assert table.split_points() == []
        table.ingest(rows_of(["someone.else@mail.example"]))
        assert table.count() == 1
        assert table.verify().findings == ()

    def test_in_a_bucket_go_from_the_copy_of_a_new_state(self):
        """Given a bucket, where each commit may leave a copy of the state, other processes go on.

        Versions of objects that are not current are told as out of reach.
        """
        world = World()
        instance = world.process()
        keys = addresses(300)
        table = instance.create_table("people", SCHEMA, row_keys=["email"], split_points=[keys[9]])
        table.ingest(rows_of(keys))
        other = world.process().table("people")
        assert other.count() == len(keys)

        proof = table.purge(keys=keys[:100])

        stored = world.objects._inner._bodies.by_key
        assert proof.finished, proof.findings
        assert places_in(keys[:100], ((key, body) for key, (body, _) in stored.items())) == set()
        assert any("not current" in each for each in proof.out_of_reach)
        for each in (other, world.process().table("people")):
            each.ingest(rows_of(["new@mail.example"]))
        assert other.count() == table.count() == len(keys) - 98
        assert table.verify().findings == ()

    def test_that_are_too_old_to_be_seen_go_as_well(self, tmp_path):
        """Given rows that a filter hides, their bytes are found, and gone afterwards."""
        schema = pa.schema([("email", pa.string()), pa.field("at", pa.int64(), nullable=False)])
        table = new_table(
            tmp_path,
            schema=schema,
            properties={"sleeper.table.filters": "ageOff(at,3600000)"},
        )
        old = [{"email": key, "at": 1} for key in addresses(20)]
        table.set_properties({"sleeper.table.filters": None})
        table.ingest(old)
        table.set_properties({"sleeper.table.filters": "ageOff(at,3600000)"})
        assert table.count() == 0

        proof = table.purge(keys=addresses(20)[:5])

        assert proof.counts["rowsRemoved"] == 5
        assert places_of(addresses(20)[:5], tmp_path / "instance") == set()

    def test_of_numbers_and_bytes_go_as_well(self, tmp_path):
        """Given keys of other types, their rows and limits go, and the log does not name them."""
        schema = pa.schema([("id", pa.int64()), ("blob", pa.binary()), ("v", pa.string())])
        for row_keys in (["id"], ["blob"], ["blob", "id"]):
            table = new_table(tmp_path / "-".join(row_keys), row_keys=row_keys, schema=schema)
            rows = [{"id": n, "blob": b"\xff\0key%04d" % n, "v": "x"} for n in range(1_200)]
            table.ingest(rows[::2])
            table.ingest(rows[1::2])
            split_at(table, None)
            points = {*table.split_points()}
            purged = [row for row in rows if row["id"] % 7 == 0 or row[row_keys[0]] in points]
            keys = [tuple(row[name] for name in row_keys) for row in purged]
            if len(row_keys) == 1:
                keys = [key for (key,) in keys]
            wanted = [row for row in rows if row not in purged]

            proof = table.purge(keys=keys)

            assert proof.finished, proof.findings
            assert points.isdisjoint(table.split_points())
            assert sorted(table.query().to_pylist(), key=lambda row: row["id"]) == wanted
            assert table.verify().findings == ()

    def test_of_tables_with_sums_leave_other_sums_as_they_are(self, tmp_path):
        """Given parts of sums in several files, those of other keys are united, and no more."""
        schema = pa.schema([("page", pa.string()), pa.field("hits", pa.int64(), nullable=False)])
        table = new_table(
            tmp_path,
            schema=schema,
            row_keys=["page"],
            properties={"sleeper.table.aggregations": "sum(hits)"},
        )
        pages = [f"page-number-{n:03}" for n in range(300)]
        for _ in range(3):
            table.ingest([{"page": page, "hits": 2} for page in pages])

        assert table.purge(keys=pages[::3]).finished

        wanted = [{"page": page, "hits": 6} for n, page in enumerate(pages) if n % 3]
        assert table.query().to_pylist() == wanted

    def test_that_other_rows_name_are_told_and_stay_there(self, tmp_path):
        """Given a key in another person's notes, the proof names the column, and is finished."""
        table = new_table(tmp_path)
        table.ingest([{"email": "ann@mail.example", "n": 1, "notes": ["none"]}])
        table.ingest([{"email": "bob@mail.example", "n": 2, "notes": ["ann@mail.example"]}])

        proof = table.purge(keys=["ann@mail.example"])

        assert proof.finished
        assert [(each.column, each.rows) for each in proof.mentions] == [("notes", 1)]
        assert table.query(columns=["email"]).to_pylist() == [{"email": "bob@mail.example"}]

    def test_are_not_found_in_longer_keys_that_stay(self, tmp_path):
        """Given keys that begin or end like a purged one, they are other people's."""
        table = new_table(tmp_path)
        others = ["ann@mail.example.org", "joann@mail.example", "ann@mail.examples"]
        table.ingest(rows_of(sorted([*others, "ann@mail.example"])))

        proof = table.purge(keys=["ann@mail.example"])

        assert proof.finished, proof.findings
        assert table.count() == 3


class TestJobsThatNameThem:
    """Messages and events of the instance."""

    def test_go_where_nobody_wants_them_any_more(self, tmp_path):
        """Given a message that was handled and a dead letter, neither is in the file of jobs."""
        table = new_table(tmp_path)
        table.ingest(rows_of(["ann@mail.example", "bob@mail.example"]))
        instance = sleeper.connect(tmp_path / "instance")
        for name in (QueueName.QUERY, QueueName.INGEST):
            queue = instance.jobs.stores.queue(name)
            body = json.dumps({"tableName": "people", "key": "ann@mail.example"})
            queue.send([NewMessage(body=body), NewMessage(body=body)])
            handled, dead = queue.receive(2)
            queue.delete([handled.receipt])
            queue.bury(dead.receipt, "no such thing")

        proof = table.purge(keys=["ann@mail.example"])

        assert proof.finished, proof.findings
        assert proof.counts["deadLettersDeleted"] == 2
        assert places_of(["ann@mail.example"], tmp_path / "instance") == set()

    def test_are_told_where_somebody_waits_for_them(self, tmp_path):
        """Given a message that waits, the purge is not finished until it was handled."""
        table = new_table(tmp_path)
        instance = sleeper.connect(tmp_path / "instance")
        queue = instance.jobs.stores.queue(QueueName.QUERY)
        queue.send([NewMessage(body='{"tableName": "people", "key": "ann@mail.example"}')])

        waiting = table.purge(keys=["ann@mail.example"])
        (message,) = queue.receive(1)
        queue.delete([message.receipt])

        assert not waiting.finished
        assert {each.where for each in waiting.findings} <= {
            "services/jobs.sqlite",
            "services/jobs.sqlite-wal",
        }
        assert table.purge(keys=["ann@mail.example"]).finished


class TestAPurge:
    """How it is asked for, goes on and is told."""

    def test_that_is_killed_goes_on_when_it_is_repeated(self, tmp_path, monkeypatch):
        """Given a process that died after the rows were gone, the same request ends that purge."""
        table = new_table(tmp_path)
        table.ingest(rows_of(addresses(200)))
        purged = addresses(200)[:50]
        with monkeypatch.context() as patched:
            patched.setattr(purging, "end_versions", _killed)
            with pytest.raises(KeyboardInterrupt):
                table.purge(keys=purged)
        (begun,) = table.purges()
        assert not begun.finished
        assert begun.steps == ("rows written out of files and partitions", "files deleted")

        done = table.purge(keys=list(reversed(purged)))

        assert done.purge_id == begun.purge_id
        assert done.finished
        assert done.counts["rowsRemoved"] == 50
        assert places_of(purged, tmp_path / "instance") == set()

    def test_that_is_repeated_finds_nothing(self, tmp_path):
        """Given a purge that was finished, the same keys make another one, which removes none."""
        table = new_table(tmp_path)
        table.ingest(rows_of(addresses(20)))
        first = table.purge(keys=addresses(20)[:5])
        number = table.refresh()

        second = table.purge(keys=addresses(20)[:5])

        assert second.purge_id != first.purge_id
        assert second.finished
        assert not second.counts
        assert table.refresh() == number
        assert [each.purge_id for each in table.purges()] == [second.purge_id, first.purge_id]

    def test_keeps_no_key_and_a_digest_of_all_together(self, tmp_path):
        """Given a proof, whoever has the keys can tell that they are those; nobody else can."""
        table = new_table(tmp_path)
        table.ingest(rows_of(addresses(20)))

        proof = table.purge(keys=addresses(20)[:5], reason="ticket 1")

        (path,) = (tmp_path / "instance" / table.table_id / PURGES).iterdir()
        assert json.loads(path.read_text()) == proof.to_json()
        assert proof.reason == "ticket 1"
        assert table.history(1)[0].reasons == ("ticket 1",)

    @pytest.mark.parametrize("how", ["ingested", "upserted"])
    def test_removes_rows_that_are_added_while_it_runs(self, tmp_path, monkeypatch, how):
        """Given others who add purged and other keys meanwhile, the former go, the latter stay."""
        table = new_table(tmp_path, split_points=["m"])
        keys = addresses(300)
        table.ingest(rows_of(keys))
        other = sleeper.connect(tmp_path / "instance").table("people")
        write_out, calls = purge_files.write_out, []

        def overtaken(*args, **options):
            done = write_out(*args, **options)
            if len(calls) < 2:
                calls.append(1)
                added = rows_of([keys[0], f"new.{len(calls)}@mail.example"])
                other.ingest(added) if how == "ingested" else other.upsert(added)
            return done

        monkeypatch.setattr(purge_files, "write_out", overtaken)

        assert table.purge(keys=keys[:100]).finished

        assert other.count() == len(keys) - 100 + 2
        assert places_of(keys[:100], tmp_path / "instance") == set()

    def test_that_others_always_overtake_is_told(self, tmp_path, monkeypatch):
        """Given somebody who adds a purged key again and again, it ends, and is not finished."""
        table = new_table(tmp_path)
        table.ingest(rows_of(["ann@mail.example"]))
        other = sleeper.connect(tmp_path / "instance").table("people")
        write_out = purge_files.write_out

        def overtaken(*args, **options):
            done = write_out(*args, **options)
            other.ingest(rows_of(["ann@mail.example"]))
            return done

        monkeypatch.setattr(purge_files, "write_out", overtaken)

        with pytest.raises(CommitContended, match="Stop who adds them"):
            table.purge(keys=["ann@mail.example"])

        assert not table.purges()[0].finished

    def test_with_a_trace_that_it_cannot_remove_is_not_finished(self, tmp_path):
        """Given an object of somebody else in the table's folder, the proof names it."""
        table = new_table(tmp_path)
        table.ingest(rows_of(["ann@mail.example", "bob@mail.example"]))
        note = tmp_path / "instance" / table.table_id / "notes.txt"
        note.write_text("to call: ann@mail.example")

        proof = table.purge(keys=["ann@mail.example"])

        assert not proof.finished
        assert [each.where for each in proof.findings] == ["notes.txt"]
        note.unlink()
        again = table.purge(keys=["ann@mail.example"])
        assert again.purge_id == proof.purge_id
        assert again.finished

    def test_of_numbers_is_not_finished_while_an_export_is_a_text(self, tmp_path):
        """Given numbers as keys, nobody can tell them from other numbers in a file of CSV."""
        schema = pa.schema([("id", pa.int64())])
        table = new_table(tmp_path, row_keys=["id"], schema=schema)
        table.ingest([{"id": n} for n in range(1000, 1010)])
        instance = tmp_path / "instance"
        export = instance / "bulk_export" / table.table_id / "export-1" / "rows.csv"
        result = instance / "query_results" / "query-1" / "rows.json"
        for path in (export, result):
            path.parent.mkdir(parents=True)
            path.write_text("1005\n")

        proof = table.purge(keys=[1005])
        export.unlink()
        again = table.purge(keys=[1005])

        assert not proof.finished
        assert [each.where.rpartition("/")[2] for each in proof.findings] == ["rows.csv"]
        assert again.finished
        assert "numbers and short keys in 1 results of queries that are texts" in again.out_of_reach

    def test_takes_a_table_of_keys(self, tmp_path):
        """Given the keys as a column among others, that column is taken."""
        table = new_table(tmp_path)
        table.ingest(rows_of(addresses(20)))

        table.purge(keys=pa.table({"why": ["x"], "email": [addresses(20)[3]]}))

        assert table.count() == len(addresses(20)) - 1

    def test_goes_by_tables_that_are_open_elsewhere(self, tmp_path):
        """Given a process with an old state, it reads on from the new one, and commits after it."""
        table = new_table(tmp_path)
        keys = addresses(100)
        table.ingest(rows_of(keys))
        other = sleeper.connect(tmp_path / "instance").table("people")
        assert other.count() == len(keys)

        table.purge(keys=keys[:10])

        other.ingest(rows_of(["new@mail.example"]))
        assert other.count() == table.count() == len(keys) - 9
        assert table.verify().findings == ()

    def test_goes_by_tables_that_were_opened_in_format_1(self, tmp_path):
        """Given a process whose last entry was emptied since, it takes it for the one it knows."""
        instance = sleeper.connect(tmp_path / "instance", create=True)
        table = instance.create_table("people", SCHEMA, row_keys=["email"])
        table.downgrade()
        keys = addresses(100)
        table.ingest(rows_of(keys))
        other = sleeper.connect(tmp_path / "instance").table("people")
        assert other.count() == len(keys)

        table.upgrade()
        proof = table.purge(keys=[min(keys), keys[50]])

        assert proof.counts["entriesRemoved"] == 1
        other.ingest(rows_of(["new@mail.example"]))
        assert other.count() == table.count() == len(keys) - 1


def _killed(*args, **options):
    raise KeyboardInterrupt


class TestWhatIsRefused:
    """Nothing is changed then."""

    def test_is_a_table_of_format_1(self, tmp_path):
        """Given format 1, the error says how to upgrade."""
        instance = sleeper.connect(tmp_path / "instance", create=True)
        table = instance.create_table("people", SCHEMA, row_keys=["email"])
        table.downgrade()

        with pytest.raises(BadRequest, match="sleeper table upgrade people"):
            table.purge(keys=["ann@mail.example"])

    def test_is_a_table_that_is_published(self, tmp_path):
        """Given a table for readers of Delta, it is not published any more before."""
        table = new_table(tmp_path)
        table.ingest(rows_of(["ann@mail.example"]))
        table.publish("delta")

        with pytest.raises(BadRequest, match="sleeper unpublish people --as delta"):
            table.purge(keys=["ann@mail.example"])

        assert table.count() == 1
        table.unpublish("delta")
        assert table.purge(keys=["ann@mail.example"]).finished

    def test_is_a_reason_that_names_a_key(self, tmp_path):
        """Given the key in the reason, history would keep it."""
        table = new_table(tmp_path)

        with pytest.raises(BadRequest, match="number of a document"):
            table.purge(keys=["ann@mail.example"], reason="ann@mail.example asked us to")

    def test_is_a_user_whose_name_is_a_key(self, tmp_path):
        """Given the key as the one who asks, the proof itself would keep it."""
        table = new_table(tmp_path)

        with committing(by="ann@mail.example"), pytest.raises(BadRequest, match="who asks"):
            table.purge(keys=["ann@mail.example"])

        assert table.purges() == ()

    @pytest.mark.parametrize("keys", [[], [5], [None], "ann@mail.example", [("a", "b")]])
    def test_is_what_are_no_keys(self, tmp_path, keys):
        """Given no list of whole keys, nothing begins."""
        table = new_table(tmp_path)

        with pytest.raises((BadRequest, QueryInvalid)):
            table.purge(keys=keys)

        assert table.purges() == ()


class TestPurgesByCommandAndByRest:
    """The same from a command line and by HTTP."""

    def test_a_command_writes_the_proof_and_says_what_is_left(self, tmp_path, monkeypatch):
        """Given a file of keys, the exit code is 0 once nothing is found, and 1 before."""
        table = new_table(tmp_path)
        table.ingest(rows_of(["ann@mail.example", "bob@mail.example"]))
        note = tmp_path / "instance" / table.table_id / "notes.txt"
        note.write_text("to call: ann@mail.example")
        monkeypatch.setenv("SLEEPER_INSTANCE", str(tmp_path / "instance"))
        listed, proof = tmp_path / "gone.txt", tmp_path / "proof.json"
        listed.write_text("ann@mail.example\n")
        asked = ("purge", "people", "--keys-file", str(listed), "--proof", str(proof), "--force")

        refused = command("--reason", "ticket 9", *asked)
        note.unlink()
        done = command("--reason", "ticket 9", *asked)

        assert (refused.exit_code, done.exit_code) == (1, 0)
        assert "not finished: 1 trace left" in refused.output
        assert "notes.txt" in refused.output
        assert "finished: no key was found" in done.output
        assert json.loads(proof.read_text())["finished"]
        assert "ann@" not in proof.read_text()
        assert "finished" in command("purge", "people", "--list").output
        (told,) = json.loads(command("purge", "people", "--list", "--json").output)
        assert told["reason"] == "ticket 9"

    def test_a_command_takes_whole_keys_alone(self, tmp_path, monkeypatch):
        """Given no key, it says what to give; given one as an option, it purges that."""
        table = new_table(tmp_path)
        table.ingest(rows_of(["ann@mail.example", "bob@mail.example"]))
        monkeypatch.setenv("SLEEPER_INSTANCE", str(tmp_path / "instance"))

        nothing = command("purge", "people", "--force")
        one = command("purge", "people", "--key", "email=ann@mail.example", "--force")

        assert (nothing.exit_code, one.exit_code) == (2, 0)
        assert table.count() == 1

    def test_a_client_gets_the_proof_of_a_server(self, tmp_path):
        """Given a table by REST, its purges are those of the table."""
        table = new_table(tmp_path)
        table.ingest(rows_of(["ann@mail.example", "bob@mail.example"]))
        with running_server(make_app(sleeper.connect(tmp_path / "instance"))) as url:
            remote = sleeper.connect(url).table("people")

            proof = remote.purge(keys=["ann@mail.example"], reason="ticket 10")

            assert proof.finished
            assert remote.purges() == table.purges() == (proof,)
        assert table.count() == 1
