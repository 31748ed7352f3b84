"""The memory of committed jobs."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from sleeper.state.table_state import CommittedJobs, JobRecord
from tests.unit.state.small_tables import LATER, MUCH_LATER, NOON


def record(number, at=NOON, keep_until=MUCH_LATER):
    return JobRecord(
        number=number, at=at, keep_until=keep_until, rows_read=10, rows_written=9, files=2
    )


class TestJobIds:
    """What a table remembers of the jobs that it committed."""

    def test_remembers_what_a_job_did(self):
        """A job is found by its id, with its transaction, times and counts."""
        jobs = CommittedJobs().with_job("job-1", record(7))

        assert jobs.find("job-1") == record(7)
        assert jobs.find("job-2") is None

    def test_is_a_value(self):
        """Adding a job leaves the memory that it was added to as it was."""
        before = CommittedJobs().with_job("job-1", record(1))

        before.with_job("job-2", record(2))

        assert [job_id for job_id, _ in before.records()] == ["job-1"]

    def test_forgets_when_a_later_job_is_committed_many_entries_later(self):
        """A record that had to be kept until one o'clock is gone after a commit at two."""
        jobs = CommittedJobs().with_job("job-1", record(1, keep_until=LATER))

        at_two = jobs.with_job("job-2", record(10_001, at=LATER + timedelta(hours=1)))

        assert jobs.find("job-1") is not None
        assert at_two.find("job-1") is None
        assert len(at_two) == 1

    def test_keeps_a_record_until_the_very_end_of_its_time(self):
        """`keep_until` itself is still within the time."""
        jobs = CommittedJobs().with_job("job-1", record(1, keep_until=LATER))

        assert jobs.with_job("job-2", record(10_001, at=LATER)).find("job-1") is not None

    def test_keeps_a_record_that_few_entries_have_followed_whatever_the_time(self):
        """One commit by a clock that was a year ahead does not switch exactly-once off."""
        jobs = CommittedJobs().with_job("job-1", record(1, keep_until=LATER))

        ahead = jobs.with_job("job-2", record(10_000, at=NOON + timedelta(days=365)))

        assert ahead.find("job-1") is not None

    def test_judges_by_the_last_commit_and_not_by_the_latest_time(self):
        """In an old log one entry may come from the future. The entries after it do not."""
        future = record(2, at=NOON + timedelta(days=365), keep_until=NOON + timedelta(days=366))
        jobs = CommittedJobs().with_job("job-1", record(1)).with_job("job-2", future)

        after = jobs.with_job("job-3", record(20_000, at=LATER))

        assert after.find("job-1") is not None

    def test_copies_few_records_however_many_there_are(self):
        """With ten thousand jobs, the layer that each commit copies holds about a hundred."""
        jobs = CommittedJobs.of((f"job-{n}", record(n)) for n in range(10_000))

        largest = 0
        for n in range(10_000, 10_500):
            jobs = jobs.with_job(f"job-{n}", record(n))
            largest = max(largest, len(jobs._recent))

        assert largest <= 110
        assert len(jobs) == 10_500


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 30), st.integers(0, 30)), max_size=200),
    st.integers(0, 200),
)
def test_memory_depends_on_the_commits_alone(commits, saved_after):
    """
    Whether a memory grew job by job or was saved and read back on the way,
    it holds the same, so every replay of a log agrees.
    """
    grown = other = CommittedJobs()
    at = NOON
    for number, (job, passed, kept) in enumerate(commits):
        at += timedelta(hours=passed)
        committed = record(number * 1_000, at, at + timedelta(hours=kept * 10))
        grown = grown.with_job(f"job-{job}", committed)
        if number == saved_after:
            other = CommittedJobs.of(other.records())
        other = other.with_job(f"job-{job}", committed)

    assert dict(other.records()) == dict(grown.records())
    assert other.last == grown.last
    assert all(other.find(f"job-{job}") == grown.find(f"job-{job}") for job in range(41))
