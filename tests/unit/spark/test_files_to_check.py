"""Which written files a driver looks for: all, or some of every machine."""

from __future__ import annotations

import pytest

from sleeper.model.files import FileReference
from sleeper.spark.block_shuffle.reduce_tasks import WrittenBucket
from sleeper.spark.bulk_import import files_to_check


def bucket(host: str, *names: str) -> WrittenBucket:
    references = tuple(
        FileReference(filename=name, partition_id="p", row_count=1) for name in names
    )
    return WrittenBucket(references=references, rows_in=1, rows_written=1, host=host)


def test_few_files_are_all_looked_for():
    """Up to the limit each file is, once."""
    written = [bucket("a", "1", "2"), bucket("b"), bucket("b", "3")]

    assert sorted(files_to_check(written, 3)) == ["1", "2", "3"]


@pytest.mark.parametrize("count_max", [4, 10, 333])
def test_of_many_files_some_of_every_machine_are(count_max):
    """
    Given a machine that wrote one file and others that wrote thousands, when files are chosen, then
    its file is among them, and they are about as many as the limit.
    """
    written = [bucket(f"h{n % 3}", *(f"{n}-{m}" for m in range(7))) for n in range(300)]
    written.insert(150, bucket("alone", "only"))

    names = files_to_check(written, count_max)

    assert "only" in names
    assert count_max // 2 <= len(names) <= count_max
    assert len({*names}) == len(names)


def test_more_machines_than_the_limit_are_each_looked_at_once():
    """A limit below the number of machines leaves none of them out."""
    written = [bucket(f"h{n}", f"{n}-a", f"{n}-b") for n in range(50)]

    assert len(files_to_check(written, 10)) == 50
