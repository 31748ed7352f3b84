"""The commands of docs/deploy/aws.md work as they stand there, as far as an emulator goes.

Only the id, the network and the bucket of input files are others: an emulator has ids of its own.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.contracts.s3_server import s3_credentials
from tests.deploy.flow.emulator import account, cdk_path, cloud_with_image
from tests.deploy.flow.test_deployment import PAGE, environment, worker_command
from tests.patience import PATIENCE_S
from tests.unit.interfaces.command_line import sleeper as command
from tests.unit.interfaces.command_line import write_schema

__all__ = ["account", "cdk_path", "environment", "s3_credentials"]

FLIGHTS = {
    "rowKeyFields": [{"name": "tailnum", "type": "StringType"}],
    "valueFields": [{"name": "dest", "type": "StringType"}],
}
OF_OTHERS = ("aws", "pip", "npm", "export", "docker", "version=", "registry=", "python")
"""What commands of other programs begin with: `aws s3 cp` is done by boto3, the others are not."""
STACKS = "sleeper.optional.stacks=IngestStack"
ONLY_HERE = ("--set", STACKS, "--yes", "--no-smoke-test")
"""What is added to a deployment: EMR Serverless is not in the emulator, and nobody types a yes."""


def commands():
    """Each command of the page's blocks, without the backslashes of its lines."""
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    for block in (text for language, text in blocks if not language):
        joined = re.sub("'[^']*'", lambda quoted: quoted[0].replace("\n", " "), block)
        for line in joined.replace("\\\n", " ").splitlines():
            if words := shlex.split(line, comments=True):
                yield words


@pytest.fixture
def cloud(environment):
    """The emulator with an image, and an id."""
    return cloud_with_image(environment, "d")


@pytest.fixture
def said(cloud):
    """What stands on the page, and what it is here."""
    ec2 = cloud.client("ec2")
    vpc = ec2.create_vpc(CidrBlock="10.84.0.0/16")["Vpc"]["VpcId"]
    subnets = [
        ec2.create_subnet(VpcId=vpc, CidrBlock=f"10.84.{n}.0/24")["Subnet"]["SubnetId"]
        for n in (1, 2)
    ]
    bucket = f"input-{cloud.instance_id}"
    cloud.client("s3").create_bucket(Bucket=bucket)
    return {
        "sleeper.vpc=vpc-0a1b2c3d4e5f60718": f"sleeper.vpc={vpc}",
        "subnet-0a1b2c3d4e5f60718,subnet-1a2b3c4d5e6f70819": ",".join(subnets),
        "s3://my-bucket": f"s3://{bucket}",
        "aws://demo": cloud.url,
    }


def here(words, said, cloud):
    """A command of the page with what is other here."""
    text = "\n".join(cloud.instance_id if each == "demo" else each for each in words)
    for theirs, ours in said.items():
        text = text.replace(theirs, ours)
    return text.split("\n")


def run(words, cloud, answers):
    """Run one command as the page has it; answer its questions."""
    if words[:2] == ["deploy", "aws"]:
        return command(*words, *ONLY_HERE)
    if words[0] == "destroy":
        return command(*words, answer=f"{next(answers)}\n")
    if words[:2] != ["jobs", "submit"]:
        return command(*words)
    task = worker_command(cloud, "ingest")
    start = "from sleeper.interfaces.cli.main import main; main()"
    task[task.index("--idle") + 1] = "15"
    with subprocess.Popen([sys.executable, "-c", start, *task]) as worker:
        done = command(*words)
        assert worker.wait(PATIENCE_S) == 0
    return done


def test_each_command_of_the_page_works(cloud, said, tmp_path, monkeypatch):
    """Given the page, when its commands are run one after the other, then each does its work."""
    monkeypatch.chdir(tmp_path)
    write_schema(tmp_path, FLIGHTS)
    rows = pa.table({"tailnum": ["N14228", "N24211"], "dest": ["IAH", "MIA"]})
    pq.write_table(rows, "flights.parquet")
    outputs = {}
    answers = iter(("yes", cloud.instance_id))  # data is kept, and then it is not

    for words in (here(each, said, cloud) for each in commands()):
        if words[:3] == ["aws", "s3", "cp"]:
            bucket, _, key = words[4].removeprefix("s3://").partition("/")
            cloud.client("s3").upload_file(words[3], bucket, key)
        elif words[0] == "sleeper":
            done = run(words[1:], cloud, answers)
            assert done.exit_code == 0, (words, done.output)
            outputs.setdefault(" ".join(words[1:3]), done.output)

    assert "IAH" in outputs["query flights"]
    assert "MIA" not in outputs["query flights"]
    assert (tmp_path / "policies" / f"sleeper-{cloud.instance_id}-deployer-1.json").exists()
    assert cloud.stacks().all() == {}


def test_commands_of_the_page_are_ours_or_those_of_others():
    """Given the page, then no command is left out by mistake."""
    unknown = [
        each for each in commands() if each[0] != "sleeper" and not each[0].startswith(OF_OTHERS)
    ]

    assert unknown == []
