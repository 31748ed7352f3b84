"""The machines of a new cluster, by the `sleeper.table.bulk.import.emr.*` settings of a job.

Types have an optional weight after each (`m7g.4xlarge,m7g.8xlarge,2`), in units of capacity.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Final

from sleeper.errors import BadRequest
from sleeper.language.value_classes import dataclass

Setting = Callable[[str], str]
"""Gives a `sleeper.table.bulk.import.emr.*` setting by the part after that."""

_LABEL = re.compile(r"(emr-spark|emr)-(\d+)\.\d+\.\d+")
_RELEASE_MIN = 8  # emr-spark-8.0.0 has Spark 4.0; emr-7 has 3.5
_MARKETS = ("SPOT", "ON_DEMAND")
_TYPE = re.compile(r"[a-z][a-z0-9-]*\.[a-z0-9-]+")
_TYPES_MAX: Final = 5  # of one fleet without an allocation strategy, says AWS
# EMR has no io2 at all, and wants a number of operations for io1, for which there is no property.
_VOLUME_TYPES: Final = ("gp2", "gp3")


@dataclass(frozen=True, slots=True, kw_only=True)
class EbsVolumes:
    """The disks of each executor machine of a new cluster.

    Attributes:
        size_gb: Of one.
        volume_type: As EC2 calls it, such as `gp3`.
        per_instance: How many there are.
    """

    size_gb: int
    volume_type: str
    per_instance: int

    def configuration(self) -> dict[str, Any]:
        """Return them as EMR wants them."""
        volume = {"SizeInGB": self.size_gb, "VolumeType": self.volume_type}
        return {
            "EbsOptimized": True,
            "EbsBlockDeviceConfigs": [
                {"VolumeSpecification": volume, "VolumesPerInstance": self.per_instance}
            ],
        }

    def failures(self) -> Iterator[str]:
        """Yield why EMR has no such disks."""
        if self.volume_type not in _VOLUME_TYPES:
            yield (
                f"sleeper.bulk.import.emr.ebs.volume.type is {self.volume_type!r}, which EMR does "
                f"not have, or not without a number of operations: say {' or '.join(_VOLUME_TYPES)}"
            )


def emr_setting_failures(setting: Setting) -> list[str]:
    """Return what is wrong with the settings of a new cluster, all of it.

    Args:
        setting: Gives a `sleeper.table.bulk.import.emr.*` setting by the part after that.
    """
    failures = [*release_failures(setting("release.label"), "release.label")]
    wanted = [each.strip() for each in setting("instance.architecture").split(",")]
    if len(wanted) > 1:
        failures.append(
            f"instance.architecture is {', '.join(wanted)}, but an archive of Sleeper's packages "
            "is for one architecture: say x86_64 or arm64"
        )
    if (market := setting("executor.market.type")).upper() not in _MARKETS:
        failures.append(f"executor.market.type is {market!r}: say {' or '.join(_MARKETS)}")
    failures += type_failures(setting)
    failures += _capacity_failures(setting)
    return failures


def _capacity_failures(setting: Setting) -> Iterator[str]:
    units: list[int] = []
    for name in ("executor.initial.capacity", "executor.max.capacity"):
        try:
            units.append(capacity(setting, name))
        except BadRequest as error:
            yield str(error)
    if len(units) > 1 and units[0] > units[1]:
        least, most = units
        yield f"executor.initial.capacity is {least}, more than executor.max.capacity, {most}"


def release_failures(label: str, named: str) -> Iterator[str]:
    """Yield why a release of EMR cannot run Sleeper.

    Args:
        label: Such as `emr-spark-8.0.0`.
        named: The setting that has it, for messages.
    """
    found = _LABEL.fullmatch(label)
    if found is None:
        yield f"{named} is {label!r}, which is no release of EMR: say emr-spark-8.0.0"
    elif int(found[2]) < _RELEASE_MIN:
        yield (
            f"{named} is {label}, whose Spark is too old: Sleeper needs Spark 4.0, which "
            "comes with emr-spark-8.0.0"
        )


def type_failures(setting: Setting) -> Iterator[str]:
    """Yield why the machine types of a cluster cannot be.

    Args:
        setting: Gives `instance.architecture` and the types of each role.
    """
    for role in ("master", "executor"):
        try:
            types = [each["InstanceType"] for each in machine_types(setting, role)]
        except BadRequest as error:
            yield str(error)
            continue
        odd = [each for each in types if not _TYPE.fullmatch(each)]
        if odd or not types:
            named = ", ".join(map(repr, odd)) or "none"
            yield f"{role} machine types: {named} is no machine type of EC2, such as m7g.xlarge"
        if len(types) > _TYPES_MAX:
            yield f"{role} machine types are {len(types)}, but EMR takes {_TYPES_MAX} at most"


def machine_types(setting: Setting, role: str) -> list[dict[str, Any]]:
    """Return the machine types of a role, of every architecture, with their weights.

    Raises:
        BadRequest: they cannot be read.
    """
    families = {"x86_64": "x86", "arm64": "arm"}
    wanted = [each.strip() for each in setting("instance.architecture").split(",")]
    configs: list[dict[str, Any]] = []
    for architecture in wanted:
        if architecture not in families:
            raise BadRequest(f"{architecture!r} is no architecture of EMR: say x86_64 or arm64")
        name = f"{role}.{families[architecture]}.instance.types"
        for item in filter(None, map(str.strip, setting(name).split(","))):
            if not item.isdigit():
                configs.append({"InstanceType": item})
            elif configs and "WeightedCapacity" not in configs[-1]:
                configs[-1]["WeightedCapacity"] = int(item)
            else:
                raise BadRequest(
                    f"{name} is {setting(name)!r}: the weight {item} follows no machine type"
                )
    return configs


def capacity(setting: Setting, name: str) -> int:
    """Return a number of capacity units.

    Raises:
        BadRequest: it is none.
    """
    text = setting(name)
    if not text.isdigit() or int(text) < 1:
        raise BadRequest(f"{name} is {text!r}: it must be a whole number above 0")
    return int(text)
