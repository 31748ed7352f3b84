"""What every store of the batcher's files must do, whatever lies beneath it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from sleeper.model.csv_options import CsvOptions
from sleeper.model.jobs.kinds import QueueName
from sleeper.model.jobs.submitted_files import SubmittedFile, UnsentJob
from tests.soak import tries

NOON = datetime(2026, 5, 4, 12, 0, 0, 123_456, tzinfo=UTC)
INGEST = QueueName.INGEST


def file(path, minute=0, *, table_id="flights", size_bytes=100, job_id=None, kept=60):
    """Return a file that was submitted so many minutes after noon."""
    received = NOON + timedelta(minutes=minute)
    return SubmittedFile(
        table_id=table_id,
        path=path,
        size_bytes=size_bytes,
        received=received,
        expires=received + timedelta(minutes=kept),
        job_id=job_id,
    )


def in_job(job_id, *files):
    return [replace(each, job_id=job_id) for each in files]


class BatcherStoreContract:
    """Subclass it and supply `batcher`, an empty store.

    A store that hides what has expired by its own clock, and leaves the deletion to its service,
    sets `counts_expired` to False and supplies `set_clock`.
    """

    counts_expired = True

    @pytest.fixture
    def set_clock(self):
        return lambda _time: None

    def test_files_are_pending_when_they_were_saved(self, batcher):
        """As they were given, oldest first; all files newest first."""
        files = [file("b é ✓", 1), file("a", 2, size_bytes=2**62), file("c", 0, table_id="trades")]

        batcher.save(files)

        assert batcher.pending() == [files[2], files[0], files[1]]
        assert list(batcher.newest()) == [files[1], files[0], files[2]]

    def test_options_of_csv_are_kept_with_each_file(self, batcher):
        """Pending, in a job, and of a job that is sent again."""
        options = CsvOptions(separator="\t", quote=None, null_texts=["", "é"], column_names=["a b"])
        plain, written = file("plain.csv", 0), replace(file("a.csv", 1), csv=options)
        batcher.save([plain, written])

        assert batcher.pending() == [plain, written]
        batcher.assign("j", [written], INGEST)
        batcher.assign("k", [plain], INGEST)

        assert {job.job_id: job.csv for job in batcher.unsent()} == {"j": options, "k": None}
        assert set(batcher.newest()) == {replace(written, job_id="j"), replace(plain, job_id="k")}
        batcher.note_sent("j")
        batcher.reopen("j", ["a.csv"], INGEST)
        assert {job.job_id: job.csv for job in batcher.unsent()} == {"j": options, "k": None}

    def test_whether_rows_are_replaced_is_kept_with_each_file(self, batcher):
        """Pending, in a job, and of a job that is sent again; the newest word counts."""
        adds, puts = file("adds", 0), replace(file("puts", 1), upsert=True)
        batcher.save([adds, replace(puts, upsert=False)])
        batcher.save([puts])

        assert batcher.pending() == [adds, puts]
        batcher.assign("j", [puts], INGEST)
        batcher.assign("k", [adds], INGEST)

        assert {job.job_id: job.upsert for job in batcher.unsent()} == {"j": True, "k": False}
        assert set(batcher.newest()) == {replace(puts, job_id="j"), replace(adds, job_id="k")}
        batcher.note_sent("j")
        batcher.reopen("j", ["puts"], INGEST)
        assert {job.job_id: job.upsert for job in batcher.unsent()} == {"j": True, "k": False}

    def test_a_job_that_was_sent_is_sent_again_with_some_of_its_files(self, batcher):
        """Under its id; the others are forgotten, and it is not opened twice before it is sent."""
        files = [file("a", 1), file("b", 2), file("c", 3)]
        batcher.save([*files, file("waits", 4)])
        batcher.assign("j", files, INGEST)
        assert batcher.reopen("j", ["a"], INGEST) == 0  # it is not sent yet
        batcher.note_sent("j")

        assert batcher.reopen("j", ["away"], INGEST) == 0
        assert batcher.reopen("other", ["a"], INGEST) == 0
        assert batcher.unsent() == []
        assert batcher.reopen("j", ["c", "a", "unknown"], QueueName.BULK_IMPORT) == 2

        (unsent,) = batcher.unsent()
        assert (unsent.job_id, unsent.queue, unsent.paths) == (
            *("j", QueueName.BULK_IMPORT, ("a", "c")),
        )
        assert batcher.reopen("j", ["a"], INGEST) == 0
        assert [each.path for each in batcher.pending()] == ["waits"]
        assert {each.path for each in batcher.newest()} == {"a", "c", "waits"}
        batcher.note_sent("j")
        assert batcher.unsent() == []

    def test_an_empty_store_has_nothing(self, batcher):
        """No file and no job; nothing to delete."""
        batcher.save([])

        assert batcher.pending() == batcher.unsent() == list(batcher.newest()) == []
        assert batcher.assign("job", [file("a")], INGEST) == []
        assert batcher.assign("job", [], INGEST) == []
        batcher.note_sent("job")
        assert batcher.delete_pending() == batcher.delete_expired(NOON) == 0
        assert batcher.delete_tables_except([]) == 0
        assert batcher.unsent() == []

    def test_a_pending_file_that_is_submitted_again_is_replaced(self, batcher):
        """Its size and time are the new ones; the same path of another table is another file."""
        other = file("a", 1, table_id="trades")
        batcher.save([file("a", 0), other])

        batcher.save([file("a", 2, size_bytes=7)])

        assert batcher.pending() == [other, file("a", 2, size_bytes=7)]

    def test_a_job_takes_files(self, batcher):
        """They are pending no more, and the job is noted as unsent, with where it is to go."""
        a, b, c = file("a", 0), file("b", 1), file("c", 2)
        batcher.save([a, b, c])

        assigned = batcher.assign("job", [a, b], QueueName.BULK_IMPORT_EMR)

        assert assigned == in_job("job", a, b)
        assert batcher.pending() == [c]
        assert list(batcher.newest()) == [c, *in_job("job", b, a)]
        [job] = batcher.unsent()
        queue = QueueName.BULK_IMPORT_EMR
        assert replace(job, paths=()) == UnsentJob(
            job_id="job", table_id="flights", queue=queue, paths=()
        )
        assert sorted(job.paths) == ["a", "b"]

    def test_a_job_is_unsent_until_it_is_noted(self, batcher):
        """Jobs come oldest first; a note that comes twice does no harm."""
        files = [file(str(n), n) for n in range(3)]
        batcher.save(files)
        for job_id, each in zip("zay", files, strict=True):
            batcher.assign(job_id, [each], INGEST)

        before = [job.job_id for job in batcher.unsent()]
        batcher.note_sent("a")
        batcher.note_sent("a")

        assert before == ["z", "a", "y"]
        assert [job.job_id for job in batcher.unsent()] == ["z", "y"]
        assert len(list(batcher.newest())) == 3

    def test_files_that_changed_since_stay_out_of_a_job(self, batcher):
        """Those of another job, submitted again, or never: the others are in it."""
        taken, again, good = file("taken", 0), file("again", 1), file("good", 2)
        batcher.save([taken, again, good])
        batcher.assign("first", [taken], INGEST)
        batcher.save([file("again", 9)])

        assigned = batcher.assign("second", [taken, again, good, file("never")], INGEST)

        assert assigned == in_job("second", good)
        assert batcher.pending() == [file("again", 9)]
        assert [job.paths for job in batcher.unsent()] == [("taken",), ("good",)]

    def test_a_job_without_files_is_none(self, batcher):
        """Two batchers plan the same job: the second has nothing to send."""
        batcher.save([file("a")])
        batcher.assign("first", [file("a")], INGEST)

        assigned = batcher.assign("second", [file("a")], INGEST)

        assert assigned == []
        assert [job.job_id for job in batcher.unsent()] == ["first"]

    def test_a_path_in_a_job_can_be_submitted_again(self, batcher):
        """It is a new pending file, and may be put into another job."""
        batcher.save([file("a", 0)])
        batcher.assign("first", [file("a", 0)], INGEST)

        batcher.save([file("a", 1)])
        pending = batcher.pending()
        assigned = batcher.assign("second", pending, INGEST)

        assert pending == [file("a", 1)]
        assert assigned == in_job("second", file("a", 1))
        assert [job.paths for job in batcher.unsent()] == [("a",), ("a",)]
        expected = [*in_job("second", file("a", 1)), *in_job("first", file("a", 0))]
        assert list(batcher.newest()) == expected

    def test_a_submission_that_is_delivered_again_changes_nothing(self, batcher):
        """Its files are in a job by then; pending once more, their rows would be doubled."""
        batcher.save([file("a", 1)])
        batcher.assign("job", [file("a", 1)], INGEST)

        batcher.save([file("a", 1), file("b", 1)])

        assert batcher.pending() == [file("b", 1)]

    def test_files_of_deleted_tables_are_deleted(self, batcher):
        """Pending or not, with their unsent jobs; others stay."""
        batcher.save([file("a"), file("b"), file("c", table_id="trades"), file("d", table_id="é'")])
        batcher.assign("flights job", [file("a")], INGEST)
        batcher.assign("trades job", [file("c", table_id="trades")], INGEST)

        deleted = batcher.delete_tables_except(["trades", "unknown"])

        assert deleted == 3
        assert [each.path for each in batcher.newest()] == ["c"]
        assert [job.job_id for job in batcher.unsent()] == ["trades job"]
        assert batcher.delete_tables_except(iter([])) == 1
        assert batcher.unsent() == []

    def test_pending_files_can_be_deleted(self, batcher):
        """Those in jobs stay."""
        batcher.save([file("a"), file("b"), file("c")])
        batcher.assign("job", [file("a")], INGEST)

        deleted = batcher.delete_pending()

        assert deleted == 2
        assert list(batcher.newest()) == in_job("job", file("a"))

    def test_expired_files_are_deleted_unless_their_job_is_unsent(self, batcher, set_clock):
        """A job that was not sent needs its files, however old they are."""
        young = file("young", kept=600)
        old = [file(name) for name in ("pending", "sent", "unsent")]
        batcher.save([young, *old])
        batcher.assign("sent", [old[1]], INGEST)
        batcher.assign("unsent", [old[2]], INGEST)
        batcher.note_sent("sent")

        too_early = batcher.delete_expired(NOON + timedelta(minutes=60))
        set_clock(NOON + timedelta(minutes=61))
        deleted = batcher.delete_expired(NOON + timedelta(minutes=61))

        assert (too_early, deleted) == (0, 2 if self.counts_expired else 0)
        assert batcher.pending() == [young]
        assert {each.path for each in batcher.newest()} == {"young", "unsent"}
        assert [job.paths for job in batcher.unsent()] == [("unsent",)]

    @pytest.mark.soak
    @pytest.mark.parametrize("count", [tries(1_100, soak=2_500)])
    def test_many_files_are_listed(self, batcher, count):
        """More than a page of 1,000, some of the same moment: each once, in order."""
        batcher.save([file(str(n), n // 7) for n in range(count)])

        listed = list(batcher.newest())

        assert len({each.path for each in listed}) == len(listed) == count
        assert batcher.pending() == sorted(batcher.pending(), key=lambda each: each.received)
        assert listed == sorted(listed, key=lambda each: each.received, reverse=True)

    def test_of_many_batchers_one_gets_each_file(self, batcher):
        """Eight threads put the same files into jobs: each file is in one job."""
        files = [file(str(n)) for n in range(40)]
        batcher.save(files)

        with ThreadPoolExecutor(8) as threads:
            jobs = list(
                threads.map(
                    lambda n: batcher.assign(f"job {n}", files[n:] + files[:n], INGEST), range(8)
                )
            )

        assigned = [each.path for job in jobs for each in job]
        assert sorted(assigned) == sorted(each.path for each in files)
        assert sorted(path for job in batcher.unsent() for path in job.paths) == sorted(assigned)
