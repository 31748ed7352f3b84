"""Bugs in bulk imports on platforms: EMR, EMR Serverless and EKS."""

from __future__ import annotations

from ..bug import Bug

_STORIES = ("tests/stories/test_bulk_import_jobs.py",)
_STACKS = ("tests/deploy/stacks/test_bulk_import.py",)

BUGS = (
    Bug(
        name="full-cluster-gets-jobs",
        breaks="A kept cluster of EMR gets one job more than it takes.",
        module="workers/kinds/bulk_import.py",
        right="if under_way >= place.cluster.steps_max:",
        wrong="if under_way > place.cluster.steps_max:",
        tests=_STORIES,
    ),
    Bug(
        name="waiting-for-a-cluster-counts",
        breaks="A job that waits for room on a cluster becomes a dead letter.",
        module="workers/worker.py",
        right="source.queue.release(message.receipt, deferral.delay_s, counted=False)",
        wrong="source.queue.release(message.receipt, deferral.delay_s)",
        tests=_STORIES,
    ),
    Bug(
        name="execution-named-by-run",
        breaks="A message that comes twice starts two executions on EKS.",
        module="spark/submit/eks.py",
        right='"name": execution_name(table_id, job_id),',
        wrong='"name": execution_name(run_id, job_id),',
        tests=("tests/unit/spark/submit/test_eks.py",),
    ),
    Bug(
        name="java-outlives-its-driver",
        breaks="Spark's Java process goes on after a driver that had to be killed.",
        module="spark/submit/driver_process.py",
        right='does not end: killing it", process.pid)\n        _kill_group(process)',
        wrong='does not end: killing it", process.pid)\n        process.kill()',
        tests=_STORIES,
    ),
    Bug(
        name="instance-in-aws-out-of-reach",
        breaks="Jobs of an instance in AWS are refused for every platform.",
        module="spark/submit/submission_check.py",
        right=" and not call.url.startswith(_IN_AWS)",
        wrong="",
        tests=("tests/aws/test_service_models.py",),
    ),
    Bug(
        name="job-not-deleted-after-failure",
        breaks="Pods of a job on EKS that failed stay, and cost.",
        module="spark/submit/eks.py",
        right='"Next": "DeleteFailedJob",',
        wrong='"Next": "Failed",',
        tests=("tests/unit/spark/submit/test_eks.py",),
    ),
    Bug(
        name="roles-for-any-service",
        breaks="The lambda that starts bulk imports may give their roles to any service.",
        module="deploy/stacks/bulk_import.py",
        right='        {"StringEquals": {"iam:PassedToService": f"{service}.amazonaws.com"}},\n',
        wrong="",
        tests=_STACKS,
    ),
)
