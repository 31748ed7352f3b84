"""What every part of `InstanceJobs` stands on: queues, events, tables and results."""

from __future__ import annotations

from datetime import datetime, timedelta

from sleeper.errors import TableNotFound
from sleeper.jobs.event_recorder import EventRecorder
from sleeper.jobs.job_results import JobResults
from sleeper.jobs.job_tables import JobTables
from sleeper.model.jobs.events import JobEvent, JobEventType
from sleeper.model.jobs.kinds import JobKind, QueueName
from sleeper.model.jobs.messages import NewMessage
from sleeper.ports.ids import NewId
from sleeper.ports.jobs import JobStores

CHARGED_LOOK = timedelta(seconds=10)
"""How long those who ask for jobs share a look at dead letters where each look costs money."""


class JobsHandle:
    """The parts that jobs of an instance need.

    Args:
        stores: Where queues and events are.
        tables: Finds tables and input files.
        recorder: Writes events.
        results: What queries and exports wrote.
        new_id: Makes the ids of jobs.
        url: The instance, for messages.
    """

    def __init__(
        self,
        stores: JobStores,
        tables: JobTables,
        recorder: EventRecorder,
        results: JobResults,
        *,
        new_id: NewId,
        url: str,
    ) -> None:
        self.stores = stores
        self.tables = tables
        self.recorder = recorder
        self.results = results
        self.new_id = new_id
        self.url = url
        self._looked: dict[JobKind, datetime] = {}

    def may_look(self, kind: JobKind) -> bool:
        """Return whether nobody looked at the dead letters of a kind of jobs for some seconds."""
        now, last = self.recorder.now(), self._looked.get(kind)
        if last is not None and abs(now - last) < CHARGED_LOOK:
            return False
        self._looked[kind] = now
        return True

    def send_message(self, queue: QueueName, body: str) -> str:
        """Send a message, and return its id."""
        message_id = self.new_id()
        self.stores.queue(queue).send([NewMessage(body=body, message_id=message_id)])
        return message_id

    def record_accepted(
        self,
        kind: JobKind,
        table_id: str,
        job_id: str,
        input_files: int | None,
        *,
        message_id: str,
    ) -> None:
        """Record that a job was sent to its queue, by a message of this id."""
        event = JobEvent(
            kind=kind,
            table_id=table_id,
            job_id=job_id,
            type=JobEventType.ACCEPTED,
            at=self.recorder.now(),
            input_files=input_files,
            message_id=message_id,
        )
        self.recorder.record(event)

    def table_id(self, name: str) -> str:
        """Return the id of a table.

        Raises:
            TableNotFound: there is none of this name.
        """
        record = self.tables.find(table_id=None, table_name=name)
        if record is None:
            raise TableNotFound(f"no table {name!r} in {self.url}")
        return record.table_id
