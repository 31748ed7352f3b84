"""An account of AWS in an emulator, with CloudFormation, for tests of deployments.

A module that uses it imports its fixtures:

    from tests.deploy.flow.emulator import account, cloud, s3_credentials
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import uuid
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial, partialmethod
from importlib.metadata import version
from threading import Event
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import boto3
import pytest

from sleeper.deploy.flow import images, preparation
from sleeper.deploy.flow.cdk_command import CdkCommand
from sleeper.deploy.flow.deployed_stacks import DeployedStacks
from sleeper.deploy.flow.preparation import Machine
from sleeper.deploy.names import PROPERTIES_WRITER
from sleeper.deploy.stacks.app import synthesise
from sleeper.storage.aws import clients
from tests.contracts.s3_server import CREDENTIALS, REGION, require_ministack, s3_credentials
from tests.contracts.servers.installed import CDK
from tests.contracts.servers.running import answers, free_port, running, shared
from tests.patience import PATIENCE_S

__all__ = ["account", "cdk_path", "cloud", "s3_credentials"]

ACCOUNT = "000000000000"
EMULATOR_LACKS = (
    "It runs no function from an image, though it takes messages for one: tests call the handler.",
    "So tests deploy the function that writes properties as a program of our sources.",
    "Its CloudFormation gives buckets no tags: tests give them those of the template.",
    "It starts no task from an image: tests run the command of the task's definition.",
    "Its CloudFormation takes over no buckets and tables that are there (`--import-existing-resources`).",
    "Its CloudFormation has no applications of EMR Serverless: a parameter, or nothing, is there.",
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
        """A client of a service, which another server may have that the environment names."""
        endpoint = os.environ.get(f"AWS_ENDPOINT_URL_{service.upper()}", self.endpoint)
        return boto3.client(service, region_name=REGION, endpoint_url=endpoint)

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


def synthesise_for(endpoint, settings, folder):
    """Write templates whose function of properties the emulator can run: a program, not an image."""
    made = synthesise(settings, folder)
    for each in made.stacks:
        template = json.loads(each.template.read_text())
        make_runnable(template, endpoint)
        each.template.write_text(json.dumps(template))
    return made


def make_runnable(template, endpoint):
    """Have the emulator run the function of properties of a template with our sources."""
    for resource in template["Resources"].values():
        made = resource.get("Properties", {})
        if not str(made.get("FunctionName", "")).endswith(f"-{PROPERTIES_WRITER}"):
            continue
        (command,) = made.pop("ImageConfig")["Command"]
        module, _, handler = command.rpartition(".")
        lines = (
            "import sys",
            f"sys.path[:0] = {[each for each in sys.path if each]!r}",
            f"from {module} import {handler} as handler",
        )
        made |= {
            "PackageType": "Zip",
            "Code": {"ZipFile": "\n".join(lines)},
            "Handler": "index.handler",
            "Runtime": "python3.12",
        }
        variables = {**CREDENTIALS, "AWS_ENDPOINT_URL": endpoint, "AWS_REGION": REGION}
        made["Environment"]["Variables"] |= {**variables, "NO_PROXY": "127.0.0.1,localhost"}


def deploy_and_tag(deploy, endpoint, cdk, folder, *given, **more):
    """Deploy stacks, and give buckets the tags of their templates."""
    deploy(cdk, folder, *given, **more)
    s3 = boto3.client("s3", region_name=REGION, endpoint_url=endpoint)
    for path in folder.glob("*.template.json"):
        for resource in json.loads(path.read_text())["Resources"].values():
            if resource["Type"] == "AWS::S3::Bucket":
                made = resource["Properties"]
                s3.put_bucket_tagging(Bucket=made["BucketName"], Tagging={"TagSet": made["Tags"]})


OCI_INDEX = "application/vnd.oci.image.index.v1+json"
OCI_IMAGE = "application/vnd.oci.image.manifest.v1+json"
OCI_CONFIG = "application/vnd.oci.image.config.v1+json"
OCI_LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"


def enter_cloud(patch, endpoint, cdk_path, **more):
    """Have this process, and the commands that it runs, find the emulator and nothing else of AWS.

    Args:
        patch: A MonkeyPatch.
        endpoint: Where services are: the emulator, or a proxy before it.
        cdk_path: A PATH with the CDK's command line.
        more: Other variables.
    """
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        patch.delenv(name)
    for name, value in {
        **CREDENTIALS,
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_REGION": REGION,
        "NO_PROXY": "127.0.0.1",
        "PATH": cdk_path,
        **more,
    }.items():
        patch.setenv(name, value)
    patch.setattr(clients, "_clients", {})
    patch.setattr(preparation, "synthesise", partial(synthesise_for, endpoint))
    deploy = partialmethod(partial(deploy_and_tag, CdkCommand.deploy, endpoint))
    patch.setattr(CdkCommand, "deploy", deploy)


def cloud_with_image(environment, letter):
    """The emulator with the worker's image in ECR, and an id that begins with a letter."""
    made = Cloud(environment, f"{letter}-{uuid.uuid4().hex[:8]}")
    put_image(made, "sleeper/worker", version("sleeper-store"), ["amd64"])
    return made


def put_image(cloud, repository, tag, architectures):
    """Put an image for one processor into ECR, or an index for several. Return its digest."""
    plain = len(architectures) == 1
    children = [
        put_plain(cloud, repository, tag if plain else None, each) for each in architectures
    ]
    if plain:
        return children[0]
    listed = [
        {
            "mediaType": OCI_IMAGE,
            "digest": digest,
            "platform": {"architecture": each, "os": "linux"},
        }
        for digest, each in zip(children, architectures, strict=True)
    ]
    return put_manifest(cloud, repository, tag, OCI_INDEX, {"manifests": listed})


def put_plain(cloud, repository, tag, architecture, *, kinds=(), build="1"):
    """Put an image for one processor into ECR; `kinds` are its types of manifest, config, layers."""
    manifest, config, *layers = kinds or (OCI_IMAGE, OCI_CONFIG, OCI_LAYER)
    make_repository(cloud, repository)
    text = json.dumps({"architecture": architecture, "os": "linux", "created": build})
    digest = put_blob(cloud, repository, text.encode())
    body = {
        "config": {"mediaType": config, "digest": digest, "size": len(text)},
        "layers": [{"mediaType": each, "digest": digest} for each in layers],
    }
    return put_manifest(cloud, repository, tag, manifest, body)


def put_manifest(cloud, repository, tag, kind, body):
    """Put a manifest into ECR, by a tag or by its digest alone. Return the digest."""
    make_repository(cloud, repository)
    text = json.dumps({"schemaVersion": 2, "mediaType": kind, **body})
    put = cloud.client("ecr").put_image(
        repositoryName=repository,
        imageManifestMediaType=kind,
        imageManifest=text,
        **({} if tag is None else {"imageTag": tag}),
    )
    return put["image"]["imageId"]["imageDigest"]


def make_repository(cloud, repository):
    """Make a repository in ECR if there is none."""
    ecr = cloud.client("ecr")
    with suppress(ecr.exceptions.RepositoryAlreadyExistsException):
        ecr.create_repository(repositoryName=repository)


def put_blob(cloud, repository, content):
    """Put a layer or a configuration into the registry behind ECR. Return its digest."""
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    url = f"{cloud.endpoint}/v2/{repository}/blobs/uploads/?digest={digest}"
    with urlopen(Request(url, content, method="POST"), timeout=PATIENCE_S):
        return digest


def download_from(endpoint, url):
    """Read what the emulator says that it is in Amazon's registry from the emulator."""
    with urlopen(f"{endpoint}{urlsplit(url).path}", timeout=PATIENCE_S) as answer:
        return answer.read().decode()


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
    monkeypatch.setattr(images, "download", partial(download_from, account))
    return Cloud(account, f"t-{uuid.uuid4().hex[:8]}")


@pytest.fixture(scope="session")
def cdk_path():
    """A PATH that begins with the CDK's command line."""
    return os.pathsep.join([str(CDK.require() / "bin"), os.environ["PATH"]])
