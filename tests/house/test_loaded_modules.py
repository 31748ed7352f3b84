"""What a process loads: start-up is paid by every command, script and worker process.

A room that a path does not need is not loaded on it. Doors import late (`sleeper.late_imports`), and
no other module does.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import sleeper

SOURCE = Path(__file__).resolve().parents[2] / "src"
DOORS = {
    "instance.py": "what an instance does beside reading: jobs, backups, removal",
    "operations/instance_properties.py": "makes instances in every kind of storage",
    "storage/places.py": "one adapter for each kind of URL",
    "table/handle.py": "a read checks no commit",
    "table/rows.py": "a read needs no writer",
    "table/state_stores.py": "one opener for each kind of state store",
    "table/table.py": "the methods of a table",
}
"""The modules that import late, and why."""

LIST_MODULES = """
import json, sys, types
loaded = {
    name
    for name, module in [*sys.modules.items()]
    if type(module) is types.ModuleType
    if not (name.startswith("sleeper.") and hasattr(module, "__path__"))
}
print(json.dumps([*loaded]))
"""
"""Leaves out what is imported and not loaded, and our rooms, which are docstrings."""


def modules_loaded(code: str) -> set[str]:
    """The modules that a new process has loaded when it has run `code`."""
    done = subprocess.run(
        [sys.executable, "-c", code + LIST_MODULES],
        check=True,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(SOURCE)},
    )
    return {*json.loads(done.stdout.splitlines()[-1])}


def foreign_packages(modules: set[str]) -> set[str]:
    """The top packages of modules that are neither ours nor Python's nor of this environment."""
    tops = {name.partition(".")[0] for name in modules} - {"sleeper", "__main__"}
    own = {"_distutils_hack", "sitecustomize", "cython_runtime"}
    return {
        name
        for name in tops - own - sys.stdlib_module_names
        if not re.match("_cython|_sysconfig|__editable__", name)
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> str:
    """An instance with a table."""
    url = str(tmp_path_factory.mktemp("instance") / "one")
    schema = pa.schema([("key", pa.string()), ("n", pa.int64())])
    table = sleeper.connect(url, create=True).create_table("t", schema, row_keys=["key"])
    table.ingest([{"key": "a", "n": 1}, {"key": "b", "n": 2}])
    return url


def test_only_doors_import_late():
    """Elsewhere an import that is not at the top hides what a module depends on."""
    late = {
        str(path.relative_to(SOURCE / "sleeper"))
        for path in (SOURCE / "sleeper").rglob("*.py")
        if "with late_imports():\n    from" in path.read_text()
    }

    assert late == {*DOORS}


def test_importing_the_package_loads_nothing_but_its_errors():
    """Each public name loads its module when it is first used."""
    loaded = modules_loaded("import sleeper")

    ours = {name for name in loaded if name.partition(".")[0] == "sleeper"}
    assert ours == {"sleeper", "sleeper.errors", "sleeper.spark.views"}
    assert foreign_packages(loaded) == set()


def test_the_first_look_up_in_a_folder_loads_no_writer_and_no_query_engine(folder):
    """A script that asks for one key pays for Arrow, the page reader and the state."""
    look_up = f"""
import sleeper
table = sleeper.connect({folder!r}).table("t")
assert table.query(key="b").to_pylist() == [{{"key": "b", "n": 2}}]
"""
    loaded = modules_loaded(look_up)

    rooms = (
        "sleeper.engine.writing.",
        "sleeper.engine.inputs.",
        "sleeper.jobs.",
        "sleeper.services",
    )
    rooms += ("sleeper.storage.aws.", "sleeper.storage.local.jobs.", "sleeper.storage.memory")
    assert [name for name in sorted(loaded) if name.startswith(rooms)] == []
    assert len([name for name in loaded if name.startswith("sleeper")]) <= 150
    wanted = {"pyarrow", "numpy", "cloudpickle", "xxhash", "javaproperties"}
    assert foreign_packages(loaded) - wanted == set()
