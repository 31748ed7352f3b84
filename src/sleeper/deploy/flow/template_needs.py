"""What the templates of a deployment need that must be there before: images, and processors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from sleeper.deploy.image_addresses import ecr_images_in

_FUNCTION: Final = "AWS::Lambda::Function"
_TASKS: Final = "AWS::ECS::TaskDefinition"
_MAXIMUM: Final = "SLEEPER_WORKERS_MAX_"
_TASK: Final = "SLEEPER_TASK_"
_UNITS: Final = 1024
"""Processor units of a vCPU."""


@dataclass(frozen=True, slots=True)
class ImageNeeds:
    """What runs an image.

    Attributes:
        functions: The processors of functions, as registries name them: `amd64`, `arm64`.
        tasks: Those of tasks.
    """

    functions: frozenset[str] = frozenset()
    tasks: frozenset[str] = frozenset()

    def __or__(self, other: ImageNeeds) -> ImageNeeds:
        """Return what runs either."""
        return ImageNeeds(self.functions | other.functions, self.tasks | other.tasks)


def needed_images(templates: Iterable[Mapping[str, Any]]) -> dict[str, ImageNeeds]:
    """Return the addresses of images, and what runs each."""
    found: dict[str, ImageNeeds] = {}
    for resource in _resources(templates):
        for address, needs in _images(resource["Type"], resource.get("Properties", {})):
            found[address] = found.get(address, ImageNeeds()) | needs
    return dict(sorted(found.items()))


def reserved_concurrency(templates: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Return the functions that reserve concurrency of the account, by name, and how much."""
    found = (each["Properties"] for each in _resources(templates) if each["Type"] == _FUNCTION)
    return {
        str(each["FunctionName"]): int(each["ReservedConcurrentExecutions"])
        for each in found
        if each.get("ReservedConcurrentExecutions")
    }


def most_vcpus(templates: Iterable[Mapping[str, Any]]) -> float:
    """Return how many vCPUs all workers on Fargate take when as many run as may."""
    resources = list(_resources(templates))
    units = {
        str(each["Properties"].get("Family")): int(each["Properties"].get("Cpu", 0))
        for each in resources
        if each["Type"] == _TASKS
    }
    total = 0.0
    for each in resources:
        if each["Type"] != _FUNCTION:
            continue
        environment = each["Properties"].get("Environment", {}).get("Variables", {})
        for name, most in environment.items():
            if name.startswith(_MAXIMUM):
                family = str(environment.get(_TASK + name.removeprefix(_MAXIMUM)))
                total += units.get(family, 0) / _UNITS * int(most)
    return total


def _resources(templates: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    return (each for template in templates for each in template.get("Resources", {}).values())


def _images(kind: str, properties: Mapping[str, Any]) -> Iterator[tuple[str, ImageNeeds]]:
    if kind == _FUNCTION:
        processor = _processor((properties.get("Architectures") or ["x86_64"])[0])
        if "ImageUri" in properties.get("Code", {}):
            yield properties["Code"]["ImageUri"], ImageNeeds(functions=frozenset({processor}))
    elif kind == _TASKS:
        platform = properties.get("RuntimePlatform", {})
        processor = _processor(platform.get("CpuArchitecture", "X86_64"))
        for container in properties.get("ContainerDefinitions", ()):
            yield container["Image"], ImageNeeds(tasks=frozenset({processor}))
    else:
        for address in ecr_images_in(str(properties)):
            yield address, ImageNeeds()


def _processor(name: str) -> str:
    """Return how registries name a processor of Amazon's."""
    return {"x86_64": "amd64"}.get(name.lower(), name.lower())
