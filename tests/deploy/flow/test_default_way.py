"""A file for the batcher of a fresh deployment ends FINISHED, by the packages that it uploaded.

By default the batcher sends to EMR Serverless. The emulator has no such service, so a stand-in
keeps what the function sends to it, StartJobRun, and spark-submit runs exactly that on a standalone
cluster of this machine, whose processes know nothing of this checkout. Other than at Amazon are:

- the service is a server that keeps the request, its application a parameter that has its id;
- `python3.11`, which EMR's image has, is the one that this machine has;
- `s3://` of entry and archive, for which EMR has Hadoop's file system, are files from the bucket;
- the test unpacks the archive in the driver's folder, and gives the driver its `driverEnv.*`;
- machines are a standalone cluster, which says that it has the memory that executors ask for;
- AWS_ENDPOINT_URL names the emulator, keys are nobody's, and JVMs compile little and log less.
"""

from __future__ import annotations

import json
import platform
import shlex
import shutil
import subprocess
import sys
import tarfile
from collections import OrderedDict
from functools import partial
from pathlib import Path
from threading import Thread

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sleeper
from sleeper.deploy.flow import preparation
from sleeper.interfaces.lambdas import handlers, warm_instance
from sleeper.model.jobs.kinds import QueueName
from sleeper.model.jobs.statuses import JobState
from sleeper.model.stacks import DEFAULT_STACKS, StackName
from sleeper.storage.aws import clients
from tests.aws.test_submission import Service
from tests.contracts.s3_server import CREDENTIALS, REGION, s3_credentials
from tests.contracts.servers.installed import left_out
from tests.deploy.flow.emulator import (
    ACCOUNT,
    account,
    cdk_path,
    cloud_with_image,
    synthesise_for,
)
from tests.deploy.flow.test_deployment import (
    SCHEMA,
    Context,
    environment,
    network,
    switch_off_functions,
    take_all,
)
from tests.patience import PATIENCE_S
from tests.spark.class_archive import MISSING, SHORT_LIVED
from tests.spark.cluster.standalone import spark_variables, standalone_cluster
from tests.unit.interfaces.command_line import sleeper as command

__all__ = ["account", "cdk_path", "environment", "network", "s3_credentials"]

pytestmark = pytest.mark.skipif(MISSING is not None, reason=f"LEFT OUT: Spark: {MISSING}")

APPLICATION = "00feed5leeper"
BATCHER = {"sleeper.table.ingest.batcher.job.min.size": "0"}
DRIVER = "spark.emr-serverless.driverEnv."
PYTHON = "python3.11"
PROCESSORS = {"aarch64": "ARM64", "arm64": "ARM64"}.get(platform.machine(), "X86_64")
ROWS = 3_000
STACKS = (StackName.BATCHER, StackName.EMR_SERVERLESS)
"""Of the default, those on the way of a file; other tests deploy the others."""


@pytest.fixture(scope="module")
def cloud(environment):
    """The emulator, with an image in ECR and the id of an instance."""
    return cloud_with_image(environment, "w")


@pytest.fixture
def service(monkeypatch):
    """A server in the place of EMR Serverless, which takes one job."""
    made = Service()
    made.answer(200, {"applicationId": APPLICATION, "jobRunId": "00run", "arn": "arn:aws:x"})
    thread = Thread(target=made.server.serve_forever)
    thread.start()
    monkeypatch.setenv("AWS_ENDPOINT_URL_EMR_SERVERLESS", made.url)
    monkeypatch.setattr(clients, "_clients", {})
    yield made
    made.server.shutdown()
    made.server.server_close()
    thread.join()


@pytest.fixture
def image(tmp_path):
    """A PATH with the Python of EMR's image, which has no Sleeper."""
    found = Path(sys.base_prefix) / "bin" / PYTHON
    python = str(found) if found.exists() else shutil.which(PYTHON)
    if python is None:
        left_out(PYTHON, "it is not on this machine, and EMR's image has it")
    folder = tmp_path / "image"
    folder.mkdir()
    (folder / PYTHON).symlink_to(python)
    path = f"{folder}:/usr/local/bin:/usr/bin:/bin"
    asked = [PYTHON, "-c", "import sleeper"]
    given = subprocess.run(asked, env={"PATH": path}, cwd=folder, capture_output=True, check=False)
    assert given.returncode == 1, "the Python of the image has a Sleeper of its own"
    return path


def with_an_application(endpoint, settings, folder):
    """Templates with a parameter, which the emulator can make, for the application."""
    made = synthesise_for(endpoint, settings, folder)
    for each in made.stacks:
        text = each.template.read_text()
        for name, resource in json.loads(text)["Resources"].items():
            if resource["Type"] == "AWS::EMRServerless::Application":
                template = json.loads(text)
                template["Resources"][name] = {
                    "Type": "AWS::SSM::Parameter",
                    "Properties": {"Name": APPLICATION, "Type": "String", "Value": "-"},
                }
                arn = f"arn:aws:emr-serverless:{REGION}:{ACCOUNT}:/applications/{APPLICATION}"
                text = json.dumps(template).replace(
                    json.dumps({"Fn::GetAtt": [name, "Arn"]}), json.dumps(arn)
                )
        each.template.write_text(text)
    return made


@pytest.fixture
def deployed(cloud, network, monkeypatch):
    """The instance, deployed with stacks of the default; but for processors, this machine's."""
    assert set(STACKS) <= set(DEFAULT_STACKS)
    monkeypatch.setattr(preparation, "synthesise", partial(with_an_application, cloud.endpoint))
    monkeypatch.setattr(warm_instance, "_open", OrderedDict())  # a function begins anew
    done = command(
        *("deploy", "aws", cloud.instance_id, *network, "--yes", "--no-smoke-test"),
        *("--set", f"sleeper.optional.stacks={','.join(STACKS)}"),
        *("--set", f"sleeper.bulk.import.emr.serverless.architecture={PROCESSORS}"),
    )
    if "pip could not fetch" in done.output:
        left_out("packages for Spark", "pip reaches no registry")
    assert done.exit_code == 0, done.output
    switch_off_functions(cloud, "batcher")
    with sleeper.connect(cloud.url) as instance:
        yield instance


def started_by(cloud, instance, files, service, monkeypatch):
    """Submit files to the batcher, call the functions that follow; return the job and the request."""
    monkeypatch.setenv("SLEEPER_INSTANCE", cloud.url)
    monkeypatch.setenv("SLEEPER_QUEUE", QueueName.BULK_IMPORT_EMR_SERVERLESS)
    instance.jobs.submit_files("flights", files)
    take_all(cloud, instance, QueueName.BATCHER, handlers.submit_to_batcher)
    handlers.create_batches({}, Context())
    queue = QueueName.BULK_IMPORT_EMR_SERVERLESS
    take_all(cloud, instance, queue, handlers.start_bulk_imports)
    (job_id,) = {each.job_id for each in instance.jobs.submitted_files()}
    ((path, _, body),) = service.requests
    assert path == f"/applications/{APPLICATION}/jobruns"
    return job_id, body["jobDriver"]["sparkSubmit"]


class Run:
    """What Amazon makes of a request: a folder for the driver, and variables of its own."""

    def __init__(self, cloud, request, folder, path):
        self._cloud, self._folder, self._request = cloud, folder, request
        folder.mkdir()
        words = iter(shlex.split(request["sparkSubmitParameters"]))
        pairs = [(word, next(words).split("=", 1)) for word in words]
        assert {word for word, _ in pairs} == {"--conf"}
        self.conf = {name: text for _, (name, text) in pairs}
        self.variables = {
            name.removeprefix(DRIVER): text
            for name, text in self.conf.items()
            if name.startswith(DRIVER)
        }
        home = {"PATH": path, "HOME": str(folder), "NO_PROXY": "127.0.0.1", **CREDENTIALS}
        self.image = home

    def copied(self, url):
        """Download an object of the instance's bucket; return where it is."""
        bucket, _, key = url.removeprefix("s3://").partition("/")
        path = self._folder / key.rpartition("/")[2]
        self._cloud.client("s3").download_file(bucket, key, str(path))
        return path

    def submit(self, master):
        """Run spark-submit; return what it has printed."""
        archive, _, name = self.conf["spark.archives"].partition("#")
        packages, entry = self.copied(archive), self.copied(self._request["entryPoint"])
        with tarfile.open(packages) as tar:
            tar.extractall(self._folder / name, filter="data")
        here = {
            "spark.archives": f"{packages}#{name}",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.extraJavaOptions": SHORT_LIVED,
            "spark.executor.extraJavaOptions": SHORT_LIVED,
            "spark.log.level": "WARN",
            "spark.ui.enabled": "false",
        }
        conf = {**self.conf, **here}
        spark = spark_variables()
        done = subprocess.run(
            [
                *(f"{spark['SPARK_HOME']}/bin/spark-submit", "--master", master),
                *(word for each in conf.items() for word in ("--conf", "=".join(each))),
                *(str(entry), *self._request["entryPointArguments"]),
            ],
            cwd=self._folder,
            env={
                **self.image,
                **spark,
                **self.variables,
                "AWS_ENDPOINT_URL": self._cloud.endpoint,
            },
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        printed = done.stdout + done.stderr
        assert done.returncode == 0, printed
        return printed


def write_rows(folder):
    """Write Parquet; return its rows and files."""
    rows = pa.table({"id": [f"{n:05}" for n in range(ROWS)], "n": range(ROWS)}, schema=SCHEMA)
    files = [folder / f"{each}.parquet" for each in ("even", "odd")]
    for number, path in enumerate(files):
        pq.write_table(rows.take([*range(number, ROWS, 2)]), path)
    return rows, files


def test_a_file_for_the_batcher_of_a_fresh_deployment_ends_finished(
    deployed, cloud, service, image, tmp_path, monkeypatch
):
    """Given all defaults, when StartJobRun is run as it was sent, then its rows are there (BLK-12)."""
    table = deployed.create_table("flights", SCHEMA, row_keys=["id"], properties=BATCHER)
    rows, files = write_rows(tmp_path)
    bucket = deployed.properties.text("sleeper.data.bucket")
    for path in files:
        cloud.client("s3").upload_file(str(path), bucket, f"in/{path.name}")
    urls = [f"s3://{bucket}/in/{path.name}" for path in files]

    job_id, request = started_by(cloud, deployed, urls, service, monkeypatch)
    run = Run(cloud, request, tmp_path / "driver", image)
    with standalone_cluster(
        tmp_path / "cluster", workers=1, cores=4, memory="64g", environment=run.image
    ) as cluster:
        printed = run.submit(cluster.url)

    status = deployed.jobs.job(job_id)
    assert status.state is JobState.FINISHED, printed
    (finished,) = status.runs
    assert (finished.rows_read, finished.rows_written) == (ROWS, ROWS)
    table.refresh()
    assert table.query().to_arrow().equals(rows.cast(table.arrow_schema))
    assert all(each.findings == () for each in deployed.verify().tables)
