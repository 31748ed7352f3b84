"""`sleeper init`, `table`, `ingest` and `report`: what they change, print and ask."""

from __future__ import annotations

import base64

import pyarrow.parquet as pq
import pytest

from tests.unit.interfaces.command_line import (
    ROWS,
    TRIPS,
    json_of,
    make_trips,
    rows_of,
    sleeper,
    write_rows,
    write_schema,
)

SPLITS_FILE = "sleeper.table.splits.file"
PAGE_ROWS = "sleeper.table.parquet.page.rows"


@pytest.fixture
def instance(tmp_path, monkeypatch):
    """An instance with the table `trips`, named by the environment."""
    url = make_trips(tmp_path)
    monkeypatch.setenv("SLEEPER_INSTANCE", url)
    return url


class TestInit:
    """Making an instance."""

    def test_an_instance_is_made_once(self, tmp_path):
        """The second time is refused, and says that it is there."""
        assert sleeper("init", tmp_path / "x").stdout == f"made instance x at {tmp_path / 'x'}\n"

        again = sleeper("init", tmp_path / "x")

        assert again.exit_code == 1
        assert "an instance is at" in again.stderr

    def test_properties_are_checked_together(self, tmp_path):
        """Nothing is made when one is wrong (rule INS-6)."""
        done = sleeper(
            *("init", tmp_path / "x", "--set", "sleeper.gc.batch.size=many"),
            *("--set", f"sleeper.id={'x' * 21}"),
        )

        assert done.exit_code == 1
        assert "Failure 1 of 2" in done.stderr
        assert not (tmp_path / "x").exists()

    def test_a_misspelt_property_is_refused(self, tmp_path):
        """One letter too many: the right name is in the message, and nothing is made."""
        done = sleeper("init", tmp_path / "x", "--set", "sleeper.gc.batch.sizes=5")

        assert done.exit_code == 1
        assert "Did you mean sleeper.gc.batch.size?" in done.stderr
        assert not (tmp_path / "x").exists()

    def test_an_unknown_property_is_kept_with_a_warning(self, tmp_path, caplog):
        """Upstream, or a later version, may know it (rule INS-5)."""
        done = sleeper("init", tmp_path / "x", "--set", "sleeper.gc.batch.colour=5")

        assert done.exit_code == 0
        assert "sleeper.gc.batch.colour is stored, but no property has this name" in caplog.text
        assert "sleeper.gc.batch.colour" in (tmp_path / "x/instance.properties").read_text()

    def test_an_instance_needs_a_place(self, tmp_path, monkeypatch):
        """An empty URL is not the working directory."""
        monkeypatch.chdir(tmp_path)

        assert sleeper("init", "").exit_code == 1
        assert list(tmp_path.iterdir()) == []


class TestAdd:
    """Making a table (rule TBL-1)."""

    def test_split_points_make_leaves(self, instance):
        """The table of this file was made with one split point."""
        assert json_of(sleeper("table", "show", "trips", "--json"))["files"]["leaf_partitions"] == 2

    def test_split_points_may_be_named_by_a_property(self, instance, tmp_path):
        """`sleeper.table.splits.file` is used, base64 or not, unless --splits-file is given."""
        schema = write_schema(tmp_path, TRIPS)
        (tmp_path / "b64.txt").write_text(
            "".join(base64.b64encode(point).decode() + "\n" for point in (b"c", b"d", b"e"))
        )
        (tmp_path / "other.txt").write_text("k\n")
        (tmp_path / "table.properties").write_text(
            f"{SPLITS_FILE}={tmp_path / 'b64.txt'}\n"
            "sleeper.table.splits.base64.encoded=TRUE\nsleeper.table.name=ignored\n"
        )
        given = ("--schema", schema, "--properties", tmp_path / "table.properties")

        by_property = sleeper("table", "add", "a", *given)
        by_option = sleeper("table", "add", "b", *given, "--splits-file", tmp_path / "other.txt")

        assert "with 4 leaf partitions" in by_property.stdout
        assert "with 2 leaf partitions" in by_option.stdout
        assert sleeper("table", "export-splits", "a").stdout == "c\nd\ne\n"
        assert sleeper("table", "export-splits", "b").stdout == "k\n"

    @pytest.mark.parametrize(
        ("lines", "complaint"),
        [
            ("b\na\n", "should be less than"),
            ("a\na\n", "duplicate"),
            ("", None),
        ],
    )
    def test_split_points_must_ascend(self, instance, tmp_path, lines, complaint):
        """Refused split points make no table (rule TBL-9)."""
        schema = write_schema(tmp_path, TRIPS)
        (tmp_path / "points.txt").write_text(lines)

        done = sleeper(
            "table", "add", "t", "--schema", schema, "--splits-file", tmp_path / "points.txt"
        )

        names = sleeper("table", "list").stdout.split()
        if complaint is None:
            assert names == ["t", "trips"]
        else:
            assert (done.exit_code, names) == (1, ["trips"])
            assert complaint in done.stderr

    def test_options_win_over_the_file_and_all_failures_count(self, instance, tmp_path):
        """--set comes after --properties; every wrong value is counted (rule INS-6)."""
        schema = write_schema(tmp_path, TRIPS)
        properties = tmp_path / "table.properties"
        properties.write_text(f"{PAGE_ROWS}=7\nsleeper.table.gc.delay.minutes=soon\n")
        add = ("table", "add", "t", "--schema", schema, "--properties", properties)

        wrong = sleeper(*add, "--set", f"{PAGE_ROWS}=none")
        right = sleeper(*add, "--set", "sleeper.table.gc.delay.minutes=5")

        assert "Failure 1 of 2" in wrong.stderr
        assert right.exit_code == 0
        assert json_of(sleeper("table", "show", "t", "--json"))["properties"] == {
            PAGE_ROWS: "7",
            "sleeper.table.gc.delay.minutes": "5",
        }

    @pytest.mark.parametrize(
        ("body", "complaint"),
        [
            (b"{", "schema"),
            (b"\xff\xfe", "is not UTF-8"),
            (b'{"rowKeyFields": []}', "Must have at least one row key field"),
            (b'{"rowKeyFields": [{"name": "a", "type": "Text"}]}', 'Unknown type "Text"'),
        ],
    )
    def test_a_schema_must_be_one(self, instance, tmp_path, body, complaint):
        """What is wrong is said (rules SCH-3, SCH-6)."""
        (tmp_path / "bad.json").write_bytes(body)

        done = sleeper("table", "add", "t", "--schema", tmp_path / "bad.json")

        assert done.exit_code == 1
        assert complaint in done.stderr
        assert sleeper("table", "list").stdout == "trips\n"

    def test_split_points_make_a_round_trip(self, instance, tmp_path):
        """estimate-splits, add and export-splits say the same, base64 too (rule TBL-8 to TBL-11)."""
        rows = [{**ROWS[0], "taxi": f"{n:02}"} for n in range(100)]
        data = write_rows(tmp_path / "rows.parquet", rows)
        schema = write_schema(tmp_path, TRIPS)
        for name, more in (("plain", ()), ("coded", ("--splits-base64",))):
            estimated = sleeper(
                *("table", "estimate-splits", "--schema", schema, "--partitions", 4, data, *more)
            ).stdout
            (tmp_path / name).write_text(estimated)

            made = sleeper(
                *("table", "add", name, "--schema", schema),
                *("--splits-file", tmp_path / name, *more),
            )

            assert "with 4 leaf partitions" in made.stdout
            assert sleeper("table", "export-splits", name, *more).stdout == estimated
        assert (tmp_path / "plain").read_text() == "25\n50\n75\n"
        assert base64.b64decode((tmp_path / "coded").read_text().split("\n")[1]) == b"50"


class TestChanges:
    """Rename, set, online, offline, delete, reinitialise."""

    def test_rename_keeps_everything_but_the_name(self, instance):
        """Id and rows stay; the old name is free (rule TBL-3)."""
        before = json_of(sleeper("table", "show", "trips", "--json"))

        sleeper("table", "rename", "trips", "rides")

        after = json_of(sleeper("table", "show", "rides", "--json"))
        assert after == {**before, "name": "rides"}
        assert sleeper("table", "show", "trips").exit_code == 1

    def test_a_table_goes_offline_and_online(self, instance):
        """The list says so (rule TBL-6)."""
        sleeper("table", "offline", "trips")
        assert sleeper("table", "list").stdout == "trips  (offline)\n"
        assert json_of(sleeper("table", "list", "--json"))[0]["online"] is False

        sleeper("table", "online", "trips")
        assert sleeper("table", "list").stdout == "trips\n"

    def test_properties_are_set_and_go_back_to_their_default(self, instance):
        """An empty value takes a property back; nothing changes when one is wrong."""
        done = sleeper("table", "set", "trips", f"{PAGE_ROWS}=9", "sleeper.table.filters=")
        refused = sleeper("table", "set", "trips", f"{PAGE_ROWS}=8", "sleeper.table.name=x")

        assert done.stdout == f"{PAGE_ROWS} = 9\nsleeper.table.filters is back to its default\n"
        assert "Rename the table instead" in refused.stderr
        assert json_of(sleeper("table", "show", "trips", "--json"))["properties"] == {
            PAGE_ROWS: "9"
        }

        sleeper("table", "set", "trips", f"{PAGE_ROWS}=")
        assert json_of(sleeper("table", "show", "trips", "--json"))["properties"] == {}

    @pytest.mark.parametrize("command", ["delete", "reinitialise"])
    def test_what_cannot_be_undone_is_asked_first(self, instance, command):
        """No, nothing at all and an empty line leave the table alone; so the question says."""
        for answer in ("n\n", "", "\n"):
            done = sleeper("table", command, "trips", answer=answer)

            assert done.exit_code == 1
            assert "4 rows? This cannot be undone." in done.stderr
            assert "nothing was changed" in done.stderr
        assert len(rows_of(sleeper("query", "trips", "--json"))) == 4

    def test_yes_deletes(self, instance):
        """After a yes the table and its rows are gone (rule TBL-4)."""
        assert sleeper("table", "delete", "trips", answer="y\n").stdout == "deleted table trips\n"

        assert sleeper("table", "list").stdout == ""

    def test_force_does_not_ask(self, instance, tmp_path):
        """Rows go, partitions stay or go, as asked (rules TBL-4, TBL-5)."""
        (tmp_path / "points.txt").write_text("c\nd\n")
        again = ("table", "reinitialise", "trips", "--force")

        kept = sleeper(*again)
        assert kept.stdout == "removed all rows of table trips (transaction 3)\n"
        assert kept.stderr == ""
        assert sleeper("table", "export-splits", "trips").stdout == "m\n"
        sleeper(*again, "--splits-file", tmp_path / "points.txt")
        assert sleeper("table", "export-splits", "trips").stdout == "c\nd\n"
        sleeper(*again, "--delete-partitions")
        assert sleeper("table", "export-splits", "trips").stdout == ""
        assert rows_of(sleeper("query", "trips", "--json")) == []
        assert sleeper("table", "delete", "trips", "--force").exit_code == 0

    def test_a_damaged_table_can_be_deleted(self, instance, tmp_path):
        """Counting its rows fails, deleting it does not (rule TBL-4)."""
        for entry in (tmp_path / "instance").glob("*/statestore/transactions/*"):
            entry.write_bytes(b"damaged")

        assert sleeper("table", "delete", "trips", answer="y\n").exit_code == 1
        assert sleeper("table", "delete", "trips", "--force").exit_code == 0
        assert sleeper("table", "list").stdout == ""


class TestIngest:
    """`sleeper ingest`."""

    def test_says_what_it_did(self, instance, tmp_path):
        """Rows, files, partitions, transaction; one is not plural."""
        done = sleeper("ingest", "trips", write_rows(tmp_path / "one.parquet", ROWS[:1]))

        assert done.stdout.startswith("ingested 1 row into trips: 1 file, 1 partition, ")
        assert done.stdout.endswith(" s, transaction 3\n")
        assert done.stderr == "", "no progress bar where nobody watches"

    def test_a_job_is_done_once(self, instance, tmp_path):
        """The second run changes nothing and says so, in JSON too."""
        job = ("ingest", "trips", write_rows(tmp_path / "one.parquet", ROWS[:1]), "--job-id", "j1")

        first, second = json_of(sleeper(*job, "--json")), json_of(sleeper(*job, "--json"))

        assert (first["rows_written"], first["already_committed"]) == (1, False)
        assert (second["rows_written"], second["already_committed"]) == (1, True)
        assert first["transaction"] == second["transaction"] == 3
        assert sleeper(*job).stdout == "job j1 was committed by transaction 3: nothing to do\n"

    def test_rows_without_a_key_are_set_aside(self, instance, tmp_path):
        """Refused with a count, or put where they are asked to go."""
        rows = write_rows(tmp_path / "r.parquet", [ROWS[0], {**ROWS[1], "day": None}])
        aside = tmp_path / "aside.parquet"

        refused = sleeper("ingest", "trips", rows)
        done = sleeper("ingest", "trips", rows, "--set-aside", aside)

        assert (refused.exit_code, refused.stdout) == (1, "")
        assert "1 without 'day'" in refused.stderr
        assert "--set-aside FILE" in refused.stderr
        assert f"set aside 1 row without a key in {aside}" in done.stdout
        assert pq.read_table(aside).to_pylist() == [{**ROWS[1], "day": None}]

    def test_unknown_columns_are_left_out_only_when_asked(self, instance, tmp_path):
        """A column that the table has not is refused (rule ING-14)."""
        rows = write_rows(tmp_path / "r.parquet", [{**ROWS[0], "tip": 1.0}])

        assert "columns ['tip']" in sleeper("ingest", "trips", rows).stderr
        assert sleeper("ingest", "trips", rows, "--ignore-extra-columns").exit_code == 0


class TestReports:
    """`sleeper report` and `sleeper table show`."""

    @pytest.mark.parametrize(
        "command",
        [
            ("table", "list"),
            ("table", "show", "trips"),
            ("report", "tables"),
            ("report", "partitions", "trips"),
            ("report", "files", "trips"),
            ("report", "files", "trips", "--verbose"),
        ],
    )
    def test_json_says_what_people_read(self, instance, command):
        """Each reporting command prints one JSON document with --json, and text without."""
        assert json_of(sleeper(*command, "--json"))
        assert sleeper(*command).stdout

    def test_tables_with_their_figures(self, instance):
        """One line a table (rule TBL-7)."""
        (found,) = json_of(sleeper("report", "tables", "--json"))

        assert {**found, "id": None} == {
            "name": "trips",
            "id": None,
            "online": True,
            "rows": 4,
            "files": 2,
            "leaf_partitions": 2,
            "transaction": 2,
        }

    def test_partitions_leaves_first(self, instance):
        """Leaves in key order, then the root; nothing stands for no limit (rule ADM-6)."""
        found = json_of(sleeper("report", "partitions", "trips", "--json"))

        assert [(p["region"], p["is_leaf"], p["rows"]) for p in found] == [
            ("taxi [, m), day [, )", True, 2),
            ("taxi [m, ), day [, )", True, 2),
            ("taxi [, ), day [, )", False, 0),
        ]
        assert (found[-1]["split_field"], found[-1]["split_value"]) == ("taxi", "m")

    def test_files_one_by_one(self, instance):
        """--verbose lists every reference (rule ADM-5)."""
        found = json_of(sleeper("report", "files", "trips", "--json", "--verbose"))

        assert (found["files"]["files"], found["files"]["rows"]) == (2, 4)
        assert [reference["row_count"] for reference in found["references"]] == [2, 2]

    def test_an_instance_without_tables(self, tmp_path):
        """Nothing is an answer too."""
        url = tmp_path / "empty"
        sleeper("init", url)

        assert json_of(sleeper("report", "tables", "--json", "--instance", url)) == []
        assert sleeper("table", "list", "--instance", url).stdout == ""
