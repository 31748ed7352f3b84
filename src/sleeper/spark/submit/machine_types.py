"""The machine types that EMR has, and what fits one.

`machine_types.csv` has them. It is written by `tools/machine_types.py`, from what EC2 says of each.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Final

_TABLE: Final = Path(__file__).with_name("machine_types.csv")
# EMR leaves to YARN three quarters of a small machine's memory, and all but 8 GiB of a larger
# one's.
_SMALL_MIB: Final = 32 * 1024
_SYSTEM_MIB: Final = 8 * 1024


@dataclass(frozen=True, slots=True)
class MachineType:
    """A machine type of EC2.

    Attributes:
        name: Such as `m7g.4xlarge`.
        cores: Its virtual processors.
        memory_mib: Its memory.
        architecture: `x86_64` or `arm64`.
    """

    name: str
    cores: int
    memory_mib: int
    architecture: str

    @property
    def containers_mib(self) -> int:
        """The most memory that EMR gives to a driver and executors on such a machine."""
        if self.memory_mib <= _SMALL_MIB:
            return self.memory_mib * 3 // 4
        return self.memory_mib - _SYSTEM_MIB


@cache
def machine_types() -> Mapping[str, MachineType]:
    """Return all types, by name."""
    with _TABLE.open(newline="") as file:
        rows = [
            MachineType(row["name"], int(row["cores"]), int(row["memory_mib"]), row["architecture"])
            for row in csv.DictReader(file)
        ]
    return {each.name: each for each in rows}


def near_types(name: str) -> list[str]:
    """Return the types whose names are most like a name that is none, the most alike first."""
    return get_close_matches(name.lower(), machine_types(), n=3)
