"""What the stored properties of an instance must do, whatever lies beneath them."""

from __future__ import annotations

import random
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from sleeper.errors import InstanceNotFound, PropertiesInvalid
from sleeper.instance.properties import StoredProperties
from sleeper.storage.followed_log import NO_CHECKS
from tests.any_order.faults import Faults, FaultyObjects

FIRST = {"sleeper.id": "i", "sleeper.format.version": "1", "sleeper.jobs.receives.max": "4"}
COPY = "instance.properties"
BATCH, FILES = "sleeper.gc.batch.size", "sleeper.gc.files.maximum"


def short_pause(attempt: int) -> None:
    """Wait a random time that grows, so that of many writers each wins in the end."""
    time.sleep(random.uniform(0, min(0.1, 0.001 * 2**attempt)))


def change(objects, **changes):
    """Change properties, named without `sleeper.` and with `_` for a dot."""
    names = {f"sleeper.{name.replace('_', '.')}": value for name, value in changes.items()}
    return StoredProperties(objects, "here").change(names, checks=NO_CHECKS, pause=short_pause)


def newest(objects):
    """Return the properties, without their version."""
    values = StoredProperties(objects, "here").newest()
    return {name: text for name, text in values.items() if name != "sleeper.properties.version"}


class InstancePropertiesContract:
    """Subclass it and supply `objects`, which are empty."""

    @pytest.fixture
    def made(self, objects):
        """Objects with the properties of a new instance."""
        assert StoredProperties(objects, "here").create(FIRST)
        return objects

    def test_are_read_as_they_were_made(self, made):
        """Given a new instance, then its properties are read by one request."""
        faults = Faults()

        assert newest(FaultyObjects(made, faults)) == FIRST
        assert faults.names == [f"read {COPY}"]

    def test_are_missing_without_an_instance(self, objects):
        """Given no instance, then there are none, and none can be set."""
        assert StoredProperties(objects, "here").newest() is None
        with pytest.raises(InstanceNotFound, match="here"):
            change(objects, gc_batch_size=5)
        assert [*objects.listing()] == []

    def test_a_change_is_read_by_two_requests(self, made):
        """Given a change, then a reader sees it, and looks for one more version."""
        change(made, gc_batch_size=5)
        faults = Faults()

        assert newest(FaultyObjects(made, faults)) == {**FIRST, BATCH: "5"}
        assert faults.names == [f"read {COPY}", f"read properties/{2:020d}.properties"]

    def test_a_value_is_taken_away(self, made):
        """Given a value that is set, when it becomes None, then it is not set."""
        change(made, gc_batch_size=5, gc_files_maximum="7")
        change(made, gc_batch_size=None, jobs_receives_max=None)

        kept = {name: text for name, text in FIRST.items() if "jobs" not in name}
        assert newest(made) == {**kept, FILES: "7"}

    def test_the_copy_is_the_newest_version(self, made):
        """Given changes, then the file that other programs read equals the last of them."""
        change(made, gc_batch_size=5)
        change(made, gc_batch_size=6)

        assert made.read(COPY) == made.read(f"properties/{2:020d}.properties")

    def test_nothing_is_written_where_nothing_changes(self, made):
        """Given a value that is set already, when it is set again, then there is no version."""
        change(made, jobs_receives_max=4)
        assert [info.key for info in made.listing()] == [COPY]
        change(made, gc_batch_size=5)
        change(made, gc_batch_size=5)

        assert len([*made.listing("properties/")]) == 1

    @pytest.mark.parametrize("wrong", [{"id": "j"}, {"gc_batch_size": "x"}, {"gc_batch_sizes": 1}])
    def test_a_refused_change_changes_nothing(self, made, wrong):
        """Given a change of two properties of which one is wrong, then neither is set."""
        with pytest.raises(PropertiesInvalid):
            change(made, gc_files_maximum=7, **wrong)

        assert newest(made) == FIRST
        assert [info.key for info in made.listing()] == [COPY]

    def test_an_older_copy_is_no_older_version(self, made):
        """Given a writer that writes its copy late, then readers see the newest version."""
        change(made, gc_batch_size=5)
        older = made.read(COPY)
        change(made, gc_files_maximum=7)

        made.put(COPY, older)

        assert newest(made) == {**FIRST, BATCH: "5", FILES: "7"}
        change(made, gc_files_maximum=7)  # changes nothing, but writes the copy
        assert made.read(COPY) == made.read(f"properties/{2:020d}.properties")

    def test_all_writers_at_once_get_their_changes_in(self, made):
        """Given eight writers of their own properties, then none is lost (rule INS-10)."""
        names = [f"bulk_import_spark_x{number}" for number in range(8)]

        def write(name):
            for round_ in range(3):
                change(made, **{name: round_})

        with ThreadPoolExecutor(len(names)) as pool:
            [*pool.map(write, names)]

        wanted = {f"sleeper.bulk.import.spark.x{number}": "2" for number in range(8)}
        assert newest(made) == FIRST | wanted
        assert len([*made.listing("properties/")]) == 24
        assert made.read(COPY) == made.read(f"properties/{24:020d}.properties")

    def test_a_reader_sees_whole_versions_in_order(self, made):
        """Given a writer of two properties, then readers see both alike, in order (rule INS-10)."""
        with ThreadPoolExecutor(1) as pool:
            writing = pool.submit(
                lambda: [
                    change(made, gc_batch_size=number, gc_files_maximum=number)
                    for number in range(1, 15)
                ]
            )
            seen = []
            while not writing.done():
                values = newest(made)
                assert values.get(BATCH) == values.get(FILES)
                seen.append(int(values.get(BATCH, 0)))
            writing.result()

        assert seen == sorted(seen)
        assert newest(made)[BATCH] == "14"
