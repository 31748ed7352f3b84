"""Copies an instance in a folder, so that what is measured may change it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path


def copy_instance(inputs: Path, copy: Path) -> None:
    """Copy an instance anew; data files never change, so links to them will do."""

    def link_or_copy(source: str, target: str) -> None:
        if source.endswith(".parquet"):
            os.link(source, target)
        else:
            shutil.copy2(source, target)

    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(inputs, copy, copy_function=link_or_copy)
