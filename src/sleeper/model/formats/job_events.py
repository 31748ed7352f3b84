"""Events of jobs and tasks as JSON, for trackers that keep text."""

from __future__ import annotations

import json
from dataclasses import fields
from datetime import datetime
from typing import Any

from sleeper.model.jobs.events import JobEvent, JobEventType, TaskEvent
from sleeper.model.jobs.kinds import JobKind

_NAMES = {kind: [field.name for field in fields(kind)] for kind in (JobEvent, TaskEvent)}


def encode_event(event: JobEvent | TaskEvent) -> str:
    """Return an event as JSON in ASCII, the same text for the same event."""
    values = {name: getattr(event, name) for name in _NAMES[type(event)]}
    values["at"] = event.at.isoformat(timespec="microseconds")
    return json.dumps(values, sort_keys=True)


def decode_job_event(text: str) -> JobEvent:
    """Return the event of a job that `encode_event` made `text` of."""
    values = _known(JobEvent, text)
    return JobEvent(
        **{
            **values,
            "kind": JobKind(values["kind"]),
            "type": JobEventType(values["type"]),
            "at": datetime.fromisoformat(values["at"]),
            "reasons": tuple(values["reasons"]),
            "locations": tuple(values["locations"]),
        }
    )


def decode_task_event(text: str) -> TaskEvent:
    """Return the event of a task that `encode_event` made `text` of."""
    values = _known(TaskEvent, text)
    kind, at = JobKind(values["kind"]), datetime.fromisoformat(values["at"])
    return TaskEvent(**{**values, "kind": kind, "at": at})


def _known(kind: type[JobEvent | TaskEvent], text: str) -> dict[str, Any]:
    """Return what this version knows of an event: a later version may have written more."""
    return {name: value for name, value in json.loads(text).items() if name in _NAMES[kind]}
