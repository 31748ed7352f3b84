"""DataFusion is loaded in a way that keeps its memory small."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

LOAD = """
import os
from sleeper.engine.reading.session import datafusion
print(datafusion().found, os.environ.get("MIMALLOC_ALLOW_THP"))
"""


@pytest.mark.parametrize(("given", "seen"), [(None, "0 None"), ("1", "1 1")])
def test_datafusion_is_loaded_without_huge_pages_unless_somebody_wants_them(tmp_path, given, seen):
    """The allocator keeps freed memory of other threads, in huge pages much more of it."""
    # given a DataFusion that tells what its allocator would find in the environment
    fake = tmp_path / "datafusion"
    fake.mkdir()
    (fake / "__init__.py").write_text('import os; found = os.environ.get("MIMALLOC_ALLOW_THP")')
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    environment.pop("MIMALLOC_ALLOW_THP", None)
    if given is not None:
        environment["MIMALLOC_ALLOW_THP"] = given

    # when it is loaded
    done = subprocess.run(
        [sys.executable, "-c", LOAD], env=environment, capture_output=True, text=True, check=True
    )

    # then it found what was wanted, and the environment of this process is as before
    assert done.stdout.strip() == seen
