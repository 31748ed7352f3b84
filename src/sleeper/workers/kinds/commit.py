"""The committer: commits what workers ask for, up to a hundred requests of a table in one entry.

Many writers that commit by themselves race for each entry of a table's log; requests in a queue do
not race. Two committers at once stay correct: the log's own condition decides between them.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime

from sleeper.errors import InstanceLost, JobInvalid, SleeperError, TableNotFound, ends_process
from sleeper.jobs.instance_jobs import InstanceJobs
from sleeper.model.jobs.events import JobEvent, JobEventType
from sleeper.model.jobs.kinds import JobKind
from sleeper.model.jobs.messages import ReceivedMessage
from sleeper.model.jobs.redelivery import chain_text, plan_redelivery, reasons_of
from sleeper.ports.jobs import JobQueue
from sleeper.state.commit_request import CommitRequest, read_commit_request
from sleeper.tables.commit_requests import CommitAnswer
from sleeper.workers.worker import IdleWait, WorkerControl

_log = logging.getLogger(__name__)

_REQUESTS_MAX = 100
_RECEIVES_MAX = 1_000  # a request is kept until the log takes or refuses it
_UNEXPECTED_MAX = 3  # one that fails by an error in the code is not tried for ever


@dataclass(frozen=True, slots=True)
class _ReceivedRequest:
    """A request, and the delivery that it came by."""

    message: ReceivedMessage
    request: CommitRequest


class Committer:
    """Commits the requests of an instance's commit queue.

    Args:
        jobs: The instance's jobs.
        control: Says when the worker ends, and counts what is done.
        queue: Where requests come from.
    """

    source = "the commit queue"

    def __init__(self, jobs: InstanceJobs, control: WorkerControl, queue: JobQueue) -> None:
        self._jobs = jobs
        self._control = control
        self._queue = queue

    @property
    def idle_wait(self) -> IdleWait:
        """The queue is waited at."""
        return IdleWait(look_s=self._control.settings.wait_s)

    def run_next(self) -> bool:
        """Commit the requests that wait, up to a hundred; return whether there were any.

        Raises:
            InstanceLost: the instance is no longer what was opened; its requests are put back.
            StorageFailed: the queue cannot be used now.
        """
        count_max = min(_REQUESTS_MAX, self._control.jobs_left)
        messages = self._queue.receive(count_max, wait_s=self._control.settings.wait_s)
        self._control.count(self._commit(messages))
        return bool(messages)

    def _commit(self, messages: list[ReceivedMessage]) -> int:
        by_table: dict[str, list[_ReceivedRequest]] = {}
        for message in messages:
            try:
                request = read_commit_request(message.body)
            except JobInvalid as invalid:
                _log.error("a message asks for no commit: %s", invalid)
                self._queue.bury(message.receipt, str(invalid))
                continue
            except BaseException as failure:
                if ends_process(failure):
                    raise
                _log.exception("message %s was read with an unexpected error", message.message_id)
                self._queue.bury(message.receipt, chain_text(failure))
                continue
            by_table.setdefault(request.table_id, []).append(_ReceivedRequest(message, request))
        return sum(self._commit_table(table_id, each) for table_id, each in by_table.items())

    def _commit_table(self, table_id: str, delivered: list[_ReceivedRequest]) -> int:
        """Commit the requests of one table, record that, and delete their messages."""
        try:
            table = self._jobs.tables.table(table_id)
            answers = table.commit_requests([each.request for each in delivered])
        except InstanceLost:
            for each in delivered:
                self._queue.release(each.message.receipt, counted=False)
            raise
        except SleeperError as failure:
            self._put_back(delivered, failure)
            return 0
        except BaseException as failure:
            if ends_process(failure):
                raise
            return self._commit_after_error(table_id, delivered, failure)
        events = [
            event
            for answer, each in zip(answers, delivered, strict=True)
            if (event := self._event(table_id, answer, each.message.sent))
        ]
        self._jobs.recorder.record(*events)
        self._queue.delete([each.message.receipt for each in delivered])
        try:
            table.delete_requests(each.request for each in delivered)
        except SleeperError as failure:
            _log.warning("stored requests of table %s stay: %s", table_id, failure)
        return len(delivered)

    def _commit_after_error(
        self, table_id: str, delivered: list[_ReceivedRequest], failure: BaseException
    ) -> int:
        """Commit requests one by one after an unexpected error, to find the one that it is of.

        The log knows requests that were committed before the error, so none is added twice.
        """
        if len(delivered) > 1:
            _log.warning("%d requests are tried one by one: %r", len(delivered), failure)
            return sum(self._commit_table(table_id, [each]) for each in delivered)
        _log.error("a request failed with an unexpected error", exc_info=failure)
        self._put_back(delivered, failure, receives_max=_UNEXPECTED_MAX)
        return 0

    def _put_back(
        self,
        delivered: list[_ReceivedRequest],
        failure: BaseException,
        *,
        receives_max: int = _RECEIVES_MAX,
    ) -> None:
        """Put requests back that could not be committed now; bury those that never can be."""
        _log.warning("%d requests were not committed: %s", len(delivered), failure)
        for each in delivered:
            plan = plan_redelivery(
                failure,
                receives=each.message.receives,
                receives_max=receives_max,
                first_s=0.1,
                max_s=30.0,
            )
            if plan.delay_s is None or isinstance(failure, TableNotFound):
                self._queue.bury(each.message.receipt, plan.reason or str(failure))
                self._record_never(each.request, reasons_of(failure))
            else:
                self._queue.release(each.message.receipt, plan.delay_s)

    def _record_never(self, request: CommitRequest, reasons: tuple[str, ...]) -> None:
        """Record that the run of a request is never committed: its table was deleted, mostly."""
        if request.job_id is None:
            return
        event = JobEvent(
            kind=JobKind.INGEST,
            table_id=request.table_id,
            job_id=request.job_id,
            type=JobEventType.FAILED,
            at=self._jobs.recorder.now(),
            run_id=request.run_id,
            task_id=request.task_id,
            reasons=reasons,
            is_final=True,
        )
        self._jobs.recorder.record(event)

    def _event(self, table_id: str, answer: CommitAnswer, sent: datetime) -> JobEvent | None:
        """Return the event for the tracker: files were added, or the job has failed."""
        request = answer.request
        if answer.refusal is not None:
            _log.warning("a request for table %s was refused: %s", table_id, answer.refusal)
        if answer.job_id is None:
            return None
        refused, now = answer.refusal is not None, self._jobs.recorder.now()
        return JobEvent(
            kind=JobKind.INGEST,
            table_id=table_id,
            job_id=answer.job_id,
            type=JobEventType.FAILED if refused else JobEventType.ADDED_FILES,
            at=now,
            run_id=request.run_id,
            task_id=request.task_id,
            files=None if refused else answer.files,
            transaction=answer.transaction,
            commit_s=None if refused else max(0.0, (now - sent).total_seconds()),
            reasons=() if answer.refusal is None else reasons_of(answer.refusal),
            is_final=refused,
        )
