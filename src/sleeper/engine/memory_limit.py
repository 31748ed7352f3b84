"""How much memory this process may still use, and errors of libraries that lack it.

Libraries in other languages end the process when an allocation fails, so no error can be raised
then: what needs much memory asks first. Limits are those of the kernel: RLIMIT_DATA, RLIMIT_AS,
and the control groups that containers have.
"""

from __future__ import annotations

import re
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from logging import getLogger
from pathlib import Path
from typing import Final

import pyarrow as pa

from sleeper.errors import StorageFailed

_LOG = getLogger(__name__)
_STATUS: Final = Path("/proc/self/status")
_GROUPS: Final = Path("/proc/self/cgroup")
_MOUNTED: Final = Path("/sys/fs/cgroup")
_RLIMITS: Final = ((resource.RLIMIT_DATA, "VmData"), (resource.RLIMIT_AS, "VmSize"))
_NAMES: Final = {"VmData": "RLIMIT_DATA", "VmSize": "RLIMIT_AS"}
_SHORTAGE: Final = re.compile(
    r"out of memory|not enough memory|allocation (?:error|failed)|cannot allocate memory|"
    r"failed to allocate|launch worker thread|can't start new thread",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class MemoryRoom:
    """What is left of the tightest limit.

    Attributes:
        room_bytes: How much memory this process may use in addition.
        limit_bytes: The limit.
        name: What limits it, for messages.
    """

    room_bytes: int
    limit_bytes: int
    name: str


def memory_room() -> MemoryRoom | None:
    """Return what is left of the tightest limit; None if there is none, or nothing says so."""
    return min([*_of_process(), *_of_groups()], key=lambda each: each.room_bytes, default=None)


def check_room(what: str, least_bytes: int, instead: str) -> MemoryRoom | None:
    """Check that there is so much room, and return what there is.

    Args:
        what: What needs it, as the beginning of a sentence.
        least_bytes: The least with which it works.
        instead: What else may be done, as the end of a sentence.

    Raises:
        StorageFailed: there is less. Nothing was written.
    """
    found = memory_room()
    if found is not None and found.room_bytes < least_bytes:
        lacking = least_bytes - found.room_bytes
        raise StorageFailed(
            f"{what} needs {_mb(least_bytes)} of memory, and this process may use "
            f"{_mb(max(0, found.room_bytes))} more by {found.name}. Nothing was written. Raise "
            f"that limit from {_mb(found.limit_bytes)} to {_mb(found.limit_bytes + lacking)} or "
            f"more, or {instead}."
        )
    return found


def _mb(size_bytes: int) -> str:
    return f"{-(-size_bytes // (1 << 20)):,} MB"


def _of_process() -> Iterator[MemoryRoom]:
    if not _STATUS.exists():
        return
    used = dict(re.findall(r"^(Vm\w+):\s+(\d+) kB$", _STATUS.read_text(), re.MULTILINE))
    for number, name in _RLIMITS:
        limit, _ = resource.getrlimit(number)
        if limit != resource.RLIM_INFINITY and name in used:
            yield MemoryRoom(limit - (int(used[name]) << 10), limit, _NAMES[name])


def _of_groups() -> Iterator[MemoryRoom]:
    """Yield the room of each control group that this process is in, of version 1 and 2."""
    try:
        lines = _GROUPS.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            top, names = _MOUNTED, ("memory.max", "memory.current")
        elif "memory" in controllers.split(","):
            top = _MOUNTED / "memory"
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes")
        else:
            continue
        inside = top / path.lstrip("/")
        for folder in (inside, *inside.parents):
            if top in (folder, *folder.parents) and (found := _of_group(folder, *names)):
                yield found


def _of_group(folder: Path, limit_name: str, used_name: str) -> MemoryRoom | None:
    try:
        limit = (folder / limit_name).read_text().strip()
        used = int((folder / used_name).read_text())
        parts = (folder / "memory.stat").read_text()
    except (OSError, ValueError):
        return None
    if not limit.isdecimal() or int(limit) >= 1 << 60:
        return None
    # The kernel gives up cached parts of files before it ends a process.
    cached = re.findall(r"^(?:in)?active_file (\d+)$", parts, re.MULTILINE)
    room = int(limit) - used + sum(map(int, cached))
    return MemoryRoom(room, int(limit), "the memory limit of its control group (its container)")


@contextmanager
def shortages_as_errors(what: str) -> Iterator[None]:
    """Raise what libraries raise for want of memory as our error.

    Args:
        what: What was done, as the beginning of a sentence.

    Raises:
        StorageFailed: there was too little memory. Nothing was committed.
    """
    try:
        yield
    except (MemoryError, OSError, RuntimeError, pa.ArrowException) as error:
        if not isinstance(error, MemoryError) and not _SHORTAGE.search(str(error)):
            raise
        reason = f" ({str(error)[:200]})" if str(error) else ""
        raise StorageFailed(
            f"{what} ran out of memory{reason}. Nothing was committed. Give the process more "
            "memory, or let fewer things run in it at once."
        ) from error
