"""What the templates of a deployment need that must be there before: images, and processors."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

_IMAGE: Final = re.compile(r"\d{12}\.dkr\.ecr\.[^/\s\"']+/[^\s\"']+")
_MAXIMUM: Final = "SLEEPER_WORKERS_MAX_"
_TASK: Final = "SLEEPER_TASK_"
_UNITS: Final = 1024
"""Processor units of a vCPU."""


def needed_images(templates: Iterable[Mapping[str, Any]]) -> dict[str, frozenset[str]]:
    """Return the addresses of images, and the processors that each must be for."""
    found: dict[str, set[str]] = {}
    for resource in _resources(templates):
        properties = resource.get("Properties", {})
        architecture = _architecture(resource["Type"], properties)
        for uri in _IMAGE.findall(str(properties)):
            found.setdefault(uri, set())
            if architecture is not None:
                found[uri].add(architecture)
    return {uri: frozenset(each) for uri, each in sorted(found.items())}


def most_vcpus(templates: Iterable[Mapping[str, Any]]) -> float:
    """Return how many vCPUs all workers on Fargate take when as many run as may."""
    resources = list(_resources(templates))
    units = {
        str(each["Properties"].get("Family")): int(each["Properties"].get("Cpu", 0))
        for each in resources
        if each["Type"] == "AWS::ECS::TaskDefinition"
    }
    total = 0.0
    for each in resources:
        if each["Type"] != "AWS::Lambda::Function":
            continue
        environment = each["Properties"].get("Environment", {}).get("Variables", {})
        for name, most in environment.items():
            if name.startswith(_MAXIMUM):
                family = str(environment.get(_TASK + name.removeprefix(_MAXIMUM)))
                total += units.get(family, 0) / _UNITS * int(most)
    return total


def _resources(templates: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    return (each for template in templates for each in template.get("Resources", {}).values())


def _architecture(kind: str, properties: Mapping[str, Any]) -> str | None:
    if kind == "AWS::Lambda::Function":
        return str((properties.get("Architectures") or ["x86_64"])[0])
    if kind == "AWS::ECS::TaskDefinition":
        return str(properties.get("RuntimePlatform", {}).get("CpuArchitecture", "X86_64")).lower()
    return None
