"""An account of AWS in an emulator, with CloudFormation, for tests of deployments.

A module that uses it imports its fixtures:

    from tests.deploy.flow.emulator import account, cloud, s3_credentials
"""

from __future__ import annotations

import json
import os
import sys
import uuid
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from threading import Event

import boto3
import pytest

from sleeper.deploy.flow.deployed_stacks import DeployedStacks
from sleeper.deploy.flow.preparation import Machine
from sleeper.storage.aws import clients
from tests.contracts.s3_server import REGION, require_ministack, s3_credentials
from tests.contracts.servers.installed import CDK
from tests.contracts.servers.running import answers, free_port, running, shared

__all__ = ["account", "cdk_path", "cloud", "s3_credentials"]

ACCOUNT = "000000000000"
EMULATOR_LACKS = (
    "It runs no function from an image, though it takes messages for one: tests call the handler.",
    "It starts no task from an image: tests run the command of the task's definition.",
    "Its CloudFormation takes over no buckets and tables that are there (`--import-existing-resources`).",
    "Its CloudFormation has no applications of EMR Serverless: that stack is left out.",
    "Its CloudFormation has no security configurations of EMR: tests take them out of the template.",
    "It checks no permissions, and has no quotas.",
)
"""What the emulator does not do, as docs/deploy/aws.md says it."""
_SETTINGS = {
    "CLOUDTRAIL_RECORDING": "0",
    "IOT_MTLS_ENABLED": "0",
    "LOG_LEVEL": "ERROR",
    "SFTP_ENABLED": "0",
    "BIND_HOST": "127.0.0.1",
}


@dataclass(frozen=True)
class Cloud:
    """The emulator, and an instance's id that nobody else uses."""

    endpoint: str
    instance_id: str

    @property
    def url(self):
        return f"aws://{self.instance_id}"

    def client(self, service):
        return boto3.client(service, region_name=REGION, endpoint_url=self.endpoint)

    def stacks(self):
        return DeployedStacks(self.instance_id, REGION, rest=lambda _: Event().wait(0.05))

    def machine(self, **environment):
        return Machine(
            environment={**os.environ, **environment},
            region=REGION,
            endpoint=self.endpoint,
            rest=lambda _: Event().wait(0.05),
            pause=lambda _: Event().wait(0.01),
        )

    def make_stack(self, name, resources, owner=None):
        """Make a stack of the instance from resources, without the CDK."""
        full = f"sleeper-{self.instance_id}-{name}"
        self.client("cloudformation").create_stack(
            StackName=full,
            TemplateBody=json.dumps({"Resources": resources}),
            Capabilities=["CAPABILITY_NAMED_IAM"],
            Tags=[{"Key": "sleeper.instance.url", "Value": owner or self.url}],
        )
        self.stacks().settle(full, lambda _: None)
        return full


def put_image(cloud, repository, tag, architectures):
    """Put the manifest of an image into ECR; there is nothing behind it."""
    ecr = cloud.client("ecr")
    with suppress(ecr.exceptions.RepositoryAlreadyExistsException):
        ecr.create_repository(repositoryName=repository)
    platforms = [{"platform": {"architecture": each, "os": "linux"}} for each in architectures]
    kind = "application/vnd.oci.image.index.v1+json"
    manifest = {"schemaVersion": 2, "mediaType": kind, "manifests": platforms}
    with suppress(ecr.exceptions.ImageAlreadyExistsException):
        ecr.put_image(
            repositoryName=repository,
            imageTag=tag,
            imageManifestMediaType=kind,
            imageManifest=json.dumps(manifest),
        )


@contextmanager
def _running_cloud(port, log):
    endpoint = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-W", "ignore", "-m", "ministack"]
    environment = {**_SETTINGS, "GATEWAY_PORT": str(port)}
    with running(command, lambda: answers(f"{endpoint}/_ministack/health"), log, environment):
        yield endpoint


@pytest.fixture(scope="session")
def account(request, tmp_path_factory):
    """The emulator's URL; one emulator for all tests of a run."""
    require_ministack()
    log = tmp_path_factory.mktemp("cloud") / "server.log"
    return shared(request.config, "cloud", lambda: _running_cloud(free_port(), log))


@pytest.fixture
def cloud(account, s3_credentials, monkeypatch):
    """The emulator, where this process finds all services, and an id."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", account)
    monkeypatch.setenv("AWS_REGION", REGION)
    monkeypatch.setattr(clients, "_clients", {})
    return Cloud(account, f"t-{uuid.uuid4().hex[:8]}")


@pytest.fixture(scope="session")
def cdk_path():
    """A PATH that begins with the CDK's command line."""
    return os.pathsep.join([str(CDK.require() / "bin"), os.environ["PATH"]])
