"""The pods of a job on EKS: what they are called, how large they are, and executors' template."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from sleeper.language.value_classes import dataclass
from sleeper.spark.submit.effective_conf import memory_mib

EPHEMERAL_STORAGE: Final = "sleeper.bulk.import.eks.spark.executor.ephemeral.storage"
SPARK_USER: Final = 185
"""The user of Spark's images, and of ours."""

# Spark adds up to 16 characters to the prefix of executors, and a name has 63 at most.
_PREFIX_MAX: Final = 47
_DIGEST: Final = 8
# Fargate: vCPU and GB of its largest pods, of which it takes 256 MB itself; disks in GiB.
_VCPU_MAX, _POD_MIB_MAX = 16, 120 * 1024 - 256
_DISK_GIB: Final = (20, 175)
_GIB = re.compile(r"(\d+)\s*Gi")


@dataclass(frozen=True, slots=True)
class PodSize:
    """What a pod asks for.

    Attributes:
        cores: Processors.
        mib: Memory: heap and overhead together.
    """

    cores: int
    mib: int

    @classmethod
    def of(cls, role: str, spark_conf: Mapping[str, str]) -> PodSize:
        """Return the size of a driver's or an executor's pod.

        Raises:
            ValueError: Spark's settings have no such size.
        """
        return cls(
            cores=int(spark_conf.get(f"spark.{role}.cores", "1")),
            mib=math.ceil(memory_mib(role, spark_conf)),
        )


def pod_prefix(job_id: str, run_id: str) -> str:
    """Return what the names of a run's pods begin with: the job's id, and a mark of the run.

    >>> pod_prefix("june", "1")
    'job-june-6b86b273'
    """
    mark = hashlib.sha256(run_id.encode()).hexdigest()[:_DIGEST]
    start = f"job-{job_id}"[: _PREFIX_MAX - _DIGEST - 1].rstrip("-")
    return f"{start}-{mark}"


def fargate_failures(spark_conf: Mapping[str, str], storage: str) -> Iterator[str]:
    """Yield why Fargate has no pods of the sizes that are asked for.

    Args:
        spark_conf: Spark's settings.
        storage: The disk of an executor, such as `175Gi`.
    """
    for role in ("driver", "executor"):
        named = f"spark.{role}.cores, memory and memoryOverhead"
        try:
            size = PodSize.of(role, spark_conf)
        except ValueError as error:
            yield f"{named}: {error}"
            continue
        if not 1 <= size.cores <= _VCPU_MAX or size.mib > _POD_MIB_MAX:
            yield (
                f"{named} ask for a pod of {size.cores} vCPU and {size.mib / 1024:.1f} GB, but "
                f"Fargate has {_VCPU_MAX} vCPU and {_POD_MIB_MAX / 1024:.1f} GB at most"
            )
    found = _GIB.fullmatch(storage)
    least, most = _DISK_GIB
    if found is None or not least <= int(found[1]) <= most:
        yield f"{EPHEMERAL_STORAGE} is {storage!r}, but Fargate has {least}Gi to {most}Gi"


def executor_template(storage: str) -> str:
    """Return the template of executors' pods, which Spark completes, as JSON.

    Args:
        storage: The disk of an executor, such as `175Gi`.
    """
    disk = {"ephemeral-storage": storage}
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "spec": {
                "securityContext": pod_security(),
                "containers": [
                    {
                        "name": "executor",
                        "securityContext": container_security(),
                        "resources": {"requests": disk, "limits": disk},
                    }
                ],
            },
        }
    )


def pod_security() -> dict[str, Any]:
    """Return the rules of a pod: no process runs as root; tokens are readable to its group."""
    return {"runAsNonRoot": True, "runAsUser": SPARK_USER, "fsGroup": SPARK_USER}


def container_security() -> dict[str, Any]:
    """Return the rules of a container: it gains no rights."""
    return {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
