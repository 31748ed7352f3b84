"""Addresses of images: the registry, the repository, and a tag or a digest."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_ECR: Final = re.compile(
    r"(?P<registry>(?P<account>\d{12})\.dkr\.ecr(?:-fips)?\.(?P<region>[a-z0-9-]+)\.[a-z0-9.-]+)/"
    r"(?P<repository>[^:@]+)[:@](?P<reference>.+)"
)
_IN_TEXT: Final = re.compile(r"\d{12}\.dkr\.ecr(?:-fips)?\.[^/\s\"']+/[^\s\"']+")
_DIGEST: Final = "sha256:"


@dataclass(frozen=True, slots=True)
class EcrAddress:
    """The address of an image in a private registry of ECR.

    >>> found = EcrAddress.of("123456789012.dkr.ecr.eu-west-2.amazonaws.com/sleeper/worker:1.0")
    >>> found.region, found.repository, found.reference
    ('eu-west-2', 'sleeper/worker', '1.0')

    Attributes:
        registry: The host.
        account: The account that has the registry.
        region: Its region.
        repository: The name of the repository.
        reference: The tag, or the digest with `sha256:` before it.
    """

    registry: str
    account: str
    region: str
    repository: str
    reference: str

    @classmethod
    def of(cls, address: str) -> EcrAddress | None:
        """Return the parts of an address; None for an image that is not in ECR."""
        found = _ECR.fullmatch(address)
        return None if found is None else cls(**found.groupdict())

    @property
    def is_digest(self) -> bool:
        """Whether it names one content for ever."""
        return self.reference.startswith(_DIGEST)

    def repository_arn(self, partition: str) -> str:
        """Return the ARN of the repository, in a part of AWS."""
        where = f"{self.region}:{self.account}:repository/{self.repository}"
        return f"arn:{partition}:ecr:{where}"

    def by_digest(self, digest: str) -> str:
        """Return the address of an image of the same repository by its digest."""
        return f"{self.registry}/{self.repository}@{digest}"

    def by_tag(self, tag: str) -> str:
        """Return the address of an image of the same repository by a tag."""
        return f"{self.registry}/{self.repository}:{tag}"


def ecr_images_in(text: str) -> list[str]:
    """Return the addresses of images in ECR that a text has, such as one of JSON.

    >>> ecr_images_in('{"Image": "123456789012.dkr.ecr.eu-west-2.amazonaws.com/worker:1.0"}')
    ['123456789012.dkr.ecr.eu-west-2.amazonaws.com/worker:1.0']
    """
    return _IN_TEXT.findall(text)


def with_registry(address: str, registry: str) -> str:
    """Return an address with a registry: its own, or the one that is given.

    >>> with_registry("sleeper/worker:1.0", "registry.example")
    'registry.example/sleeper/worker:1.0'
    >>> with_registry("public.ecr.aws/sleeper/worker:1.0", "registry.example")
    'public.ecr.aws/sleeper/worker:1.0'
    """
    first, slash, _ = address.partition("/")
    has_registry = slash and ("." in first or ":" in first or first == "localhost")
    return address if has_registry else f"{registry}/{address}"
