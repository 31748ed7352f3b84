"""Writes the machine types of EMR, with their sizes: `src/sleeper/spark/submit/machine_types.csv`.

    pip download moto --no-deps --dest FOLDER
    python tools/machine_types.py FOLDER/moto-*.whl

cfn-lint says which types EMR takes in any region; moto, whose wheel is only read, has the answer of
EC2 for each of them. Types that EC2 no longer has are left out.
"""

from __future__ import annotations

import csv
import gzip
import json
import sys
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any, Final
from zipfile import ZipFile

TABLE: Final = Path(__file__).resolve().parents[1] / "src/sleeper/spark/submit/machine_types.csv"
_OF_EMR: Final = "aws_emr_cluster/instancetypeconfig_instancetype_enum.json"
_OF_EC2: Final = "moto/ec2/resources/instance_types.json.gz"


def main(arguments: list[str]) -> int:
    """Write the table, and say how many types it has; return the exit code."""
    if len(arguments) != 1:
        print("name the wheel of moto: python tools/machine_types.py moto-*.whl", file=sys.stderr)
        return 2
    with ZipFile(arguments[0]) as wheel:
        sizes = json.loads(gzip.decompress(wheel.read(_OF_EC2)))
    lists = files("cfnlint.data.schemas.extensions").joinpath(_OF_EMR).read_text()
    names = sorted(set(listed(json.loads(lists))) & sizes.keys())
    with TABLE.open("w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(("name", "cores", "memory_mib", "architecture"))
        rows.writerows((name, *size_of(sizes[name])) for name in names)
    print(f"{len(names)} types are in {TABLE}")
    return 0


def listed(schema: Any) -> Iterator[str]:
    """Yield every value that a schema lists, at any depth."""
    for name, part in schema.items() if isinstance(schema, dict) else ():
        yield from part if name == "enum" else listed(part)
    for part in schema if isinstance(schema, list) else ():
        yield from listed(part)


def size_of(answer: dict[str, Any]) -> tuple[int, int, str]:
    """Return processors, memory in MiB, and architecture of a type, as EC2 describes it."""
    is_arm = "arm64" in answer["ProcessorInfo"]["SupportedArchitectures"]
    return (
        answer["VCpuInfo"]["DefaultVCpus"],
        answer["MemoryInfo"]["SizeInMiB"],
        "arm64" if is_arm else "x86_64",
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
