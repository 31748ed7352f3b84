"""Every transaction number is a version of the table, and can be asked for."""

from __future__ import annotations

import pyarrow as pa
import pytest

import sleeper

SCHEMA = pa.schema([("id", pa.string()), ("n", pa.int64())])


@pytest.fixture
def table(tmp_path):
    instance = sleeper.connect(tmp_path / "instance", create=True)
    return instance.create_table("t", SCHEMA, row_keys=["id"])


def test_the_table_as_it_was(table):
    """`as_of` takes the number that an ingest or an answer told."""
    monday = table.ingest([{"id": "a", "n": 1}]).transaction
    tuesday = table.ingest([{"id": "b", "n": 2}]).transaction

    assert table.query(as_of=monday).to_pylist() == [{"id": "a", "n": 1}]
    assert table.query(key="b", as_of=monday).to_pylist() == []
    assert table.query(keys=["a", "b"], as_of=tuesday).to_arrow().num_rows == 2
    assert table.query().transaction == tuesday


def test_an_answer_is_of_one_moment(table):
    """Rows committed while an answer is being read are not in it."""
    table.ingest([{"id": "a", "n": 1}])
    answer = table.query()

    table.ingest([{"id": "b", "n": 2}])

    assert answer.to_pylist() == [{"id": "a", "n": 1}]


@pytest.mark.parametrize("number", [3, 99, -1])
def test_a_time_that_never_was(table, number):
    """The refusal says which is the newest."""
    table.ingest([{"id": "a", "n": 1}])

    with pytest.raises(sleeper.NotFound, match="newest is 2"):
        table.query(as_of=number)


def test_before_the_rows(table):
    """Transaction 1 made the partitions, and there was no row."""
    table.ingest([{"id": "a", "n": 1}])

    assert table.query(as_of=1).to_pylist() == []


class TestDeletedVersions:
    """Versions whose files are gone."""

    def test_say_from_which_version_on_the_table_can_be_read(self, table):
        """The collector has deleted what a compaction replaced."""
        for n in range(3):
            table.ingest([{"id": "a", "n": n}])
        kept = table.compact(all_files=True).transaction
        before = table.query(as_of=kept - 2).to_arrow().num_rows
        table.collect_garbage(force=True)

        assert before == 3
        for number in (2, 3, kept - 1):
            with pytest.raises(
                sleeper.NotFound, match=rf"as of {kept} and later, up to {kept + 1}"
            ):
                table.query(as_of=number)
        assert table.query(as_of=kept).to_arrow().num_rows == 3
        assert table.query(as_of=1).to_pylist() == []

    @pytest.mark.parametrize(
        "read",
        [
            lambda table, number: table.query(as_of=number).to_arrow(),
            lambda table, number: table.query(key="a", as_of=number),
            lambda table, number: table.query(keys=["a"], as_of=number).to_arrow(),
            lambda table, number: table.query(range={"id": ("a", "b")}, as_of=number).to_arrow(),
            lambda table, number: table.export(table._context.url + "-out", as_of=number),
        ],
        ids=["all", "key", "keys", "range", "export"],
    )
    def test_say_so_before_the_collector_has_recorded_it(self, table, read):
        """Given a collector that was killed when it had deleted files, one of them or all."""
        for n in range(2):
            table.ingest([{"id": "a", "n": n}])
        compacted = table.compact(all_files=True).transaction
        files = table._current().files
        for name in table.garbage(force=True):
            files.delete([name])

            with pytest.raises(
                sleeper.NotFound, match=rf"of transaction 3 were deleted.* up to {compacted}"
            ):
                read(table, 3)
        assert table.query(as_of=compacted).to_arrow().num_rows == 2

    def test_are_told_from_damage(self, table):
        """A file that the newest version needs is missing: nobody deleted it on purpose."""
        table.ingest([{"id": "a", "n": 1}])
        number = table.ingest([{"id": "b", "n": 2}]).transaction
        table._current().files.delete([table.references()[0].filename])

        with pytest.raises(sleeper.DataDamaged, match="is missing"):
            table.query(as_of=number).to_arrow()
        table.compact(all_files=True)
        with pytest.raises(sleeper.DataDamaged, match="is missing"):
            table.query(as_of=number).to_arrow()

    def test_are_those_before_a_table_was_emptied(self, table):
        """Files go at once when a table is reinitialised."""
        table.ingest([{"id": "a", "n": 1}])
        emptied = table.reinitialise()

        with pytest.raises(sleeper.NotFound, match=rf"as of {emptied} and later"):
            table.query(as_of=emptied - 1)
