"""Images in ECR: their digests, and whether what runs them takes their form.

A *plain* image is one manifest for one processor. An *index* lists several, and is what
`docker buildx build` makes for several platforms, or for one with attestations. Tasks of Fargate
take both; Lambda takes a plain image alone.

1. `resolve_images` asks ECR for the digests of tags, which go into the templates.
2. `check_image` looks at what the templates name.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final
from urllib.request import urlopen

from sleeper.deploy.flow.checks import CheckResult, failure, ok, warning
from sleeper.deploy.flow.template_needs import ImageNeeds
from sleeper.deploy.image_addresses import EcrAddress
from sleeper.errors import SleeperError
from sleeper.storage.aws.clients import aws_client, error_code, vendor_errors

logger = logging.getLogger(__name__)

_MISSING: Final = ("RepositoryNotFoundException", "ImageNotFoundException")
_INDEXES: Final = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
_PLAIN: Final = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
"""The manifests that Lambda takes."""

_OLD: Final = "application/vnd.docker.distribution.manifest.v1+json"
_CONFIGS: Final = (
    "application/vnd.oci.image.config.v1+json",
    "application/vnd.docker.container.image.v1+json",
)
_LAYERS: Final = (
    "application/vnd.oci.image.layer.v1.tar+gzip",
    "application/vnd.docker.image.rootfs.diff.tar.gzip",
    "application/vnd.oci.image.layer.v1.tar",
    "application/vnd.docker.image.rootfs.diff.tar",
)
_ATTESTATION: Final = "attestation-manifest"
_CONFIG_BYTES_MAX: Final = 1 << 20
_ANSWER_MAX_S: Final = 10
_DOCKERFILE: Final = "--file deploy/images/worker/Dockerfile ."
_PUSH_GZIP: Final = "--output type=image,push=true,compression=gzip,force-compression=true"
_UNRESOLVED: Final = (
    "its tag is used as it is, so an image that is pushed with the same tag later changes no "
    "function before another tag is deployed"
)
_PUSH: Final = "docs/deploy/aws.md has the commands that build and push it"


@dataclass(frozen=True)
class Manifest:
    """What a registry says that an image consists of.

    Attributes:
        digest: Its digest.
        media_type: Its media type.
        body: Its text.
    """

    digest: str
    media_type: str
    body: Mapping[str, Any]

    @property
    def is_index(self) -> bool:
        """Whether it lists other manifests."""
        return self.media_type in _INDEXES or "manifests" in self.body

    @property
    def has_attestations(self) -> bool:
        """Whether it lists statements on how an image was built."""
        return any(_is_attestation(each) for each in self.body.get("manifests", ()))

    @cached_property
    def children(self) -> Mapping[str, str]:
        """The digests of the images of an index, by their processors."""
        images = [each for each in self.body.get("manifests", ()) if not _is_attestation(each)]
        return {
            _processor(each.get("platform") or {}): str(each.get("digest") or "") for each in images
        }


def resolve_images(addresses: Iterable[str]) -> tuple[dict[str, str], list[CheckResult]]:
    """Ask ECR for the digests of images that are named by tags.

    Args:
        addresses: Addresses of images.

    Returns:
        Addresses by digest, by addresses by tag, and what is to be told. An image that is not
        there is left to `check_image`.
    """
    digests: dict[str, str] = {}
    findings: list[CheckResult] = []
    no_answer: tuple[type[Exception], ...] = (SleeperError, *vendor_errors())
    for address in addresses:
        if "@" in address:
            continue
        found = EcrAddress.of(address)
        if found is None:
            findings += warning(f"image {address} is not in ECR: {_UNRESOLVED}")
            continue
        try:
            manifest = read_manifest(found)
        except no_answer as error:
            reason = error_code(error) or str(error).partition("\n")[0]
            findings += warning(
                f"ECR does not say which image has the tag {address} ({reason:.200}): {_UNRESOLVED}"
            )
            continue
        if manifest is not None:
            digests[address] = found.by_digest(manifest.digest)
            findings += ok(f"image {address} is {manifest.digest}")
    return digests, findings


def read_manifest(address: EcrAddress) -> Manifest | None:
    """Return the manifest of an image in ECR; None without the image or its repository."""
    name = "imageDigest" if address.is_digest else "imageTag"
    try:
        answer = aws_client("ecr", address.region).batch_get_image(
            registryId=address.account,
            repositoryName=address.repository,
            imageIds=[{name: address.reference}],
            acceptedMediaTypes=[*_INDEXES, *_PLAIN, _OLD],
        )
    except vendor_errors() as error:
        if error_code(error) not in _MISSING:
            raise
        return None
    for each in answer.get("images") or ():
        body = _document(each.get("imageManifest") or "")
        kind = each.get("imageManifestMediaType") or body.get("mediaType") or ""
        return Manifest(str(each["imageId"]["imageDigest"]), str(kind), body)
    return None


def check_image(address: str, needs: ImageNeeds, tag: str | None = None) -> list[CheckResult]:
    """Check that an image is there, in a form that those who run it take.

    Args:
        address: Its address, such as `123456789012.dkr.ecr.eu-west-2.amazonaws.com/sleeper:1.0`.
        needs: What runs it.
        tag: The address by tag that it was found by; None if it was not resolved.
    """
    found = EcrAddress.of(address)
    if found is None:
        return warning(
            f"image {address} is not in ECR: whether it is there, and for which processors, was "
            "not checked"
        )
    manifest = read_manifest(found)
    if manifest is None:
        gone = f"aws ecr list-images --repository-name {found.repository} --region {found.region}"
        known = f"; `{gone}` lists those that are" if found.is_digest else ""
        return failure(f"image {address} is not in ECR: {_PUSH}{known}")
    return _Look(tag or address, found, manifest, needs).findings()


@dataclass(frozen=True, slots=True)
class _Look:
    """A look at the form of an image.

    Attributes:
        name: What it is called.
        address: Where it is.
        manifest: Its manifest.
        needs: What runs it.
    """

    name: str
    address: EcrAddress
    manifest: Manifest
    needs: ImageNeeds

    def findings(self) -> list[CheckResult]:
        if not (self.needs.functions or self.needs.tasks):
            return ok(f"image {self.name} is in ECR")
        if self.manifest.is_index:
            wrong = [*self._index_for_functions(), *self._index_for_tasks()]
            return wrong or ok(f"image {self.name} is in ECR for {_listed(self._processors)}")
        wrong = [*self._form_failures()]
        return wrong or self._plain_for_processors()

    @property
    def _processors(self) -> frozenset[str]:
        return frozenset(self.manifest.children)

    def _index_for_functions(self) -> Iterator[CheckResult]:
        if not self.needs.functions:
            return
        wanted = min(self.needs.functions)
        extra = " with attestations" if self.manifest.has_attestations else ""
        mend = f"build it by `{self._build([wanted])}`"
        if self.needs.tasks - self.needs.functions:  # tasks keep the index
            mend = (
                f"build one by `{self._build([wanted], 'functions')}`, and deploy with --set "
                f"sleeper.image.functions={self._tagged('functions')}"
            )
        if child := self.manifest.children.get(wanted):
            inside = self.address.by_digest(child)
            mend += f"; or take the one that is in it: --set sleeper.image.functions={inside}"
        yield from failure(
            f"image {self.name} is an index of {_listed(self._processors) or 'no image'}{extra}, "
            f"and Lambda takes a single image without attestations: {mend}"
        )

    def _index_for_tasks(self) -> Iterator[CheckResult]:
        missing = self.needs.tasks - self._processors
        if missing:
            yield from failure(
                f"image {self.name} is for {_listed(self._processors) or 'no processor'}, but "
                f"tasks need {_listed(self.needs.tasks)}: build it by "
                f"`{self._build(self.needs.tasks)}`"
            )

    def _form_failures(self) -> Iterator[CheckResult]:
        """Yield what Lambda does not take of a plain image."""
        if not self.needs.functions:
            return
        manifest, build = self.manifest, self._build(self.needs.functions)
        config = str(manifest.body.get("config", {}).get("mediaType", _CONFIGS[0]))
        layers = {
            str(each.get("mediaType", _LAYERS[0])) for each in manifest.body.get("layers", ())
        }
        if manifest.media_type not in _PLAIN:
            yield from failure(
                f"image {self.name} has a manifest of the type {manifest.media_type!r:.100}, which "
                f"Lambda does not take: build it by `{build}`"
            )
        elif config not in _CONFIGS:
            yield from failure(
                f"{self.name} is no image, but an artifact of the type {config!r:.100}: build it "
                f"by `{build}`"
            )
        elif others := sorted(layers - {*_LAYERS}):
            yield from failure(
                f"image {self.name} has layers of the type {', '.join(others)}, which Lambda does "
                f"not take: build it by `{build.replace('--push', _PUSH_GZIP)}`"
            )

    def _plain_for_processors(self) -> list[CheckResult]:
        """Compare the processor of a plain image with those that are needed."""
        functions, tasks = self.needs.functions, self.needs.tasks
        processor, reason = self._own_processor()
        if processor is None and len(functions | tasks) == 1:
            wanted = min(functions | tasks)
            return [
                *ok(f"image {self.name} is in ECR"),
                *warning(f"whether image {self.name} is for {wanted} was not checked: {reason}"),
            ]
        only = f"image {self.name} is for {processor or 'one processor'}"
        findings: list[CheckResult] = []
        if processor is not None and functions - {processor}:
            who = "functions and tasks" if functions == tasks else "functions"
            findings += failure(
                f"{only}, but {who} need {_listed(functions)}: build it by "
                f"`{self._build(functions)}`"
            )
        if tasks - {processor} and not (findings and functions == tasks):
            findings += failure(
                f"{only}, but tasks need {_listed(tasks)}: build it by "
                f"`{self._build(tasks, 'tasks')}`, and deploy with --set "
                f"sleeper.image.tasks={self._tagged('tasks')}; or set the same "
                "*.cpu.architecture everywhere"
            )
        return findings or ok(f"{only}, and in ECR")

    def _own_processor(self) -> tuple[str | None, str]:
        """Return the processor that the image's configuration names, or why it is not known."""
        digest = self.manifest.body.get("config", {}).get("digest")
        if not digest:
            return None, "its manifest names no configuration"
        client = aws_client("ecr", self.address.region)
        no_answer: tuple[type[Exception], ...] = (OSError, *vendor_errors())
        try:
            answer = client.get_download_url_for_layer(
                registryId=self.address.account,
                repositoryName=self.address.repository,
                layerDigest=digest,
            )
            config = _document(download(str(answer["downloadUrl"])))
        except no_answer as error:
            logger.info("the configuration of image %s cannot be read: %s", self.name, error)
            code = error_code(error) or type(error).__name__
            return None, f"its configuration cannot be read ({code})"
        return (_processor(config), "") if config else (None, "its configuration is no JSON")

    def _build(self, processors: Iterable[str], end: str | None = None) -> str:
        platforms = ",".join(f"linux/{each}" for each in sorted(processors))
        return (
            f"docker buildx build --platform {platforms} --provenance=false --sbom=false --push "
            f"--tag {self._tagged(end)} {_DOCKERFILE}"
        )

    def _tagged(self, end: str | None) -> str:
        """Return an address to push to: the image's own tag, or one beside it."""
        found = EcrAddress.of(self.name)
        tag = "TAG" if found is None or found.is_digest else found.reference
        return self.address.by_tag(tag if end is None else f"{tag}-{end}")


def download(url: str) -> str:
    """Return a small text from a URL that ECR gave.

    Raises:
        OSError: there is no answer.
    """
    if not url.startswith("https://"):
        raise OSError(f"{url} is no address of HTTPS")
    with urlopen(url, timeout=_ANSWER_MAX_S) as answer:  # noqa: S310 - HTTPS alone
        return bytes(answer.read(_CONFIG_BYTES_MAX)).decode("utf-8", "replace")


def _document(text: str) -> Mapping[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _is_attestation(listed: Mapping[str, Any]) -> bool:
    kind = (listed.get("annotations") or {}).get("vnd.docker.reference.type")
    return kind == _ATTESTATION or (listed.get("platform") or {}).get("architecture") == "unknown"


def _processor(platform: Mapping[str, Any]) -> str:
    """Return the processor of a platform, after its system if that is not Linux."""
    system, processor = platform.get("os", "linux"), str(platform.get("architecture", "unknown"))
    return processor if system == "linux" else f"{system}/{processor}"


def _listed(processors: Iterable[str]) -> str:
    return " and ".join(sorted(processors))
