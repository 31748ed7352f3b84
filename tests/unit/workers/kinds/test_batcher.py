"""Which files of the batcher become which jobs."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sleeper.model.csv_options import CsvOptions
from sleeper.model.jobs.kinds import QueueName
from sleeper.model.jobs.submitted_files import SubmittedFile
from sleeper.model.known_properties.typed import InstanceProperties, TableProperties
from sleeper.workers.kinds.batcher import BatchLimits, batch_limits, files_by_table, plan_batches

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)


def limits(**changes) -> BatchLimits:
    """Limits under which any file is due, with room for three files of 10 bytes in all."""
    values = {
        "files_min": 1,
        "files_max": 3,
        "bytes_min": 0,
        "bytes_max": 10,
        "age_max": timedelta(seconds=300),
        "queue": QueueName.INGEST,
        "kept": timedelta(days=7),
    }
    return BatchLimits(**{**values, **changes})


def files(*sizes: int, age_s: float = 0, table_id: str = "t") -> list[SubmittedFile]:
    """Files of these sizes, named by their place, submitted so many seconds ago."""
    return [
        SubmittedFile(
            table_id=table_id,
            path=f"{at}.parquet",
            size_bytes=size,
            received=NOW - timedelta(seconds=age_s),
            expires=NOW + timedelta(days=7),
        )
        for at, size in enumerate(sizes)
    ]


def sizes_of(batches: list[list[SubmittedFile]]) -> list[list[int]]:
    """The sizes in each batch."""
    return [[file.size_bytes for file in batch] for batch in batches]


class TestWhen:
    """When files wait no longer (BAT-4)."""

    @pytest.mark.parametrize(("age_s", "due"), [(300, False), (300.001, True), (9000, True)])
    def test_a_file_waits_for_no_longer_than_its_age(self, age_s, due):
        """One that was received before then, and not at that very time, takes all along."""
        waiting = files(1, 1)
        old = files(1, age_s=age_s)

        batches = plan_batches([*old, *waiting], limits(bytes_min=100), NOW)

        assert bool(batches) is due
        assert not due or sum(map(len, batches)) == 3

    @pytest.mark.parametrize("where", [0, 1, 2])
    def test_any_file_may_be_the_old_one(self, where):
        """Wherever it stands."""
        pending = files(1, 1)
        pending.insert(where, files(1, age_s=301)[0])

        assert plan_batches(pending, limits(files_min=9), NOW)

    @pytest.mark.parametrize(
        ("sizes", "due"),
        [((5, 5), True), ((4, 5), False), ((10,), False), ((1, 1, 1), False), ((9, 9, 9), True)],
    )
    def test_enough_files_and_enough_bytes_are_needed(self, sizes, due):
        """Both, and exactly as many are enough."""
        assert bool(plan_batches(files(*sizes), limits(files_min=2, bytes_min=10), NOW)) is due

    def test_nothing_becomes_no_job(self):
        """However little is enough."""
        assert plan_batches([], limits(files_min=0), NOW) == []


class TestHow:
    """Which files go together (BAT-4)."""

    @pytest.mark.parametrize(
        ("sizes", "batches"),
        [
            ((4, 3, 3), [[4, 3, 3]]),
            ((4, 3, 4), [[4, 3], [4]]),
            ((6, 6, 4, 4), [[6, 4], [6, 4]]),
            ((7, 7, 3, 2, 1), [[7, 3], [7, 2, 1]]),
            ((1, 1, 1, 1), [[1, 1, 1], [1]]),
            ((99, 1, 0), [[99], [1, 0]]),
            ((10, 0, 0, 0), [[10, 0, 0], [0]]),
            ((10, 11, 10), [[10], [11], [10]]),
            ((5, 99, 5), [[5, 5], [99]]),
        ],
    )
    def test_a_file_goes_into_the_first_batch_with_room(self, sizes, batches):
        """By bytes and by files; one too large is alone, and takes no other, however small."""
        assert sizes_of(plan_batches(files(*sizes), limits(), NOW)) == batches

    def test_files_of_unlike_options_are_never_together(self):
        """Equal options are alike, however they were given; none is a way of its own."""
        ways = [None, CsvOptions(separator=";"), CsvOptions(separator="|"), CsvOptions()]
        again = CsvOptions(separator=";", null_texts=[""])
        pending = files(1, 1, 1, 1, 1, 1)
        given = [
            replace(file, csv=way) for file, way in zip(pending, [*ways, again, None], strict=True)
        ]

        batches = plan_batches(given, limits(), NOW)

        assert [[file.path[0] for file in batch] for batch in batches] == [
            *(["0", "5"], ["1", "4"], ["2"], ["3"]),
        ]

    def test_files_that_replace_rows_are_never_with_those_that_add_them(self):
        """However they are written."""
        csv = CsvOptions(separator=";")
        kinds = [(None, True), (csv, False), (None, False), (csv, True), (None, True), (csv, True)]
        given = [
            replace(file, csv=way, upsert=upsert)
            for file, (way, upsert) in zip(files(1, 1, 1, 1, 1, 1), kinds, strict=True)
        ]

        batches = plan_batches(given, limits(), NOW)

        assert [[file.path[0] for file in batch] for batch in batches] == [
            *(["0", "4"], ["1"], ["2"], ["3", "5"]),
        ]

    def test_one_file_a_batch(self):
        """When no more may be in one."""
        assert sizes_of(plan_batches(files(1, 0, 1), limits(files_max=1), NOW)) == [[1], [0], [1]]

    @given(
        st.lists(st.integers(0, 14) | st.just(10), max_size=200),
        st.integers(1, 5),
        st.integers(0, 12),
    )
    def test_any_files_are_shared_out_as_the_rule_says(self, sizes, files_max, bytes_max):
        """The plan is the one that a plain loop over all batches makes."""
        pending = files(*sizes)

        batches = plan_batches(pending, limits(files_max=files_max, bytes_max=bytes_max), NOW)

        assert batches == by_the_letter(pending, files_max, bytes_max)

    @given(st.lists(st.integers(0, 14), min_size=1, max_size=60))
    def test_every_file_is_in_one_batch(self, sizes):
        """All that are pending, each once, each batch in their order."""
        pending = files(*sizes)
        place = {file.path: at for at, file in enumerate(pending)}

        batches = plan_batches(pending, limits(), NOW)

        places = [[place[file.path] for file in batch] for batch in batches]
        assert sorted(chain.from_iterable(places)) == list(range(len(pending)))
        assert places == [sorted(each) for each in places]
        assert all(batches)
        assert all(len(batch) <= 3 for batch in batches)
        assert all(sum(each) <= 10 or len(each) == 1 for each in sizes_of(batches))


def by_the_letter(
    pending: list[SubmittedFile], files_max: int, bytes_max: int
) -> list[list[SubmittedFile]]:
    """First fit, one batch after the other."""
    batches: list[list[SubmittedFile]] = []
    for file in pending:
        for batch in batches:
            left = bytes_max - sum(each.size_bytes for each in batch)
            if left >= file.size_bytes and len(batch) < files_max:
                batch.append(file)
                break
        else:
            batches.append([file])
    return batches


def test_tables_are_planned_each_for_itself():
    """In the order in which their files came (BAT-4)."""
    one, other = files(1, 2), files(3, table_id="u")

    by_table = files_by_table([one[0], *other, one[1]])

    assert by_table == {"t": one, "u": other}
    assert list(by_table) == ["t", "u"]


class TestLimits:
    """What a table's properties say."""

    def test_by_default(self):
        """Upstream's values."""
        assert batch_limits(TableProperties()) == BatchLimits(
            files_min=1,
            files_max=100,
            bytes_min=1 << 30,
            bytes_max=5 << 30,
            age_max=timedelta(minutes=5),
            queue=QueueName.BULK_IMPORT_EMR_SERVERLESS,
            kept=timedelta(days=7),
        )

    @pytest.mark.parametrize(
        ("text", "queue"),
        [
            ("standard_ingest", QueueName.INGEST),
            ("bulk_import", QueueName.BULK_IMPORT),
            ("bulk_import_emr", QueueName.BULK_IMPORT_EMR),
            ("BULK_IMPORT_PERSISTENT_EMR", QueueName.BULK_IMPORT_PERSISTENT_EMR),
            ("bulk_import_eks", QueueName.BULK_IMPORT_EKS),
            ("bulk_import_emr_serverless", QueueName.BULK_IMPORT_EMR_SERVERLESS),
        ],
    )
    def test_each_queue_of_upstream_is_known(self, text, queue):
        """By the table's property, or the instance's default for tables."""
        own = TableProperties({"sleeper.table.ingest.batcher.ingest.queue": text})
        shared = InstanceProperties({"sleeper.default.table.ingest.batcher.ingest.queue": text})

        assert batch_limits(own).queue is queue
        assert batch_limits(TableProperties(instance=shared)).queue is queue

    def test_what_is_set_counts(self):
        """Each property by its name."""
        names = {
            "job.min.size": "1K",
            "job.max.size": "2K",
            "job.min.files": "0",
            "job.max.files": "7",
            "file.max.age.seconds": "60",
            "file.tracking.ttl.minutes": "2147483647",
        }
        properties = TableProperties(
            {f"sleeper.table.ingest.batcher.{name}": text for name, text in names.items()}
        )

        found = batch_limits(properties)

        assert (found.bytes_min, found.bytes_max) == (1024, 2048)
        assert (found.files_min, found.files_max) == (0, 7)
        assert found.age_max == timedelta(minutes=1)
        assert NOW + found.kept > NOW
