"""The packages of `sleeper`, as the tree has them and as docs/design.md draws them."""

from __future__ import annotations

import re

from tests.house.sources import PACKAGE, package


def packages_and_modules() -> tuple[set[str], set[str]]:
    """The packages directly in `sleeper`, and the modules beside them."""
    parts = [each.path.relative_to(PACKAGE).parts for each in package()]
    packages = {part[0] for part in parts if len(part) == 2 and part[1] == "__init__.py"}
    modules = {part[0].removesuffix(".py") for part in parts if len(part) == 1}
    return packages, modules - {"__init__", "__main__"}


def drawn_packages(page: str) -> list[str]:
    """The words that stand for packages in the drawing of docs/design.md, from the top on."""
    drawing = page.split("```")[1]
    return [
        word for line in drawing.splitlines() for word in re.findall(r"^\w+|(?<=\|  )\w+", line)
    ]
