"""The sizes of tasks that Fargate has."""

from __future__ import annotations

from typing import Final

_SIZES: Final = {
    256: (512, 1024, 2048),
    512: range(1024, 4096 + 1, 1024),
    1024: range(2048, 8192 + 1, 1024),
    2048: range(4096, 16384 + 1, 1024),
    4096: range(8192, 30720 + 1, 1024),
    8192: range(16384, 61440 + 1, 4096),
    16384: range(32768, 122880 + 1, 8192),
}


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
