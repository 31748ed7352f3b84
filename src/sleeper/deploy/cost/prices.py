"""Amazon's list prices, on demand and without free tiers."""

from __future__ import annotations

from typing import Final

REGION: Final = "us-east-1"
"""The region that the prices are for."""

LOOKED_UP: Final = "November 2026"
"""When they were looked up."""

DOLLARS: Final = {
    "S3 write": 5.00e-6,  # PUT, COPY, POST, LIST
    "S3 read": 0.40e-6,  # GET and all others; DELETE is free
    "DynamoDB write unit": 0.625e-6,
    "DynamoDB read unit": 0.125e-6,
    "SQS request": 0.40e-6,
    "SQS FIFO request": 0.50e-6,
    "Lambda call": 0.20e-6,
}
"""For one request."""

LAMBDA_GB_SECOND: Final = {"x86_64": 16.6667e-6, "arm64": 13.3334e-6}
"""For a gigabyte of a function's memory, for a second, by processor."""

MONTHLY: Final = {"AWS::CloudWatch::Alarm": 0.10, "AWS::CloudWatch::Dashboard": 3.00}
"""For a resource that is there, a month."""

GIGABYTE_MONTH: Final = {"S3": 0.023, "DynamoDB": 0.25, "CloudWatch Logs": 0.03}
"""For a gigabyte that is kept, a month."""

LOG_GIGABYTE: Final = 0.50
"""For a gigabyte that is written to logs."""

FARGATE_VCPU_HOUR: Final = {"x86_64": 0.04048, "arm64": 0.03238}
FARGATE_GB_HOUR: Final = {"x86_64": 0.004445, "arm64": 0.00356}
"""For an hour of a task, by processor: only while it runs."""
