"""The workers that run on Fargate, and the sizes of tasks that it has."""

from __future__ import annotations

from typing import Final

from sleeper.language.value_classes import dataclass
from sleeper.model.known_properties.typed import InstanceProperties

ON_FARGATE: Final = {
    "IngestStack": "ingest",
    "CompactionStack": "compaction",
    "BulkExportStack": "export",
}
"""Stacks of workers on Fargate, and the kinds of these workers."""

_SIZES: Final = {
    256: (512, 1024, 2048),
    512: range(1024, 4096 + 1, 1024),
    1024: range(2048, 8192 + 1, 1024),
    2048: range(4096, 16384 + 1, 1024),
    4096: range(8192, 30720 + 1, 1024),
    8192: range(16384, 61440 + 1, 4096),
    16384: range(32768, 122880 + 1, 8192),
}


@dataclass(frozen=True, slots=True)
class TaskSize:
    """The size of a worker on Fargate.

    Attributes:
        architecture: `X86_64` or `ARM64`.
        cpu: Processor units; 1024 are one vCPU.
        memory_mb: Its memory.
    """

    architecture: str
    cpu: int
    memory_mb: int


def task_size(properties: InstanceProperties, kind: str) -> TaskSize:
    """Return the size of workers of a kind that an instance's properties give."""
    tasks = properties.tasks
    if kind == "ingest":
        return TaskSize(tasks.ingest_architecture, tasks.ingest_cpu, tasks.ingest_memory_mb)
    if kind == "compaction":
        if tasks.compaction_architecture == "ARM64":
            return TaskSize("ARM64", tasks.compaction_arm_cpu, tasks.compaction_arm_memory_mb)
        return TaskSize("X86_64", tasks.compaction_x86_cpu, tasks.compaction_x86_memory_mb)
    if tasks.export_architecture == "ARM64":
        return TaskSize("ARM64", tasks.export_arm_cpu, tasks.export_arm_memory_mb)
    return TaskSize("X86_64", tasks.export_x86_cpu, tasks.export_x86_memory_mb)


def size_failure(cpu: int, memory_mb: int) -> str | None:
    """Say why Fargate has no task of a size; None if it has.

    >>> size_failure(2048, 4096) is None
    True
    """
    allowed = _SIZES.get(cpu)
    if allowed is None:
        return (
            f"Fargate has no task with {cpu} processor units, only {', '.join(map(str, _SIZES))}."
        )
    if memory_mb in allowed:
        return None
    near = min(allowed, key=lambda each: (abs(each - memory_mb), each))
    return (
        f"Fargate has no task with {cpu} processor units and {memory_mb} MB. With so many units "
        f"memory is {allowed[0]} to {allowed[-1]}: {near} is nearest."
    )
