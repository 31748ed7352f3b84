"""Images of functions and tasks: digests of tags, and forms that Lambda and Fargate take."""

from __future__ import annotations

import uuid

import pytest
from botocore.exceptions import ClientError

from sleeper.deploy.flow import images
from sleeper.deploy.flow.checks import Level
from sleeper.deploy.flow.images import check_image, resolve_images
from sleeper.deploy.flow.template_needs import ImageNeeds
from tests.contracts.s3_server import REGION
from tests.deploy.flow.emulator import (
    ACCOUNT,
    OCI_CONFIG,
    OCI_IMAGE,
    OCI_INDEX,
    OCI_LAYER,
    account,
    cloud,
    put_image,
    put_manifest,
    put_plain,
    s3_credentials,
)

__all__ = ["account", "cloud", "s3_credentials"]

HOST = f"{ACCOUNT}.dkr.ecr.{REGION}.amazonaws.com"
DOCKER = "application/vnd.docker"
DOCKER_KINDS = (
    f"{DOCKER}.distribution.manifest.v2+json",
    f"{DOCKER}.container.image.v1+json",
    f"{DOCKER}.image.rootfs.diff.tar.gzip",
)
PLAIN = "--provenance=false --sbom=false --push"
ONE = frozenset({"amd64"})
BOTH = frozenset({"amd64", "arm64"})
FUNCTIONS = ImageNeeds(functions=ONE)
TASKS = ImageNeeds(tasks=ONE)
DEFAULT = ImageNeeds(functions=ONE, tasks=ONE)


@pytest.fixture
def repository():
    """The name of a repository that nobody else uses."""
    return f"sleeper-{uuid.uuid4().hex[:8]}/worker"


@pytest.fixture
def image(repository):
    """The address of the image with the tag `1` in it."""
    return f"{HOST}/{repository}:1"


def failures(address, needs):
    return [each.text for each in check_image(address, needs) if each.level is Level.FAILURE]


def levels(address, needs):
    return [each.level for each in check_image(address, needs)]


@pytest.mark.parametrize("kinds", [(), DOCKER_KINDS], ids=["oci", "docker"])
@pytest.mark.parametrize("needs", [FUNCTIONS, TASKS, DEFAULT], ids=["functions", "tasks", "both"])
def test_a_plain_image_for_the_processor_serves_all(cloud, repository, image, kinds, needs):
    """Given one manifest for amd64, then functions and tasks on it may have it."""
    put_plain(cloud, repository, "1", "amd64", kinds=kinds)

    assert levels(image, needs) == [Level.OK]


def test_an_index_is_refused_for_functions_and_taken_for_tasks(cloud, repository, image):
    """Given an index for two processors, then what makes a plain image of it is told."""
    put_image(cloud, repository, "1", ["amd64", "arm64"])
    child = put_plain(cloud, repository, None, "amd64")

    (told,) = failures(image, DEFAULT)

    assert "is an index of amd64 and arm64, and Lambda takes a single image" in told
    assert f"docker buildx build --platform linux/amd64 {PLAIN} --tag {image} " in told
    taken = f"{HOST}/{repository}@{child}"
    assert f"--set sleeper.image.functions={taken}" in told
    assert levels(taken, FUNCTIONS) == [Level.OK]
    assert levels(image, ImageNeeds(tasks=BOTH)) == [Level.OK]


def test_an_index_of_one_processor_and_attestations_is_refused_for_functions(
    cloud, repository, image
):
    """Given what `docker buildx build` pushes by default, then Lambda would refuse it."""
    child = put_plain(cloud, repository, None, "amd64")
    listed = [
        {"digest": child, "platform": {"architecture": "amd64", "os": "linux"}},
        {
            "digest": child,
            "platform": {"architecture": "unknown", "os": "unknown"},
            "annotations": {"vnd.docker.reference.type": "attestation-manifest"},
        },
    ]
    put_manifest(cloud, repository, "1", OCI_INDEX, {"manifests": listed})

    (told,) = failures(image, DEFAULT)

    assert "is an index of amd64 with attestations" in told
    assert PLAIN in told
    assert levels(image, TASKS) == [Level.OK]


def test_tasks_on_other_processors_keep_the_index(cloud, repository, image):
    """Given functions on amd64 and tasks on both, then a plain image gets a name of its own."""
    put_image(cloud, repository, "1", ["amd64", "arm64"])

    (told,) = failures(image, ImageNeeds(functions=ONE, tasks=BOTH))

    assert f"--tag {image}-functions " in told
    assert f"--set sleeper.image.functions={image}-functions" in told


def test_a_plain_image_does_not_serve_tasks_on_two_processors(cloud, repository, image):
    """Given a plain image, then an index is to be made for tasks under another tag."""
    put_image(cloud, repository, "1", ["amd64"])

    (told,) = failures(image, ImageNeeds(functions=ONE, tasks=BOTH))

    assert "is for amd64, but tasks need amd64 and arm64" in told
    assert f"--platform linux/amd64,linux/arm64 {PLAIN} --tag {image}-tasks " in told
    assert f"--set sleeper.image.tasks={image}-tasks" in told


def test_an_index_without_a_processor_of_tasks_is_refused(cloud, repository, image):
    """Given an index for others, then the platforms to build it for are told."""
    put_image(cloud, repository, "1", ["s390x", "arm64"])

    (told,) = failures(image, ImageNeeds(tasks=BOTH))

    assert "is for arm64 and s390x, but tasks need amd64 and arm64" in told
    assert "--platform linux/amd64,linux/arm64" in told


def test_a_plain_image_for_another_processor_is_refused_once(cloud, repository, image):
    """Given an image for arm64, which only its configuration says, then one command mends all."""
    put_image(cloud, repository, "1", ["arm64"])

    (told,) = failures(image, DEFAULT)

    assert "is for arm64, but functions and tasks need amd64" in told
    assert f"--platform linux/amd64 {PLAIN}" in told


@pytest.mark.parametrize(
    ("kinds", "told"),
    [
        ((OCI_IMAGE, OCI_CONFIG, OCI_LAYER.replace("gzip", "zstd")), "compression=gzip"),
        ((OCI_IMAGE, "application/vnd.cncf.helm.config.v1+json", OCI_LAYER), "is no image"),
        ((f"{DOCKER}.distribution.manifest.v1+json", OCI_CONFIG), "does not take"),
    ],
    ids=["zstd", "chart", "schema 1"],
)
def test_forms_that_lambda_does_not_take_are_refused(cloud, repository, image, kinds, told):
    """Given layers of zstd, a chart, or an old manifest, then functions cannot have it."""
    put_plain(cloud, repository, "1", "amd64", kinds=kinds)

    (found,) = failures(image, FUNCTIONS)

    assert told in found
    assert "docker buildx build --platform linux/amd64 --provenance=false" in found


def test_layers_of_zstd_are_taken_for_tasks(cloud, repository, image):
    """Given layers of zstd, then Fargate unpacks them."""
    put_plain(
        cloud, repository, "1", "amd64", kinds=(OCI_IMAGE, OCI_CONFIG, f"{OCI_LAYER[:-4]}zstd")
    )

    assert levels(image, TASKS) == [Level.OK]


def test_a_processor_that_cannot_be_read_is_not_checked(cloud, repository, image, monkeypatch):
    """Given no answer for the configuration, then that is told, and stands in nobody's way."""
    put_image(cloud, repository, "1", ["arm64"])

    def no_answer(_):
        raise TimeoutError

    monkeypatch.setattr(images, "download", no_answer)

    found = check_image(image, DEFAULT)

    assert [each.level for each in found] == [Level.OK, Level.WARNING]
    assert "for amd64 was not checked: its configuration cannot be read" in found[1].text


def test_an_image_that_is_not_there_is_refused(cloud, repository, image):
    """Given no repository, no tag, or a digest that is gone, then where to look is told."""
    (nowhere,) = failures(image, DEFAULT)
    digest = put_image(cloud, repository, "2", ["amd64"])
    (missing,) = failures(image, DEFAULT)
    ecr = cloud.client("ecr")
    ecr.batch_delete_image(repositoryName=repository, imageIds=[{"imageDigest": digest}])
    (gone,) = failures(f"{HOST}/{repository}@{digest}", DEFAULT)

    assert "is not in ECR: docs/deploy/aws.md has the commands" in nowhere
    assert "is not in ECR: docs/deploy/aws.md has the commands" in missing
    assert f"aws ecr list-images --repository-name {repository} --region {REGION}" in gone


def test_an_image_elsewhere_is_not_checked():
    """Given a registry that is not Amazon's, then a warning says that nothing was looked at."""
    assert levels("registry.example/sleeper:1", TASKS) == [Level.WARNING]


def test_an_image_that_only_pods_run_needs_to_be_there(cloud, repository, image):
    """Given an index that neither functions nor tasks run, then any form will do."""
    put_image(cloud, repository, "1", ["arm64", "s390x"])

    assert levels(image, ImageNeeds()) == [Level.OK]


def test_a_tag_is_resolved_to_what_was_pushed_last(cloud, repository, image):
    """Given a rebuilt image with the same tag, then its address by digest is another."""
    first = put_plain(cloud, repository, "1", "amd64", build="first")
    before, told = resolve_images([image])
    second = put_plain(cloud, repository, "1", "amd64", build="second")
    after, _ = resolve_images([image])

    assert before == {image: f"{HOST}/{repository}@{first}"}
    assert [each.text for each in told] == [f"image {image} is {first}"]
    assert after == {image: f"{HOST}/{repository}@{second}"}
    assert first != second


def test_digests_and_missing_tags_are_left_as_they_are(cloud, repository, image):
    """Given a digest, or a tag that the check of images will refuse, then there is nothing to do."""
    digest = put_image(cloud, repository, "2", ["amd64"])

    assert resolve_images([f"{HOST}/{repository}@{digest}", image]) == ({}, [])


def test_a_tag_that_ecr_does_not_resolve_is_used_with_a_warning(cloud, image, monkeypatch):
    """Given no right to ask, or another registry, then what follows from it is told."""

    def denied(_):
        raise ClientError({"Error": {"Code": "AccessDeniedException"}}, "BatchGetImage")

    monkeypatch.setattr(images, "read_manifest", denied)

    digests, told = resolve_images([image, "registry.example/sleeper:1"])

    assert digests == {}
    assert [each.level for each in told] == [Level.WARNING, Level.WARNING]
    assert "(AccessDeniedException): its tag is used as it is" in told[0].text
    assert "registry.example/sleeper:1 is not in ECR: its tag is used as it is" in told[1].text
