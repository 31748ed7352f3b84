"""Tables of format 2: their log says who changed what, and why, and cannot be changed unnoticed."""

from __future__ import annotations

import json
import os
import pwd
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sleeper
from sleeper.errors import BadRequest, DataDamaged
from sleeper.state.log_entry import without_keys
from tests.unit.interfaces.command_line import json_of
from tests.unit.interfaces.command_line import sleeper as command

SCHEMA = pa.schema([("email", pa.string()), ("n", pa.int64())])
ME = f"{pwd.getpwuid(os.geteuid()).pw_name}@{os.uname().nodename}"


@pytest.fixture
def instance(tmp_path):
    return sleeper.connect(tmp_path / "instance", create=True)


@pytest.fixture
def table(instance):
    """A table of format 1 that became one of format 2, of three files; a compaction made one."""
    table = instance.create_table("people", SCHEMA, row_keys=["email"])
    table.downgrade()
    table.ingest(people("ann", "bob"))
    table.upgrade()
    table.ingest(people("cat", "dan"))
    table.compact(all_files=True)
    table.ingest(people("eve", "fay"))
    return table


def people(*names):
    return [{"email": f"{name}@example.org", "n": len(name)} for name in names]


def entries_of(instance, table):
    folder = Path(instance.url) / table.table_id / "statestore/transactions"
    return {int(path.name.split(".")[0]): path for path in folder.iterdir()}


class TestUpgrade:
    """`sleeper table upgrade` and `downgrade`."""

    def test_goes_on_with_the_rows_and_versions_that_it_had(self, instance, table):
        """Given a table with rows, when it is upgraded, all rows and earlier versions stay."""
        again = sleeper.connect(instance.url).table("people")

        assert again.count() == 6
        assert again.query(as_of=3).to_arrow().num_rows == 2
        assert again.verify().clean

    def test_is_needed_by_no_new_table(self, instance):
        """Given a new table, its first entry gives it format 2, and no entry is of another."""
        table = instance.create_table("t", SCHEMA, row_keys=["email"])
        table.ingest(people("ann"))

        entries = [
            json.loads(path.read_bytes().split(b"\n")[0])
            for path in entries_of(instance, table).values()
        ]

        assert [each["format"] for each in entries] == [2, 2]
        assert [each["type"] for each in entries[0]["transactions"]] == [
            "SET_SCHEMA",
            "SET_FORMAT",
            "INITIALISE_PARTITIONS",
        ]
        assert table.upgrade().transaction == table.state().number == 2

    def test_is_one_entry_and_changes_no_file(self, instance):
        """Given a table, its files are the same before and after; a second time does nothing."""
        table = instance.create_table("t", SCHEMA, row_keys=["email"])
        table.downgrade()
        table.ingest(people("ann"))
        files, number = [each.filename for each in table.references()], table.state().number

        first, second = table.upgrade(), table.upgrade()

        assert (first.before, first.format, first.transaction) == (1, 2, number + 1)
        assert (second.before, second.format, second.transaction) == (2, 2, number + 1)
        assert [each.filename for each in table.references()] == files

    def test_keeps_keys_out_of_the_first_lines_of_entries(self, instance, table):
        """Given keys that are addresses, each stands in the second line of its entry alone."""
        lines = [path.read_bytes().split(b"\n") for path in entries_of(instance, table).values()]

        of_format_2 = [each for each in lines if json.loads(each[0])["format"] == 2]

        assert len(of_format_2) > 3
        assert not any(b"@example.org" in each[0] for each in of_format_2)
        assert any(b"eve@example.org" in each[1] for each in of_format_2 if len(each) > 1)

    def test_can_be_taken_back(self, instance, table):
        """Given a table of format 2, when it is set back, whoever opens it anew reads nothing of
        format 2 but entries from before the snapshot, and the rows are the same.
        """
        change = table.downgrade()
        table.ingest(people("gus"))

        folder = Path(instance.url) / table.table_id / "statestore"
        newest = max(folder.glob("snapshots/*-partitions.parquet"))
        metadata = pq.read_schema(newest).metadata
        later = entries_of(instance, table)[change.transaction + 1]

        assert (change.before, change.format) == (2, 1)
        assert metadata[b"sleeper.format"] == b"1"
        assert int(metadata[b"sleeper.transaction"]) == change.transaction
        assert json.loads(later.read_bytes())["format"] == 1
        assert sleeper.connect(instance.url).table("people").count() == 7
        assert table.verify().clean

    def test_from_the_command_line(self, instance, table):
        """Given a table, `table upgrade` says from when on it has the format."""
        instance.create_table("t", SCHEMA, row_keys=["email"]).downgrade()

        done = json_of(command("table", "upgrade", "t", "--instance", instance.url, "--json"))

        assert done == {"before": 1, "format": 2, "transaction": 3}
        again = command("table", "upgrade", "t", "--instance", instance.url)
        assert "has format 2 already" in again.output


class TestWho:
    """Who committed, and why (rule STS-29)."""

    def test_is_in_the_history(self, table):
        """Given a user of this machine, entries say the user; in a block, what the block says."""
        with sleeper.committing(by="nightly job", reason="ticket 4711"):
            table.ingest(people("hal"))
        table.ingest(people("ida"))

        last, before, *_ = table.history()

        assert (last.by, last.reasons) == ((ME,), ())
        assert (before.by, before.reasons) == (("nightly job",), ("ticket 4711",))

    def test_is_said_by_compactions_in_threads_too(self, table):
        """Given a reason, every transaction of a verb has it, whichever thread commits."""
        first = table.state().number

        with sleeper.committing(reason="tidy up"):
            table.compact(all_files=True)
            table.collect_garbage(force=True)
            table.split_partitions()

        done = [each for each in table.history() if each.number > first]
        assert len(done) >= 3
        assert {each.reasons for each in done} == {("tidy up",)}

    def test_is_said_on_the_command_line(self, instance, table):
        """Given --reason, the history shows it beside who ran the command."""
        command(
            "--reason",
            "spring cleaning",
            "compact",
            "people",
            "--all-files",
            "--instance",
            instance.url,
        )

        shown = command("history", "people", "--instance", instance.url).output

        assert "spring cleaning" in shown
        assert ME in shown

    @pytest.mark.parametrize("text", ["", " ", "x" * 501, "\ud800"])
    def test_is_a_text_that_can_be_kept(self, table, text):
        """Given a reason that says nothing, or cannot be stored, nothing is done."""
        with pytest.raises(BadRequest, match="reason"), sleeper.committing(reason=text):
            table.ingest(people("zoe"))


class TestChain:
    """`sleeper verify --chain` (rule STS-28)."""

    def test_of_a_table_that_nobody_changed(self, instance, table):
        """Given a table as it was written, all entries of format 2 are in the chain."""
        found = table.verify(chain=True)

        assert found.clean
        assert found.entries == table.state().number
        assert found.chained == found.entries - 1

    def test_names_every_entry_that_was_changed(self, instance, table):
        """Given entries with other numbers of rows, all are named but the last, which no entry
        follows: its digest is shown, to be compared with a note of it.
        """
        before = table.verify(chain=True).digest
        added = [
            (number, path)
            for number, path in sorted(entries_of(instance, table).items())
            if b'"ADD_FILES"' in path.read_bytes() and number > 3
        ]
        for _, path in added:
            body = path.read_bytes()
            path.write_bytes(body.replace(b'"numberOfRows":2', b'"numberOfRows":3'))

        found = sleeper.connect(instance.url).table("people").verify(chain=True)
        shown = command("verify", instance.url, "--chain")

        assert len(added) == 2
        assert [(each.kind, each.entry) for each in found.findings] == [("chain", added[0][0])]
        assert found.digest != before
        assert f"entry {added[0][0]} " in shown.output
        assert found.digest[:12] in shown.output
        assert shown.exit_code == 1

    def test_an_entry_without_the_keys_of_purged_rows_is_none(self, instance, table):
        """Given an entry whose keys were removed, the chain is as it was, and all rows are read."""
        for path in entries_of(instance, table).values():
            if json.loads(path.read_bytes().split(b"\n")[0])["format"] == 2:
                path.write_bytes(without_keys(path.read_bytes(), ["cat@example.org"]))

        again = sleeper.connect(instance.url).table("people")

        assert again.verify(chain=True).clean
        assert again.count() == 6

    def test_keys_that_were_changed_are_noticed(self, instance, table):
        """Given an entry whose second line has another key, it is named."""
        number, path = next(
            (n, path)
            for n, path in entries_of(instance, table).items()
            if b"\n" in path.read_bytes() and b"eve@" in path.read_bytes()
        )
        path.write_bytes(path.read_bytes().replace(b"eve@", b"eva@"))

        (finding,) = table.verify(chain=True).findings

        assert finding.entry == number
        assert "has 1 keys that were changed" in finding.what

    def test_an_entry_that_was_changed_ends_its_readers(self, instance, table):
        """Given a changed entry after the newest snapshot, readers that begin anew refuse it."""
        paths = entries_of(instance, table)
        number = max(n for n, path in paths.items() if b'"ADD_FILES"' in path.read_bytes())
        table.ingest(people("gus"))
        body = paths[number].read_bytes()
        paths[number].write_bytes(body.replace(b'"numberOfRows":2', b'"numberOfRows":3'))

        with pytest.raises(DataDamaged, match=rf"after another entry {number} .* --chain"):
            sleeper.connect(instance.url).table("people").count()
