"""The parts of AWS, each with its ARNs and domain. A test compares them with botocore's data."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class AwsPartition:
    """A part of AWS, which shares nothing with the others.

    Attributes:
        name: What its ARNs begin with, after `arn:`.
        regions: A regular expression of its regions.
        domain: The domain of its services.
    """

    name: str
    regions: str
    domain: str


PARTITIONS: Final = (
    AwsPartition("aws", r"(us|eu|ap|sa|ca|me|af|il|mx)-\w+-\d+", "amazonaws.com"),
    AwsPartition("aws-cn", r"cn-\w+-\d+", "amazonaws.com.cn"),
    AwsPartition("aws-eusc", r"eusc-(de)-\w+-\d+", "amazonaws.eu"),
    AwsPartition("aws-iso", r"us-iso-\w+-\d+", "c2s.ic.gov"),
    AwsPartition("aws-iso-b", r"us-isob-\w+-\d+", "sc2s.sgov.gov"),
    AwsPartition("aws-iso-e", r"eu-isoe-\w+-\d+", "cloud.adc-e.uk"),
    AwsPartition("aws-iso-f", r"us-isof-\w+-\d+", "csp.hci.ic.gov"),
    AwsPartition("aws-us-gov", r"us-gov-\w+-\d+", "amazonaws.com"),
)
"""All of them."""

DOMAINS: Final = tuple(dict.fromkeys(each.domain for each in PARTITIONS))
"""The domains of Amazon's own services."""


def partition_of(region: str) -> AwsPartition | None:
    """Return the part of AWS that a region is in; None if it is not the name of a region.

    >>> partition_of("eusc-de-east-1").name
    'aws-eusc'
    """
    return next((each for each in PARTITIONS if re.fullmatch(each.regions, region)), None)
