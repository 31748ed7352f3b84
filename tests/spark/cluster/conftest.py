"""One small cluster for all tests of this folder: two executors, each a process of its own.

A process has one Spark, so these tests are a run of their own, `pytest tests/spark/cluster`; a
run that does not name this folder, or another one by --under, leaves it out.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from sleeper.spark.session import local_session
from tests.contracts.s3_server import CREDENTIALS
from tests.patience import becomes_true
from tests.spark.class_archive import MISSING, SHORT_LIVED, make_class_archive
from tests.spark.conftest import CONF as SHARED_CONF

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
ATTEMPTS = 3
EXECUTORS = 2
WORKERS_SEE = {
    "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
    "NO_PROXY": "127.0.0.1",
    **CREDENTIALS,
}
CONF = {
    **SHARED_CONF,
    "spark.executor.extraJavaOptions": SHORT_LIVED,
    "spark.task.maxFailures": str(ATTEMPTS),
    **{f"spark.executorEnv.{name}": value for name, value in WORKERS_SEE.items()},
}


def pytest_ignore_collect(collection_path, config):
    """Leave this folder out, unless it or something in it was asked for."""
    places = [(config.invocation_params.dir / arg.split("::")[0]).resolve() for arg in config.args]
    if under := config.getoption("--under"):
        places = [(config.rootpath / under).resolve()]
    asked_for = any(place.is_relative_to(HERE) for place in places)
    return None if asked_for and not MISSING else True


@pytest.fixture(scope="session")
def whole_cluster(tmp_path_factory):
    """The session, whose executors come back when they are killed."""
    make_class_archive()
    session = local_session(
        environment=os.environ,
        python=sys.executable,
        master=f"local-cluster[{EXECUTORS},1,1024]",
        memory="1g",
        temp_folder=str(tmp_path_factory.mktemp("spark")),
        conf=CONF,
    )
    yield session
    session.stop()


@pytest.fixture
def cluster(whole_cluster):
    """The session, with all its executors there."""
    known = whole_cluster.sparkContext._jsc.sc().getExecutorMemoryStatus
    assert becomes_true(lambda: known().size() == 1 + EXECUTORS)
    return whole_cluster
