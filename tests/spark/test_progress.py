"""What a caller learns of running Spark jobs, and that none outlives the call that started it."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from sleeper.spark.progress import StageProgress, cancel_on_interrupt, stage_progress
from tests.patience import becomes_true


def is_connect(spark):
    return type(spark).__module__.startswith("pyspark.sql.connect")


def rows_in_two_stages(spark, *, tasks):
    """A job of two stages: `tasks` tasks, a shuffle, two tasks."""
    return spark.range(0, 10 * tasks, 1, tasks).repartition(2).toArrow()


def rows_that_wait_for(spark, opened, *, tasks, started=None):
    """A job whose tasks write a file each into `started`, and wait until `opened` is there."""

    def wait(batches):
        from pathlib import Path  # noqa: PLC0415 - travels to the worker

        if started:
            (Path(started) / f"{os.getpid()}-{time.monotonic_ns()}").touch()
        while not Path(opened).exists():
            time.sleep(0.02)
        yield from batches

    return spark.range(0, tasks, 1, tasks).mapInArrow(wait, "id long").toArrow()


def threads_of_ours():
    return [thread for thread in threading.enumerate() if thread.name.startswith("sleeper")]


class TestProgress:
    """Stages of the jobs of a block, as they go on."""

    def test_ends_with_every_stage_complete(self, spark):
        """When the block is left, the last news of each stage is that all its tasks are done."""
        news = []

        with stage_progress(spark, news.append, labels=("reading", "writing")):
            rows = rows_in_two_stages(spark, tasks=3)

        last = {stage.label: (stage.tasks_done, stage.tasks_total) for stage in news}
        assert rows.num_rows == 30
        assert last == {"reading": (3, 3), "writing": (2, 2)}

    @pytest.mark.every_spark
    def test_ends_with_no_stage_half_done(self, spark):
        """Spark Connect may keep quiet about a stage, but what it reported ends complete."""
        news = []

        with stage_progress(spark, news.append):
            rows_in_two_stages(spark, tasks=8)

        last = {stage.label: (stage.tasks_done, stage.tasks_total) for stage in news}
        assert [label for label, (done, total) in last.items() if done != total] == []

    def test_numbers_the_stages_that_have_no_label(self, spark):
        """A stage for which the caller has no word is called by its number in the block."""
        news = []

        with stage_progress(spark, news.append, labels=("reading",)):
            rows_in_two_stages(spark, tasks=2)

        assert news[-1] == StageProgress("stage 2", 2, 2)

    @pytest.mark.every_spark
    def test_never_goes_back(self, spark):
        """The number of tasks done of a stage only grows."""
        news = []

        with stage_progress(spark, news.append):
            rows_in_two_stages(spark, tasks=4)

        for label in {stage.label for stage in news}:
            done = [stage.tasks_done for stage in news if stage.label == label]
            assert done == sorted(set(done))

    @pytest.mark.every_spark
    def test_comes_while_a_job_runs(self, spark, tmp_path):
        """News arrives before the job has ended: here a task waits for news of another."""
        opened = tmp_path / "opened"

        def the_last_waits(batches):
            from pathlib import Path  # noqa: PLC0415 - travels to the worker

            for batch in batches:
                while batch["id"][0].as_py() == 2 and not Path(opened).exists():
                    time.sleep(0.02)
                yield batch

        def open_at_first_news(_):
            opened.touch()

        with stage_progress(spark, open_at_first_news):
            rows = spark.range(0, 3, 1, 3).mapInArrow(the_last_waits, "id long").toArrow()

        assert rows.num_rows == 3

    @pytest.mark.every_spark
    def test_sees_no_job_of_others(self, spark, tmp_path):
        """A job that another thread of the process runs at the same time is not reported."""
        opened, news = tmp_path / "opened", []
        other = threading.Thread(
            target=rows_that_wait_for,
            args=(spark, str(opened)),
            kwargs={"tasks": 1, "started": str(tmp_path)},
        )
        other.start()
        assert becomes_true(lambda: any(tmp_path.iterdir()))

        with stage_progress(spark, news.append):
            rows_in_two_stages(spark, tasks=2)
        opened.touch()
        other.join()

        assert {stage.label for stage in news} <= {"stage 1", "stage 2"}

    @pytest.mark.every_spark
    def test_leaves_no_thread(self, spark):
        """When the block is left, nothing of ours is running."""
        with stage_progress(spark, [].append):
            rows_in_two_stages(spark, tasks=2)

        assert threads_of_ours() == []

    def test_hands_on_what_the_report_raises(self, spark):
        """A report that fails does not stop the jobs; its error comes when they are done."""
        done = []

        def refuse(_):
            raise OSError("no terminal")

        with pytest.raises(OSError, match="no terminal"), stage_progress(spark, refuse):
            done.append(rows_in_two_stages(spark, tasks=2).num_rows)

        assert done == [20]


@pytest.mark.every_spark
class TestCancelling:
    """What happens to Spark's jobs when the call that waits for them is broken off."""

    def interrupt_when_started(self, folder):
        """Ctrl-C, as the terminal sends it, once a task runs."""
        assert becomes_true(lambda: any(folder.iterdir()))
        os.kill(os.getpid(), signal.SIGINT)

    def test_ctrl_c_cancels_the_jobs_of_the_block_and_goes_on(self, spark, tmp_path):
        """
        KeyboardInterrupt leaves the block, its job ends though its tasks would wait for ever,
        and the session answers the next question, even before the exception is handled.
        """
        never, started = tmp_path / "never", tmp_path / "started"
        started.mkdir()
        threading.Thread(target=self.interrupt_when_started, args=(started,)).start()

        try:
            with cancel_on_interrupt(spark):
                rows_that_wait_for(spark, str(never), tasks=2, started=str(started))
        except KeyboardInterrupt:
            count = spark.range(7).count()

        assert count == 7
        assert threads_of_ours() == []

    def test_ctrl_c_between_jobs_cancels_the_next(self, spark, tmp_path):
        """A job that the block starts after Ctrl-C does not run on either."""
        never = tmp_path / "never"

        with pytest.raises(KeyboardInterrupt), cancel_on_interrupt(spark):
            os.kill(os.getpid(), signal.SIGINT)
            rows_that_wait_for(spark, str(never), tasks=2)

        assert not never.exists()

    def test_a_second_ctrl_c_does_not_wait(self, spark):
        """Whoever presses Ctrl-C twice gets KeyboardInterrupt where the block is."""
        reached = ["block"]

        with pytest.raises(KeyboardInterrupt), cancel_on_interrupt(spark):
            os.kill(os.getpid(), signal.SIGINT)
            reached.append("first")
            os.kill(os.getpid(), signal.SIGINT)
            reached.append("second")

        assert reached == ["block", "first"]

    def test_a_handler_of_the_user_stays(self, spark):
        """Where the program has an answer of its own to Ctrl-C, the block leaves it there."""
        pressed = []
        before = signal.signal(signal.SIGINT, lambda *_: pressed.append("Ctrl-C"))

        try:
            with cancel_on_interrupt(spark):
                os.kill(os.getpid(), signal.SIGINT)
        finally:
            signal.signal(signal.SIGINT, before)

        assert pressed == ["Ctrl-C"]

    def test_jobs_of_others_go_on(self, spark, tmp_path):
        """A job that another thread started before is not cancelled with the block's."""
        opened, started, rows = tmp_path / "opened", tmp_path / "started", []
        started.mkdir()
        other = threading.Thread(
            target=lambda: rows.append(
                rows_that_wait_for(spark, str(opened), tasks=1, started=str(started))
            )
        )
        other.start()
        assert becomes_true(lambda: any(started.iterdir()))

        with pytest.raises(ZeroDivisionError), cancel_on_interrupt(spark):
            spark.range(3).count()
            _ = 1 / 0
        opened.touch()
        other.join()

        assert [table.num_rows for table in rows] == [1]

    def test_a_thread_that_helps_adds_the_tag(self, spark, tmp_path):
        """A job of another thread that carries the block's tag is cancelled with the block."""
        never, started, errors = tmp_path / "never", tmp_path / "started", []
        started.mkdir()

        def help_the_block(jobs):
            jobs.start()
            try:
                rows_that_wait_for(spark, str(never), tasks=1, started=str(started))
            except Exception as error:  # noqa: BLE001 - its class differs between the kinds
                errors.append(str(error))

        with pytest.raises(ZeroDivisionError), cancel_on_interrupt(spark) as jobs:
            helper = threading.Thread(target=help_the_block, args=(jobs,))
            helper.start()
            assert becomes_true(lambda: any(started.iterdir()))
            _ = 1 / 0
        helper.join()

        assert len(errors) == 1
        assert "cancel" in errors[0].lower()

    def test_the_next_job_carries_no_tag(self, spark):
        """After the block the thread's jobs are its own again, however the block ended."""
        with cancel_on_interrupt(spark):
            spark.range(1).count()
        with pytest.raises(ZeroDivisionError), cancel_on_interrupt(spark):
            _ = 1 / 0

        tags = spark.getTags() if is_connect(spark) else spark.sparkContext.getJobTags()

        assert not tags

    def test_pyspark_answers_ctrl_c_again_afterwards(self, spark):
        """The handler of SIGINT that was there before the block is there after it."""
        before = signal.getsignal(signal.SIGINT)

        with cancel_on_interrupt(spark):
            within = signal.getsignal(signal.SIGINT)

        assert within is not before
        assert signal.getsignal(signal.SIGINT) is before
